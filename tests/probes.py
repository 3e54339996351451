"""Tiny environments with a known optimum, and training of a method or of the whole learner in one compiled call."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from reference import Recorder, fast
from susd.collect import rollout
from susd.config import configure
from susd.envs.base import EnvSpec
from susd.factors import Factorization
from susd.learner import Learner, LearnerState
from susd.methods import registry
from susd.methods.base import Method, RunningMean
from susd.sac import descend
from susd.skills import SkillSpace
from susd.training.trainer import Trainer
from susd.types import Transition

# Everything a probe depends on is set here, so that it does not change with the presets.
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
    "target_entropy": 0.3,  # actions near their bounds are likely; uniform actions would have 0.69
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


def random_batch(skills: SkillSpace, obs_size: int, seed: int = 0, size: int = 14) -> Transition:
    """Random transitions, with steps of about the size of the state."""
    rng = np.random.default_rng(seed)
    obs, step = rng.normal(size=(2, size, obs_size))
    skill = np.asarray(skills.project(jnp.asarray(rng.normal(size=(size, skills.size)), jnp.float32)))
    action, done = rng.uniform(-1, 1, (size, 2)), rng.integers(0, 2, size)
    return Transition(*(np.asarray(x, np.float32) for x in (obs, action, obs + 0.7 * step, skill, done)))


# --- one update ---------------------------------------------------------------------------------------------------------


def updated(
    method: Method, params: Any, batch: Transition, parts: int = 1, **options: Any
) -> tuple[LearnerState, dict[str, jax.Array]]:
    """The first update of a learner with these parameters; the field `sac` of the result is the batch that SAC received."""
    return _compiled_update(method, parts, len(batch.done), tuple(options.items()))(params, batch)


@cache
def _compiled_update(method: Method, parts: int, size: int, options: tuple[tuple[str, Any], ...]) -> Any:
    settings = {"reward_scale": 1.0, "normalise_reward": False, "skill_input_scale": 1.0, **dict(options)}
    learner = Learner(method, Recorder(parts), size, **settings)  # type: ignore[arg-type]

    def run(params: Any, batch: Transition) -> Any:
        opt, stats = method.optimizer().init(params), method.init_stats(params)
        start = LearnerState(params, opt, stats, RunningMean.init(), None)  # type: ignore[arg-type]
        return learner.update(start, batch, jax.random.key(1))

    return fast(run)


def fit(method: Any, sample: Callable[[jax.Array], Transition], steps: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Gradient steps of the method alone on batches from `sample(key)`: parameters, statistics, infos [steps]."""
    optimizer = method.optimizer()

    def one(carry: Any, key: jax.Array) -> Any:
        params, opt, stats = carry
        grad, (stats, _, info) = jax.grad(method.loss, has_aux=True)(params, stats, sample(key), key)
        params, opt = descend(optimizer, grad, opt, params)
        return (params, opt, stats), info

    def run(key: jax.Array) -> Any:
        params = method.init(key)
        start = (params, optimizer.init(params), method.init_stats(params))
        return jax.lax.scan(one, start, jax.random.split(key, steps))

    (params, _, stats), infos = fast(run)(jax.random.key(seed))
    return params, stats, jax.tree.map(np.asarray, infos)


# --- environments -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Box:
    """A point in a box: s_d moves by speed_d a_d, up to walls at +-limit_d, from the middle; every axis is a factor."""

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


LINE = Box((0.1,), (1.0,))  # ten steps from the middle to a wall


@dataclass(frozen=True)
class Trained:
    """The result of a training, and what it logged per epoch."""

    trainer: Trainer
    learner: LearnerState
    infos: dict[str, np.ndarray]

    def encode(self, obs: np.ndarray) -> np.ndarray:
        """phi(s), [B, N * D]."""
        method = self.trainer.learner.method
        return np.asarray(fast(method.encode)(self.learner.params, jnp.asarray(obs, jnp.float32)))

    def rollout(self, skills: np.ndarray) -> np.ndarray:
        """The trajectory of each skill with mean actions, [T, W, S]."""
        trainer, key = self.trainer, jax.random.key(0)

        def run(actor: Any, z: jax.Array) -> jax.Array:
            policy = trainer.policy(actor, sampled=False)
            return rollout(trainer.env, policy, z, trainer.horizon, key)[1].next_obs  # type: ignore[arg-type]

        return np.asarray(fast(run)(self.learner.sac.actor, jnp.asarray(skills, jnp.float32)))


def train(env: Box, method: str, epochs: int, seed: int = 0, **changes: Any) -> Trained:
    """All epochs of a small run in one compiled scan."""
    trainer, run = _program(env, method, epochs, tuple(changes.items()))
    state, infos = run(jnp.int32(seed))
    return Trained(trainer, state.learner, jax.tree.map(np.asarray, infos))


@cache
def _program(env: Box, method: str, epochs: int, changes: tuple[tuple[str, Any], ...]) -> tuple[Trainer, Any]:
    """The trainer, and its run as a function of the seed."""
    replay = SMALL["episodes"] * env.horizon * epochs
    card = registry.method(method)
    own = {name: value for name, value in OWN.items() if name in card.active(card.fixed)}
    config = configure("probe", **{**SMALL, **own, "method": method, "buffer_size": replay, **dict(changes)})
    trainer = Trainer.build(config, env)

    def run(start: jax.Array) -> Any:
        return jax.lax.scan(trainer.epoch, trainer.init(start), jnp.arange(epochs))

    return trainer, fast(run)
