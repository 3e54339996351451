"""METRA compared with a float64 reference written from the formulas, and in one dimension, where the optimum is known."""

import dataclasses
from functools import cache
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

from probes import LINE, random_batch, train, updated
from reference import assert_first_adam_step, assert_same_gradient, differences, fast, forward, plain, random_like
from susd.factors import Factorization
from susd.methods.metra import Metra, Params
from susd.methods.susd import Before, Susd
from susd.methods.susd import Params as SusdParams
from susd.networks import FactoredMLP
from susd.skills import SkillSpace
from susd.types import Transition

METHOD = Metra(
    obs_size=4,
    skills=SkillSpace("sphere", 1, 3),
    hidden=5,
    layers=2,
    lambda_init=1.7,
    slack=0.05,
    learning_rate=0.05,
    dual_learning_rate=0.02,
)
VARIANTS = {"three": METHOD, "one": dataclasses.replace(METHOD, skills=SkillSpace("gaussian", 1, 1))}
KEY = jax.random.key(0)


@cache
def graded(method: Any) -> Any:
    """((loss, (stats, before, info)), gradient) of the method, compiled once."""
    return fast(jax.value_and_grad(method.loss, has_aux=True))


def reference(method: Metra, params: Params, batch: Transition) -> dict[str, Any]:
    """r = <delta, z>, c = min(eps, 1 - 1/D sum_d delta_d^2), and the two losses, each with the other's part constant."""
    phi = params.phi
    delta = forward(plain(batch.next_obs), phi.weights, phi.biases) - forward(plain(batch.obs), phi.weights, phi.biases)
    r = (delta * plain(batch.skill)).sum(axis=1)
    square = (delta**2).sum(axis=1) / method.skills.dim
    c = np.minimum(0.05, 1 - square)
    log_lambda = plain(params.log_lambda)[0]
    phi_loss = -np.mean(r + np.exp(log_lambda) * c)
    return {"r": r, "square": square, "c": c, "phi_loss": phi_loss, "dual_loss": log_lambda * c.mean()}


@pytest.mark.parametrize("method", VARIANTS.values(), ids=VARIANTS)
def test_losses_reward_and_gradients(method: Metra) -> None:
    params, batch = random_like(method.init, scale=0.8), random_batch(method.skills, 4)
    expected = reference(method, params, batch)
    assert 0.05 < (expected["c"] < 0).mean() < 0.95  # both branches of the minimum are taken
    (loss, (stats, before, info)), gradient = graded(method)(params, method.init_stats(params), batch, KEY)

    assert stats is before is None
    assert float(loss) == pytest.approx(expected["phi_loss"] + expected["dual_loss"], rel=1e-4)
    logged = {
        "phi_loss": expected["phi_loss"],
        "phi_reward": expected["r"].mean(),
        "constraint": expected["square"].mean(),
        "constraint_max": expected["square"].max(),
        "violations": (expected["c"] < 0).mean(),
        "lambda": np.exp(plain(params.log_lambda))[0],
    }
    assert {name: float(value) for name, value in info.items()} == pytest.approx(logged, rel=1e-3)

    def phi_loss(phi: Any) -> float:
        return float(reference(method, eqx.tree_at(lambda p: p.phi, params, phi), batch)["phi_loss"])

    assert_same_gradient(gradient.phi, differences(phi_loss, params.phi))
    np.testing.assert_allclose(gradient.log_lambda, [expected["c"].mean()], rtol=1e-3, atol=1e-5)

    reward = fast(method.reward)(params, None, batch)
    np.testing.assert_allclose(reward.total, expected["r"], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(reward.parts[:, 0], reward.total)
    assert reward.parts.shape == (14, 1)


def test_encode_and_initial_lambda() -> None:
    params, obs = random_like(METHOD.init), random_batch(METHOD.skills, 4).obs
    expected = forward(plain(obs), params.phi.weights, params.phi.biases)
    np.testing.assert_allclose(fast(METHOD.encode)(params, obs), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.exp(fast(METHOD.init)(KEY).log_lambda), [1.7], rtol=1e-5)


def test_reward_uses_updated_phi() -> None:
    params, batch = random_like(METHOD.init, scale=0.8), random_batch(METHOD.skills, 4)
    new, info = updated(METHOD, params, batch)
    _, gradient = graded(METHOD)(params, None, batch, KEY)
    assert_first_adam_step(new.params.phi, params.phi, gradient.phi, 0.05)
    assert_first_adam_step(new.params.log_lambda, params.log_lambda, gradient.log_lambda, 0.02)
    old, fresh = reference(METHOD, params, batch)["r"], reference(METHOD, new.params, batch)["r"]
    assert np.abs(old - fresh).max() > 0.05 * np.abs(fresh).max()  # the old reward would be detected
    np.testing.assert_allclose(new.sac.reward, fresh[:, None], rtol=2e-3, atol=2e-3)
    assert float(info["reward"]) == pytest.approx(fresh.mean(), rel=2e-3, abs=1e-4)


@pytest.mark.parametrize(("scale", "change"), [(0.0, -0.02), (100.0, 0.02)], ids=["satisfied", "violated"])
def test_direction_of_lambda(scale: float, change: float) -> None:
    params = random_like(METHOD.init)
    weights = (*params.phi.weights[:-1], scale * params.phi.weights[-1])
    params = eqx.tree_at(lambda p: p.phi.weights, params, weights)
    new, _ = updated(METHOD, params, random_batch(METHOD.skills, 4))
    np.testing.assert_allclose(new.params.log_lambda - params.log_lambda, [change], rtol=1e-3)


def test_susd_with_one_factor_and_no_weight_is_metra() -> None:
    """The ablation susd-wf: the same losses, steps and rewards."""
    susd = Susd(
        factorization=Factorization.from_boundaries((0, 4), ("state",)),
        skills=METHOD.skills,
        constraint="joint",
        weight="none",
        weight_scope="factor",
        share_agent=(),
        phi_hidden=5,
        density_hidden=5,
        layers=2,
        min_std=0.4,
        precision="float32",
        lambda_init=1.7,
        slack=0.05,
        learning_rate=0.05,
        dual_learning_rate=0.02,
    )
    params, batch = random_like(METHOD.init, scale=0.8), random_batch(METHOD.skills, 4)
    stacked = FactoredMLP(jax.tree.map(lambda x: x[None], params.phi), susd.factorization.indices)
    same = SusdParams(stacked, None, params.log_lambda)
    ours, _ = updated(METHOD, params, batch)
    theirs, _ = updated(susd, same, batch)
    np.testing.assert_allclose(theirs.sac.reward, ours.sac.reward, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(theirs.params.log_lambda, ours.params.log_lambda, rtol=1e-5)
    reward = fast(susd.reward)(same, Before(None), batch)
    np.testing.assert_allclose(reward.parts, fast(METHOD.reward)(params, None, batch).parts, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_phi_counts_steps_on_a_line() -> None:
    """A step may move phi by 1 and is 0.1 long: phi(s) = +-10 s, and z = +-1 go to opposite walls."""
    result = train(LINE, "metra", 100, skill_dim=1)
    position = np.linspace(-0.95, 0.95, 39)
    phi = result.encode(position[:, None])[:, 0]
    slope = np.polyfit(position, phi, 1)[0]
    assert abs(np.corrcoef(position, phi)[0, 1]) > 0.99
    assert abs(slope) == pytest.approx(10.0, rel=0.15)
    last = result.rollout(np.array([[1.0], [-1.0]]))[-1, :, 0]
    np.testing.assert_allclose(last * np.sign(slope), [1.0, -1.0], atol=0.05)  # phi grows in the direction of its z
    # With phi at its bound, lambda converges: below its initial value of 30 and far from 0.
    assert 1.0 < result.infos["lambda"][-1] < 25.0
    assert result.infos["lambda"][-1] == pytest.approx(result.infos["lambda"][-20], rel=0.2)
    assert 0.0 < result.infos["violations"][-20:].mean() < 0.15
