"""Zero-shot goals: states to reach that nothing was trained for. In every step phi gives the direction, the skill.

Ant and HalfCheetah have the paper's protocols, with rewards for positions; `state_goals` has the one of all environments.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from susd.config import MAX_SEED
from susd.envs.base import EnvSpec
from susd.errors import UserError
from susd.evaluation import state_goals
from susd.evaluation.registry import OF_SEED, Artifacts, Evaluation, Fact, Option, Result
from susd.methods.base import Method
from susd.runs.tables import Row, Table, seed_table
from susd.tasks.goals import RULES, GoalTask, Rules
from susd.training.goals import goal_values, read_goal
from susd.viz import figures

if TYPE_CHECKING:
    from susd.envs.mujoco.bodies import Body
    from susd.methods.registry import Card
    from susd.training.agent import Agent

SEEDS = 8  # environment seeds, in as many parallel environments
STEPS = 20_000  # of every seed
MAX_GOALS, MAX_STEPS = 100_000, 1_000_000
POINTS = 200  # of a curve
QUANTILE = 2.364624  # Student's t with SEEDS - 1 degrees of freedom, 97.5 %
SELECTIONS = {  # how a skill is selected in the paper's protocols
    "goal": "skill for the goal",
    "random_skill": "random skill",
    "as_released": "goal as released",
}

Select = Callable[..., jax.Array]  # (params, obs, goal, new, skill, key) -> skill, all [W, ..] except params and key


class Trajectory(NamedTuple):
    """The rewards of W environments, step by step, and their goals."""

    rewards: np.ndarray  # [T, W]
    offered: np.ndarray  # [W]
    reached: np.ndarray  # [W]


def towards(method: Method, axes: tuple[int, ...]) -> Select:
    """z from phi(g) - phi(s), where g is s with the position replaced by the goal, in the units of the observation."""
    skills = method.skills

    def select(params: Any, obs: jax.Array, goal: jax.Array, *_: Any) -> jax.Array:
        there, here = jnp.split(method.encode(params, jnp.concatenate([obs.at[:, jnp.array(axes)].set(goal), obs])), 2)
        direction = there - here
        if skills.prior == "gaussian":  # the length of a typical skill, since only the direction is known
            direction *= skills.size**0.5 / jnp.maximum(jnp.linalg.norm(direction, axis=-1, keepdims=True), 1e-8)
        return skills.project(direction)

    return select


def at_random(method: Method) -> Select:
    """The control: a skill from the prior, independent of the goal, and a new one for every goal."""

    def select(params: Any, obs: jax.Array, goal: jax.Array, new: jax.Array, skill: jax.Array, key: jax.Array) -> jax.Array:
        return jnp.where(new[:, None], method.skills.sample(key, obs.shape[0]), skill)

    return select


def play(
    agent: Agent, env: Body, rules: Rules, select: Select, normalised: bool = True, seed: int = 0, steps: int = STEPS
) -> Trajectory:
    """Run the goal task with sampled actions; environment w has the seed `seed + w` and resets on its own.

    With `normalised` False the goal is written into the observation in metres.
    """
    policy, axes = agent.trainer.policy, list(env.axes)
    scaling = env.spec.scaling
    assert scaling is not None
    mean, std = (np.array(x)[axes] if normalised else default for x, default in ((scaling.mean, 0.0), (scaling.std, 1.0)))

    @jax.jit
    def act(actor: Any, params: Any, obs: Any, goal: Any, new: Any, skill: Any, step: Any) -> tuple[jax.Array, jax.Array]:
        k_skill, k_action = jax.random.split(jax.random.fold_in(jax.random.key(seed), step))
        skill = select(params, obs, goal, new, skill, k_skill)
        return policy(actor)(obs, skill, k_action), skill

    random = [np.random.default_rng(seed + index) for index in range(env.num_envs)]
    task = GoalTask(rules, random)

    def restart(ids: np.ndarray) -> np.ndarray:
        obs = env.restart(ids, [int(random[index].integers(MAX_SEED)) for index in ids])
        task.begin(ids, env.positions[ids])
        return obs

    obs, seen = restart(np.arange(env.num_envs)), np.zeros(env.num_envs, int)
    skill: Any = np.zeros((env.num_envs, agent.trainer.learner.method.skills.size), np.float32)
    rewards = np.zeros((steps, env.num_envs))
    for step in range(steps):
        goal, new, seen = np.float32((task.goals - mean) / std), task.offered != seen, task.offered.copy()
        action, skill = act(agent.actor, agent.params, obs, goal, new, skill, np.int32(step))
        obs = env.step(np.asarray(action)).obs
        rewards[step], over = task.score(env.positions)
        if over.any() and step < steps - 1:
            ids = np.flatnonzero(over)
            obs[ids] = restart(ids)
    return Trajectory(rewards, task.offered, task.reached)


def interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over the first axis, of SEEDS entries, and the ends of its 95 % t-interval."""
    mean = values.mean(axis=0)
    half = QUANTILE * values.std(axis=0, ddof=1) / SEEDS**0.5
    return mean, mean - half, mean + half


def summarise(found: Trajectory) -> Result:
    """Cumulative rewards at up to POINTS steps, totals and goals; entries of a list are environment seeds."""
    steps = len(found.rewards)
    shown = np.unique(np.ceil(np.linspace(0, steps, min(POINTS, steps) + 1)[1:]).astype(int))
    curves = found.rewards.cumsum(axis=0)[shown - 1].T
    mean, low, high = interval(curves)
    return {
        "mean": float(mean[-1]),
        "interval": [float(low[-1]), float(high[-1])],
        "totals": curves[:, -1].tolist(),
        "goals_offered": found.offered.tolist(),
        "goals_reached": found.reached.tolist(),
        "curves": {
            "steps": shown.tolist(),
            "seeds": curves.tolist(),
            **{name: line.tolist() for name, line in (("mean", mean), ("low", low), ("high", high))},
        },
    }


def measure(
    agent: Agent,
    seed: int = 0,
    steps: int = 0,
    goal: str = "",
    goals: int = state_goals.GOALS,
    tolerance: float = state_goals.TOLERANCE,
) -> Result:
    """The protocol of the paper in its environments; goals from visited states in all others; or the goal that is given."""
    if agent.trainer.env.spec.name in RULES and not goal:
        return measure_positions(agent, seed, steps or STEPS)
    return {f"--goal {goal}" if goal else "states": state_goals.measure(agent, seed, goal, steps, goals, tolerance)}


def measure_positions(agent: Agent, seed: int = 0, steps: int = STEPS) -> Result:
    """Skills for the goal, compared with random skills and, for Ant, with the goal as the released code writes it."""
    from susd.envs.mujoco.bodies import Body
    from susd.training.trainer import build_env

    env = build_env(dataclasses.replace(agent.trainer.config, episodes=SEEDS))
    assert isinstance(env, Body)
    method, rules = agent.trainer.learner.method, RULES[env.name]
    direct = towards(method, env.axes)
    selections: dict[str, tuple[Select, bool]] = {"goal": (direct, True), "random_skill": (at_random(method), True)}
    if env.name == "ant":
        selections["as_released"] = (direct, False)
    return {name: summarise(play(agent, env, rules, *how, seed, steps)) for name, how in selections.items()}


def draw(path: Path, spec: EnvSpec, result: Result, artifacts: Artifacts) -> None:
    """The rewards of a protocol of the paper, or the goals reached; those of a given goal have a figure of their own."""
    if "goal" in result:
        return _draw_rewards(path, spec, result)
    ((name, found),) = result.items()
    state_goals.draw(path if name == "states" else path.with_stem(f"{path.stem}-goal"), found)


def _draw_rewards(path: Path, spec: EnvSpec, result: Result) -> None:
    """Reward so far over environment steps: every seed and the mean for the goal, the mean for the other selections."""
    with figures.drawing(path, figures.WIDTH, 3.4) as figure:
        axes = figure.add_subplot()
        for order, (name, values) in enumerate(result.items()):
            colour, style, lines = figures.PALETTE[order], ("-", "--", ":")[order], values["curves"]
            for seed in lines["seeds"] if name == "goal" else ():
                axes.plot([0, *lines["steps"]], [0, *seed], color=colour, linewidth=0.6, alpha=0.6)
            label = f"{SELECTIONS[name]}, {lines['mean'][-1]:.0f}"
            axes.plot([0, *lines["steps"]], [0, *lines["mean"]], color=colour, linestyle=style, linewidth=2.2, label=label)
        axes.set(xlabel="environment steps", ylabel="reward so far")
        axes.margins(x=0.01)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="upper left")
        axes.set_title(f"Zero-shot goals, {RULES[spec.name].name}: {SEEDS} seeds (thin) and means (thick)")


def facts(result: Result) -> Iterator[Fact]:
    """For each selection the reward so far, mean over environment seeds, at a fifth of the points; the final interval.

    Goals that are states have the facts of `state_goals`.
    """
    for name, values in result.items():
        if name not in SELECTIONS:
            yield from state_goals.facts(values)
            continue
        points = list(zip(values["curves"]["steps"], values["curves"]["mean"], strict=True))
        yield from ((name, step, "reward", value) for step, value in points[::-5][::-1])
        ends = zip(("reward_low", "reward_high"), values["interval"], strict=True)
        yield from ((name, points[-1][0], end, value) for end, value in ends)


def tables(report: Result) -> list[Table]:
    """One row per selection in the paper's protocols, otherwise one per goal."""
    results = report["results"]
    names = dict.fromkeys(name for one in results for name in one if name not in (*OF_SEED, *SELECTIONS))
    found = [state_goals.table([(one["seed"], one[name]) for one in results if name in one]) for name in names]
    return [*_reward_tables(report), *found]


def _reward_tables(report: Result) -> list[Table]:
    rows: list[tuple[int, Row]] = []
    steps = 0
    for one in report["results"]:
        for name in (name for name in SELECTIONS if name in one):
            values = one[name]
            steps = values["curves"]["steps"][-1]
            low, high = values["interval"]
            offered, reached = sum(values["goals_offered"]), sum(values["goals_reached"])
            share = f"{reached} of {offered} ({100 * reached / offered:.0f}%)"
            rows.append((one["seed"], (SELECTIONS[name], f"{values['mean']:.1f}", f"{low:.1f} to {high:.1f}", share)))
    if not rows:
        return []
    rules = RULES[report["config"]["env"]]
    title = f"Zero-shot goals, {rules.name}: reward of {steps} steps, mean of {SEEDS} environment seeds"
    return [seed_table(title, ("selection", "reward", "95 % interval", "goals reached"), rows)]


def check_steps(steps: int) -> None:
    """Refuse a negative or very large number of steps."""
    if not 0 <= steps <= MAX_STEPS:
        raise UserError(f"--steps is {steps}; it must be from 1 to {MAX_STEPS}, or 0 for the default")


def check_goal(text: str) -> None:
    """Refuse what cannot be read as a goal; its names are checked when the environment is known."""
    if text:
        goal_values(text)


def check_goals(goals: int) -> None:
    """Refuse a number of goals that is not positive, or too large for the memory."""
    if not 1 <= goals <= MAX_GOALS:
        raise UserError(f"--goals is {goals}; it must be from 1 to {MAX_GOALS}")


def check_tolerance(tolerance: float) -> None:
    """Refuse a tolerance that is not positive."""
    if not tolerance > 0:
        raise UserError(f"--tolerance is {tolerance}; it must be above 0")


def check_run(spec: EnvSpec, card: Card, options: Mapping[str, Any]) -> None:
    """Refuse a goal whose names or values are not those of the environment."""
    if options["goal"]:
        read_goal(spec, options["goal"])


def undefined(env: str | EnvSpec, card: Card) -> str:
    """It needs an embedding whose differences are directions for skills."""
    return card.without_goals


EVALUATION = Evaluation(
    name="zero-shot",
    title="Zero-shot goals",
    summary="reach goals that nothing was trained for, with the skill that the embedding points to",
    measure=measure,
    draw=draw,
    tables=tables,
    facts=facts,
    options=(
        Option(
            "goal",
            "",
            "target state, such as door=1.0,cart=0.2:0.3; instead of goals from states that skills visit",
            check_goal,
        ),
        Option(
            "goals", state_goals.GOALS, "goals, or with --goal episodes; not in the protocols of the paper", check_goals
        ),
        Option(
            "tolerance",
            state_goals.TOLERANCE,
            "share of a factor's spread within which its goal is reached",
            check_tolerance,
        ),
        Option(
            "steps",
            0,
            f"steps of an episode, 0: those of training; in protocols of the paper of each environment seed, 0: {STEPS}",
            check_steps,
        ),
    ),
    seconds=180.0,
    undefined=undefined,
    check_run=check_run,
    accumulates=True,
    section="susd.report.sections.skills:zero_shot",
)
