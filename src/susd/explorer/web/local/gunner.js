// 2D-Gunner in single precision, as in susd/envs/gunner.py: the agent moves, a picker collects ammo, a gun rotates.

const f = Math.fround;
export const SIDE = f(4.99);
const REACH = f(4.99 / 3); // the picker's largest offset from the agent, per axis
const AIM = f(Math.PI / 10);
const PI = f(Math.PI);
export const RANGE = Float32Array.of(0.3, 0.3, 0.15, 0.15, 0.15, 0.8); // agent dx dy, picker dx dy, grip, view
const STARTS = { centre: [0.5, 0.5], 0: [0.2, 0.2], 1: [0.8, 0.2], 2: [0.2, 0.8], 3: [0.8, 0.8] }; // times the side

// The unit cells (column, row) that switch on flag k.
export const ZONES = [[[1, 1]], [[1, 3]], [[3, 1]], [[3, 3]]];
export const AMMO = [
  [[0, 3], [2, 1], [4, 3]],
  [[1, 2], [3, 0], [3, 4]],
  [[0, 1], [2, 3], [4, 1]],
  [[1, 0], [1, 4], [3, 2]],
];

const clip = (value, low, high) => Math.min(Math.max(value, low), high);
const flags = (point, cells) =>
  cells.map((of) => (of.some(([x, y]) => x === Math.floor(point[0]) && y === Math.floor(point[1])) ? 1 : 0));

/** The environment; a state is {agent, picker, grip, view, ammo}. It is deterministic. */
export class Gunner {
  constructor({ start = "centre" } = {}) {
    this.start = String(start);
  }

  reset() {
    const agent = STARTS[this.start].map((share) => f(share * 4.99));
    return { agent, picker: [0, 0], grip: 0.5, view: 0, ammo: flags(agent, AMMO) };
  }

  /** One step with an action in [-1, 1]^6, clipped and scaled. */
  step(state, action) {
    return this.apply(state, Array.from(action, (a, i) => clip(f(f(a) * RANGE[i]), -RANGE[i], RANGE[i])));
  }

  /** One step with increments in arena units and radians, not clipped. */
  apply(state, move) {
    const agent = state.agent.map((x, i) => clip(f(x + f(move[i])), 0, SIDE));
    const picker = state.picker.map((x, i) => clip(f(x + f(move[2 + i])), -REACH, REACH));
    const grip = clip(f(state.grip + f(move[4])), 0, 1);
    const view = clip(f(state.view + f(move[5])), -PI, PI);
    const next = { agent, picker, grip, view, ammo: state.ammo };
    // From a grip of 0.5 up the ammo is that of the cell under the picker, possibly none; below that it is kept.
    if (grip >= 0.5) next.ammo = flags(this.picker(next), AMMO);
    return next;
  }

  /** Absolute position of the picker, clipped to the arena. */
  picker({ agent, picker }) {
    return agent.map((x, i) => clip(f(x + picker[i]), 0, SIDE));
  }

  zones({ agent }) {
    return flags(agent, ZONES);
  }

  /** The corner that the gun points at; the view's quadrant alone decides which corner can be hit. */
  targets({ agent, view }) {
    const right = view > 0 ? 1 : 0;
    const up = Math.abs(view) <= f(Math.PI / 2) ? 1 : 0;
    const bearing = f(Math.atan2(f(SIDE * right - agent[0]), f(SIDE * up - agent[1])));
    const hit = Math.abs(f(bearing - view)) <= AIM;
    return [0, 1, 2, 3].map((k) => (hit && k === 2 * (1 - right) + up ? 1 : 0));
  }

  /** Zones 4, agent 2 | ammo 4, picker 2, grip | targets 4, view. */
  observe(state) {
    const agent = [...this.zones(state), ...state.agent];
    const ammo = [...state.ammo, ...this.picker(state), state.grip];
    return Float32Array.of(...agent, ...ammo, ...this.targets(state), state.view);
  }
}
