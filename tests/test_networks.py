"""Networks compared with NumPy in float64: densities, ensembles, factored inputs, scales, clamps, norms."""

import math
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from reference import assert_same_gradient, differences, fast, forward, plain, random_like, relu
from susd.networks import (
    MLP,
    Actor,
    Density,
    FactoredMLP,
    normal_log_prob,
    spectral_normalise,
    spectral_vectors,
    tanh_normal_log_prob,
)

KEY = jax.random.key(0)
INDICES = ((3, 0), (5,), (1, 4, 2))  # unequal sizes, not contiguous
SIZE = 6


def fresh(init: Any, *args: Any, **options: Any) -> Any:
    """A network from one compiled call."""
    return fast(lambda key: init(key, *args, **options))(KEY)


def shaken(init: Any, *args: Any, **options: Any) -> Any:
    """A network of that shape with random values in all leaves."""
    return random_like(lambda key: init(key, *args, **options))


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


# One compiled call is much faster to compile than one per operation.
CALL = fast(lambda net, x: net(x))


@fast
def sample_actions(actor: Actor, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Random actions, and the log-density of each of them."""
    action, each = actor.reparametrised(x, jax.random.normal(KEY, (len(x), actor.actions)))
    return action, each.sum(axis=-1)


def log_density(before: jax.Array, mean: jax.Array, log_std: jax.Array) -> jax.Array:
    """Of whole actions."""
    return tanh_normal_log_prob(before, (before - mean) * jnp.exp(-log_std), log_std).sum(axis=-1)


LOG_PROB = fast(log_density)


# --- tanh-normal ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (0.7, 0.3), (-1.5, 0.05), (0.2, 3.0), (2.0, math.exp(2))])
def test_tanh_normal_integrates_to_one(mean: float, std: float) -> None:
    """Over actions in (-1, 1): cells of width delta a, whose centres are mapped back by arctanh."""
    edges = np.tanh(np.linspace(-14, 14, 400_001))
    middles, widths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    before = np.arctanh(middles)
    log_prob = LOG_PROB(before.astype(np.float32)[:, None], np.float32(mean), np.float32(math.log(std)))
    missing = stats.norm.sf(14, mean, std) + stats.norm.cdf(-14, mean, std)
    assert np.sum(np.exp(plain(log_prob)) * widths) == pytest.approx(1.0 - missing, abs=1e-4)


def test_tanh_normal_change_of_variables() -> None:
    before = np.linspace(-8, 8, 101)
    mean, std = 0.4, 1.7
    direct = stats.norm.logpdf(before, mean, std) - np.log(1 - np.tanh(before) ** 2)
    ours = LOG_PROB(before.astype(np.float32)[:, None], np.float32(mean), np.float32(math.log(std)))
    np.testing.assert_allclose(ours, direct, rtol=1e-4, atol=1e-4)


def test_tanh_normal_tails() -> None:
    """1 - tanh^2 is 0 in floating point for |u| > 10; its logarithm is log 4 - 2 |u| to machine precision."""
    before = np.linspace(-50, 50, 1001)

    def log_prob(u: jax.Array) -> jax.Array:
        return log_density(u[None], jnp.float32(0.0), jnp.float32(2.0))

    value, gradient = fast(jax.vmap(jax.value_and_grad(log_prob)))(before.astype(np.float32))
    far = np.abs(before) > 12
    direct = stats.norm.logpdf(before, 0, math.exp(2)) - (math.log(4) - 2 * np.abs(before))
    np.testing.assert_allclose(np.asarray(value)[far], direct[far], rtol=1e-5)
    assert np.isfinite(np.asarray(value)).all()
    np.testing.assert_allclose(gradient, -before / math.exp(4) + 2 * np.tanh(before), rtol=1e-3, atol=1e-4)


def test_log_probs_add_over_dimensions() -> None:
    before, mean, log_std = normal(3, 5, 4)
    each = [np.asarray(LOG_PROB(*(x[:, d : d + 1] for x in (before, mean, log_std)))) for d in range(4)]
    np.testing.assert_allclose(LOG_PROB(before, mean, log_std), sum(each), rtol=1e-5, atol=1e-5)
    reference = stats.norm.logpdf(plain(before), plain(mean), np.exp(plain(log_std)))
    np.testing.assert_allclose(fast(normal_log_prob)(before, mean, log_std), reference, rtol=1e-4, atol=1e-5)


# --- MLP --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("activation", "function"), [("relu", relu), ("tanh", np.tanh)])
def test_mlp(activation: str, function: Any) -> None:
    mlp = shaken(MLP.init, [5, 7, 6, 3], activation=activation)
    x = normal(11, 5)
    expected = forward(plain(x), [plain(w) for w in mlp.weights], [plain(b) for b in mlp.biases], function)
    np.testing.assert_allclose(CALL(mlp, x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize(("ensemble", "shared"), [((), False), ((3,), True), ((3,), False)], ids=["one", "shared", "each"])
def test_columns(ensemble: tuple[int, ...], shared: bool, norm: str) -> None:
    """Long batches are computed in columns; values and gradients are those of short ones, also of an input in pieces."""
    mlp = shaken(MLP.init, [5, 7, 6, 2], ensemble=ensemble, norm=norm)
    x = normal(*(() if shared else ensemble), 30, 5)
    goal = normal(*ensemble, 30, 2)
    assert mlp.in_columns(30)
    assert not mlp.in_columns(7)

    def loss(mlp: MLP, left: jax.Array, right: jax.Array, parts: int) -> jax.Array:
        pieces = (left, right) if parts == 2 else (jnp.concatenate([left, right], axis=-1),)
        return jnp.sum((mlp(*pieces) - goal) ** 2)

    def by_rows(mlp: MLP, left: jax.Array, right: jax.Array) -> jax.Array:
        rows = [slice(start, start + 6) for start in range(0, 30, 6)]
        inputs = jnp.concatenate([left, right], axis=-1)
        return sum(jnp.sum((mlp(inputs[..., of, :]) - goal[..., of, :]) ** 2) for of in rows)

    def both(mlp: MLP) -> Any:
        grad = partial(jax.value_and_grad, argnums=(0, 1, 2))
        args = mlp, x[..., :3], x[..., 3:]
        return grad(by_rows)(*args), *(grad(loss)(*args, parts) for parts in (1, 2))

    expected, *found = fast(both)(mlp)
    for one in found:
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [6, 30])
def test_piece_with_fewer_rows_is_repeated(rows: int) -> None:
    mlp, left, right = shaken(MLP.init, [5, 7, 2], ensemble=(3,)), normal(rows, 3), normal(3, rows // 3, 2)
    whole = jnp.concatenate([jnp.broadcast_to(left, (3, rows, 3)), jnp.repeat(right, 3, axis=1)], axis=-1)
    np.testing.assert_allclose(fast(MLP.__call__)(mlp, left, right), CALL(mlp, whole), rtol=1e-5, atol=1e-5)


def test_ensemble_is_separate_mlps() -> None:
    both = shaken(MLP.init, [5, 8, 2], ensemble=(3,))
    x = normal(3, 11, 5)
    shared, apart = np.asarray(CALL(both, x[0])), np.asarray(CALL(both, x))
    for member in range(3):
        alone = jax.tree.map(lambda leaf, m=member: leaf[m], both)
        np.testing.assert_allclose(shared[member], CALL(alone, x[0]), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(apart[member], CALL(alone, x[member]), rtol=1e-5, atol=1e-6)
    assert (np.asarray(both.weights[0][0]) != np.asarray(both.weights[0][1])).all()


@pytest.mark.parametrize(("fan_in", "fan_out"), [(300, 200), (40, 400)])
def test_xavier_scales(fan_in: int, fan_out: int) -> None:
    uniform = plain(fresh(MLP.init, [fan_in, fan_out]).weights[0])
    bound = math.sqrt(6 / (fan_in + fan_out))
    assert 0.99 * bound < np.abs(uniform).max() <= bound * (1 + 1e-6)
    assert stats.kstest(uniform.ravel()[:5000], "uniform", (-bound, 2 * bound)).pvalue > 1e-3
    gaussian = plain(fresh(MLP.init, [fan_in, fan_out], kind="normal").weights[0])
    std = math.sqrt(2 / (fan_in + fan_out))
    assert stats.kstest(gaussian.ravel()[:5000], "norm", (0, std)).pvalue > 1e-3
    assert gaussian.std() == pytest.approx(std, rel=0.02)


def test_initial_biases_and_layers() -> None:
    mlp = fresh(MLP.init, [4, 4, 4, 4], ensemble=(2,))
    assert all((np.asarray(bias) == 0).all() for bias in mlp.biases)
    assert [bias.shape for bias in mlp.biases] == [(2, 4)] * 3
    assert (np.asarray(mlp.weights[0]) != np.asarray(mlp.weights[1])).all()


def test_bfloat16_is_close_to_float32() -> None:
    wide, narrow = (fresh(MLP.init, [40, 64, 64, 8], precision=p) for p in ("float32", "bfloat16"))
    for a, b in zip(wide.weights, narrow.weights, strict=True):
        np.testing.assert_array_equal(a, b)  # stored in float32
    x = normal(128, 40)
    run = fast(lambda m: (m(x), jax.grad(lambda n: jnp.mean(n(x) ** 2))(m)))
    (full, *full_grads), (short, *short_grads) = jax.tree.leaves(run(wide)), jax.tree.leaves(run(narrow))
    assert short.dtype == jnp.float32
    error = np.abs(np.asarray(full) - np.asarray(short)).max()
    assert 1e-5 < error < 0.05 * np.asarray(full).std()
    for a, b in zip(full_grads, short_grads, strict=True):
        assert b.dtype == jnp.float32
        assert np.linalg.norm(np.asarray(a) - np.asarray(b)) < 0.05 * np.linalg.norm(np.asarray(a))


# --- phi --------------------------------------------------------------------------------------------------------------


def test_phi_is_one_network_per_factor() -> None:
    phi = shaken(FactoredMLP.init, INDICES, hidden=7, layers=2, dim=2)
    obs = normal(9, SIZE)
    out = np.asarray(CALL(phi, obs))
    assert out.shape == (9, 3, 2)
    for i, indices in enumerate(INDICES):
        weights = [plain(w[i]) for w in phi.mlp.weights]
        weights[0] = weights[0][: len(indices)]
        expected = forward(plain(obs)[:, list(indices)], weights, [plain(b[i]) for b in phi.mlp.biases], relu)
        np.testing.assert_allclose(out[:, i], expected, rtol=1e-4, atol=1e-5)


def test_phi_i_depends_on_factor_i_only() -> None:
    phi = shaken(FactoredMLP.init, INDICES, hidden=16, layers=2, dim=2)
    obs = normal(5, SIZE)
    jacobian = np.asarray(fast(jax.vmap(jax.jacrev(lambda o: phi(o[None])[0])))(obs))  # [B, N, D, S]
    for i, indices in enumerate(INDICES):
        others = [d for d in range(SIZE) if d not in indices]
        assert (jacobian[:, i][..., others] == 0).all()
        assert (np.abs(jacobian[:, i][..., list(indices)]).max(axis=(0, 1)) > 0).all()


def test_padding_has_no_gradient() -> None:
    phi = shaken(FactoredMLP.init, INDICES, hidden=16, layers=2, dim=2)
    obs = normal(50, SIZE)
    gradient = np.asarray(fast(jax.grad(lambda p: jnp.sum(p(obs) ** 2)))(phi).mlp.weights[0])
    for i, indices in enumerate(INDICES):
        assert (gradient[i, len(indices) :] == 0).all()
        assert (np.abs(gradient[i, : len(indices)]).max(axis=1) > 0).all()


def test_initial_scale_of_phi() -> None:
    """It follows the size of the factor, not that of the largest one, to which the others are padded."""
    hidden, sizes = 40, (2, 100)
    indices = tuple(tuple(range(size)) for size in sizes)
    phi = jax.tree.map(np.asarray, fresh(FactoredMLP.init, indices, hidden=hidden, layers=2, dim=30))
    for i, size in enumerate(sizes):
        for layer, fan_in, fan_out in [(0, size, hidden), (1, hidden, hidden), (2, hidden, 30)]:
            weight = np.abs(plain(phi.mlp.weights[layer][i]))[:fan_in]
            bound = math.sqrt(6 / (fan_in + fan_out))
            assert 0.95 * bound < weight.max() <= bound * (1 + 1e-6)
    for layer in range(3):
        assert (phi.mlp.weights[layer][0] != phi.mlp.weights[layer][1]).all()


# --- actor ------------------------------------------------------------------------------------------------------------


SMALL = (5, 3, 16, 2, "tanh", "float32")  # inputs, actions, hidden, layers


@pytest.mark.parametrize(("activation", "function"), [("relu", relu), ("tanh", np.tanh)])
def test_actor(activation: str, function: Any) -> None:
    actor = shaken(Actor.init, 5, 3, 16, 2, activation, "float32")
    x = normal(9, 5)
    weights = [plain(w) for w in (*actor.trunk.weights, *actor.heads.weights)]
    biases = [plain(b) for b in (*actor.trunk.biases, *actor.heads.biases)]
    mean, log_std = np.split(forward(plain(x), weights, biases, function), 2, axis=1)
    ours, mode = fast(lambda a: (a(x), a.mode(x)))(actor)
    np.testing.assert_allclose(ours[0], mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours[1], log_std, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mode, np.tanh(mean), rtol=1e-4, atol=1e-5)


def test_actor_samples_from_its_density() -> None:
    actor = jax.tree.map(lambda leaf: 0.4 * leaf, shaken(Actor.init, *SMALL))
    one = normal(1, 5)
    mean, log_std = (plain(v)[0] for v in CALL(actor, one))
    action, log_prob = sample_actions(actor, np.tile(one, (5000, 1)))
    before = np.arctanh(plain(action))
    for d in range(3):
        assert stats.kstest(before[:, d], "norm", (mean[d], math.exp(log_std[d]))).pvalue > 1e-3
    assert np.abs(np.corrcoef(before.T) - np.eye(3)).max() < 0.06
    direct = (stats.norm.logpdf(before, mean, np.exp(log_std)) - np.log(1 - plain(action) ** 2)).sum(axis=1)
    inside = np.abs(before).max(axis=1) < 4  # beyond this the action does not determine u in float32
    assert inside.mean() > 0.9
    np.testing.assert_allclose(np.asarray(log_prob)[inside], direct[inside], atol=5e-3)


def test_initial_scale_of_the_actor_heads() -> None:
    actor = fresh(Actor.init, 5, 8, 512, 2, "tanh", "float32")
    heads = plain(actor.heads.weights[0])
    expected = 0.1 * math.sqrt(2 / (512 + 8))
    assert heads[:, :8].std() == pytest.approx(expected, rel=0.05)
    assert heads[:, 8:].std() == pytest.approx(expected, rel=0.05)
    assert abs(np.corrcoef(heads[:, :8].ravel(), heads[:, 8:].ravel())[0, 1]) < 0.05
    assert stats.kstest(heads.ravel(), "norm", (0, expected)).pvalue > 1e-3
    mean, log_std = CALL(actor, normal(256, 5))
    assert np.abs(np.asarray(mean)).max() < 0.5
    assert np.abs(np.asarray(log_std)).max() < 0.5


def test_actor_clamps_its_std() -> None:
    actor = shaken(Actor.init, *SMALL)
    for push, limit in [(1e3, math.exp(2)), (-1e3, 1e-6)]:
        pushed = eqx.tree_at(lambda a: a.heads.biases[0], actor, np.full(6, push, np.float32))
        mean, log_std = CALL(pushed, np.ones((2, 5), np.float32))
        np.testing.assert_allclose(np.exp(plain(log_std)), limit, rtol=1e-5)
        assert (np.abs(np.asarray(mean)) > 900).all()
        action, log_prob = sample_actions(pushed, np.ones((2, 5), np.float32))
        assert np.isfinite(np.asarray(action)).all()
        assert np.isfinite(np.asarray(log_prob)).all()


# --- density ----------------------------------------------------------------------------------------------------------


def test_density_is_two_networks() -> None:
    """Mean and log-std of y, as functions of x."""
    density = shaken(Density.init, 4, 3, 9, 2, 1e-6, "float32")
    obs = normal(6, 4)
    for index, ours in enumerate(CALL(density, obs)):
        assert ours.shape == (6, 3)
        weights, biases = [w[index] for w in density.nets.weights], [b[index] for b in density.nets.biases]
        np.testing.assert_allclose(ours, forward(plain(obs), weights, biases), rtol=1e-4, atol=1e-5)


def test_density_clamps_its_std_only() -> None:
    density = shaken(Density.init, 4, 4, 9, 2, 1e-3, "float32")
    for push, limit in [(1e3, 1e6), (-1e3, 1e-3)]:
        pushed = eqx.tree_at(lambda d: d.nets.biases[-1], density, np.full((2, 4), push, np.float32))
        mean, log_std = CALL(pushed, np.ones((2, 4), np.float32))
        np.testing.assert_allclose(np.exp(plain(log_std)), limit, rtol=1e-5)
        np.testing.assert_allclose(mean, push, rtol=0.01)


# --- spectral normalisation -------------------------------------------------------------------------------------------


def divided(old: MLP, new: MLP) -> list[float]:
    """The divisor of each weight matrix."""
    for before, after in zip(old.biases, new.biases, strict=True):
        np.testing.assert_array_equal(before, after)
    return [float((plain(a) / plain(b)).mean()) for a, b in zip(old.weights, new.weights, strict=True)]


def iterated(weight: np.ndarray, right: np.ndarray, iterations: int) -> tuple[np.ndarray, np.ndarray]:
    """The power iteration: u = W v / |W v|, v = W^T u / |W^T u|."""
    for _ in range(iterations):
        left = weight @ right
        left /= np.linalg.norm(left)
        right = weight.T @ left
        right /= np.linalg.norm(right)
    return left, right


@pytest.mark.slow
def test_spectral_norms_are_exact() -> None:
    """For an initial network, whose two largest singular values are close; the normalised one is 1-Lipschitz."""
    mlp = fresh(MLP.init, [18, 64, 64, 2])
    normalised, vectors = spectral_normalise(mlp, spectral_vectors(mlp))
    decompositions = [np.linalg.svd(plain(weight)) for weight in mlp.weights]
    np.testing.assert_allclose(divided(mlp, normalised), [s.max() for _, s, _ in decompositions], rtol=1e-3)
    for vector, (_, _, right) in zip(vectors, decompositions, strict=True):
        assert abs(plain(vector) @ right[0]) > 0.98
    x, y = normal(2, 200, 18)
    moved = np.linalg.norm(np.asarray(CALL(normalised, x)) - np.asarray(CALL(normalised, y)), axis=1)
    assert (moved <= np.linalg.norm(x - y, axis=1)).all()


@pytest.mark.parametrize("iterations", [1, 3])
def test_power_iteration(iterations: int) -> None:
    """Far from convergence, where every iteration matters; singular vectors are constant in the gradient."""
    mlp = shaken(MLP.init, [5, 4, 3])
    starts = tuple(v / np.linalg.norm(v) for v in (normal(4), normal(5)[2:]))
    pairs = [iterated(plain(w), plain(v), iterations) for w, v in zip(mlp.weights, starts, strict=True)]
    x = normal(7, 5)

    def reference(net: MLP) -> float:
        weights = [w / (left @ w @ right) for w, (left, right) in zip(net.weights, pairs, strict=True)]
        return float((forward(plain(x), weights, net.biases) ** 2).mean())

    def moving(net: MLP) -> float:  # for the gradient through the iteration
        found = [iterated(w, plain(v), iterations) for w, v in zip(net.weights, starts, strict=True)]
        weights = [w / (left @ w @ right) for w, (left, right) in zip(net.weights, found, strict=True)]
        return float((forward(plain(x), weights, net.biases) ** 2).mean())

    def ours(net: MLP) -> Any:
        normalised, vectors = spectral_normalise(net, starts, iterations)
        return jnp.mean(normalised(x) ** 2), (normalised, vectors)

    (value, (normalised, vectors)), gradient = fast(jax.value_and_grad(ours, has_aux=True))(mlp)
    assert float(value) == pytest.approx(reference(jax.tree.map(plain, mlp)), rel=1e-4)
    estimates = [left @ plain(w) @ right for w, (left, right) in zip(mlp.weights, pairs, strict=True)]
    np.testing.assert_allclose(divided(mlp, normalised), estimates, rtol=1e-4)
    for vector, (_, right) in zip(vectors, pairs, strict=True):
        np.testing.assert_allclose(vector, right, rtol=1e-4, atol=1e-5)
    expected = differences(reference, mlp)
    assert_same_gradient(gradient, expected)
    through = differences(moving, mlp)
    assert np.abs(through.weights[0] - expected.weights[0]).max() > 0.01 * np.abs(expected.weights[0]).max()


def test_groups_of_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks whose layers do not fit into the cache are computed in groups: values and gradients are the same."""
    phi = shaken(FactoredMLP.init, INDICES, 7, 2, 4)
    x = normal(30, SIZE)
    grad = jax.value_and_grad(lambda phi: jnp.sum(jnp.sin(phi(x))))
    expected = fast(grad)(phi)
    monkeypatch.setattr("susd.networks.CACHE", 30 * 7 * 4 * 2)  # two of the three networks
    assert [len(net.weights[0]) for net, _ in phi._groups(np.zeros((3, 3, 30)))] == [1, 2]
    for a, b in zip(jax.tree.leaves(fast(lambda phi: grad(phi))(phi)), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
