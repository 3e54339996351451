// Small helpers for the document: elements, icons, messages.

const SVG_NAMES = new Set(["svg", "path", "circle", "line", "g", "rect", "polyline", "text"]);

export function el(tag, attributes = {}, ...children) {
  const node = SVG_NAMES.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "vars") for (const [key, item] of Object.entries(value)) node.style.setProperty(key, item);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const ICONS = {
  play: "M8 5v14l11-7z",
  pause: "M7 5h4v14H7zM13 5h4v14h-4z",
  step: "M6 5v14l9-7zM16 5h3v14h-3z",
  reset: "M12 5V2L7 6l5 4V7a5 5 0 1 1-5 5H5a7 7 0 1 0 7-7z",
  freeze: "M7 10V8a5 5 0 0 1 10 0v2h1a1 1 0 0 1 1 1v9a1 1 0 0 1-1 1H6a1 1 0 0 1-1-1v-9a1 1 0 0 1 1-1zM9 10h6V8a3 3 0 0 0-6 0z",
  sweep: "M12 4a8 8 0 0 1 7.4 5H22l-4 5-4-5h2.2A5.5 5.5 0 1 0 17 15h2.6A8 8 0 1 1 12 4z",
  random: "M5 3h14a2 2 0 0 1 2 2v14a2 2 0 0 1-2 2H5a2 2 0 0 1-2-2V5a2 2 0 0 1 2-2zm3 3.4A1.6 1.6 0 1 0 8 9.600a1.600 1.600 0 0 0 0-3.200zm8 0A1.600 1.600 0 1 0 16 9.600a1.600 1.600 0 0 0 0-3.200zm-4 4A1.600 1.600 0 1 0 12 13.600a1.600 1.600 0 0 0 0-3.200zm-4 4A1.600 1.600 0 1 0 8 17.600a1.600 1.600 0 0 0 0-3.200zm8 0a1.600 1.600 0 1 0 0 3.200 1.600 1.600 0 0 0 0-3.200z",
  undo: "M9 5 4 10l5 5v-3h5a4 4 0 0 1 0 8H8v2h6a6 6 0 0 0 0-12H9z",
  link: "M10 14a4 4 0 0 1 0-6l3-3a4.200 4.200 0 0 1 6 6l-1.600 1.600-1.400-1.400L17.600 9.600a2.200 2.200 0 0 0-3.200-3.200l-3 3a2.200 2.200 0 0 0 0 3.200zM14 10a4 4 0 0 1 0 6l-3 3a4.200 4.200 0 0 1-6-6l1.600-1.600L8 12.800l-1.600 1.600a2.200 2.200 0 0 0 3.200 3.200l3-3a2.200 2.200 0 0 0 0-3.200z",
  code: "M8.500 6 10 7.400 5.400 12l4.600 4.600L8.500 18l-6-6zM15.500 6l6 6-6 6-1.500-1.400 4.600-4.600L14 7.400z",
  record: "M12 6a6 6 0 1 1 0 12 6 6 0 0 1 0-12z",
  theme: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zm0 2v14a7 7 0 0 1 0-14z",
  help: "M12 2a10 10 0 1 0 0 20 10 10 0 0 0 0-20zm-1 14h2v2h-2zm1-10a4 4 0 0 1 4 4c0 2.200-2.400 2.700-3 4h-2c0-2.600 3-2.800 3-4a2 2 0 0 0-4 0H8a4 4 0 0 1 4-4z",
  follow: "M12 7a5 5 0 1 1 0 10 5 5 0 0 1 0-10zm0 2a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM11 2h2v4h-2zM11 18h2v4h-2zM2 11h4v2H2zM18 11h4v2h-4z",
  closer: "M11 5h2v6h6v2h-6v6h-2v-6H5v-2h6z",
  further: "M5 11h14v2H5z",
  gif: "M3 5h18v14H3zm2 2v10h14V7zm6.300 3.600H8.600v2.800h1.200v-.8H9.300v-.9h2v2.800H7.500v-4.800h3.800zM12.300 9.400h1.200v5.200h-1.200zM14.600 9.400h3.600v1.100h-2.400v1h2v1.100h-2v2h-1.200z",
  clear: "M6.400 5 5 6.400 10.600 12 5 17.600 6.400 19l5.600-5.600 5.600 5.600 1.400-1.400-5.600-5.600L19 6.400 17.600 5 12 10.600z",
};

export function icon(name) {
  return el("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, el("path", { d: ICONS[name], "fill-rule": "evenodd" }));
}

export function setIcon(button, name) {
  button.querySelector(".icon").replaceWith(icon(name));
}

// A button with an icon; its name is read aloud and shown as a tooltip.
export function iconButton(name, label, onclick, attributes = {}) {
  return el("button", { type: "button", class: "icon-button", "aria-label": label, title: label, onclick, ...attributes }, icon(name));
}

export function textButton(name, label, onclick, attributes = {}) {
  return el("button", { type: "button", class: "button", onclick, ...attributes }, name ? icon(name) : null, el("span", {}, label));
}

export function labelled(label, control) {
  return el("label", { class: "field" }, el("span", {}, label), control);
}

export function choice(options, onchange, attributes = {}) {
  const select = el("select", { onchange: () => onchange(select.value), ...attributes });
  select.append(...options.map(({ value, label }) => el("option", { value }, label)));
  return select;
}

export function setPressed(button, pressed) {
  button.setAttribute("aria-pressed", String(pressed));
}

let toastTimer = 0;
export function toast(text, seconds = 4) {
  const box = document.getElementById("toast");
  box.textContent = text;
  box.classList.add("shown");
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => box.classList.remove("shown"), 1000 * seconds);
}

export async function copyText(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el("textarea", { class: "offscreen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  toast(`${what} copied.`);
}

export function download(url, name) {
  const anchor = el("a", { href: url, download: name });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
}

// Sizes are kept, because asking for them while other things change makes the browser lay out the page again.
const canvasSizes = new WeakMap();
const sizeWatcher = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) canvasSizes.set(target, [contentRect.width, contentRect.height]);
});

function sizeOf(canvas) {
  if (!canvasSizes.has(canvas)) {
    canvasSizes.set(canvas, [canvas.clientWidth, canvas.clientHeight]);
    sizeWatcher.observe(canvas);
  }
  return canvasSizes.get(canvas);
}

// A canvas whose pixels are those of the screen; `draw(context, width, height)` works in CSS pixels.
export function fitCanvas(canvas, draw) {
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  const [width, height] = sizeOf(canvas);
  if (!width || !height) return;
  const wide = Math.round(width * ratio), high = Math.round(height * ratio);
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  draw(context, width, height);
}

// The colours of the page for canvases, read once for each theme.
let keptTheme = null;
export function themeColours() {
  if (keptTheme) return keptTheme;
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  keptTheme = { ink: read("--ink"), pale: read("--pale"), line: read("--line"), paper: read("--stage"), accent: read("--accent"), lift: parseFloat(read("--lift")) / 100, dark: style.colorScheme === "dark" };
  return keptTheme;
}

export function forgetTheme() {
  keptTheme = null;
}

// Factor colours are those of the report; its black is drawn in the page's ink, and all are lighter on dark paper.
export function visible(colour, theme) {
  if (styleColour(colour) !== colour) return theme.ink;
  const lighter = (at) => Math.round(parseInt(colour.slice(at, at + 2), 16) * (1 - theme.lift) + 255 * theme.lift);
  return `#${[1, 3, 5].map((at) => lighter(at).toString(16).padStart(2, "0")).join("")}`;
}

// The same for the style of an element, which lightens it.
export function styleColour(colour) {
  return colour.toLowerCase() === "#000000" ? "var(--ink)" : colour;
}

export function withAlpha(colour, alpha) {
  if (!colour.startsWith("#")) return colour;
  return `${colour.slice(0, 7)}${Math.round(255 * Math.max(0, Math.min(1, alpha))).toString(16).padStart(2, "0")}`;
}
