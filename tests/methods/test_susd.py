"""SUSD compared with a float64 reference written from the formulas, and small environments with a known optimum."""

import dataclasses
import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import Box, fit, random_batch, train, updated
from reference import assert_first_adam_step, assert_same_gradient, differences, fast, forward, plain, random_like
from susd.factors import Factorization
from susd.methods.base import RunningMean, View
from susd.methods.susd import Before, Params, Susd
from susd.skills import SkillSpace
from susd.types import Transition

FACTORS = Factorization.from_mapping({"a": [3, 0], "b": [4], "c": [1, 5, 2]}, 6)  # unequal sizes, not contiguous
METHOD = Susd(
    factorization=FACTORS,
    skills=SkillSpace("sphere", 3, 2),
    constraint="joint",
    weight="raw",
    weight_scope="factor",
    share_agent=(),
    phi_hidden=5,
    density_hidden=5,
    layers=2,
    min_std=0.4,  # high, so that some of the random standard deviations are clamped
    precision="float32",
    lambda_init=1.7,
    slack=0.05,
    learning_rate=0.05,
    dual_learning_rate=0.02,
)
SINGLE = dataclasses.replace(
    METHOD, factorization=Factorization.from_boundaries((0, 6), ("all",)), skills=SkillSpace("sphere", 1, 2)
)
THIN = dataclasses.replace(METHOD, skills=SkillSpace("factor_sphere", 3, 1))
SHARED = dataclasses.replace(METHOD, share_agent=("b", "c"))
PLAIN = dataclasses.replace(METHOD, weight="none")
ONE_WEIGHT = dataclasses.replace(METHOD, weight_scope="state")
DISCRETE = dataclasses.replace(METHOD, skills=SkillSpace("one_hot", 3, 3))
PACED = dataclasses.replace(METHOD, skills=SkillSpace("factor_ball", 3, 2))
OWN = dataclasses.replace(  # phi sees four of the six dimensions, in two factors
    METHOD,
    factorization=Factorization.from_boundaries((0, 3, 4), ("a", "c")),
    skills=SkillSpace("sphere", 2, 2),
    view=View((3, 0, 5, 2), 6),
)
KEY = jax.random.key(0)


def params_of(method: Susd) -> Params:
    """Random values in the shapes of the method's parameters; log lambda differs between the constraints."""
    return random_like(method.init, scale=0.8)


def batch_of(method: Susd) -> Transition:
    return random_batch(method.skills, 6)


@cache
def graded(method: Susd) -> Any:
    """((loss, (stats, before, info)), gradient) of the method, compiled once."""
    return fast(jax.value_and_grad(method.loss, has_aux=True))


# --- the reference: the formulas one by one, in loops over factors ------------------------------------------------------


@dataclass
class Pieces:
    r: np.ndarray  # [B, N] of phi
    reward: np.ndarray  # [B, N] of the policy, without weights
    c: np.ndarray  # [B, constraints]
    square: np.ndarray  # [B, N]
    phi_loss: float
    dual_loss: float
    nll: float
    w: np.ndarray  # [B, N]
    kappa: np.ndarray  # [B, S]


def inputs_of(method: Susd, i: int) -> list[int]:
    own = list(method.factorization.indices[i])
    seen = method.view.indices or range(6)
    indices = [*method.factorization.indices[0], *own] if method.factorization.names[i] in method.share_agent else own
    return [seen[index] for index in indices]


def phi_of(method: Susd, params: Params, i: int, obs: np.ndarray) -> np.ndarray:
    """phi_i(s^i): a network of the factor's size, without the padding of the stored weights."""
    inputs = inputs_of(method, i)
    weights = [plain(w[i]) for w in params.phi.mlp.weights]
    weights[0] = weights[0][: len(inputs)]
    return forward(plain(obs)[:, inputs], weights, [b[i] for b in params.phi.mlp.biases])


def reference(method: Susd, params: Params, batch: Transition, eps: float = 0.05) -> Pieces:
    count, dim = len(method.factorization), method.skills.dim
    seen = list(method.view.indices or range(6))
    size, state_size = len(batch.obs), len(seen)
    obs, next_obs, skill = plain(batch.obs), plain(batch.next_obs), plain(batch.skill)
    r, square = np.zeros((size, count)), np.zeros((size, count))
    total, reward = np.zeros(size), np.zeros((size, count))
    for i in range(count):
        delta = phi_of(method, params, i, next_obs) - phi_of(method, params, i, obs)
        own = skill[:, i * dim : (i + 1) * dim]
        if method.skills.prior == "factor_ball":  # phi learns from the direction, the policy from the length too
            reward[:, i] = math.sqrt(dim) * (delta * own).sum(axis=1) - (delta**2).sum(axis=1) / 2
            own = np.array([z / np.linalg.norm(z) if z.any() else z for z in own])
        r[:, i] = (delta * own).sum(axis=1)
        if method.skills.prior == "one_hot":  # Appendix F: the coordinate of the skill minus the mean of the D - 1 others
            r[:, i] -= (delta * (1 - own)).sum(axis=1) / (dim - 1)
        if method.skills.prior != "factor_ball":
            reward[:, i] = r[:, i]
        square[:, i] = (delta**2).sum(axis=1) / dim
        total += (delta**2).sum(axis=1)
    bound = (total / (count * dim))[:, None] if method.constraint == "joint" else square  # the latter: ||delta_i||^2 <= D
    c = np.minimum(eps, 1 - bound)
    log_lambda = plain(params.log_lambda)
    phi_loss = -np.mean(r.sum(axis=1) + (np.exp(log_lambda) * c).sum(axis=1))
    dual_loss = float((log_lambda * c.mean(axis=0)).sum())

    if params.density is None:
        none = np.zeros((size, 0))
        return Pieces(r, reward, c, square, float(phi_loss), dual_loss, 0.0, np.ones((size, count)), none)
    nets = params.density.nets
    mean, log_std = (forward(obs, [w[k] for w in nets.weights], [b[k] for b in nets.biases]) for k in range(2))
    sigma = np.exp(np.clip(log_std, math.log(0.4), math.log(1e6)))
    z_score = ((next_obs - obs)[:, seen] - mean) / sigma
    nll = (0.5 * z_score**2 + np.log(sigma) + 0.5 * math.log(2 * math.pi)).sum(axis=1).mean()
    geometric = np.prod(sigma, axis=1) ** (1 / state_size)
    kappa = z_score**2 * geometric[:, None] ** 2
    w = np.zeros((size, count))
    for i, indices in enumerate(method.factorization.indices):
        counted = indices if method.weight_scope == "factor" else range(state_size)
        w[:, i] = np.sqrt(sum(kappa[:, d] for d in counted) / state_size)
    return Pieces(r, reward, c, square, float(phi_loss), dual_loss, float(nll), w, kappa)


VARIANTS = {
    "joint": METHOD,
    "per factor": dataclasses.replace(METHOD, constraint="per_factor"),
    "shared agent": SHARED,
    "one factor": SINGLE,
    "one dimension": dataclasses.replace(THIN, constraint="per_factor"),
    "no weight": PLAIN,
    "one weight": ONE_WEIGHT,
    "discrete": dataclasses.replace(DISCRETE, constraint="per_factor"),
    "paced": PACED,
    "own dimensions": OWN,
}


@pytest.mark.slow
@pytest.mark.parametrize("method", VARIANTS.values(), ids=VARIANTS)
def test_losses_weights_and_gradients(method: Susd) -> None:
    params, batch = params_of(method), batch_of(method)
    expected = reference(method, params, batch)
    violated = (expected.c < 0).mean()
    assert 0.05 < violated < 0.95  # both branches of the minimum are taken
    (loss, (_, before, info)), gradient = graded(method)(params, method.init_stats(params), batch, KEY)

    assert float(info["phi_loss"]) == pytest.approx(expected.phi_loss, rel=1e-4)
    assert float(loss) == pytest.approx(expected.phi_loss + expected.dual_loss + expected.nll, rel=1e-4)
    assert float(info["violations"]) == pytest.approx(violated, abs=1e-6)
    assert float(info["constraint"]) == pytest.approx(expected.square.mean(), rel=1e-4)
    assert float(info["constraint_max"]) == pytest.approx(expected.square.max(), rel=1e-4)
    assert float(info["phi_reward"]) == pytest.approx(expected.r.sum(axis=1).mean(), rel=1e-3)
    for i, name in enumerate(method.factorization.names):
        assert float(info[f"factor/{name}/phi_square"]) == pytest.approx(expected.square[:, i].mean(), rel=1e-4)
        assert float(info[f"factor/{name}/reward"]) == pytest.approx(expected.r[:, i].mean(), rel=1e-3, abs=1e-5)

    # Each gradient is that of its own loss: lambda is constant for phi, c for lambda, and both ignore the density model.
    def of(piece: str, name: str) -> Any:
        def function(part: Any) -> float:
            return getattr(reference(method, eqx.tree_at(lambda p: getattr(p, name), params, part), batch), piece)

        return differences(function, getattr(params, name))

    assert_same_gradient(gradient.phi, of("phi_loss", "phi"))
    np.testing.assert_allclose(gradient.log_lambda, expected.c.mean(axis=0), rtol=1e-3, atol=1e-5)
    if method.weight == "none":  # then there is no density model, and nothing of it is logged
        assert params.density is gradient.density is before.weight is None
        assert not [name for name in info if "density" in name or "weight" in name]
        return
    assert_same_gradient(gradient.density, of("nll", "density"))
    assert float(info["density_nll"]) == pytest.approx(expected.nll, rel=1e-4)
    np.testing.assert_allclose(before.weight, expected.w, rtol=1e-3, atol=1e-5)
    for i, name in enumerate(method.factorization.names):
        assert float(info[f"factor/{name}/weight"]) == pytest.approx(expected.w[:, i].mean(), rel=1e-3)


def test_phi_ignores_parts_at_rest() -> None:
    """A part of length zero has no direction; its length does not matter otherwise."""
    params, batch = params_of(PACED), batch_of(PACED)
    skill = np.array(batch.skill)
    skill[:, 2:4] = 0.0
    (_, (_, _, info)), _ = graded(PACED)(params, PACED.init_stats(params), batch._replace(skill=skill), KEY)
    assert float(info["factor/b/reward"]) == 0.0
    half, full = (
        graded(PACED)(params, PACED.init_stats(params), batch._replace(skill=s), KEY)[1] for s in (skill / 2, skill)
    )
    for one, other in zip(jax.tree.leaves(half.phi), jax.tree.leaves(full.phi), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_comparison_includes_the_clamp() -> None:
    """Some standard deviations are clamped, and some are not."""
    log_std = plain(fast(lambda p, o: p.density(o)[1])(params_of(METHOD), batch_of(METHOD).obs))
    assert 0.05 < (log_std <= math.log(0.4) + 1e-6).mean() < 0.7


@pytest.mark.parametrize("method", VARIANTS.values(), ids=VARIANTS)
def test_reward_is_the_weighted_sum(method: Susd) -> None:
    params, batch = params_of(method), batch_of(method)
    expected = reference(method, params, batch)
    weight = np.random.default_rng(5).uniform(0.5, 2, expected.r.shape)
    before = Before(None if method.weight == "none" else weight.astype(np.float32))
    parts = expected.reward if method.weight == "none" else weight * expected.reward
    reward = fast(method.reward)(params, before, batch)
    np.testing.assert_allclose(reward.parts, parts, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(reward.total, parts.sum(axis=1), rtol=1e-3, atol=1e-4)


def test_common_drift_has_no_discrete_reward() -> None:
    """If all coordinates of phi_i grow together for every skill, only the zero mean of the direction removes the reward."""
    params, batch = params_of(DISCRETE), batch_of(DISCRETE)
    last = params.phi.mlp.weights[-1]  # [N, hidden, D]
    drift = np.random.default_rng(2).normal(size=(*last.shape[:2], 1)).astype(np.float32)
    with_drift = eqx.tree_at(lambda p: p.phi.mlp.weights[-1], params, last + drift)
    only_drift = eqx.tree_at(lambda p: p.phi.mlp.weights[-1], params, np.broadcast_to(drift, last.shape))
    reward = fast(DISCRETE.reward)
    before = Before(None)
    np.testing.assert_allclose(reward(only_drift, before, batch).parts, 0.0, atol=1e-6)
    bare = np.asarray(reward(params, before, batch).parts)
    np.testing.assert_allclose(reward(with_drift, before, batch).parts, bare, atol=1e-5)
    moved = [phi_of(DISCRETE, only_drift, i, batch.next_obs) - phi_of(DISCRETE, only_drift, i, batch.obs) for i in range(3)]
    assert np.abs(moved).mean() > 0.1
    assert np.abs(bare).mean() > 0.1


def weight_of(method: Susd, stats: RunningMean | None = None) -> tuple[np.ndarray, RunningMean]:
    params = params_of(method)
    (_, (stats, before, _)), _ = graded(method)(params, stats or method.init_stats(params), batch_of(method), KEY)
    return plain(before.weight), stats


def test_weight_options() -> None:
    raw, stats = weight_of(METHOD)
    assert float(stats.value) == pytest.approx(raw.mean(), rel=1e-4)  # over batch and factors
    mean, _ = weight_of(dataclasses.replace(METHOD, weight="mean"))
    np.testing.assert_allclose(mean, raw / raw.mean(), rtol=1e-3)  # relative weights are kept, the first mean is 1


def test_one_weight_for_all_factors() -> None:
    """w = sqrt(mean_d kappa_d), the distance of CSD: the same for factors of any size."""
    kappa = reference(METHOD, params_of(METHOD), batch_of(METHOD)).kappa
    weight, stats = weight_of(ONE_WEIGHT)
    np.testing.assert_allclose(weight, np.repeat(np.sqrt(kappa.mean(axis=1))[:, None], 3, axis=1), rtol=1e-3)
    assert float(stats.value) == pytest.approx(weight.mean(), rel=1e-4)


def test_largest_weight() -> None:
    raw, stats = weight_of(METHOD)
    assert raw.max() > 1.5 * raw.mean()
    for weight, divisor in [("raw", 1.0), ("mean", raw.mean())]:
        capped, same = weight_of(dataclasses.replace(METHOD, weight=weight, weight_cap=1.5))
        np.testing.assert_allclose(capped, np.minimum(raw, 1.5 * raw.mean()) / divisor, rtol=1e-3)
        assert float(same.value) == pytest.approx(float(stats.value), rel=1e-5)  # the mean is that of all weights


def test_soft_bound_passes_the_gradient() -> None:
    """Far below the floor a clipped log-std has no gradient; a softplus has some, and above the floor it changes little."""
    params = params_of(METHOD)
    biases = np.array(params.density.nets.biases[-1])
    low = eqx.tree_at(lambda p: p.density.nets.biases[-1], params, biases - np.array([0.0, 4.0])[:, None])
    soft = eqx.tree_at(lambda p: p.density, low, dataclasses.replace(low.density, bound="soft"))
    obs = batch_of(METHOD).obs
    log_std = {name: plain(fast(lambda p, o: p.density(o)[1])(p, obs)) for name, p in (("clip", low), ("soft", soft))}
    assert (log_std["soft"] >= math.log(0.4) - 1e-6).all()
    still = (log_std["clip"] <= math.log(0.4) + 1e-6).all(axis=0)  # dimensions that are below the floor everywhere
    assert still.any()
    for name, p in (("clip", low), ("soft", soft)):
        _, gradient = graded(METHOD)(p, METHOD.init_stats(p), batch_of(METHOD), KEY)
        slope = np.abs(plain(gradient.density.nets.biases[-1][1]))
        assert (slope[still] > 0).all() == (name == "soft")
    high = eqx.tree_at(lambda p: p.density.nets.biases[-1], soft, biases + np.array([0.0, 9.0])[:, None])
    plainly = eqx.tree_at(lambda p: p.density, high, dataclasses.replace(high.density, bound="clip"))
    np.testing.assert_allclose(high.density(obs)[1], plainly.density(obs)[1], rtol=1e-2)


def test_mean_weight_uses_the_running_mean() -> None:
    raw, _ = weight_of(METHOD)
    earlier = jax.tree.map(np.float32, RunningMean(30.0 * 0.5, 0.5))  # a mean of 30 with half of the weight
    mean, stats = weight_of(dataclasses.replace(METHOD, weight="mean"), earlier)
    expected = (0.99 * 15 + 0.01 * raw.mean()) / (0.99 * 0.5 + 0.01)
    assert float(stats.value) == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(mean, raw / expected, rtol=1e-3)


@pytest.mark.parametrize("method", [METHOD, SINGLE], ids=["three factors", "one factor"])
def test_weights_split_one_distance(method: Susd) -> None:
    """sum_i w_i^2 is the mean of kappa for any factors: with one factor, w is the distance of CSD."""
    expected = reference(method, params_of(method), batch_of(method))
    np.testing.assert_allclose((weight_of(method)[0] ** 2).sum(axis=1), expected.kappa.mean(axis=1), rtol=1e-3)


def test_running_mean_is_unbiased() -> None:
    seen, mean = [], RunningMean.init()
    update = fast(lambda m, v: m.update(v, 0.9))
    for value in (5.0, -1.0, 3.0, 3.0):
        mean = update(mean, np.float32(value))
        seen.append(value)
        weights = 0.9 ** np.arange(len(seen))[::-1]
        assert float(mean.value) == pytest.approx(np.average(seen, weights=weights), rel=1e-5)
    assert float(RunningMean.init().value) == 0.0


def test_inputs_with_a_shared_agent() -> None:
    def inputs(method: Susd) -> np.ndarray:
        """[N, S]: the dimensions of the state that each phi_i depends on."""
        jacobian = fast(jax.vmap(jax.jacrev(lambda o: params_of(method).phi(o[None])[0])))(batch_of(method).obs)
        return np.abs(np.asarray(jacobian)).max(axis=(0, 2)) > 0

    alone = FACTORS.membership > 0
    np.testing.assert_array_equal(inputs(METHOD), alone)
    np.testing.assert_array_equal(inputs(SHARED), alone | alone[0])
    np.testing.assert_array_equal(
        inputs(dataclasses.replace(METHOD, share_agent=("c",))), [alone[0], alone[1], alone[2] | alone[0]]
    )


def test_encode_is_phi() -> None:
    params, obs = params_of(METHOD), batch_of(METHOD).obs
    expected = np.concatenate([phi_of(METHOD, params, i, obs) for i in range(3)], axis=1)
    np.testing.assert_allclose(fast(METHOD.encode)(params, obs), expected, rtol=1e-4, atol=1e-5)


def test_initial_lambda() -> None:
    for method, count in [(METHOD, 1), (VARIANTS["per factor"], 3)]:
        log_lambda = fast(lambda key, m=method: m.init(key).log_lambda)(KEY)
        np.testing.assert_allclose(np.exp(plain(log_lambda)), [1.7] * count, rtol=1e-5)


# --- one update of the learner ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("weight", "parts", "normalise"), [("mean", 1, False), ("mean", 3, True), ("none", 3, False)])
def test_reward_uses_updated_phi_and_old_density(weight: str, parts: int, normalise: bool) -> None:
    """SAC receives the sum, or with one head per factor the parts; the scale is that of the sum."""
    method = dataclasses.replace(METHOD, weight=weight)
    params, batch = params_of(method), batch_of(method)
    options = {"reward_scale": 3.0, "normalise_reward": normalise, "skill_input_scale": 2.5}
    new, info = updated(method, params, batch, parts, **options)

    _, gradient = graded(method)(params, method.init_stats(params), batch, KEY)
    for name, rate in [("phi", 0.05), ("density", 0.05), ("log_lambda", 0.02)]:
        assert_first_adam_step(getattr(new.params, name), getattr(params, name), getattr(gradient, name), rate)

    old, fresh = reference(method, params, batch), reference(method, new.params, batch)
    reward = old.w / old.w.mean() * fresh.r
    wrong = [old.w / old.w.mean() * old.r] + ([fresh.w / fresh.w.mean() * fresh.r] if weight != "none" else [])
    for other in wrong:
        assert np.abs(other - reward).max() > 0.05 * np.abs(reward).max()  # the alternatives would be detected
    total = reward.sum(axis=1)
    rms = math.sqrt((total**2).mean())
    scale = 3.0 / rms if normalise else 3.0
    given = reward if parts == 3 else total[:, None]
    np.testing.assert_allclose(new.sac.reward, scale * given, rtol=2e-3, atol=2e-3)
    assert float(info["reward"]) == pytest.approx(total.mean(), rel=2e-3, abs=1e-4)
    assert float(info["reward_rms"]) == pytest.approx(rms, rel=1e-3)

    np.testing.assert_allclose(new.sac.x, np.concatenate([batch.obs, 2.5 * batch.skill], axis=1), rtol=1e-6)
    np.testing.assert_allclose(new.sac.next_x, np.concatenate([batch.next_obs, 2.5 * batch.skill], axis=1), rtol=1e-6)
    np.testing.assert_array_equal(new.sac.action, batch.action)
    np.testing.assert_array_equal(new.sac.done, batch.done)


@pytest.mark.slow
@pytest.mark.parametrize("constraint", ["joint", "per_factor"])
def test_direction_of_lambda(constraint: str) -> None:
    """Adam's first step is the learning rate times the sign of the gradient. Per factor, each has its own lambda."""
    method = dataclasses.replace(PLAIN, constraint=constraint)
    params, batch = params_of(method), batch_of(method)
    for still, moving in [((0, 1, 2), ()), ((), (0, 1, 2)), ((0, 2), (1,))]:
        weights = np.array(params.phi.mlp.weights[-1])
        weights[list(still)], weights[list(moving)] = 0.0, 100.0 * weights[list(moving)]
        moved = eqx.tree_at(lambda p: p.phi.mlp.weights[-1], params, weights)
        _, gradient = graded(method)(moved, method.init_stats(moved), batch, KEY)
        updates, _ = method.optimizer().update(gradient, method.optimizer().init(moved), moved)
        if constraint == "per_factor":
            expected = [0.02 if i in moving else -0.02 for i in range(3)]
        else:
            expected = [0.02 if moving else -0.02]
        np.testing.assert_allclose(updates.log_lambda, expected, rtol=1e-3)


# --- environments with a known optimum --------------------------------------------------------------------------------

LINE = Factorization.from_mapping({"left": [0], "right": [1]}, 2)
STEP = 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("constraint", "prior", "slope"), [("per_factor", "factor_sphere", 10.0), ("joint", "sphere", 10 * math.sqrt(2))]
)
def test_phi_becomes_linear(constraint: str, prior: str, slope: float) -> None:
    """z^i = +-1: delta_i = 1. |z| = 1 jointly: phi_i(s) = k s_i has mean square k^2 0.1^2 |z|^2 / 2, 1 at k = 14.1."""
    method = dataclasses.replace(
        PLAIN,
        factorization=LINE,
        skills=SkillSpace(prior, 2, 1),
        constraint=constraint,
        phi_hidden=32,
        lambda_init=30.0,
        slack=1e-3,
        learning_rate=5e-3,
        dual_learning_rate=1e-2,
    )

    def sample(key: jax.Array) -> Transition:
        """A plane where the skill is the velocity: s' = s + 0.1 z."""
        k_obs, k_skill = jax.random.split(key)
        obs, skill = jax.random.uniform(k_obs, (64, 2), minval=-1.0, maxval=1.0), method.skills.sample(k_skill, 64)
        return Transition(obs, skill, obs + STEP * skill, skill, jnp.zeros(64))

    params, _, infos = fit(method, sample, 1500)
    assert infos["constraint"][0] < 0.1
    assert infos["constraint"][-100:].mean() == pytest.approx(1.0, abs=0.1)
    assert infos["lambda"][300] < 30.0  # lambda decreases while the constraint is slack, then converges
    grid = np.stack([np.linspace(-0.9, 0.9, 37)] * 2, axis=1).astype(np.float32)
    phi = plain(fast(method.encode)(params, grid))
    for i in range(2):
        fitted, residual, *_ = np.polyfit(grid[:, i], phi[:, i], 1, full=True)
        assert fitted[0] == pytest.approx(slope, rel=0.1)  # positive: phi grows in the direction of its skill
        assert residual[0] < 0.01 * ((phi[:, i] - phi[:, i].mean()) ** 2).sum()
    for name in LINE.names:
        assert infos[f"factor/{name}/phi_square"][-100:].mean() == pytest.approx(1.0, abs=0.15)


EASY_AND_HARD = Box((0.2, 0.2 / 30), (2.0, 2.0 / 30))  # all walls are ten steps away, on very different scales


@pytest.mark.slow
def test_skills_move_both_factors_unlike_metra() -> None:
    """Steps of the hard factor are 30 times smaller. Each phi_i has its own constraint and adapts to the scale of its
    factor; METRA, with a skill of the same length, uses its constraint for the easy one."""
    corners = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    walls = train(EASY_AND_HARD, "susd", 150, skill_dim=1).rollout(corners)[-1] / EASY_AND_HARD.limits
    signs = walls[0]  # of z = (1, 1): the sign is arbitrary, but each part must move its own factor in both directions
    np.testing.assert_allclose(np.abs(signs), 1.0, atol=0.1)
    np.testing.assert_allclose(walls, corners * signs, atol=0.1)

    angle = np.arange(16) * np.pi / 8
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    ends = train(EASY_AND_HARD, "metra", 150, skill_dim=2).rollout(circle)[-1] / EASY_AND_HARD.limits
    easy, hard = ends.std(axis=0)
    assert easy > 0.8
    assert hard < 0.5


@pytest.mark.slow
def test_discrete_skills_of_both_factors() -> None:
    """Three skills per factor: some go to one wall, some to the other, for every skill of the other factor."""
    result = train(EASY_AND_HARD, "susd-discrete", 150, skill_dim=3)
    skills = np.array([[*np.eye(3)[a], *np.eye(3)[b]] for a in range(3) for b in range(3)])
    ends = (result.rollout(skills)[-1] / EASY_AND_HARD.limits).reshape(3, 3, 2)
    for factor in range(2):
        own = np.moveaxis(ends[..., factor], factor, 0)  # [skill of this factor, skill of the other]
        middle = own.mean(axis=1)
        assert middle.min() < -0.9
        assert middle.max() > 0.9
        assert np.abs(own - middle[:, None]).mean() < 0.25  # almost independent of the other part


@pytest.mark.slow
def test_paced_skills_rest_and_move_half_as_fast() -> None:
    """Walls are out of reach, so the distance is the speed: zero stays, half of the length goes about half as far."""
    result = train(Box((0.1, 0.02), (9.0, 9.0)), "susd-paced", 200, skill_dim=1, discount=0.3)
    skills = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, -1.0], [1.0, 0.0], [-1.0, 0.0], [0.5, 1.0], [-0.5, -1.0], [1.0, 0.5]])
    ends = result.rollout(skills)[-1] / (20 * np.array([0.1, 0.02]))  # as shares of the farthest that is possible
    signs = np.sign([ends[3, 0], ends[1, 1]])
    assert (np.abs(ends[[3, 4], 0]) > 0.6).all()
    assert (np.abs(ends[[1, 2], 1]) > 0.6).all()
    ends = ends * signs
    full = np.abs(ends[[3, 4], 0]).mean(), np.abs(ends[[1, 2], 1]).mean()
    np.testing.assert_allclose(ends[[0, 1, 2], 0] / full[0], 0.0, atol=0.25)  # at rest, whatever the other factor does
    np.testing.assert_allclose(ends[[0, 3, 4], 1] / full[1], 0.0, atol=0.25)
    np.testing.assert_allclose(ends[[5, 6], 0] / full[0], [0.5, -0.5], atol=0.25)
    np.testing.assert_allclose(ends[7, 1] / full[1], 0.5, atol=0.25)
