// What is on the screen as Python: the same skill, observation and action.
import { describePart, partOf } from "./skills.js";

function numbers(values) {
  return `[${values.map((x) => Number(x.toPrecision(6))).join(", ")}]`;
}

export function asPython(stage, skill, goals) {
  const { hello, frame } = stage, { run, env } = hello;
  const words = hello.parts.map((part, i) => `${part.name} ${describePart(part, partOf(hello, skill, i))}`).slice(0, 4).join(", ");
  const lines = [
    "import numpy as np",
    "import susd",
    "",
    `agent = susd.load(${JSON.stringify(run.path)}, seed=${run.seed})`,
    `skill = np.array(${numbers(skill)}, np.float32)  # ${words}`,
    `obs = np.array(${numbers(frame.obs)}, np.float32)  # the observation at step ${frame.time}`,
  ];
  if (env.scaled) lines.push("obs = agent.trainer.env.spec.scaling.normalise(obs)  # from raw units");
  const placed = hello.handles.filter((handle) => handle.kind === "point" && goals[handle.part] && goals[handle.part].to);
  if (!placed.length) return [...lines, "action = agent.act(obs, skill)  # the mean action, in [-1, 1]", ""].join("\n");
  const entries = placed.flatMap((handle) => {
    const factor = env.factors.find((one) => one.indices.includes(handle.x)), to = goals[handle.part].to;
    return [handle.x, handle.y].filter((index) => index !== null).map((index, axis) => `"${factor.name}[${factor.indices.indexOf(index)}]": ${to[axis]}`);
  });
  return [...lines, `goal = {${entries.join(", ")}}`, "action = agent.act_towards(obs, goal, skill)  # the mean action towards the goal", ""].join("\n");
}
