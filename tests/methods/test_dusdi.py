"""DUSDi compared with a float64 reference written from the formulas, and where disentangled skills are the optimum."""

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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
    sampling,
    unlearned,
)
from susd.collect import episodes, rollout
from susd.config import configure
from susd.envs import make
from susd.envs.base import EnvSpec
from susd.errors import UserError
from susd.evaluation.control import control_matrix
from susd.factors import Factorization
from susd.learner import Learner
from susd.methods.base import accuracy
from susd.methods.dusdi import Dusdi, Params
from susd.networks import FactoredMLP
from susd.sac import Sac
from susd.skills import SkillSpace

FULL = Dusdi(
    names=("a", "b", "c"),
    features=((3, 0), (4,), (1, 5, 2)),  # unequal sizes, not contiguous
    skills=SkillSpace("one_hot", 3, 4),
    penalty=0.1,
    hidden=5,
    layers=2,
    learning_rate=0.05,
)
FILTERED = dataclasses.replace(FULL, features=((3,), (4,), (5, 2)))  # without 0 and 1
REST = {FULL: ((4, 1, 5, 2), (3, 0, 1, 5, 2), (3, 0, 4)), FILTERED: ((4, 5, 2), (3, 5, 2), (3, 4))}
KEY = jax.random.key(0)
VARIANTS = {
    "penalty": FULL,
    "no penalty": dataclasses.replace(FULL, penalty=0.0),
    "filtered": FILTERED,
}
variants = pytest.mark.parametrize("method", VARIANTS.values(), ids=VARIANTS)


# --- the formulas ---------------------------------------------------------------------------------------------


def logits_of(net: FactoredMLP, inputs: tuple[tuple[int, ...], ...], obs: np.ndarray) -> list[np.ndarray]:
    """The logits of each discriminator for its inputs, without the padding of the stored weights."""
    outputs = []
    for i, indices in enumerate(inputs):
        weights = [plain(w[i]) for w in net.mlp.weights]
        weights[0] = weights[0][: len(indices)]
        outputs.append(forward(plain(obs)[:, list(indices)], weights, [b[i] for b in net.mlp.biases]))
    return outputs


def log_q(net: FactoredMLP, inputs: tuple[tuple[int, ...], ...], obs: np.ndarray, skill: np.ndarray) -> np.ndarray:
    """log q_i(z^i | ..), [B, N]."""
    skills = plain(skill).reshape(-1, 3, 4)
    each = [(log_softmax(out) * skills[:, i]).sum(axis=1) for i, out in enumerate(logits_of(net, inputs, obs))]
    return np.stack(each, axis=1)


def parts_of(method: Dusdi, params: Params, obs: np.ndarray, skill: np.ndarray, beta: float = 0.1) -> np.ndarray:
    """r_i = log q_i(z^i | x_i) + log K - beta (log q_i(z^i | x_{-i}) + log K), [B, N]."""
    parts = log_q(params.own, method.features, obs, skill) + math.log(4)
    if not method.penalty:
        return parts
    return parts - beta * (log_q(params.others, REST[method], obs, skill) + math.log(4))


@pytest.mark.slow
@variants
def test_loss_and_gradient(method: Dusdi) -> None:
    """Cross-entropies at the next state; without a penalty there are no opponents."""
    params, batch = random_like(method.init, scale=0.8), random_transitions(method.skills, 6)
    assert (params.others is None) == (method.penalty == 0)

    def pieces(p: Params) -> list[float]:
        own = -log_q(p.own, method.features, batch.next_obs, batch.skill).sum(axis=1).mean()
        if p.others is None:
            return [own]
        return [own, -log_q(p.others, REST[method], batch.next_obs, batch.skill).sum(axis=1).mean()]

    (loss, (_, _, info)), gradient = fast(jax.value_and_grad(method.loss, has_aux=True))(params, None, batch, KEY)
    expected = pieces(params)
    assert float(loss) == pytest.approx(sum(expected), rel=1e-4)
    assert float(info["discriminator_loss"]) == pytest.approx(expected[0], rel=1e-4)
    assert_same_gradient(gradient, differences(lambda p: float(sum(pieces(p))), params))

    def right(net: FactoredMLP, inputs: tuple[tuple[int, ...], ...]) -> list[float]:
        index = batch.skill.reshape(-1, 3, 4).argmax(axis=2)
        outputs = logits_of(net, inputs, batch.next_obs)
        return [(out.argmax(axis=1) == index[:, i]).mean() for i, out in enumerate(outputs)]

    own = right(params.own, method.features)
    assert len(set(own)) > 1
    assert float(info["accuracy"]) == pytest.approx(np.mean(own))
    assert [float(info[f"factor/{name}/accuracy"]) for name in "abc"] == pytest.approx(own)
    assert ("opponent_loss" in info) == ("opponent_accuracy" in info) == (params.others is not None)
    if params.others is not None:
        assert float(info["opponent_loss"]) == pytest.approx(expected[1], rel=1e-4)
        assert float(info["opponent_accuracy"]) == pytest.approx(np.mean(right(params.others, REST[method])))


@pytest.mark.slow
@variants
def test_reward_of_each_factor(method: Dusdi) -> None:
    """With the updated discriminators at the next state; the reward of each factor goes to its own critic head."""
    params, batch = random_like(method.init, scale=0.8), random_transitions(method.skills, 6)
    learner = Learner(method, Recorder(3), 14, reward_scale=1.0, normalise_reward=False, skill_input_scale=1.0)  # type: ignore[arg-type]

    def update(start: Any) -> Any:
        gradient, _ = jax.grad(method.loss, has_aux=True)(start.params, None, batch, KEY)
        return gradient, *learner.update(start, batch, KEY)

    gradient, new, info = fast(update)(unlearned(learner, params))
    assert_first_adam_step(new.params, params, gradient, 0.05)
    expected = parts_of(method, new.params, batch.next_obs, batch.skill)
    np.testing.assert_allclose(new.sac.reward, expected, rtol=1e-3, atol=1e-3)
    assert float(info["reward"]) == pytest.approx(expected.sum(axis=1).mean(), rel=1e-3, abs=1e-3)
    wrong = [parts_of(method, params, batch.next_obs, batch.skill), parts_of(method, new.params, batch.obs, batch.skill)]
    if method.penalty:
        wrong.append(parts_of(method, new.params, batch.next_obs, batch.skill, beta=-0.1))
    for other in wrong:  # before the step, at the old state, with the opposite sign: they would be detected
        assert np.abs(other - expected).max() > 0.1


def test_encode_is_the_logits() -> None:
    params, obs = random_like(FULL.init, scale=0.8), random_transitions(FULL.skills, 6).obs
    expected = np.concatenate(logits_of(params.own, FULL.features, obs), axis=1)
    np.testing.assert_allclose(fast(FULL.encode)(params, obs), expected, rtol=1e-4, atol=1e-5)


# --- inputs of the discriminators -----------------------------------------------------------------------------------------


def assert_inputs(method: Dusdi, size: int) -> None:
    """q_i depends on all of x_i and nothing else, its opponent on all other x_j and not on x_i."""
    params, obs = random_like(method.init), np.random.default_rng(0).normal(size=(20, size)).astype(np.float32)

    def both(o: jax.Array) -> Any:
        return params.own(o[None])[0], params.others(o[None])[0]

    for number, jacobian in enumerate(fast(jax.vmap(jax.jacrev(both)))(obs)):  # [B, N, K, S] each
        seen = np.abs(np.asarray(jacobian)).max(axis=(0, 2)) > 0
        for i, row in enumerate(seen):
            own = {d for j, indices in enumerate(method.features) for d in indices if (j == i) != bool(number)}
            assert set(np.flatnonzero(row)) == own


@pytest.mark.parametrize("method", [FULL, FILTERED], ids=["full", "filtered"])
def test_inputs(method: Dusdi) -> None:
    assert_inputs(method, 6)


@pytest.mark.parametrize(
    ("env", "full", "filtered"),
    [
        (
            "gunner",  # filtered: the four flags of zone, ammo and target
            tuple(tuple(range(a, b)) for a, b in [(0, 6), (6, 13), (13, 18)]),
            tuple(tuple(range(a, a + 4)) for a in (0, 6, 13)),
        ),
        (
            "multi_particle",  # filtered: the distance of agent i to station i
            tuple(tuple(range(a, a + 7)) for a in range(0, 70, 7)),
            tuple((a,) for a in range(0, 70, 7)),
        ),
    ],
)
def test_features_of_the_environments(env: str, full: Any, filtered: Any) -> None:
    for features, expected in [("full", full), ("filtered", filtered)]:
        config = configure(env, method="dusdi", features=features, disentangle=0.1, phi_hidden=4)
        spec = make(env).spec
        method = Dusdi.from_config(config, spec)
        assert method.features == expected
        assert method.penalty == 0.1
        assert method.skills == SkillSpace("one_hot", len(expected), config.skill_dim, spec.factorization.names)
        assert method.names == spec.factorization.names
    assert_inputs(dataclasses.replace(method, hidden=16), spec.obs_size)


def test_factors_without_features_are_refused() -> None:
    for env, factors, name in [("gunner", "4", "agent"), ("multi_particle", "20", "station_0")]:
        config = configure(env, method="dusdi", features="filtered", factors=factors)
        with pytest.raises(UserError, match=f"keeps nothing of factor '{name}'"):
            Dusdi.from_config(config, make(env, factors=int(factors)).spec)
    config = configure("gunner", method="dusdi", factors="1", disentangle=0.1)
    with pytest.raises(UserError, match="only one factor"):
        Dusdi.from_config(config, make("gunner", factors=1).spec)


# --- environments with a known optimum --------------------------------------------------------------------------------

TWO = Dusdi(
    names=("first", "second"),
    features=((0,), (1,)),
    skills=SkillSpace("one_hot", 2, 2),
    penalty=0.5,
    hidden=32,
    layers=2,
    learning_rate=3e-3,
)
SAC = Sac(
    inputs=2 + 4,
    actions=2,
    hidden=32,
    layers=2,
    activation="relu",
    precision="float32",
    learning_rate=3e-3,
    discount=0.8,
    tau=0.05,
    alpha_init=0.1,
    adaptive_alpha=False,
    target_entropy=0.0,
    parts=2,
)


@dataclass(frozen=True)
class Coupled:
    """Two dimensions, set by two actions; the first action also moves the second dimension, which can compensate it."""

    pull: Any

    @cached_property
    def spec(self) -> EnvSpec:
        return EnvSpec("coupled", 2, 2, 1, Factorization.from_boundaries((0, 1, 2), TWO.names), (), {})

    def reset(self, key: jax.Array) -> jax.Array:
        return jnp.zeros(2)

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> jax.Array:
        moved = action + self.pull * jnp.stack([jnp.zeros(()), action[0]])
        return moved + 0.1 * jax.random.normal(key, (2,))

    def observe(self, state: jax.Array) -> jax.Array:
        return state


class Skilled(NamedTuple):
    """The result of a training."""

    own: np.ndarray  # [2] accuracy of q_i(z^i | x_i)
    other: np.ndarray  # [2] accuracy of q_i(z^i | x_{-i})
    control: np.ndarray  # [2, 2] effect of resampling z^i on factor j


CASES = {"apart": (0.0, 0.5), "penalised": (0.8, 0.5), "unpenalised": (0.8, 0.0), "rewarded": (0.0, -0.5)}  # pull, beta


@pytest.fixture(scope="module")
def skilled() -> dict[str, Skilled]:
    """Four trainings in one compiled call."""
    start = Learner(TWO, SAC, 64, reward_scale=1.0, normalise_reward=False, skill_input_scale=1.0)

    def train(pull: jax.Array, penalty: jax.Array) -> Skilled:
        learner = dataclasses.replace(start, method=dataclasses.replace(TWO, penalty=penalty))
        env = Coupled(pull)
        k_start, k_steps, k_test = jax.random.split(KEY, 3)
        state, _ = practised(learner, start.init(k_start), env, 600, k_steps)  # type: ignore[arg-type]
        skills = TWO.skills.sample(k_test, 1000)
        seen = episodes(env, sampling(learner, state), skills, 1, k_test, terminal=True).next_obs  # type: ignore[arg-type]
        own, other = (accuracy(net(seen), TWO.skills.split(skills)) for net in (state.params.own, state.params.others))

        def mean_action(obs: jax.Array, skill: jax.Array, key: jax.Array) -> jax.Array:
            return state.sac.actor.mode(learner.policy_input(obs, skill))

        def observations(skill: jax.Array, key: jax.Array) -> jax.Array:
            return rollout(env, mean_action, skill, 1, key)[1].next_obs  # type: ignore[arg-type]

        control = control_matrix(env.spec.factorization, TWO.skills, observations, k_test, over_parts=jax.lax.map)
        return Skilled(own, other, control.matrix)

    results = fast(jax.vmap(train))(*np.array(list(CASES.values()), np.float32).T)
    return {name: Skilled(*(plain(x)[n] for x in results)) for n, name in enumerate(CASES)}


@pytest.mark.slow
def test_independent_factors(skilled: dict[str, Skilled]) -> None:
    """Each skill is recognised in its own factor and can only be guessed from the other."""
    own = np.eye(2, dtype=bool)
    result = skilled["apart"]
    assert (result.own > 0.95).all()
    np.testing.assert_allclose(result.other, 0.5, atol=0.1)
    assert (result.control[own] > 0.7).all()
    assert (result.control[~own] < 0.15).all()
    # With the opposite sign, recognition in the other factor is rewarded, and the same measures detect it.
    assert skilled["rewarded"].other.mean() > 0.68
    assert skilled["rewarded"].control[~own].max() > 0.15


@pytest.mark.slow
def test_penalty_compensates_a_coupling(skilled: dict[str, Skilled]) -> None:
    """An action that moves both factors shows the first skill in the second factor, unless that is penalised."""
    with_penalty, without = skilled["penalised"], skilled["unpenalised"]
    for result in (with_penalty, without):
        assert (result.own > 0.95).all()
    assert without.other[0] > 0.72
    assert with_penalty.other[0] < 0.68
    assert with_penalty.control[0, 1] < 0.6 * without.control[0, 1]
