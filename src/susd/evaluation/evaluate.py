"""`susd evaluate RUN coverage|control`: measure a trained run, write JSON and figures into its folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from susd import figures, video
from susd.agent import Agent, load_all
from susd.collect import Policy, rollout
from susd.envs.base import Environment
from susd.errors import UserError
from susd.evaluation import control, coverage
from susd.machine import use_compilation_cache
from susd.runlog import RunFolder, write_json

Result = dict[str, Any]
MAX_STEPS = 2_000_000  # a hundred times the paper's; all observations are in memory together


def functional(agent: Agent) -> Environment:
    """The agent's environment, if trajectories can be run in one compiled scan."""
    if not isinstance(agent.program.env, Environment):
        raise UserError(f"this evaluation needs a functional environment; {agent.program.env.spec.name} is not one")
    return agent.program.env


def untrained_actor(agent: Agent) -> Any:
    """The actor as it was before the first gradient step of the same seed."""
    return jax.jit(lambda seed: agent.program.init(seed).learner.sac.actor)(jnp.int32(agent.seed))  # without a replay


def random_actions(action_size: int) -> Policy:
    """Uniform actions that ignore everything."""
    return lambda obs, _, key: jax.random.uniform(key, (obs.shape[0], action_size), minval=-1.0, maxval=1.0)


def check_steps(steps: int) -> None:
    """Refuse a number of steps that is not a number of whole skills, or that no memory holds."""
    if steps < coverage.PERIOD or steps % coverage.PERIOD:
        raise UserError(f"--steps is {steps}; it must be a multiple of {coverage.PERIOD}, the length of one skill")
    if steps > MAX_STEPS:
        raise UserError(f"--steps is {steps}; it must be at most {MAX_STEPS}")


def evaluate_coverage(agent: Agent, seed: int = 0, steps: int = coverage.STEPS) -> tuple[Result, dict[str, np.ndarray]]:
    """Coverage of sampled and of mean actions beside the untrained policy and random actions; also visits per cell."""
    env, program = functional(agent), agent.program
    check_steps(steps)
    trained, untrained = agent.learner.sac.actor, untrained_actor(agent)

    def run(policy: Callable[[Any], Policy]) -> Callable[..., jax.Array]:  # weights are arguments: compiled only once
        skills = program.learner.method.skills
        return jax.jit(lambda actor, key: coverage.trajectories(env, policy(actor), skills, key, steps))

    mean, sampled = run(lambda actor: program.policy(actor, sampled=False)), run(program.policy)
    random = run(lambda _: random_actions(env.spec.action_size))
    courses = {
        "trained, mean actions": (mean, trained),
        "trained, sampled actions": (sampled, trained),
        "untrained, mean actions": (mean, untrained),
        "untrained, sampled actions": (sampled, untrained),
        "random actions": (random, None),
    }
    result: Result = {}
    grids: dict[str, np.ndarray] = {}
    for label, (function, actor) in courses.items():
        obs = function(actor, jax.random.key(seed))
        grids[label] = np.asarray(coverage.grid(env.spec, obs))
        result[label] = coverage.summarise(env.spec, np.asarray(obs))
    return result, grids


def evaluate_control(agent: Agent, seed: int = 0, pairs: int = control.PAIRS) -> tuple[Result, np.ndarray]:
    """Which part of the skill moves which factor, with mean actions over one training episode."""
    env, program = functional(agent), agent.program
    skills = program.learner.method.skills

    def run(actor: Any, key: jax.Array) -> control.Control:
        return control.control_matrix(env, program.policy(actor, sampled=False), skills, key, program.horizon, pairs)

    measured = jax.jit(run)(agent.learner.sac.actor, jax.random.key(seed))
    return control.summarise(env.spec, measured), np.asarray(measured.matrix)


def evaluate(run: str | Path, what: str, seed: int = 0, steps: int = coverage.STEPS) -> Result:
    """Evaluate every seed of a run; writes RUN/evaluation/WHAT.json and RUN/figures/WHAT.png and returns the JSON."""
    if what not in ("coverage", "control"):
        raise UserError(f"evaluation {what!r} is unknown; choose one of coverage, control")
    if not 0 <= seed < 2**31:
        raise UserError(f"--seed is {seed}; it must be from 0 to {2**31 - 1}")
    if what == "coverage":
        check_steps(steps)
    folder = RunFolder.open(Path(run))
    use_compilation_cache()
    agents = load_all(folder.path)
    spec = agents[0].program.env.spec
    results: list[Result] = []
    for index, agent in enumerate(agents):
        if what == "coverage":
            result, grids = evaluate_coverage(agent, seed, steps)
            shown = {k: v for k, v in grids.items() if k.endswith("mean actions") or k == "random actions"}
            if index == 0:
                figures.coverage_map(folder.figures / "coverage.png", spec, shown)
        else:
            result, matrix = evaluate_control(agent, seed)
            if index == 0:
                names = list(spec.factorization.names)
                parts = names if len(matrix) == len(names) else [f"part {i + 1}" for i in range(len(matrix))]
                figures.control_matrix(folder.figures / "control.png", parts, names, matrix, result.get("ratio"))
        results.append({"seed": agent.seed, "epoch": agent.epoch, **result})
    report = {
        "evaluation": what,
        "run": folder.path.name,
        "evaluation_seed": seed,
        "results": results,
        "config": folder.config,
        "meta": folder.meta,
    }
    path = folder.path / "evaluation" / f"{what}.json"
    path.parent.mkdir(exist_ok=True)
    write_json(path, report)
    return report


def pictures(run: str | Path, seed: int = 0) -> list[Path]:
    """Learning curves, trajectories coloured by skill, and a video of several skills; the paths written."""
    folder = RunFolder.open(Path(run))
    agent = load_all(folder.path)[0]
    paths = [figures.learning_curves(folder.figures / "learning_curves.png", folder.read_metrics())]
    if not isinstance(agent.program.env, Environment):
        return paths
    env, program = agent.program.env, agent.program
    skills = program.learner.method.skills
    drawn = skills.sample(jax.random.key(seed), 48)

    def course(actor: Any, skill: jax.Array) -> Any:
        return rollout(env, program.policy(actor, sampled=False), skill, program.horizon, jax.random.key(seed))

    states, transitions = jax.jit(course)(agent.learner.sac.actor, drawn)
    parts = np.asarray(skills.split(drawn))
    if env.spec.planes:
        obs = np.concatenate([np.asarray(transitions.obs[:1]), np.asarray(transitions.next_obs)])
        paths.append(figures.trajectories(folder.figures / "trajectories.png", env.spec, obs, parts, skills.discrete))
    tiles = 6
    titles = video.skill_titles(env.spec.factorization.names, parts[:tiles], skills.discrete)
    shown = jax.tree.map(lambda x: np.asarray(x[:, :tiles]), states)
    paths.append(video.skill_video(folder.videos / "skills.mp4", env, shown, titles))
    return paths
