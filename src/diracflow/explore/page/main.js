// The page: sends requests when controls change, and draws the answers.

import * as answers from "./answers.js";
import { handle, list, slider, tick } from "./controls.js";
import * as draw from "./draw.js";
import * as states from "./view.js";

const at = (id) => document.getElementById(id);
const QUIET = 200; // milliseconds without a change before a certificate is requested

let model, view, shown, bundle, certificate;
let certified = null; // the start of the certificate shown
let timer = null;
let failure = ""; // error message of the last request
const shows = []; // functions that update the controls from the state

const pictures = new answers.Latest(answers.picture, (answer, query, stamp) => {
  shown = answer;
  failure = "";
  if (view.show.has("bridges") && !view.x1) {
    view.x1 = shown.mean.map((mean, i) => Number((mean + shown.deviation[i]).toPrecision(4)));
    refresh();
  }
  redraw();
  if (stamp) at("timing").textContent = `Drawn ${Math.round(performance.now() - stamp)} ms after the move.`;
  document.documentElement.dataset.drawn = query;
}, (error) => say(error.message));

const bridges = new answers.Latest(answers.bridge, (answer, query) => {
  bundle = answer;
  at("guidance").textContent = `Bridges: effective sample size ${(100 * answer.effective_share).toFixed(0)} % of the paths`
    + (answer.outside > 0 ? `; ${(100 * answer.outside).toFixed(0)} % of their points lie outside the training law.` : ".");
  document.documentElement.dataset.bridged = query;
  redraw();
}, (error) => {
  bundle = null;
  at("guidance").textContent = `No bridges: ${error.message}`;
  redraw();
});

const certificates = new answers.Latest(answers.certificate, (answer, query) => {
  certificate = answer;
  certified = query;
  trust();
}, () => { certificate = null; trust(); });

// Query of a certificate, which depends on the start but not on the time.
function start() {
  return states.query({ ...view, t: model.horizon });
}

function refresh(stamp) {
  for (const show of shows) show();
  at("ends").hidden = !view.show.has("bridges");
  pictures.put(states.query(view, { picture: true }), stamp);
  if (view.show.has("bridges") && view.x1) bridges.put(states.query(view, { bridge: true }));
  else { bundle = null; at("guidance").textContent = ""; }
  clearTimeout(timer);
  timer = setTimeout(settle, QUIET);
  trust();
}

// Updates that wait until the controls stop changing.
function settle() {
  const address = states.address(view);
  if (location.hash !== address) history.replaceState(null, "", address);
  if (certified !== start()) certificates.put(start());
}

function change(update) {
  const stamp = performance.now();
  update();
  refresh(stamp);
}

function say(text) {
  failure = text;
  const words = text || (shown?.outside ? "Outside the training law: the picture may be wrong." : "");
  if (at("message").textContent !== words) at("message").textContent = words;
  at("message").hidden = !words;
  at("figure").classList.toggle("outside", Boolean(words));
}

function redraw() {
  if (!shown) return;
  say(failure);
  draw.panels(model, view, shown, bundle);
  at("caption").textContent = draw.caption(model, view, shown);
  trust();
}

function trust() {
  const words = at("validity");
  if (shown) {
    words.classList.toggle("warn", shown.outside);
    const share = Number((100 * shown.coverage).toPrecision(2));
    words.textContent = shown.outside
      ? "Outside the training law: fewer than one in 10 000 starts (and parameters) lie further out."
      : `Inside the training law: ${share} % of the starts (and parameters) lie further out.`;
    at("distance").textContent = shown.total_variation === null ? ""
      : `Total variation distance to the exact density, over the picture: ${shown.total_variation.toExponential(1)}.`;
  }
  const known = certificate && certified === start();
  at("certificate").hidden = !certificate;
  at("bound").textContent = known ? draw.bound(certificate, view.t) : "The bound on the error is being computed…";
  if (certificate) draw.certificate(at("certificate"), certificate, view.t);
}

function toggle(name, label, changed = () => {}) {
  shows.push(((show) => () => show(view.show.has(name)))(tick(at("choices"), `show-${name}`, label, (on) => change(() => {
    if (on) view.show.add(name); else view.show.delete(name);
    changed(on);
  }))));
}

function sliders() {
  const { t, x0, params, start_time: s } = model.controls;
  const add = (parent, id, label, range, bend, get, set) => {
    const show = slider(at(parent), id, label, range, bend, (value) => change(() => set(value)));
    shows.push(() => { const value = get(); if (value !== undefined && value !== null) show(value); });
  };
  add("sliders", "t", "time t", t, 2, () => view.t, (value) => { view.t = value; });
  x0.forEach((range, i) => add("sliders", `x0-${i + 1}`, `start ${draw.label(model, i)}`, range, 1,
    () => view.x0[i], (value) => { view.x0[i] = value; }));
  params.forEach((range) => add("sliders", `p-${range.name}`, range.name, range, 1,
    () => view.params[range.name], (value) => { view.params[range.name] = value; }));
  if (s) add("sliders", "s", "start time", s, 1, () => view.s, (value) => { view.s = value; });
  x0.forEach((range, i) => add("ends", `x1-${i + 1}`, `end ${draw.label(model, i)}`, range, 1,
    () => view.x1?.[i], (value) => { if (view.x1) view.x1[i] = value; }));
}

function choices() {
  if (model.dim > 2) {
    const names = model.controls.x0.map((_, i) => [String(i + 1), draw.label(model, i)]);
    [0, 1].forEach((side) => {
      const show = list(at("choices"), `pair-${side + 1}`, side ? "against" : "component", names, (value) => change(() => {
        const chosen = Number(value);
        if (view.pair[1 - side] === chosen) view.pair[1 - side] = view.pair[side];
        view.pair[side] = chosen;
        view.box = null;
      }));
      shows.push(() => show(String(view.pair[side])));
    });
    const kinds = [["section", "section at the mean"], ["marginal", "marginal of draws"]];
    const show = list(at("choices"), "kind", "as", kinds, (value) => change(() => { view.kind = value; }));
    shows.push(() => show(view.kind));
  }
  if (model.exact) {
    toggle("exact", "exact density");
    toggle("difference", "difference, learned − exact");
  }
  toggle("samples", "samples");
  toggle("bridges", "bridges between two points");
  const hold = tick(at("choices"), "hold", "hold the axes", (on) => change(() => { view.box = on ? shown.box : null; }));
  shows.push(() => hold(Boolean(view.box)));
}

function handles() {
  const move = (name) => (x, y) => change(() => {
    if (!view[name]) return;
    view[name] = [...view[name]];
    view[name][view.pair[0] - 1] = x;
    view[name][view.pair[1] - 1] = y;
  });
  const [first, last] = [["0", "Start of the process; arrow keys move it"], ["1", "End of the bridges; arrow keys move it"]];
  if (model.dim > 1) {
    const plot = draw.plot("learned");
    draw.movable(handle(plot, "start", first, move("x0")), handle(plot, "end", last, move("x1")));
    return;
  }
  const density = handle(draw.plot("learned"), "start", first, (x) => change(() => { view.x0 = [x]; }));
  const plot = draw.plot("bridges");
  const from = handle(plot, "start", first, (_, x) => change(() => { view.x0 = [x]; }));
  const to = handle(plot, "end", last, (t, x) => change(() => {
    view.t = Math.min(Math.max(t, model.controls.t.low), model.horizon);
    view.x1 = [x];
  }));
  draw.movable(density, from, to);
}

async function share() {
  settle();
  try {
    await navigator.clipboard.writeText(location.href);
    at("shared").textContent = "Copied.";
  } catch {
    at("shared").textContent = "Copy the address of this page.";
  }
  setTimeout(() => { at("shared").textContent = ""; }, 3000);
}

function watch() {
  at("controls").addEventListener("submit", (event) => event.preventDefault());
  at("share").addEventListener("click", share);
  at("reset").addEventListener("click", () => change(() => { view = states.first(model); }));
  window.addEventListener("hashchange", () => change(() => { view = states.restored(model, location.hash); }));
  new ResizeObserver(redraw).observe(at("panels"));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

// The first picture waits for programs to be compiled; a coarse one needs fewer of them.
async function preview() {
  at("caption").textContent = "Preparing the first picture…";
  if (model.dim > 2) return;
  try {
    const coarse = await answers.picture(`${states.query(view, { picture: true })}&coarse=1`);
    draw.panels(model, view, coarse, null);
    at("caption").textContent = "Coarse picture: an estimate from 1024 draws. The density itself is being prepared…";
    document.documentElement.dataset.coarse = "";
  } catch { /* the request for the density itself says what is wrong */ }
}

async function main() {
  at("caption").textContent = "Preparing…";
  try {
    model = await (await answers.asked("model", "")).json();
  } catch (error) {
    say(error.message);
    return;
  }
  document.title = `${model.title} · diracflow`;
  at("title").textContent = model.title;
  at("subtitle").textContent = draw.subtitle(model);
  view = states.restored(model, location.hash);
  draw.build(model, at("panels"));
  sliders();
  choices();
  handles();
  for (const show of shows) show();
  await preview();
  watch();
  refresh();
}

main();
