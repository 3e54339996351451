// The map of phi of one part: where skills lead it, where it is, and a click that sends it somewhere.
import { el, fitCanvas, themeColours, visible, withAlpha } from "./ui.js";

export class PhiMap {
  constructor(part, number, onpick) {
    this.part = part;
    this.number = number;
    this.box = null;
    this.paths = [];
    this.trail = [];
    this.canvas = el("canvas", { class: "phi-map", tabindex: 0, role: "img", "aria-label": `Map of phi of ${part.name}: click a place to go there`, title: "phi: click a place to send this factor there" });
    this.cursor = null; // of the keyboard
    this.canvas.addEventListener("pointerdown", (event) => {
      const bounds = this.canvas.getBoundingClientRect();
      const point = this.toPhi(event.clientX - bounds.left, event.clientY - bounds.top);
      if (point) onpick(point);
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event, onpick));
    this.canvas.addEventListener("blur", () => {
      this.cursor = null;
      this.draw();
    });
  }

  get flat() {
    return this.part.dim === 1;
  }

  key(event, onpick) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (moves) {
      const [x, y] = this.cursor || [width / 2, height / 2];
      this.cursor = [Math.max(0, Math.min(width, x + 8 * moves[0])), Math.max(0, Math.min(height, y + 8 * moves[1]))];
      this.draw();
    } else if (event.key === "Enter" && this.cursor && this.box) {
      onpick(this.toPhi(...this.cursor));
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // Where things are: the box of the backend, or the extent of the paths until it is known.
  setPaths(paths) {
    this.paths = paths;
    this.version = (this.version || 0) + 1;
    if (!this.measured) this.box = extentOf(paths.flat());
    this.draw();
  }

  setBox(box) {
    if (!box) return;
    this.measured = true;
    this.box = this.flat ? [[box.low[0], 0], [box.high[0], 1]] : [box.low.slice(0, 2), box.high.slice(0, 2)];
    this.draw();
  }

  scale(width, height) {
    const [low, high] = this.box, pad = 0.1;
    return {
      to: ([a, b]) => [
        width * (pad + ((1 - 2 * pad) * (a - low[0])) / Math.max(high[0] - low[0], 1e-6)),
        this.flat ? height / 2 : height * (1 - pad - ((1 - 2 * pad) * (b - low[1])) / Math.max(high[1] - low[1], 1e-6)),
      ],
      from: (x, y) => [
        low[0] + ((x / width - pad) / (1 - 2 * pad)) * (high[0] - low[0]),
        low[1] + ((1 - pad - y / height) / (1 - 2 * pad)) * (high[1] - low[1]),
      ],
    };
  }

  // A point of the map as phi; dimensions beyond the second stay where they are.
  toPhi(x, y) {
    if (!this.box || !this.now) return null;
    const [a, b] = this.scale(this.canvas.clientWidth, this.canvas.clientHeight).from(x, y);
    return this.flat ? [a] : [a, b, ...this.now.slice(2)];
  }

  show(phi, goal, moved) {
    this.now = phi;
    this.goal = goal;
    if (moved) {
      this.trail.push(phi.slice(0, 2));
      if (this.trail.length > 120) this.trail.shift();
    }
    this.draw();
  }

  clearTrail() {
    this.trail = [];
  }

  draw() {
    fitCanvas(this.canvas, (context, width, height) => {
      const theme = themeColours(), colour = visible(this.part.colour, theme);
      if (!this.box) return;
      const { to } = this.scale(width, height);
      const line = (points, stroke, thick) => {
        context.beginPath();
        points.forEach((point, i) => (i ? context.lineTo(...to(point)) : context.moveTo(...to(point))));
        context.strokeStyle = stroke;
        context.lineWidth = thick;
        context.lineJoin = "round";
        context.stroke();
      };
      this.drawPaths(context, to, withAlpha(colour, theme.dark ? 0.28 : 0.2));
      if (this.trail.length > 1) line(this.trail, withAlpha(colour, 0.75), 1.5);
      if (this.goal) this.cross(context, to(this.goal), colour);
      if (this.now) {
        const { x, y, outside } = withinMap(to(this.now), width, height);
        context.beginPath();
        context.arc(x, y, 4.5, 0, 2 * Math.PI);
        context.fillStyle = outside ? theme.paper : colour;
        context.fill();
        context.strokeStyle = outside ? colour : theme.paper;
        context.lineWidth = outside ? 2 : 1.5;
        context.stroke();
      }
      if (this.cursor) this.cross(context, this.cursor, theme.ink);
    });
  }

  // The pale lines are drawn once and kept as an image: there are thousands of pieces.
  drawPaths(context, to, stroke) {
    const { width, height } = this.canvas; // in its own pixels
    const key = [width, height, stroke, this.box, this.paths.length, this.version].join(" ");
    if (this.kept !== key) {
      this.kept = key;
      this.image = el("canvas", { width, height });
      const inner = this.image.getContext("2d");
      inner.setTransform(context.getTransform());
      inner.strokeStyle = stroke;
      inner.lineJoin = "round";
      for (const path of this.paths) {
        inner.beginPath();
        path.forEach((point, i) => (i ? inner.lineTo(...to(point)) : inner.moveTo(...to(point))));
        inner.stroke();
      }
    }
    context.save();
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.image, 0, 0);
    context.restore();
  }

  cross(context, [x, y], colour) {
    context.strokeStyle = colour;
    context.lineWidth = 1.5;
    context.beginPath();
    context.arc(x, y, 5, 0, 2 * Math.PI);
    context.moveTo(x - 8, y);
    context.lineTo(x + 8, y);
    context.moveTo(x, y - 8);
    context.lineTo(x, y + 8);
    context.stroke();
  }
}

// A state that is further away than skills usually lead is a ring on the edge of the map.
export function withinMap([x, y], width, height, margin = 6) {
  const inside = (value, size) => Math.max(margin, Math.min(size - margin, value));
  const outside = x < 0 || y < 0 || x > width || y > height;
  return outside ? { x: inside(x, width), y: inside(y, height), outside } : { x, y, outside };
}

export function extentOf(points) {
  const low = [Infinity, Infinity], high = [-Infinity, -Infinity];
  for (const point of points) {
    for (const axis of [0, 1]) {
      low[axis] = Math.min(low[axis], point[axis]);
      high[axis] = Math.max(high[axis], point[axis]);
    }
  }
  return points.length ? [low, high] : null;
}
