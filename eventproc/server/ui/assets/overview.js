// The store at a glance: what flows, what is behind, what is blocked, and what waits.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { OWN } from "./api.js";
import { useAnswer } from "./live.js";
import { Table, lasting, number } from "./values.js";

const SAMPLES = 120;
const EVERY_MS = 5000;
const PAGES = { processor: "processors", share: "shares", readers: "groups" };

function Line({ values, label }) {
  const most = Math.max(1, ...values);
  const points = values.map((value, at) => `${(at / Math.max(1, SAMPLES - 1)) * 300},${38 - (value / most) * 36}`).join(" ");
  return html`<svg class="line" viewBox="0 0 300 40" preserveAspectRatio="none" role="img" aria-label=${`${label}: ${number(values.at(-1) ?? 0)} now, ${number(most)} at most in this line`}><polyline points=${points} /></svg>`;
}

function Tile({ label, value, values }) {
  return html`<div class="tile"><h2>${label}</h2><p>${value}</p>${values && html`<${Line} values=${values} label=${label} />`}</div>`;
}

export function Overview({ turn, refused }) {
  const { found, problem } = useAnswer(`${OWN}/overview`, turn, refused, EVERY_MS);
  const processors = useAnswer(`${OWN}/processors`, turn, refused, EVERY_MS);
  const samples = useRef({ rate: [], lag: [] });
  const [, again] = useState(0);
  useEffect(() => {
    if (!found) return;
    samples.current = { rate: [...samples.current.rate, found.events_per_second].slice(-SAMPLES), lag: [...samples.current.lag, found.unfinished_events].slice(-SAMPLES) };
    again((before) => before + 1);
  }, [found]);
  const blocked = processors.found?.items.filter((each) => each.blocker) ?? [];
  return html`<h1>Overview</h1>
    ${problem && html`<p class="problem" role="alert">${problem.message}</p>`}
    ${!found && !problem && html`<p role="status">Loading…</p>`}
    ${found && html`<div class="tiles">
      <${Tile} label="Events per second" value=${number(found.events_per_second)} values=${samples.current.rate} />
      <${Tile} label="Events not finished" value=${number(found.unfinished_events)} values=${samples.current.lag} />
      <${Tile} label="Oldest of them" value=${found.unfinished_age_ms === null ? "–" : lasting(found.unfinished_age_ms)} />
      <${Tile} label="Streams and topics" value=${number(found.streams_count)} />
      <${Tile} label="Changes that wait" value=${number(found.requests_pending)} />
      <${Tile} label="Open transactions" value=${number(found.transactions_open)} />
      <${Tile} label="Dead letters" value=${number(found.dead_letters)} />
    </div>
    ${blocked.length > 0 && html`<section><h2>Blocked</h2><${Table} label="Blocked processors" rows=${blocked.map((each) => ({ processor: each.name, ...each.blocker }))} link=${(row) => `#/processors/${row.processor}`} /></section>`}
    <section><h2>Busiest streams</h2><${Table} label="Busiest streams" rows=${found.streams} columns=${["name", "state", "events_per_second", "events", "size_bytes", "epoch"]} link=${(row) => `#/streams/${row.name}`} /></section>
    <section><h2>Groups that are most behind</h2><${Table} label="Groups" rows=${found.groups} columns=${["group", "kind", "members", "events", "bytes", "age_ms", "dead_letters"]} link=${(row) => `#/${PAGES[row.kind] ?? "groups"}/${row.group}`} /></section>`}`;
}
