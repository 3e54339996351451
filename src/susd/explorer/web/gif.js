// Animated GIFs: one palette for all frames, pixels that stay are left out, LZW.

const MOST_COLOURS = 255; // and one for pixels that stay
const STAYS = 255;

/** Colours with five bits per channel. */
export function reduced(pixels) {
  const found = new Uint16Array(pixels.length / 4);
  for (let i = 0; i < found.length; i++) found[i] = ((pixels[4 * i] >> 3) << 10) | ((pixels[4 * i + 1] >> 3) << 5) | (pixels[4 * i + 2] >> 3);
  return found;
}

const channel = (colour, axis) => (colour >> (10 - 5 * axis)) & 31;

/** Median cut: boxes of colours are split where they are longest, until there are enough. The answer maps colours to indices. */
export function paletteOf(frames) {
  const counts = new Uint32Array(32768);
  for (const frame of frames) for (const colour of frame) counts[colour] += 1;
  const used = Array.from(counts.keys()).filter((colour) => counts[colour]);
  const boxes = [boxOf(used, counts)];
  while (boxes.length < MOST_COLOURS) {
    const widest = boxes.reduce((best, box, i) => (box.score > boxes[best].score ? i : best), 0);
    if (!boxes[widest].score) break;
    boxes.splice(widest, 1, ...split(boxes[widest], counts));
  }
  const index = new Uint8Array(32768), colours = boxes.map(({ colours: inside }, number) => {
    const total = inside.reduce((sum, colour) => sum + counts[colour], 0);
    inside.forEach((colour) => (index[colour] = number));
    return [0, 1, 2].map((axis) => Math.round((inside.reduce((sum, colour) => sum + counts[colour] * channel(colour, axis), 0) / total) * (255 / 31)));
  });
  return { colours, index };
}

function boxOf(colours, counts) {
  const spans = [0, 1, 2].map((axis) => {
    let [low, high] = [31, 0];
    for (const colour of colours) {
      low = Math.min(low, channel(colour, axis));
      high = Math.max(high, channel(colour, axis));
    }
    return high - low;
  });
  const axis = spans.indexOf(Math.max(...spans));
  const weight = colours.reduce((sum, colour) => sum + counts[colour], 0);
  return { colours, axis, score: spans[axis] * Math.sqrt(weight) };
}

function split({ colours, axis }, counts) {
  const rows = colours.slice().sort((a, b) => channel(a, axis) - channel(b, axis));
  const half = rows.reduce((sum, colour) => sum + counts[colour], 0) / 2;
  let [cut, sum] = [0, 0];
  while (cut < rows.length - 1 && (cut === 0 || sum < half)) sum += counts[rows[cut++]];
  return [rows.slice(0, cut), rows.slice(cut)].map((part) => boxOf(part, counts));
}

/** LZW with codes of 9 to 12 bits, in blocks of at most 255 bytes. */
export function squeezed(indices) {
  const bytes = [], clear = 256, end = 257;
  let [held, bits, width, next] = [0, 0, 9, 258], table = new Map();
  const put = (code) => {
    held |= code << bits;
    bits += width;
    for (; bits >= 8; bits -= 8, held >>>= 8) bytes.push(held & 255);
  };
  put(clear);
  let prefix = indices[0];
  for (let i = 1; i < indices.length; i++) {
    const key = prefix * 256 + indices[i], known = table.get(key);
    if (known !== undefined) {
      prefix = known;
      continue;
    }
    put(prefix);
    if (next === 4096) {
      put(clear);
      [width, next, table] = [9, 258, new Map()];
    } else {
      if (next === 1 << width) width += 1;
      table.set(key, next++);
    }
    prefix = indices[i];
  }
  put(prefix);
  put(end);
  if (bits) bytes.push(held & 255);
  const blocks = [];
  for (let at = 0; at < bytes.length; at += 255) blocks.push(Math.min(255, bytes.length - at), ...bytes.slice(at, at + 255));
  return [...blocks, 0];
}

const two = (value) => [value & 255, value >> 8];

/** Frames of `reduced` colours as the bytes of a GIF that repeats for ever; `pause()` is awaited between frames. */
export async function encodeGif(frames, width, height, framesPerSecond, pause = () => {}) {
  const { colours, index } = paletteOf(frames);
  const palette = new Uint8Array(768);
  colours.forEach((colour, i) => palette.set(colour, 3 * i));
  const delay = two(Math.round(100 / framesPerSecond));
  const parts = [[...new TextEncoder().encode("GIF89a"), ...two(width), ...two(height), 0xf7, 0, 0], palette, [0x21, 0xff, 11, ...new TextEncoder().encode("NETSCAPE2.0"), 3, 1, 0, 0, 0]];
  for (let k = 0; k < frames.length; k++) {
    const before = k ? frames[k - 1] : null;
    const indices = frames[k].map((colour, i) => (before && before[i] === colour ? STAYS : index[colour]));
    parts.push([0x21, 0xf9, 4, 0x05, ...delay, STAYS, 0, 0x2c, 0, 0, 0, 0, ...two(width), ...two(height), 0, 8]);
    parts.push(squeezed(indices));
    await pause();
  }
  return parts.concat([[0x3b]]).map((part) => Uint8Array.from(part));
}
