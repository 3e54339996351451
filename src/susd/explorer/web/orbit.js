// Turning the camera of a drawing: drag, pinch or wheel, arrow keys; a press without movement is a click.
import { el, iconButton, setPressed } from "./ui.js";

const STILL = 5; // pixels that a click may move
const KEY_PIXELS = 20; // that an arrow key stands for

// Listens on the canvas of a stage; `onclick(event)` gets clicks, `onturn()` is called after every change.
export function listenToDrag(canvas, cameraOf, onclick, onturn) {
  const held = new Map();
  let travelled = 0, spread = 0;
  const distance = () => {
    const [a, b] = [...held.values()];
    return Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    held.set(event.pointerId, event);
    if (held.size === 1) travelled = 0;
    if (held.size === 2) spread = distance();
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = held.get(event.pointerId), camera = cameraOf();
    if (!before) return;
    held.set(event.pointerId, event);
    const [dx, dy] = [event.clientX - before.clientX, event.clientY - before.clientY];
    travelled += Math.abs(dx) + Math.abs(dy);
    if (!camera || travelled < STILL) return;
    if (held.size === 2) {
      const now = distance();
      camera.zoomBy(spread / Math.max(now, 1));
      spread = now;
    } else camera.orbit(dx, dy);
    onturn();
  });
  const release = (event) => {
    const last = held.delete(event.pointerId) && held.size === 0;
    if (last && event.type === "pointerup" && travelled < STILL) onclick(event);
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("dblclick", () => {
    const camera = cameraOf();
    if (camera) camera.reset();
    onturn();
  });
  // The wheel scrolls the page unless the drawing was clicked or Ctrl is held, as in maps.
  canvas.addEventListener("wheel", (event) => {
    const camera = cameraOf();
    if (!camera || !(event.ctrlKey || document.activeElement === canvas)) return;
    event.preventDefault();
    camera.zoomBy(Math.exp(event.deltaY * 0.001));
    onturn();
  }, { passive: false });
}

// Arrow keys turn, with Shift up and down change the distance, Home resets; the answer is whether the key meant something.
export function turnByKey(camera, event) {
  const moves = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
  if (moves && event.shiftKey && moves[1]) camera.zoomBy(moves[1] > 0 ? 0.9 : 1 / 0.9);
  else if (moves) camera.orbit(KEY_PIXELS * moves[0], KEY_PIXELS * moves[1]);
  else if (event.key === "Home") camera.reset();
  else return false;
  return true;
}

// The buttons over a drawing of bodies.
export class ViewTools {
  constructor(camera, onturn) {
    this.camera = camera;
    const act = (change) => () => {
      change();
      this.show();
      onturn();
    };
    this.follow = iconButton("follow", "Follow the body", act(() => (camera.follow = !camera.follow)), { hidden: camera.given.body === null });
    this.node = el("div", { class: "view-tools", role: "group", "aria-label": "View" }, this.follow,
      iconButton("closer", "Closer", act(() => camera.zoomBy(0.8))), iconButton("further", "Further away", act(() => camera.zoomBy(1.25))),
      iconButton("reset", "Reset the view", act(() => camera.reset())));
    this.show();
  }

  show() {
    setPressed(this.follow, this.camera.follow);
  }
}
