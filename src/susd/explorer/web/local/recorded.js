// The backend of an atlas of recordings: the trajectory of the nearest recorded skill, from its start.

import { Answers, drawn, shares } from "./answers.js";
import { kinematics } from "./kinematics.js";

const TRAIL = 300; // observations that a replay returns
const FORGET = 0.5; // weight of a part relative to the one that was steered after it

async function inflate(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The values [recordings][times] of every column: differences in time, low bytes first, then high bytes. */
function columns(bytes, { low, high, times, skills }) {
  const half = bytes.length / 2;
  return low.map((least, c) => {
    const scale = (high[c] - least) / 65535;
    return skills.map((_, r) => {
      const row = new Float32Array(times);
      for (let t = 0, at = (c * skills.length + r) * times, level = 0; t < times; t++, at++) {
        level = (level + bytes[at] + 256 * bytes[half + at]) & 65535;
        row[t] = least + scale * level;
      }
      return row;
    });
  });
}

/** The recordings of a run, decoded once for all sessions. */
export class RecordedRun {
  constructor({ hello, tree, recordings }) {
    Object.assign(this, { hello, recordings, tree });
    this.ready = inflate(recordings.values).then((bytes) => { this.columns = columns(bytes, recordings); });
  }

  /** Some columns of a recording at a time. */
  values(from, to, recording, time) {
    return this.columns.slice(from, to).map((column) => column[recording][time]);
  }

  obs(recording, time) {
    return this.values(0, this.recordings.columns.obs, recording, time);
  }

  joints(recording, time) {
    const { obs, joints } = this.recordings.columns;
    return this.values(obs, obs + joints, recording, time);
  }

  phi(recording, time) {
    const { obs, joints } = this.recordings.columns;
    return this.recordings.maps && this.values(obs + joints, undefined, recording, time);
  }

  path(recording, at = this.obs) {
    return Array.from({ length: this.recordings.times }, (_, time) => at.call(this, recording, time));
  }
}

/** One session with the recordings of a run. */
export class RecordedBackend extends Answers {
  constructor(run) {
    super(run.hello);
    this.run = run;
    this.restart();
  }

  async answer(message) {
    await this.run.ready;
    const handlers = {
      reset: () => this.reset(),
      step: () => this.advance([message]),
      replay: () => this.replay(message),
      influence: () => this.influence(message),
      gallery: () => this.gallery(),
      maps: () => ({ type: "maps", parts: this.run.recordings.maps ?? this.hello.parts.map(() => null) }),
    };
    return handlers[message.type]();
  }

  // --- the episode ---------------------------------------------------------------------------------------------------

  restart() {
    Object.assign(this, { recording: null, time: 0, wanted: null, order: this.hello.parts.map((_, part) => part) });
  }

  reset() {
    this.time = 0;
    return this.frame(true);
  }

  replay({ segments }) {
    this.restart();
    const trail = [];
    return { ...this.advance(segments, trail), trail: trail.slice(-TRAIL) };
  }

  /** Another recording, and the one that has reached its end, start at time 0. */
  advance(segments, trail = []) {
    let ended = false;
    for (const { control, steps } of segments) {
      const nearest = this.nearest(control.skill);
      for (let step = 0; step < steps; step++) {
        const again = nearest !== this.recording || this.time + 1 >= this.run.recordings.times;
        if (again) trail.length = 0;
        else trail.push(this.run.obs(this.recording, this.time));
        ended ||= again;
        this.time = again ? 0 : this.time + 1;
        this.recording = nearest;
      }
    }
    return this.frame(ended);
  }

  frame(ended) {
    const { run, time } = this;
    const recording = this.recording ?? run.recordings.base;
    const frame = { type: "frame", time, obs: run.obs(recording, time), skill: run.recordings.skills[recording], action: null };
    Object.assign(frame, { phi: run.phi(recording, time), reward: 0, total: 0, extra: [], done: false, ended });
    if (run.tree) frame.poses = kinematics(run.tree, run.joints(recording, time));
    return frame;
  }

  /** The recording of the nearest skill, in which parts that were steered lately count most. */
  nearest(skill) {
    const { parts } = this.hello;
    const { skills } = this.run.recordings;
    if (this.wanted) {
      const moved = (part) => parts[part].dim && Array.from({ length: parts[part].dim }).some((_, d) => skill[parts[part].at + d] !== this.wanted[parts[part].at + d]);
      this.order.sort((a, b) => moved(b) - moved(a));
    }
    this.wanted = [...skill];
    const weights = parts.flatMap(({ dim }, part) => Array(dim).fill(FORGET ** this.order.indexOf(part)));
    const distance = (other) => other.reduce((sum, x, i) => sum + weights[i] * (x - skill[i]) ** 2, 0);
    const distances = skills.map(distance);
    return distances.indexOf(Math.min(...distances));
  }

  // --- what else moved? the gallery ----------------------------------------------------------------------------------

  /** The recordings of a part against those of the other values of that part, as a share of unrelated skills. */
  influence({ part }) {
    const { run } = this;
    const { singles, random, base } = run.recordings;
    const [first, last] = singles[part];
    const reference = run.path(base);
    const varied = Array.from({ length: last - first }, (_, k) => run.path(first + k));
    const other = Array.from({ length: random }, (_, k) => run.path(k));
    return { type: "influence", part, change: shares(this.hello, varied, other, () => reference), from: "start" };
  }

  gallery() {
    const { run } = this;
    const { random, skills, maps } = run.recordings;
    const numbers = Array.from({ length: random }, (_, k) => k);
    const phi = maps && numbers.map((k) => run.path(k, run.phi));
    return { type: "gallery", skills: skills.slice(0, random), ...drawn(this.hello, numbers.map((k) => run.path(k)), phi) };
  }
}
