// Task mode: choose a task, see its reward, let a saved policy or the scripted expert play, or play against it.
import { choice, el, fitCanvas, labelled, textButton, themeColours, withAlpha } from "./ui.js";

const PLAYERS = { skill: "You, with the pads", raw: "You, with raw actions", expert: "The scripted expert" };

export class TaskPanel {
  constructor(app) {
    this.app = app;
    this.rewards = [];
    const tasks = app.hello.tasks;
    this.select = choice([{ value: "", label: "no task" }, ...tasks.map((task) => ({ value: task.name, label: task.title }))], (name) => app.chooseTask(name), { "aria-label": "Task" });
    this.player = el("select", { "aria-label": "Who plays", onchange: () => app.choosePlayer(this.player.value) });
    this.summary = el("p", { class: "hint" });
    this.score = el("p", { class: "score", "aria-live": "off" });
    this.chart = el("canvas", { class: "reward-chart", role: "img", "aria-label": "Total reward over time" });
    this.against = textButton(null, "Play against it", () => app.playAgainst());
    this.rest = el("div", { class: "task-rest", hidden: true }, this.summary, el("div", { class: "row" }, labelled("Who plays", this.player), this.against), this.score, this.chart);
    const withheld = app.hello.reasons.tasks;
    this.node = el("div", { class: "tasks" }, el("div", { class: "row" }, labelled("Task", this.select)), withheld ? el("p", { class: "hint" }, withheld) : null, this.rest);
  }

  // The players of a task; an opponent is a saved policy, or the expert where there is none.
  update() {
    const task = this.app.task;
    this.select.value = task ? task.name : "";
    this.rest.hidden = !task;
    if (!task) return;
    this.summary.textContent = `${task.summary} An episode has at most ${task.horizon} steps.`;
    const options = [["skill", PLAYERS.skill], ["raw", PLAYERS.raw]];
    if (task.expert) options.push(["expert", PLAYERS.expert]);
    for (const policy of task.policies) options.push([`policy:${policy.id}`, `Learned: ${policy.label}, layout ${policy.layout} (total ${policy.score})`]);
    this.player.replaceChildren(...options.map(([value, label]) => el("option", { value }, label)));
    const { player, policy } = this.app.control;
    this.player.value = player === "policy" ? `policy:${policy}` : player;
    this.against.hidden = !this.opponent;
    this.against.querySelector("span").textContent = this.app.versus ? "Stop playing against it" : `Play against ${task.policies.length ? "the learned policy" : "the expert"}`;
  }

  get opponent() {
    const task = this.app.task;
    if (!task) return null;
    if (task.policies.length) return { player: "policy", policy: task.policies[0].id };
    return task.expert ? { player: "expert" } : null;
  }

  reset() {
    this.rewards = [];
  }

  show(stages) {
    const task = this.app.task;
    if (!task || !stages[0].frame) return;
    const totals = stages.map((stage) => stage.frame.total);
    this.rewards.push([stages[0].frame.time, ...totals]);
    const best = task.best === null ? "" : ` of at most ${(task.best * stages[0].frame.time).toFixed(0)} so far`;
    const words = [`Step ${stages[0].frame.time} of ${task.horizon}`, `reward ${stages[0].frame.reward.toFixed(2)}`, `total ${totals[0].toFixed(1)}${best}`];
    if (totals.length > 1) words.push(`${this.app.versus ? "opponent" : "other run"} ${totals[1].toFixed(1)}`);
    this.score.textContent = words.join(" · ");
    this.draw(task);
  }

  draw(task) {
    fitCanvas(this.chart, (context, width, height) => {
      const theme = themeColours(), rows = this.rewards;
      const values = rows.flatMap((row) => row.slice(1));
      const top = Math.max(1e-6, ...values, task.best === null ? 0 : task.best * rows[rows.length - 1][0]), bottom = Math.min(0, ...values);
      const at = (time, value) => [(width * time) / task.horizon, height - 2 - ((height - 4) * (value - bottom)) / (top - bottom)];
      const line = (points, colour, dash = []) => {
        context.beginPath();
        points.forEach((point, i) => (i ? context.lineTo(...at(...point)) : context.moveTo(...at(...point))));
        context.strokeStyle = colour;
        context.setLineDash(dash);
        context.lineWidth = 2;
        context.stroke();
      };
      line([[0, 0], [task.horizon, 0]], theme.line);
      if (task.best !== null) line([[0, 0], [rows[rows.length - 1][0], task.best * rows[rows.length - 1][0]]], withAlpha(theme.pale, 0.6), [3, 3]);
      const names = [theme.accent, theme.pale];
      for (let k = (rows[0] || []).length - 2; k >= 0; k--) line(rows.map((row) => [row[0], row[k + 1]]), names[k]);
      context.setLineDash([]);
    });
  }
}
