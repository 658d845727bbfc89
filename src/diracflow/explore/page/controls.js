// Sliders with number fields, check boxes, selection lists.

const STEPS = 1000;

function element(tag, attributes = {}, ...children) {
  const made = Object.assign(document.createElement(tag), attributes);
  made.append(...children);
  return made;
}

export function tidy(value) {
  return Number(value.toPrecision(4));
}

// The value is the slider position to the power `bend`: 2 for times, since the widths of densities
// grow with the square root of time.
export function slider(parent, id, label, { low, high }, bend, changed) {
  const range = element("input", { type: "range", id, min: 0, max: STEPS, step: 1 });
  const number = element("input", { type: "number", step: "any", id: `${id}-number` });
  number.setAttribute("aria-label", `${label}, as a number`);
  const name = element("label", { htmlFor: id }, label);
  parent.append(element("div", { className: "slider" }, name, range, number));
  const root = (value) => Math.sign(value) * Math.abs(value) ** (1 / bend);
  const [from, to] = [root(low), root(high)];
  const valueAt = (place) => {
    const between = from + ((to - from) * place) / STEPS;
    const value = tidy(Math.sign(between) * Math.abs(between) ** bend);
    return Math.min(Math.max(value, low), high);
  };
  const show = (value) => {
    range.value = Math.round(((root(value) - from) / (to - from)) * STEPS);
    range.setAttribute("aria-valuetext", String(value));
    if (document.activeElement !== number) number.value = value;
  };
  range.addEventListener("input", () => {
    const value = valueAt(Number(range.value));
    number.value = value;
    range.setAttribute("aria-valuetext", String(value));
    changed(value);
  });
  number.addEventListener("input", () => {
    if (number.value !== "" && Number.isFinite(number.valueAsNumber)) changed(number.valueAsNumber);
  });
  return show;
}

export function tick(parent, id, label, changed) {
  const box = element("input", { type: "checkbox", id });
  parent.append(element("div", { className: "choice" }, box, element("label", { htmlFor: id }, label)));
  box.addEventListener("change", () => changed(box.checked));
  return (value) => { box.checked = value; };
}

export function list(parent, id, label, options, changed) {
  const select = element("select", { id });
  for (const [value, text] of options) select.append(element("option", { value }, text));
  const name = element("label", { htmlFor: id }, label);
  parent.append(element("div", { className: "choice" }, name, select));
  select.addEventListener("change", () => changed(select.value));
  return (value) => { select.value = value; };
}

// A point on a picture that can be dragged or moved with the arrow keys.
export function handle(plot, className, label, moved) {
  const button = element("button", { type: "button", className: `handle ${className}` }, label[0]);
  button.setAttribute("aria-label", label[1]);
  plot.append(button);
  let axes = null;
  let at = [0, 0];
  const local = (event) => {
    const frame = plot.getBoundingClientRect();
    return axes.value(event.clientX - frame.left, event.clientY - frame.top);
  };
  button.addEventListener("pointerdown", (event) => button.setPointerCapture(event.pointerId));
  button.addEventListener("pointermove", (event) => {
    if (button.hasPointerCapture(event.pointerId)) moved(...local(event).map(tidy));
  });
  button.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const size = event.shiftKey ? 20 : 4;
    moved(...axes.value(at[0] + size * step[0], at[1] + size * step[1]).map(tidy));
  });
  return {
    put(newAxes, x, y) {
      axes = newAxes;
      at = axes.place(x, y);
      // A point outside the picture is shown at its edge, from where it can be dragged back.
      const left = Math.min(Math.max(at[0], axes.left), axes.left + axes.width);
      const top = Math.min(Math.max(at[1], axes.top), axes.top + axes.height);
      button.hidden = false;
      button.classList.toggle("beyond", Math.hypot(left - at[0], top - at[1]) > 1);
      button.style.left = `${left}px`;
      button.style.top = `${top}px`;
    },
    hide() { button.hidden = true; },
  };
}
