// The cards of the skill's parts: pad, map of phi, exact values, freeze, sweep, randomise.
import { PhiMap } from "./maps.js";
import { makePad } from "./pads.js";
import { degrees, describePart, lengthOf, partOf } from "./skills.js";
import { el, iconButton, setPressed, styleColour } from "./ui.js";

export class PartCard {
  constructor(app, number) {
    this.app = app;
    this.number = number;
    const part = (this.part = app.hello.parts[number]);
    this.pad = makePad(part, (values, final) => app.steer(number, values, final));
    this.map = app.hello.can.maps ? new PhiMap(part, number, (point) => app.sendTo(number, { phi: point })) : null;
    this.value = el("output", { class: "part-value" });
    this.freeze = iconButton("freeze", `Freeze ${part.name}`, () => app.toggleFreeze(number), { "aria-pressed": "false" });
    this.sweep = iconButton("sweep", `Sweep ${part.name}`, () => app.toggleSweep(number), { "aria-pressed": "false" });
    this.clear = iconButton("clear", `Stop the goal of ${part.name}`, () => app.sendTo(number, null), { class: "icon-button goal-clear", hidden: true });
    const tools = el("div", { class: "part-tools" }, this.freeze, this.sweep,
      iconButton("random", `Randomise ${part.name}`, () => app.randomise([number])));
    this.title = el("button", { type: "button", class: "part-name", "aria-pressed": "false", onclick: () => app.select(number), title: "Show what else moves" },
      el("span", { class: "swatch", "aria-hidden": "true" }), el("span", {}, part.name.replaceAll("_", " ")));
    this.node = el("section", { class: `part ${part.kind}`, "aria-label": `Part ${part.name}`, vars: { "--colour": styleColour(part.colour) } },
      el("header", {}, this.title, tools),
      el("div", { class: "part-body" }, this.pad.node, this.map ? el("div", { class: "map-box" }, this.map.canvas, this.clear) : null),
      el("div", { class: "part-foot" }, this.value, this.exact()));
    this.node.addEventListener("pointerdown", () => app.select(number));
    this.node.addEventListener("focusin", () => app.select(number));
  }

  // Exact values: degrees and pace of round pads, one number per dimension of others.
  exact() {
    const { part, app, number } = this;
    const field = (label, attributes) => {
      const input = el("input", { type: "number", class: "exact", "aria-label": `${part.name}: ${label}`, title: label, ...attributes, onchange: () => app.steer(number, this.readExact(), true) });
      return input;
    };
    if (part.kind === "buttons") this.fields = [];
    else if (part.kind === "sliders") this.fields = Array.from({ length: part.dim }, (_, i) => field(`dimension ${i + 1}`, { step: 0.01 }));
    else {
      this.fields = [field("degrees", { step: 1 })];
      if (part.kind === "disc") this.fields.push(field("pace", { step: 0.05, min: 0, max: part.radius }));
    }
    return el("span", { class: "exact-fields" }, ...this.fields);
  }

  readExact() {
    const numbers = this.fields.map((input) => Number(input.value) || 0);
    if (this.part.kind === "sliders") return numbers;
    const angle = (numbers[0] * Math.PI) / 180, pace = numbers.length > 1 ? Math.max(0, Math.min(this.part.radius, numbers[1])) : this.part.radius;
    return [pace * Math.cos(angle), pace * Math.sin(angle)];
  }

  showExact(values) {
    const shown = this.part.kind === "sliders" ? values : [degrees(values), lengthOf(values)];
    this.fields.forEach((input, i) => {
      if (document.activeElement !== input) input.value = i === 0 && this.part.kind !== "sliders" ? Math.round(shown[0]) : shown[i].toFixed(2);
    });
  }

  show(skill, acting, goal) {
    const values = partOf(this.app.hello, skill, this.number);
    const driven = acting ? partOf(this.app.hello, acting, this.number) : null;
    this.pad.show(values, driven);
    this.value.textContent = goal ? `goal · ${describePart(this.part, driven || values)}` : describePart(this.part, values);
    this.showExact(values);
    this.clear.hidden = !goal;
  }

  showPhi(frame, goal, moved) {
    if (!this.map || !frame.phi) return;
    const { at, dim } = this.part;
    this.map.show(frame.phi.slice(at, at + dim), goal && goal.phi, moved);
  }

  showState(frozen, sweeping, selected) {
    setPressed(this.freeze, frozen);
    setPressed(this.sweep, sweeping);
    setPressed(this.title, selected);
    this.pad.lock(frozen);
    this.node.classList.toggle("selected", selected);
  }
}

// "What else moved?": one bar per factor.
export class Influence {
  constructor(hello) {
    this.hello = hello;
    this.lead = el("p", { class: "hint" });
    this.rows = hello.env.factors.map((factor) => {
      const bar = el("span", { class: "bar", vars: { "--colour": styleColour(factor.colour) } });
      const value = el("span", { class: "bar-value" }, "–");
      const row = el("div", { class: "bar-row", role: "img" }, el("span", { class: "bar-name" }, factor.name.replaceAll("_", " ")), el("span", { class: "bar-track" }, bar), value);
      return { row, bar, value, factor };
    });
    this.node = el("div", { class: "influence" }, this.lead, ...this.rows.map(({ row }) => row));
  }

  wait(part) {
    const name = this.hello.parts[part].name.replaceAll("_", " ");
    this.lead.replaceChildren("If only ", el("strong", {}, name), " were redrawn, this much would change; 100 % is what another skill changes.");
  }

  show(answer) {
    this.wait(answer.part);
    if (answer.from === "start") this.lead.append(" Measured from the start of an episode.");
    this.rows.forEach(({ row, bar, value, factor }, i) => {
      const change = answer.change[i];
      bar.style.transform = `scaleX(${Math.min(1, change)})`;
      value.textContent = `${Math.round(100 * change)} %`;
      row.setAttribute("aria-label", `${factor.name}: ${Math.round(100 * change)} per cent`);
      row.classList.toggle("own", this.hello.parts[answer.part].factor === i);
    });
  }
}
