// The page: what is steered, the clock, and how everything on it hangs together.
import { Gallery } from "./gallery.js";
import { buildHeader, buildTransport, helpDialog, showHeader } from "./frame.js";
import { decodeLink, encodeLink } from "./link.js";
import { Influence, PartCard } from "./parts.js";
import { asPython } from "./python.js";
import { RawPanel } from "./raw.js";
import { Recorder } from "./record.js";
import { ViewTools, listenToDrag, turnByKey } from "./orbit.js";
import { partOf, project, randomPart, roundSkill, translate, withPart } from "./skills.js";
import { Stage } from "./stage.js";
import { TaskPanel } from "./tasks.js";
import { copyText, el, forgetTheme, setPressed, textButton, toast } from "./ui.js";

const IDLE_SECONDS = 45; // without input, until the clock stops by itself
const SWEEP_TURNS = 0.12; // of a circle per second
const INFLUENCE_MS = 250;
const MOST_UNDO = 100;

export async function startApp(source) {
  const app = new App(source);
  window.susd = app; // for the console of a curious person, and for tests
  try {
    await app.open();
  } catch (error) {
    app.root.replaceChildren(el("p", { class: "failure", role: "alert" }, error.message));
  }
}

export class App {
  constructor(source) {
    this.source = source;
    this.root = document.getElementById("app");
    this.stages = [];
    this.frozen = new Set();
    this.sweeping = new Set();
    this.selected = 0;
    this.history = [];
    this.episode = { seed: 0, layout: "", task: null };
    this.control = { player: "skill", sampled: false };
    this.playing = false;
    this.due = 0;
    this.busy = false;
    this.held = 0; // by how many that need a pause between two steps
    this.frames = 0; // drawn with a new observation, for measurements
  }

  get hello() {
    return this.stages[0].hello;
  }

  get task() {
    return this.hello.tasks.find((task) => task.name === this.episode.task) || null;
  }

  // --- opening ---------------------------------------------------------------------------------------------------------

  async open() {
    this.root.append(el("p", { class: "loading", role: "status" }, "Loading the skills. The first time they are compiled …"), el("div", { id: "toast", role: "status", "aria-live": "polite" }));
    this.stages = this.source.runs.map((run, i) => new Stage(this.source.connect(i), run.name));
    await Promise.all(this.stages.map((stage) => stage.ready));
    this.build();
    const seen = location.hash.length > 1 ? await decodeLink(location.hash) : null;
    if (location.hash.length > 1 && !seen) toast("The link could not be read; this is a new episode.");
    this.rate = ["bodies", "image"].includes(this.hello.scene.kind) ? 30 : 15;
    this.skill = this.firstSkill();
    if (seen) await this.restore(seen);
    else await this.newEpisode();
    this.show();
    this.listen();
    this.askSlow();
    if (!seen && !matchMedia("(prefers-reduced-motion: reduce)").matches) this.play(true);
    document.documentElement.dataset.ready = "true";
  }

  firstSkill() {
    if (this.hello.recorded) return this.hello.recorded.skill;
    const size = this.hello.parts.reduce((sum, part) => sum + part.dim, 0);
    let skill = project(this.hello, Array.from({ length: size }, (_, i) => (i % 2 ? 0.4 : 0.9)));
    this.hello.parts.forEach((_, part) => (skill = randomPart(this.hello, skill, part)));
    return roundSkill(skill);
  }

  build() {
    const { hello } = this;
    this.cards = hello.parts.map((_, number) => new PartCard(this, number));
    this.influence = new Influence(hello);
    this.gallery = new Gallery(hello, (skill) => this.takeSkill(skill));
    this.galleryHint = el("p", { class: "hint" }, "Finding out where they lead …");
    this.tasks = new TaskPanel(this);
    this.raw = new RawPanel(this);
    this.recorder = new Recorder(() => this.showState());
    this.header = buildHeader(this);
    this.transport = buildTransport(this);
    this.help = helpDialog(this);
    this.arena = el("div", { class: "stages" }, ...this.stages.map((stage) => stage.node));
    const block = (title, body, attributes = {}) => el("section", { class: "block", "aria-label": title, ...attributes }, el("h2", {}, title), body);
    const skillTools = el("div", { class: "row tools" },
      textButton("random", "Randomise all", () => this.randomise(hello.parts.map((_, i) => i))),
      textButton("undo", "Undo", () => this.undo()));
    const columns = el("main", {},
      el("div", { class: "left" }, this.arena, this.transport.node),
      el("div", { class: "right" },
        el("section", { class: "block", "aria-label": "Skill" }, el("div", { class: "block-head" }, el("h2", {}, "Skill"), skillTools),
          el("div", { class: `parts count-${Math.min(hello.parts.length, 5)}` }, ...this.cards.map((card) => card.node)),
          hello.reasons.goals ? el("p", { class: "hint" }, `No maps here: ${hello.reasons.goals}.`) : null),
        hello.can.influence ? block("What else moved?", this.influence.node) : null,
        hello.can.gallery ? el("section", { class: "block", "aria-label": "48 skills" }, el("div", { class: "block-head" }, el("h2", {}, "48 skills"), hello.recorded ? null : el("div", { class: "row tools" }, textButton("random", "Other skills", () => this.askGallery((this.gallerySeed || 0) + 1)))), this.galleryHint, this.gallery.node) : null,
        hello.tasks.length || hello.reasons.tasks ? block("Task", this.tasks.node) : null,
        hello.can.raw ? block("Raw actions", this.raw.node) : null));
    this.root.replaceChildren(this.header.node, columns, this.help, document.getElementById("toast") || el("div", { id: "toast", role: "status", "aria-live": "polite" }));
    this.root.dataset.stages = String(this.stages.length);
    this.stages.forEach((stage) => this.prepareStage(stage));
    this.influence.wait(0);
    this.captions();
    this.raw.update("skill");
    this.tasks.update();
  }

  captions() {
    this.stages.forEach((stage, i) => {
      const { run } = stage.hello;
      const who = this.versus ? (i ? "the opponent" : "you") : this.stages.length > 1 ? `${run.method_title} · ${run.name}` : "";
      stage.caption.textContent = who || run.note;
      stage.canvas.setAttribute("aria-label", `${run.env_title}${who ? `, ${who}` : ""}`);
    });
    showHeader(this);
  }

  // The drawings of all stages have one camera, so that they can be compared.
  prepareStage(stage) {
    const [first] = this.stages;
    if (stage !== first && stage.camera && first.camera) stage.camera = first.camera;
    listenToDrag(stage.canvas, () => stage.camera, (event) => stage === first && this.clickScene(event), () => this.redraw());
    if (!stage.camera) return;
    stage.node.classList.add("turns");
    if (stage !== first) return;
    this.viewTools = new ViewTools(stage.camera, () => this.redraw());
    stage.node.prepend(this.viewTools.node);
  }

  listen() {
    document.addEventListener("keydown", (event) => this.onkey(event, true));
    document.addEventListener("keyup", (event) => this.onkey(event, false));
    document.addEventListener("visibilitychange", () => document.hidden && this.playing && this.play(false, "hidden"));
    document.addEventListener("visibilitychange", () => !document.hidden && this.stopped === "hidden" && this.play(true));
    for (const kind of ["pointerdown", "keydown"]) document.addEventListener(kind, () => (this.touched = performance.now()), true);
    new ResizeObserver(() => this.redraw()).observe(this.arena);
    new ResizeObserver(() => this.redraw(true)).observe(this.gallery.node);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw(true));
    window.addEventListener("hashchange", async () => {
      const seen = await decodeLink(location.hash);
      if (seen) await this.restore(seen);
    });
  }

  // --- what is steered -------------------------------------------------------------------------------------------------

  // While a pad moves; the end of a gesture is one entry of the history.
  steer(part, values, final) {
    if (this.frozen.has(part)) return;
    if (!this.gesture) this.gesture = this.skill;
    this.sweeping.delete(part);
    this.stages[0].goals[part] = null;
    this.setSkill(withPart(this.hello, this.skill, part, values));
    if (final) {
      this.remember(this.gesture);
      this.gesture = null;
      this.askInfluence();
    }
    if (this.stopped !== "person") this.play(true);
  }

  setSkill(skill) {
    this.skill = roundSkill(skill);
    this.eager = true;
    this.takeOver();
    this.showSkill();
    this.showState();
    this.hurry();
  }

  // A new skill acts at once, not at the next beat; the beats after it wait a little longer.
  hurry() {
    if (this.playing && !this.busy && !this.held && this.due > -1) this.advance(Math.max(1, Math.floor(this.due)));
  }

  // A person who steers plays; the policy or the expert stops.
  takeOver() {
    if (["expert", "policy"].includes(this.control.player)) this.choosePlayer("skill");
    if (this.control.player === "raw") this.choosePlayer("skill");
  }

  remember(skill) {
    if (skill.every((x, i) => x === this.skill[i])) return;
    this.history.push(skill);
    if (this.history.length > MOST_UNDO) this.history.shift();
  }

  undo() {
    const skill = this.history.pop();
    if (skill) this.setSkill(skill.slice());
    else toast("There is nothing to undo.");
  }

  randomise(parts) {
    const before = this.skill;
    let skill = this.skill;
    for (const part of parts) {
      if (this.frozen.has(part)) continue;
      skill = randomPart(this.hello, skill, part);
      this.stages[0].goals[part] = null;
    }
    this.setSkill(skill);
    this.remember(before);
    if (this.stopped !== "person") this.play(true);
  }

  takeSkill(skill) {
    const before = this.skill;
    let taken = this.skill;
    this.hello.parts.forEach((_, part) => {
      if (this.frozen.has(part)) return;
      taken = withPart(this.hello, taken, part, partOf(this.hello, skill, part));
      this.stages[0].goals[part] = null;
    });
    this.setSkill(this.frozen.size ? taken : project(this.hello, skill));
    this.remember(before);
    if (this.stopped !== "person") this.play(true);
  }

  toggleFreeze(part) {
    if (!this.frozen.delete(part)) this.frozen.add(part);
    this.sweeping.delete(part);
    this.showState();
  }

  toggleSweep(part) {
    if (this.frozen.has(part)) return;
    if (!this.sweeping.delete(part)) this.sweeping.add(part);
    this.stages[0].goals[part] = null;
    this.takeOver();
    if (this.sweeping.size) this.play(true);
    this.showState();
  }

  // Round the circle, through the discrete skills, or through the first two dimensions.
  sweep(seconds) {
    for (const part of this.sweeping) {
      const { kind, dim, radius } = this.hello.parts[part], values = partOf(this.hello, this.skill, part);
      this.phase = (this.phase || 0) + seconds;
      if (kind === "buttons") {
        const next = Math.floor(this.phase / 1.2) % dim;
        if (values[next] < 0.5) this.skill = withPart(this.hello, this.skill, part, values.map((_, i) => (i === next ? 1 : 0)));
        continue;
      }
      const turn = 2 * Math.PI * SWEEP_TURNS * seconds, [a, b] = [values[0], dim > 1 ? values[1] : 0];
      let turned = [a * Math.cos(turn) - b * Math.sin(turn), a * Math.sin(turn) + b * Math.cos(turn)];
      if (Math.hypot(...turned) < 1e-3) turned = [radius, 0];
      if (dim === 1) turned = [radius * Math.sin(2 * Math.PI * SWEEP_TURNS * this.phase)];
      this.skill = roundSkill(withPart(this.hello, this.skill, part, [...turned, ...values.slice(2)].slice(0, dim)));
    }
    if (this.sweeping.size) this.showSkill();
  }

  // A goal of one part: a point of its map or of the drawing; null stops it.
  sendTo(part, goal) {
    if (goal && (this.frozen.has(part) || !this.hello.can.goals)) return;
    this.stages[0].goals[part] = goal;
    this.sweeping.delete(part);
    this.select(part);
    this.takeOver();
    this.eager = true;
    this.showSkill();
    this.showState();
    if (goal && this.stopped !== "person") this.play(true);
    this.redraw();
  }

  clickScene(event) {
    const point = this.stages[0].pointAt(event);
    if (!point || !this.hello.can.goals) return;
    const handles = this.hello.handles.map((handle) => handle.part);
    if (!handles.length) return;
    if (!handles.includes(this.selected)) toast(`Choose ${handles.map((part) => this.hello.parts[part].name).join(" or ")} first: ${this.hello.parts[this.selected].name} has no place in the drawing.`);
    else this.sendTo(this.selected, { to: point });
  }

  select(part) {
    if (this.selected === part) return;
    this.selected = part;
    this.stages.forEach((stage) => (stage.selected = part));
    this.gallery.select(part);
    this.influence.wait(part);
    this.measured = null;
    this.askInfluence();
    this.showState();
    this.redraw();
  }

  // --- who acts, and the episode ---------------------------------------------------------------------------------------

  choosePlayer(name) {
    const [player, policy] = name.split(/:(.*)/s);
    this.control = { player, sampled: this.control.sampled, ...(policy ? { policy } : {}) };
    if (policy && this.task) {
      const wanted = this.task.policies.find((one) => one.id === policy).layout;
      if (this.hello.layouts.choices.some((one) => one.value === wanted) && wanted !== this.episode.layout) this.changeEpisode({ layout: wanted });
    }
    this.raw.update(player);
    this.tasks.update();
    this.showSkill();
    if (player !== "skill" || this.stopped !== "person") this.play(true);
  }

  rawChanged() {
    if (this.control.player !== "raw") this.choosePlayer("raw");
    this.eager = true;
  }

  async chooseTask(name) {
    const task = this.hello.tasks.find((one) => one.name === name);
    if (!name) {
      if (this.versus) await this.playAgainst();
      if (this.control.player !== "raw") this.control = { player: "skill", sampled: this.control.sampled };
    }
    await this.changeEpisode({ task: name || null, ...(task && task.layout ? { layout: task.layout } : {}) });
    this.tasks.update();
    this.redraw();
  }

  // A second session with the same run, in which a saved policy or the expert plays.
  async playAgainst() {
    if (this.versus) {
      await this.between(() => this.stages.pop().close());
      this.versus = null;
    } else {
      this.versus = this.tasks.opponent;
      const stage = new Stage(this.source.connect(0), "opponent");
      await stage.ready;
      await stage.reset(this.episode);
      await this.between(() => {
        while (this.stages.length > 1) this.stages.pop().close();
        this.stages.push(stage);
      });
      this.prepareStage(stage);
      this.arena.append(stage.node);
    }
    this.root.dataset.stages = String(this.stages.length);
    this.captions();
    await this.changeEpisode({});
    this.tasks.update();
  }

  async changeEpisode(changes) {
    const before = this.episode;
    this.episode = { ...this.episode, ...changes };
    try {
      await this.newEpisode();
      if ("layout" in changes && changes.layout !== before.layout) this.askGallery(this.gallerySeed || 0);
    } catch (error) {
      this.episode = before;
      toast(error.message, 8);
    }
    this.showState();
  }

  async newEpisode() {
    await this.between(() => Promise.all(this.stages.map((stage) => stage.reset(this.episode))));
    this.due = 0;
    this.tasks.reset();
    this.cards.forEach((card) => card.map && card.map.clearTrail());
    this.measured = null;
    this.afterFrame();
    if (this.stopped === "end") this.play(true);
  }

  async reset() {
    await this.changeEpisode({});
  }

  // Do something while no step is on its way.
  async between(work) {
    this.held += 1;
    try {
      while (this.busy) await new Promise((resolve) => setTimeout(resolve, 5));
      return await work();
    } finally {
      this.held -= 1;
    }
  }

  controlOf(stage, number) {
    if (this.versus && number === 1) return { ...this.versus, skill: this.skill };
    const { player, sampled, policy } = this.control;
    if (player === "raw") return { player, raw: stage.hello.env.actions.map((_, i) => this.raw.values[i] || 0) };
    if (player === "expert") return { player };
    if (player === "policy") return number ? { player: "skill", skill: this.otherSkill(stage, this.stages[0].frame.skill || this.skill) } : { player, policy };
    if (number === 0) {
      const goals = stage.goals.some(Boolean) ? { goals: stage.goals } : {};
      return { player, skill: this.skill, sampled, ...goals };
    }
    const goals = this.goalsFor(stage);
    return { player, skill: this.otherSkill(stage, this.skill), sampled, ...(goals ? { goals } : {}) };
  }

  otherSkill(stage, skill) {
    return roundSkill(translate(this.hello, stage.hello, skill, this.selected));
  }

  // Points in the drawing mean the same for another run; points of a map do not.
  goalsFor(stage) {
    const goals = stage.hello.parts.map((part) => {
      const number = this.hello.parts.findIndex((one) => one.name === part.name);
      const goal = number >= 0 ? this.stages[0].goals[number] : null;
      const handled = stage.hello.handles.some((handle) => stage.hello.parts[handle.part] === part);
      return goal && goal.to && handled ? goal : null;
    });
    stage.goals = goals;
    return stage.hello.can.goals && goals.some(Boolean) ? goals : null;
  }

  // --- the clock -------------------------------------------------------------------------------------------------------

  play(on, why = "person") {
    if (on && this.stages[0].frame && this.stages[0].frame.done) {
      toast("The episode of the task is over. Reset it to play again.");
      return;
    }
    this.playing = on;
    this.stopped = on ? null : why;
    if (on) {
      this.touched = performance.now();
      this.last = performance.now();
      this.wake();
    }
    this.showState();
  }

  wake() {
    if (this.awake) return;
    this.awake = true;
    requestAnimationFrame(() => this.tick());
  }

  tick() {
    const now = performance.now(), seconds = Math.min(0.25, (now - this.last) / 1000 || 0);
    this.last = now;
    if (this.playing) {
      this.sweep(seconds);
      this.due = Math.min(this.due + seconds * this.rate, Math.max(2, this.rate / 4));
      if (this.eager || this.due >= 1) this.hurry();
      if (now - this.touched > 1000 * IDLE_SECONDS && !this.sweeping.size && !this.recorder.active && this.control.player === "skill") this.play(false, "rest");
    }
    const interval = 1000 / this.rate;
    const moving = this.stages.map((stage) => stage.draw(stage.hello.scene.kind === "image" ? 0 : interval)).some((share) => share < 1);
    if (this.recorder.active) this.recorder.frame(this.stages);
    this.awake = this.playing || moving || this.recorder.active;
    if (this.awake) requestAnimationFrame(() => this.tick());
  }

  async advance(steps) {
    this.busy = true;
    this.eager = false;
    this.due -= steps;
    try {
      await Promise.all(this.stages.map((stage, i) => (stage.frame.done ? null : stage.step(this.controlOf(stage, i), Math.min(steps, 32)))));
    } catch (error) {
      this.play(false);
      toast(error.message, 8);
    }
    this.busy = false;
    this.frames += 1;
    this.afterFrame();
  }

  async single() {
    if (this.stages[0].frame.done) return this.play(true);
    this.play(false);
    await this.between(() => this.advance(1));
    this.redraw();
    return null;
  }

  afterFrame() {
    const { frame } = this.stages[0];
    this.transport.time.textContent = String(frame.time);
    this.cards.forEach((card, i) => card.showPhi(frame, this.stages[0].goals[i], frame.time > 0));
    if (frame.skill && (this.stages[0].goals.some(Boolean) || this.control.player === "policy" || this.hello.recorded)) this.showSkill();
    this.raw.show(frame.action);
    this.tasks.show(this.stages);
    this.askInfluence();
    if (frame.done && this.playing) {
      this.play(false, "end");
      toast(`The episode is over: total ${this.stages.map((stage) => stage.frame.total.toFixed(1)).join(" against ")}.`, 8);
    }
    if (!this.playing) this.redraw();
  }

  // --- slow questions --------------------------------------------------------------------------------------------------

  askSlow() {
    if (this.hello.can.gallery) this.askGallery(0);
    if (this.hello.can.maps) {
      this.stages[0].ask({ type: "maps" }).then((maps) => maps.parts.forEach((box, i) => this.cards[i].map.setBox(box))).catch((error) => toast(error.message));
    }
  }

  async askGallery(seed) {
    this.gallerySeed = seed;
    try {
      const data = await this.stages[0].ask({ type: "gallery", seed, layout: this.episode.layout });
      this.gallery.show(data);
      this.galleryHint.textContent = "Where each leads from the start. Click one to take it.";
      this.gallery.mark(this.skill);
      if (data.phi) this.cards.forEach((card, part) => card.map && card.map.setPaths(data.phi.map((skill) => skill[part])));
    } catch (error) {
      toast(error.message);
    }
  }

  // The bars follow the state and the skill, but never more than one question is open.
  async askInfluence() {
    if (!this.hello.can.influence || this.asking || (this.fromStart && (this.gesture || this.sweeping.size))) return;
    const key = `${this.selected} ${this.skill}`, now = performance.now();
    const fresh = key !== this.measured, live = !this.fromStart && now - (this.askedAt || 0) > INFLUENCE_MS && this.stages[0].frame.time !== this.askedTime;
    if (!fresh && !live) return;
    if (fresh && now - (this.askedAt || 0) < INFLUENCE_MS) {
      clearTimeout(this.influenceTimer);
      this.influenceTimer = setTimeout(() => this.askInfluence(), INFLUENCE_MS);
      return;
    }
    this.asking = true;
    [this.measured, this.askedAt, this.askedTime] = [key, now, this.stages[0].frame.time];
    try {
      const answer = await this.stages[0].ask({ type: "influence", part: this.selected, control: { player: "skill", skill: this.skill } });
      this.fromStart = answer.from === "start";
      if (answer.part === this.selected) this.influence.show(answer);
    } catch {
      this.measured = null;
    }
    this.asking = false;
    if (key !== `${this.selected} ${this.skill}`) this.askInfluence(); // what changed meanwhile was not asked
  }

  // --- links, Python, video --------------------------------------------------------------------------------------------

  async copyLink() {
    const segments = await this.between(() => this.stages.map((stage) => structuredClone(stage.segments)));
    const [stage] = this.stages;
    const { skill, selected, rate, control } = this;
    const seen = { v: 1, episode: stage.episode, segments: segments[0], skill, selected, rate, control, goals: stage.goals, raw: this.raw.values };
    if (stage.camera) seen.camera = stage.camera.state;
    if (this.stages.length > 1 && !this.versus) seen.beside = segments[1];
    if (this.versus) Object.assign(seen, { versus: this.versus, beside: segments[1] });
    history.replaceState(null, "", `#${await encodeLink(seen)}`);
    await copyText(location.href, "Link");
  }

  async restore(seen) {
    this.play(false);
    if (seen.versus && !this.versus) {
      this.episode = seen.episode;
      await this.playAgainst();
    }
    try {
      await this.between(() => Promise.all(this.stages.map((stage, i) => stage.replay(seen.episode, i ? seen.beside || [] : seen.segments))));
    } catch (error) {
      toast(`The link could not be restored: ${error.message}`, 10);
      await this.newEpisode();
      return;
    }
    Object.assign(this, { episode: seen.episode, skill: seen.skill, rate: seen.rate, control: seen.control, selected: seen.selected });
    this.stages[0].goals = seen.goals;
    if (seen.camera && this.stages[0].camera) {
      this.stages[0].camera.state = seen.camera;
      this.viewTools.show();
    }
    this.stages.forEach((stage) => (stage.selected = seen.selected));
    this.raw.values = seen.raw;
    this.raw.update(this.control.player);
    this.tasks.reset();
    this.tasks.update();
    this.cards.forEach((card) => card.map && card.map.clearTrail());
    this.afterFrame();
    this.show();
    if (this.gallery.data) this.askGallery(this.gallerySeed || 0);
  }

  copyPython() {
    copyText(asPython(this.stages[0], this.skill, this.stages[0].goals), "Python");
  }

  toggleRecord(kind) {
    if (this.recorder.active) this.recorder.stop();
    else {
      this.recorder.start(kind, this.stages, `susd-${this.hello.run.name}`);
      this.play(true);
    }
  }

  // --- keys ------------------------------------------------------------------------------------------------------------

  onkey(event, down) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.help.open) return;
    const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
    if (this.control.player === "raw" && !(typing && event.target.type === "number") && this.raw.key(event, down)) {
      event.preventDefault();
      return;
    }
    if (!down || typing) return;
    if (event.target.matches?.(".turns .scene") && turnByKey(this.stages[0].camera, event)) {
      event.preventDefault();
      this.redraw();
      return;
    }
    const button = event.target instanceof HTMLButtonElement || event.target.closest?.("summary");
    const keys = {
      " ": () => !button && this.play(!this.playing), ".": () => this.single(), r: () => this.reset(), u: () => this.undo(),
      x: () => this.randomise(this.hello.parts.map((_, i) => i)), f: () => this.toggleFreeze(this.selected), g: () => this.toggleSweep(this.selected),
      k: () => this.hello.can.raw && this.choosePlayer(this.control.player === "raw" ? "skill" : "raw"), m: () => this.hello.can.sampled && this.setSampled(!this.control.sampled),
      "+": () => this.setRate(this.rate + 5), "-": () => this.setRate(this.rate - 5), "?": () => this.help.showModal(), Escape: () => this.control.player === "raw" && this.choosePlayer("skill"),
    };
    const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const part = "1234567890".indexOf(event.key);
    if (event.key.length === 1 && part >= 0 && part < this.cards.length) {
      this.select(part);
      (this.cards[part].pad.node.matches("svg") ? this.cards[part].pad.node : this.cards[part].pad.node.firstElementChild).focus();
    } else if (keys[name]) keys[name]();
    else return;
    if (!(button && event.key === " ")) event.preventDefault();
  }

  setRate(rate) {
    this.rate = Math.max(1, Math.min(60, Math.round(rate)));
    this.showState();
  }

  setSampled(sampled) {
    this.control = { ...this.control, sampled };
    this.showState();
  }

  // --- what is shown ---------------------------------------------------------------------------------------------------

  show() {
    this.showSkill();
    this.showState();
    this.redraw(true);
  }

  showSkill() {
    const [stage] = this.stages, driven = stage.goals.some(Boolean) || this.control.player === "policy" || this.hello.recorded;
    const acting = driven && stage.frame ? stage.frame.skill : null;
    this.cards.forEach((card, i) => card.show(this.skill, acting, stage.goals[i]));
    this.gallery.mark(this.skill);
  }

  showState() {
    this.cards.forEach((card, i) => card.showState(this.frozen.has(i), this.sweeping.has(i), i === this.selected));
    this.transport.show();
    for (const [kind, button] of [["video", this.header.record], ["gif", this.header.gif]]) setPressed(button, this.recorder.kind === kind);
  }

  // The next animation frame draws everything once.
  redraw(all = false) {
    if (all) {
      forgetTheme();
      this.gallery.draw();
      this.cards.forEach((card) => card.map && card.map.draw());
      if (this.task) this.tasks.draw(this.task);
    }
    this.last = performance.now();
    this.wake();
  }
}
