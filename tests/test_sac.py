"""Soft actor-critic: losses against NumPy in float64, and small problems whose values and policies are known."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from susd.networks import MLP
from susd.sac import Sac, SacBatch, SacState, values

BASE = Sac(
    inputs=1,
    actions=1,
    hidden=32,
    layers=2,
    activation="relu",
    precision="float32",
    learning_rate=3e-3,
    discount=0.9,
    tau=0.05,
    alpha_init=1e-8,
    adaptive_alpha=False,
    target_entropy=-0.5,
)
KEY = jax.random.key(0)


def plain(x: Any) -> np.ndarray:
    return np.asarray(x, np.float64)


# --- losses against NumPy ---------------------------------------------------------------------------------------------

SMALL = dataclasses.replace(BASE, inputs=3, actions=2, hidden=6, alpha_init=0.3, activation="tanh")


def network(x: np.ndarray, weights: list[np.ndarray], biases: list[np.ndarray], activation: Any) -> np.ndarray:
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        x = x @ weight + bias
        x = x if layer == len(weights) - 1 else activation(x)
    return x


def twin_values(critic: MLP, x: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Q_1 and Q_2 of [x, a], [2, B]."""
    inputs = np.concatenate([x, action], axis=1)
    return np.stack(
        [
            network(
                inputs,
                [plain(w)[k] for w in critic.weights],
                [plain(b)[k] for b in critic.biases],
                lambda v: np.maximum(v, 0),
            )[:, 0]
            for k in range(2)
        ]
    )


def gaussian(actor: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    weights = [plain(w) for w in (*actor.trunk.weights, *actor.heads.weights)]
    biases = [plain(b) for b in (*actor.trunk.biases, *actor.heads.biases)]
    mean, log_std = np.split(network(x, weights, biases, np.tanh), 2, axis=1)
    return mean, np.exp(log_std)


def squashed(mean: np.ndarray, std: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """tanh(mean + std noise) and its log-density by the change of variables."""
    before = mean + std * noise
    action = np.tanh(before)
    return action, (stats.norm.logpdf(before, mean, std) - np.log(1 - action**2)).sum(axis=1)


def random_batch(seed: int = 0, size: int = 12) -> SacBatch:
    rng = np.random.default_rng(seed)
    x, next_x = rng.normal(size=(2, size, 3))
    arrays = (x, rng.uniform(-1, 1, (size, 2)), rng.normal(size=size), next_x, rng.integers(0, 2, size))
    return SacBatch(*(np.asarray(a, np.float32) for a in arrays))


@pytest.fixture(scope="module")
def apart() -> SacState:
    """Critic, target and actor all different, biases included; optimisers that have not stepped yet."""
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(SMALL.init, KEY)
    zero = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    actor, critic, target = jax.tree.map(
        lambda leaf: (0.5 * rng.normal(size=leaf.shape)).astype(np.float32), (shapes.actor, shapes.critic, shapes.target)
    )
    log_alpha = np.log(np.float32(0.3))
    return SacState(actor, critic, target, log_alpha, zero.actor_opt, zero.critic_opt, zero.alpha_opt)


def drawn_noise(actor: Any, x: np.ndarray, key: jax.Array) -> np.ndarray:
    """The standard normal noise behind the actor's sample, found from the action."""
    action, _ = jax.jit(lambda a: a.sample(x, key))(actor)
    mean, std = gaussian(actor, plain(x))
    return (np.arctanh(plain(action)) - mean) / std


def differences(function: Any, tree: Any, step: float = 1e-6) -> list[np.ndarray]:
    """Central finite differences of a scalar function of a pytree of float64 arrays, leaf by leaf."""
    leaves, structure = jax.tree.flatten(jax.tree.map(plain, tree))
    result = []
    for leaf in leaves:
        gradient = np.zeros_like(leaf)
        for place in np.ndindex(leaf.shape):
            old = leaf[place]
            ends = []
            for moved in (old + step, old - step):
                leaf[place] = moved
                ends.append(function(jax.tree.unflatten(structure, leaves)))
            leaf[place] = old
            gradient[place] = (ends[0] - ends[1]) / (2 * step)
        result.append(gradient)
    return result


def assert_same_gradient(ours: Any, reference: list[np.ndarray]) -> None:
    leaves = jax.tree.leaves(ours)
    assert len(leaves) == len(reference)
    for mine, theirs in zip(leaves, reference, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-3, atol=2e-4 * max(1.0, np.abs(theirs).max()))


def test_critic_loss_and_gradient(apart: SacState) -> None:
    batch = random_batch()
    noise = drawn_noise(apart.actor, batch.next_x, KEY)
    next_action, log_prob = squashed(*gaussian(apart.actor, plain(batch.next_x)), noise)
    twins = twin_values(apart.target, plain(batch.next_x), next_action)
    assert 0 < np.argmin(twins, axis=0).mean() < 1  # each of the twins is the smaller one somewhere
    y = batch.reward + 0.9 * (1 - batch.done) * (twins.min(axis=0) - 0.3 * log_prob)

    def reference(critic: MLP) -> float:
        q = twin_values(critic, plain(batch.x), plain(batch.action))
        return 0.5 * ((q[0] - y) ** 2).mean() + 0.5 * ((q[1] - y) ** 2).mean()

    (loss, info), gradient = jax.jit(jax.value_and_grad(SMALL.critic_loss, has_aux=True))(apart.critic, apart, batch, KEY)
    assert float(loss) == pytest.approx(reference(apart.critic), rel=1e-4)
    assert float(info["target_q"]) == pytest.approx(y.mean(), rel=1e-3)
    assert_same_gradient(gradient, differences(reference, apart.critic))


def test_actor_loss_and_gradient(apart: SacState) -> None:
    x = random_batch(1).x
    noise = drawn_noise(apart.actor, x, KEY)

    def reference(actor: Any) -> float:
        action, log_prob = squashed(*gaussian(actor, plain(x)), noise)
        return float((0.3 * log_prob - twin_values(apart.critic, plain(x), action).min(axis=0)).mean())

    run = jax.jit(jax.value_and_grad(SMALL.actor_loss, has_aux=True))
    (loss, info), gradient = run(apart.actor, apart.critic, apart.log_alpha, x, KEY)
    assert float(loss) == pytest.approx(reference(apart.actor), rel=1e-3)
    _, log_prob = squashed(*gaussian(apart.actor, plain(x)), noise)
    assert float(info["entropy"]) == pytest.approx(-log_prob.mean(), rel=1e-3)
    assert_same_gradient(gradient, differences(reference, apart.actor))


def test_critic_target_has_no_gradient(apart: SacState) -> None:
    batch = random_batch()

    def loss(parts: tuple[Any, Any, Any]) -> jax.Array:
        actor, target, log_alpha = parts
        moved = SacState(actor, apart.critic, target, log_alpha, apart.actor_opt, apart.critic_opt, apart.alpha_opt)
        return SMALL.critic_loss(apart.critic, moved, batch, KEY)[0]

    gradient = jax.jit(jax.grad(loss))((apart.actor, apart.target, apart.log_alpha))
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(gradient))


def test_critics_start_with_xavier_normal_weights_and_as_their_own_targets() -> None:
    state = jax.jit(dataclasses.replace(BASE, inputs=50, hidden=200).init)(KEY)
    for ours, target in zip(jax.tree.leaves(state.critic), jax.tree.leaves(state.target), strict=True):
        np.testing.assert_array_equal(ours, target)
    first = plain(state.critic.weights[0])
    assert first.std() == pytest.approx(math.sqrt(2 / (51 + 200)), rel=0.03)
    assert np.abs(first).max() > math.sqrt(6 / (51 + 200))  # outside what Xavier's uniform can give
    assert (first[0] != first[1]).all()


# --- one update -------------------------------------------------------------------------------------------------------


def adam_start(old: Any, gradient: Any, rate: float) -> np.ndarray:
    """Adam's first step: its bias-corrected moments are the gradient and its square."""
    return plain(old) - rate * plain(gradient) / (np.abs(plain(gradient)) + 1e-8)


def assert_first_step(new: Any, old: Any, gradient: Any, rate: float) -> None:
    for a, b, g in zip(*(jax.tree.leaves(t) for t in (new, old, gradient)), strict=True):
        clear = np.abs(plain(g)) > 1e-5  # below, the two compiled gradients differ in their last bits
        np.testing.assert_allclose(plain(a)[clear], adam_start(b, g, rate)[clear], atol=1e-5)


def test_one_update_step_by_step(apart: SacState) -> None:
    """Critic first, actor against the new critic with the old temperature, then temperature, then Polyak."""
    sac, batch = dataclasses.replace(SMALL, learning_rate=0.01), random_batch()
    new, info = jax.jit(sac.update)(apart, batch, KEY)

    def expected(state: SacState, new_critic: MLP) -> Any:
        k_critic, k_actor = jax.random.split(KEY)
        critic, _ = jax.grad(sac.critic_loss, has_aux=True)(state.critic, state, batch, k_critic)
        actor = jax.grad(sac.actor_loss, has_aux=True)
        return critic, *(actor(state.actor, q, state.log_alpha, batch.x, k_actor)[0] for q in (new_critic, state.critic))

    critic_gradient, actor_gradient, stale = jax.jit(expected)(apart, new.critic)
    assert_first_step(new.critic, apart.critic, critic_gradient, 0.01)
    assert_first_step(new.actor, apart.actor, actor_gradient, 0.01)
    assert not np.allclose(stale.heads.weights[0], actor_gradient.heads.weights[0], rtol=1e-3, atol=1e-5)
    for fresh, old, critic in zip(*(jax.tree.leaves(t) for t in (new.target, apart.target, new.critic)), strict=True):
        np.testing.assert_allclose(fresh, 0.95 * plain(old) + 0.05 * plain(critic), rtol=1e-6, atol=1e-7)
    assert float(new.log_alpha) == float(apart.log_alpha)  # alpha is fixed here
    assert float(info["alpha"]) == pytest.approx(0.3, rel=1e-6)


def test_alpha_rises_when_the_policy_is_not_random_enough(apart: SacState) -> None:
    """The target is per action dimension; Adam's first step is the whole rate, against the sign of H - |A| target."""

    @jax.jit
    def step(target: jax.Array) -> tuple[SacState, dict[str, jax.Array]]:
        sac = dataclasses.replace(SMALL, adaptive_alpha=True, target_entropy=target, learning_rate=0.01)
        return sac.update(apart, random_batch(), KEY)

    entropy = float(step(jnp.float32(0.0))[1]["entropy"])
    for shift, direction in [(0.05, 1.0), (-0.05, -1.0)]:
        new, info = step(jnp.float32(entropy / 2 + shift))  # two action dimensions
        assert float(new.log_alpha) == pytest.approx(math.log(0.3) + direction * 0.01, abs=1e-5)
        assert float(info["alpha"]) == pytest.approx(math.exp(float(new.log_alpha)), rel=1e-6)


# --- problems with known answers --------------------------------------------------------------------------------------


def trained(sac: Sac, batch: Any, steps: int) -> tuple[SacState, dict[str, jax.Array]]:
    """`steps` updates in one scan; `batch` makes one from a key. Infos are returned step by step."""

    def one(state: SacState, key: jax.Array) -> tuple[SacState, dict[str, jax.Array]]:
        k_batch, k_update = jax.random.split(key)
        return sac.update(state, batch(k_batch), k_update)

    k_init, k_steps = jax.random.split(KEY)
    return jax.lax.scan(one, sac.init(k_init), jax.random.split(k_steps, steps))


def q_of(state: SacState, x: float, actions: np.ndarray) -> np.ndarray:
    """Both critics' values, [2, len(actions)]."""
    action = actions.astype(np.float32)[:, None]
    return np.asarray(jax.jit(values)(state.critic, np.full_like(action, x), action))


GRID = np.linspace(-0.9, 0.9, 7)


def chain(key: jax.Array) -> SacBatch:
    """State 0 pays 1 and leads to state 1, which pays 2 and ends; states 2 and 3 pay 1 for ever, and once."""
    kind = jnp.tile(jnp.arange(4), 16)
    x = kind[:, None].astype(jnp.float32)
    reward = jnp.where(kind == 1, 2.0, 1.0)
    next_x = jnp.where(kind == 0, 1, kind)[:, None].astype(jnp.float32)
    done = ((kind == 1) | (kind == 3)).astype(jnp.float32)
    return SacBatch(x, jax.random.uniform(key, x.shape, minval=-1.0, maxval=1.0), reward, next_x, done)


def test_values_of_a_chain_a_loop_and_an_end() -> None:
    """The loop bootstraps; the same step with done = 1, the time limit, is worth its reward alone."""
    state, _ = jax.jit(lambda: trained(dataclasses.replace(BASE, discount=0.8), chain, 1500))()
    for x, value in [(0, 1 + 0.8 * 2), (1, 2.0), (2, 1 / (1 - 0.8)), (3, 1.0)]:
        np.testing.assert_allclose(q_of(state, x, GRID), value, rtol=0.05, err_msg=f"state {x}")


def test_entropy_is_part_of_the_value() -> None:
    """Rewards do not depend on the action, so the policy becomes as random as it can and the value gains alpha H."""
    alpha = 0.5
    state, infos = jax.jit(lambda: trained(dataclasses.replace(BASE, alpha_init=alpha), chain, 1500))()
    entropy = np.asarray(infos["entropy"])[-300:].mean()
    assert 0.55 < entropy < math.log(2) + 0.02  # nothing on (-1, 1) has more entropy than the uniform distribution
    np.testing.assert_allclose(q_of(state, 1, GRID), 2.0, rtol=0.05)  # the end has no entropy after it
    np.testing.assert_allclose(q_of(state, 0, GRID), 1 + 0.9 * (2.0 + alpha * entropy), rtol=0.05)


def bandit(key: jax.Array) -> SacBatch:
    """One step, reward -(a - 0.3)^2."""
    action = jax.random.uniform(key, (64, 1), minval=-1.0, maxval=1.0)
    x = jnp.ones((64, 1))
    return SacBatch(x, action, -((action[:, 0] - 0.3) ** 2), x, jnp.ones(64))


def actions_of(state: SacState) -> tuple[float, np.ndarray]:
    mode, sampled = jax.jit(lambda a, x: (a.mode(x), a.sample(x, KEY)[0]))(state.actor, np.ones((4000, 1), np.float32))
    return float(mode[0, 0]), plain(sampled)


def test_policy_finds_the_best_action_with_the_soft_optimum_around_it() -> None:
    """pi ~ exp(-(a - 0.3)^2 / alpha) is a Gaussian of variance alpha / 2, far from the edges."""
    alpha = 0.02
    state, _ = jax.jit(lambda: trained(dataclasses.replace(BASE, alpha_init=alpha), bandit, 2500))()
    mode, sampled = actions_of(state)
    assert mode == pytest.approx(0.3, abs=0.05)
    assert sampled.mean() == pytest.approx(0.3, abs=0.05)
    assert sampled.std() == pytest.approx(math.sqrt(alpha / 2), rel=0.2)


def test_adaptive_alpha_reaches_the_target_entropy() -> None:
    targets = np.array([-0.5, -1.5], np.float32)
    sac = dataclasses.replace(BASE, alpha_init=0.1, adaptive_alpha=True)
    run = jax.jit(jax.vmap(lambda target: trained(dataclasses.replace(sac, target_entropy=target), bandit, 2500)[1]))
    infos = jax.tree.map(np.asarray, run(targets))
    assert (infos["entropy"][:, 0] > 0).all()  # it starts elsewhere
    np.testing.assert_allclose(infos["entropy"][:, -300:].mean(axis=1), targets, atol=0.1)
    # The entropy of a Gaussian decides its variance, and the soft optimum then the temperature.
    variance = np.exp(2 * targets - 1) / (2 * math.pi)
    np.testing.assert_allclose(infos["alpha"][:, -300:].mean(axis=1), 2 * variance, rtol=0.4)
