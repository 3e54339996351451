"""Tiny worlds whose answer is known, and a whole training in them as one compiled call."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from reference import fast
from susd.collect import rollout
from susd.config import configure
from susd.envs.base import EnvSpec
from susd.factors import Factorization
from susd.learner import LearnerState
from susd.methods.catalog import METHODS, options_of
from susd.program import Program

# What a probe depends on is written out, so that it does not move with the presets.
SMALL: dict[str, Any] = {
    "episodes": 8,
    "gradient_steps": 25,
    "batch_size": 64,
    "warmup": 160,
    "hidden": 32,
    "phi_hidden": 32,
    "actor_activation": "relu",
    "scale_skill": True,
    "normalise_reward": True,
    "discount": 0.85,
    "learning_rate": 3e-3,
    "adaptive_alpha": True,
    "target_entropy": 0.3,  # actions near their ends are likely; uniform ones would have 0.69
}
OWN: dict[str, Any] = {
    "lambda_init": 30.0,
    "slack": 1e-3,
    "dual_learning_rate": 1e-2,
    "density_hidden": 32,
    "min_std": 1e-3,
    "constraint": "per_factor",
    "weight": "mean",
    "distance": "mean",
}


@dataclass(frozen=True)
class Box:
    """A point in a box: s_d moves by speed_d a_d, up to walls at +-limit_d. It starts in the middle; one factor each."""

    speeds: tuple[float, ...]
    limits: tuple[float, ...]
    horizon: int = 20

    @cached_property
    def spec(self) -> EnvSpec:
        size = len(self.speeds)
        factors = Factorization.from_boundaries(range(size + 1), [f"axis_{d}" for d in range(size)])
        return EnvSpec("box", size, size, self.horizon, factors, (), {})

    def reset(self, key: jax.Array) -> jax.Array:
        return jnp.zeros(len(self.speeds))

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> jax.Array:
        limits = jnp.asarray(self.limits)
        return jnp.clip(state + jnp.asarray(self.speeds) * action, -limits, limits)

    def observe(self, state: jax.Array) -> jax.Array:
        return state

    def render(self, state: jax.Array, size: int = 400) -> np.ndarray:
        raise NotImplementedError


@dataclass(frozen=True)
class Trained:
    """What a training left behind, and what it logged per epoch."""

    program: Program
    learner: LearnerState
    infos: dict[str, np.ndarray]

    def encode(self, obs: np.ndarray) -> np.ndarray:
        """phi(s), [B, N * D]."""
        method = self.program.learner.method
        return np.asarray(fast(method.encode)(self.learner.params, jnp.asarray(obs, jnp.float32)))

    def courses(self, skills: np.ndarray) -> np.ndarray:
        """Where each skill's mean actions lead, [T, W, S]."""
        program, key = self.program, jax.random.key(0)

        def run(actor: Any, z: jax.Array) -> jax.Array:
            policy = program.policy(actor, sampled=False)
            return rollout(program.env, policy, z, program.horizon, key)[1].next_obs  # type: ignore[arg-type]

        return np.asarray(fast(run)(self.learner.sac.actor, jnp.asarray(skills, jnp.float32)))


def train(env: Box, method: str, epochs: int, seed: int = 0, **changes: Any) -> Trained:
    """All epochs of a small run in one compiled scan."""
    replay = SMALL["episodes"] * env.horizon * epochs
    own = {name: value for name, value in OWN.items() if name in options_of({"method": method, **METHODS[method].fixed})}
    config = configure("probe", **{**SMALL, **own, "method": method, "replay": replay, **changes})
    program = Program.build(config, env)

    def run(start: jax.Array) -> Any:
        return jax.lax.scan(program.epoch, program.init(start), jnp.arange(epochs))

    state, infos = fast(run)(jnp.int32(seed))
    return Trained(program, state.learner, jax.tree.map(np.asarray, infos))
