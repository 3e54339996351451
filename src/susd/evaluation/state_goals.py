"""Zero-shot goals in any environment: states that random skills visit, or one that the user names.

Episodes take mean actions. Those of one evaluation have the same starts, whatever chooses the skill, so that a goal that a
random skill visited can be reached from the start of its own episode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from susd.collect import batch_seed
from susd.envs.base import EnvSpec
from susd.envs.vector import vectorize
from susd.errors import UserError
from susd.evaluation.registry import Fact, Result
from susd.runs.tables import Row, Table, seed_table
from susd.training.agent import part_names
from susd.training.goals import Goal, movable, read_goal, rest_skills
from susd.training.resources import available_memory
from susd.training.trainer import subkey
from susd.viz import figures

if TYPE_CHECKING:
    from susd.training.agent import Agent

GOALS, TOLERANCE = 100, 0.1  # defaults: goals, and the share of a factor's spread within which it is reached
STILL = 1e-6  # spread below which nothing moves a factor
ALL = "all"  # all factors of a goal together
WAYS = {"goal": "skill for the goal", "random_skill": "random skill", "do_nothing": "do nothing"}
KINDS = {"single": "alone", "whole": "of a whole state"}  # what a goal names; any other kind is a goal as it was given
Z = 1.959964  # of the standard normal, 97.5 %
Choose = Callable[[np.ndarray, np.ndarray], Any]  # (observations [W, S], which episodes [W]) -> actions [W, A]
Factors = Mapping[str, tuple[int, ...]]  # name -> observation indices


@dataclass(frozen=True)
class Episodes:
    """`count` episodes of an agent, with starts that depend on the seed alone."""

    agent: Agent
    count: int
    steps: int
    seed: int

    def run(self, choose: Choose) -> np.ndarray:
        """Observations [T, count, S] after each step; what follows an early end of an episode repeats its last one."""
        vector, found = vectorize(self.agent.trainer.env, self.count), []
        for batch, first in enumerate(range(0, self.count, vector.num_envs)):
            rows = np.arange(first, first + vector.num_envs) % self.count  # the last batch is filled up with earlier ones
            obs = vector.reset(batch_seed(self.key("starts"), batch)[0])
            last, running, states = np.array(obs, np.float32), np.ones(len(rows), bool), []
            for _ in range(self.steps):
                step = vector.step(np.asarray(choose(obs, rows)))
                last = np.where(running[:, None], step.next_obs, last)
                running &= ~(step.terminated | step.truncated)
                states.append(last)
                obs = step.obs
            found.append(np.stack(states))
        return np.concatenate(found, axis=1)[:, : self.count]

    def towards(self, targets: np.ndarray, goal: Goal) -> np.ndarray:
        """Episodes with the skill that leads to the dimensions of each target [count, S] that the goal names."""
        spec = self.agent.trainer.env.spec
        dims = np.isin(np.arange(spec.obs_size), goal.indices)
        named = goal.parts(spec, part_names(self.agent.trainer))
        rest = np.asarray(rest_skills(self._space, self.key("rest"), self.count))
        act = self._act
        return self.run(lambda obs, rows: act(obs, targets[rows], dims, named, rest[rows]))

    def random(self, name: str) -> np.ndarray:
        """Episodes with random skills; the name tells one set of skills from another."""
        skills = np.asarray(self._space.sample(self.key(name), self.count))
        nothing = np.zeros(self._space.parts, bool)
        none = np.zeros(self.agent.trainer.env.spec.obs_size, bool)
        act = self._act
        return self.run(lambda obs, rows: act(obs, obs, none, nothing, skills[rows]))

    def idle(self) -> np.ndarray:
        """Episodes without any action."""
        size = self.agent.trainer.env.spec.action_size
        return self.run(lambda obs, rows: np.zeros((len(rows), size), np.float32))

    def key(self, name: str) -> jax.Array:
        """The named key of the seed."""
        return subkey(jax.random.key(self.seed), name)

    @property
    def _space(self) -> Any:
        return self.agent.trainer.learner.method.skills

    @cached_property
    def _act(self) -> Callable[..., jax.Array]:
        """The mean action with the skill for a goal; one compiled program for all goals, and for none.

        It is made before a run: measuring `agent.goals` resets the environment.
        """
        agent, method = self.agent, self.agent.trainer.learner.method
        goals = agent.goals

        @jax.jit
        def act(weights: Any, obs: Any, target: Any, dims: Any, named: Any, rest: Any) -> jax.Array:
            actor, params, goals = weights
            skill = goals.skill_between(method, params, obs, jnp.where(dims, target, obs), named, rest)
            return agent.trainer.policy(actor, sampled=False)(obs, skill, jax.random.key(0))

        return lambda *inputs: act((agent.actor, agent.params, goals), *inputs)


def measure(agent: Agent, seed: int, text: str, steps: int, goals: int, tolerance: float) -> Result:
    """The shares of goals that are reached at the end of an episode; one goal for all episodes if `text` gives it."""
    spec = agent.trainer.env.spec
    given = read_goal(spec, text) if text else None
    if given is not None:
        given.parts(spec, part_names(agent.trainer))  # refused before anything runs
    episodes = Episodes(agent, goals, steps or agent.trainer.horizon, seed)
    need, have = 16 * goals * episodes.steps * spec.obs_size, available_memory()  # bytes of the states of four sets
    if need > 0.9 * have:
        raise UserError(
            f"--goals is {goals} with episodes of {episodes.steps} steps; this needs {need / 2**30:.1f} GiB of memory, but "
            f"only {have / 2**30:.1f} are available"
        )
    visited, other = episodes.random("goals"), episodes.random("random")
    factors = _factors(agent, given)
    spread = {name: _spread(spec, visited, other, list(indices)) for name, indices in factors.items()}
    if given is None:
        factors = {name: indices for name, indices in factors.items() if spread[name] > STILL}
        if not factors:
            raise UserError(
                f"random skills move nothing in {spec.name} within {episodes.steps} steps, so there are no goals"
            )
    score = _Scorer(spec, factors, spread, tolerance, {"random_skill": other[-1], "do_nothing": episodes.idle()[-1]})
    found = {"goals": goals, "steps": episodes.steps, "tolerance": tolerance, "spread": spread}
    if given is not None:
        targets = np.asarray(given.replace(jnp.zeros((goals, spec.obs_size))))
        return found | {"kinds": {text: score(targets, episodes.towards(targets, given)[-1], factors)}}
    times = jax.random.randint(episodes.key("times"), (goals,), 0, episodes.steps)
    targets = visited[np.asarray(times), np.arange(goals)]

    def reached(names: Factors) -> Result:
        goal = Goal(tuple(i for indices in names.values() for i in indices), ())
        return score(targets, episodes.towards(targets, goal)[-1], names)

    kinds = {"whole": reached(factors)}
    if len(factors) > 1:
        kinds = {"single": {name: reached({name: factors[name]})[name] for name in factors}, **kinds}
    return found | {"kinds": kinds}


def _factors(agent: Agent, given: Goal | None) -> Factors:
    """The factors that goals name, each with the dimensions whose distance counts."""
    spec, names = agent.trainer.env.spec, part_names(agent.trainer)
    if given is not None:
        return given.factors(spec)
    one = not set(names) <= set(spec.factorization.names)  # part for all factors
    return {name: indices for name, indices in movable(spec).items() if one or name in names}


def _spread(spec: EnvSpec, one: np.ndarray, other: np.ndarray, indices: list[int]) -> float:
    """The root mean squared distance between states [T, W, S] of two random skills from the same start, in raw units."""
    a, b = (np.asarray(spec.raw(states), np.float64)[..., indices] for states in (one, other))
    squares = a.var(axis=0) + b.var(axis=0) + (a.mean(axis=0) - b.mean(axis=0)) ** 2
    return float(squares.sum(axis=-1).mean() ** 0.5)


@dataclass(frozen=True)
class _Scorer:
    """Which factors of a goal are reached in the last states [W, S]: of the skills for it, and of other ways to act."""

    spec: EnvSpec
    factors: Factors
    spread: Mapping[str, float]
    tolerance: float
    others: Mapping[str, np.ndarray]

    def __call__(self, targets: np.ndarray, last: np.ndarray, names: Factors) -> Result:
        """By factor, and for all of them together."""
        ways = {"goal": last, **self.others}
        distances = {way: {name: self._distance(states, targets, name) for name in names} for way, states in ways.items()}
        near = {
            way: {name: values <= self.tolerance * self.spread[name] for name, values in of.items()}
            for way, of in distances.items()
        }
        found: Result = {}
        for name in names:
            scale = max(self.spread[name], STILL)
            found[name] = {
                way: share(near[way][name]) | {"distance": float(distances[way][name].mean() / scale)} for way in ways
            }
        return found | {ALL: {way: share(np.all(list(near[way].values()), axis=0)) for way in ways}}

    def _distance(self, states: np.ndarray, targets: np.ndarray, name: str) -> np.ndarray:
        indices = list(self.factors[name])
        raw = (np.asarray(self.spec.raw(x), np.float64)[:, indices] for x in (states, targets))
        return np.linalg.norm(np.subtract(*raw), axis=-1)


def share(reached: np.ndarray) -> Result:
    """The share of goals that were reached, and its 95 % Wilson interval."""
    count, mean = len(reached), float(reached.mean())
    centre, scale = mean + Z**2 / (2 * count), 1 + Z**2 / count
    half = Z * (mean * (1 - mean) / count + Z**2 / (4 * count**2)) ** 0.5
    return {"reached": mean, "interval": [max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)]}


# --- what is shown and recorded -----------------------------------------------------------------------------------------


def rows_of(found: Result) -> Iterator[tuple[str, str, Result]]:
    """Kind, factor and ways of all goals; "all" is left out where a goal names one factor only."""
    for kind, by_name in found["kinds"].items():
        yield from ((kind, name, ways) for name, ways in by_name.items() if name != ALL or len(by_name) > 2)


def label(kind: str, name: str) -> str:
    """A goal in words: `cart alone`, `cart of a whole state`, `cart of cart=0.2:0.3`."""
    return f"{'all factors' if name == ALL else figures.words(name)} {KINDS.get(kind, f'of {kind}')}"


def facts(found: Result) -> Iterator[Fact]:
    """Shares and mean distances of every goal; the subject is "way>kind>factor", `step` the length of an episode.

    For each kind of goal also their number and the tolerance.
    """
    yield from (
        (kind, found["steps"], metric, found[metric]) for kind in found["kinds"] for metric in ("goals", "tolerance")
    )
    for kind, name, ways in rows_of(found):
        for way, values in ways.items():
            low, high = values["interval"]
            numbers = {"reached": values["reached"], "reached_low": low, "reached_high": high}
            numbers |= {"distance": values["distance"]} if "distance" in values else {}
            yield from ((f"{way}>{kind}>{name}", found["steps"], metric, value) for metric, value in numbers.items())


def table(results: list[tuple[int, Result]]) -> Table:
    """One row per goal, one column per way to act."""
    rows: list[tuple[int, Row]] = []
    for seed, found in results:
        for kind, name, ways in rows_of(found):
            cells = (
                f"{100 * v['reached']:.0f}% ({' to '.join(f'{100 * x:.0f}' for x in v['interval'])})" for v in ways.values()
            )
            rows.append((seed, (label(kind, name), *cells)))
    first = results[0][1]
    title = (
        f"Zero-shot goals: share of {first['goals']} episodes that end within {first['tolerance']:g} of a factor's spread "
        f"after {first['steps']} steps\nBrackets: 95 % Wilson interval over goals"
    )
    return seed_table(title, ("goal", *WAYS.values()), rows)


def draw(path: Path, found: Result) -> None:
    """The share of goals reached as bars with intervals, for each way to act."""
    rows = list(rows_of(found))
    with figures.drawing(path, figures.WIDTH, 0.5 * len(rows) + 1.5) as figure:
        axes = figure.add_subplot()
        for order, (way, name) in enumerate(WAYS.items()):
            shares = np.array([ways[way]["reached"] for _, _, ways in rows])
            ends = np.array([ways[way]["interval"] for _, _, ways in rows]).T
            error = 100 * np.abs(ends - shares)
            height = np.arange(len(rows)) + 0.26 * (order - 1)
            colour = figures.PALETTE[order]
            axes.barh(height, 100 * shares, 0.24, color=colour, label=name, xerr=error, error_kw={"linewidth": 0.9})
        axes.set_yticks(range(len(rows)), [label(kind, name) for kind, name, _ in rows])
        axes.invert_yaxis()
        axes.set_xlim(0, 100)
        axes.set_xlabel("goals reached (%)")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=3)
        figure.suptitle(f"Zero-shot goals: {found['goals']} episodes of {found['steps']} steps, 95 % intervals")
