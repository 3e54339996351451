"""Agent: a trained skill policy, loaded from a run folder."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from susd.config import Config
from susd.envs.base import Environment, HostEnvironment
from susd.errors import UserError
from susd.factors import Factorization
from susd.methods.registry import method as find_method
from susd.networks import Actor
from susd.runs import checkpoint
from susd.runs.folder import RunFolder
from susd.training.goals import GoalSpace, read_goal, rest_skills, undirected
from susd.training.trainer import Trainer, learning_hash

WEIGHTS = (".learner.params", ".learner.sac.actor")  # the leaves of a TrainState that an agent needs


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
        skills = np.asarray(self.trainer.learner.method.skills.sample(jax.random.key(seed), count or 1))
        return skills if count else skills[0]

    def act(self, obs: Any, skill: Any, seed: int | None = None) -> np.ndarray:
        """The mean action in [-1, 1], or with a seed a sampled one; for one observation [S] or a batch [B, S]."""
        obs = self._sized(obs, "observation", self.trainer.env.spec.obs_size)
        skill = self._sized(skill, "skill", self.trainer.learner.method.skills.size)
        batched = jnp.broadcast_to(skill, (*obs.shape[:-1], skill.shape[-1]))
        inputs = jnp.atleast_2d(obs), jnp.atleast_2d(batched), jax.random.key(seed or 0)
        action = self.trainer.policy(self.actor, seed is not None)(*inputs)
        return np.asarray(action).reshape(*obs.shape[:-1], -1)

    def act_towards(self, obs: Any, goal: Any, skill: Any = None) -> np.ndarray:
        """The mean action that leads to a target state and holds it; for one observation [S] or a batch [B, S].

        `goal` is a mapping from factors to values in raw units, such as {"door": 1.0, "cart": [0.2, 0.3]}, or a whole
        observation [S]. Parts of the skill that it does not name are those of `skill`; without one they are at rest with
        paced skills, and otherwise a fixed random skill.
        """
        spec = self.trainer.env.spec
        obs, target = self._sized(obs, "observation", spec.obs_size), read_goal(spec, goal)
        named = target.parts(spec, part_names(self.trainer))
        rest = self._rest if skill is None else self._sized(skill, "skill", self.trainer.learner.method.skills.size)
        batch = jnp.atleast_2d(obs)
        rest = jnp.broadcast_to(rest, (len(batch), rest.shape[-1]))
        chosen = self._skill_between(self.goals, self.params, batch, target.replace(batch), named, rest)
        return self.act(obs, chosen.reshape(*obs.shape[:-1], -1))

    @cached_property
    def goals(self) -> GoalSpace:
        """How far a time step moves phi, and where random skills lead it: measured once, in the agent's environment."""
        if reason := undirected(find_method(self.trainer.config.method)):
            raise UserError(reason)
        return GoalSpace.measure(self.trainer, self.trainer.env, self.actor, self.params)

    def encode(self, obs: Any) -> np.ndarray:
        """phi(s): [S] to [N * D], or [B, S] to [B, N * D]."""
        obs = self._sized(obs, "observation", self.trainer.env.spec.obs_size)
        return np.asarray(self._encode(self.params, jnp.atleast_2d(obs))).reshape(*obs.shape[:-1], -1)

    def untrained_actor(self) -> Actor:
        """The actor before the first gradient step of the same seed."""
        init = jax.jit(lambda seed: self.trainer.init(seed).learner.sac.actor)  # compiled, it allocates no replay buffer
        return init(jnp.int32(self.seed))

    def _sized(self, value: Any, name: str, size: int) -> jax.Array:
        array = jnp.asarray(value, jnp.float32)
        if array.ndim == 0 or array.shape[-1] != size:
            raise UserError(f"the {name} has the shape {array.shape}; its last axis must have the length {size}")
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


def part_names(trainer: Trainer) -> tuple[str, ...]:
    """The names of a skill's parts: the factors, or `all` where the skill has one part for all of them."""
    skills, factors = trainer.learner.method.skills, trainer.env.spec.factorization.names
    unnamed = ("all",) if skills.parts == 1 else tuple(f"part {part + 1}" for part in range(skills.parts))
    return skills.names or (factors if len(factors) == skills.parts else unnamed)


def load_all(run: str | Path, environment: Environment | HostEnvironment | None = None) -> list[Agent]:
    """All seeds of a run, from its last good checkpoint. Only the weights are read, not the replay buffer."""
    folder = RunFolder.open(Path(run))
    trainer = Trainer.build(Config.from_json(folder.config), environment)
    state, meta, _ = checkpoint.restore_latest(
        folder.checkpoints,
        jax.eval_shape(trainer.start),
        learning_hash(trainer.config),
        on_skip=lambda text: print(f"skipped: {text}", file=sys.stderr),
        only=WEIGHTS,
    )

    def of_seed(index: int) -> Agent:
        actor, params = jax.tree.map(lambda x: x[index], (state.learner.sac.actor, state.learner.params))
        return Agent(trainer, actor, params, trainer.config.seed + index, int(meta["epoch"]))

    return [of_seed(index) for index in range(trainer.config.seeds)]


def load(run: str | Path, seed: int | None = None, environment: Environment | HostEnvironment | None = None) -> Agent:
    """The agent of a run folder: its first seed, or the one named."""
    agents = load_all(run, environment)
    if seed is None:
        return agents[0]
    for agent in agents:
        if agent.seed == seed:
            return agent
    raise UserError(f"{run} has no seed {seed}; it has {', '.join(str(a.seed) for a in agents)}")
