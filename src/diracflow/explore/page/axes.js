// A frame with ticks and labels, and the map from values to positions on a canvas.

const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

export function ink(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// Fit a canvas to its container at the resolution of the screen; lengths are in CSS pixels.
// `aspect` is its height over its width, or a function from the width to the height.
export function fitted(canvas, aspect) {
  const width = Math.max(canvas.clientWidth, 200);
  const wanted = typeof aspect === "function" ? aspect(width) : width * aspect;
  const height = aspect ? Math.round(wanted) : canvas.clientHeight;
  const ratio = window.devicePixelRatio || 1;
  if (aspect) canvas.style.height = `${height}px`;
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== across || canvas.height !== down) [canvas.width, canvas.height] = [across, down];
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = FONT;
  return { pen, width, height, ratio };
}

export function ticks(low, high, count) {
  const rough = (high - low) / count;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find((m) => m * unit >= rough);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(i * step);
  return { step, found };
}

export function shown(value, step) {
  if (Math.abs(value) < 1e-9 * step) return "0";
  const size = Math.abs(value);
  if (size >= 1e4 || size < 1e-3) return value.toExponential(1).replace("e+", "e").replace(".0e", "e").replace("-", "−").replace("e-", "e−");
  return value.toFixed(Math.max(0, -Math.floor(Math.log10(step) + 1e-9))).replace("-", "−");
}

// `area` is [left, top, width, height]; `box` holds the two intervals shown there.
export class Axes {
  constructor(area, box) {
    [this.left, this.top, this.width, this.height] = area;
    this.box = box;
  }

  place(x, y) {
    const [[a, b], [c, d]] = this.box;
    return [this.left + ((x - a) / (b - a)) * this.width, this.top + ((d - y) / (d - c)) * this.height];
  }

  value(left, top) {
    const [[a, b], [c, d]] = this.box;
    return [a + ((left - this.left) / this.width) * (b - a), d - ((top - this.top) / this.height) * (d - c)];
  }

  frame(pen, across, up) {
    pen.strokeStyle = ink("line");
    pen.lineWidth = 1;
    pen.strokeRect(this.left - 0.5, this.top - 0.5, this.width + 1, this.height + 1);
    pen.fillStyle = ink("soft");
    this.#across(pen, across);
    this.#up(pen, up);
  }

  #across(pen, label) {
    const { step, found } = ticks(...this.box[0], Math.max(2, this.width / 55));
    pen.textAlign = "center";
    pen.textBaseline = "top";
    const foot = this.top + this.height;
    for (const value of found) {
      const [x] = this.place(value, 0);
      pen.fillRect(Math.round(x), foot, 1, 4);
      pen.fillText(shown(value, step), x, foot + 6);
    }
    pen.fillText(label, this.left + this.width / 2, foot + 22);
  }

  #up(pen, label) {
    const { step, found } = ticks(...this.box[1], Math.max(2, this.height / 45));
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const value of found) {
      const [, y] = this.place(0, value);
      pen.fillRect(this.left - 5, Math.round(y), 4, 1);
      pen.fillText(shown(value, step), this.left - 8, y);
    }
    pen.save();
    pen.translate(11, this.top + this.height / 2);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "center";
    pen.fillText(label, 0, 0);
    pen.restore();
  }

  within(pen, draw) {
    pen.save();
    pen.beginPath();
    pen.rect(this.left, this.top, this.width, this.height);
    pen.clip();
    draw();
    pen.restore();
  }

  curve(pen, xs, ys) {
    pen.beginPath();
    xs.forEach((x, i) => pen.lineTo(...this.place(x, ys[i])));
    pen.stroke();
  }
}
