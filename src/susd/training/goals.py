"""Goals in the space of phi: where random skills lead, and the skill that leads to a point there and stays.

A target state is one way to name such a point: `read_goal` reads it, for the command line and for Python.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from susd.collect import rollout_skills
from susd.envs.base import Environment, EnvSpec, HostEnvironment
from susd.errors import UserError, shown
from susd.methods.base import Method
from susd.networks import Actor
from susd.skills import SkillSpace
from susd.training.trainer import Trainer
from susd.types import Transition

SKILLS, STEPS = 256, 100  # of the rollouts that the box is measured on
TAIL = 0.005  # share of the embeddings that the box leaves out on either side
QUANTILE = 0.9  # of the steps of phi: what a time step can do


class GoalSpace(eqx.Module):
    """A box of embeddings, and how far one time step moves each of them. Goals in it are points g = (g_1 .. g_N)."""

    centre: jax.Array  # [N, D]
    half: jax.Array  # [N, D]
    step: jax.Array  # [N]

    @classmethod
    def measure(
        cls, trainer: Trainer, env: Environment | HostEnvironment, actor: Actor, params: Any, seed: int = 0
    ) -> GoalSpace:
        """From the states that random skills visit in an environment, as a function of the seed alone."""
        k_skills, k_run = jax.random.split(jax.random.key(seed))
        method = trainer.learner.method
        skills, steps = method.skills.sample(k_skills, SKILLS), min(STEPS, trainer.horizon)
        return cls.of_states(method, params, rollout_skills(env, trainer.policy(actor), skills, steps, k_run))

    @classmethod
    def of_states(cls, method: Method, params: Any, seen: Transition) -> GoalSpace:
        """From transitions [T, B, ..] of random skills."""
        encode = jax.jit(method.encode)
        before, after = (
            np.asarray(encode(params, jnp.asarray(obs.reshape(-1, obs.shape[-1])))).reshape(
                -1, method.skills.parts, method.skills.dim
            )
            for obs in (np.asarray(seen.obs), np.asarray(seen.next_obs))
        )
        low, high = np.quantile(after, (TAIL, 1.0 - TAIL), axis=0)
        moved = np.quantile(np.linalg.norm(after - before, axis=-1), QUANTILE, axis=0)
        floor = 1e-6  # a factor that nothing moves keeps a box without extent
        return cls(*(jnp.asarray(x, jnp.float32) for x in ((high + low) / 2, (high - low) / 2, np.maximum(moved, floor))))

    def goal(self, action: jax.Array) -> jax.Array:
        """The point [.., N, D] of the box that a high-level action in [-1, 1]^(N * D) stands for."""
        return self.centre + self.half * action.reshape(*action.shape[:-1], *self.centre.shape)

    def skill(self, space: SkillSpace, phi: jax.Array, goal: jax.Array) -> jax.Array:
        """The skill [.., N * D] that leads from embeddings [.., N * D] to a goal [.., N, D] and slows down near it."""
        return space.towards((goal - space.split(phi)) / self.step[:, None])

    def skill_between(
        self, method: Method, params: Any, obs: jax.Array, target: jax.Array, named: jax.Array, rest: jax.Array
    ) -> jax.Array:
        """The skills [B, N * D] from observations [B, S] to target ones; parts that are not `named`, [N], are of `rest`."""
        space = method.skills
        here, there = jnp.split(method.encode(params, jnp.concatenate([obs, target])), 2)
        return jnp.where(jnp.repeat(named, space.dim), self.skill(space, here, space.split(there)), rest)

    def to_json(self) -> dict[str, Any]:
        """As plain lists."""
        return {name: np.asarray(getattr(self, name)).tolist() for name in ("centre", "half", "step")}


def rest_skills(space: SkillSpace, key: jax.Array, count: int) -> jax.Array:
    """Skills [count, N * D] of the parts that no goal names: paced ones at rest, others random."""
    return jnp.zeros((count, space.size)) if space.paced else space.sample(key, count)


# --- target states ------------------------------------------------------------------------------------------------------


class Goal(NamedTuple):
    """The dimensions of the observation that a target state names, and their values in the units of the observation."""

    indices: tuple[int, ...]
    values: tuple[float, ...]

    def replace(self, obs: jax.Array) -> jax.Array:
        """Observations [.., S] with the named dimensions replaced."""
        return obs.at[..., jnp.array(self.indices)].set(jnp.array(self.values, jnp.float32))

    def factors(self, spec: EnvSpec) -> dict[str, tuple[int, ...]]:
        """The factors that it names, each with the named dimensions of it."""
        named = set(self.indices)
        found = {name: tuple(i for i in of if i in named) for name, of in spec.factorization.to_json().items()}
        return {name: indices for name, indices in found.items() if indices}

    def parts(self, spec: EnvSpec, names: Sequence[str]) -> np.ndarray:
        """[N] which of the skill's parts, given their names, lead to it; a factor without a part is a UserError."""
        if not set(names) <= set(spec.factorization.names):  # one part for all factors
            return np.ones(len(names), bool)
        factors = self.factors(spec)
        still = [name for name in factors if name not in names]
        if still and len(self.indices) < spec.obs_size:  # a whole observation may have factors that nothing moves
            raise UserError(f"the goal names {still[0]!r}, which no part of the skill moves; parts are {', '.join(names)}")
        return np.array([name in factors for name in names])


def read_goal(spec: EnvSpec, goal: Any) -> Goal:
    """A goal as text, `door=1.0,cart=0.2:0.3`, as a mapping from names to values, or as a whole observation [S].

    A name is a factor, with a value for each of its dimensions (its own ones, where the environment declares them), or
    FACTOR[K] for its dimension K. Such values are in raw units (see `Scaling`); an observation is as it is observed.
    """
    if isinstance(goal, str):
        goal = goal_values(goal)
    if not isinstance(goal, Mapping):
        return _whole(spec, goal)
    if not goal:
        raise UserError(f"the goal names nothing; factors are {', '.join(spec.factorization.names)}")
    raw, named = np.zeros(spec.obs_size, np.float32), dict[int, str]()
    for name, value in goal.items():
        indices, values = _dimensions(spec, str(name)), _numbers(str(name), value)
        if len(values) != len(indices):
            count = f"{len(indices)} dimension{'s' * (len(indices) > 1)}"
            raise UserError(f"the goal gives {name!r} {len(values)} value{'s' * (len(values) > 1)}; it has {count}")
        for index, number in zip(indices, values, strict=True):
            if index in named:
                raise UserError(f"the goal names one dimension twice: by {named[index]!r} and by {name!r}")
            raw[index], named[index] = number, str(name)
    found = raw if spec.scaling is None else np.asarray(spec.scaling.normalise(raw))
    return Goal(tuple(named), tuple(float(found[index]) for index in named))


def goal_values(text: str) -> dict[str, list[float]]:
    """The names and values of `door=1.0,cart=0.2:0.3`."""
    found: dict[str, list[float]] = {}
    for part in text.split(","):
        name, equals, values = (piece.strip() for piece in part.partition("="))
        if not (name and equals and values):
            raise UserError(
                f"cannot read {part!r} of the goal; write NAME=VALUE or NAME=V1:V2, as in door=1.0,cart=0.2:0.3"
            )
        if name in found:
            raise UserError(f"the goal names {name!r} twice")
        found[name] = _numbers(name, values.split(":"))
    return found


def movable(spec: EnvSpec) -> dict[str, tuple[int, ...]]:
    """The factors that can move, with their own dimensions; all factors and dimensions where nothing else is declared."""
    if spec.own is not None:
        return {name: tuple(indices) for name, indices in spec.own.items()}
    return {name: tuple(indices) for name, indices in spec.factorization.to_json().items()}


def _dimensions(spec: EnvSpec, name: str) -> tuple[int, ...]:
    """The observation indices of a factor or of FACTOR[K]."""
    whole = spec.factorization.to_json()
    if name in whole:
        return movable(spec).get(name, tuple(whole[name]))
    entry = re.fullmatch(r"(.+)\[(\d+)\]", name)
    if entry is None or entry[1] not in whole:
        raise UserError(f"the goal names {name!r}; factors are {', '.join(whole)}, and FACTOR[K] is one dimension of them")
    indices, number = whole[entry[1]], int(entry[2])
    if number >= len(indices):
        raise UserError(f"the goal names {name!r}; dimensions of {entry[1]!r} are 0 to {len(indices) - 1}")
    return (indices[number],)


def _numbers(name: str, value: Any) -> list[float]:
    """Finite values, of one number or a sequence."""
    try:
        numbers = [float(one) for one in ([value] if np.ndim(value) == 0 else value)]
    except (TypeError, ValueError, OverflowError):
        numbers = [math.nan]
    if not all(map(math.isfinite, numbers)):
        text = shown(":".join(map(str, value)) if isinstance(value, list) else value)
        raise UserError(f"the goal gives {name!r} the value {text}; values are finite numbers")
    return numbers


def _whole(spec: EnvSpec, goal: Any) -> Goal:
    """All dimensions of an observation [S]."""
    try:
        values = np.asarray(goal, np.float32)
    except (TypeError, ValueError, OverflowError):
        values = np.zeros(0, np.float32)
    if values.shape != (spec.obs_size,) or not np.isfinite(values).all():
        raise UserError(
            f"the goal is {shown(goal)}; it must be a mapping from names to values, or {spec.obs_size} finite numbers"
        )
    return Goal(tuple(range(spec.obs_size)), tuple(values.tolist()))
