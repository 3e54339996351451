"""The factored policy: a value for each part of an action, each with its own reward and its own gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from reference import fast
from susd.downstream.factored import FactoredSac
from susd.downstream.parts import part_factors
from susd.errors import UserError
from susd.networks import Actor, tanh_normal_log_prob
from susd.sac import SacBatch, SacState, values
from susd.tasks.registry import make_task

KEY = jax.random.key(0)
SAC = FactoredSac(5, 6, 16, 2, "relu", "float32", 1e-3, 0.9, 0.1, 0.3, True, -0.5, factors=3, part_factors=(0, 2))


@pytest.fixture(scope="module")
def state() -> SacState:
    return fast(SAC.init)(KEY)


@pytest.fixture(scope="module")
def batch() -> SacBatch:
    keys = jax.random.split(KEY, 5)
    x, next_x = jax.random.normal(keys[0], (2, 8, 5))
    done = (jnp.arange(8) == 7).astype(jnp.float32)
    return SacBatch(x, jnp.tanh(jax.random.normal(keys[1], (8, 6))), jax.random.normal(keys[2], (8, 3)), next_x, done)


def test_rewards_of_factors() -> None:
    """The sum is 10, the parts 2 and 3, and 5 belong to nobody alone."""
    rewards = SAC.factor_rewards(jnp.array([[10.0, 2.0, 3.0]]))
    np.testing.assert_allclose(rewards, [[2.0 + 5.0, 10.0, 3.0 + 5.0]])
    without = FactoredSac(5, 6, 16, 2, "relu", "float32", 1e-3, 0.9, 0.1, 0.3, True, -0.5, factors=3)
    np.testing.assert_allclose(without.factor_rewards(jnp.array([[10.0]])), [[10.0, 10.0, 10.0]])


def test_critic_loss_follows_the_formula(state: SacState, batch: SacBatch) -> None:
    noise = jax.random.normal(KEY, (8, 6))
    loss, info = fast(SAC.critic_loss)(state.critic, state, batch, noise)
    mean, log_std = state.actor(batch.next_x)
    before = mean + jnp.exp(log_std) * noise
    q, next_q = values(state.critic, batch.x, batch.action), values(state.target, batch.next_x, jnp.tanh(before))
    assert q.shape == (3, 2, 8)
    expected, r = 0.0, SAC.factor_rewards(batch.reward)
    for i in range(3):
        two = slice(2 * i, 2 * i + 2)
        log_prob = tanh_normal_log_prob(before, noise, log_std)[:, two].sum(axis=1)
        y = r[:, i] + 0.9 * (1 - batch.done) * (jnp.minimum(*next_q[i]) - 0.3 * log_prob)
        expected += 0.5 * float(((q[i] - y) ** 2).mean(axis=1).sum())
    assert float(loss) == pytest.approx(expected, rel=1e-4)
    assert float(info["critic_loss"]) == float(loss)


def test_parts_of_an_action_have_their_own_gradient(state: SacState, batch: SacBatch) -> None:
    """As if there were N losses, each with the other parts of the action held fixed."""

    noise = jax.random.normal(KEY, (8, 6))

    def one(actor: Actor, i: int) -> jax.Array:
        action, each = actor.reparametrised(batch.x, noise)
        log_prob = SAC.by_part(each)
        fixed = jax.lax.stop_gradient(action)
        mine = fixed.at[:, 2 * i : 2 * i + 2].set(action[:, 2 * i : 2 * i + 2])
        return jnp.mean(0.3 * log_prob[:, i] - values(state.critic, batch.x, mine)[i].min(axis=0))

    found = fast(jax.grad(lambda actor: SAC.actor_loss(actor, state.critic, state.log_alpha, batch.x, noise)[0]))(
        state.actor
    )
    expected = fast(jax.grad(lambda actor: sum(one(actor, i) for i in range(3))))(state.actor)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    each = np.arange(48.0).reshape(8, 6)
    np.testing.assert_allclose(
        SAC.by_part(jnp.array(each)), np.stack([each[:, i : i + 2].sum(axis=1) for i in (0, 2, 4)], 1)
    )


def test_parts_of_shipped_tasks() -> None:
    assert part_factors("factored", make_task("gunner-lim"), ("agent", "ammo", "target")) == (0, 2)
    with pytest.raises(UserError, match=r"--policy is 'factored', but the skills of this run have one part \(all\)"):
        part_factors("factored", make_task("gunner-lim"), ("all",))
