// Browse the events of a stream: from a position, of a key or a segment; on to newer ones, and follow.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { call, withQuery } from "./api.js";
import { Fields, Payload, excerpt, number, time } from "./values.js";

const FOLLOW_MS = 1000; // at the end of the stream
const BATCH_MS = 100; // while there are more events
const BATCH = 1000; // events of a call that follows
const SHOWN_MAX = 2000; // rows; the oldest ones go
const SHOWN_CHARS_MAX = 32 * 2 ** 20; // of their payloads, but the newest row stays
const PAGE = 100;

// Returns the newest rows, as many as are shown.
function newest(rows) {
  let first = rows.length - 1;
  for (let chars = rows[first]?.payload.length ?? 0; first > 0 && rows.length - first < SHOWN_MAX; first -= 1) {
    chars += rows[first - 1].payload.length;
    if (chars > SHOWN_CHARS_MAX) break;
  }
  return rows.slice(Math.max(first, 0));
}

function Event({ event, form }) {
  const [isOpen, setOpen] = useState(false);
  const { payload, ...rest } = event;
  return html`<tr><td><button type="button" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)} aria-label=${`Event ${event.number} of segment ${event.segment}`}>${isOpen ? "▾" : "▸"}</button></td>
      <td>${event.segment}</td><td class="number">${number(event.number)}</td><td><time>${time(event.timestamp)}</time></td>
      <td><bdi>${event.key === null ? "" : event.key.slice(0, 80)}</bdi></td><td class="excerpt"><bdi>${excerpt(payload, form)}</bdi></td></tr>
    ${isOpen && html`<tr><td colspan="6"><${Fields} value=${rest} /><${Payload} key=${form} base64=${payload} wanted=${form} /></td></tr>`}`;
}

export function Events({ path, place, query, refused }) {
  const [rows, setRows] = useState([]);
  const [next, setNext] = useState(null);
  const [atEnd, setAtEnd] = useState(false);
  const [problem, setProblem] = useState(null);
  const [isFollowing, setFollowing] = useState(false);
  const [form, setForm] = useState(""); // of payloads; "": the one that each of them has
  const asking = useRef(null); // the call whose answer is waited for; that to an earlier question is late
  const start = query.start ?? "last";

  async function ask(from, isNew, limit = PAGE) {
    if (asking.current && !isNew) return;
    const own = asking.current = {};
    try {
      const found = await call(withQuery(path, { limit, segment: query.segment, key: query.key, start: from }));
      if (asking.current !== own) return;
      setRows((before) => newest([...(isNew ? [] : before), ...found.items]));
      setNext(found.next);
      setAtEnd(found.at_end);
      setProblem(null);
    } catch (why) {
      if (why.status === 401) refused();
      if (asking.current === own) setProblem(why.message);
    } finally {
      if (asking.current === own) asking.current = null;
    }
  }
  useEffect(() => { setRows([]); setNext(null); setAtEnd(false); ask(start, true); }, [path, query]); // a new query object: the place was asked for once more
  useEffect(() => {
    if (!isFollowing || next === null) return undefined;
    const timer = setInterval(() => { if (!document.hidden) ask(next, false, BATCH); }, atEnd || problem ? FOLLOW_MS : BATCH_MS);
    return () => clearInterval(timer);
  }, [isFollowing, next, atEnd, problem]);

  function changed(event) {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.currentTarget));
    const target = withQuery(`#/${place}`, given);
    if (target === location.hash) ask(start, true);
    else location.hash = target.slice(1);
  }
  return html`<form class="filters" role="search" onSubmit=${changed}>
      <div><label for="from">from</label><input key=${start} id="from" name="start" defaultValue=${start} list="positions" title="head, last, tail, a time, or a cut" /><datalist id="positions"><option value="last" /><option value="head" /><option value="tail" /></datalist></div>
      <div><label for="key">key</label><input key=${query.key} id="key" name="key" defaultValue=${query.key ?? ""} /></div>
      <div><label for="segment">segment</label><input key=${query.segment} id="segment" name="segment" defaultValue=${query.segment ?? ""} /></div>
      <button>Show</button>
      <div><label for="form">payloads</label><select id="form" onChange=${(each) => setForm(each.target.value)}><option value="">by form</option>${["tree", "text", "hex"].map((each) => html`<option key=${each} value=${each} selected=${each === form}>${each}</option>`)}</select></div>
    </form>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    <div class="scroll" tabindex="0" role="region" aria-label="Events"><table class="events">
      <thead><tr><th scope="col">open</th><th scope="col">segment</th><th scope="col" class="number">number</th><th scope="col">appended</th><th scope="col">key</th><th scope="col">payload</th></tr></thead>
      <tbody>${rows.map((event) => html`<${Event} key=${`${event.segment}/${event.number}`} event=${event} form=${form} />`)}</tbody></table></div>
    <p class="buttons"><span role="status">${number(rows.length)} events${atEnd ? ", up to the end" : ""}</span>
      <button type="button" disabled=${next === null} onClick=${() => ask(next, false)}>Newer</button>
      <button type="button" aria-pressed=${isFollowing} onClick=${() => setFollowing(!isFollowing)}>Follow</button></p>`;
}
