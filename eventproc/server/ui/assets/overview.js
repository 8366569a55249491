// The store at a glance: what flows, what is behind, what is blocked, and what waits.

import { html } from "./vendor/preact-htm.js";
import { OWN } from "./api.js";
import { Tile, useSamples } from "./lines.js";
import { useAnswer } from "./live.js";
import { Table, lasting, number, withCalls } from "./values.js";

const EVERY_MS = 5000;
const PAGES = { processor: "processors", share: "shares", readers: "groups" };

export function Overview({ turn, refused }) {
  const { found, problem } = useAnswer(`${OWN}/overview`, turn, refused, EVERY_MS);
  const processors = useAnswer(`${OWN}/processors`, turn, refused, EVERY_MS);
  const samples = useSamples("overview", found, (each) => ({ rate: each.events_per_second, lag: each.unfinished_events }));
  const blocked = processors.found?.items.filter((each) => each.blocker) ?? [];
  return html`<h1>Overview</h1>
    ${problem && html`<p class="problem" role="alert">${problem.message}</p>`}
    ${!found && !problem && html`<p role="status">Loading…</p>`}
    ${found && html`<div class="tiles">
      <${Tile} label="Events per second" value=${number(found.events_per_second)} values=${samples.map((each) => each.rate)} />
      <${Tile} label="Events not finished" value=${number(found.unfinished_events)} values=${samples.map((each) => each.lag)} />
      <${Tile} label="Oldest of them" value=${found.unfinished_age_ms === null ? "–" : lasting(found.unfinished_age_ms)} />
      <${Tile} label="Streams and topics" value=${number(found.streams_count)} />
      <${Tile} label="Changes that wait" value=${number(found.requests_pending)} />
      <${Tile} label="Open transactions" value=${number(found.transactions_open)} />
      <${Tile} label="Dead letters" value=${number(found.dead_letters)} />
    </div>
    ${blocked.length > 0 && html`<section><h2>Blocked</h2><${Table} label="Blocked processors" rows=${blocked.map((each) => ({ processor: each.name, ...each.blocker }))} link=${(row) => `#/processors/${row.processor}`} /></section>`}
    <section><h2>Busiest streams</h2><${Table} label="Busiest streams" rows=${found.streams} columns=${["name", "state", "events_per_second", "events", "size_bytes", "epoch"]} link=${(row) => `#/streams/${row.name}`} /></section>
    <section><h2>Groups that are most behind</h2><${Table} label="Groups" rows=${found.groups.map(withCalls)} columns=${["group", "kind", "members", "events", "bytes", "age_ms", "call_median_ms", "call_p99_ms", "commit_age_ms", "dead_letters"]} link=${(row) => `#/${PAGES[row.kind] ?? "groups"}/${row.group}`} /></section>`}`;
}
