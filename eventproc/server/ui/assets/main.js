// The page: what is behind `#` is a path of REST, and what is shown is its answer.

import { html, render, useCallback, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { OWN, basic, call, find, follow, hasAuthorization, pathOf, setAuthorization, takeToken, theDocument } from "./api.js";
import { Overview } from "./overview.js";
import { Page } from "./pages.js";

const SECTIONS = [
  ["", "Overview"], ["streams", "Streams"], ["topics", "Topics"], ["groups", "Groups"], ["processors", "Processors"],
  ["shares", "Queues"], ["schedules", "Schedules"], ["supervisors", "Supervisors"], ["tables", "Tables"],
  ["requests", "Requests"], ["tasks", "Tasks"], ["ingestion/workers", "Workers"], ["cluster", "Instances"],
  ["/v1/scopes", "Scopes"], ["users", "Users"],
];
const CHANGES_MS = 400; // so long changes are collected before the page looks again

function hashOf() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { path, query: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

function Login({ problem, done }) {
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  function submit(event) {
    event.preventDefault();
    setAuthorization(user ? basic(user, password) : `Bearer ${password.replace(/[^ -~]/g, "?")}`); // a header has no other letters, and no token either
    done();
  }
  return html`<main class="login"><form onSubmit=${submit}>
    <h1>eventproc</h1>
    <p>Sign in with a user of this store and its password, or with a token alone.</p>
    <div class="field"><label for="user">User</label><input id="user" autocomplete="username" value=${user} onInput=${(event) => setUser(event.target.value)} /></div>
    <div class="field"><label for="password">Password or token</label><input id="password" type="password" autocomplete="current-password" required value=${password} onInput=${(event) => setPassword(event.target.value)} /></div>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    <button class="main">Sign in</button>
  </form></main>`;
}

// Whether the caller may see a section: those of the whole server are for callers that may read all of it.
const isFor = (api, caller, target) => caller.reads || target === "" || find(api, pathOf(target.replace(/^\//, "")))?.operation["x-permission"] !== "READ on *";

function Navigation({ api, place, caller, isLive, signOut }) {
  const nav = useRef(null);
  useEffect(() => { nav.current.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }); }, [place]); // a narrow one scrolls
  return html`<header>
    <a class="skip" href="#content" onClick=${(event) => { event.preventDefault(); document.getElementById("content").focus(); }}>Skip to the content</a>
    <a class="brand" href="#/">eventproc</a>
    <nav ref=${nav} aria-label="Sections">${SECTIONS.filter(([target]) => isFor(api, caller, target)).map(([target, label]) => {
      const path = target.replace(/^\//, "");
      const isHere = path === "" ? place === "" : place === path || place.startsWith(`${path}/`);
      return html`<a key=${target} href=${`#/${path}`} aria-current=${isHere ? "page" : undefined}>${label}</a>`;
    })}</nav>
    <span class="who">${caller?.user && html`<bdi>${caller.user}</bdi>`}
      <span class=${isLive ? "live" : "live off"} role="status">${isLive ? "live" : "not connected"}</span>
      ${hasAuthorization() && html`<button type="button" onClick=${signOut}>Sign out</button>`}</span>
  </header>`;
}

function App() {
  const [where, setWhere] = useState(hashOf());
  const [api, setApi] = useState(null);
  const [caller, setCaller] = useState(null);
  const [problem, setProblem] = useState(null);
  const [isLive, setLive] = useState(false);
  const [turn, setTurn] = useState(0);

  const begin = useCallback(async () => {
    try {
      setCaller(await call(`${OWN}/caller`));
      setApi(await theDocument());
      setProblem(null);
    } catch (why) {
      setCaller(null);
      setProblem({ status: why.status, text: why.status === 401 && !hasAuthorization() ? null : why.message });
      if (why.status !== 401) setTimeout(begin, 2000);
    }
  }, []);
  useEffect(() => { begin(); }, []);
  useEffect(() => {
    const moved = () => { if (takeToken()) begin(); setWhere(hashOf()); document.getElementById("content")?.focus(); scrollTo(0, 0); };
    addEventListener("hashchange", moved);
    setWhere(hashOf()); // it may have moved before
    return () => removeEventListener("hashchange", moved);
  }, []);
  useEffect(() => {
    if (!caller) return undefined;
    let waiting = null;
    const end = follow(() => { waiting ??= setTimeout(() => { waiting = null; setTurn((before) => before + 1); }, CHANGES_MS); }, setLive);
    return () => { clearTimeout(waiting); end(); };
  }, [caller]);
  useEffect(() => { document.title = where.path ? `${where.path} – eventproc` : "eventproc"; }, [where.path]);

  const refused = useCallback(() => begin(), []);
  if (problem?.status === 401) return html`<${Login} problem=${problem.text} done=${begin} />`;
  if (!api || !caller) return html`<main class="login"><h1>eventproc</h1><p role="status">${problem ? problem.text : "Loading…"}</p></main>`;
  const found = find(api, pathOf(where.path));
  const signOut = () => { setAuthorization(null); begin(); };
  return html`<${Navigation} api=${api} place=${where.path} caller=${caller} isLive=${isLive} signOut=${signOut} />
    <main id="content" tabindex="-1">${where.path === ""
      ? html`<${Overview} turn=${turn} refused=${refused} />`
      : found
        ? html`<${Page} key=${where.path} api=${api} path=${pathOf(where.path)} place=${where.path} label=${SECTIONS.find(([target]) => target.replace(/^\//, "") === where.path)?.[1]} query=${where.query} operation=${found.operation} given=${found.given} turn=${turn} refused=${refused} />`
        : html`<h1>Nothing is here</h1><p>The server has no page <code><bdi>${where.path}</bdi></code>. <a href="#/">Go to the overview</a>.</p>`}</main>`;
}

takeToken();
render(html`<${App} />`, document.getElementById("page"));
