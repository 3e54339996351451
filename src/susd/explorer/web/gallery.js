// Small multiples: trajectories of 48 skills from the start. A click takes a skill.
import { extentOf } from "./maps.js";
import { describePart, partOf } from "./skills.js";
import { el, fitCanvas, themeColours, visible, withAlpha } from "./ui.js";

export class Gallery {
  constructor(hello, onpick) {
    this.hello = hello;
    this.tiles = [];
    this.node = el("div", { class: "tiles", role: "group", "aria-label": "48 skills" });
    for (let i = 0; i < 48; i++) {
      const canvas = el("canvas", { "aria-hidden": "true" });
      const tile = el("button", { type: "button", class: "tile", disabled: true, "aria-label": `Skill ${i + 1}`, onclick: () => onpick(this.data.skills[i]) }, canvas);
      this.tiles.push({ tile, canvas });
      this.node.append(tile);
    }
  }

  show(data) {
    this.data = data;
    const { planes, factors } = this.hello.env;
    const open = planes.some((plane) => plane.open || plane.x === plane.y);
    const all = data.paths.flat(2);
    this.box = open ? extentOf(all) : closeUp(all, planes[0].low, planes[0].high);
    this.colours = planes.map((plane) => factors[plane.factor].colour);
    this.tiles.forEach(({ tile }, i) => {
      tile.disabled = false;
      const words = this.hello.parts.slice(0, 4).map((part, k) => `${part.name} ${describePart(part, partOf(this.hello, data.skills[i], k))}`);
      tile.title = words.join(" · ");
      tile.setAttribute("aria-label", `Skill ${i + 1}: ${words.join(", ")}`);
    });
    this.draw();
  }

  mark(skill) {
    if (!this.data) return;
    this.tiles.forEach(({ tile }, i) => tile.classList.toggle("current", this.data.skills[i].every((x, k) => Math.abs(x - skill[k]) < 2e-3)));
  }

  // The part whose trajectory stands out where there are many.
  select(part) {
    if (this.selected === part) return;
    this.selected = part;
    if (this.hello.env.planes.length > 4) this.draw();
  }

  draw() {
    if (!this.data) return;
    const { planes } = this.hello.env, chosen = this.hello.parts[this.selected || 0].factor;
    const strength = (plane) => (planes.length > 4 && chosen !== null && planes[plane].factor !== chosen ? 0.3 : 0.9);
    const theme = themeColours(), [low, high] = this.box;
    this.tiles.forEach(({ canvas }, i) => fitCanvas(canvas, (context, width, height) => {
      const at = ([x, y]) => [
        3 + ((width - 6) * (x - low[0])) / Math.max(high[0] - low[0], 1e-6),
        height - 3 - ((height - 6) * (y - low[1])) / Math.max(high[1] - low[1], 1e-6),
      ];
      this.data.paths[i].forEach((path, plane) => {
        const colour = visible(this.colours[plane], theme);
        context.beginPath();
        path.forEach((point, t) => (t ? context.lineTo(...at(point)) : context.moveTo(...at(point))));
        context.strokeStyle = withAlpha(colour, strength(plane));
        context.lineWidth = 1.4;
        context.lineJoin = "round";
        context.stroke();
        context.beginPath();
        context.arc(...at(path[path.length - 1]), 2, 0, 2 * Math.PI);
        context.fillStyle = withAlpha(colour, strength(plane));
        context.fill();
      });
    }));
  }
}

// The whole square of positions, or the part of it that the trajectories reach where that is much smaller.
export function closeUp(points, low, high) {
  const whole = [[low, low], [high, high]], [least, most] = extentOf(points) || whole;
  const side = 1.1 * Math.max(most[0] - least[0], most[1] - least[1]);
  if (!(side > 0 && side < 0.75 * (high - low))) return whole;
  const centre = [0, 1].map((axis) => (least[axis] + most[axis]) / 2);
  return [centre.map((value) => value - side / 2), centre.map((value) => value + side / 2)];
}
