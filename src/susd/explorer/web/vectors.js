// Vectors of three numbers, and rotations as quaternions (w, x, y, z).

export const add = (a, b) => [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
export const subtract = (a, b) => [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
export const scale = (a, k) => [a[0] * k, a[1] * k, a[2] * k];
export const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
export const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];

export function normalise(a) {
  return scale(a, 1 / Math.max(Math.sqrt(dot(a, a)), 1e-12));
}

export function multiply([a, b, c, d], [w, x, y, z]) {
  return [a * w - b * x - c * y - d * z, a * x + b * w + c * z - d * y, a * y - b * z + c * w + d * x, a * z + b * y - c * x + d * w];
}

export function rotate(q, v) {
  const axis = [q[1], q[2], q[3]], twice = scale(cross(axis, v), 2);
  return add(add(v, scale(twice, q[0])), cross(axis, twice));
}

export function unit(q) {
  const length = Math.max(Math.hypot(...q), 1e-12);
  return q.map((x) => x / length);
}
