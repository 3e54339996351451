// The tasks of the two-dimensional environments: rewards from the true state and scripted experts, as in susd/tasks.

import { AMMO, RANGE, SIDE, ZONES } from "./gunner.js";

const f = Math.fround;
const PHASE = 250; // Gunner: steps per goal
const WINDOW = 10; // sequential: the turn passes only after every tenth step
const REDRAW = 50; // food-poison: new indicators after every fiftieth step
const NEAR = f(0.6); // an agent interacts with its station within this distance
const RING = 0.75; // distance to its station at which the expert's agent waits: clear of NEAR, but not far
const MARGIN = 0.05; // the distance that Gunner's expert keeps from the edges of a cell
const CORNERS = [[1, 0], [1, 1], [0, 0], [0, 1]]; // the targets, times the side
const DIAGONALS = [[-1, -1], [-1, 1], [1, -1], [1, 1]];

const clip = (value, low = -1, high = 1) => Math.min(Math.max(value, low), high);

/** The point of a unit cell, given by its lower corner, that is nearest to a point and clear of the edges. */
const into = (cell, point) => point.map((x, i) => clip(x, cell[i] + MARGIN, cell[i] + 1 - MARGIN));

/** Stand in zone k and aim at corner k, one point each; with limited ammo only while ammo 0 is held. */
class GunnerTask {
  constructor(env, { limited }) {
    Object.assign(this, { env, limited, horizon: 1000 });
  }

  begin() {
    return { steps: 0 };
  }

  score({ steps }, state) {
    const goal = Math.min(Math.floor((steps + 1) / PHASE), 3);
    const points = this.env.zones(state)[goal] + this.env.targets(state)[goal];
    return { memory: { steps: steps + 1 }, reward: this.limited ? points * state.ammo[0] : points };
  }

  extra({ steps }) {
    return [f(steps / this.horizon)];
  }

  /** Walk to the goal's zone, aim at its corner, and with limited ammo fetch the right kind first and keep it. */
  expert({ steps }, { agent, picker, view, grip, ammo }) {
    const goal = Math.min(Math.floor((steps + 1) / PHASE), 3); // the goal that the next step is rewarded for
    const following = ZONES[Math.min(goal + 1, 3)][0];
    const spot = into(ZONES[goal][0], following.map((x) => x + 0.5)); // in the zone, as near to the next one as possible
    const walk = spot.map((x, i) => clip((x - agent[i]) / RANGE[i]));
    const next = agent.map((x, i) => clip(x + walk[i] * RANGE[i], 0, SIDE));
    const corner = CORNERS[goal].map((x, i) => x * SIDE - next[i]);
    const turn = clip((Math.atan2(...corner) - view) / RANGE[5]);
    if (!this.limited) return [...walk, 0, 0, 0, turn];
    // The agent is faster than the picker, so the picker goes to the ammo nearest to the agent's goal.
    const away = (cell) => Math.max(...cell.map((x, i) => Math.abs(x - spot[i])));
    const cell = AMMO[0].map((one) => into(one, spot)).reduce((best, one) => (away(one) < away(best) ? one : best));
    const reach = cell.map((x, i) => clip((x - next[i] - picker[i]) / RANGE[2 + i]));
    return [...walk, ...reach, ammo[0] > 0 ? -1 : grip < 0.5 ? 1 : 0, turn]; // below 0.5 the ammo is kept
  }
}

/** The given agents go to their stations one after another while all others stay away from theirs. */
class Sequential {
  constructor(env, { agents }) {
    Object.assign(this, { env, agents, horizon: 50 });
  }

  begin() {
    return { steps: 0, progress: 0, charge: 0 };
  }

  score({ steps, progress, charge }, state) {
    const turn = this.agents[progress];
    const finished = progress === this.agents.length;
    const distance = this.env.distances(state);
    const faults = distance.filter((d, i) => (i === turn ? d >= NEAR : d <= NEAR)).length;
    const now = charge + (!finished && distance[turn] < NEAR ? 1 : 0);
    const passes = (steps + 1) % WINDOW === 0 && !finished && now > 0;
    const memory = { steps: steps + 1, progress: progress + (passes ? 1 : 0), charge: passes ? 0 : now };
    return { memory, reward: finished ? 10 : -faults / 10 };
  }

  extra({ steps, progress }) {
    return [...Array.from({ length: 10 }, (_, i) => (i === this.agents[progress] ? 1 : 0)), f(steps / WINDOW)];
  }

  /** The agent whose turn it is goes to its station; the others keep away from theirs. */
  expert({ progress }, state) {
    return steer(this.env, state, (i) => i === this.agents[progress]);
  }
}

/** The given agents must be near their station when it is food (0) and away from it when it is poison (1). */
class FoodPoison {
  constructor(env, { agents }) {
    Object.assign(this, { env, agents, horizon: 50 });
  }

  begin(random) {
    return { steps: 0, indicator: this.coins(random) };
  }

  coins(random) {
    return Array.from({ length: 10 }, () => (random.uniform() < 0.5 ? 1 : 0));
  }

  score({ steps, indicator }, state, random) {
    const distance = this.env.distances(state);
    const right = (i) => (indicator[i] ? distance[i] > NEAR : distance[i] < NEAR);
    const reward = this.agents.reduce((sum, i) => sum + (right(i) ? 1 : -1), 0);
    const again = (steps + 1) % REDRAW === 0;
    return { memory: { steps: steps + 1, indicator: again ? this.coins(random) : indicator }, reward };
  }

  extra({ steps, indicator }) {
    return [...indicator, f(steps / REDRAW)];
  }

  /** Go to stations with food and keep away from those with poison. */
  expert({ indicator }, state) {
    return steer(this.env, state, (i) => indicator[i] === 0);
  }
}

/** Wanted agents go to their station; the others leave it on the shortest path and wait on a ring around it. */
function steer(env, { position, velocity, station }, wanted) {
  return position.flatMap((point, i) => {
    const distance = Math.max(Math.hypot(point[0] - station[i][0], point[1] - station[i][1]), 1e-6);
    const from = (exit) => Math.hypot(exit[0] - station[i][0], exit[1] - station[i][1]);
    // Forces are bounded per axis, so the way out is a diagonal: the one that leads farthest before it meets a wall.
    const exits = DIAGONALS.map((way) => point.map((x, axis) => clip(x + 0.5 * way[axis])));
    const leave = exits.reduce((best, exit) => (from(exit) > from(best) ? exit : best));
    const wait = point.map((x, axis) => station[i][axis] + (RING * (x - station[i][axis])) / distance);
    const goal = wanted(i) ? station[i] : distance < RING - 0.02 ? leave : wait;
    const [x, y] = point.map((at, axis) => clip(10 * (goal[axis] - at) - 3 * velocity[i][axis]));
    return env.actions === "five" ? [0, x, -x, y, -y] : [x, y]; // slots: unused, +x, -x, +y, -y
  });
}

const KINDS = { GunnerTask, Sequential, FoodPoison };

/** A task on an environment; `kind` is the name of its class in Python, which has the same options. */
export function makeTask(env, { kind, options }) {
  return new KINDS[kind](env, options);
}
