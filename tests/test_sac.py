"""Soft actor-critic: losses compared with NumPy in float64, and small problems with known values and policies.

Everything with one part of the reward, and with several parts: one head for each and one for the entropy.
"""

import dataclasses
import math
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from scipy import stats

from reference import assert_first_adam_step, assert_same_gradient, differences, fast, forward, plain, random_like, relu
from susd.networks import MLP
from susd.sac import Sac, SacBatch, SacState, action_noise

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


# --- losses ---------------------------------------------------------------------------------------------

SMALL = dataclasses.replace(BASE, inputs=3, actions=2, hidden=6, alpha_init=0.3, activation="tanh")
reward_parts = pytest.mark.parametrize("parts", [1, 3])


def twin_values(critic: MLP, x: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Q_1 and Q_2 of [x, a] for every head, [heads, 2, B]."""
    inputs = np.concatenate([x, action], axis=1)
    twins = [forward(inputs, [w[k] for w in critic.weights], [b[k] for b in critic.biases]) for k in range(2)]
    return np.stack(twins).transpose(2, 0, 1)


def gaussian(actor: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    weights, biases = (*actor.trunk.weights, *actor.heads.weights), (*actor.trunk.biases, *actor.heads.biases)
    activation = {"tanh": np.tanh, "relu": relu}[actor.trunk.activation]
    mean, log_std = np.split(forward(x, weights, biases, activation), 2, axis=1)
    return mean, np.exp(log_std)


def squashed(mean: np.ndarray, std: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """tanh(mean + std noise) and its log-density by the change of variables."""
    before = mean + std * noise
    action = np.tanh(before)
    return action, (stats.norm.logpdf(before, mean, std) - np.log(1 - action**2)).sum(axis=1)


def random_batch(parts: int, size: int = 12) -> SacBatch:
    rng = np.random.default_rng(0)
    x, next_x = rng.normal(size=(2, size, 3))
    arrays = (x, rng.uniform(-1, 1, (size, 2)), rng.normal(size=(size, parts)), next_x, rng.integers(0, 2, size))
    return SacBatch(*(np.asarray(a, np.float32) for a in arrays))


def apart(parts: int) -> tuple[Sac, SacState, SacBatch]:
    """Different critic, target and actor, also in their biases; initial optimiser states; and a batch."""
    sac = dataclasses.replace(SMALL, parts=parts)
    state = random_like(sac.init)
    shapes = jax.eval_shape(sac.init, KEY)
    zero = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    log_alpha = np.log(np.float32(0.3))
    optimisers = (zero.actor_opt, zero.critic_opt, zero.alpha_opt)
    return sac, SacState(state.actor, state.critic, state.target, log_alpha, *optimisers), random_batch(parts)


NOISE = np.random.default_rng(2).normal(size=(2, 12, 2)).astype(np.float32)  # of random_batch


def target_values(state: SacState, batch: SacBatch) -> np.ndarray:
    """y of every head, [heads, B]. One part: r + gamma (1 - done) (min_k Qbar_k - alpha log pi).

    Several parts: each has its reward and its minimum, and the last head has the entropy.
    """
    next_action, log_prob = squashed(*gaussian(state.actor, plain(batch.next_x)), plain(NOISE[0]))
    twins = twin_values(state.target, plain(batch.next_x), next_action)
    assert (twins.argmin(axis=1).mean(axis=1) % 1 > 0).all()  # in each head either critic is the smaller one somewhere
    discount, reward = 0.9 * (1 - plain(batch.done)), plain(batch.reward)
    if reward.shape[1] == 1:
        return (reward[:, 0] + discount * (twins[0].min(axis=0) - 0.3 * log_prob))[None]
    heads = [reward[:, i] + discount * twins[i].min(axis=0) for i in range(reward.shape[1])]
    return np.stack([*heads, discount * (twins[-1].min(axis=0) - 0.3 * log_prob)])


@pytest.mark.slow
@reward_parts
def test_critic_loss_and_gradient(parts: int) -> None:
    sac, state, batch = apart(parts)
    y = target_values(state, batch)
    assert len(y) == sac.heads == (1 if parts == 1 else parts + 1)

    def reference(critic: MLP) -> float:
        q = twin_values(critic, plain(batch.x), plain(batch.action))
        return sum(0.5 * ((q[head, k] - y[head]) ** 2).mean() for head in range(len(y)) for k in range(2))

    def loss_of(critic: MLP, rest: tuple[Any, Any, Any]) -> Any:
        actor, target, log_alpha = rest
        whole = SacState(actor, critic, target, log_alpha, state.actor_opt, state.critic_opt, state.alpha_opt)
        return sac.critic_loss(critic, whole, batch, NOISE[0])

    run = fast(jax.value_and_grad(loss_of, argnums=(0, 1), has_aux=True))
    (loss, info), (gradient, constant) = run(state.critic, (state.actor, state.target, state.log_alpha))
    assert float(loss) == pytest.approx(reference(state.critic), rel=1e-4)
    assert float(info["target_q"]) == pytest.approx(y.sum(axis=0).mean(), rel=1e-3)
    both = twin_values(state.critic, plain(batch.x), plain(batch.action))
    assert float(info["q"]) == pytest.approx(both.sum(axis=0).mean(), rel=1e-3)
    assert_same_gradient(gradient, differences(reference, state.critic))
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(constant))  # targets have no gradient


@pytest.mark.slow
@reward_parts
def test_actor_loss_and_gradient(parts: int) -> None:
    sac, state, batch = apart(parts)
    x = plain(batch.x)
    noise = plain(NOISE[1])

    def reference(actor: Any) -> float:
        action, log_prob = squashed(*gaussian(actor, x), noise)
        q = sum(twins.min(axis=0) for twins in twin_values(state.critic, x, action))
        return float((0.3 * log_prob - q).mean())

    run = fast(jax.value_and_grad(sac.actor_loss, has_aux=True))
    (loss, info), gradient = run(state.actor, state.critic, state.log_alpha, batch.x, NOISE[1])
    assert float(loss) == pytest.approx(reference(state.actor), rel=1e-3)
    action, log_prob = squashed(*gaussian(state.actor, x), noise)
    assert float(info["entropy"]) == pytest.approx(-log_prob.mean(), abs=1e-4)
    assert_same_gradient(gradient, differences(reference, state.actor))
    twins = twin_values(state.critic, x, action)
    joint = twins.sum(axis=0).min(axis=0) - twins.min(axis=1).sum(
        axis=0
    )  # the minimum of the sum, one critic for all heads
    assert (np.abs(joint).max() > 0.1) == (parts > 1)


def test_initial_critics() -> None:
    """Xavier normal weights, equal targets; every head has the scale of a single output, and no two are equal."""
    single = dataclasses.replace(BASE, inputs=50, hidden=200)
    several = dataclasses.replace(single, parts=4)
    one, five = fast(lambda: (single.init(KEY), several.init(KEY)))()
    for state in (one, five):
        for ours, target in zip(jax.tree.leaves(state.critic), jax.tree.leaves(state.target), strict=True):
            np.testing.assert_array_equal(ours, target)
        first = plain(state.critic.weights[0])
        assert first.std() == pytest.approx(math.sqrt(2 / (51 + 200)), rel=0.03)
        assert np.abs(first).max() > math.sqrt(6 / (51 + 200))  # outside the range of Xavier uniform
        assert (first[0] != first[1]).all()
        assert all((np.asarray(bias) == 0).all() for bias in state.critic.biases)
    assert one.critic.weights[-1].shape == (2, 200, 1)
    heads = plain(five.critic.weights[-1])
    assert heads.shape == (2, 200, 5)
    assert five.critic.biases[-1].shape == (2, 5)
    columns = heads.transpose(0, 2, 1).reshape(10, 200)
    np.testing.assert_allclose(columns.std(axis=1), math.sqrt(2 / (200 + 1)), rtol=0.2)
    assert np.abs(np.corrcoef(columns) - np.eye(10)).max() < 0.3


# --- one update -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@reward_parts
def test_order_of_an_update(parts: int) -> None:
    """Critic, then actor with the updated critic and the old temperature, then temperature, then target."""
    sac, state, batch = apart(parts)
    sac = dataclasses.replace(sac, learning_rate=0.01)
    new, info = fast(sac.update)(state, batch, NOISE)

    def expected(new_critic: MLP) -> Any:
        critic, _ = jax.grad(sac.critic_loss, has_aux=True)(state.critic, state, batch, NOISE[0])
        actor = jax.grad(sac.actor_loss, has_aux=True)
        return critic, *(actor(state.actor, q, state.log_alpha, batch.x, NOISE[1])[0] for q in (new_critic, state.critic))

    critic_gradient, actor_gradient, stale = fast(expected)(new.critic)
    assert_first_adam_step(new.critic, state.critic, critic_gradient, 0.01)
    assert_first_adam_step(new.actor, state.actor, actor_gradient, 0.01)
    assert not np.allclose(stale.heads.weights[0], actor_gradient.heads.weights[0], rtol=1e-3, atol=1e-5)
    for fresh, old, critic in zip(*(jax.tree.leaves(t) for t in (new.target, state.target, new.critic)), strict=True):
        np.testing.assert_allclose(fresh, 0.95 * plain(old) + 0.05 * plain(critic), rtol=1e-6, atol=1e-7)
    assert float(new.log_alpha) == float(state.log_alpha)  # alpha is fixed here
    assert float(info["alpha"]) == pytest.approx(0.3, rel=1e-6)


def test_direction_of_alpha() -> None:
    """The target is per action dimension; Adam's first step is the learning rate, against the sign of H - |A| target."""
    _, state, batch = apart(1)

    def step(target: jax.Array) -> tuple[SacState, dict[str, jax.Array]]:
        sac = dataclasses.replace(SMALL, adaptive_alpha=True, target_entropy=target, learning_rate=0.01)
        return sac.update(state, batch, NOISE)

    run = fast(step)
    entropy = float(run(np.float32(0.0))[1]["entropy"])
    for shift, direction in [(0.05, 1.0), (-0.05, -1.0)]:
        new, info = run(np.float32(entropy / 2 + shift))  # two action dimensions
        assert float(new.log_alpha) == pytest.approx(math.log(0.3) + direction * 0.01, abs=1e-5)
        assert float(info["alpha"]) == pytest.approx(math.exp(float(new.log_alpha)), rel=1e-6)


# --- problems with known answers --------------------------------------------------------------------------------------


class Problem(NamedTuple):
    """The differences between problems that are solved in one compiled call."""

    discount: float
    alpha: float
    batches: SacBatch  # [STEPS, B, ..]
    target_entropy: float = 0.0  # where alpha adapts to it


STEPS = 2500
GRID = np.linspace(-0.9, 0.9, 7).astype(np.float32)[:, None]


def solved(parts: int, *problems: Problem, adaptive: bool = False) -> tuple[list[SacState], dict[str, np.ndarray]]:
    """The final state of each problem, and what its updates log, [problems, STEPS]."""

    def solve(problem: Problem) -> Any:
        numbers = {"discount": problem.discount, "alpha_init": problem.alpha, "target_entropy": problem.target_entropy}
        sac = dataclasses.replace(BASE, parts=parts, adaptive_alpha=adaptive, **numbers)
        size = problem.batches.done.shape[1]
        noise = jax.vmap(lambda key: action_noise(key, size, sac.actions))(jax.random.split(KEY, STEPS))
        return jax.lax.scan(lambda state, step: sac.update(state, *step), sac.init(KEY), (problem.batches, noise))

    stacked = jax.tree.map(lambda *leaves: np.stack(leaves).astype(np.float32), *problems)
    states, infos = jax.tree.map(np.asarray, fast(jax.vmap(solve), level=1)(stacked))
    return [jax.tree.map(lambda leaf, n=n: leaf[n], states) for n in range(len(problems))], infos


def uniform_actions() -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (STEPS, 64, 1))


def repeated(values: Any) -> np.ndarray:
    """The same values in every step."""
    return np.broadcast_to(values, (STEPS, *np.shape(values)))


def chain(*rewards: tuple[float, ...]) -> SacBatch:
    """State 0 leads to state 1, which is terminal; state 2 leads to itself without end, state 3 to itself with done = 1.

    `rewards` holds the reward of each state, part by part. Actions have no effect.
    """
    state = np.tile(np.arange(4), 16)
    next_state = np.where(state == 0, 1, state)
    reward = np.array(rewards).T[state]
    x, next_x = repeated(state[:, None]), repeated(next_state[:, None])
    return SacBatch(x, uniform_actions(), repeated(reward), next_x, repeated((state == 1) | (state == 3)))


def bandit(*peaks: float) -> SacBatch:
    """One step with n reward parts -(a - peak)^2 / n: their sum is a parabola around the mean of the peaks."""
    action = uniform_actions()
    ones = np.ones_like(action)
    return SacBatch(ones, action, -((action - np.array(peaks)) ** 2) / len(peaks), ones, ones[..., 0])


def q_of(state: SacState, x: float) -> np.ndarray:
    """The values of both critics for several actions, [heads, 2, actions]."""
    return twin_values(state.critic, np.full(GRID.shape, x), plain(GRID))


def entropy_of(state: SacState, x: float) -> float:
    """The entropy of pi(. | x), by quadrature over the noise."""
    noise, weights = np.polynomial.hermite_e.hermegauss(60)
    mean, std = gaussian(state.actor, np.array([[x]]))
    return float(-(squashed(mean, std, noise[:, None])[1] * weights).sum() / weights.sum())


@pytest.fixture(scope="module")
def single() -> list[SacState]:
    """With one part: the chain without entropy, the chain with it, the bandit."""
    reward = (1.0, 2.0, 1.0, 1.0)
    chains = Problem(0.8, 1e-8, chain(reward)), Problem(0.9, 0.5, chain(reward))
    return solved(1, *chains, Problem(0.9, 0.02, bandit(0.3)))[0]


@pytest.fixture(scope="module")
def decomposed() -> list[SacState]:
    """With two parts whose sum is the reward above: the chain with entropy, the bandit."""
    rewards = ((2.0, -1.0, 0.5, 3.0), (-1.0, 3.0, 0.5, -2.0))
    return solved(2, Problem(0.9, 0.5, chain(*rewards)), Problem(0.9, 0.02, bandit(0.8, -0.2)))[0]


@pytest.mark.slow
def test_values_of_a_chain(single: list[SacState]) -> None:
    """The loop bootstraps; the same step with done = 1, the time limit, has the value of its reward."""
    for x, value in [(0, 1 + 0.8 * 2), (1, 2.0), (2, 1 / (1 - 0.8)), (3, 1.0)]:
        np.testing.assert_allclose(q_of(single[0], x), value, rtol=0.05, err_msg=f"state {x}")


def test_entropy_is_part_of_the_value(single: list[SacState]) -> None:
    """Rewards do not depend on the action, so the policy becomes as random as possible and the value contains alpha H."""
    state = single[1]
    entropy = [entropy_of(state, x) for x in range(4)]
    assert 0.55 < min(entropy) <= max(entropy) < math.log(2)  # the uniform distribution has the largest entropy on (-1, 1)
    np.testing.assert_allclose(q_of(state, 1), 2.0, rtol=0.05)  # no entropy after the terminal state
    np.testing.assert_allclose(q_of(state, 0), 1 + 0.9 * (2.0 + 0.5 * entropy[1]), rtol=0.05)
    np.testing.assert_allclose(q_of(state, 2), (1 + 0.9 * 0.5 * entropy[2]) / (1 - 0.9), rtol=0.05)


@pytest.mark.slow
def test_values_of_the_heads(single: list[SacState], decomposed: list[SacState]) -> None:
    """Each head has the value of its part, the last one that of the entropy; their sum is the value of a single head."""
    state = decomposed[0]
    entropy = [entropy_of(state, x) for x in range(4)]
    assert 0.55 < min(entropy) <= max(entropy) < math.log(2)
    first, second = (2 + 0.9 * -1, -1.0, 0.5 / (1 - 0.9), 3.0), (-1 + 0.9 * 3, 3.0, 0.5 / (1 - 0.9), -2.0)
    bonus = (0.9 * 0.5 * entropy[1], 0.0, 0.9 * 0.5 * entropy[2] / (1 - 0.9), 0.0)
    for x in range(4):
        q = q_of(state, x)
        for head, value in enumerate((first[x], second[x], bonus[x])):
            np.testing.assert_allclose(q[head], value, rtol=0.05, atol=0.1, err_msg=f"state {x}, head {head}")
        np.testing.assert_allclose(q.sum(axis=0), q_of(single[1], x)[0], rtol=0.05, atol=0.1, err_msg=f"state {x}")


@pytest.mark.parametrize("heads", ["single", pytest.param("decomposed", marks=pytest.mark.slow)])
def test_policy_is_the_soft_optimum(heads: str, request: pytest.FixtureRequest) -> None:
    """pi ~ exp(-(a - 0.3)^2 / alpha) is a Gaussian of variance alpha / 2, far from the edges.

    Also where no head has its peak there: the actor maximises their sum.
    """
    state = request.getfixturevalue(heads)[-1]
    mean, std = gaussian(state.actor, np.ones((1, 1)))
    action, _ = squashed(mean, std, np.random.default_rng(0).normal(size=(4000, 1)))
    assert np.tanh(mean) == pytest.approx(0.3, abs=0.05)
    assert action.mean() == pytest.approx(0.3, abs=0.05)
    assert action.std() == pytest.approx(math.sqrt(0.02 / 2), rel=0.2)


@pytest.mark.slow
def test_adaptive_alpha_reaches_the_target_entropy() -> None:
    targets = np.array([-0.5, -1.5], np.float32)
    _, infos = solved(1, *(Problem(0.9, 0.1, bandit(0.3), target) for target in targets), adaptive=True)
    assert (infos["entropy"][:, 0] > 0).all()  # at first it is different
    np.testing.assert_allclose(infos["entropy"][:, -300:].mean(axis=1), targets, atol=0.1)
    # The entropy of a Gaussian determines its variance, and the soft optimum the temperature.
    variance = np.exp(2 * targets - 1) / (2 * math.pi)
    np.testing.assert_allclose(infos["alpha"][:, -300:].mean(axis=1), 2 * variance, rtol=0.4)


# --- options --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [4, 40])  # in rows and in columns
def test_critics_with_layer_norm(size: int) -> None:
    """Zero mean and unit variance over the units of every hidden layer, before the activation."""
    critic = random_like(dataclasses.replace(SMALL, critic_norm="layer").init).critic
    x = np.random.default_rng(1).normal(size=(size, 5)).astype(np.float32)

    def normed(h: np.ndarray) -> np.ndarray:
        return relu((h - h.mean(axis=1, keepdims=True)) / h.std(axis=1, keepdims=True))

    expected = [forward(x, [w[k] for w in critic.weights], [b[k] for b in critic.biases], normed) for k in range(2)]
    np.testing.assert_allclose(fast(lambda c: c(x))(critic), np.stack(expected), rtol=1e-3, atol=1e-3)


def test_actor_every_second_update() -> None:
    """Actor and temperature stay as they are in the first of two updates; critics and target always move."""
    _, state, batch = apart(1)
    sac = dataclasses.replace(SMALL, adaptive_alpha=True, actor_every=2)
    states = [dataclasses.replace(state, updates=np.int32(0))]
    infos, step = [], fast(sac.update)
    for _ in range(4):
        new, info = step(states[-1], batch, NOISE)
        states.append(new)
        infos.append(info)

    def moved(of: Any) -> list[bool]:
        leaves = [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(of(s))]) for s in states]
        return [bool((a != b).any()) for a, b in pairwise(leaves)]

    for always in (lambda s: s.critic, lambda s: s.target, lambda s: s.critic_opt):
        assert moved(always) == [True] * 4
    for sometimes in (lambda s: s.actor, lambda s: s.log_alpha, lambda s: s.actor_opt, lambda s: s.alpha_opt):
        assert moved(sometimes) == [False, True, False, True]
    assert [bool(np.isnan(info["entropy"])) for info in infos] == [True, False, True, False]
    assert jax.eval_shape(sac.init, KEY).updates.shape == ()
