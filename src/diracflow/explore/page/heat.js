// A heat map over two components, with its colour bar.

import { Axes, fitted, ink, shown, ticks } from "./axes.js";
import { scale } from "./colours.js";

const MARGIN = { left: 48, right: 80, top: 8, bottom: 42 };
// Largest number of pixels computed along a side.
const FINEST = 560;

// The height that makes the field square.
function square(width) {
  return width - MARGIN.left - MARGIN.right + MARGIN.top + MARGIN.bottom;
}

export function heat(canvas, box, labels, field, map, top, overlay) {
  const { pen, width, height, ratio } = fitted(canvas, square);
  const area = [MARGIN.left, MARGIN.top, width - MARGIN.left - MARGIN.right,
    height - MARGIN.top - MARGIN.bottom].map(Math.round);
  const axes = new Axes(area, box);
  const colour = scale(map, top);
  const sides = [area[2], area[3]].map((side) => Math.min(Math.round(side * ratio), FINEST));
  pen.drawImage(raster(field, ...sides, colour), ...area);
  axes.within(pen, () => overlay(pen, axes));
  axes.frame(pen, ...labels);
  bar(pen, axes, map, top);
  // For programs that read the picture.
  Object.assign(canvas.dataset, { area, box: box.flat(), top });
  return axes;
}

// Bilinear interpolation; the outermost grid points lie on the frame.
function raster(field, across, down, colour) {
  const [rows, columns] = field.shape; // of the first and of the second component
  const image = document.createElement("canvas");
  [image.width, image.height] = [across, down];
  const pen = image.getContext("2d");
  const data = pen.createImageData(across, down);
  const pixels = new Uint32Array(data.data.buffer);
  const first = weights(across, rows, false);
  const second = weights(down, columns, true);
  const values = field.values;
  for (let j = 0; j < down; j++) {
    const b = second.below[j];
    const v = second.share[j];
    for (let i = 0; i < across; i++) {
      const at = first.below[i] * columns + b;
      const u = first.share[i];
      const low = values[at] * (1 - v) + values[at + 1] * v;
      const high = values[at + columns] * (1 - v) + values[at + columns + 1] * v;
      pixels[j * across + i] = colour(low * (1 - u) + high * u);
    }
  }
  pen.putImageData(data, 0, 0);
  return image;
}

function weights(pixels, points, downwards) {
  const below = new Int32Array(pixels);
  const share = new Float32Array(pixels);
  for (let i = 0; i < pixels; i++) {
    const place = ((downwards ? pixels - i - 0.5 : i + 0.5) / pixels) * (points - 1);
    below[i] = Math.min(Math.floor(place), points - 2);
    share[i] = place - below[i];
  }
  return { below, share };
}

function bar(pen, axes, map, top) {
  const left = axes.left + axes.width + 8;
  const image = document.createElement("canvas");
  [image.width, image.height] = [1, 256];
  const brush = image.getContext("2d");
  const data = brush.createImageData(1, 256);
  const pixels = new Uint32Array(data.data.buffer);
  const low = map.low * top;
  const colour = scale(map, top);
  for (let j = 0; j < 256; j++) pixels[j] = colour(top + (low - top) * (j / 255));
  brush.putImageData(data, 0, 0);
  pen.drawImage(image, left, axes.top, 12, axes.height);
  pen.fillStyle = ink("soft");
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  const { step, found } = ticks(low, top, 5);
  for (const value of found) {
    const y = axes.top + ((top - value) / (top - low)) * axes.height;
    pen.fillText(shown(value, step), left + 16, y);
  }
}

export function dots(pen, axes, cloud, pair) {
  const { values, shape } = cloud;
  pen.fillStyle = "rgba(255, 255, 255, 0.75)";
  for (let i = 0; i < shape[0]; i++) {
    const at = i * shape[1];
    const [x, y] = axes.place(values[at + pair[0]], values[at + pair[1]]);
    pen.fillRect(x - 0.75, y - 0.75, 1.5, 1.5);
  }
}

export function paths(pen, axes, bundle, pair) {
  const { values, shape } = bundle;
  pen.lineWidth = 1.2;
  pen.strokeStyle = "#ffb366"; // distinct from the samples, which are white
  for (let p = 0; p < shape[0]; p++) {
    pen.beginPath();
    for (let k = 0; k < shape[1]; k++) {
      const at = (p * shape[1] + k) * shape[2];
      pen.lineTo(...axes.place(values[at + pair[0]], values[at + pair[1]]));
    }
    pen.stroke();
  }
}

export function cross(pen, axes, x, y) {
  const [left, top] = axes.place(x, y);
  for (const [colour, width] of [["#000", 4], ["#fff", 2]]) {
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.beginPath();
    pen.moveTo(left - 6, top); pen.lineTo(left + 6, top);
    pen.moveTo(left, top - 6); pen.lineTo(left, top + 6);
    pen.stroke();
  }
}
