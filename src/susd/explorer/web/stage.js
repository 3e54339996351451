// One run on the page: its session with the backend, its episode, its drawing.
import { BodyPainter } from "./bodies.js";
import { Camera } from "./camera.js";
import { addSegment } from "./link.js";
import { drawScene } from "./scenes.js";
import { el, fitCanvas, toast } from "./ui.js";

const TRAIL = 240;
const NOTE_MS = 800; // without an answer, until the page says why

export class Stage {
  constructor(backend, title) {
    this.backend = backend;
    this.waiting = new Map();
    this.number = 0;
    this.trail = [];
    this.segments = [];
    this.goals = [];
    this.selected = 0;
    this.arrived = 0;
    this.canvas = el("canvas", { class: "scene", role: "img", tabindex: 0, "aria-label": title });
    this.caption = el("p", { class: "stage-caption" }, title);
    this.note = el("p", { class: "stage-note", role: "status", hidden: true });
    this.answered = new Set(); // kinds of steps that are compiled
    this.node = el("figure", { class: "stage" }, this.canvas, this.note, this.caption);
    backend.onmessage = (message) => this.receive(message);
    this.ready = new Promise((resolve, reject) => {
      this.greet = resolve;
      this.refuse = reject;
    });
    backend.onclose = (reason) => {
      this.lost = reason;
      this.refuse(new Error(reason));
      for (const { reject } of this.waiting.values()) reject(new Error(reason));
      this.waiting.clear();
      toast(reason, 3600);
    };
  }

  receive(message) {
    if (message.type === "hello") {
      this.hello = message;
      this.goals = message.parts.map(() => null);
      if (message.scene.kind === "bodies") {
        this.painter = new BodyPainter(message.scene.bodies);
        this.camera = new Camera(message.scene.bodies.camera);
      }
      this.greet(message);
      return;
    }
    if (message.type === "error" && !this.waiting.has(message.id)) {
      toast(message.message, 8);
      this.refuse(new Error(message.message));
      return;
    }
    const found = this.waiting.get(message.id);
    this.waiting.delete(message.id);
    if (!found) return;
    if (message.type === "error") found.reject(new Error(message.message));
    else found.resolve(message);
  }

  ask(request) {
    if (this.lost) return Promise.reject(new Error(this.lost));
    const id = ++this.number;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.backend.send({ ...request, id });
    });
  }

  async reset(episode) {
    const frame = await this.ask({ type: "reset", episode });
    this.episode = { ...episode };
    this.segments = [];
    this.trail = [];
    this.before = null;
    await this.accept(frame);
  }

  async step(control, steps) {
    const frame = await this.noted(`${this.episode.task} ${control.player} ${Boolean(control.goals)}`, () => this.ask({ type: "step", steps, control }));
    addSegment(this.segments, control, steps);
    this.before = this.frame;
    this.trail.push(this.frame.obs);
    if (frame.ended) this.trail = [];
    if (this.trail.length > TRAIL) this.trail.shift();
    await this.accept(frame);
  }

  // Say what takes so long: the first step of a kind is compiled.
  async noted(kind, ask) {
    const timer = setTimeout(() => {
      this.note.textContent = this.answered.has(kind) ? "The server is busy …" : "Compiling …";
      this.note.hidden = false;
    }, NOTE_MS);
    try {
      const answer = await ask();
      this.answered.add(kind);
      return answer;
    } finally {
      clearTimeout(timer);
      this.note.hidden = true;
    }
  }

  async replay(episode, segments) {
    const frame = await this.ask({ type: "replay", episode, segments });
    this.episode = { ...episode };
    this.segments = structuredClone(segments);
    this.trail = frame.trail.slice(-TRAIL);
    this.before = null;
    await this.accept(frame);
  }

  // A new frame; an image is decoded before it is shown, so that nothing flickers.
  async accept(frame) {
    if (typeof frame.image === "string") {
      const image = new Image();
      image.src = frame.image;
      await image.decode().catch(() => {});
      this.image = image;
    } else this.image = frame.image;
    this.frame = frame;
    this.arrived = performance.now();
  }

  // The observation between the last two frames: smooth at any number of steps per second.
  between(share) {
    if (!this.before || share >= 1 || this.frame.ended) return this.frame.obs;
    const a = this.before.obs;
    return this.frame.obs.map((value, i) => a[i] + share * (value - a[i]));
  }

  posesBetween(share) {
    const { before, frame } = this;
    return before && share < 1 && !frame.ended ? BodyPainter.between(before.poses, frame.poses, share) : frame.poses;
  }

  draw(interval = 0) {
    if (!this.frame) return 1;
    const share = interval ? Math.min(1, (performance.now() - this.arrived) / interval) : 1;
    const obs = this.between(share), task = this.episode.task ? { name: this.episode.task, extra: this.frame.extra } : null;
    const shown = { hello: this.hello, obs, trail: [...this.trail, obs], goals: this.goals, selected: this.selected, task, image: this.image };
    if (this.painter) Object.assign(shown, { painter: this.painter, camera: this.camera, poses: this.posesBetween(share) });
    fitCanvas(this.canvas, (context, width, height) => {
      this.view = drawScene(context, width, height, shown);
    });
    return share;
  }

  // A point of the drawing in the environment's coordinates; null where it has none.
  pointAt(event) {
    if (!this.view) return null;
    const box = this.canvas.getBoundingClientRect();
    const point = this.view.from(event.clientX - box.left, event.clientY - box.top);
    const { low, high, open } = this.hello.env.planes[0];
    const clip = (value) => Math.round(1e3 * (open ? value : Math.max(low, Math.min(high, value)))) / 1e3;
    return point && [clip(point[0]), clip(point[1])];
  }

  close() {
    this.backend.close();
    this.node.remove();
  }
}
