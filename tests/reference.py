"""What the tests of methods share: networks in float64 NumPy, finite differences, Adam's first step, short trainings."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from susd.collect import episodes
from susd.envs.base import Environment
from susd.learner import Learner, LearnerState
from susd.types import Policy, Transition


def fast(function: Callable[..., Any], level: int = 0) -> Callable[..., Any]:
    """jit with little optimisation, which takes longer than a tiny program runs; level 1 is for long trainings."""
    options = {
        "xla_backend_optimization_level": level,
        "xla_llvm_disable_expensive_passes": True,
        "xla_cpu_use_fusion_emitters": level > 0,
    }
    return jax.jit(function, compiler_options=options)


def plain(x: Any) -> np.ndarray:
    return np.asarray(x, np.float64)


def random_like(init: Callable[..., Any], seed: int = 0, scale: float = 0.5) -> Any:
    """Random values in the shapes of `init(key)`; a real initialisation has zero biases, which would hide a missing one."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(init, jax.random.key(0))
    return jax.tree.map(lambda leaf: (scale * rng.normal(size=leaf.shape)).astype(np.float32), shapes)


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0)


def forward(x: np.ndarray, weights: Sequence[Any], biases: Sequence[Any], activation: Any = relu) -> np.ndarray:
    """A multilayer perceptron with a linear last layer."""
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        x = activation(x @ plain(weight) + plain(bias))
    return x @ plain(weights[-1]) + plain(biases[-1])


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def differences(function: Callable[[Any], float], tree: Any, step: float = 1e-6) -> Any:
    """Central finite differences of a scalar function of a pytree, at its values in float64."""
    leaves, structure = jax.tree.flatten(jax.tree.map(plain, tree))
    gradients = [np.zeros_like(leaf) for leaf in leaves]
    for leaf, gradient in zip(leaves, gradients, strict=True):
        for index in np.ndindex(leaf.shape):
            old, ends = leaf[index], []
            for moved in (old + step, old - step):
                leaf[index] = moved
                ends.append(function(jax.tree.unflatten(structure, leaves)))
            leaf[index] = old
            gradient[index] = (ends[0] - ends[1]) / (2 * step)
    return jax.tree.unflatten(structure, gradients)


def assert_same_gradient(ours: Any, expected: Any) -> None:
    assert jax.tree.structure(ours) == jax.tree.structure(expected)
    for mine, theirs in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-3, atol=2e-4 * max(1.0, np.abs(theirs).max()))


def assert_first_adam_step(new: Any, old: Any, gradient: Any, rate: float) -> None:
    """In the first step Adam's bias-corrected moments are the gradient and its square."""
    for a, b, g in zip(*(jax.tree.leaves(t) for t in (new, old, gradient)), strict=True):
        clear = np.abs(plain(g)) > 1e-5  # below this, two compiled gradients differ by rounding
        step = rate * plain(g) / (np.abs(plain(g)) + 1e-8)
        np.testing.assert_allclose(plain(a)[clear], (plain(b) - step)[clear], atol=1e-5)


def unlearned(learner: Learner, params: Any) -> LearnerState:
    """A learner with these parameters before its first step: the states of Adam and the running means are zero."""
    shapes = jax.eval_shape(learner.init, jax.random.key(0))
    zero = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    return LearnerState(params, zero.opt, zero.stats, zero.reward_square, zero.sac)


def practised(
    learner: Learner, start: LearnerState, env: Environment, steps: int, key: jax.Array
) -> tuple[LearnerState, dict[str, jax.Array]]:
    """`steps` updates, each on new episodes of one step: a loss is logged for states that it was not trained on."""

    def one(state: LearnerState, step_key: jax.Array) -> tuple[LearnerState, dict[str, jax.Array]]:
        k_skills, k_run, k_update = jax.random.split(step_key, 3)
        skills = learner.method.skills.sample(k_skills, learner.batch_size)
        return learner.update(state, episodes(env, sampling(learner, state), skills, 1, k_run, terminal=True), k_update)

    return jax.lax.scan(one, start, jax.random.split(key, steps))


def sampling(learner: Learner, state: LearnerState) -> Policy:
    """The policy with sampled actions."""
    return lambda obs, skill, key: state.sac.actor.sample(learner.policy_input(obs, skill), key)


class Recorder:
    """In the place of SAC: keeps the batch that it receives."""

    actions = 2

    def __init__(self, parts: int = 1) -> None:
        self.parts = parts

    def init(self, key: jax.Array) -> None:
        return None

    def update(self, state: Any, batch: Any, noise: jax.Array) -> tuple[Any, dict[str, jax.Array]]:
        return batch, {}


def random_transitions(skills: Any, obs_size: int, size: int = 14, seed: int = 0) -> Transition:
    """Random transitions, with skills of the space."""
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.normal(size=(2, size, obs_size))
    skill = skills.project(np.asarray(rng.normal(size=(size, skills.size)), np.float32))
    action, done = rng.uniform(-1, 1, (size, 2)), rng.integers(0, 2, size)
    return Transition(*(np.asarray(x, np.float32) for x in (obs, action, next_obs, skill, done)))
