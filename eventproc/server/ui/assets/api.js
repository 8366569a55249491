// Calls of REST: its document says what there is, and everything else of the page is made from it.
// Credentials travel in a header and never in a cookie, so that no other site can use them.

const ROOT = new URL("..", document.baseURI);
const KEPT = "eventproc.authorization";
export const OWN = "/eventproc/v1";
export const REFUSED = "eventproc.refused"; // events: what the caller may do has perhaps changed
export const RECONNECTED = "eventproc.reconnected";

// The path of REST that a place of the page shows.
export const pathOf = (place) => (place.startsWith("v1/") ? `/${place}` : `${OWN}/${place}`);

let authorization = sessionStorage.getItem(KEPT);

class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

// Takes the token that `eventproc ui` puts behind the address, and removes it from what is shown and remembered.
// Returns whether there was one.
export function takeToken() {
  const token = /^#token=([0-9a-f]{48})$/.exec(location.hash); // no other one: a link must not sign a person in
  if (!token) return false;
  setAuthorization(`Bearer ${token[1]}`);
  history.replaceState(null, "", location.pathname);
  return true;
}

// Kept until the tab is closed.
export function setAuthorization(value) {
  authorization = value;
  if (value) sessionStorage.setItem(KEPT, value);
  else sessionStorage.removeItem(KEPT);
}

export const hasAuthorization = () => authorization !== null;

export function basic(user, password) {
  const bytes = new TextEncoder().encode(`${user}:${password}`);
  return `Basic ${btoa(String.fromCharCode(...bytes))}`;
}

// Returns the response. Raises Problem, with words for people.
async function request(path, { method = "GET", body, headers = {}, signal } = {}) {
  const all = { ...headers };
  if (authorization) all.Authorization = authorization;
  if (body !== undefined) all["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(new URL(path.replace(/^\//, ""), ROOT), {
      method, headers: all, signal, credentials: "omit", cache: "no-store",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (why) {
    if (why.name === "AbortError") throw why;
    throw new Problem(0, "The server cannot be reached. The page tries again.");
  }
  if (response.ok) return response;
  if (response.status === 403) dispatchEvent(new Event(REFUSED));
  let detail = response.statusText;
  try { detail = (await response.json()).detail ?? detail; } catch { /* it is no problem document */ }
  throw new Problem(response.status, detail);
}

// Returns what a call answers, and whether what it asked for goes on.
export async function answer(path, options) {
  const response = await request(path, options);
  const text = await response.text();
  return { found: text ? JSON.parse(text) : null, goesOn: response.status === 202 };
}

export const call = async (path, options) => (await answer(path, options)).found;

// The document, read once.
let loading = null;
export const theDocument = () => (loading ??= call("/openapi.json").then(indexed, (why) => { loading = null; throw why; }));

function indexed(found) {
  const operations = [];
  for (const [template, methods] of Object.entries(found.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      if (operation.responses["200"]?.content?.["text/event-stream"]) continue; // it never ends
      operations.push({
        ...operation, template, method: method.toUpperCase(),
        names: [...template.matchAll(/{(\w+)}/g)].map((each) => each[1]),
        pattern: new RegExp(`^${template.replace(/{\w+}/g, "([^/]+)")}$`),
        query: operation.parameters.filter((each) => each.in === "query"),
      });
    }
  }
  return { operations, schemas: found.components.schemas };
}

export function resolved(schema, schemas) {
  return schema?.$ref ? schemas[schema.$ref.split("/").pop()] : schema ?? {};
}

// Returns the GET of a path and the parameters in it, or null; also for a path in whose place a browser asks another one.
export function find(api, path) {
  try {
    if (path.split("/").some((each) => /^\.\.?$/.test(decodeURIComponent(each)))) return null;
  } catch { return null; }
  for (const each of api.operations) {
    const match = each.method === "GET" && each.pattern.exec(path);
    if (match) return { operation: each, given: Object.fromEntries(each.names.map((name, at) => [name, decodeURIComponent(match[at + 1])])) };
  }
  return null;
}

export function filled(template, given) {
  return template.replace(/{(\w+)}/g, (_, name) => encodeURIComponent(given[name]));
}

export function withQuery(path, query) {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value != null)).toString();
  return text ? `${path}?${text}` : path;
}

// What may be done on the page of an operation: calls of its section that go on from its path, or that name the same
// under another path. A call about an entry that has a page of its own is there, unless it makes the entry.
export function actionsOf(api, operation) {
  const names = new Set(operation.names);
  const hasPage = (template, tag) => api.operations.some((each) => each.method === "GET" && each.template === template && each.tags[0] === tag);
  return api.operations.filter((each) => {
    if (each.method === "GET") return false;
    if (operation.operationId === "listTasks" && each.tags[0] === "operation" && each.names.length === 0) return true;
    if (each.tags[0] !== operation.tags[0]) return false;
    const more = each.names.filter((name) => !names.has(name));
    const isEntry = operation.template.endsWith("}");
    const isSame = isEntry && more.length === 0 && each.names.length === names.size;
    const makesEntry = names.size === 0 && each.method === "POST" && each.names.join() === "scope";
    if (!isSame && !makesEntry && !each.template.startsWith(operation.template)) return false;
    if (more.length === 0) return true;
    const entry = each.template.slice(0, each.template.lastIndexOf("}") + 1);
    if (!isEntry && more.join() !== "scope" && (each.template !== entry || !isEntryOf(operation, entry))) return false;
    return !hasPage(entry, each.tags[0]) || (each.method === "POST" && each.template === entry && entry.startsWith(`${operation.template}/`));
  });
}

// The lists and views of what a page is about.
export function viewsOf(api, operation) {
  if (!operation.template.endsWith("}")) return [];
  return api.operations.filter((each) =>
    each.method === "GET" && each.names.length === operation.names.length
    && each.template.startsWith(`${operation.template}/`)
    && each.template.split("/").length === operation.template.split("/").length + 1
    && !each.query.some((parameter) => parameter.required));
}

const isEntryOf = (operation, template) =>
  template.startsWith(operation.template) && /^(\/{\w+})+$/.test(template.slice(operation.template.length));

// The GET of an entry of a list, if there is one.
export function entryOf(api, operation) {
  return api.operations.find((each) => each.method === "GET" && isEntryOf(operation, each.template));
}

// Follows the changes of the store while the page is looked at; calls `changed` for each, and after a gap.
export function follow(changed, stateChanged) {
  let controller = null;
  let lastId = null;
  let isAgain = false;
  async function run(signal) {
    for (let wait = 500; !signal.aborted; wait = Math.min(wait * 2, 8000)) {
      try {
        const headers = lastId ? { "Last-Event-ID": lastId } : {};
        const response = await request(`${OWN}/changes`, { headers, signal });
        stateChanged(true);
        changed();
        if (isAgain) dispatchEvent(new Event(RECONNECTED));
        isAgain = true;
        wait = 500;
        let buffered = "";
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        for (let part = await reader.read(); !part.done; part = await reader.read()) {
          buffered += part.value;
          const messages = buffered.split("\n\n");
          buffered = messages.pop();
          for (const message of messages) {
            const id = /^id: ?(.+)$/m.exec(message);
            if (id) lastId = id[1];
            if (/^event: ?reset$/m.test(message)) lastId = null;
            if (!message.startsWith(":")) changed();
          }
        }
      } catch (why) {
        if (signal.aborted || why.status === 401) break;
        if (why.status === 400) lastId = null; // of another store, or of a caller that might see more
      }
      stateChanged(false);
      await new Promise((done) => setTimeout(done, wait));
    }
  }
  function look() {
    if (document.hidden) {
      controller?.abort();
      controller = null;
    } else if (!controller) {
      controller = new AbortController();
      run(controller.signal);
    }
  }
  document.addEventListener("visibilitychange", look);
  look();
  return () => { document.removeEventListener("visibilitychange", look); controller?.abort(); };
}
