"""Agent: a trained skill policy, loaded from a run folder or from the skills that come with the package."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from susd.config import MAX_SEED
from susd.envs.base import Environment, HostEnvironment
from susd.errors import UserError, shown
from susd.factors import Factorization
from susd.learner import LearnerState
from susd.methods.registry import method as find_method
from susd.networks import Actor
from susd.paths import user_path
from susd.plugins import Trust
from susd.runs import checkpoint
from susd.runs.folder import RunFolder
from susd.sac import SacState
from susd.skills import MOST_SKILLS
from susd.training.goals import GoalSpace, read_goal, rest_skills
from susd.training.trainer import Trainer, TrainState, learning_hash, restore

WEIGHTS = (".learner.params", ".learner.sac.actor.")  # the leaves of a TrainState that an agent needs


@dataclass(frozen=True)
class Agent:
    """One trained seed: acts, encodes states and samples skills."""

    trainer: Trainer
    actor: Actor
    params: Any  # of the method, such as those of phi
    seed: int
    epoch: int

    @property
    def factorization(self) -> Factorization:
        """The factors of its observations."""
        return self.trainer.env.spec.factorization

    def sample_skill(self, seed: int = 0, count: int | None = None) -> np.ndarray:
        """A skill from the prior, [N * D], or `count` of them, [count, N * D]."""
        key, one = jax.random.key(_integer("seed", seed, 0, MAX_SEED)), count is None
        skills = self.trainer.learner.method.skills.sample(key, 1 if one else _integer("count", count, 1, MOST_SKILLS))
        return np.asarray(skills)[0] if one else np.asarray(skills)

    def act(self, obs: Any, skill: Any, seed: int | None = None, raw: bool = False) -> np.ndarray:
        """The mean action in [-1, 1], or with a seed a sampled one; for one observation or a batch, one skill or a batch.

        An observation is as the environment returns it, such as a dict, or flat, [S] or [B, S]. With `raw` the action has
        the bounds, the shape and the type of the environment's action space, ready for `env.step`.
        """
        obs, skill = self._flat(obs), self._numbers("skill", skill, self.trainer.learner.method.skills.size)
        try:
            batch = np.broadcast_shapes(obs.shape[:-1], skill.shape[:-1])
        except ValueError:
            raise UserError(f"{_batch(obs)} observations and {_batch(skill)} skills do not fit together") from None
        rows, of_skill = (
            jnp.asarray(np.broadcast_to(x, (*batch, x.shape[-1])).reshape(-1, x.shape[-1])) for x in (obs, skill)
        )
        key = jax.random.key(0 if seed is None else _integer("seed", seed, 0, MAX_SEED))
        action = np.asarray(self.trainer.policy(self.actor, seed is not None)(rows, of_skill, key))
        return self._native(action.reshape(*batch, -1), raw)

    def act_towards(self, obs: Any, goal: Any, skill: Any = None, raw: bool = False) -> np.ndarray:
        """The mean action that leads to a target state and holds it; for one observation or a batch, as in `act`.

        `goal` is a mapping from factors to values in raw units, such as {"door": 1.0, "cart": [0.2, 0.3]}, or a whole
        observation [S]. Parts of the skill that it does not name are those of `skill`; without one they are at rest with
        paced skills, and otherwise a fixed random skill.
        """
        spec, obs = self.trainer.env.spec, self._flat(obs)
        target = read_goal(spec, goal)
        named = target.parts(spec, part_names(self.trainer))
        size = self.trainer.learner.method.skills.size
        rest = np.asarray(self._rest) if skill is None else self._numbers("skill", skill, size)
        batch = jnp.asarray(obs.reshape(-1, obs.shape[-1]))
        if rest.ndim > 1 and rest.shape[:-1] != obs.shape[:-1]:
            raise UserError(f"{_batch(obs)} observations and {_batch(rest)} skills do not fit together")
        rest = np.broadcast_to(rest.reshape(-1, size), (len(batch), size))
        chosen = self._skill_between(self.goals, self.params, batch, target.replace(batch), named, rest)
        return self.act(obs, np.asarray(chosen).reshape(*obs.shape[:-1], -1), raw=raw)

    @cached_property
    def goals(self) -> GoalSpace:
        """How far a time step moves phi, and where random skills lead it: measured once, in the agent's environment."""
        if reason := find_method(self.trainer.config.method).without_goals:
            raise UserError(reason)
        return GoalSpace.measure(self.trainer, self.trainer.env, self.actor, self.params)

    def encode(self, obs: Any) -> np.ndarray:
        """phi(s): of one observation [N * D], or of a batch [B, N * D]."""
        obs = self._flat(obs)
        return np.asarray(self._encode(self.params, obs.reshape(-1, obs.shape[-1]))).reshape(*obs.shape[:-1], -1)

    def untrained_actor(self) -> Actor:
        """The actor before the first gradient step of the same seed."""
        init = jax.jit(lambda seed: self.trainer.init(seed).learner.sac.actor)  # compiled, it allocates no replay buffer
        return init(jnp.int32(self.seed))

    def _flat(self, obs: Any) -> np.ndarray:
        """Observations as the environment returns them, or flat, as vectors [.., S]."""
        flatten = getattr(self.trainer.env, "flatten", None)
        vectors = flatten(obs) if flatten is not None else None
        return self._numbers("observation", obs if vectors is None else vectors, self.trainer.env.spec.obs_size)

    def _native(self, action: np.ndarray, raw: bool) -> np.ndarray:
        """Actions in [-1, 1], or as the environment takes them; environments other than Gymnasium's take these."""
        native = getattr(self.trainer.env, "native_action", None)
        return action if native is None or not raw else np.asarray(native(action))

    def _numbers(self, name: str, value: Any, size: int) -> np.ndarray:
        """A float32 array [.., size] of finite values."""
        try:
            with np.errstate(over="ignore"):
                array = np.asarray(value)
                if array.dtype.kind in "USMmc":  # text, dates and complex numbers
                    raise ValueError
                array = array.astype(np.float32)
        except (TypeError, ValueError, OverflowError):
            raise UserError(f"the {name} is {shown(value)}; it must be {size} numbers") from None
        if array.ndim == 0 or array.shape[-1] != size:
            raise UserError(f"the {name} has the shape {array.shape}; its last axis must have the length {size}")
        if not np.isfinite(array).all():
            place = tuple(np.argwhere(~np.isfinite(array))[0])
            raise UserError(f"the {name} has {array[place]} at index {place[-1]}; it must be finite")
        return array

    @cached_property
    def _encode(self) -> Any:
        return jax.jit(self.trainer.learner.method.encode)

    @cached_property
    def _skill_between(self) -> Any:
        method = self.trainer.learner.method
        return jax.jit(lambda goals, *inputs: goals.skill_between(method, *inputs))

    @cached_property
    def _rest(self) -> jax.Array:
        return rest_skills(self.trainer.learner.method.skills, jax.random.key(0), 1)[0]


def _integer(name: str, value: Any, low: int, high: int) -> int:
    """An integer, of Python or numpy, within limits."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise UserError(f"{name} is {shown(value)}; it must be an integer from {low} to {high}")
    return int(value)


def _batch(array: np.ndarray) -> str:
    """The shape of a batch in words."""
    return " x ".join(map(str, array.shape[:-1])) or "1"


def part_names(trainer: Trainer) -> tuple[str, ...]:
    """The names of a skill's parts: the factors, or `all` where the skill has one part for all of them."""
    skills, factors = trainer.learner.method.skills, trainer.env.spec.factorization.names
    unnamed = ("all",) if skills.parts == 1 else tuple(f"part {part + 1}" for part in range(skills.parts))
    return skills.names or (factors if len(factors) == skills.parts else unnamed)


def load_all(
    run: str | Path, environment: Environment | HostEnvironment | None = None, trust: Trust = False
) -> list[Agent]:
    """All seeds of a run, from its last good checkpoint. Only the weights are read, not the replay buffer."""
    folder = RunFolder.open(user_path("the run", run))
    trainer = Trainer.build(folder.load_config(trust, environment is not None), environment)
    state, meta = restore(trainer, folder, lambda text: print(f"skipped: {text}", file=sys.stderr), WEIGHTS)

    def of_seed(index: int) -> Agent:
        actor, params = jax.tree.map(lambda x: x[index], (state.learner.sac.actor, state.learner.params))
        return Agent(trainer, actor, params, trainer.config.seed + index, int(meta["epoch"]))

    return [of_seed(index) for index in range(trainer.config.seeds)]


def save_weights(agents: Sequence[Agent], folder: Path, meta: dict[str, Any]) -> Path:
    """Write all seeds of a run as a checkpoint that `load` reads, without what only training needs."""
    config, nothing = agents[0].trainer.config, (None,) * 6
    actor, params = jax.tree.map(lambda *seeds: jnp.stack(seeds), *((agent.actor, agent.params) for agent in agents))
    learner = LearnerState(params, None, None, None, SacState(actor, *nothing))  # type: ignore[arg-type]
    state = TrainState(learner, None, None)  # type: ignore[arg-type]
    meta = {**meta, "epoch": agents[0].epoch, "config": config.to_json(), "weights_only": True}
    return checkpoint.save(folder, agents[0].epoch, state, meta, config=learning_hash(config))


def load(
    run: str | Path,
    seed: int | None = None,
    environment: Environment | HostEnvironment | None = None,
    trust: Trust = False,
) -> Agent:
    """The agent of a run, which is a folder or a name of `susd skills`: its first seed, or the one named.

    `environment` is an object that replaces the environment of the run. `trust` allows to run the code that a run names
    (FILE.py:NAME, gymnasium:MODULE:ID) and this process has not imported; code of installed packages needs none.
    """
    wanted = None if seed is None else _integer("seed", seed, 0, MAX_SEED)
    agents = load_all(run, environment, trust)
    if wanted is None:
        return agents[0]
    for agent in agents:
        if agent.seed == wanted:
            return agent
    raise UserError(f"{run} has no seed {seed}; it has {', '.join(str(a.seed) for a in agents)}")
