// Values for people, by their names and forms: times, durations, sizes, links, payloads, objects and lists.

import { html, useState } from "./vendor/preact-htm.js";

const UNITS = ["B", "kB", "MB", "GB", "TB"];
const SINCE_1990_MS = 631152000000;
const TIME_MAX_MS = 8.64e15; // of a Date
const PAYLOAD_SHOWN = 4096;
const LISTED = 10;
const CELL_MAX = 200; // characters of a text in a table
const LONG = 24; // characters of one that keeps some width
const WIDE_FIELDS = 8; // of an object that has a line of its own
const TREE_MAX = 262144;
const NAME = /^[^/\s]+\/[^/\s]+$/;
const KINDS = { processor: "processors", share: "shares", readers: "groups" };

// How long calls of a handler take, beside the other fields of a row.
export const withCalls = ({ calls, ...rest }) => ({ ...rest, call_median_ms: calls?.median_ms ?? null, call_p99_ms: calls?.p99_ms ?? null });

export const words = (name) => name.replace(/_ms$/, "").replace(/_/g, " ").replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();

export function sized(bytes) {
  let unit = 0;
  for (; Math.abs(bytes) >= 1000 && unit < UNITS.length - 1; unit++) bytes /= 1000;
  return `${unit ? bytes.toFixed(1) : bytes} ${UNITS[unit]}`;
}

export function lasting(ms) {
  if (ms < 1000) return `${number(ms < 10 ? ms : Math.round(ms))} ms`;
  if (ms < 120000) return `${(ms / 1000).toFixed(ms < 10000 ? 1 : 0)} s`;
  if (ms < 7200000) return `${Math.round(ms / 60000)} min`;
  if (ms < 172800000) return `${(ms / 3600000).toFixed(1)} h`;
  return `${(ms / 86400000).toFixed(1)} d`;
}

export const time = (ms) => new Date(ms).toISOString().replace("T", " ").replace(/(\.000)?Z$/, " UTC");

export function number(value) {
  const digits = Number.isInteger(value) || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 1 ? 1 : 4;
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

const isTime = (name, value) => (/_ms$/.test(name) || /timestamp$|^event_time$/.test(name)) && value > SINCE_1990_MS && value <= TIME_MAX_MS;

// The path of the page about what a field names, or null.
function pageOf(name, value, row) {
  if (name === "group" && NAME.test(value)) return `${KINDS[row?.kind] ?? "groups"}/${value}`;
  if (name === "name" && row?.stream_id !== undefined && row.config === undefined && row.stream === undefined && NAME.test(value)) return `streams/${value}`;
  if (name === "id" && row?.replica !== undefined) return `ingestion/tasks/${value}/log`;
  if ((name === "stream" || name === "streams" || name === "origin_stream") && NAME.test(value)) return `streams/${value}`;
  if (name === "target" && NAME.test(value)) return `streams/${value}`;
  if (name === "request_id") return `requests/${value}`;
  return null;
}

export function Value({ name, value, row }) {
  if (value === null || value === undefined) return html`<span class="none">–</span>`;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") {
    if (isTime(name, value)) return html`<time datetime=${new Date(value).toISOString()}>${time(value)}</time>`;
    if (/_ms$/.test(name)) return lasting(value);
    if (/bytes$/.test(name)) return html`<span title=${`${number(value)} bytes`}>${sized(value)}</span>`;
    return number(value);
  }
  if (typeof value === "string") {
    if (name === "payload") return html`<${Payload} base64=${value} />`;
    if (name === "traceback") return html`<pre tabindex="0">${value}</pre>`;
    if (name === "state" || name === "status") return html`<span class=${`state ${value.toLowerCase()}`}>${value}</span>`;
    const page = pageOf(name, value, row);
    return page ? html`<a href=${`#/${page}`}><bdi>${value}</bdi></a>` : html`<bdi>${value}</bdi>`;
  }
  if (Array.isArray(value)) {
    if (value.length === 0) return html`<span class="none">none</span>`;
    if (value.every(Array.isArray)) return html`<bdi>${value.slice(0, LISTED).map((each) => each.join(" ")).join(", ")}${value.length > LISTED && ` and ${number(value.length - LISTED)} more`}</bdi>`;
    if (value.every((each) => each !== null && typeof each === "object")) return html`<${Table} rows=${value} label=${words(name)} />`;
    const counts = new Map();
    for (const each of value) counts.set(each, (counts.get(each) ?? 0) + 1);
    const more = counts.size - LISTED;
    return html`<span>${[...counts].slice(0, LISTED).map(([each, count], at) => html`${at ? ", " : ""}<${Value} name=${name.replace(/s$/, "")} value=${each} />${count > 1 && ` × ${number(count)}`}`)}${more > 0 && ` and ${number(more)} more`}</span>`;
  }
  const entries = Object.entries(value).filter(([, each]) => each !== null);
  if (entries.length === 0) return html`<span class="none">–</span>`;
  return html`<${Fields} value=${Object.fromEntries(entries)} of=${name} />`;
}

const isLarge = (value) => value !== null && typeof value === "object" && (Array.isArray(value) ? value.length > 0 && typeof value[0] === "object" && !Array.isArray(value[0]) : Object.keys(value).length > WIDE_FIELDS);

// An object. of: the field that holds it; the names of headers are a user's, and say nothing of their values.
export function Fields({ value, of }) {
  if (Object.keys(value).length === 0) return html`<p class="none">none</p>`;
  return html`<dl>${Object.entries(value).map(([name, each]) => html`<div key=${name} class=${isLarge(each) ? "wide" : ""}><dt>${of === "headers" ? html`<bdi>${name}</bdi>` : words(name)}</dt><dd><${Value} name=${of === "headers" ? "" : name} value=${each} row=${value} /></dd></div>`)}</dl>`;
}

const isWide = (value) => value !== null && typeof value === "object" && !(Array.isArray(value) && value.every((each) => typeof each !== "object"));

const shortened = (value) => (typeof value === "string" && value.length > CELL_MAX ? `${value.slice(0, CELL_MAX)}…` : value);

// Rows as a table. columns: names, or null for all that are no objects. link: returns the page of a row.
export function Table({ rows, columns, link, label }) {
  if (rows.length === 0) return html`<p class="none">none</p>`;
  const names = columns ?? [...new Set(rows.flatMap((row) => Object.keys(row)))].filter((name) => name !== "payload" && !rows.every((row) => isWide(row[name])));
  const numeric = new Set(names.filter((name) => /(_ms|bytes)$/.test(name) || rows.some((row) => typeof row[name] === "number")));
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label ?? "table"}>
    <table>
      <thead><tr>${names.map((name) => html`<th key=${name} scope="col" class=${numeric.has(name) ? "number" : ""}>${words(name)}</th>`)}</tr></thead>
      <tbody>${rows.map((row, at) => html`<tr key=${row.id ?? row.name ?? row.segment ?? at}>
        ${names.map((name, column) => html`<td key=${name} class=${numeric.has(name) ? "number" : String(row[name]).length > LONG ? "long" : ""}>${column === 0 && link?.(row)
          ? html`<a href=${link(row)}><bdi>${String(row[name])}</bdi></a>`
          : isWide(row[name]) ? html`<code>${JSON.stringify(row[name]).slice(0, 80)}</code>` : html`<${Value} name=${name} value=${shortened(row[name])} row=${row} />`}</td>`)}</tr>`)}</tbody>
    </table></div>`;
}

// Keeps integers that a number would round, where the browser says how they are written.
function exact(_, value, written) {
  if (typeof value !== "number" || Math.abs(value) <= Number.MAX_SAFE_INTEGER) return value;
  if (!/^-?\d+$/.test(written?.source ?? "")) throw new RangeError("it would be rounded");
  return BigInt(written.source);
}

const bytesOf = (base64) => Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));

// The text that bytes are, or null. isCut: whether more follow, so that the last character may lack some of its bytes.
function textOf(bytes, isCut = false) {
  try { return new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: isCut }); } catch { return null; }
}

function decoded(base64) {
  const bytes = bytesOf(base64);
  const text = textOf(bytes);
  let json;
  if (text !== null && bytes.length <= TREE_MAX) {
    try { json = JSON.parse(text, exact); } catch { /* no JSON, or none that a tree can show */ }
  }
  return { bytes, text, json };
}

function hexed(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const part = [...bytes.slice(at, at + 16)];
    const hex = part.map((each) => each.toString(16).padStart(2, "0")).join(" ").padEnd(48);
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex} ${part.map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : ".")).join("")}`);
  }
  return lines.join("\n");
}

// Whether a text is meant to be read: without the control characters that bytes of numbers have.
const isReadable = (text) => text !== null && !/[\0-\x08\x0e-\x1a\x1c-\x1f\x7f]/.test(text);

// A payload: as a tree, text or bytes, the beginning of a long one first. wanted: the form to begin with, if it has it.
export function Payload({ base64, wanted }) {
  const { bytes, text, json } = decoded(base64);
  const first = json !== null && typeof json === "object" ? "tree" : isReadable(text) ? "text" : "hex";
  const forms = [...(json !== undefined ? ["tree"] : []), ...(text !== null ? ["text"] : []), "hex"];
  const [form, setForm] = useState(forms.includes(wanted) ? wanted : first);
  const [whole, setWhole] = useState(false);
  const cut = !whole && form !== "tree" && bytes.length > PAYLOAD_SHOWN;
  const shown = cut ? bytes.slice(0, PAYLOAD_SHOWN) : bytes;
  return html`<div class="payload">
    <div class="forms"><span>${sized(bytes.length)}</span>${forms.map((each) => html`<button type="button" key=${each} aria-pressed=${each === form} onClick=${() => setForm(each)}>${each}</button>`)}</div>
    ${form === "tree" ? html`<${Tree} value=${json} />` : html`<pre tabindex="0" dir="auto">${form === "hex" ? hexed(shown) : cut ? text.slice(0, PAYLOAD_SHOWN) : text}</pre>`}
    ${cut && html`<button type="button" onClick=${() => setWhole(true)}>Show all ${sized(bytes.length)}</button>`}
  </div>`;
}

function Tree({ name, value, depth = 0 }) {
  const label = name === undefined ? "" : html`<b><bdi>${name}</bdi></b>: `;
  if (value === null || typeof value !== "object") return html`<div class="leaf">${label}<bdi class=${typeof value}>${typeof value === "bigint" ? String(value) : JSON.stringify(value)}</bdi></div>`;
  const entries = Object.entries(value);
  return html`<details open=${depth < 2 && entries.length <= 50}><summary>${label}${Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`}</summary>
    ${entries.slice(0, 200).map(([key, each]) => html`<${Tree} key=${key} name=${key} value=${each} depth=${depth + 1} />`)}
    ${entries.length > 200 && html`<div class="leaf">… ${entries.length - 200} more, in the text</div>`}</details>`;
}

// What a payload begins with, for a line of a list: its text, or its bytes. wanted: "hex" for the bytes of any.
export function excerpt(base64, wanted) {
  const bytes = bytesOf(base64.slice(0, 400));
  const text = wanted === "hex" ? null : textOf(bytes, base64.length > 400);
  return isReadable(text) ? text.slice(0, 160) : hexed(bytes.slice(0, 16)).slice(10, 58).trim();
}
