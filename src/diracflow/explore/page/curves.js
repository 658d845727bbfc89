// Pictures of one component: densities, their difference, bridges over time, the error bound.

import { Axes, fitted, ink, ticks } from "./axes.js";

const MARGIN = { left: 62, right: 14, top: 10, bottom: 42 };
const BARS = 48;

function prepared(canvas, aspect, box) {
  const { pen, width, height } = fitted(canvas, aspect);
  const area = [MARGIN.left, MARGIN.top, width - MARGIN.left - MARGIN.right,
    height - MARGIN.top - MARGIN.bottom];
  return { pen, axes: new Axes(area.map(Math.round), box) };
}

function grid([low, high], count) {
  return Array.from({ length: count }, (_, i) => low + ((high - low) * i) / (count - 1));
}

// An upper limit that is constant under small changes of the largest value.
export function roof(value) {
  return Math.max(...ticks(0, value || 1, 4).found) + ticks(0, value || 1, 4).step;
}

export function densities(canvas, box, label, fields, cloud, start) {
  const top = roof(Math.max(...fields.map((field) => largest(field.values))));
  const { pen, axes } = prepared(canvas, window.innerWidth < 700 ? 0.7 : 0.42, [box, [0, top]]);
  const xs = grid(box, fields[0].shape[0]);
  axes.within(pen, () => {
    if (cloud) histogram(pen, axes, box, cloud);
    fields.forEach((field, i) => {
      pen.lineWidth = i ? 1.6 : 4; // both are visible if they agree
      pen.strokeStyle = ink(i ? "exact" : "learned");
      pen.setLineDash(i ? [7, 5] : []);
      axes.curve(pen, xs, field.values);
    });
    pen.setLineDash([2, 3]);
    pen.strokeStyle = ink("soft");
    pen.lineWidth = 1.2;
    axes.curve(pen, [start, start], [0, top]);
    pen.setLineDash([]);
  });
  axes.frame(pen, label, "density");
  return axes;
}

export function gap(canvas, box, label, values) {
  const top = roof(largest(values.map(Math.abs)));
  const { pen, axes } = prepared(canvas, window.innerWidth < 700 ? 0.5 : 0.24, [box, [-top, top]]);
  axes.within(pen, () => {
    pen.strokeStyle = ink("line");
    axes.curve(pen, box, [0, 0]);
    pen.strokeStyle = ink("learned");
    pen.lineWidth = 2;
    axes.curve(pen, grid(box, values.length), values);
  });
  axes.frame(pen, label, "difference");
}

export function bridges(canvas, box, label, horizon, bundle) {
  const { pen, axes } = prepared(canvas, window.innerWidth < 700 ? 0.7 : 0.36, [[0, horizon], box]);
  axes.within(pen, () => {
    if (!bundle) return;
    pen.strokeStyle = ink("learned");
    pen.globalAlpha = 0.6;
    const [count, length] = bundle.shape;
    for (let p = 0; p < count; p++) {
      axes.curve(pen, bundle.times, bundle.values.subarray(p * length, (p + 1) * length));
    }
    pen.globalAlpha = 1;
  });
  axes.frame(pen, "time since the start", label);
  return axes;
}

// The error bound over time on a logarithmic axis, with a mark at `t`.
export function bounds(canvas, certificate, t) {
  const logs = certificate.bound.map((bound) => Math.log10(Math.max(bound, 1e-16)));
  const low = Math.floor(Math.min(...logs) - 0.2);
  const high = Math.min(Math.ceil(Math.max(...logs) + 0.2), 0.2);
  const { pen, axes } = prepared(canvas, 0, [[0, certificate.t.at(-1)], [low, Math.max(high, low + 1)]]);
  axes.within(pen, () => {
    pen.strokeStyle = ink("learned");
    pen.lineWidth = 2;
    axes.curve(pen, certificate.t, logs);
    pen.strokeStyle = ink("mark");
    pen.lineWidth = 1.5;
    axes.curve(pen, [t, t], axes.box[1]);
  });
  axes.frame(pen, "time since the start", "log₁₀ bound");
}

function histogram(pen, axes, [low, high], cloud) {
  const counts = new Array(BARS).fill(0);
  const width = (high - low) / BARS;
  for (const value of cloud.values) {
    const bin = Math.floor((value - low) / width);
    if (bin >= 0 && bin < BARS) counts[bin]++;
  }
  pen.fillStyle = ink("line");
  counts.forEach((count, bin) => {
    const [left, top] = axes.place(low + bin * width, count / (cloud.shape[0] * width));
    pen.fillRect(left, top, axes.width / BARS - 1, axes.top + axes.height - top);
  });
}

export function largest(values) {
  let found = 0;
  for (const value of values) if (value > found) found = value;
  return found;
}
