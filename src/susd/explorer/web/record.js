// A short video of the drawings, side by side, as the browser encodes it, or an animated GIF.
import { encodeGif, reduced } from "./gif.js";
import { download, themeColours, toast } from "./ui.js";

const LONGEST = { video: 20, gif: 8 }; // seconds
const HEIGHT = { video: 640, gif: 360 };
const GIF_RATE = 12.5; // frames per second: browsers count in hundredths of a second

export class Recorder {
  constructor(onchange) {
    this.onchange = onchange;
    this.kind = null; // of what is recorded now
    this.supported = typeof MediaRecorder !== "undefined" && Boolean(HTMLCanvasElement.prototype.captureStream);
  }

  get active() {
    return this.kind !== null;
  }

  start(kind, stages, name) {
    this.kind = kind;
    this.size = HEIGHT[kind];
    this.canvas = Object.assign(document.createElement("canvas"), { width: this.size * stages.length, height: this.size });
    this.frames = [];
    this.began = performance.now();
    this.save = () => this.saveGif(name);
    this.frame(stages); // a stream of a canvas that was never drawn has no frames
    if (kind === "video") this.save = this.startVideo(name);
    this.timer = setTimeout(() => this.stop(), 1000 * LONGEST[kind]);
    this.onchange();
  }

  startVideo(name) {
    const type = ["video/mp4", "video/webm;codecs=vp9", "video/webm"].find((kind) => MediaRecorder.isTypeSupported(kind)) || "";
    const recorder = new MediaRecorder(this.canvas.captureStream(30), type ? { mimeType: type } : {}), parts = [];
    recorder.ondataavailable = (event) => parts.push(event.data);
    recorder.onstop = () => this.finish(parts, recorder.mimeType, `${name}.${recorder.mimeType.includes("mp4") ? "mp4" : "webm"}`);
    recorder.start();
    return () => recorder.state !== "inactive" && recorder.stop();
  }

  async saveGif(name) {
    toast("Writing the GIF …", 60);
    const { width, height } = this.canvas, rest = () => new Promise((resolve) => setTimeout(resolve));
    this.finish(await encodeGif(this.frames, width, height, GIF_RATE, rest), "image/gif", `${name}.gif`);
  }

  finish(parts, type, name) {
    const url = URL.createObjectURL(new Blob(parts, { type }));
    download(url, name);
    setTimeout(() => URL.revokeObjectURL(url), 60000);
    Object.assign(this, { kind: null, frames: [] });
    this.onchange();
    toast(`${name} saved.`);
  }

  stop() {
    clearTimeout(this.timer);
    const save = this.save;
    this.save = null;
    if (save) save();
  }

  // Copy what the stages show; a GIF has fewer frames than the page.
  frame(stages) {
    if (!this.save) return;
    if (this.kind === "gif" && performance.now() - this.began < (1000 * this.frames.length) / GIF_RATE) return;
    const { canvas, size } = this, context = canvas.getContext("2d", { willReadFrequently: this.kind === "gif" });
    context.fillStyle = themeColours().paper;
    context.fillRect(0, 0, canvas.width, canvas.height);
    stages.forEach((stage, i) => {
      const { width, height } = stage.canvas, scale = size / Math.max(width, height);
      context.drawImage(stage.canvas, i * size + (size - width * scale) / 2, (size - height * scale) / 2, width * scale, height * scale);
    });
    if (this.kind === "gif") this.frames.push(reduced(context.getImageData(0, 0, canvas.width, canvas.height).data));
  }
}
