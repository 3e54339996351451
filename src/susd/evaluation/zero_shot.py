"""`susd zero-shot RUN`: goals in the world that nobody trained for. In every step the skill is the way phi says it lies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from susd.config import MAX_SEED, Config
from susd.envs.mujoco.bodies import Body
from susd.errors import UserError
from susd.evaluation import NO_EMBEDDING, ZERO_SHOT
from susd.methods.base import Method
from susd.methods.registry import METHODS
from susd.runs.folder import RunFolder, write_json
from susd.tasks.goals import RULES, GoalTask, Rules
from susd.training.agent import Agent, load_all
from susd.training.build import build_env
from susd.training.resources import use_compilation_cache
from susd.viz import figures

SEEDS = 8  # environment seeds, side by side in as many worlds
STEPS = 20_000  # of every seed
POINTS = 200  # of a curve
QUANTILE = 2.364624  # Student's t with SEEDS - 1 degrees of freedom, 97.5 %

Result = dict[str, Any]
Choose = Callable[..., jax.Array]  # (params, obs, goal, fresh, skill, key) -> skill, all [W, ..] but params and key


class Trajectory(NamedTuple):
    """What W worlds were paid, step by step, and their goals."""

    rewards: np.ndarray  # [T, W]
    offered: np.ndarray  # [W]
    reached: np.ndarray  # [W]


def towards(method: Method, axes: tuple[int, ...]) -> Choose:
    """z from phi(g) - phi(s), where g is s with the place replaced by the goal, in the units of the observation."""
    skills = method.skills

    def choose(params: Any, obs: jax.Array, goal: jax.Array, *_: Any) -> jax.Array:
        there, here = jnp.split(method.encode(params, jnp.concatenate([obs.at[:, jnp.array(axes)].set(goal), obs])), 2)
        way = there - here
        if skills.prior == "gaussian":  # which has no length of its own: that of a usual skill
            way *= skills.size**0.5 / jnp.maximum(jnp.linalg.norm(way, axis=-1, keepdims=True), 1e-8)
        return skills.project(way)

    return choose


def at_random(method: Method) -> Choose:
    """The control: a skill from the prior that is blind to the goal, and a new one for every goal."""

    def choose(
        params: Any, obs: jax.Array, goal: jax.Array, fresh: jax.Array, skill: jax.Array, key: jax.Array
    ) -> jax.Array:
        return jnp.where(fresh[:, None], method.skills.sample(key, obs.shape[0]), skill)

    return choose


def play(
    agent: Agent, env: Body, rules: Rules, choose: Choose, normalised: bool = True, seed: int = 0, steps: int = STEPS
) -> Trajectory:
    """Run the goal task with sampled actions; world w has the environment seed `seed + w`. A world restarts alone.

    With `normalised` False the goal is written into the observation in metres.
    """
    policy, axes = agent.trainer.policy, list(env.axes)
    scaling = env.spec.scaling
    assert scaling is not None
    mean, std = (np.array(x)[axes] if normalised else default for x, default in ((scaling.mean, 0.0), (scaling.std, 1.0)))

    @jax.jit
    def act(actor: Any, params: Any, obs: Any, goal: Any, fresh: Any, skill: Any, step: Any) -> tuple[jax.Array, jax.Array]:
        k_skill, k_action = jax.random.split(jax.random.fold_in(jax.random.key(seed), step))
        skill = choose(params, obs, goal, fresh, skill, k_skill)
        return policy(actor)(obs, skill, k_action), skill

    random = [np.random.default_rng(seed + world) for world in range(env.num_envs)]
    task = GoalTask(rules, random)

    def restart(ids: np.ndarray) -> np.ndarray:
        obs = env.restart(ids, [int(random[world].integers(MAX_SEED)) for world in ids])
        task.begin(ids, env.places[ids])
        return obs

    obs, seen = restart(np.arange(env.num_envs)), np.zeros(env.num_envs, int)
    skill: Any = np.zeros((env.num_envs, agent.trainer.learner.method.skills.size), np.float32)
    rewards = np.zeros((steps, env.num_envs))
    for step in range(steps):
        goal, fresh, seen = np.float32((task.goals - mean) / std), task.offered != seen, task.offered.copy()
        action, skill = act(agent.learner.sac.actor, agent.learner.params, obs, goal, fresh, skill, np.int32(step))
        obs = env.step(np.asarray(action)).obs
        rewards[step], over = task.score(env.places)
        if over.any() and step < steps - 1:
            ids = np.flatnonzero(over)
            obs[ids] = restart(ids)
    return Trajectory(rewards, task.offered, task.reached)


def interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over the first axis, of SEEDS entries, and the ends of its 95 % t-interval."""
    mean = values.mean(axis=0)
    half = QUANTILE * values.std(axis=0, ddof=1) / SEEDS**0.5
    return mean, mean - half, mean + half


def summarise(course: Trajectory) -> Result:
    """Cumulative rewards at up to POINTS steps, totals and goals; entries of a list are seeds."""
    steps = len(course.rewards)
    shown = np.unique(np.ceil(np.linspace(0, steps, min(POINTS, steps) + 1)[1:]).astype(int))
    curves = course.rewards.cumsum(axis=0)[shown - 1].T
    mean, low, high = interval(curves)
    return {
        "mean": float(mean[-1]),
        "interval": [float(low[-1]), float(high[-1])],
        "totals": curves[:, -1].tolist(),
        "goals_offered": course.offered.tolist(),
        "goals_reached": course.reached.tolist(),
        "curves": {
            "steps": shown.tolist(),
            "seeds": curves.tolist(),
            **{name: line.tolist() for name, line in (("mean", mean), ("low", low), ("high", high))},
        },
    }


def evaluate_zero_shot(agent: Agent, env: Body, seed: int = 0, steps: int = STEPS) -> Result:
    """Skills chosen for the goal, beside skills at random and, for Ant, the goal as the released program writes it."""
    method, rules = agent.trainer.learner.method, RULES[env.name]
    way = towards(method, env.axes)
    ways: dict[str, tuple[Choose, bool]] = {"goal": (way, True), "random_skill": (at_random(method), True)}
    if env.name == "ant":
        ways["as_released"] = (way, False)
    return {name: summarise(play(agent, env, rules, *chosen, seed, steps)) for name, chosen in ways.items()}


def check(config: Config, seed: int) -> None:
    """Refuse what has no such goals, or no phi to find the way with."""
    if config.env not in RULES:
        raise UserError(f"zero-shot goals are defined in {' and '.join(RULES)}; this run is in {config.env!r}")
    if METHODS[config.method].code in NO_EMBEDDING:
        having = ", ".join(card.name for card in METHODS.values() if not card.base and card.name not in NO_EMBEDDING)
        raise UserError(
            f"zero-shot goals need an embedding whose differences are directions, which {config.method} has not; "
            f"methods with one: {having}"
        )
    if not 0 <= seed <= MAX_SEED - SEEDS:
        raise UserError(f"--seed is {seed}; it must be from 0 to {MAX_SEED - SEEDS}")


def zero_shot(run: str | Path, seed: int = 0, steps: int = STEPS) -> Result:
    """Evaluate a run; writes RUN/evaluation/zero-shot.json and RUN/figures/zero-shot.png and returns the JSON."""
    folder = RunFolder.open(Path(run))
    config = Config.from_json(folder.config)
    check(config, seed)
    use_compilation_cache()
    env = build_env(dataclasses.replace(config, episodes=SEEDS))
    assert isinstance(env, Body)
    results: list[Result] = []
    for agent in load_all(folder.path):
        results.append({"seed": agent.seed, "epoch": agent.epoch, **evaluate_zero_shot(agent, env, seed, steps)})
    rules = RULES[env.name]
    curves = {name: one["curves"] for name, one in results[0].items() if name not in ("seed", "epoch")}
    figures.zero_shot(folder.figures / "zero-shot.png", rules.name, curves)
    report = {
        "evaluation": ZERO_SHOT,
        "run": folder.path.name,
        "evaluation_seed": seed,
        "task": dataclasses.asdict(rules),
        "steps": steps,
        "environment_seeds": [seed + world for world in range(SEEDS)],
        "results": results,
        "config": folder.config,
        "meta": folder.meta,
    }
    path = folder.path / "evaluation" / "zero-shot.json"
    path.parent.mkdir(exist_ok=True)
    write_json(path, report)
    return report
