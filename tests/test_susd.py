"""SUSD against a slow float64 reference written from the formulas, and on small worlds whose answer is known."""

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

from susd.factors import Factorization
from susd.learner import Learner
from susd.methods.base import RunningMean
from susd.methods.susd import Before, Params, Susd
from susd.replay import Transition
from susd.sac import SacBatch, descend
from susd.skills import SkillSpace

FACTORS = Factorization.from_mapping({"a": [3, 0], "b": [4], "c": [1, 5, 2]}, 6)  # unequal, not contiguous
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
KEY = jax.random.key(0)


def plain(x: Any) -> np.ndarray:
    return np.asarray(x, np.float64)


def params_of(method: Susd, seed: int = 0, scale: float = 0.8) -> Params:
    """Random numbers in the shapes of the method's parameters; log lambda differs from constraint to constraint."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(method.init, KEY)
    return jax.tree.map(lambda leaf: (scale * rng.normal(size=leaf.shape)).astype(np.float32), shapes)


@cache
def graded(method: Susd) -> Any:
    """((loss, (stats, before, info)), gradient) of the method, compiled once."""
    return jax.jit(jax.value_and_grad(method.loss, has_aux=True))


def batch_of(method: Susd, seed: int = 0, size: int = 14) -> Transition:
    rng = np.random.default_rng(seed)
    obs, step = rng.normal(size=(2, size, 6))
    skill = np.asarray(method.skills.project(jnp.asarray(rng.normal(size=(size, method.skills.size)), jnp.float32)))
    action, done = rng.uniform(-1, 1, (size, 2)), rng.integers(0, 2, size)
    return Transition(*(np.asarray(x, np.float32) for x in (obs, action, obs + 0.7 * step, skill, done)))


# --- the reference: the formulas one by one, in loops over factors ------------------------------------------------------


@dataclass
class Pieces:
    r: np.ndarray  # [B, N]
    c: np.ndarray  # [B, constraints]
    square: np.ndarray  # [B, N]
    phi_loss: float
    dual_loss: float
    nll: float
    w: np.ndarray  # [B, N]
    kappa: np.ndarray  # [B, S]


def mlp(x: np.ndarray, weights: list[np.ndarray], biases: list[np.ndarray]) -> np.ndarray:
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        x = np.maximum(x @ weight + bias, 0.0)
    return x @ weights[-1] + biases[-1]


def inputs_of(method: Susd, i: int) -> list[int]:
    own = list(method.factorization.indices[i])
    return [*method.factorization.indices[0], *own] if method.factorization.names[i] in method.share_agent else own


def phi_of(method: Susd, params: Params, i: int, obs: np.ndarray) -> np.ndarray:
    """phi_i(s^i): a network of the factor's own size; what pads the stored weights is cut off."""
    inputs = inputs_of(method, i)
    weights = [plain(w[i]) for w in params.phi.mlp.weights]
    weights[0] = weights[0][: len(inputs)]
    return mlp(plain(obs)[:, inputs], weights, [plain(b[i]) for b in params.phi.mlp.biases])


def reference(method: Susd, params: Params, batch: Transition, eps: float = 0.05) -> Pieces:
    count, dim = len(method.factorization), method.skills.dim
    size, state_size = batch.obs.shape
    obs, next_obs, skill = plain(batch.obs), plain(batch.next_obs), plain(batch.skill)
    r, square = np.zeros((size, count)), np.zeros((size, count))
    total = np.zeros(size)
    for i in range(count):
        delta = phi_of(method, params, i, next_obs) - phi_of(method, params, i, obs)
        own = skill[:, i * dim : (i + 1) * dim]
        r[:, i] = (delta * own).sum(axis=1)
        if method.skills.prior == "one_hot":  # Appendix F: the chosen coordinate against the mean of the D - 1 others
            r[:, i] -= (delta * (1 - own)).sum(axis=1) / (dim - 1)
        square[:, i] = (delta**2).sum(axis=1) / dim
        total += (delta**2).sum(axis=1)
    bound = (total / (count * dim))[:, None] if method.constraint == "joint" else square  # the latter: ||delta_i||^2 <= D
    c = np.minimum(eps, 1 - bound)
    log_lambda = plain(params.log_lambda)
    phi_loss = -np.mean(r.sum(axis=1) + (np.exp(log_lambda) * c).sum(axis=1))
    dual_loss = float((log_lambda * c.mean(axis=0)).sum())

    if params.density is None:
        none = np.zeros((size, 0))
        return Pieces(r, c, square, float(phi_loss), dual_loss, 0.0, np.ones((size, count)), none)
    nets = [
        mlp(obs, [plain(w[k]) for w in params.density.nets.weights], [plain(b[k]) for b in params.density.nets.biases])
        for k in range(2)
    ]
    mean, sigma = nets[0], np.exp(np.clip(nets[1], math.log(0.4), math.log(1e6)))
    z_score = (next_obs - obs - mean) / sigma
    nll = (0.5 * z_score**2 + np.log(sigma) + 0.5 * math.log(2 * math.pi)).sum(axis=1).mean()
    geometric = np.prod(sigma, axis=1) ** (1 / state_size)
    kappa = z_score**2 * geometric[:, None] ** 2
    w = np.zeros((size, count))
    for i, indices in enumerate(method.factorization.indices):
        w[:, i] = np.sqrt(sum(kappa[:, d] for d in indices) / state_size)
        if method.weight_scope == "state":
            w[:, i] = np.sqrt(kappa.mean(axis=1))
    return Pieces(r, c, square, float(phi_loss), dual_loss, float(nll), w, kappa)


def differences(function: Any, tree: Any, step: float = 1e-6) -> Any:
    """Central finite differences of a scalar function of a pytree of float64 arrays."""
    leaves, structure = jax.tree.flatten(jax.tree.map(plain, tree))
    gradients = [np.zeros_like(leaf) for leaf in leaves]
    for leaf, gradient in zip(leaves, gradients, strict=True):
        for place in np.ndindex(leaf.shape):
            old, ends = leaf[place], []
            for moved in (old + step, old - step):
                leaf[place] = moved
                ends.append(function(jax.tree.unflatten(structure, leaves)))
            leaf[place] = old
            gradient[place] = (ends[0] - ends[1]) / (2 * step)
    return jax.tree.unflatten(structure, gradients)


def assert_same_gradient(ours: Any, expected: Any) -> None:
    assert jax.tree.structure(ours) == jax.tree.structure(expected)
    for mine, theirs in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4 * max(1.0, np.abs(theirs).max()))


VARIANTS = {
    "joint": METHOD,
    "per factor": dataclasses.replace(METHOD, constraint="per_factor"),
    "shared agent": SHARED,
    "one factor": SINGLE,
    "one dimension": dataclasses.replace(THIN, constraint="per_factor"),
    "no weight": dataclasses.replace(METHOD, weight="none"),
    "one weight": dataclasses.replace(METHOD, weight_scope="state"),
    "choices": dataclasses.replace(METHOD, skills=SkillSpace("one_hot", 3, 3), constraint="per_factor"),
}


@pytest.mark.parametrize("method", VARIANTS.values(), ids=VARIANTS)
def test_losses_weights_and_gradients(method: Susd) -> None:
    params, batch = params_of(method), batch_of(method)
    expected = reference(method, params, batch)
    violated = (expected.c < 0).mean()
    assert 0.05 < violated < 0.95  # both branches of the minimum are taken
    stats = method.init_stats(None)
    (loss, (_, before, info)), gradient = graded(method)(params, stats, batch, KEY)

    assert float(info["phi_loss"]) == pytest.approx(expected.phi_loss, rel=1e-4)
    assert float(loss) == pytest.approx(expected.phi_loss + expected.dual_loss + expected.nll, rel=1e-4)
    assert float(info["violations"]) == pytest.approx(violated, abs=1e-6)
    assert float(info["constraint"]) == pytest.approx(expected.square.mean(), rel=1e-4)
    assert float(info["constraint_max"]) == pytest.approx(expected.square.max(), rel=1e-4)
    assert float(info["phi_reward"]) == pytest.approx(expected.r.sum(axis=1).mean(), rel=1e-3)
    for i, name in enumerate(method.factorization.names):
        assert float(info[f"factor/{name}/phi_square"]) == pytest.approx(expected.square[:, i].mean(), rel=1e-4)
        assert float(info[f"factor/{name}/reward"]) == pytest.approx(expected.r[:, i].mean(), rel=1e-3, abs=1e-5)
        if method.weight != "none":
            assert float(info[f"factor/{name}/weight"]) == pytest.approx(expected.w[:, i].mean(), rel=1e-3)

    # Each gradient is that of its own loss alone: lambda is constant for phi, c for lambda, and neither sees the density.
    def of(piece: str, name: str) -> Any:
        def function(part: Any) -> float:
            return getattr(reference(method, eqx.tree_at(lambda p: getattr(p, name), params, part), batch), piece)

        return differences(function, getattr(params, name))

    assert_same_gradient(gradient.phi, of("phi_loss", "phi"))
    if method.weight == "none":
        assert before.weight is gradient.density is None
        assert "density_nll" not in info
    else:
        assert float(info["density_nll"]) == pytest.approx(expected.nll, rel=1e-4)
        np.testing.assert_allclose(before.weight, expected.w, rtol=1e-3, atol=1e-5)
        assert_same_gradient(gradient.density, of("nll", "density"))
    np.testing.assert_allclose(gradient.log_lambda, expected.c.mean(axis=0), rtol=1e-3, atol=1e-5)


def test_some_standard_deviations_were_clamped() -> None:
    """So that the comparison above includes the clamp."""
    log_std = plain(jax.jit(lambda p, o: p.density(o)[1])(params_of(METHOD), batch_of(METHOD).obs))
    assert 0.05 < (log_std <= math.log(0.4) + 1e-6).mean() < 0.7


@pytest.mark.parametrize("method", VARIANTS.values(), ids=VARIANTS)
def test_reward_is_the_weighted_sum(method: Susd) -> None:
    params, batch = params_of(method), batch_of(method)
    expected = reference(method, params, batch)
    weight = np.random.default_rng(5).uniform(0.5, 2, expected.r.shape)
    reward = jax.jit(method.reward)(params, Before(weight.astype(np.float32)), batch)
    np.testing.assert_allclose(reward.parts, weight * expected.r, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(reward.total, (weight * expected.r).sum(axis=1), rtol=1e-3, atol=1e-4)


def weight_of(method: Susd, stats: RunningMean | None = None) -> tuple[np.ndarray, RunningMean]:
    (_, (stats, before, _)), _ = graded(method)(params_of(method), stats or method.init_stats(None), batch_of(method), KEY)
    return plain(before.weight), stats


def test_weight_options() -> None:
    raw, stats = weight_of(METHOD)
    assert float(stats.value) == pytest.approx(raw.mean(), rel=1e-4)  # over batch and factors
    mean, _ = weight_of(dataclasses.replace(METHOD, weight="mean"))
    np.testing.assert_allclose(mean, raw / raw.mean(), rtol=1e-3)  # relative weights are kept, the first mean is 1
    reward = jax.jit(METHOD.reward)(params_of(METHOD), Before(None), batch_of(METHOD))  # no weight at all
    np.testing.assert_allclose(reward.parts, reference(METHOD, params_of(METHOD), batch_of(METHOD)).r, rtol=1e-3, atol=1e-4)


def test_moving_all_coordinates_together_earns_a_choice_nothing() -> None:
    method = VARIANTS["choices"]
    params, batch = params_of(method), batch_of(method)
    last = np.repeat(np.asarray(params.phi.mlp.weights[-1])[..., :1], 3, axis=-1)  # all three outputs of phi_i are the same
    drifting = eqx.tree_at(lambda p: p.phi.mlp.weights, params, (*params.phi.mlp.weights[:-1], last))
    reward = jax.jit(method.reward)(drifting, Before(None), batch)
    assert np.abs(reference(method, drifting, batch).square).max() > 1.0  # it does move
    np.testing.assert_allclose(reward.total, 0.0, atol=1e-5)


def test_mean_weight_uses_the_running_mean() -> None:
    raw, _ = weight_of(METHOD)
    earlier = jax.tree.map(np.float32, RunningMean(30.0 * 0.5, 0.5))  # a mean of 30 with half of the weight
    mean, stats = weight_of(dataclasses.replace(METHOD, weight="mean"), earlier)
    expected = (0.99 * 15 + 0.01 * raw.mean()) / (0.99 * 0.5 + 0.01)
    assert float(stats.value) == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(mean, raw / expected, rtol=1e-3)


@pytest.mark.parametrize("method", [METHOD, SINGLE], ids=["three factors", "one factor"])
def test_weights_are_a_split_of_one_distance(method: Susd) -> None:
    """sum_i w_i^2 is the mean of kappa, whatever the factors: with one factor, w is the distance of CSD."""
    expected = reference(method, params_of(method), batch_of(method))
    np.testing.assert_allclose((weight_of(method)[0] ** 2).sum(axis=1), expected.kappa.mean(axis=1), rtol=1e-3)


def test_running_mean_is_unbiased_from_the_first_value() -> None:
    seen, mean = [], RunningMean.init()
    update = jax.jit(lambda m, v: m.update(v, 0.9))
    for value in (5.0, -1.0, 3.0, 3.0):
        mean = update(mean, np.float32(value))
        seen.append(value)
        weights = 0.9 ** np.arange(len(seen))[::-1]
        assert float(mean.value) == pytest.approx(np.average(seen, weights=weights), rel=1e-5)
    assert float(RunningMean.init().value) == 0.0


def test_sharing_the_agent_changes_the_others_inputs_only() -> None:
    def sees(method: Susd) -> np.ndarray:
        """[N, S]: which numbers of the state each phi_i depends on."""
        jacobian = jax.jit(jax.vmap(jax.jacrev(lambda o: params_of(method).phi(o[None])[0])))(batch_of(method).obs)
        return np.abs(np.asarray(jacobian)).max(axis=(0, 2)) > 0

    alone = FACTORS.membership > 0
    np.testing.assert_array_equal(sees(METHOD), alone)
    np.testing.assert_array_equal(sees(SHARED), alone | alone[0])
    np.testing.assert_array_equal(
        sees(dataclasses.replace(METHOD, share_agent=("c",))), [alone[0], alone[1], alone[2] | alone[0]]
    )


def test_encode_is_phi_side_by_side() -> None:
    params, obs = params_of(METHOD), batch_of(METHOD).obs
    expected = np.concatenate([phi_of(METHOD, params, i, obs) for i in range(3)], axis=1)
    np.testing.assert_allclose(jax.jit(METHOD.encode)(params, obs), expected, rtol=1e-4, atol=1e-5)


def test_initial_lambda() -> None:
    for method, count in [(METHOD, 1), (VARIANTS["per factor"], 3)]:
        log_lambda = jax.jit(lambda key, m=method: m.init(key).log_lambda)(KEY)
        np.testing.assert_allclose(np.exp(plain(log_lambda)), [1.7] * count, rtol=1e-5)


# --- one update of the learner ----------------------------------------------------------------------------------------


class Recorder:
    """In the place of SAC: keeps the batch it is given."""

    parts = 1

    def init(self, key: jax.Array) -> None:
        return None

    def update(self, state: Any, batch: SacBatch, key: jax.Array) -> tuple[SacBatch, dict[str, jax.Array]]:
        return batch, {}


def adam_start(old: Any, gradient: Any, rate: float) -> Any:
    return jax.tree.map(lambda x, g: plain(x) - rate * plain(g) / (np.abs(plain(g)) + 1e-8), old, gradient)


@pytest.mark.parametrize("normalise", [False, True])
def test_reward_has_the_new_phi_and_the_old_density(normalise: bool) -> None:
    method = dataclasses.replace(METHOD, weight="mean")
    learner = Learner(method, Recorder(), 14, reward_scale=3.0, normalise_reward=normalise, skill_input_scale=2.5)  # type: ignore[arg-type]
    params, batch = params_of(method), batch_of(method)
    empty = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), jax.eval_shape(learner.init, KEY))
    start = eqx.tree_at(lambda s: s.params, empty, params)  # Adam and the running means start from zeros
    new, info = jax.jit(learner.update)(start, batch, KEY)

    _, gradient = graded(method)(params, start.stats, batch, KEY)
    for name, rate in [("phi", 0.05), ("density", 0.05), ("log_lambda", 0.02)]:
        stepped = adam_start(getattr(params, name), getattr(gradient, name), rate)
        for ours, expected in zip(jax.tree.leaves(getattr(new.params, name)), jax.tree.leaves(stepped), strict=True):
            np.testing.assert_allclose(ours, expected, atol=1e-4, err_msg=name)

    old, fresh = reference(method, params, batch), reference(method, new.params, batch)
    weight = old.w / old.w.mean()
    reward = (weight * fresh.r).sum(axis=1)
    for wrong in ((weight * old.r).sum(axis=1), (fresh.w / fresh.w.mean() * fresh.r).sum(axis=1)):
        assert np.abs(wrong - reward).max() > 0.05 * np.abs(reward).max()  # the alternatives would be seen
    rms = math.sqrt((reward**2).mean())
    scale = 3.0 / rms if normalise else 3.0
    np.testing.assert_allclose(new.sac.reward[:, 0], scale * reward, rtol=2e-3, atol=2e-3)
    assert float(info["reward"]) == pytest.approx(reward.mean(), rel=2e-3, abs=1e-4)
    assert float(info["reward_rms"]) == pytest.approx(rms, rel=1e-3)

    np.testing.assert_allclose(new.sac.x, np.concatenate([batch.obs, 2.5 * batch.skill], axis=1), rtol=1e-6)
    np.testing.assert_allclose(new.sac.next_x, np.concatenate([batch.next_obs, 2.5 * batch.skill], axis=1), rtol=1e-6)
    np.testing.assert_array_equal(new.sac.action, batch.action)
    np.testing.assert_array_equal(new.sac.done, batch.done)


# --- worlds with known answers ----------------------------------------------------------------------------------------


def step_of(method: Susd) -> Any:
    @jax.jit
    def step(params: Params, opt: Any, batch: Transition) -> tuple[Params, Any]:
        gradient, _ = jax.grad(method.loss, has_aux=True)(params, method.init_stats(None), batch, KEY)
        return descend(method.optimizer(), gradient, opt, params)

    return step


@pytest.mark.parametrize("constraint", ["joint", "per_factor"])
def test_lambda_falls_when_satisfied_and_rises_when_violated(constraint: str) -> None:
    """Adam's first step is the whole rate: the sign alone counts. Each factor has its own lambda if asked for."""
    method = dataclasses.replace(METHOD, constraint=constraint)
    params, batch = params_of(method), batch_of(method)
    step = step_of(method)
    for still, moving in [((0, 1, 2), ()), ((), (0, 1, 2)), ((0, 2), (1,))]:
        weights = np.array(params.phi.mlp.weights[-1])
        weights[list(still)], weights[list(moving)] = 0.0, 100.0 * weights[list(moving)]
        moved = eqx.tree_at(lambda p: p.phi.mlp.weights, params, (*params.phi.mlp.weights[:-1], weights))
        new, _ = step(moved, method.optimizer().init(moved), batch)
        change = plain(new.log_lambda) - plain(params.log_lambda)
        expected = (
            [0.02 if i in moving else -0.02 for i in range(3)]
            if constraint == "per_factor"
            else [0.02 if moving else -0.02]
        )
        np.testing.assert_allclose(change, expected, rtol=1e-3)


LINE = Factorization.from_mapping({"left": [0], "right": [1]}, 2)
STEP = 0.1


def walked(method: Susd, steps: int) -> tuple[Params, dict[str, np.ndarray]]:
    """Train on a plane where the skill is the motion: s' = s + 0.1 z."""

    def one(carry: Any, key: jax.Array) -> Any:
        params, opt = carry
        k_obs, k_skill = jax.random.split(key)
        obs = jax.random.uniform(k_obs, (64, 2), minval=-1.0, maxval=1.0)
        skill = method.skills.sample(k_skill, 64)
        batch = Transition(obs, skill, obs + STEP * skill, skill, jnp.zeros(64))
        gradient, (_, _, info) = jax.grad(method.loss, has_aux=True)(params, method.init_stats(None), batch, key)
        return descend(method.optimizer(), gradient, opt, params), {**info, "each": jnp.exp(params.log_lambda)}

    @jax.jit
    def run(key: jax.Array) -> Any:
        params = method.init(key)
        return jax.lax.scan(one, (params, method.optimizer().init(params)), jax.random.split(key, steps))

    (params, _), infos = run(KEY)
    return params, jax.tree.map(np.asarray, infos)


@pytest.mark.parametrize(
    ("constraint", "prior", "slope"), [("per_factor", "factor_sphere", 10.0), ("joint", "sphere", 10 * math.sqrt(2))]
)
def test_phi_becomes_linear_with_steps_at_the_bound(constraint: str, prior: str, slope: float) -> None:
    """z^i = +-1: delta_i = 1. |z| = 1 jointly: phi_i(s) = k s_i has mean square k^2 0.1^2 |z|^2 / 2, 1 at k = 14.1."""
    method = dataclasses.replace(
        METHOD,
        factorization=LINE,
        skills=SkillSpace(prior, 2, 1),
        constraint=constraint,
        phi_hidden=32,
        density_hidden=4,
        lambda_init=30.0,
        slack=1e-3,
        learning_rate=5e-3,
        dual_learning_rate=1e-2,
    )
    params, infos = walked(method, 1500)
    assert infos["constraint"][0] < 0.1
    assert infos["constraint"][-100:].mean() == pytest.approx(1.0, abs=0.1)
    # lambda first falls while the constraint is slack, then finds its level.
    assert infos["each"][300].max() < 30.0
    grid = np.stack([np.linspace(-0.9, 0.9, 37)] * 2, axis=1).astype(np.float32)
    phi = plain(jax.jit(lambda p: p.phi(grid))(params))[..., 0]
    for i in range(2):
        fit, residual, *_ = np.polyfit(grid[:, i], phi[:, i], 1, full=True)
        assert fit[0] == pytest.approx(slope, rel=0.1)  # upwards: phi grows in the direction its skill moves
        assert residual[0] < 0.01 * ((phi[:, i] - phi[:, i].mean()) ** 2).sum()
    for name in LINE.names:
        assert infos[f"factor/{name}/phi_square"][-100:].mean() == pytest.approx(1.0, abs=0.15)
