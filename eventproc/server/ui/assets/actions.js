// Actions: a form from the schema of a call, its dry run where it has one, and the call itself.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact-htm.js";
import { OWN, answer, call, filled, resolved, withQuery } from "./api.js";
import { Fields, words } from "./values.js";

const DESTROYS = /delete|drop|terminate|truncate|abort|cancel|revoke|reset|compact|seal|updateStreamState/i;
const LONGEST_HINT = 140;

const TITLES = { updateStreamState: "Seal stream" };

export const title = (operation) => {
  if (TITLES[operation.operationId]) return TITLES[operation.operationId];
  const text = words(operation.operationId);
  return text[0].toUpperCase() + text.slice(1);
};

function unwrapped(schema, schemas) {
  const variants = schema.anyOf?.filter((each) => each.type !== "null");
  const nullable = variants !== undefined && variants.length < schema.anyOf.length;
  const found = variants?.length === 1 ? { ...resolved(variants[0], schemas), description: schema.description ?? variants[0].description } : resolved(schema, schemas);
  return { found, nullable };
}

// A field of a form: what it is shown as, and how its text becomes a value.
function fieldOf(name, schema, required, schemas) {
  const { found, nullable } = unwrapped(schema, schemas);
  const hint = (schema.description ?? found.description ?? "").slice(0, LONGEST_HINT);
  const base = { name, hint, required: required && !nullable, nullable, given: required };
  if (found.type === "boolean") return { ...base, form: "check" };
  if (found.enum) return { ...base, form: "choice", choices: found.enum };
  if (found.type === "integer" || found.type === "number") return { ...base, form: "number" };
  if (found.type === "string" && found.contentEncoding === "base64") return { ...base, form: "text", isBytes: true };
  if (found.type === "string") return { ...base, form: name === "password" ? "password" : "line" };
  if (found.type === "array" && resolved(found.items, schemas).type === "string") return { ...base, form: "lines" };
  return { ...base, form: "json" };
}

function read(field, text) {
  if (field.form === "check") return text === true;
  if (text === undefined || text === "") {
    if (field.required && field.form !== "text") throw new Error(`${words(field.name)} is required`);
    return field.nullable && field.given ? null : field.required ? "" : undefined;
  }
  if (field.form === "number") {
    const found = Number(text);
    if (Number.isNaN(found) || !String(text).trim()) throw new Error(`${words(field.name)} must be a number`);
    return found;
  }
  if (field.form === "lines") return text.split("\n").map((each) => each.trim()).filter((each) => each);
  if (field.form === "json") {
    try { return JSON.parse(text); } catch { throw new Error(`${words(field.name)} must be JSON`); }
  }
  if (field.isBytes) {
    const bytes = new TextEncoder().encode(text);
    let binary = "";
    for (const each of bytes) binary += String.fromCharCode(each);
    return btoa(binary);
  }
  return text;
}

function Field({ field, value, change }) {
  const id = `field-${field.name}`;
  const about = field.hint ? `${id}-about` : undefined;
  const shared = { id, name: field.name, required: field.required, "aria-describedby": about };
  const typed = (event) => change(event.target.value);
  let input;
  if (field.form === "check") input = html`<input ...${shared} type="checkbox" required=${false} checked=${value === true} onChange=${(event) => change(event.target.checked)} />`;
  else if (field.form === "choice") input = html`<select ...${shared} onChange=${typed}><option value="">–</option>${field.choices.map((each) => html`<option key=${each} value=${each} selected=${each === value}>${each}</option>`)}</select>`;
  else if (["lines", "json", "text"].includes(field.form)) input = html`<textarea ...${shared} rows="3" value=${value ?? ""} onInput=${typed} placeholder=${field.form === "json" ? "JSON" : field.form === "lines" ? "one a line" : ""}></textarea>`;
  else input = html`<input ...${shared} type=${field.form === "password" ? "password" : "text"} inputmode=${field.form === "number" ? "numeric" : undefined} autocomplete="off" value=${value ?? ""} onInput=${typed} />`;
  return html`<div class=${`field is-${field.form}`}><label for=${id}>${words(field.name)}${field.required ? " (required)" : ""}</label>${input}${field.hint && html`<small id=${about}>${field.hint}</small>`}</div>`;
}

// What a PUT replaces, as it is now, so that what is left alone stays. Pravega shows tags under another name than it takes.
async function fillIn(api, operation, given, shown) {
  if (!api.operations.some((each) => each.method === "GET" && each.template === operation.template)) return shown?.options;
  const { tags, ...now } = await call(filled(operation.template, given));
  return { streamTags: tags, ...now };
}

// What a dry run says beyond what was asked.
function lossesOf(found) {
  if (Array.isArray(found)) return { result: found };
  return Object.fromEntries(Object.entries(found).filter(([name]) => !["dry_run", "would", "target"].includes(name)));
}

function textOf(value) {
  if (Array.isArray(value) && value.every((each) => typeof each === "string")) return value.join("\n");
  return typeof value === "object" ? JSON.stringify(value, null, 1) : value;
}

// The dialog of an action. given: what the page names. shown: what it is about, as it is now.
function ActionDialog({ api, operation, given, shown, preset = {}, close, done }) {
  const dialog = useRef(null);
  const schema = resolved(operation.requestBody?.content["application/json"].schema, api.schemas);
  const bodyNames = Object.keys(schema.properties ?? {}).filter((name) => name !== "dry_run" && name !== "dryRun");
  const pathNames = operation.names.filter((name) => given[name] === undefined);
  const queryFields = operation.query.filter((each) => each.name !== "dry_run");
  const fields = {
    path: pathNames.map((name) => fieldOf(name, { type: "string" }, true, api.schemas)),
    query: queryFields.map((each) => fieldOf(each.name, { ...each.schema, description: each.description }, each.required, api.schemas)),
    body: bodyNames.map((name) => fieldOf(name, schema.properties[name], schema.required?.includes(name) ?? false, api.schemas)),
  };
  const hasBodyDryRun = "dry_run" in (schema.properties ?? {});
  const hasDryRun = hasBodyDryRun || operation.query.some((each) => each.name === "dry_run");
  const [texts, setTexts] = useState(preset);
  const replaces = operation.method === "PUT" && bodyNames.length > 0;
  const [state, setState] = useState({ step: "form", busy: replaces }); // until it is known what is replaced
  useEffect(() => { dialog.current.showModal(); }, []);
  useLayoutEffect(() => { dialog.current.querySelector("section")?.focus(); }, [state.step]); // before it is shown, so that no key confirms what is not read
  useEffect(() => {
    if (!replaces) return;
    fillIn(api, operation, given, shown).then((now) => {
      setTexts((before) => ({ ...Object.fromEntries(bodyNames.filter((name) => now?.[name] != null).map((name) => [name, textOf(now[name])])), ...before }));
      setState({ step: "form" });
    }, (why) => setState({ step: "form", busy: true, problem: why.message }));
  }, []);

  function valuesOf(list) {
    return Object.fromEntries(list.map((field) => [field.name, read(field, texts[field.name])]).filter(([, value]) => value !== undefined));
  }

  async function send(dryRun) {
    setState((before) => ({ ...before, busy: true, problem: null }));
    try {
      let path = filled(operation.template, { ...given, ...valuesOf(fields.path) });
      const query = valuesOf(fields.query);
      let body = operation.requestBody ? valuesOf(fields.body) : undefined;
      if (dryRun && hasBodyDryRun) body = { ...body, dry_run: true };
      else if (dryRun) query.dry_run = true;
      // What was confirmed, also if streams have grown since then.
      else if (state.found?.cut && body?.cut) body = { ...body, cut: state.found.cut };
      else if (state.found?.[0]?.cut_after && body?.start) body = { ...body, start: state.found.map((each) => each.cut_after) };
      else if (operation.operationId === "resetPartitions") {
        const numbers = state.found.map(({ stream, partition, number }) => ({ stream, partition, number }));
        const read = await call(filled(operation.template.replace(/\/reset$/, ""), given));
        const isRead = (place) => read.some((each) => each.topic === place.stream && each.partition === place.partition);
        // Segments of a split stream that the group does not read now have no number that can be set.
        if (numbers.length > 0 && numbers.every(isRead)) {
          path = filled(operation.template.replace(/reset$/, "commit"), given);
          body = { numbers };
        }
      }
      const answered = await answer(withQuery(path, query), { method: operation.method, body });
      if (dryRun) setTexts(texts); // so that this is what is confirmed, if the form was edited meanwhile
      setState({ step: dryRun ? "preview" : "done", ...answered });
      if (!dryRun) done();
    } catch (why) {
      setState((before) => ({ ...before, busy: false, problem: why.message }));
    }
  }

  function submit(event) {
    event.preventDefault();
    if (state.busy) return;
    if (state.step === "form" && hasDryRun) send(true);
    else if (state.step === "form") setState({ step: "preview", found: null });
    else if (state.step === "preview") send(false);
    else dialog.current.close();
  }

  const isForm = state.step === "form";
  const all = [...fields.path, ...fields.query, ...fields.body];
  const destroys = DESTROYS.test(operation.operationId);
  const scalars = shown && Object.fromEntries(Object.entries(shown).filter(([, value]) => value === null || typeof value !== "object"));
  return html`<dialog ref=${dialog} onClose=${close} aria-labelledby="action-title">
    <form onSubmit=${submit} novalidate>
      <h2 id="action-title">${title(operation)}${operation.names.length > pathNames.length && html` <bdi class="about">${operation.names.filter((name) => given[name] !== undefined).map((name) => given[name]).join("/")}</bdi>`}</h2>
      <p>${operation.summary}</p>
      ${isForm && all.map((field) => html`<${Field} key=${field.name} field=${field} value=${texts[field.name]} change=${(value) => setTexts((before) => ({ ...before, [field.name]: value }))} />`)}
      ${state.step === "preview" && state.found && html`<section aria-live="polite" tabindex="-1"><h3>What it would do</h3><${Fields} value=${lossesOf(state.found)} /></section>`}
      ${state.step === "preview" && !state.found && html`<section aria-live="polite" tabindex="-1"><h3>${destroys ? "This cannot be taken back" : "Ready"}</h3>
        <p><code>${operation.method} ${filled(operation.template, { ...Object.fromEntries(pathNames.map((name) => [name, texts[name] ?? ""])), ...given })}</code></p>
        ${destroys && scalars && html`<h4>What it is now</h4><${Fields} value=${scalars} />`}</section>`}
      ${state.step === "done" && html`<section aria-live="polite" tabindex="-1"><h3>${state.goesOn ? "Begun: it goes on" : "Done"}</h3>${state.found && typeof state.found === "object" && html`<${Fields} value=${Array.isArray(state.found) ? { result: state.found } : state.found} />`}</section>`}
      ${state.problem && html`<p class="problem" role="alert">${state.problem}</p>`}
      <div class="buttons">
        ${state.step !== "done" && html`<button type="button" onClick=${() => dialog.current.close()}>Cancel</button>`}
        ${state.step === "preview" && !state.busy && all.length > 0 && html`<button type="button" onClick=${() => setState({ step: "form" })}>Back</button>`}
        <button class=${destroys && state.step === "preview" ? "main destroys" : "main"} aria-disabled=${state.busy === true} onClick=${(event) => { if (event.detail > 1) event.preventDefault(); /* a double click is one */ }}>${isForm ? (hasDryRun ? "Show what it would do" : "Continue") : state.step === "preview" ? title(operation) : "Close"}</button>
      </div>
    </form>
  </dialog>`;
}

// Only users change users, also where nobody must sign in.
const isForUsers = (operation) => operation.template.startsWith(`${OWN}/users`);

// The buttons of what the caller may do. may: of the server, the scope and the name, and isUser; null: it is not known yet.
export function Actions({ api, operations, given, shown, may, preset, done }) {
  const [chosen, choose] = useState(null);
  const permitted = operations.filter((each) => may !== null && may[each["x-place"]] !== false && (may.isUser !== false || !isForUsers(each)));
  if (permitted.length === 0 && !chosen) return null; // what was refused is said until it is closed
  return html`<div class="actions" role="group" aria-label="Actions">
    ${permitted.map((each) => html`<button type="button" key=${each.operationId} title=${each.summary} onClick=${() => choose(each)}>${title(each)}</button>`)}
    ${chosen && html`<${ActionDialog} key=${chosen.operationId} api=${api} operation=${chosen} given=${given} shown=${shown} preset=${preset} close=${() => choose(null)} done=${done} />`}
  </div>`;
}
