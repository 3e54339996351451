"""LSD compared with a float64 reference written from the formulas, its Lipschitz bound, and a known optimum."""

from functools import cache
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import LINE, fit, random_batch, train, updated
from reference import assert_first_adam_step, assert_same_gradient, differences, fast, forward, plain, random_like
from susd.methods.lsd import ITERATIONS, Lsd, Params, Vectors
from susd.networks import spectral_normalise
from susd.skills import SkillSpace
from susd.types import Transition

METHOD = Lsd(obs_size=4, skills=SkillSpace("sphere", 1, 3), hidden=5, layers=2, learning_rate=0.05)
KEY = jax.random.key(0)
PARAMS, BATCH = random_like(METHOD.init, scale=0.8), random_batch(METHOD.skills, 4)
Pairs = list[tuple[np.ndarray, np.ndarray]]


@cache
def graded(iterations: int) -> Any:
    """((loss, (stats, before, info)), gradient) with so many power iterations, compiled once."""

    def loss(*arguments: Any) -> Any:
        with mock.patch("susd.methods.lsd.ITERATIONS", iterations):
            return METHOD.loss(*arguments)

    return fast(jax.value_and_grad(loss, has_aux=True))


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def iterated(params: Params, right: tuple[Any, ...], iterations: int) -> Pairs:
    """(u, v) of every layer after power iterations from v: u = W v, v = W^T u, both of length 1."""
    pairs = []
    for weight, v in zip(params.phi.weights, right, strict=True):
        for _ in range(iterations):
            u = unit(plain(weight) @ plain(v))
            v = unit(plain(weight).T @ u)
        pairs.append((u, v))
    return pairs


def norms(params: Params, pairs: Pairs) -> list[float]:
    """sigma = u^T W v of every layer."""
    return [u @ plain(w) @ v for w, (u, v) in zip(params.phi.weights, pairs, strict=True)]


def moves(params: Params, sigmas: list[float], batch: Transition) -> np.ndarray:
    """phi(s') - phi(s) with weights W / sigma."""
    weights = [plain(w) / sigma for w, sigma in zip(params.phi.weights, sigmas, strict=True)]
    ends = [forward(plain(x), weights, params.phi.biases) for x in (batch.obs, batch.next_obs)]
    return ends[1] - ends[0]


def rewards(params: Params, sigmas: list[float]) -> np.ndarray:
    return (moves(params, sigmas, BATCH) * plain(BATCH.skill)).sum(axis=1)


def test_loss_vectors_and_gradients() -> None:
    """After one power iteration from random vectors, which has not converged: a wrong start would be detected."""
    rng = np.random.default_rng(3)
    stats = Vectors(tuple(unit(rng.normal(size=w.shape[-1])).astype(np.float32) for w in PARAMS.phi.weights))
    pairs = iterated(PARAMS, stats.right, 1)
    sigmas = norms(PARAMS, pairs)
    (loss, (new, before, info)), gradient = graded(1)(PARAMS, stats, BATCH, KEY)
    expected = rewards(PARAMS, sigmas)
    moved = np.linalg.norm(plain(BATCH.next_obs) - plain(BATCH.obs), axis=1)
    stretch = np.linalg.norm(moves(PARAMS, sigmas, BATCH), axis=1) / moved
    logged = {"phi_loss": -expected.mean(), "phi_reward": expected.mean()}
    logged |= {"stretch": stretch.mean(), "stretch_max": stretch.max()}
    assert float(loss) == pytest.approx(-expected.mean(), rel=1e-4)
    assert {name: float(value) for name, value in info.items()} == pytest.approx(logged, rel=1e-3)
    for ours, carried, (_, v) in zip(new.right, before.right, pairs, strict=True):
        np.testing.assert_allclose(ours, v, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(ours, carried)

    # u and v are constant in the gradient, sigma = u^T W v is not.
    assert_same_gradient(gradient, differences(lambda p: float(-rewards(p, norms(p, pairs)).mean()), PARAMS))
    through = differences(lambda p: float(-rewards(p, norms(p, iterated(p, stats.right, 1))).mean()), PARAMS)
    constant = differences(lambda p: float(-rewards(p, sigmas).mean()), PARAMS)
    for wrong in (through, constant):
        with pytest.raises(AssertionError):  # the alternatives would be detected
            assert_same_gradient(gradient, wrong)


def exact(params: Params) -> list[np.ndarray]:
    """Every weight matrix over its largest singular value."""
    return [plain(w) / np.linalg.svd(plain(w), compute_uv=False)[0] for w in params.phi.weights]


def test_encode_uses_exact_norms() -> None:
    expected = forward(plain(BATCH.obs), exact(PARAMS), PARAMS.phi.biases)
    np.testing.assert_allclose(fast(METHOD.encode)(PARAMS, BATCH.obs), expected, rtol=1e-3, atol=1e-3)


def test_initial_vectors_have_converged() -> None:
    for weight, vector in zip(PARAMS.phi.weights, fast(METHOD.init_stats)(PARAMS).right, strict=True):
        assert abs(vector @ np.linalg.svd(plain(weight))[2][0]) == pytest.approx(1.0, abs=1e-3)


def test_reward_uses_updated_phi() -> None:
    """And its norms: the power iteration continues from the vectors of the loss, with the updated weights."""
    stats = fast(METHOD.init_stats)(PARAMS)
    (_, (_, before, _)), gradient = graded(ITERATIONS)(PARAMS, stats, BATCH, KEY)
    new, info = updated(METHOD, PARAMS, BATCH)
    assert_first_adam_step(new.params, PARAMS, gradient, 0.05)
    expected = rewards(new.params, norms(new.params, iterated(new.params, before.right, ITERATIONS)))
    old = norms(PARAMS, iterated(PARAMS, before.right, ITERATIONS))
    for wrong in (rewards(PARAMS, old), rewards(new.params, old)):  # the old phi, or the updated one with the old norms
        assert np.abs(wrong - expected).max() > 0.02 * np.abs(expected).max()
    np.testing.assert_allclose(new.sac.reward, expected[:, None], rtol=2e-3, atol=2e-3)
    assert float(info["reward"]) == pytest.approx(expected.mean(), rel=2e-3, abs=1e-4)
    for ours, carried in zip(new.stats.right, before.right, strict=True):
        np.testing.assert_allclose(ours, carried, rtol=1e-4, atol=1e-4)


def test_phi_stays_lipschitz_during_training() -> None:
    """The power iteration keeps up with Adam; without the normalisation phi is far from 1-Lipschitz."""
    method = Lsd(obs_size=6, skills=SkillSpace("sphere", 1, 3), hidden=16, layers=2, learning_rate=2e-3)
    mixing = jnp.asarray(np.random.default_rng(0).normal(size=(3, 6)), jnp.float32)

    def sample(key: jax.Array) -> Transition:
        """Skills move the state along three of six directions, with noise in all of them."""
        k_obs, k_noise, k_skill = jax.random.split(key, 3)
        obs, noise = jax.random.normal(k_obs, (64, 6)), 0.3 * jax.random.normal(k_noise, (64, 6))
        skill = method.skills.sample(k_skill, 64)
        return Transition(obs, skill, obs + skill @ mixing + noise, skill, jnp.zeros(64))

    params, stats, infos = fit(method, sample, 1000)
    assert infos["stretch_max"].max() < 1.08  # at every step of the training; with a single iteration it is above 1.2
    assert infos["stretch"][-100:].mean() > 1.3 * infos["stretch"][:10].mean()  # and it has learned something
    running, _ = fast(spectral_normalise)(params.phi, stats.right)
    for weight in running.weights:
        assert np.linalg.svd(plain(weight), compute_uv=False)[0] == pytest.approx(1.0, abs=0.05)

    rng = np.random.default_rng(1)
    near = rng.normal(size=(4000, 6))
    pairs = [(near, near + 1e-3 * rng.normal(size=near.shape)), (near, rng.normal(size=near.shape))]
    for a, b in pairs:
        distance = np.linalg.norm(a - b, axis=1)
        ends = [forward(x, running.weights, running.biases) for x in (a, b)]
        bare = [forward(x, params.phi.weights, params.phi.biases) for x in (a, b)]
        assert (np.linalg.norm(ends[0] - ends[1], axis=1) / distance).max() < 1.08
        assert (np.linalg.norm(bare[0] - bare[1], axis=1) / distance).max() > 2.0


@pytest.mark.slow
def test_phi_is_the_position_on_a_line() -> None:
    """The optimal 1-Lipschitz phi on a line is phi(s) = +-s, and z = +-1 go to opposite ends."""
    result = train(LINE, "lsd", 100, skill_dim=1)
    position = np.linspace(-1.0, 1.0, 41)
    phi = result.encode(position[:, None])[:, 0]
    slope = np.diff(phi) / np.diff(position)
    assert np.abs(slope).max() < 1.03
    assert np.abs(slope).min() > 0.9
    assert abs(slope.sum()) == pytest.approx(np.abs(slope).sum())  # monotone
    last = result.rollout(np.array([[1.0], [-1.0]]))[-1, :, 0]
    np.testing.assert_allclose(last * np.sign(slope[0]), [1.0, -1.0], atol=0.05)
