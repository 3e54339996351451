// Bodies of MuJoCo on a canvas: forward kinematics from the joints' positions, then shapes from far to near.

const SIZE = 800; // pixels of an image
const REACH = 9; // squares of the floor in every direction
const FLOOR = ["#d3d8de", "#c3c9d1"];
const SKY = ["#e9eff5", "#c9d4df"];

// --- vectors and quaternions (w, x, y, z) ---------------------------------------------------------------------------

const add = (a, b) => [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
const subtract = (a, b) => [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
const scale = (a, k) => [a[0] * k, a[1] * k, a[2] * k];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];

function normalise(a) {
  return scale(a, 1 / Math.max(Math.hypot(...a), 1e-12));
}

function multiply([a, b, c, d], [w, x, y, z]) {
  return [a * w - b * x - c * y - d * z, a * x + b * w + c * z - d * y, a * y - b * z + c * w + d * x, a * z + b * y - c * x + d * w];
}

function rotate([w, ...axis], vector) {
  const twice = scale(cross(axis, vector), 2);
  return add(add(vector, scale(twice, w)), cross(axis, twice));
}

const LIGHT = normalise([0.35, -0.45, 0.82]); // towards the light

const turn = (axis, angle) => [Math.cos(angle / 2), ...scale(axis, Math.sin(angle / 2))];

/** Position and rotation of every body. */
export function kinematics(bodies, joints) {
  const frames = [];
  bodies.forEach((body, number) => {
    if (number === 0) return frames.push({ pos: [0, 0, 0], quat: [1, 0, 0, 0] });
    const above = frames[body.parent];
    let pos = add(above.pos, rotate(above.quat, body.pos));
    let quat = multiply(above.quat, body.quat);
    for (const joint of body.joints) {
      const q = joints.slice(joint.at);
      if (joint.type === "free") {
        pos = q.slice(0, 3);
        quat = scaleQuaternion(q.slice(3, 7));
        continue;
      }
      const anchor = add(pos, rotate(quat, joint.pos));
      if (joint.type === "slide") pos = add(pos, scale(rotate(quat, joint.axis), q[0] - joint.zero));
      else {
        quat = multiply(quat, joint.type === "ball" ? scaleQuaternion(q.slice(0, 4)) : turn(joint.axis, q[0] - joint.zero));
        pos = subtract(anchor, rotate(quat, joint.pos)); // it turns about its anchor
      }
    }
    return frames.push({ pos, quat });
  });
  return frames;
}

function scaleQuaternion(q) {
  const length = Math.max(Math.hypot(...q), 1e-12);
  return q.map((x) => x / length);
}

// --- the camera -----------------------------------------------------------------------------------------------------

function cameraOf(camera, frames) {
  if (camera.pos) return { ...camera, forward: cross(camera.up, camera.right), at: null };
  const [azimuth, elevation] = [camera.azimuth, camera.elevation].map((angle) => (angle * Math.PI) / 180);
  const level = Math.cos(elevation);
  const forward = [level * Math.cos(azimuth), level * Math.sin(azimuth), Math.sin(elevation)];
  const right = normalise(cross(forward, [0, 0, 1]));
  const at = frames[camera.body].pos;
  return { pos: subtract(at, scale(forward, camera.distance)), forward, right, up: cross(right, forward), fovy: camera.fovy, at };
}

/** From the environment to pixels; `depth` is the distance along the view, `unit` the pixels of a metre there. */
function projection(camera, size) {
  const focal = size / 2 / Math.tan((camera.fovy * Math.PI) / 360);
  return (point) => {
    const seen = subtract(point, camera.pos);
    const depth = Math.max(dot(seen, camera.forward), 0.02);
    const unit = focal / depth;
    return { x: size / 2 + unit * dot(seen, camera.right), y: size / 2 - unit * dot(seen, camera.up), depth, unit };
  };
}

// --- shapes ---------------------------------------------------------------------------------------------------------

const shade = (colour, light) => `rgb(${colour.map((c) => Math.round(Math.min(255, c * light))).join(" ")})`;
const lightOf = (normal) => 0.62 + 0.42 * Math.max(0, dot(normal, LIGHT)) + 0.06 * normal[2];

function fill(context, points, style) {
  context.beginPath();
  points.forEach(({ x, y }, i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.closePath();
  Object.assign(context, { fillStyle: style, strokeStyle: style, lineWidth: 0.7 });
  context.fill();
  context.stroke(); // no seams between faces
}

/** The faces of a box or prism: corners and outward normal, in the frame of the shape. */
function facesOf({ shape, size }) {
  const [a, b, c] = size;
  if (shape === "box") {
    const corner = (x, y, z) => [x * a, y * b, z * c];
    const ring = [[-1, -1], [1, -1], [1, 1], [-1, 1]];
    return [0, 1, 2].flatMap((axis) => [-1, 1].map((side) => {
      const place = (u, v) => { const p = [u, v]; p.splice(axis, 0, side); return corner(...p); };
      return { corners: ring.map(([u, v]) => place(u, v)), normal: [0, 1, 2].map((i) => (i === axis ? side : 0)) };
    }));
  }
  const count = 16;
  const rim = Array.from({ length: count }, (_, i) => [a * Math.cos((2 * Math.PI * i) / count), a * Math.sin((2 * Math.PI * i) / count)]);
  const sides = rim.map(([x, y], i) => {
    const [u, v] = rim[(i + 1) % count];
    return { corners: [[x, y, -b], [u, v, -b], [u, v, b], [x, y, b]], normal: normalise([x + u, y + v, 0]) };
  });
  return [...sides, ...[-1, 1].map((side) => ({ corners: rim.map(([x, y]) => [x, y, side * b]), normal: [0, 0, side] }))];
}

/** A round shape between two points: the hull of two discs, lit from one side. */
function drawRound(context, project, ends, radius, colour) {
  const [p, q] = ends.map(project);
  const [r, s] = [p.unit * radius, q.unit * radius];
  const along = Math.atan2(q.y - p.y, q.x - p.x);
  const gap = Math.hypot(q.x - p.x, q.y - p.y);
  const lean = Math.acos(Math.max(-1, Math.min(1, (r - s) / Math.max(gap, 1e-6))));
  context.beginPath();
  if (gap < Math.abs(r - s) + 1e-6) context.arc(r > s ? p.x : q.x, r > s ? p.y : q.y, Math.max(r, s), 0, 2 * Math.PI);
  else {
    context.arc(p.x, p.y, r, along + lean, along - lean);
    context.arc(q.x, q.y, s, along - lean, along + lean);
    context.closePath();
  }
  const [x, y, wide] = [(p.x + q.x) / 2, (p.y + q.y) / 2, Math.max(r, s)];
  const side = gap > 1 ? [Math.sin(along), -Math.cos(along)] : [0.5, -0.85];
  const sign = side[1] < 0 ? 1 : -1; // the light comes from above
  const gradient = gap > 1
    ? context.createLinearGradient(x + sign * side[0] * wide, y + sign * side[1] * wide, x - sign * side[0] * wide, y - sign * side[1] * wide)
    : context.createRadialGradient(x + 0.35 * wide, y - 0.4 * wide, 0.1 * wide, x, y, wide);
  gradient.addColorStop(0, shade(colour, 1.16));
  gradient.addColorStop(0.45, shade(colour, 0.98));
  gradient.addColorStop(1, shade(colour, 0.62));
  context.fillStyle = gradient;
  context.fill();
}

/** Draws the bodies of a model in the poses that the joints' positions give. */
export class BodyPainter {
  constructor(model) {
    this.model = model;
    this.shapes = model.geoms.map((geom) => ({ ...geom, faces: ["box", "cylinder"].includes(geom.shape) ? facesOf(geom) : null }));
    [this.canvas, this.shadows, this.behind] = [0, 1, 2].map(() => Object.assign(document.createElement("canvas"), { width: SIZE, height: SIZE }));
  }

  /** One state as a canvas, which the next call draws on again. */
  image(joints) {
    this.draw(this.canvas.getContext("2d"), joints);
    return this.canvas;
  }

  draw(context, joints) {
    const { bodies, camera } = this.model;
    const frames = kinematics(bodies, joints);
    const view = cameraOf(camera, frames);
    const project = projection(view, SIZE);
    const far = (a, b) => b.depth - a.depth;
    const placed = this.shapes.filter(({ shape }) => shape !== "plane").map((geom) => {
      const { pos, quat } = frames[geom.body];
      const centre = add(pos, rotate(quat, geom.pos));
      return { geom, centre, quat: multiply(quat, geom.quat), depth: dot(subtract(centre, view.pos), view.forward) };
    }).sort(far);
    const fixed = ({ geom }) => bodies[geom.body].fixed;
    if (view.at || !this.drawn) this.room(this.behind.getContext("2d"), project, view, placed.filter(fixed));
    this.drawn = true; // a camera that does not move always sees the same room
    context.drawImage(this.behind, 0, 0);
    const moving = placed.filter((one) => !fixed(one));
    const dark = this.shadows.getContext("2d"); // shadows that overlap are no darker
    dark.clearRect(0, 0, SIZE, SIZE);
    for (const one of moving) this.shadow(dark, project, one);
    context.globalAlpha = 0.16;
    context.drawImage(this.shadows, 0, 0);
    context.globalAlpha = 1;
    for (const one of moving) this.shape(context, project, view, one);
  }

  /** What stands still: the floor, furniture, and what lies on it. All that moves is in front of it. */
  room(context, project, view, still) {
    const sky = context.createLinearGradient(0, 0, 0, SIZE);
    SKY.forEach((colour, i) => sky.addColorStop(i, colour));
    context.fillStyle = sky;
    context.fillRect(0, 0, SIZE, SIZE);
    if (this.shapes.some(({ shape }) => shape === "plane")) this.floor(context, project, view);
    const lies = ({ centre }) => centre[2] > this.model.ground - 0.02;
    for (const one of [...still.filter((one) => !lies(one)), ...still.filter(lies)]) this.shape(context, project, view, one);
  }

  /** A floor of squares around what the camera looks at. */
  floor(context, project, view) {
    const [x, y] = (view.at ?? [0, 0, 0]).map(Math.floor);
    for (const odd of [0, 1]) {
      context.beginPath();
      for (let i = x - REACH; i < x + REACH; i++) {
        for (let j = y - REACH; j < y + REACH; j++) {
          if (((i + j) & 1) !== odd) continue;
          const corners = [[0, 0], [1, 0], [1, 1], [0, 1]].map(([u, v]) => [i + u, j + v, 0]);
          if (corners.some((corner) => dot(subtract(corner, view.pos), view.forward) < 0.1)) continue;
          corners.map(project).forEach((p, k) => (k ? context.lineTo(p.x, p.y) : context.moveTo(p.x, p.y)));
          context.closePath();
        }
      }
      context.fillStyle = FLOOR[odd];
      context.fill();
    }
  }

  /** The shape on the ground, straight below. */
  shadow(context, project, { geom, centre, quat }) {
    const ground = this.model.ground + 0.002;
    if (centre[2] < this.model.ground) return;
    const down = ([x, y]) => [x, y, ground];
    if (geom.faces) {
      for (const { corners, normal } of geom.faces) {
        if (rotate(quat, normal)[2] > 0.3) fill(context, corners.map((corner) => project(down(add(centre, rotate(quat, corner))))), "#000");
      }
      return;
    }
    const half = geom.shape === "capsule" ? rotate(quat, [0, 0, geom.size[1]]) : [0, 0, 0];
    const [p, q] = [add(centre, half), subtract(centre, half)].map((end) => project(down(end)));
    context.beginPath();
    context.moveTo(p.x, p.y);
    context.lineTo(q.x, q.y + 0.01);
    Object.assign(context, { lineCap: "round", lineWidth: 1.5 * geom.size[0] * p.unit, strokeStyle: "#000" });
    context.stroke();
  }

  shape(context, project, view, { geom, centre, quat }) {
    const { faces, size, colour } = geom;
    if (!faces) {
      const half = geom.shape === "capsule" ? rotate(quat, [0, 0, size[1]]) : [0, 0, 0];
      drawRound(context, project, [add(centre, half), subtract(centre, half)], size[0], colour);
      return;
    }
    const seen = faces.map(({ corners, normal }) => {
      const points = corners.map((corner) => add(centre, rotate(quat, corner)));
      return { points, normal: rotate(quat, normal), towards: subtract(view.pos, points[0]) };
    });
    for (const { points, normal, towards } of seen) {
      if (dot(normal, towards) > 0) fill(context, points.map(project), shade(colour, lightOf(normal)));
    }
  }
}
