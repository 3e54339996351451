// Bodies of a simulation on a canvas, from their poses: a floor, shadows, shapes from far to near, lit from above.
import { placed, solidOf, sorted } from "./solids.js";
import { add, cross, dot, normalise, scale, subtract } from "./vectors.js";

const LIGHT = normalise([0.35, -0.45, 0.82]); // towards the light
const REACH = 10; // squares of the floor in every direction
const LOOKS = {
  light: { sky: ["#dfe8f1", "#f4f7fa"], ground: [214, 219, 226], far: [240, 243, 246], square: [198, 205, 214], shadow: 0.2 },
  dark: { sky: ["#10151b", "#1d252e"], ground: [44, 52, 61], far: [29, 37, 46], square: [56, 66, 77], shadow: 0.42 },
};

const mix = (a, b, k) => a.map((x, i) => Math.round(x + (b[i] - x) * k));
const rgb = (colour, light = 1) => `rgb(${colour.map((c) => Math.round(Math.max(0, Math.min(255, c * light)))).join(" ")})`;
const lightOf = (normal) => 0.6 + 0.48 * Math.max(0, dot(normal, LIGHT)) + 0.08 * normal[2];

function outline(context, points) {
  points.forEach(({ x, y }, i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.closePath();
}

export class BodyPainter {
  constructor(model) {
    this.model = model;
    this.floor = model.geoms.some(({ shape }) => shape === "plane");
    this.solids = model.geoms.filter(({ shape }) => shape !== "plane").map(solidOf);
    // A table: what lies on it throws its shadow there, not on the floor.
    this.table = this.solids.find((one) => one.fixed && one.shape === "box" && Math.abs(one.pos[2] + one.size[2] - model.ground) < 0.01);
    this.square = 10 ** Math.round(Math.log10(model.camera.distance / 4));
  }

  // Poses between two frames: positions on a line, rotations along the shorter way.
  static between(before, after, share) {
    const found = after.slice();
    for (let at = 0; at < after.length; at += 7) {
      let [same, length] = [0, 0];
      for (let k = 3; k < 7; k++) same += before[at + k] * after[at + k];
      const sign = same < 0 ? -1 : 1;
      for (let k = 0; k < 7; k++) {
        const from = k < 3 ? before[at + k] : sign * before[at + k];
        found[at + k] = from + share * (after[at + k] - from);
        if (k > 2) length += found[at + k] ** 2;
      }
      for (let k = 3; k < 7; k++) found[at + k] /= Math.sqrt(length) || 1;
    }
    return found;
  }

  // Draw everything; `onGround(view)` draws what lies on the ground, under the bodies.
  draw(context, view, poses, dark, onGround) {
    const look = LOOKS[dark ? "dark" : "light"];
    this.sky(context, view, look);
    if (this.floor) this.tiles(context, view, look);
    const shapes = this.solids.map((solid) => placed(solid, poses.slice(7 * solid.body, 7 * solid.body + 3), poses.slice(7 * solid.body + 3, 7 * solid.body + 7)));
    const seen = shapes.filter((shape) => view.depth(shape.centre) > 0 || shape.faces);
    const boxes = seen.map((shape) => this.bounds(shape, view));
    if (!this.table) this.onGround(context, view, shapes, look, onGround);
    for (const number of sorted(seen, boxes, view)) {
      const shape = seen[number];
      this.shape(context, view, shape);
      if (shape.solid === this.table) this.onTable(context, view, shape, shapes, look, onGround);
    }
  }

  bounds(shape, view) {
    if (shape.ends) {
      const ends = shape.ends.map((end) => view.project(end)), wide = ends.map(({ unit }) => unit * shape.radius);
      const span = (pick, name, sign) => pick(...ends.map((end, i) => end[name] + sign * wide[i]));
      return [span(Math.min, "x", -1), span(Math.min, "y", -1), span(Math.max, "x", 1), span(Math.max, "y", 1)];
    }
    const points = shape.points.map((point) => view.project(point));
    return [Math.min, Math.max].flatMap((pick) => ["x", "y"].map((name) => pick(...points.map((p) => p[name]))));
  }

  sky(context, view, look) {
    const { width, height, horizon } = view;
    const sky = context.createLinearGradient(0, 0, 0, Math.max(1, Math.min(height, horizon)));
    look.sky.forEach((colour, i) => sky.addColorStop(i, colour));
    context.fillStyle = sky;
    context.fillRect(0, 0, width, height);
    if (!this.floor || horizon > height) return;
    const top = Math.max(0, horizon), ground = context.createLinearGradient(0, horizon, 0, horizon + height * 0.6);
    ground.addColorStop(0, rgb(look.far));
    ground.addColorStop(1, rgb(look.ground));
    context.fillStyle = ground;
    context.fillRect(0, top, width, height - top);
  }

  // Squares around what the camera looks at, paler with the distance.
  tiles(context, view, look) {
    const side = this.square, height = this.floorHeight, [x, y] = view.at.map((value) => Math.floor(value / side));
    for (let ring = 0; ring < REACH; ring++) {
      context.beginPath();
      for (let i = -ring - 1; i <= ring; i++) {
        for (let j = -ring - 1; j <= ring; j++) {
          if (Math.max(i < 0 ? -i - 1 : i, j < 0 ? -j - 1 : j) !== ring || ((x + i + y + j) & 1)) continue;
          const corners = [[0, 0], [1, 0], [1, 1], [0, 1]].map(([u, v]) => [(x + i + u) * side, (y + j + v) * side, height]);
          const clipped = view.clip(corners);
          if (clipped.length > 2) outline(context, clipped.map((point) => view.project(point)));
        }
      }
      const fade = ring / REACH;
      context.fillStyle = rgb(mix(look.square, look.far, fade));
      context.globalAlpha = 1 - fade ** 2;
      context.fill();
    }
    context.globalAlpha = 1;
  }

  get floorHeight() {
    const plane = this.model.geoms.find(({ shape }) => shape === "plane");
    return plane.pos[2];
  }

  onTable(context, view, table, shapes, look, onGround) {
    const top = table.faces.find(({ normal }) => normal[2] > 0.99);
    if (!top || dot(top.normal, subtract(view.pos, top.corners[0])) <= 0) return;
    context.save();
    context.beginPath();
    outline(context, view.clip(top.corners).map((point) => view.project(point)));
    context.clip();
    this.onGround(context, view, shapes, look, onGround);
    context.restore();
  }

  // Shadows, straight below, as one area, so that those that overlap are no darker; then what the page draws there.
  onGround(context, view, shapes, look, onGround) {
    const { ground } = this.model;
    if (ground === null) return;
    context.beginPath();
    for (const shape of shapes) if (!shape.solid.fixed && shape.centre[2] > ground) this.shadow(context, view, shape, ground);
    context.fillStyle = `rgb(0 0 0 / ${look.shadow})`;
    context.fill("nonzero");
    if (onGround) onGround(view, ground);
  }

  shadow(context, view, shape, ground) {
    const down = ([x, y]) => [x, y, ground];
    const flat = (points) => {
      const clipped = view.clip(points.map(down)), seen = clipped.map((point) => view.project(point));
      const area = seen.reduce((sum, p, i) => sum + p.x * seen[(i + 1) % seen.length].y - p.y * seen[(i + 1) % seen.length].x, 0);
      if (seen.length > 2) outline(context, area < 0 ? seen.reverse() : seen); // all in one direction: no holes
    };
    if (shape.faces) {
      for (const { corners, normal } of shape.faces) if (normal[2] > 0.05) flat(corners);
      return;
    }
    const [[ax, ay], [bx, by]] = shape.ends, angle = Math.atan2(by - ay, bx - ax), r = 0.92 * shape.radius;
    flat(Array.from({ length: 20 }, (_, i) => {
      const turn = angle + Math.PI / 2 + (Math.PI * (i % 10)) / 9 + (i < 10 ? 0 : Math.PI), [x, y] = i < 10 ? [ax, ay] : [bx, by];
      return [x + r * Math.cos(turn), y + r * Math.sin(turn)];
    }));
  }

  shape(context, view, shape) {
    context.globalAlpha = shape.solid.alpha;
    if (shape.ends) this.round(context, view, shape);
    else {
      for (const { corners, normal } of shape.faces) {
        if (dot(normal, subtract(view.pos, corners[0])) <= 0) continue;
        const points = view.clip(corners).map((point) => view.project(point));
        if (points.length < 3) continue;
        context.beginPath();
        outline(context, points);
        const style = rgb(shape.solid.colour, lightOf(normal));
        Object.assign(context, { fillStyle: style, strokeStyle: style, lineWidth: 0.6, lineJoin: "round" });
        context.fill();
        if (shape.solid.alpha === 1) context.stroke(); // no seams between faces
      }
    }
    context.globalAlpha = 1;
  }

  // A sphere or a capsule: the hull of two discs. Light falls across it as on a cylinder, or on a ball.
  round(context, view, { ends, radius, solid }) {
    if (ends.some((end) => view.depth(end) < radius)) return;
    const [p, q] = ends.map((end) => view.project(end)), [r, s] = [p.unit * radius, q.unit * radius];
    const along = Math.atan2(q.y - p.y, q.x - p.x), gap = Math.hypot(q.x - p.x, q.y - p.y), ball = gap <= Math.abs(r - s) + 1e-6;
    const lean = Math.acos(Math.max(-1, Math.min(1, (r - s) / Math.max(gap, 1e-6))));
    context.beginPath();
    if (ball) context.arc(r > s ? p.x : q.x, r > s ? p.y : q.y, Math.max(r, s), 0, 2 * Math.PI);
    else {
      context.arc(p.x, p.y, r, along + lean, along - lean);
      context.arc(q.x, q.y, s, along - lean, along + lean);
      context.closePath();
    }
    const axis = subtract(ends[1], ends[0]);
    const paint = ball || dot(axis, axis) < 1e-9 ? this.ballPaint : this.tubePaint;
    context.fillStyle = paint(context, view, { p, q, r, s, axis, centre: scale(add(...ends), 0.5), colour: solid.colour });
    context.fill();
  }

  ballPaint(context, view, { p, q, r, s, colour }) {
    const wide = Math.max(r, s), { x, y } = r > s ? p : q;
    const towards = [dot(LIGHT, view.right), -dot(LIGHT, view.up)].map((k) => 0.55 * wide * k);
    const paint = context.createRadialGradient(x + towards[0], y + towards[1], 0.05 * wide, x + 0.25 * towards[0], y + 0.25 * towards[1], 1.25 * wide);
    [1.12, 1.0, 0.82, 0.6].forEach((light, i) => paint.addColorStop(i / 3, rgb(colour, light)));
    return paint;
  }

  tubePaint(context, view, { p, q, r, s, axis, centre, colour }) {
    const eye = subtract(view.pos, centre), side = normalise(cross(axis, eye)), front = normalise(cross(side, axis));
    const towards = dot(front, eye) < 0 ? scale(front, -1) : front, wide = Math.max(r, s), [x, y] = [(p.x + q.x) / 2, (p.y + q.y) / 2];
    const across = normalise([dot(side, view.right), -dot(side, view.up), 0]);
    const paint = context.createLinearGradient(x + across[0] * wide, y + across[1] * wide, x - across[0] * wide, y - across[1] * wide);
    for (let k = 0; k <= 6; k++) {
      const angle = (Math.PI * k) / 6;
      paint.addColorStop(k / 6, rgb(colour, lightOf(add(scale(side, Math.cos(angle)), scale(towards, Math.sin(angle))))));
    }
    return paint;
  }
}
