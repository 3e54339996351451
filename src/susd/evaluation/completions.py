"""Completions: how often random skills happen to complete a task, although nothing rewarded them for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from susd.collect import batch_seed
from susd.envs.base import EnvSpec
from susd.envs.vector import is_functional
from susd.errors import UserError
from susd.evaluation.registry import OF_SEED, Artifacts, Evaluation, Fact, Result, env_name
from susd.runs.tables import Row, Table, seed_table
from susd.skills import SkillSpace
from susd.tasks.base import HostTask, Task
from susd.tasks.registry import make_task, tasks
from susd.types import Policy
from susd.viz import figures

if TYPE_CHECKING:
    from susd.methods.registry import Card
    from susd.training.agent import Agent

STEPS = 10_000  # of one repetition
REPETITIONS = 8
PERIOD = 50  # steps between two resets, each with a new skill


def count(task: Task, policy: Policy, skills: SkillSpace, key: jax.Array, steps: int = STEPS) -> jax.Array:
    """Steps with a reward above zero among `steps` steps of random skills, with a reset every 50 steps."""
    num_envs = steps // PERIOD
    k_skills, k_reset, k_steps = jax.random.split(key, 3)
    drawn = skills.sample(k_skills, num_envs)
    state = jax.vmap(task.reset)(jax.random.split(k_reset, num_envs))

    def one(state: Any, step_key: jax.Array) -> tuple[Any, jax.Array]:
        k_policy, k_task = jax.random.split(step_key)
        action = policy(jax.vmap(task.observe)(state), drawn, k_policy)
        state, reward = jax.vmap(task.step)(state, action, jax.random.split(k_task, num_envs))
        return state, jnp.sum(reward > 0)

    return jax.lax.scan(one, state, jax.random.split(k_steps, PERIOD))[1].sum()


def count_all(
    tasks: Sequence[HostTask], policy: Policy, skills: SkillSpace, key: jax.Array, steps: int = STEPS
) -> np.ndarray:
    """`count` for several tasks of the same host environment, which score the same steps; [tasks]."""
    env, total = tasks[0].environment, np.zeros(len(tasks), np.int64)
    left = drawn = steps // PERIOD  # skills
    k_skills, k_batches = jax.random.split(key)
    all_skills = np.asarray(skills.sample(k_skills, drawn))
    batch = 0
    while left:
        rows = np.arange(drawn - left, drawn - left + env.num_envs) % drawn
        counted = min(left, env.num_envs)  # the last batch is filled up with skills that are counted already
        seed, k_run = batch_seed(k_batches, batch)
        obs, keys = env.reset(seed), jax.random.split(k_run, PERIOD)
        for step in range(PERIOD):
            result = env.step(np.asarray(policy(obs, all_skills[rows], keys[step])))
            obs = result.obs
            total += [int(np.sum(task.reward(result)[:counted] > 0)) for task in tasks]
        left, batch = left - counted, batch + 1
    return total


def summarise(counts: np.ndarray) -> Result:
    """Mean and population standard deviation over the repetitions, as in the paper's table, and every count."""
    return {"mean": float(counts.mean()), "std": float(counts.std()), "counts": [int(c) for c in counts], "of": STEPS}


def measure(agent: Agent, seed: int = 0) -> Result:
    """Steps of 10,000 in which random skills, with sampled actions, complete each task of the environment."""
    env, trainer = agent.trainer.env, agent.trainer
    found: list[Any] = [make_task(name, env) for name, entry in tasks().items() if entry.env == env.spec.name]
    found = [task for task in found if task.completable]
    if not found:
        raise UserError(f"{env.spec.name} has no task that random skills could complete")
    keys = jax.random.split(jax.random.key(seed), REPETITIONS)
    skills, actor = trainer.learner.method.skills, agent.actor
    if not is_functional(env):
        counts = np.stack([count_all(found, trainer.policy(actor), skills, key) for key in keys], axis=1)
        return {task.name: summarise(row) for task, row in zip(found, counts, strict=True)}

    def run(actor: Any, task: Any) -> jax.Array:
        return jax.lax.map(lambda key: count(task, trainer.policy(actor), skills, key), keys)

    compiled = jax.jit(run, static_argnums=1)
    return {task.name: summarise(np.asarray(compiled(actor, task))) for task in found}


def draw(path: Path, spec: EnvSpec, result: Result, artifacts: Artifacts) -> None:
    """The mean of each task as a bar, and every repetition as a point."""
    names = list(result)
    with figures.drawing(path, figures.WIDTH, 0.5 * len(names) + 1.4) as figure:
        axes = figure.add_subplot()
        axes.barh(range(len(names)), [result[name]["mean"] for name in names], 0.6, color="#c5dcec")
        for row, name in enumerate(names):
            counts = result[name]["counts"]
            axes.scatter(counts, np.full(len(counts), row), s=18, color=figures.INK, zorder=3)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.set_xlabel(f"steps of {STEPS:,}")
        axes.spines[["top", "right"]].set_visible(False)
        figure.suptitle("Tasks that random skills complete (bar: mean, points: repetitions)")


def facts(result: Result) -> Iterator[Fact]:
    """Mean and standard deviation of each task; `step` is the length of a repetition."""
    for task, values in result.items():
        yield from ((task, values["of"], name, values[name]) for name in ("mean", "std"))


def report_tables(report: Result) -> list[Table]:
    """One row per task."""
    rows: list[tuple[int, Row]] = []
    for one in report["results"]:
        for task, values in one.items():
            if task not in OF_SEED:
                row = (task, f"{values['mean']:.1f}", f"{values['std']:.1f}", str(values["of"]))
                rows.append((one["seed"], row))
    title = f"Completions: steps in which random skills complete a task; {REPETITIONS} repetitions"
    return [seed_table(title, ("task", "steps completed", "std", "of"), rows)]


def undefined(env: str | EnvSpec, card: Card) -> str:
    """Completions need a registered task."""
    name = env_name(env)
    return "" if any(entry.env == name for entry in tasks().values()) else f"there is no task in {name}"


EVALUATION = Evaluation(
    name="completions",
    title="Completions",
    summary="how often random skills complete a task that they were not trained for",
    measure=measure,
    draw=draw,
    tables=report_tables,
    facts=facts,
    seconds=30.0,
    undefined=undefined,
    section="susd.report.sections.skills:completions",
)
