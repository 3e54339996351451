// A camera that turns about a point or follows a body: dragged, pinched, or moved by keys.
import { add, cross, dot, normalise, scale, subtract } from "./vectors.js";

const STEEPEST = 88; // degrees
const PER_PIXEL = 0.4; // degrees
const ZOOMS = [0.25, 4]; // of the distance at the start
const NEAREST = 0.02; // metres in front of the camera, where things end

export class Camera {
  constructor(given) {
    this.given = given;
    this.reset();
  }

  reset() {
    const { azimuth, elevation, body } = this.given;
    Object.assign(this, { azimuth, elevation, zoom: 1, follow: body !== null, moved: false });
  }

  get state() {
    return { azimuth: this.azimuth, elevation: this.elevation, zoom: this.zoom, follow: this.follow };
  }

  set state({ azimuth, elevation, zoom, follow }) {
    Object.assign(this, { azimuth, elevation, zoom, follow: follow && this.given.body !== null });
  }

  orbit(dx, dy) {
    this.azimuth = (this.azimuth - dx * PER_PIXEL) % 360;
    this.elevation = Math.max(-STEEPEST, Math.min(STEEPEST, this.elevation - dy * PER_PIXEL));
  }

  zoomBy(factor) {
    this.zoom = Math.max(ZOOMS[0], Math.min(ZOOMS[1], this.zoom * factor));
  }

  // What it looks at: the body, at the height of the start, so that a gait does not shake the picture.
  target(poses) {
    const { body, lookat } = this.given;
    return this.follow && poses ? [poses[7 * body], poses[7 * body + 1], lookat[2]] : lookat;
  }

  // From the environment to pixels, with what a drawing needs of the view. No camera is below the ground.
  view(poses, width, height, ground) {
    const [a, e] = [this.azimuth, this.elevation].map((angle) => (angle * Math.PI) / 180);
    const forward = [Math.cos(e) * Math.cos(a), Math.cos(e) * Math.sin(a), Math.sin(e)];
    const right = normalise(cross(forward, [0, 0, 1])), up = cross(right, forward);
    const at = this.target(poses), pos = subtract(at, scale(forward, this.given.distance * this.zoom));
    if (ground !== null) pos[2] = Math.max(pos[2], ground + 0.03 * this.given.distance);
    const focal = Math.min(width, height) / 2 / Math.tan((this.given.fovy * Math.PI) / 360);
    return new Projection({ pos, at, forward, right, up, focal, width, height });
  }
}

class Projection {
  constructor(fields) {
    Object.assign(this, fields);
  }

  depth(point) {
    return dot(subtract(point, this.pos), this.forward);
  }

  // `unit` is the pixels of a metre there.
  project(point) {
    const seen = subtract(point, this.pos), depth = Math.max(dot(seen, this.forward), NEAREST), unit = this.focal / depth;
    return { x: this.width / 2 + unit * dot(seen, this.right), y: this.height / 2 - unit * dot(seen, this.up), depth, unit };
  }

  // A polygon without what is behind the camera.
  clip(points) {
    const depths = points.map((point) => this.depth(point) - NEAREST);
    if (depths.every((d) => d >= 0)) return points;
    const found = [];
    points.forEach((point, i) => {
      const j = (i + 1) % points.length;
      if (depths[i] >= 0) found.push(point);
      if (depths[i] >= 0 !== depths[j] >= 0) found.push(add(point, scale(subtract(points[j], point), depths[i] / (depths[i] - depths[j]))));
    });
    return found;
  }

  // The place on a level plane under a pixel; null above the horizon.
  onGround(x, y, ground) {
    const ray = add(add(this.forward, scale(this.right, (x - this.width / 2) / this.focal)), scale(this.up, (this.height / 2 - y) / this.focal));
    const t = (ground - this.pos[2]) / ray[2];
    return t > 0 ? add(this.pos, scale(ray, t)) : null;
  }

  // Where level lines end, in pixels from the top.
  get horizon() {
    const level = normalise([this.forward[0], this.forward[1], 0]);
    return this.height / 2 - (this.focal * dot(level, this.up)) / Math.max(dot(level, this.forward), 1e-3);
  }
}
