// One control per part of the skill: a disc, a ring, buttons or sliders, all steered by pointer and keyboard.
import { degrees, describePart, lengthOf } from "./skills.js";
import { el, setPressed } from "./ui.js";

const PAD_RADIUS = 44; // of the circle in the drawing's own units, of 100
const TURN = 5; // degrees of an arrow key

// `onsteer(values, final)` is called while the control moves; `final` is true at the end of a gesture.
export function makePad(part, onsteer) {
  if (part.kind === "buttons") return new ButtonPad(part, onsteer);
  if (part.kind === "sliders") return new SliderPad(part, onsteer);
  return new RoundPad(part, onsteer);
}

class RoundPad {
  constructor(part, onsteer) {
    this.part = part;
    this.onsteer = onsteer;
    this.values = [part.radius, 0];
    this.line = el("line", { x1: 50, y1: 50, class: "pad-line" });
    this.knob = el("circle", { r: 6.5, class: "pad-knob" });
    this.ghost = el("circle", { r: 4.5, class: "pad-ghost" });
    const inner = part.kind === "disc" ? [1 / 3, 2 / 3].map((r) => el("circle", { cx: 50, cy: 50, r: PAD_RADIUS * r, class: "pad-grid" })) : [];
    const ticks = Array.from({ length: 24 }, (_, i) => {
      const a = (i * Math.PI) / 12, r = i % 6 ? PAD_RADIUS - 2 : PAD_RADIUS - 4.5;
      const [c, s] = [Math.cos(a), Math.sin(a)];
      return el("line", { x1: 50 + r * c, y1: 50 + r * s, x2: 50 + PAD_RADIUS * c, y2: 50 + PAD_RADIUS * s, class: "pad-tick" });
    });
    const hub = el("circle", { cx: 50, cy: 50, r: 1.8, class: "pad-hub" });
    const rim = el("circle", { cx: 50, cy: 50, r: PAD_RADIUS, class: `pad-rim ${part.kind}` });
    this.node = el("svg", {
      viewBox: "0 0 100 100", class: "pad", tabindex: 0, role: "slider",
      "aria-label": `${part.name}: ${part.kind === "disc" ? "direction and pace" : "direction"}`, "aria-valuemin": 0, "aria-valuemax": 360,
    }, rim, ...inner, ...ticks, this.line, hub, this.ghost, this.knob);
    this.listen();
    this.show(this.values);
  }

  listen() {
    const { node } = this;
    const move = (event) => this.steer(this.at(event), false);
    node.addEventListener("pointerdown", (event) => {
      if (this.locked || event.button > 0) return;
      node.setPointerCapture(event.pointerId);
      node.addEventListener("pointermove", move);
      this.steer(this.at(event), false);
    });
    const end = () => {
      node.removeEventListener("pointermove", move);
      this.steer(this.values, true);
    };
    node.addEventListener("lostpointercapture", end);
    node.addEventListener("keydown", (event) => this.key(event));
  }

  at(event) {
    const box = this.node.getBoundingClientRect();
    const scale = (this.part.radius * 100) / (box.width * PAD_RADIUS);
    return this.fit([(event.clientX - box.left - box.width / 2) * scale, (box.top + box.height / 2 - event.clientY) * scale]);
  }

  // A ring has one length; a disc stops at its rim and rests at its centre.
  fit(values) {
    const length = lengthOf(values), radius = this.part.radius;
    if (this.part.kind === "ring") return length < 1e-9 ? this.values : values.map((x) => (x * radius) / length);
    if (length < 0.06 * radius) return [0, 0];
    return length > radius ? values.map((x) => (x * radius) / length) : values;
  }

  key(event) {
    const turns = { ArrowLeft: TURN, ArrowRight: -TURN }, paces = { ArrowUp: 0.1, ArrowDown: -0.1 };
    const ring = this.part.kind === "ring";
    if (this.locked || event.ctrlKey || event.metaKey || event.altKey || !(event.key in turns || event.key in paces)) return;
    event.preventDefault();
    event.stopPropagation();
    let angle = degrees(this.values), length = lengthOf(this.values);
    if (length < 1e-9) angle = this.lastAngle || 0;
    if (event.key in turns) angle += turns[event.key];
    else if (ring) angle += event.key === "ArrowUp" ? TURN : -TURN;
    else length = Math.max(0, Math.min(this.part.radius, length + paces[event.key] * this.part.radius));
    this.lastAngle = angle;
    const a = (angle * Math.PI) / 180;
    this.steer([length * Math.cos(a), length * Math.sin(a)], true);
  }

  steer(values, final) {
    if (!this.locked) this.onsteer(values, final);
  }

  place(values) {
    const scale = PAD_RADIUS / this.part.radius;
    return [50 + values[0] * scale, 50 - values[1] * scale];
  }

  show(values, acting = null) {
    this.values = values;
    const [x, y] = this.place(values);
    for (const [name, value] of [["x2", x], ["y2", y]]) this.line.setAttribute(name, value);
    for (const [name, value] of [["cx", x], ["cy", y]]) this.knob.setAttribute(name, value);
    const differs = acting && Math.hypot(acting[0] - values[0], acting[1] - values[1]) > 0.02 * this.part.radius;
    this.ghost.classList.toggle("shown", Boolean(differs));
    if (differs) {
      const [gx, gy] = this.place(acting);
      this.ghost.setAttribute("cx", gx);
      this.ghost.setAttribute("cy", gy);
    }
    this.node.setAttribute("aria-valuenow", Math.round(degrees(values)));
    this.node.setAttribute("aria-valuetext", describePart(this.part, values));
  }

  lock(locked) {
    this.locked = locked;
    this.node.setAttribute("aria-disabled", String(locked));
    this.node.classList.toggle("locked", locked);
  }
}

class ButtonPad {
  constructor(part, onsteer) {
    this.part = part;
    this.buttons = Array.from({ length: part.dim }, (_, i) =>
      el("button", { type: "button", class: "pad-button", "aria-label": `${part.name}: skill ${i + 1}`,
        onclick: () => !this.locked && onsteer(Array.from({ length: part.dim }, (_, k) => (k === i ? 1 : 0)), true) }, String(i + 1)));
    this.node = el("div", { class: "pad-buttons", role: "group", "aria-label": part.name }, ...this.buttons);
  }

  show(values, acting = null) {
    this.values = values;
    this.buttons.forEach((button, i) => {
      setPressed(button, values[i] > 0.5);
      button.classList.toggle("acting", Boolean(acting && acting[i] > 0.5));
    });
  }

  lock(locked) {
    this.locked = locked;
    this.buttons.forEach((button) => (button.disabled = locked));
  }
}

class SliderPad {
  constructor(part, onsteer) {
    this.part = part;
    this.inputs = Array.from({ length: part.dim }, (_, i) => el("input", {
      type: "range", min: -part.radius, max: part.radius, step: 0.01, "aria-label": `${part.name}: dimension ${i + 1}`,
      oninput: () => onsteer(this.read(i), false), onchange: () => onsteer(this.read(i), true),
    }));
    this.node = el("div", { class: "pad-sliders" }, ...this.inputs);
  }

  read(changed) {
    return this.inputs.map((input, i) => (i === changed ? Number(input.value) : this.values[i]));
  }

  show(values) {
    this.values = values;
    this.inputs.forEach((input, i) => {
      if (document.activeElement !== input || this.locked) input.value = values[i];
    });
  }

  lock(locked) {
    this.locked = locked;
    this.inputs.forEach((input) => (input.disabled = locked));
  }
}
