"""Agent: a trained skill policy, loaded from a run folder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from susd import checkpoint
from susd.config import Config
from susd.envs.base import Environment, HostEnvironment
from susd.errors import UserError
from susd.factors import Factorization
from susd.learner import LearnerState
from susd.program import Program
from susd.runlog import RunFolder


@dataclass(frozen=True)
class Agent:
    """One trained seed: acts, encodes states and draws skills."""

    program: Program
    learner: LearnerState
    seed: int
    epoch: int

    @property
    def factorization(self) -> Factorization:
        """The factors of its observations."""
        return self.program.env.spec.factorization

    def sample_skill(self, seed: int = 0, count: int | None = None) -> np.ndarray:
        """A skill from the prior, [N * D], or `count` of them, [count, N * D]."""
        skills = np.asarray(self.program.learner.method.skills.sample(jax.random.key(seed), count or 1))
        return skills if count else skills[0]

    def act(self, obs: Any, skill: Any, seed: int | None = None) -> np.ndarray:
        """The mean action in [-1, 1], or with a seed a sampled one; for one observation [S] or a batch [B, S]."""
        obs, skill = jnp.asarray(obs, jnp.float32), jnp.asarray(skill, jnp.float32)
        batched = jnp.broadcast_to(skill, (*obs.shape[:-1], skill.shape[-1]))
        action = self._act(jnp.atleast_2d(obs), jnp.atleast_2d(batched), jax.random.key(seed or 0), seed is not None)
        return np.asarray(action).reshape(*obs.shape[:-1], -1)

    def encode(self, obs: Any) -> np.ndarray:
        """phi(s): [S] to [N * D], or [B, S] to [B, N * D]."""
        obs = jnp.asarray(obs, jnp.float32)
        code = self.program.learner.method.encode(self.learner.params, jnp.atleast_2d(obs))
        return np.asarray(code).reshape(*obs.shape[:-1], -1)

    @cached_property
    def _act(self) -> Any:
        actor = self.learner.sac.actor
        return jax.jit(lambda o, z, k, sampled: self.program.policy(actor, sampled)(o, z, k), static_argnums=3)


def load_all(run: str | Path, environment: Environment | HostEnvironment | None = None) -> list[Agent]:
    """All seeds of a run, from its last good checkpoint."""
    folder = RunFolder.open(Path(run))
    program = Program.build(Config.from_json(folder.config), environment)
    state, meta, _ = checkpoint.restore_latest(folder.checkpoints, jax.eval_shape(program.start))
    return [
        Agent(program, jax.tree.map(lambda x, i=i: x[i], state.learner), program.config.seed + i, int(meta["epoch"]))
        for i in range(program.config.seeds)
    ]


def load(run: str | Path, seed: int | None = None, environment: Environment | HostEnvironment | None = None) -> Agent:
    """The agent of a run folder: its first seed, or the one named."""
    agents = load_all(run, environment)
    if seed is None:
        return agents[0]
    for agent in agents:
        if agent.seed == seed:
            return agent
    raise UserError(f"{run} has no seed {seed}; it has {', '.join(str(a.seed) for a in agents)}")
