// A short video of the drawings, side by side, as the browser encodes it.
import { download, themeColours, toast } from "./ui.js";

const LONGEST = 20; // seconds
const HEIGHT = 640;

export class Recorder {
  constructor(onchange) {
    this.onchange = onchange;
    this.supported = typeof MediaRecorder !== "undefined" && Boolean(HTMLCanvasElement.prototype.captureStream);
  }

  get active() {
    return Boolean(this.recorder);
  }

  start(stages, name) {
    this.canvas = document.createElement("canvas");
    this.canvas.width = HEIGHT * stages.length;
    this.canvas.height = HEIGHT;
    const type = ["video/mp4", "video/webm;codecs=vp9", "video/webm"].find((kind) => MediaRecorder.isTypeSupported(kind)) || "";
    this.frame(stages);
    this.recorder = new MediaRecorder(this.canvas.captureStream(30), type ? { mimeType: type } : {});
    const parts = [];
    this.recorder.ondataavailable = (event) => parts.push(event.data);
    this.recorder.onstop = () => {
      const url = URL.createObjectURL(new Blob(parts, { type: this.recorder.mimeType }));
      download(url, `${name}.${this.recorder.mimeType.includes("mp4") ? "mp4" : "webm"}`);
      setTimeout(() => URL.revokeObjectURL(url), 60000);
      this.recorder = null;
      this.onchange();
      toast("Video saved.");
    };
    this.recorder.start();
    this.timer = setTimeout(() => this.stop(), 1000 * LONGEST);
    this.onchange();
  }

  stop() {
    clearTimeout(this.timer);
    if (this.recorder && this.recorder.state !== "inactive") this.recorder.stop();
  }

  // Copy what the stages show.
  frame(stages) {
    if (!this.canvas) return;
    const context = this.canvas.getContext("2d");
    context.fillStyle = themeColours().paper;
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    stages.forEach((stage, i) => {
      const { width, height } = stage.canvas, scale = HEIGHT / Math.max(width, height);
      context.drawImage(stage.canvas, i * HEIGHT + (HEIGHT - width * scale) / 2, (HEIGHT - height * scale) / 2, width * scale, height * scale);
    });
  }
}
