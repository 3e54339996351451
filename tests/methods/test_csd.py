"""CSD compared with a float64 reference written from the formulas, and environments where the optimum is known."""

import dataclasses
import math
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import Box, fit, random_batch, train, updated
from reference import assert_first_adam_step, assert_same_gradient, differences, fast, forward, plain, random_like
from susd.methods.base import RunningMean
from susd.methods.csd import Csd, Params
from susd.methods.metra import Metra
from susd.skills import SkillSpace
from susd.types import Transition

METHOD = Csd(
    obs_size=4,
    skills=SkillSpace("sphere", 1, 3),
    distance="raw",
    hidden=5,
    density_hidden=5,
    layers=2,
    min_std=0.4,  # high, so that some of the random standard deviations are clamped
    precision="float32",
    lambda_init=1.7,
    slack=0.05,
    learning_rate=0.05,
    dual_learning_rate=0.02,
)
VARIANTS = {"raw": METHOD, "mean": dataclasses.replace(METHOD, distance="mean")}
KEY = jax.random.key(0)
BATCH = random_batch(METHOD.skills, 4)
PARAMS = eqx.tree_at(lambda p: p.phi.weights[-1], random_like(METHOD.init, scale=0.8), replace_fn=lambda w: 8 * w)
EARLIER = jax.tree.map(np.float32, RunningMean(2.0 * 0.5, 0.5))  # a mean of 2 with half of the weight


@cache
def graded(method: Csd) -> Any:
    """((loss, (stats, before, info)), gradient) of the method, compiled once."""
    return fast(jax.value_and_grad(method.loss, has_aux=True))


def density(params: Params, batch: Transition) -> tuple[float, np.ndarray, np.ndarray]:
    """The negative log-likelihood, kappa = ((delta s - mu) / sigma)^2 gbar^2 per dimension, and sigma."""
    nets = params.density.nets
    mean, log_std = (forward(plain(batch.obs), [w[k] for w in nets.weights], [b[k] for b in nets.biases]) for k in range(2))
    sigma = np.exp(np.clip(log_std, math.log(0.4), math.log(1e6)))
    z_score = (plain(batch.next_obs) - plain(batch.obs) - mean) / sigma
    nll = (0.5 * z_score**2 + np.log(sigma) + 0.5 * math.log(2 * math.pi)).sum(axis=1).mean()
    geometric = np.prod(sigma, axis=1, keepdims=True) ** (1 / sigma.shape[1])
    return float(nll), (z_score * geometric) ** 2, sigma


def reference(params: Params, bound: np.ndarray, batch: Transition) -> dict[str, Any]:
    """r = <delta, z>, c = min(eps, d^2 - 1/D sum_d delta_d^2) with the bound d^2 [B] given, and the losses."""
    phi = params.phi
    delta = forward(plain(batch.next_obs), phi.weights, phi.biases) - forward(plain(batch.obs), phi.weights, phi.biases)
    r = (delta * plain(batch.skill)).sum(axis=1)
    square = (delta**2).sum(axis=1) / 3
    c = np.minimum(0.05, bound - square)
    log_lambda = plain(params.log_lambda)[0]
    phi_loss = -np.mean(r + np.exp(log_lambda) * c)
    return {"r": r, "square": square, "c": c, "phi_loss": phi_loss, "dual_loss": log_lambda * c.mean()}


@pytest.mark.parametrize("method", VARIANTS.values(), ids=VARIANTS)
def test_losses_and_gradients(method: Csd) -> None:
    nll, kappa, sigma = density(PARAMS, BATCH)
    assert 0.05 < (sigma <= 0.4 + 1e-6).mean() < 0.7
    squared = kappa.mean(axis=1)
    running = (0.99 * 1.0 + 0.01 * squared.mean()) / (0.99 * 0.5 + 0.01)
    bound = squared if method.distance == "raw" else squared / running
    expected = reference(PARAMS, bound, BATCH)
    assert 0.05 < (expected["c"] < 0).mean() < 0.95  # both branches of the minimum are taken
    (loss, (stats, before, info)), gradient = graded(method)(PARAMS, EARLIER, BATCH, KEY)

    assert before is None
    assert float(stats.value) == pytest.approx(running, rel=1e-4)
    assert float(loss) == pytest.approx(expected["phi_loss"] + expected["dual_loss"] + nll, rel=1e-4)
    logged = {
        "phi_loss": expected["phi_loss"],
        "phi_reward": expected["r"].mean(),
        "constraint": expected["square"].mean(),
        "constraint_max": expected["square"].max(),
        "violations": (expected["c"] < 0).mean(),
        "lambda": np.exp(plain(PARAMS.log_lambda))[0],
        "density_nll": nll,
        "distance_raw": running,
    }
    assert {name: float(value) for name, value in info.items()} == pytest.approx(logged, rel=1e-3)

    # Each gradient is that of its own loss: lambda and the distance are constant for phi, c for lambda, and the density
    # model is fitted to the data only, not to the bound that follows from it.
    def phi_loss(phi: Any) -> float:
        return float(reference(eqx.tree_at(lambda p: p.phi, PARAMS, phi), bound, BATCH)["phi_loss"])

    def likelihood(nets: Any) -> float:
        return density(eqx.tree_at(lambda p: p.density, PARAMS, nets), BATCH)[0]

    assert_same_gradient(gradient.phi, differences(phi_loss, PARAMS.phi))
    assert_same_gradient(gradient.density, differences(likelihood, PARAMS.density))
    np.testing.assert_allclose(gradient.log_lambda, [expected["c"].mean()], rtol=1e-3, atol=1e-5)


def test_first_mean_distance_is_one() -> None:
    """The running mean is unbiased: from the first batch on, the mean bound is 1."""
    method = VARIANTS["mean"]
    squared = density(PARAMS, BATCH)[1].mean(axis=1)
    (_, (stats, _, info)), _ = graded(method)(PARAMS, method.init_stats(PARAMS), BATCH, KEY)
    assert float(stats.value) == pytest.approx(squared.mean(), rel=1e-4)
    expected = reference(PARAMS, squared / squared.mean(), BATCH)
    assert float(info["phi_loss"]) == pytest.approx(expected["phi_loss"], rel=1e-3)


def test_encode_is_phi() -> None:
    expected = forward(plain(BATCH.obs), PARAMS.phi.weights, PARAMS.phi.biases)
    np.testing.assert_allclose(fast(METHOD.encode)(PARAMS, BATCH.obs), expected, rtol=1e-4, atol=1e-5)


def test_reward_uses_updated_phi_and_no_distance() -> None:
    new, info = updated(METHOD, PARAMS, BATCH)
    _, gradient = graded(METHOD)(PARAMS, METHOD.init_stats(PARAMS), BATCH, KEY)
    for name, rate in (("phi", 0.05), ("density", 0.05), ("log_lambda", 0.02)):
        assert_first_adam_step(getattr(new.params, name), getattr(PARAMS, name), getattr(gradient, name), rate)
    nothing = np.zeros(len(BATCH.done))
    old, fresh = reference(PARAMS, nothing, BATCH)["r"], reference(new.params, nothing, BATCH)["r"]
    assert np.abs(old - fresh).max() > 0.05 * np.abs(fresh).max()  # the old reward would be detected
    np.testing.assert_allclose(new.sac.reward, fresh[:, None], rtol=2e-3, atol=2e-3)
    assert float(info["reward"]) == pytest.approx(fresh.mean(), rel=2e-3, abs=1e-4)
    reward = fast(METHOD.reward)(PARAMS, None, BATCH)
    np.testing.assert_allclose(reward.parts, old[:, None], rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(reward.parts[:, 0], reward.total)


# --- environments with a known optimum --------------------------------------------------------------------------------

STEP, RARE = 0.1, 0.1  # the length of every move, and the probability that it is along the second axis


def sometimes(key: jax.Array) -> Transition:
    """s' = s + 0.1 z along the first axis, or in one of ten transitions along the second."""
    k_obs, k_skill, k_rare = jax.random.split(key, 3)
    obs = jax.random.uniform(k_obs, (256, 2), minval=-1.0, maxval=1.0)
    skill = jnp.sign(jax.random.normal(k_skill, (256, 1)))
    rare = jax.random.bernoulli(k_rare, RARE, (256, 1))
    return Transition(obs, skill, obs + STEP * skill * jnp.concatenate([~rare, rare], axis=1), skill, jnp.zeros(256))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["csd", "metra"])
def test_rare_moves_are_long_in_phi(method: str) -> None:
    """A normal fitted to s' - s has mu = 0, sigma_1^2 = (1 - p) STEP^2 and sigma_2^2 = p STEP^2.

    So kappa is STEP^2 / sigma_1^2 gbar^2 = gbar^2 / (1 - p) for a common move, gbar^2 / p for a rare one, with
    gbar^2 = sigma_1 sigma_2; d^2 is half of it and gbar^2 on average. phi is linear and each move is at its bound:
    its slopes differ by a factor sqrt((1 - p) / p) = 3. For METRA all moves have the same length, 1.
    """
    common: dict[str, Any] = {"obs_size": 2, "skills": SkillSpace("sphere", 1, 1), "hidden": 32, "layers": 2}
    common |= {"lambda_init": 30.0, "learning_rate": 2e-3, "dual_learning_rate": 1e-2}
    mean_square = STEP**2 * math.sqrt(RARE * (1 - RARE))
    if method == "metra":
        objective: Csd | Metra = Metra(**common, slack=0.03)
        expected = np.array([1.0, 1.0]) / STEP
    else:
        own = {"distance": "raw", "density_hidden": 8, "min_std": 1e-3, "precision": "float32"}
        objective = Csd(**common, slack=0.03 * mean_square, **own)
        expected = np.sqrt(mean_square / 2 / np.array([1 - RARE, RARE])) / STEP
    params, stats, _ = fit(objective, sometimes, 4500)
    if stats is not None:
        assert float(stats.value) == pytest.approx(mean_square, rel=0.05)
    inside = np.linspace(-0.8, 0.8, 17)
    grid = np.stack(np.meshgrid(inside, inside), axis=-1).reshape(-1, 2).astype(np.float32)
    phi = plain(fast(objective.encode)(params, grid))[:, 0]
    design = np.column_stack([grid, np.ones(len(grid))])
    slopes, residual, *_ = np.linalg.lstsq(design, phi, rcond=None)
    np.testing.assert_allclose(slopes[:2], expected, rtol=0.1)
    assert residual[0] < 0.02 * ((phi - phi.mean()) ** 2).sum()


@pytest.mark.slow
def test_skills_use_a_coordinate_of_small_scale() -> None:
    """The second coordinate has a unit ten times larger, so its steps and the distance to its walls are small values.

    In the distance of the density model a step has the same length in both, and the skills reach all four walls. Some seeds
    end in a line, so two of three must succeed.
    """
    env = Box((0.2, 0.02), (2.0, 0.2))
    angle = np.arange(16) * np.pi / 8
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    good, seed = 0, 0
    while good < 2 and seed < 3:
        ends = train(env, "csd", 150, seed, skill_dim=2).rollout(circle)[-1] / env.limits
        along_one_line = abs(np.corrcoef(ends.T)[0, 1]) > 0.6
        good += bool((ends.std(axis=0) > 0.6).all() and not along_one_line)
        seed += 1
    assert good == 2
