"""Ceiling: the return that planning in the true simulator gets out of the skills in a task. Nothing is learned.

It stands between what a high-level policy learned and the expert, and says whether the skills or the policy are at fault.
The planner is MPPI over sequences of high-level actions: sample sequences, simulate them, move the sampling distribution
towards the best tenth, repeat; then execute the first action of the best sequence and shift.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from susd.envs.base import EnvSpec
from susd.envs.registry import env_entry
from susd.errors import UserError
from susd.evaluation.registry import OF_SEED, Artifacts, Evaluation, Fact, Option, Result, env_name
from susd.runs.tables import Row, Table, seed_table
from susd.tasks.base import SKILL_STEPS, Task
from susd.tasks.registry import TaskEntry, make_task, task_entry
from susd.training.trainer import build_env, subkey
from susd.viz import figures

if TYPE_CHECKING:
    from susd.downstream.interface import ActionInterface
    from susd.methods.registry import Card
    from susd.training.agent import Agent

LOOKAHEAD, CANDIDATES, ITERATIONS = 8, 256, 3  # high-level actions of a sequence, sequences, and how often they are drawn
ELITE = 0.1  # share of the sequences that the next ones are drawn around
STD, MIN_STD = 0.5, 0.05  # of the noise, at first and at least
EPISODES = 16  # of layouts or tasks with randomness
INTERFACES = {"skill": "skills", "goal": "goals"}
REFERENCES = {"bound": "bound", "expert": "expert", "do_nothing": "do nothing"}
KINDS = ("discounted", "undiscounted")


@dataclass(frozen=True)
class Planner:
    """Episodes of a functional task, whose high-level actions are planned in the simulator."""

    task: Task
    interface: ActionInterface
    lookahead: int = LOOKAHEAD
    candidates: int = CANDIDATES
    iterations: int = ITERATIONS

    @property
    def length(self) -> int:
        """High-level actions of one episode."""
        return self.task.horizon // self.interface.duration

    def episode(self, frozen: Any, start: Any, key: jax.Array) -> jax.Array:
        """[horizon of the task] the rewards of one episode, as one pure function."""
        from susd.downstream.vector import first_state

        k_start, k_run = jax.random.split(key)
        plan = jnp.zeros((self.lookahead, self.interface.size))

        def act(carry: tuple[Any, jax.Array], index: jax.Array) -> tuple[Any, jax.Array]:
            state, plan = carry
            k_plan, k_step = jax.random.split(jax.random.fold_in(k_run, index))
            plan = self.improve(frozen, state, plan, index, k_plan)
            state, rewards = self.execute(frozen, state, plan[0], k_step)
            return (state, jnp.concatenate([plan[1:], plan[-1:]])), rewards

        carry = first_state(self.task, start, k_start), plan
        return jax.lax.scan(act, carry, jnp.arange(self.length))[1].reshape(-1)

    def execute(self, frozen: Any, state: Any, high_action: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
        """The steps of one high-level action, and their rewards."""

        def step(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            return self.task.step(state, self.interface.act(frozen, self.task.observe(state), high_action), key)

        return jax.lax.scan(step, state, jax.random.split(key, self.interface.duration))

    def value(self, frozen: Any, state: Any, index: jax.Array, key: jax.Array, plan: jax.Array) -> jax.Array:
        """The sum of rewards of a sequence [H, A] from the high-level action of that number on, up to the task's end."""

        def act(state: Any, x: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[Any, jax.Array]:
            high_action, number, key = x
            state, rewards = self.execute(frozen, state, high_action, key)
            return state, jnp.where(number < self.length, rewards.sum(), 0.0)

        numbers = index + jnp.arange(self.lookahead)
        return jax.lax.scan(act, state, (plan, numbers, jax.random.split(key, self.lookahead)))[1].sum()

    def improve(self, frozen: Any, state: Any, plan: jax.Array, index: jax.Array, key: jax.Array) -> jax.Array:
        """The best sequence found around a first one. All are simulated with the same random numbers."""
        k_value, k_draw = jax.random.split(key)
        value = jax.vmap(partial(self.value, frozen, state, index, k_value))
        elite = max(1, round(ELITE * self.candidates))

        def iterate(carry: tuple[jax.Array, jax.Array, jax.Array], key: jax.Array) -> tuple[Any, None]:
            best, mean, std = carry
            plans = self.propose(key, mean, std).at[0].set(best).at[-1].set(mean)
            values, chosen = jax.lax.top_k(value(plans), elite)
            plans = plans[chosen]
            # The scale of rewards is arbitrary: the worst of the elite weighs 1 / e^2 of the best.
            weights = jax.nn.softmax(2.0 * (values - values[0]) / jnp.maximum(values[0] - values[-1], 1e-6))
            mean = jnp.tensordot(weights, plans, 1)
            std = jnp.sqrt(jnp.tensordot(weights, (plans - mean) ** 2, 1))
            return (plans[0], mean, jnp.clip(std, MIN_STD, STD)), None

        carry = plan, plan, jnp.full_like(plan, STD)
        return jax.lax.scan(iterate, carry, jax.random.split(k_draw, self.iterations))[0][0]

    def propose(self, key: jax.Array, mean: jax.Array, std: jax.Array) -> jax.Array:
        """Sequences [candidates, H, A] that differ from the mean in a random stretch of their actions.

        One half has normal noise there. A quarter has one new action, uniform, for the stretch, in a random half of its
        dimensions, and a quarter has a new one for the whole sequence: an action that lasts goes farther than many that
        differ, and finds what is not near the mean.
        """
        count, (length, size) = self.candidates, mean.shape
        k_first, k_last, k_dims, k_new, k_noise = jax.random.split(key, 5)
        first = jax.random.randint(k_first, (count, 1, 1), 0, length)
        last = first + jax.random.randint(k_last, (count, 1, 1), 0, length)
        position, kind = jnp.arange(length)[:, None], (jnp.arange(count) % 4)[:, None, None]
        new = jax.random.uniform(k_new, (count, 1, size), minval=-1.0, maxval=1.0)
        some = jnp.where(jax.random.bernoulli(k_dims, 0.5, new.shape), new, mean)
        near = jnp.clip(mean + std * jax.random.normal(k_noise, (count, length, size)), -1.0, 1.0)
        changed = jnp.where((first <= position) & (position <= last), jnp.where(kind == 1, some, near), mean)
        return jnp.where(kind == 3, new, changed)


def measure(
    agent: Agent,
    seed: int = 0,
    task: str = "",
    interface: str = "skill",
    layout: str = "",
    episodes: int = EPISODES,
    lookahead: int = LOOKAHEAD,
    candidates: int = CANDIDATES,
    iterations: int = ITERATIONS,
) -> Result:
    """Both returns of each task, layout and interface, and what they are compared with."""
    from susd.downstream.interface import skill_interface
    from susd.downstream.returns import mean_returns, references
    from susd.downstream.vector import vectorize_task

    entries = {name: task_entry(name, agent.trainer.config.env) for name in listed(task)}
    settings = [(name, where) for name, of in entries.items() for where in listed(layout) or [of.layouts.default]]
    tests = [_start(agent, name, entries[name], where) for name, where in settings]  # all mistakes come before any work
    sizes = {"lookahead": lookahead, "candidates": candidates, "iterations": iterations}
    found: Result = {}
    for (name, where), (made, start) in zip(settings, tests, strict=True):
        count = episodes if made.random_episodes or start is None else 1
        keys = jax.random.split(subkey(jax.random.key(seed), "tests"), count)
        compared = references(vectorize_task(made, count, start), keys, made.horizon) | {"episodes": count}
        for way in listed(interface):
            actions, frozen = skill_interface(agent, made.environment, way)
            scores = mean_returns(_plan(Planner(made, actions, **sizes), frozen, start, keys))
            found[f"{entries[name].short}@{where}>{way}"] = {"ceiling": scores, **compared, **sizes}
    return found


def listed(text: str) -> list[str]:
    """The entries of a list with commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _start(agent: Agent, name: str, entry: TaskEntry, layout: str) -> tuple[Task, Any]:
    """The task in the environment of the agent with that layout, and the state in which all episodes start, or None."""
    trainer = agent.trainer
    made = make_task(name, trainer.env)
    if options := entry.layout_options(layout):
        config = dataclasses.replace(trainer.config, env_options=trainer.config.env_options | options)
        made = make_task(name, build_env(config))
    if not isinstance(made, Task):
        raise UserError(_host(trainer.env.spec.name))
    if made.horizon % SKILL_STEPS:
        raise UserError(f"task {made.name!r} has {made.horizon} steps, which are not a multiple of {SKILL_STEPS}")
    return made, None if layout in entry.layouts.random else made.environment.reset(jax.random.key(0))


def _host(env: str) -> str:
    return f"the ceiling is found by planning in the simulator, which must be pure JAX; {env} runs outside JAX"


def _plan(planner: Planner, frozen: Any, start: Any, keys: jax.Array) -> np.ndarray:
    """Rewards [episodes, horizon], in one compiled program."""
    run = jax.jit(lambda frozen, start, keys: jax.lax.map(partial(planner.episode, frozen, start), keys))
    return np.asarray(run(frozen, start, keys))


def facts(result: Result) -> Iterator[Fact]:
    """Subject `task@layout`; metrics `skill_discounted`, `goal_discounted`, `expert_discounted` and so on; step 0."""
    known: set[tuple[str, str]] = set()
    for name, values in result.items():
        subject, _, interface = name.rpartition(">")
        for source in ("ceiling", *(other for other in REFERENCES if other in values)):
            metric = interface if source == "ceiling" else source
            if (subject, metric) not in known:
                known.add((subject, metric))
                yield from ((subject, 0, f"{metric}_{kind}", values[source][kind]) for kind in KINDS)


def tables(report: Result) -> list[Table]:
    """One row per task, layout and interface: both returns of planning, and the discounted ones of the references."""
    rows: list[tuple[int, Row]] = []
    for one in report["results"]:
        for name, values in one.items():
            if name in OF_SEED:
                continue
            subject, _, interface = name.rpartition(">")
            known = (f"{values[other]['discounted']:.2f}" if other in values else "-" for other in REFERENCES)
            own = (f"{values['ceiling'][kind]:.2f}" for kind in KINDS)
            rows.append((one["seed"], (subject, INTERFACES[interface], *own, *known, str(values["episodes"]))))
    title = "Ceiling: return of planning high-level actions in the simulator, without learning; references are discounted"
    columns = ("task@layout", "high-level actions", *KINDS, *REFERENCES.values(), "episodes")
    return [seed_table(title, columns, rows)]


def draw(path: Path, spec: EnvSpec, result: Result, artifacts: Artifacts) -> None:
    """The discounted returns of planning as bars, with the references as marks."""
    with figures.drawing(path, figures.WIDTH, 0.45 * len(result) + 1.5) as figure:
        axes = figure.add_subplot()
        for row, values in enumerate(result.values()):
            axes.barh(row, values["ceiling"]["discounted"], 0.6, color="#c5dcec", label="" if row else "planning")
            for order, (other, words) in enumerate(REFERENCES.items()):
                if other in values:
                    place = values[other]["discounted"]
                    style: Any = {"color": figures.PALETTE[order], "linewidth": 2.0, "label": "" if row else words}
                    axes.plot([place, place], [row - 0.4, row + 0.4], **style)
        names = (name.rpartition(">") for name in result)
        axes.set_yticks(range(len(result)), [f"{subject}, {INTERFACES[way]}" for subject, _, way in names])
        axes.invert_yaxis()
        axes.set_xlabel("discounted return")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=4)
        figure.suptitle("Ceiling: planning in the simulator, without learning")


def check_task(text: str) -> None:
    """Refuse a call without a task, and unknown tasks."""
    if not listed(text):
        raise UserError("the evaluation 'ceiling' takes long and has no default: name a task with --task, or several: a,b")
    for name in listed(text):
        task_entry(name)


def check_interface(text: str) -> None:
    """Refuse what is no interface to skills."""
    if not listed(text) or set(listed(text)) - set(INTERFACES):
        raise UserError(f"--interface is {text!r}; choose {', '.join(INTERFACES)} or both: {','.join(INTERFACES)}")


def check_size(name: str, high: int, value: int) -> None:
    """Refuse a size that is not positive or far too large."""
    if not 1 <= value <= high:
        raise UserError(f"--{name} is {value}; it must be from 1 to {high}")


def check_run(spec: EnvSpec, card: Card, options: Mapping[str, Any]) -> None:
    """Refuse tasks of other environments, layouts that a task does not have, and goals without an embedding."""
    for name in listed(options["task"]):
        entry = task_entry(name, spec.name)
        if entry.env not in (spec.name, "") and not entry.env.rpartition(":")[0].endswith(".py"):
            raise UserError(f"--task has {name!r}, which is one of {entry.env}, not of {spec.name}")
        for layout in listed(options["layout"]):
            entry.layout_options(layout)
    if "goal" in listed(options["interface"]) and card.without_goals:
        raise UserError(f"--interface has 'goal', but {card.without_goals}")


def undefined(env: str | EnvSpec, card: Card) -> str:
    """It needs a functional environment; that of a task is known only when it is made."""
    entry = env_entry(env_name(env))
    return _host(entry.name) if entry is not None and entry.functional is False else ""


EVALUATION = Evaluation(
    name="ceiling",
    title="Ceiling",
    summary="the return of a task that planning in the simulator gets out of the skills, without learning",
    measure=measure,
    draw=draw,
    tables=tables,
    facts=facts,
    options=(
        Option("task", "", "task of the run's environment, or several: unlim,lim; required", check_task),
        Option("interface", "skill", "what a high-level action is: skill, goal or both: skill,goal", check_interface),
        Option("layout", "", "start of the episodes, or several: 0,1,3; default: that of the task"),
        Option("episodes", EPISODES, "episodes; one if nothing is random", partial(check_size, "episodes", 10_000)),
        Option("lookahead", LOOKAHEAD, "high-level actions that are planned ahead", partial(check_size, "lookahead", 100)),
        Option("candidates", CANDIDATES, "sequences in each iteration", partial(check_size, "candidates", 100_000)),
        Option("iterations", ITERATIONS, "iterations for each high-level action", partial(check_size, "iterations", 1000)),
    ),
    seconds=60.0,
    undefined=undefined,
    check_run=check_run,
    accumulates=True,
    section="susd.report.sections.skills:ceiling",
)
