// Colour maps as tables of packed pixels.

// Viridis (public domain, CC0), sampled at sixteenths.
const VIRIDIS = ["#440154", "#48186a", "#472d7b", "#424086", "#3b528b", "#33638d", "#2c728e",
  "#26828e", "#21918c", "#1fa088", "#28ae80", "#3fbc73", "#5ec962", "#84d44b", "#addc30",
  "#d8e219", "#fde725"];
// A diverging map from negative to positive differences, safe for colour-blind readers.
const DIFFERENCE = ["#00304f", "#0072b2", "#7fb8da", "#f5f5f5", "#eca878", "#d55e00", "#6b2d00"];
const SIZE = 1024;

function channels(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function table(stops) {
  const colours = stops.map(channels);
  const pixels = new Uint8ClampedArray(4 * SIZE);
  for (let i = 0; i < SIZE; i++) {
    const place = (i / (SIZE - 1)) * (colours.length - 1);
    const below = Math.min(Math.floor(place), colours.length - 2);
    const share = place - below;
    for (let c = 0; c < 3; c++) {
      pixels[4 * i + c] = colours[below][c] * (1 - share) + colours[below + 1][c] * share;
    }
    pixels[4 * i + 3] = 255;
  }
  return new Uint32Array(pixels.buffer);
}

export const density = { low: 0, pixels: table(VIRIDIS) };
export const difference = { low: -1, pixels: table(DIFFERENCE) };

// A function from values to pixels; `low` of a map is its lower end in units of `top`.
export function scale(map, top) {
  const last = SIZE - 1;
  const factor = last / (top * (1 - map.low));
  const shift = map.low * top;
  return (value) => {
    const place = Math.round((value - shift) * factor);
    return map.pixels[place < 0 ? 0 : place > last ? last : place || 0];
  };
}
