// The backend of an atlas of a two-dimensional environment: messages of PROTOCOL.md, answered in the page.

import { Answers, drawn, shares } from "./answers.js";
import { Gunner } from "./gunner.js";
import { HighLevelActor } from "./high_level.js";
import { MultiParticle } from "./multi_particle.js";
import { Actor, Phi, floats } from "./networks.js";
import { Random } from "./random.js";
import { SkillSpace } from "./skills.js";
import { makeTask } from "./tasks.js";

const ENVIRONMENTS = { gunner: Gunner, multi_particle: MultiParticle };
const SHOWN = 48; // skills of the gallery
const REDRAWN = 32; // influence: how many skills are compared ..
const AHEAD = 10; // .. for how many steps
const TRAIL = 300; // observations that a replay returns
const GAUSSIAN_RANGE = 1.5; // of high-level actions over skills of a Gaussian prior
const NAMES = { task: 1, noise: 2, gallery: 3, influence: 4, start: 5 }; // of independent random numbers

const plain = (values) => (values ? [...values] : null);

/** The networks and the environment of a run, made once for all sessions. */
export class LocalRun {
  constructor(data) {
    Object.assign(this, { data, hello: data.hello, goals: data.goals, space: new SkillSpace(data.skills) });
    this.actor = new Actor(data.actor, data.skillScale);
    this.phi = data.phi && new Phi(data.phi.networks, floats(data.phi.values));
    this.policies = data.policies.map((policy) => ({ ...policy, network: new HighLevelActor(policy) }));
  }

  environment(layout) {
    const { name, options, layouts } = this.data.env;
    if (!(layout in layouts)) throw new Error(`the layout is "${layout}"; it must be one of ${Object.keys(layouts).join(", ")}`);
    return new ENVIRONMENTS[name]({ ...options, ...layouts[layout] });
  }

  /** Observations of skills from one state with mean actions: one list of T + 1 for each skill. */
  paths(env, state, skills, steps) {
    return skills.map((skill) => {
      const found = [env.observe(state)];
      for (let t = 0, now = state; t < steps; t++) {
        now = env.step(now, this.actor.act(found[t], skill));
        found.push(env.observe(now));
      }
      return found;
    });
  }
}

/** One session with a run. */
export class LocalBackend extends Answers {
  constructor(run) {
    super(run.hello);
    this.run = run;
    this.reset({ seed: 0, layout: "", task: null });
  }

  answer(message) {
    const handlers = {
      reset: () => this.reset(message.episode),
      step: () => this.advance([message]),
      replay: () => this.replay(message),
      influence: () => this.influence(message),
      gallery: () => this.gallery(message),
      maps: () => this.maps(),
    };
    return handlers[message.type]();
  }

  // --- the episode ---------------------------------------------------------------------------------------------------

  reset({ seed, layout, task }) {
    const env = this.run.environment(layout || "");
    const described = task ? this.run.data.tasks[task] : null;
    if (task && !described) throw new Error(`there is no task "${task}" here`);
    const state = env.reset(new Random(seed, NAMES.start));
    Object.assign(this, { env, seed, taskName: task, task: described ? makeTask(env, described) : null });
    const memory = this.task && this.task.begin(new Random(seed, NAMES.task));
    this.now = { state, memory, time: 0, total: 0, reward: 0, skill: null, action: null, choice: null };
    return this.frame();
  }

  replay({ episode, segments }) {
    this.reset(episode);
    const trail = [];
    return { ...this.advance(segments, trail), trail: trail.slice(-TRAIL).map(plain) };
  }

  /** Run controls one after another; the observations before each step are added to the trail. */
  advance(segments, trail = []) {
    const before = this.now.total;
    for (const { control, steps } of segments) {
      for (let step = 0; step < steps; step++) {
        if (this.done) throw new Error("The episode of the task is over; reset it.");
        trail.push(this.obs);
        this.step(control);
      }
    }
    this.now.reward = this.now.total - before;
    return this.frame();
  }

  get obs() {
    return this.env.observe(this.now.state);
  }

  get extra() {
    return this.task ? this.task.extra(this.now.memory) : [];
  }

  get done() {
    return this.task !== null && this.now.time >= this.task.horizon;
  }

  step(control) {
    const { state, memory, time, total } = this.now;
    const choice = control.player === "policy" ? this.choose(control.policy) : null;
    const { skill, action } = this.decide(control, choice);
    const reached = this.env.step(state, action);
    const scored = this.task ? this.task.score(memory, reached, new Random(this.seed, NAMES.task, time + 1)) : { memory, reward: 0 };
    this.now = { state: reached, memory: scored.memory, time: time + 1, total: total + scored.reward, skill, action, choice };
  }

  frame() {
    const { time, reward, total, skill, action } = this.now;
    const obs = this.obs;
    const phi = this.run.phi && plain(this.run.phi.encode(obs));
    const shown = { time, obs: plain(obs), skill: plain(skill), action: plain(action), phi, reward, total };
    return { type: "frame", ...shown, extra: this.extra, done: this.done, ended: false };
  }

  // --- who acts ------------------------------------------------------------------------------------------------------

  /** The action, and the skill behind it or null. */
  decide(control, choice) {
    const { actor, space } = this.run;
    const clip = (values) => Array.from(values, (x) => Math.min(Math.max(x, -1), 1));
    if (control.player === "raw") return { skill: null, action: clip(control.raw) };
    if (control.player === "expert") return { skill: null, action: clip(this.task.expert(this.now.memory, this.now.state)) };
    if (choice && choice.action) return { skill: null, action: choice.action };
    const obs = this.obs;
    let skill = choice ? choice.skill : space.project(control.skill);
    if (choice && choice.goal) skill = this.towards(obs, choice.goal, choice.goals);
    if (!choice && control.goals && control.goals.some(Boolean)) skill = this.aimed(obs, skill, control.goals);
    const noise = control.sampled && !choice ? new Random(this.seed, NAMES.noise, this.now.time).normal(actor.actions) : null;
    return { skill, action: actor.act(obs, skill, noise) };
  }

  /** The skill that leads to a flat goal in the space of phi. */
  towards(obs, goal, goals = this.run.goals) {
    return this.run.space.between(this.run.phi.encode(obs), goal, goals.step);
  }

  /** The skill whose parts with a goal lead there; a point in the drawing is the embedding of the state with the factor there. */
  aimed(obs, skill, goals) {
    const { space, phi, hello } = this.run;
    const target = obs.slice();
    for (const handle of hello.handles) {
      const goal = goals[handle.part];
      if (!goal || !goal.to) continue;
      if (handle.kind === "point") [target[handle.x], target[handle.y]] = goal.to;
      else target[handle.index] = Math.atan2(...goal.to.map((x, axis) => x - target[handle.origin[axis]]));
    }
    const points = space.split(phi.encode(target));
    goals.forEach((goal, part) => { if (goal && goal.phi) points[part] = goal.phi; });
    const there = space.split(this.towards(obs, points.flat()));
    return space.split(skill).flatMap((values, part) => (goals[part] ? there[part] : values));
  }

  /** The high-level action of a saved policy: a new one after its duration. */
  choose(id) {
    const { choice, time } = this.now;
    const policy = this.run.policies.find((one) => one.id === id && one.task === this.taskName);
    if (!policy) throw new Error(`there is no saved policy "${id}" of this task`);
    if (choice && choice.id === id && time - choice.time < policy.duration) return choice;
    const high = policy.network.act([...this.obs, ...this.extra]);
    const { space } = this.run;
    const made = { id, time };
    if (policy.interface === "skill") made.skill = space.prior === "gaussian" ? high.map((x) => GAUSSIAN_RANGE * x) : space.project(high);
    else if (policy.interface === "goal") {
      const { centre, half } = policy.goals;
      Object.assign(made, { goals: policy.goals, goal: high.map((x, i) => centre.flat()[i] + half.flat()[i] * x) });
    } else made.action = high;
    return made;
  }

  // --- what else moved? the gallery, the maps ------------------------------------------------------------------------

  influence({ control, part }) {
    const { run, env } = this;
    const { space, hello } = run;
    const random = new Random(NAMES.influence); // the same skills every time: bars move because state or skill does
    const base = space.project(control.skill);
    const varied = Array.from({ length: REDRAWN }, () => space.vary(random, base, part));
    const other = Array.from({ length: REDRAWN }, () => space.sample(random));
    const [reference, ...paths] = run.paths(env, this.now.state, [base, ...varied, ...other], AHEAD);
    return { type: "influence", part, change: shares(hello, paths.slice(0, REDRAWN), paths.slice(REDRAWN), () => reference), from: "here" };
  }

  gallery({ seed, layout }) {
    const { run } = this;
    const random = new Random(seed, NAMES.gallery);
    const env = run.environment(layout || "");
    const skills = Array.from({ length: SHOWN }, () => run.space.sample(random));
    const found = run.paths(env, env.reset(new Random(this.seed, NAMES.start)), skills, Math.min(run.hello.env.horizon, 200));
    const phi = run.phi && found.map((path) => path.map((obs) => run.phi.encode(obs)));
    return { type: "gallery", skills, ...drawn(run.hello, found, phi) };
  }

  maps() {
    const { centre, half } = this.run.goals ?? {};
    const box = (_, i) => ({ low: centre[i].map((x, d) => x - half[i][d]), high: centre[i].map((x, d) => x + half[i][d]) });
    return { type: "maps", parts: this.hello.parts.map(centre ? box : () => null) };
  }
}
