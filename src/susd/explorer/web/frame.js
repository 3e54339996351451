// What frames the page: the header, the transport bar below the drawing, the help.
import { choice, el, iconButton, labelled, setIcon, setPressed, textButton } from "./ui.js";

const THEMES = ["auto", "light", "dark"];

export function buildHeader(app) {
  const record = iconButton("record", "Record a video", () => app.toggleRecord("video"), { "aria-pressed": "false", hidden: !app.recorder.supported });
  const gif = iconButton("gif", "Record a GIF", () => app.toggleRecord("gif"), { "aria-pressed": "false" });
  const theme = iconButton("theme", "Light or dark", () => {
    const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme || "auto") + 1) % 3];
    document.documentElement.dataset.theme = next;
    theme.title = `Theme: ${next}`;
    app.redraw(true);
  });
  const title = el("h1", {});
  const tools = el("div", { class: "header-tools" },
    app.hello.can.link ? textButton("link", "Copy link", () => app.copyLink(), { title: "A link that restores what is seen" }) : null,
    app.hello.can.python ? textButton("code", "Copy as Python", () => app.copyPython()) : null,
    record, gif, theme, iconButton("help", "Help and keys", () => app.help.showModal()));
  return { node: el("header", { class: "top" }, title, tools), title, record, gif };
}

export function showHeader(app) {
  const { run } = app.hello, others = app.versus ? [] : app.stages.slice(1).map((stage) => stage.hello.run.method_title);
  const details = `${run.name} · seed ${run.seed} · ${run.epoch} epochs`;
  const method = [run.method_title, ...others].join(" beside ");
  app.header.title.replaceChildren(el("span", { class: "brand" }, "susd"), el("span", { class: "title" }, run.env_title), el("span", { class: "method" }, method), el("span", { class: "details" }, details));
  document.title = `${run.env_title} · ${method} · susd`;
}

export function buildTransport(app) {
  const play = iconButton("play", "Play", () => app.play(!app.playing), { class: "icon-button primary" });
  const time = el("output", { class: "time", "aria-label": "Step" }, "0");
  const rate = el("input", { type: "range", min: 1, max: 60, step: 1, "aria-label": "Steps per second", oninput: () => app.setRate(Number(rate.value)) });
  const rateValue = el("output", { class: "rate" });
  const sampled = el("input", { type: "checkbox", onchange: () => app.setSampled(sampled.checked) });
  const layouts = app.hello.layouts.choices;
  const layout = choice(layouts, (value) => app.changeEpisode({ layout: value }), { "aria-label": "Start" });
  const seed = el("input", { type: "number", min: 0, max: 2147483647, step: 1, value: 0, "aria-label": "Seed", onchange: () => app.changeEpisode({ seed: Math.max(0, Math.min(2147483647, Math.round(Number(seed.value) || 0))) }) });
  const node = el("div", { class: "transport", role: "group", "aria-label": "Episode" },
    el("div", { class: "row" }, play, iconButton("step", "One step", () => app.single()), iconButton("reset", "Reset the episode", () => app.reset()),
      el("span", { class: "clock" }, el("span", {}, "step "), time), el("span", { class: "speed" }, rate, rateValue)),
    el("div", { class: "row" }, layouts.length ? labelled("Start", layout) : null, app.hello.can.layouts ? labelled("Seed", seed) : null,
      app.hello.can.sampled ? el("label", { class: "check" }, sampled, el("span", {}, "Sampled actions")) : null),
    el("p", { class: "hint world-hint" }, hintOf(app.hello)));

  function show() {
    setIcon(play, app.playing ? "pause" : "play");
    for (const name of ["aria-label", "title"]) play.setAttribute(name, app.playing ? "Pause" : "Play");
    setPressed(play, app.playing);
    rate.value = app.rate;
    rateValue.textContent = `${app.rate} steps/s`;
    sampled.checked = app.control.sampled;
    layout.value = app.episode.layout;
    if (document.activeElement !== seed) seed.value = app.episode.seed;
  }
  return { node, time, show };
}

function hintOf(hello) {
  const turn = hello.scene.kind === "bodies" ? " Drag the drawing to turn the view." : "";
  return `${steeringHint(hello)}${turn}`;
}

function steeringHint(hello) {
  const where = hello.scene.kind === "image" ? "in the corner of the drawing" : hello.scene.kind === "bodies" ? "on the ground" : "in the drawing";
  if (hello.handles.length) return `Drag a pad to steer. Choose a part and click ${where}, or in its map, to send it there.`;
  return hello.can.maps && hello.can.goals ? "Drag a pad to steer, or click in a map of phi to send a part there." : "Use the pads to steer.";
}

const HELP_KEYS = [
  ["Space", "play or pause"], [".", "one step"], ["R", "reset the episode"], ["+ −", "faster or slower"],
  ["1 … 9, 0", "choose a part and its pad"], ["← →", "turn the chosen pad"], ["↑ ↓", "pace of a disc"],
  ["F", "freeze the part"], ["G", "sweep it round"], ["X", "randomise all"], ["U", "undo"],
  ["M", "mean or sampled actions"], ["K", "act by hand with raw actions, Esc to stop"],
  ["Drag", "turn the view; wheel or pinch: closer or further"], ["← → ↑ ↓", "in the drawing: turn the view; Home resets it"], ["?", "this help"],
];

export function helpDialog(app) {
  const { can, scene } = app.hello, without = [can.sampled ? "" : "M", can.raw ? "" : "K"];
  const shown = ([key, text]) => !without.includes(key) && (scene.kind === "bodies" || !text.includes("the view"));
  const rows = HELP_KEYS.filter(shown).map(([key, text]) => el("div", { class: "key-row" }, el("dt", {}, el("kbd", {}, key)), el("dd", {}, text)));
  const dialog = el("dialog", { class: "help", "aria-label": "Help" },
    el("h2", {}, "How to steer"),
    el("p", {}, "A skill has one part for every factor of the environment. Drag a pad and that factor should move, while the others go on as before. “What else moved?” shows whether that is so."),
    el("p", {}, "The small map beside a pad is phi: what the method has learned about the factor. The pale lines are where skills lead, the dot is where it is now.", can.goals ? " Click a place to send the factor there." : ""),
    el("dl", { class: "keys" }, ...rows),
    textButton(null, "Close", () => dialog.close()));
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  return dialog;
}
