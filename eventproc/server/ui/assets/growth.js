// How the state of a processor grows while its page is open: keys and bytes as lines, and what that is in an hour.

import { html } from "./vendor/preact-htm.js";
import { Tile, useSamples } from "./lines.js";
import { lasting, number, sized } from "./values.js";

export const STATES_MS = 10000; // between two counts, each of which reads all of the state

const HOUR_MS = 3600000;
const RATED_MS = 60000; // over less, what was counted says little of an hour

const signed = (value, shown) => `${value < 0 ? "−" : "+"}${shown(Math.abs(value))}`;

export function Growth({ path, found }) {
  const samples = useSamples(path, found, ({ keys, value_bytes }) => ({ keys, bytes: value_bytes }));
  if (samples.length === 0) return null;
  const [first, last] = [samples[0], samples.at(-1)];
  const span = last.at - first.at;
  function grown(name, shown) {
    const change = last[name] - first[name];
    const rate = span < RATED_MS ? "" : `, ${signed(Math.round((change * HOUR_MS) / span), shown)} an hour`;
    return span === 0 ? "" : `${signed(change, shown)} in ${lasting(span)}${rate}`;
  }
  return html`<div class="tiles" role="group" aria-label="Growth while this page is open">
    <${Tile} label="Keys" value=${number(last.keys)} note=${grown("keys", number)} values=${samples.map((each) => each.keys)} />
    <${Tile} label="Bytes of values" value=${sized(last.bytes)} note=${grown("bytes", sized)} values=${samples.map((each) => each.bytes)} />
  </div>`;
}
