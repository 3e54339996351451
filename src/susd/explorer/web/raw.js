// Raw actions: sliders for all of them, and keys for those of one group.
import { choice, el, labelled } from "./ui.js";

const KEY_PAIRS = [["ArrowLeft", "ArrowRight"], ["ArrowDown", "ArrowUp"], ["a", "d"], ["s", "w"], ["q", "e"], ["z", "c"]];
const KEY_NAMES = ["← →", "↓ ↑", "A D", "S W", "Q E", "Z C"];

export class RawPanel {
  constructor(app) {
    this.app = app;
    const { actions, action_groups: groups } = app.hello.env;
    this.values = actions.map(() => 0);
    this.held = new Set();
    this.many = actions.length > KEY_PAIRS.length;
    this.keys = actions.map(() => el("kbd", { class: "raw-keys" }));
    this.inputs = actions.map((action, i) => el("input", { type: "range", min: -1, max: 1, step: 0.01, value: 0, "aria-label": action.name, oninput: () => this.set(i, Number(this.inputs[i].value)), ondblclick: () => this.set(i, 0) }));
    this.toggle = el("input", { type: "checkbox", onchange: () => app.choosePlayer(this.toggle.checked ? "raw" : "skill") });
    this.group = choice(groups.map((group, i) => ({ value: String(i), label: group.name })), () => this.label());
    this.rows = actions.map((action, i) => el("div", { class: "raw-row" }, el("span", { class: "raw-name" }, action.name), this.inputs[i], this.keys[i]));
    this.node = el("div", { class: "raw" },
      el("div", { class: "row" }, el("label", { class: "check" }, this.toggle, el("span", {}, "Act by hand: the policy rests, keys and sliders are the action")), this.many && groups.length > 1 ? labelled("Keys steer", this.group) : null),
      el("div", { class: "raw-rows" }, ...this.rows));
    this.label();
  }

  // The actions that the keys steer now.
  indices() {
    const { actions, action_groups: groups } = this.app.hello.env;
    const all = this.many ? groups[Number(this.group.value)].indices : actions.map((_, i) => i);
    return all.slice(0, KEY_PAIRS.length);
  }

  label() {
    this.held.clear();
    this.keys.forEach((node) => (node.textContent = ""));
    this.indices().forEach((index, k) => (this.keys[index].textContent = KEY_NAMES[k]));
    const { action_groups: groups } = this.app.hello.env, shown = groups[Number(this.group.value)].indices;
    if (this.many && groups.length > 1) this.rows.forEach((row, i) => (row.hidden = !shown.includes(i)));
  }

  set(index, value) {
    this.values[index] = value;
    this.inputs[index].value = value;
    this.app.rawChanged();
  }

  // Keys act while they are held; the answer is whether the key means something here.
  key(event, down) {
    const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const axis = KEY_PAIRS.findIndex((pair) => pair.includes(name)), indices = this.indices();
    if (axis < 0 || axis >= indices.length) return false;
    if (down) this.held.add(name);
    else this.held.delete(name);
    const [minus, plus] = KEY_PAIRS[axis];
    this.set(indices[axis], (this.held.has(plus) ? 1 : 0) - (this.held.has(minus) ? 1 : 0));
    return true;
  }

  update(player) {
    this.toggle.checked = player === "raw";
    this.node.classList.toggle("active", player === "raw");
    if (player !== "raw") this.held.clear();
  }

  show(action) {
    if (!action || this.app.control.player === "raw") return;
    this.inputs.forEach((input, i) => (input.value = action[i]));
  }
}
