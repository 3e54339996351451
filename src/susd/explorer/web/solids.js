// Convex shapes in space: their corners and faces, and which of two hides the other.
import { add, cross, dot, multiply, normalise, rotate, scale, subtract } from "./vectors.js";

const SIDES = 24; // of a cylinder
const GRID = [9, 16]; // latitudes and longitudes of an ellipsoid
const OVERLAP = 0.2; // of half the smaller thickness, by which shapes in contact may overlap and still be apart

function boxFaces([a, b, c]) {
  const ring = [[-1, -1], [1, -1], [1, 1], [-1, 1]];
  return [0, 1, 2].flatMap((axis) => [-1, 1].map((side) => {
    const corner = (u, v) => {
      const p = [u, v];
      p.splice(axis, 0, side);
      return [p[0] * a, p[1] * b, p[2] * c];
    };
    return { corners: ring.map(([u, v]) => corner(u, v)), normal: [0, 1, 2].map((i) => (i === axis ? side : 0)) };
  }));
}

function cylinderFaces([radius, half]) {
  const rim = Array.from({ length: SIDES }, (_, i) => [radius * Math.cos((2 * Math.PI * i) / SIDES), radius * Math.sin((2 * Math.PI * i) / SIDES)]);
  const sides = rim.map(([x, y], i) => {
    const [u, v] = rim[(i + 1) % SIDES];
    return { corners: [[x, y, -half], [u, v, -half], [u, v, half], [x, y, half]], normal: normalise([x + u, y + v, 0]) };
  });
  return [...sides, ...[-1, 1].map((side) => ({ corners: rim.map(([x, y]) => [x, y, side * half]), normal: [0, 0, side] }))];
}

function ellipsoidFaces(size) {
  const [rows, columns] = GRID;
  const point = (i, j) => {
    const a = (Math.PI * i) / rows, b = (2 * Math.PI * j) / columns;
    return [size[0] * Math.sin(a) * Math.cos(b), size[1] * Math.sin(a) * Math.sin(b), size[2] * Math.cos(a)];
  };
  const outward = (p) => normalise(p.map((x, k) => x / size[k] ** 2));
  return Array.from({ length: rows * columns }, (_, n) => {
    const i = Math.floor(n / columns), j = n % columns;
    const corners = [point(i, j), point(i + 1, j), point(i + 1, j + 1), point(i, j + 1)];
    return { corners, normal: outward(scale(corners.reduce(add), 1 / 4)) };
  });
}

function meshFaces({ corners, triangles }) {
  const middle = scale(corners.reduce(add), 1 / corners.length);
  return triangles.map((triangle) => {
    const points = triangle.map((i) => corners[i]);
    const normal = normalise(cross(subtract(points[1], points[0]), subtract(points[2], points[0])));
    return { corners: points, normal: dot(normal, subtract(points[0], middle)) < 0 ? scale(normal, -1) : normal };
  });
}

const FACES = { box: (g) => boxFaces(g.size), cylinder: (g) => cylinderFaces(g.size), ellipsoid: (g) => ellipsoidFaces(g.size), mesh: meshFaces };

// The box around corners, as faces; it decides what hides what where a shape has many faces.
function boundsOf(faces) {
  const all = faces.flatMap(({ corners }) => corners);
  const [low, high] = [Math.min, Math.max].map((pick) => [0, 1, 2].map((axis) => pick(...all.map((p) => p[axis]))));
  const middle = scale(add(low, high), 0.5);
  return boxFaces(scale(subtract(high, low), 0.5)).map(({ corners, normal }) => ({ corners: corners.map((p) => add(p, middle)), normal }));
}

// Half the smallest extent of a box.
function thickness(hull) {
  return Math.min(...[0, 2, 4].map((i) => Math.abs(dot(hull[i].normal, subtract(hull[i].corners[0], hull[i + 1].corners[0])) / 2)));
}

// A shape of the geometry with what does not change: faces to draw and faces to compare, or nothing for round ones.
export function solidOf(geom) {
  const faces = geom.shape in FACES ? FACES[geom.shape](geom) : null;
  const hull = faces && (geom.shape === "box" ? faces : boundsOf(faces));
  return { ...geom, faces, hull, slack: OVERLAP * (hull ? thickness(hull) : geom.size[0]) };
}

// A shape in a pose: `faces` with corners and normals in space, or the two `ends` and the `radius` of a round one.
export function placed(solid, pos, quat) {
  const centre = add(pos, rotate(quat, solid.pos)), turn = multiply(quat, solid.quat);
  const moved = (faces) => faces.map(({ corners, normal }) => ({ corners: corners.map((p) => add(centre, rotate(turn, p))), normal: rotate(turn, normal) }));
  if (!solid.faces) {
    const half = solid.shape === "capsule" ? rotate(turn, [0, 0, solid.size[1]]) : [0, 0, 0];
    return { solid, centre, ends: [add(centre, half), subtract(centre, half)], radius: solid.size[0] };
  }
  const faces = moved(solid.faces), hull = solid.hull === solid.faces ? faces : moved(solid.hull);
  return { solid, centre, faces, hull, points: hull.flatMap(({ corners }) => corners) };
}

// How far the nearest point of a shape is outside a plane.
function least(shape, normal, offset) {
  if (shape.ends) return Math.min(dot(normal, shape.ends[0]), dot(normal, shape.ends[1])) - shape.radius - offset;
  let found = Infinity;
  for (const point of shape.points) found = Math.min(found, dot(normal, point));
  return found - offset;
}

// The points of two segments that are nearest to each other.
function nearest([a, b], [c, d]) {
  const u = subtract(b, a), v = subtract(d, c), w = subtract(a, c);
  const uu = dot(u, u), uv = dot(u, v), vv = dot(v, v), uw = dot(u, w), vw = dot(v, w), det = uu * vv - uv * uv;
  const clamp = (x) => Math.max(0, Math.min(1, x));
  let s = det > 1e-12 ? clamp((uv * vw - vv * uw) / det) : 0;
  const t = vv > 1e-12 ? clamp((uv * s + vw) / vv) : 0;
  s = uu > 1e-12 ? clamp((uv * t - uw) / uu) : 0;
  return [add(a, scale(u, s)), add(c, scale(v, t))];
}

// By the faces of one shape: 1 if the other is in front of it, -1 if it is behind, 0 if no face parts them.
function byFaces(shape, other, eye) {
  let found = 0, widest = -Math.min(shape.solid.slack, other.solid.slack);
  for (const { corners, normal } of shape.hull) {
    const offset = dot(normal, corners[0]), gap = least(other, normal, offset);
    if (gap <= widest) continue;
    widest = gap;
    found = dot(normal, eye) > offset ? 1 : -1;
  }
  return found;
}

// Positive if `b` is to be drawn after `a`, negative before; from a plane between them, else from their distances.
export function order(a, b, eye, depth) {
  if (a.hull) {
    const found = byFaces(a, b, eye);
    if (found) return found;
  }
  if (b.hull) {
    const found = byFaces(b, a, eye);
    if (found) return -found;
  }
  if (a.ends && b.ends) {
    const [p, q] = nearest(a.ends, b.ends), gap = subtract(q, p), length = Math.sqrt(dot(gap, gap));
    if (length > 0.25 * Math.min(a.radius, b.radius)) {
      const normal = scale(gap, 1 / length), between = add(p, scale(normal, a.radius + (length - a.radius - b.radius) / 2));
      return dot(normal, subtract(eye, between)) > 0 ? 1 : -1;
    }
  }
  return depth(a.centre) - depth(b.centre);
}

// From far to near: every shape after those that it hides.
export function sorted(shapes, boxes, view) {
  const depth = (point) => view.depth(point), start = shapes.map((_, i) => i).sort((i, j) => depth(shapes[j].centre) - depth(shapes[i].centre));
  const behind = shapes.map(() => []);
  for (let i = 0; i < shapes.length; i++) {
    for (let j = i + 1; j < shapes.length; j++) {
      const [p, q] = [boxes[i], boxes[j]];
      if (p[0] > q[2] || q[0] > p[2] || p[1] > q[3] || q[1] > p[3]) continue;
      if (order(shapes[i], shapes[j], view.pos, depth) > 0) behind[j].push(i);
      else behind[i].push(j);
    }
  }
  const done = new Set(), found = [];
  const visit = (i) => {
    if (done.has(i)) return;
    done.add(i);
    behind[i].forEach(visit);
    found.push(i);
  };
  start.forEach(visit);
  return found;
}
