"""DIAYN compared with a float64 reference written from the formulas, and where the optimal discriminator is known."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from reference import (
    Recorder,
    assert_first_adam_step,
    assert_same_gradient,
    differences,
    fast,
    forward,
    log_softmax,
    plain,
    practised,
    random_like,
    random_transitions,
    unlearned,
)
from susd.learner import Learner
from susd.methods.diayn import Diayn, Params
from susd.sac import Sac, descend
from susd.skills import SkillSpace
from susd.types import Transition

GAUSSIAN = Diayn(
    obs_size=4,
    skills=SkillSpace("gaussian", 1, 3),
    hidden=5,
    layers=2,
    min_std=0.6,  # high, so that some of the random standard deviations are clamped
    precision="float32",
    learning_rate=0.05,
)
DISCRETE = dataclasses.replace(GAUSSIAN, skills=SkillSpace("one_hot", 1, 3))
KEY = jax.random.key(0)
kinds = pytest.mark.parametrize("method", [GAUSSIAN, DISCRETE], ids=["gaussian", "discrete"])


# --- the formulas ---------------------------------------------------------------------------------------------


def members(net: Any, obs: np.ndarray) -> list[np.ndarray]:
    """Mean and log-std of the two networks of the Gaussian, before clamping."""
    return [forward(plain(obs), [w[k] for w in net.nets.weights], [b[k] for b in net.nets.biases]) for k in range(2)]


def log_q(method: Diayn, params: Params, obs: np.ndarray, skill: np.ndarray) -> np.ndarray:
    """log q(z | s), [B]: a diagonal Gaussian whose std is at least 0.6, or a softmax."""
    net = params.discriminator
    if method.skills.discrete:
        return (log_softmax(forward(plain(obs), net.weights, net.biases)) * plain(skill)).sum(axis=1)
    mean, log_std = members(net, obs)
    return stats.norm.logpdf(plain(skill), mean, np.maximum(np.exp(log_std), 0.6)).sum(axis=1)


@pytest.mark.slow
@kinds
def test_loss_gradient_and_reward(method: Diayn) -> None:
    """The reward uses the updated discriminator at the next state."""
    params, batch = random_like(method.init, scale=0.8), random_transitions(method.skills, 4)

    def reference(p: Params) -> float:
        return float(-log_q(method, p, batch.next_obs, batch.skill).mean())

    (loss, (_, before, info)), gradient = fast(jax.value_and_grad(method.loss, has_aux=True))(params, None, batch, KEY)
    assert float(loss) == float(info["discriminator_loss"]) == pytest.approx(reference(params), rel=1e-4)
    assert_same_gradient(gradient, differences(reference, params))
    if method.skills.discrete:
        logits = forward(plain(batch.next_obs), params.discriminator.weights, params.discriminator.biases)
        right = (logits.argmax(axis=1) == batch.skill.argmax(axis=1)).mean()
        assert 0 < right < 1
        assert float(info["accuracy"]) == pytest.approx(right)
    else:
        mean, log_std = members(params.discriminator, batch.next_obs)
        std = np.maximum(np.exp(log_std), 0.6)
        assert 0.1 < (std == 0.6).mean() < 0.9  # the comparison includes the clamp
        assert float(info["skill_error"]) == pytest.approx(np.abs(mean - batch.skill).mean(), rel=1e-4)
        assert float(info["skill_std"]) == pytest.approx(std.mean(), rel=1e-4)

    learner = Learner(method, Recorder(), 14, reward_scale=1.0, normalise_reward=False, skill_input_scale=1.0)  # type: ignore[arg-type]
    new, update_info = fast(learner.update)(unlearned(learner, params), batch, KEY)
    assert_first_adam_step(new.params, params, gradient, 0.05)
    plus = (
        math.log(3) if method.skills.discrete else 0.0
    )  # - log p(z) of a discrete skill; that of the Gaussian is left out
    expected = log_q(method, new.params, batch.next_obs, batch.skill) + plus
    np.testing.assert_allclose(new.sac.reward, expected[:, None], rtol=1e-3, atol=1e-3)
    assert float(update_info["reward"]) == pytest.approx(expected.mean(), rel=1e-3, abs=1e-3)
    for wrong in (
        log_q(method, params, batch.next_obs, batch.skill) + plus,  # before the step
        log_q(method, new.params, batch.obs, batch.skill) + plus,  # at the state before the transition
    ):
        assert np.abs(wrong - expected).max() > 0.1  # the alternatives would be detected

    total, parts = fast(method.reward)(params, before, batch)
    np.testing.assert_array_equal(parts, np.asarray(total)[:, None])


@kinds
def test_encode_is_the_prediction(method: Diayn) -> None:
    params, obs = random_like(method.init, scale=0.8), random_transitions(method.skills, 4).obs
    net = params.discriminator
    expected = forward(plain(obs), net.weights, net.biases) if method.skills.discrete else members(net, obs)[0]
    np.testing.assert_allclose(fast(method.encode)(params, obs), expected, rtol=1e-4, atol=1e-5)


# --- environments with a known optimum --------------------------------------------------------------------------------


def test_gaussian_reaches_the_posterior() -> None:
    """Two skill dimensions z ~ N(0, 1). s'_0 = z_0 + 0.5 e: the posterior has mean 0.8 s'_0 and variance 0.2.
    s'_1 = 3 z_1 determines z_1, so that the std reaches its lower limit.
    """
    method = dataclasses.replace(
        GAUSSIAN, obs_size=2, skills=SkillSpace("gaussian", 1, 2), hidden=32, min_std=0.1, learning_rate=5e-3
    )

    def one(carry: Any, key: jax.Array) -> Any:
        params, opt = carry
        skill, noise = jax.random.normal(key, (2, 512, 2))
        next_obs = jnp.stack([skill[:, 0] + 0.5 * noise[:, 0], 3 * skill[:, 1]], axis=1)
        batch = Transition(jnp.zeros((512, 2)), skill, next_obs, skill, jnp.zeros(512))
        gradient, (_, _, info) = jax.grad(method.loss, has_aux=True)(params, None, batch, key)
        return descend(method.optimizer(), gradient, opt, params), info

    def run(key: jax.Array) -> Any:
        params = method.init(key)
        (params, _), infos = jax.lax.scan(one, (params, method.optimizer().init(params)), jax.random.split(key, 1000))
        grid = jnp.linspace(-1.5, 1.5, 7)
        return infos, *params.discriminator(jnp.stack([grid, 3 * grid], axis=1)), grid

    infos, mean, log_std, grid = (jax.tree.map(plain, x) for x in fast(run)(KEY))
    np.testing.assert_allclose(mean, np.stack([0.8 * grid, grid], axis=1), atol=0.15)
    np.testing.assert_allclose(np.exp(log_std), np.tile([math.sqrt(0.2), 0.1], (7, 1)), rtol=0.2)
    known = 0.5 * math.log(2 * math.pi * math.e * 0.2) + (0.5 * math.log(2 * math.pi) + math.log(0.1))
    assert infos["discriminator_loss"][-200:].mean() == pytest.approx(known, abs=0.15)
    # The mean |error| of a Gaussian is sqrt(2 / pi) std; the error of the second dimension is almost zero.
    floor = math.sqrt(2 / math.pi) * math.sqrt(0.2) / 2
    assert floor - 0.01 < infos["skill_error"][-200:].mean() < floor + 0.04


@dataclass(frozen=True)
class Field:
    """Steps on a plane with a little observation noise; with a gain of 0 there is only noise."""

    gain: Any

    def reset(self, key: jax.Array) -> jax.Array:
        return jnp.zeros(2)

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> jax.Array:
        return jnp.clip(self.gain * (state + 0.5 * action), -1.0, 1.0) + 0.05 * jax.random.normal(key, (2,))

    def observe(self, state: jax.Array) -> jax.Array:
        return state


def live_and_dead(prior: str, dim: int) -> dict[str, np.ndarray]:
    """The mean log of updates 500 to 600 of a small agent, where actions have an effect and where they have none."""
    skills = SkillSpace(prior, 1, dim)
    method = dataclasses.replace(GAUSSIAN, obs_size=2, skills=skills, hidden=32, min_std=0.1, learning_rate=3e-3)
    sac = Sac(
        inputs=2 + dim,
        actions=2,
        hidden=32,
        layers=2,
        activation="relu",
        precision="float32",
        learning_rate=3e-3,
        discount=0.8,
        tau=0.05,
        alpha_init=0.05,
        adaptive_alpha=False,
        target_entropy=0.0,
    )
    learner = Learner(method, sac, 64, reward_scale=1.0, normalise_reward=False, skill_input_scale=1.0)

    def run(gain: jax.Array) -> Any:
        k_start, k_steps = jax.random.split(KEY)
        return practised(learner, learner.init(k_start), Field(gain), 600, k_steps)[1]  # type: ignore[arg-type]

    infos = fast(jax.vmap(run))(np.array([1.0, 0.0], np.float32))
    return {name: plain(values)[:, -100:].mean(axis=1) for name, values in infos.items()}


@pytest.mark.slow
def test_discrete_skills_become_distinguishable() -> None:
    """Four skills: all recognised with a reward of log 4; where actions have no effect, guessed with a reward of 0."""
    infos = live_and_dead("one_hot", 4)
    live, dead = infos["accuracy"]
    earned, nothing = infos["reward"]
    assert live > 0.97
    assert math.log(4) - 0.08 < earned < math.log(4)
    assert dead == pytest.approx(1 / 4, abs=0.03)
    assert nothing == pytest.approx(0.0, abs=0.02)


@pytest.mark.slow
def test_gaussian_skills_become_distinguishable() -> None:
    """Without effect of actions q is the prior N(0, 1): error sqrt(2 / pi), reward minus the entropy of the prior."""
    infos = live_and_dead("gaussian", 1)
    live, dead = infos["skill_error"]
    assert live < 0.25
    assert dead == pytest.approx(math.sqrt(2 / math.pi), abs=0.03)
    assert infos["skill_std"][1] == pytest.approx(1.0, abs=0.05)
    earned, nothing = infos["reward"]
    assert nothing == pytest.approx(-0.5 * math.log(2 * math.pi * math.e), abs=0.05)
    assert earned > nothing + 1
