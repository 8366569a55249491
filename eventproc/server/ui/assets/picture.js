// The picture of a stream: keys upwards, time to the right, each segment a rectangle. A canvas, so that ten thousand
// segments stay smooth; the numbers of each are in the table of segments, and here under the pointer.

import { html, useCallback, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { useAnswer } from "./live.js";
import { lasting, number, time } from "./values.js";

const HEIGHT = 320;
const LEFT = 44;
const RIGHT = 12;
const TOP = 10;
const BOTTOM = 24;
const RATES = ["#eff3ff", "#c6dbef", "#9ecae1", "#6baed6", "#3182bd", "#08519c"];
const UNKNOWN = "#d9d9d9";
const GROUPS = ["#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#e377c2", "#17becf", "#7f7f7f"];
const MANY = 500; // segments, above which the picture is asked for seldom
const OFTEN_MS = 2000;
const SELDOM_MS = 30000;
const STEP = 0.25; // of what is shown, that a key or button moves or zooms by
const LEAST_MS = 10;
const MOST = 4; // so many times everything is the most that is shown

export function Picture({ path, turn, refused }) {
  const [every, setEvery] = useState(OFTEN_MS);
  const { found, problem } = useAnswer(path, turn, refused, every);
  const canvas = useRef(null);
  const frame = useRef(null);
  const [shown, setShown] = useState(null); // [from, to] in ms; null: everything, following
  const [width, setWidth] = useState(800);
  const [pointer, setPointer] = useState(null); // where it is above the picture, in px
  const dragged = useRef(null);
  useEffect(() => { if (found) setEvery(found.segments.length > MANY ? SELDOM_MS : OFTEN_MS); }, [found]);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(200, Math.floor(entry.contentRect.width))));
    if (frame.current) observer.observe(frame.current);
    return () => observer.disconnect();
  }, [found === null]);

  const from = shown?.[0] ?? found?.from_ms ?? 0;
  const to = Math.max(from + LEAST_MS, shown?.[1] ?? found?.to_ms ?? 1);
  const high = Math.max(0.001, ...(found?.segments.length ? [found.segments.reduce((most, each) => Math.max(most, each.high), 0)] : [1]));
  const x = (ms) => LEFT + ((ms - from) / (to - from)) * (width - LEFT - RIGHT);
  const y = (key) => HEIGHT - BOTTOM - (key / high) * (HEIGHT - TOP - BOTTOM);
  const msAt = (px) => from + ((px - LEFT) / (width - LEFT - RIGHT)) * (to - from);
  const keyAt = (px) => ((HEIGHT - BOTTOM - px) / (HEIGHT - TOP - BOTTOM)) * high;
  const isAt = (each, ms, key) => each.from_ms <= ms && ms < (each.to_ms ?? found.to_ms) && each.low <= key && key < each.high;
  const hovered = pointer && found?.segments.findLast((each) => isAt(each, msAt(pointer.left), keyAt(pointer.top)));

  useEffect(() => {
    if (!found || !canvas.current) return;
    const ratio = devicePixelRatio || 1;
    const element = canvas.current;
    element.width = width * ratio;
    element.height = HEIGHT * ratio;
    const pen = element.getContext("2d");
    pen.scale(ratio, ratio);
    const ink = getComputedStyle(element).color;
    const paper = getComputedStyle(document.body).backgroundColor;
    const most = found.segments.reduce((rate, each) => Math.max(rate, each.events_per_second ?? 0), 0);
    const colour = (rate) => (rate === null ? UNKNOWN : RATES[most ? Math.min(5, Math.ceil((Math.log1p(rate) / Math.log1p(most)) * 5)) : 0]);
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, TOP - 1, width - LEFT - RIGHT, HEIGHT - TOP - BOTTOM + 2);
    pen.clip();
    for (const each of found.segments) {
      const end = each.to_ms ?? found.to_ms;
      if (end < from || each.from_ms > to) continue;
      const left = x(each.from_ms);
      const wide = Math.max(0.5, x(end) - left);
      const top = y(each.high);
      const tall = y(each.low) - top;
      pen.globalAlpha = 1;
      pen.fillStyle = colour(each.events_per_second);
      pen.fillRect(left, top, wide, tall);
      if (each.truncated_ms !== null && each.truncated_ms > each.from_ms) {
        pen.globalAlpha = 0.7;
        pen.fillStyle = paper;
        pen.fillRect(left, top, Math.max(0.5, x(Math.min(each.truncated_ms, end)) - left), tall);
      }
      if (wide > 3 && tall > 3) {
        pen.globalAlpha = 0.6;
        pen.strokeStyle = ink;
        pen.lineWidth = each === hovered ? 2.5 : 0.7;
        pen.strokeRect(left, top, wide, tall);
      }
    }
    pen.globalAlpha = 1;
    const names = [...new Set(found.positions.map((each) => each.group))];
    for (const each of found.positions) {
      pen.strokeStyle = GROUPS[names.indexOf(each.group) % GROUPS.length];
      pen.lineWidth = 3;
      pen.beginPath();
      pen.moveTo(x(each.at_ms), y(each.low));
      pen.lineTo(x(each.at_ms), y(each.high));
      pen.stroke();
    }
    pen.restore();
    pen.fillStyle = ink;
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "right";
    for (const part of [0, 0.5, 1]) pen.fillText((high * part).toFixed(high < 0.1 ? 3 : 2), LEFT - 6, y(high * part) + 4);
    const ticks = Math.max(2, Math.min(6, Math.floor(width / 160)));
    for (let tick = 0; tick < ticks; tick++) {
      const at = from + ((to - from) * tick) / (ticks - 1);
      pen.textAlign = tick === 0 ? "left" : tick === ticks - 1 ? "right" : "center";
      pen.fillText(new Date(at).toISOString().slice(to - from > 172800000 ? 0 : 11, to - from > 172800000 ? 16 : 19).replace("T", " "), x(at), HEIGHT - 8);
    }
  }, [found, width, from, to, hovered]);

  const zoom = useCallback((factor, middle = (from + to) / 2) => {
    const most = MOST * (found.to_ms - found.from_ms);
    const half = Math.max(LEAST_MS, Math.min(most, (to - from) * factor));
    const share = (middle - from) / (to - from);
    setShown([middle - half * share, middle + half * (1 - share)]);
  }, [from, to, found]);
  const move = useCallback((part) => setShown([from + (to - from) * part, to + (to - from) * part]), [from, to]);

  useEffect(() => {
    const element = canvas.current;
    if (!element) return undefined;
    const wheel = (event) => { if (!event.ctrlKey && !event.metaKey) return; event.preventDefault(); zoom(event.deltaY > 0 ? 1 + STEP : 1 / (1 + STEP), msAt(event.offsetX)); };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  }, [zoom, found === null]);

  function hover(event) {
    setPointer({ left: event.offsetX, top: event.offsetY });
    if (dragged.current) {
      const { at, window } = dragged.current;
      const moved = ((at - event.offsetX) / (width - LEFT - RIGHT)) * (window[1] - window[0]);
      setShown([window[0] + moved, window[1] + moved]);
    }
  }
  function pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return; // keys of the browser
    const keys = { ArrowLeft: () => move(-STEP), ArrowRight: () => move(STEP), "+": () => zoom(1 / (1 + STEP)), "=": () => zoom(1 / (1 + STEP)), "-": () => zoom(1 + STEP), 0: () => setShown(null) };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  }

  if (problem && !found) return html`<p class="problem" role="alert">${problem.message}</p>`;
  if (!found) return html`<p role="status">Loading the picture…</p>`;
  const active = found.segments.filter((each) => each.to_ms === null).length;
  const about = `${found.stream}: ${number(found.segments.length)} segments from ${time(found.from_ms)} to ${time(found.to_ms)}, ${number(active)} of them in use`;
  const groups = [...new Set(found.positions.map((each) => each.group))];
  return html`<figure class="picture" ref=${frame}>
    <div class="buttons" role="group" aria-label="Zoom">
      <button type="button" onClick=${() => zoom(1 / (1 + STEP))} aria-label="Zoom in">+</button>
      <button type="button" onClick=${() => zoom(1 + STEP)} aria-label="Zoom out">−</button>
      <button type="button" onClick=${() => move(-STEP)} aria-label="Earlier">←</button>
      <button type="button" onClick=${() => move(STEP)} aria-label="Later">→</button>
      <button type="button" aria-pressed=${shown === null} onClick=${() => setShown(null)}>All</button>
    </div>
    <div class="canvas"><canvas ref=${canvas} tabindex="0" role="img" aria-label=${about} style=${{ width: `${width}px`, height: `${HEIGHT}px` }}
      onPointerMove=${hover} onPointerLeave=${() => setPointer(null)} onKeyDown=${pressed}
      onPointerDown=${(event) => { dragged.current = { at: event.offsetX, window: [from, to] }; event.currentTarget.setPointerCapture(event.pointerId); }}
      onLostPointerCapture=${() => { dragged.current = null; }}></canvas>
      ${hovered && html`<div class="tip" style=${{ left: `${Math.min(pointer.left + 12, width - 240)}px`, top: `${Math.min(pointer.top + 12, HEIGHT - 110)}px` }}><b>${hovered.segment}</b> keys ${hovered.low.toFixed(4)} to ${hovered.high.toFixed(4)}<br />${time(hovered.from_ms)}, ${lasting((hovered.to_ms ?? found.to_ms) - hovered.from_ms)}${hovered.to_ms === null ? ", in use" : ""}<br />${hovered.events === null ? "nothing is left of it" : html`${number(hovered.events)} events, ${number(hovered.events_per_second)}/s`}</div>`}
    </div>
    <figcaption>${about}${found.left_out ? `; ${number(found.left_out)} older ones are left out` : ""}.
      ${groups.map((group, at) => html` <span class="key" key=${group}><i style=${{ background: GROUPS[at % GROUPS.length] }}></i><bdi>${group}</bdi></span>`)}</figcaption>
  </figure>`;
}
