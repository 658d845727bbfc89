// The panels of the page and their contents.

import * as colours from "./colours.js";
import * as curves from "./curves.js";
import { cross, dots, heat, paths } from "./heat.js";

const panelsByName = {};
let holds = [];

const DIGITS = "₀₁₂₃₄₅₆₇₈₉";

export function label(model, i) {
  return model.dim === 1 ? "x" : `x${String(i + 1).replace(/\d/g, (digit) => DIGITS[digit])}`;
}

export function subtitle(model) {
  const parts = [`Density of ${model.dim === 1 ? "one component" : `${model.dim} components`}, learned up to t = ${Number(model.horizon.toPrecision(4))}.`];
  if (model.ended) parts.push(model.ended);
  return parts.join(" ");
}

export function build(model, parent) {
  const wide = model.dim === 1;
  parent.classList.toggle("line", wide);
  for (const name of wide ? ["learned", "difference", "bridges"] : ["learned", "exact", "difference"]) {
    const figure = document.createElement("figure");
    figure.className = wide ? "panel wide" : "panel";
    const words = document.createElement("figcaption");
    const plot = document.createElement("div");
    plot.className = "plot";
    const canvas = document.createElement("canvas");
    canvas.id = `canvas-${name}`;
    canvas.setAttribute("role", "img");
    plot.append(canvas);
    figure.append(words, plot);
    parent.append(figure);
    panelsByName[name] = { figure, words, plot, canvas };
  }
}

export function plot(name) {
  return panelsByName[name].plot;
}

export function movable(...handles) {
  holds = handles;
}

function put(name, visible, words, description) {
  const panel = panelsByName[name];
  panel.figure.hidden = !visible;
  panel.words.textContent = words;
  panel.canvas.setAttribute("aria-label", description);
  return visible ? panel.canvas : null;
}

export function panels(model, view, shown, bundle) {
  if (model.dim === 1) line(model, view, shown, bundle);
  else plane(model, view, shown, bundle);
}

function gap(shown) {
  return shown.learned.values.map((value, i) => value - shown.exact.values[i]);
}

function line(model, view, shown, bundle) {
  const [box] = shown.box;
  const exact = shown.exact && view.show.has("exact");
  const fields = exact ? [shown.learned, shown.exact] : [shown.learned];
  const words = exact ? "Density: learned (solid) and exact (dashed)" : "Learned density";
  const cloud = view.show.has("samples") ? shown.cloud : null;
  const peak = curves.largest(shown.learned.values).toPrecision(3);
  const canvas = put("learned", true, words, `${words} of x at t = ${view.t}, start ${view.x0[0]}; largest value ${peak}.`);
  const axes = curves.densities(canvas, box, "x", fields, cloud, view.x0[0]);
  holds[0].put(axes, view.x0[0], 0);
  const second = put("difference", shown.exact && view.show.has("difference"), "Learned − exact", "Difference of the two densities.");
  if (second) curves.gap(second, box, "x", gap(shown));
  const third = put("bridges", view.show.has("bridges"), "Bridges from the start to the end", "Paths between two points against time.");
  if (!third) return;
  const spread = [box[0], box[1]];
  const time = curves.bridges(third, spread, "x", model.horizon, bundle);
  holds[1].put(time, 0, view.x0[0]);
  if (view.x1) holds[2].put(time, view.t, view.x1[0]); else holds[2].hide();
}

function plane(model, view, shown, bundle) {
  const pair = view.pair.map((i) => i - 1);
  const names = pair.map((i) => label(model, i));
  const kind = model.dim === 2 ? "density" : view.kind;
  const peak = curves.largest(shown.learned.values);
  const top = Math.max(peak, shown.exact ? curves.largest(shown.exact.values) : 0) || 1;
  const overlay = (pen, axes) => {
    if (view.show.has("samples")) dots(pen, axes, shown.cloud, pair);
    if (bundle && view.show.has("bridges")) paths(pen, axes, bundle, pair);
  };
  const mark = (pen, axes) => cross(pen, axes, ...pair.map((i) => view.x0[i]));
  const facts = `of ${names.join(" and ")} at t = ${view.t}, start ${view.x0.join(", ")}; largest value ${peak.toPrecision(3)}.`;
  const first = put("learned", true, `Learned ${kind}`, `Learned ${kind} ${facts}`);
  const axes = heat(first, shown.box, names, shown.learned, colours.density, top, overlay);
  holds[0].put(axes, ...pair.map((i) => view.x0[i]));
  if (view.x1 && view.show.has("bridges")) holds[1].put(axes, ...pair.map((i) => view.x1[i]));
  else holds[1].hide();
  const second = put("exact", shown.exact && view.show.has("exact"), `Exact ${kind}`, `Exact ${kind} ${facts}`);
  if (second) heat(second, shown.box, names, shown.exact, colours.density, top, mark);
  const third = put("difference", shown.exact && view.show.has("difference"), "Learned − exact", "Difference of the two.");
  if (!third) return;
  const field = { shape: shown.learned.shape, values: gap(shown) };
  const worst = curves.largest(field.values.map(Math.abs)) || 1;
  heat(third, shown.box, names, field, colours.difference, worst, () => {});
}

export function caption(model, view, shown) {
  const rest = Object.entries(shown.rest).map(([i, value]) => `${label(model, i - 1)} = ${value.toPrecision(3)}`);
  const held = rest.length ? ` Section at ${rest.join(", ")}, the mean of draws.` : "";
  const drawn = model.dim > 2 && view.kind === "marginal" ? " Marginal density as a histogram of 16 384 draws." : "";
  const given = Object.entries(view.params).map(([name, value]) => `, ${name} = ${value}`).join("")
    + (view.s === null ? "" : `, start time ${view.s}`);
  return `t = ${view.t}, start (${view.x0.join(", ")})${given}; draws have mean (${shown.mean.map((v) => v.toPrecision(3)).join(", ")})`
    + ` and deviation (${shown.deviation.map((v) => v.toPrecision(3)).join(", ")}).${held}${drawn}`;
}

// Bounds rarely decrease with time; between two times use the larger one.
export function bound({ t, bound: bounds, stderr }, now) {
  const after = t.findIndex((time) => time >= now * (1 - 1e-9));
  const last = after < 0 ? t.length - 1 : after;
  const i = last > 0 && bounds[last - 1] > bounds[last] ? last - 1 : last;
  return `Total variation to the true density at t = ${now}: at most ${bounds[i].toExponential(1)} (standard error ${stderr[i].toExponential(0)}).`;
}

export function certificate(canvas, known, t) {
  curves.bounds(canvas, known, t);
}
