// A page for each GET of REST: a list or one thing, what can be seen of it, and what can be done with it.

import { html, useEffect, useErrorBoundary, useState } from "./vendor/preact-htm.js";
import { OWN, RECONNECTED, REFUSED, actionsOf, call, entryOf, filled, find, pathOf, viewsOf, withQuery } from "./api.js";
import { Actions } from "./actions.js";
import { Events } from "./events.js";
import { Growth, STATES_MS } from "./growth.js";
import { useAnswer } from "./live.js";
import { Picture } from "./picture.js";
import { Fields, Payload, Table, Value, excerpt, number, time, withCalls, words } from "./values.js";

const COLUMNS = {
  listAllStreams: ["name", "state", "events_per_second", "events", "size_bytes", "epoch", "created_ms"],
  listTopics: ["name", "state", "partitions", "partitioning", "events_per_second", "events", "size_bytes"],
  listGroups: ["name", "kind", "paused", "generation", "created_ms"],
  listShares: ["name", "paused", "generation", "created_ms"],
  listProcessors: ["name", "state", "alive", "events", "bytes", "age_ms", "call_median_ms", "call_p99_ms", "commit_age_ms", "blocked by"],
  listDeadLetters: ["id", "error_type", "error", "key", "origin_stream", "attempts", "failed_ms"],
  listDelayed: ["id", "due_ms", "key", "failure"],
  listStates: ["key", "value", "version", "expires_ms"],
  listTransactions: ["id", "state", "events", "size_bytes", "age_ms", "lease_left_ms"],
  listRequests: ["id", "kind", "target", "status", "origin", "created_ms", "finished_ms", "error"],
  listTasks: ["id", "kind", "resource", "status", "done", "total", "created_ms", "error"],
};
const FIRST = ["listTransactions", "listSegments", "listEvents", "listDeadLetters"]; // among views, the last one first
const SPLIT = 2;
const RATE_MS = 4000; // over less, a rate of events that arrive in bursts jumps
const MAY_BE_NONE = /^processors(\/[^/]+){2}$/; // dead letters are below processors, also those of a queue without one

// What a page shows, from what its call returns.
const described = (summary) => summary.replace(/^Return (.)/, (_, first) => first.toUpperCase());

const named = (row) => row.name ?? row.id ?? row.group ?? row.instance ?? row.streamName ?? row.readerGroupName ?? row.scopeName;

// The rows of an answer: of a page, of a list, or of a form of Pravega's, which has one list.
function rowsOf(found) {
  if (Array.isArray(found)) return found;
  if (found?.items) return found.items;
  const lists = Object.values(found ?? {}).filter(Array.isArray);
  return Object.keys(found ?? {}).length === 1 && lists.length === 1 ? lists[0] : null;
}

const looks = new Map(); // by group: [when, how many events were finished, events per second], of the last look

// Returns how many events a group finishes per second, from two looks at it; null after the first one.
function rateOf(group, now = performance.now()) {
  const finished = group.segments.reduce((sum, each) => sum + (each.number ?? NaN), 0);
  const [at, before, rate] = looks.get(group.name) ?? [now, finished, null];
  if (looks.has(group.name) && now - at < RATE_MS) return rate;
  const found = now > at && finished >= before ? ((finished - before) * 1000) / (now - at) : null;
  looks.set(group.name, [now, finished, found]);
  return found;
}

// How many of the letters on a page have each error, the most frequent one first.
function Errors({ rows }) {
  const counts = new Map();
  for (const { error_type } of rows) counts.set(error_type, (counts.get(error_type) ?? 0) + 1);
  return html`<p>${[...counts].sort((one, other) => other[1] - one[1]).map(([type, count]) => html`<span class="key" key=${type}><bdi>${type ?? "no error"}</bdi> ${number(count)}</span>`)}</p>`;
}

// The page of a processor shows its group's fields beside its own. That of states has the name of a class, and no
// payload; that of a key's state has one.
function whole(found, id) {
  if (id === "measureStates") {
    const { payload, ...rest } = found;
    return { ...rest, "class of values": payload };
  }
  if (id === "describeKeyState") {
    const { value, ...rest } = found;
    return { ...rest, payload: value };
  }
  if (id !== "describeProcessor") return found;
  const { group, ...own } = found;
  const { name, state, alive, blocker, calls, commit_age_ms } = own;
  const members = own.members.map(({ status, ...rest }) => withCalls({ ...rest, ...status }));
  return { name, state, alive, events_per_second: rateOf(group), commit_age_ms, blocker, calls, members, ...group, ...own, members };
}

// A list of processors shows what their groups are behind, and that of states how their values begin.
function flat(row, id) {
  if (id === "listStates") return { ...row, value: excerpt(row.value) };
  if (id !== "listProcessors") return row;
  return { ...withCalls(row), events: row.group.events, bytes: row.group.bytes, age_ms: row.group.age_ms, "blocked by": row.blocker && `${row.blocker.error ?? "a call that runs"}, since ${time(row.blocker.since_ms)}` };
}

// What the caller may do, by the places of calls, and whether it is a user; null: it is not known yet. Asked again after a
// call was refused that seemed to be permitted, and when the page is connected again.
function usePermissions(given) {
  const [may, setMay] = useState(null);
  const scope = given.scope;
  const name = given.stream ?? given.group ?? given.schedule;
  useEffect(() => {
    let latest = null;
    let mayAny = true;
    const places = { server: "*", ...(scope ? { scope } : {}), ...(scope && name ? { name: `${scope}/${name}` } : {}) };
    async function ask() {
      const own = latest = {};
      const known = {};
      try {
        await Promise.all(Object.entries(places).map(async ([place, on]) => {
          const { user, updates } = await call(withQuery(`${OWN}/caller`, { on }));
          Object.assign(known, { [place]: updates, isUser: user !== null });
        }));
      } catch { /* a call that is not permitted is refused */ }
      if (latest !== own) return;
      mayAny = Object.keys(places).some((place) => known[place] !== false);
      setMay(known);
    }
    const refused = () => { if (mayAny) ask(); }; // else no button can be wrong
    ask();
    addEventListener(REFUSED, refused);
    addEventListener(RECONNECTED, ask);
    return () => { latest = null; removeEventListener(REFUSED, refused); removeEventListener(RECONNECTED, ask); };
  }, [scope, name]);
  return may;
}

function Crumbs({ api, place }) {
  const steps = place.split("/");
  if (steps.length < 2) return null;
  return html`<nav class="crumbs" aria-label="Where this is">${steps.slice(0, -1).map((step, at) => {
    const target = steps.slice(0, at + 1).join("/");
    const isPage = find(api, pathOf(target)) !== null && !MAY_BE_NONE.test(target);
    const isScope = at === 1 && !isPage && find(api, pathOf(steps[0])) !== null;
    if (at === 0 && !isPage) return null; // a word of REST
    const label = html`<bdi>${decodeURIComponent(step)}</bdi>`;
    return html`${isPage || isScope ? html`<a href=${isPage ? `#/${target}` : `#/${steps[0]}?scope=${step}`}>${label}</a>` : label}<span aria-hidden="true">/</span>`;
  })}</nav>`;
}

function Filters({ operation, place, query }) {
  const filters = operation.query.filter((each) => !["after", "limit"].includes(each.name));
  if (filters.length === 0) return null;
  function changed(event) {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.currentTarget.form ?? event.currentTarget));
    location.hash = withQuery(`#/${place}`, given).slice(1);
  }
  return html`<form class="filters" role="search" onSubmit=${changed}>${filters.map((each) => {
    const id = `filter-${each.name}`;
    const choices = each.schema.enum;
    return html`<div key=${each.name}><label for=${id}>${words(each.name)}</label>${choices
      ? html`<select id=${id} name=${each.name} onChange=${changed}><option value="">any</option>${choices.map((choice) => html`<option value=${choice} selected=${choice === query[each.name]}>${choice}</option>`)}</select>`
      : html`<input key=${query[each.name]} id=${id} name=${each.name} defaultValue=${query[each.name] ?? ""} title=${each.description ?? ""} />`}</div>`;
  })}<button>Show</button></form>`;
}

function List({ api, operation, given, place, query, found }) {
  const rows = rowsOf(found).map((row) => (row !== null && typeof row === "object" ? flat(row, operation.operationId) : { value: row }));
  const entry = entryOf(api, operation);
  const own = entry?.names.slice(operation.names.length) ?? [];
  function link(row) {
    if (operation.operationId === "listStates") return withQuery(`#/${place}/value`, { key: row.key });
    const name = entry && named(row);
    if (!name) return null;
    const parts = own.length === SPLIT ? String(name).split("/") : [name];
    if (parts.length !== own.length) return null;
    const path = filled(entry.template, { ...given, ...Object.fromEntries(own.map((each, at) => [each, parts[at]])) });
    return `#/${path.replace(`${OWN}/`, "").replace(/^\//, "")}`;
  }
  let columns = COLUMNS[operation.operationId];
  if (!columns && rows.length) {
    const all = [...new Set(rows.flatMap(Object.keys))].filter((name) => name !== "payload" && name !== "traceback");
    const first = all.find((name) => rows[0][name] === named(rows[0])) ?? all[0];
    columns = [first, ...all.filter((name) => name !== first && !rows.every((row) => row[name] !== null && typeof row[name] === "object" && !Array.isArray(row[name])))];
  }
  return html`${operation.operationId === "listDeadLetters" && html`<${Errors} rows=${rows} />`}
    <${Table} rows=${rows} columns=${columns} link=${link} label=${words(operation.operationId)} />
    ${found.next && html`<p><a href=${withQuery(`#/${place}`, { ...query, after: found.next })}>Next page</a></p>`}
    ${query.after && html`<p><a href=${withQuery(`#/${place}`, { ...query, after: "" })}>First page</a></p>`}`;
}

function Entry({ found }) {
  const isObject = (value) => value !== null && typeof value === "object";
  const isTable = (value) => Array.isArray(value) && value.length > 0 && value.every(isObject);
  const special = ["payload", "traceback"];
  const entries = Object.entries(found);
  const plain = Object.fromEntries(entries.filter(([name, value]) => !isTable(value) && !(isObject(value) && !Array.isArray(value)) && !special.includes(name)));
  return html`<${Fields} value=${plain} />
    ${entries.filter(([name]) => special.includes(name) && found[name] !== null).map(([name, value]) => html`<section key=${name}><h2>${words(name)}</h2>${name === "payload" ? html`<${Payload} base64=${value} />` : html`<${Value} name=${name} value=${value} />`}</section>`)}
    ${entries.filter(([, value]) => isTable(value)).map(([name, value]) => html`<section key=${name}><h2>${words(name)}</h2><${Table} rows=${value} label=${words(name)} /></section>`)}
    ${entries.filter(([, value]) => isObject(value) && !Array.isArray(value)).map(([name, value]) => html`<section key=${name}><h2>${words(name)}</h2><${Fields} value=${value} of=${name} /></section>`)}`;
}

export function Page({ api, path, place, label, query, operation, given, turn, refused }) {
  const isEvents = operation.operationId === "listEvents";
  const isPicture = operation.operationId === "plotStream";
  const asked = withQuery(path, query);
  const [broken] = useErrorBoundary(); // what cannot be shown must not take the other pages with it
  const isSize = operation.operationId === "measureStates"; // which reads all of them: not after each change, too
  const { found, problem, isAnswered, again } = useAnswer(isEvents || isPicture ? `${path.replace(/\/(events|plot)$/, "")}` : asked, isSize ? 0 : turn, refused, isSize ? STATES_MS : undefined);
  const may = usePermissions(given);
  const isEntry = operation.template.endsWith("}");
  const isNamed = isEntry && operation.names.length === SPLIT && given.scope;
  const isState = operation.operationId === "describeKeyState";
  const title = label ?? (isState ? query.key : isNamed ? operation.names.map((each) => given[each]).join("/") : isEntry ? given[operation.names.at(-1)] : place.split("/").pop().replace(/-/g, " "));
  const rows = found && !isEvents && !isPicture ? rowsOf(found) : null;
  const views = viewsOf(api, operation).sort((one, other) => FIRST.indexOf(other.operationId) - FIRST.indexOf(one.operationId));
  const letters = operation.operationId === "describeDeadLetter";
  const more = place.startsWith("processors/") && operation.names.length === 2 && operation.template.endsWith("}") ? [["jobs", `jobs/${given.scope}/${given.group}`]]
    : place.startsWith("topics/") && operation.template.endsWith("}") ? [["events", `streams/${given.scope}/${given.stream}/events`], ["segments", `streams/${given.scope}/${given.stream}/segments`], ["transactions", `streams/${given.scope}/${given.stream}/transactions`]]
    : place.startsWith("shares/") && given.group ? [["jobs", `jobs/${given.scope}/${given.group}`], ["dead letters", `processors/${given.scope}/${given.group}/dead-letters`]] : [];
  let operations = actionsOf(api, operation);
  if (letters) operations = api.operations.filter((each) => ["redriveDeadLetters", "dropDeadLetters"].includes(each.operationId));
  const preset = letters ? { ids: given.letter } : isState ? { key: query.key } : {};
  if (broken) return html`<p class="problem" role="alert">This page cannot be shown: ${String(broken)}</p>`;
  return html`<${Crumbs} api=${api} place=${place} />
    <h1><bdi>${title}</bdi></h1>
    <p class="summary">${described(operation.summary)}</p>
    ${(views.length > 0 || more.length > 0) && html`<nav class="views" aria-label="Views">${[...more, ...views.map((each) => [words(each.template.split("/").pop().replace(/-/g, " ")), `${place}/${each.template.split("/").pop()}`])].map(([label, target]) => html`<a key=${target} href=${`#/${target}`}>${label}</a>`)}</nav>`}
    ${!isEvents && !isPicture && html`<${Actions} api=${api} operations=${operations} given=${given} shown=${rows ? null : found} may=${may} preset=${preset} done=${again} />`}
    ${problem && html`<p class="problem" role="alert">${problem.message}</p>`}
    ${isEvents && html`<${Events} path=${path} place=${place} query=${query} refused=${refused} />`}
    ${isPicture && html`<${Picture} path=${path} turn=${turn} refused=${refused} />`}
    ${!isEvents && !isPicture && !rows && html`<${operation.operationId === "describeStream" || operation.operationId === "describeTopic" ? StreamPicture : "div"} given=${given} turn=${turn} refused=${refused} />`}
    ${isSize && html`<${Growth} path=${path} found=${found} />`}
    ${rows && html`<${Filters} operation=${operation} place=${place} query=${query} />`}
    ${rows && html`<${List} api=${api} operation=${operation} given=${given} place=${place} query=${query} found=${found} />`}
    ${found && !rows && !isEvents && !isPicture && html`<${Entry} found=${whole(found, operation.operationId)} />`}
    ${!found && !problem && html`<p role="status">${isAnswered ? "There is none." : "Loading…"}</p>`}`;
}

function StreamPicture({ given, turn, refused }) {
  return html`<${Picture} path=${`${OWN}/streams/${encodeURIComponent(given.scope)}/${encodeURIComponent(given.stream)}/plot`} turn=${turn} refused=${refused} />`;
}
