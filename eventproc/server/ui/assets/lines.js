// Values over time, while the page is open: what a place showed, as lines.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { number } from "./values.js";

const SAMPLES = 120;

function Line({ values, label }) {
  const most = Math.max(1, ...values);
  const points = values.map((value, at) => `${(at / Math.max(1, SAMPLES - 1)) * 300},${38 - (value / most) * 36}`).join(" ");
  return html`<svg class="line" viewBox="0 0 300 40" preserveAspectRatio="none" role="img" aria-label=${`${label}: ${number(values.at(-1) ?? 0)} now, ${number(most)} at most in this line`}><polyline points=${points} /></svg>`;
}

export function Tile({ label, value, note, values }) {
  return html`<div class="tile"><h2>${label}</h2><p>${value}</p>${note && html`<p class="note">${note}</p>`}${values && html`<${Line} values=${values} label=${label} />`}</div>`;
}

// Returns the last values of what a place answered: each answer adds those that `of` takes from it, and `at`, in ms. They
// are forgotten when the place changes.
export function useSamples(place, found, of) {
  const kept = useRef({ place, samples: [] });
  const [, again] = useState(0);
  useEffect(() => {
    if (kept.current.place !== place) kept.current = { place, samples: [] };
    if (!found) return;
    kept.current.samples = [...kept.current.samples, { ...of(found), at: performance.now() }].slice(-SAMPLES);
    again((before) => before + 1);
  }, [place, found]);
  return kept.current.place === place ? kept.current.samples : [];
}
