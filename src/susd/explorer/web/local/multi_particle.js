// Multi-Particle in single precision, as in susd/envs/multi_particle.py: ten point masses, each with its own station.

const f = Math.fround;
const AGENTS = 10;
const [STEP, KEPT, GAIN] = [0.1, 0.75, 0.5].map(f); // time step; velocity kept per step; force gain times the time step

const clip = (value) => Math.min(Math.max(value, -1), 1);
const pairs = (values) => Array.from({ length: values.length / 2 }, (_, i) => [f(values[2 * i]), f(values[2 * i + 1])]);

/** The environment; a state is {position, velocity, station}, each ten pairs. `points` are a fixed start, or null. */
export class MultiParticle {
  constructor({ points = null, actions = "planar" } = {}) {
    Object.assign(this, { points, actions });
  }

  /** The start of an episode, at rest; without fixed points it is random. */
  reset(random) {
    const points = pairs(this.points ?? Array.from({ length: 4 * AGENTS }, () => 2 * random.uniform() - 1));
    const [position, station] = [points.slice(0, AGENTS), points.slice(AGENTS)];
    return { position, velocity: position.map(() => [0, 0]), station };
  }

  /** One step with an action in [-1, 1], clipped. */
  step({ position, velocity, station }, action) {
    const force = this.forces(Array.from(action, (a) => clip(f(a))));
    return {
      // Explicit Euler: the position moves with the old velocity, which a wall does not change.
      position: position.map((point, i) => point.map((x, axis) => clip(f(x + f(STEP * velocity[i][axis]))))),
      velocity: velocity.map((pair, i) => pair.map((v, axis) => f(f(KEPT * v) + f(GAIN * force[i][axis])))),
      station,
    };
  }

  forces(action) {
    if (this.actions === "planar") return pairs(action);
    // Slots (unused, +x, -x, +y, -y) are in [0, 1], so a force is half a difference of values in [-1, 1].
    const half = (i, slot) => f(0.5 * f(action[5 * i + slot] - action[5 * i + slot + 1]));
    return Array.from({ length: AGENTS }, (_, i) => [half(i, 1), half(i, 3)]);
  }

  /** The distance of every agent to its station. */
  distances({ position, station }) {
    return position.map(([x, y], i) => {
      const [dx, dy] = [f(x - station[i][0]), f(y - station[i][1])];
      return f(Math.sqrt(f(f(dx * dx) + f(dy * dy))));
    });
  }

  /** Per agent: distance to its station, velocity 2, position 2, station 2. */
  observe(state) {
    const distance = this.distances(state);
    const rows = distance.map((d, i) => [d, ...state.velocity[i], ...state.position[i], ...state.station[i]]);
    return Float32Array.from(rows.flat());
  }
}
