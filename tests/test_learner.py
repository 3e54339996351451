"""How the learner joins a method and SAC: which reward each head of the critics gets, and on what scale."""

import dataclasses
import math
import re
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

from reference import Recorder, fast, plain, random_like, random_transitions, unlearned
from susd import replay
from susd.config import configure
from susd.envs import make
from susd.errors import UserError
from susd.learner import Learner
from susd.methods.base import RunningMean
from susd.methods.susd import Susd
from susd.networks import MLP
from susd.replay import Replay
from susd.sac import SacBatch, SacState

KEY = jax.random.key(0)
TINY = {"hidden": 8, "phi_hidden": 8, "discount": 0.9}


def built(method: str, env: str = "gunner", **changes: Any) -> Learner:
    config = configure(env, method=method, **TINY, **changes)
    factors = {"factors": int(config.factors)} if config.factors else {}
    return Learner.from_config(config, make(env, **factors).spec)


@pytest.mark.parametrize(
    ("method", "changes", "heads"),
    [
        ("susd", {}, 1),
        ("susd", {"critic": "decomposed"}, 4),
        ("susd-q", {}, 4),
        ("susd-q", {"factors": "4"}, 5),
        ("susd-q", {"factors": "1"}, 1),  # a single factor: nothing to decompose
        ("susd-q", {"env": "multi_particle"}, 11),
        ("dusdi", {"critic": "decomposed"}, 4),
        ("dusdi", {"preset": "paper"}, 4),
        ("metra", {}, 1),
    ],
)
def test_heads_of_the_critics(method: str, changes: dict[str, Any], heads: int) -> None:
    learner = built(method, **changes)
    assert learner.sac.heads == heads
    state = jax.eval_shape(learner.init, KEY)
    for critic in (state.sac.critic, state.sac.target):
        assert critic.weights[-1].shape == (2, 8, heads)
        assert critic.biases[-1].shape == (2, heads)


@pytest.fixture(scope="module")
def joined() -> tuple[Learner, Any, Any]:
    """SUSD with one critic head per factor, random parameters, and a batch."""
    learner = built("susd-q", learning_rate=0.05, density_hidden=8)
    return learner, random_like(learner.method.init, scale=0.3), random_transitions(learner.method.skills, 18)


@pytest.mark.slow
@pytest.mark.parametrize("normalise", [False, True])
def test_scale_of_the_reward_parts(joined: tuple[Learner, Any, Any], normalise: bool) -> None:
    """w_i r_i with the old weights and the updated phi, divided by the running root mean square of the sum."""
    learner, params, batch = joined
    method = learner.method
    assert isinstance(method, Susd)
    earlier = RunningMean(np.float32(0.5 * 7.0), np.float32(0.5))  # a mean square of 7 with half of the weight

    def both(start: Any) -> Any:
        _, (_, before, _) = method.loss(params, start.stats, batch, KEY)
        results = []
        for parts in (3, 1):
            with_recorder = dataclasses.replace(learner, sac=Recorder(parts), normalise_reward=normalise, reward_scale=2.0)
            results.append(with_recorder.update(start, batch, KEY))
        return results, method.reward(results[0][0].params, before, batch)

    start = unlearned(dataclasses.replace(learner, sac=Recorder()), params)  # type: ignore[arg-type]
    start = eqx.tree_at(lambda s: s.reward_square, start, earlier)
    ((several, info), (one, one_info)), (total, parts) = fast(both)(start)

    parts, total = plain(parts), plain(total)
    np.testing.assert_allclose(parts.sum(axis=1), total, rtol=1e-4, atol=1e-5)
    square = (0.99 * 0.5 * 7.0 + 0.01 * (total**2).mean()) / (0.99 * 0.5 + 0.01)
    scale = 2.0 / math.sqrt(square) if normalise else 2.0
    assert several.sac.reward.shape == (14, 3)
    np.testing.assert_allclose(several.sac.reward, scale * parts, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(one.sac.reward, scale * total[:, None], rtol=1e-3, atol=1e-4)
    for found in (info, one_info):
        assert float(found["reward"]) == pytest.approx(total.mean(), rel=1e-3, abs=1e-5)
        assert float(found["reward_rms"]) == pytest.approx(math.sqrt(square), rel=1e-4)
    for field in ("x", "action", "next_x", "done"):
        np.testing.assert_array_equal(getattr(several.sac, field), getattr(one.sac, field))
    np.testing.assert_array_equal(several.sac.done, batch.done)


@pytest.mark.slow
@pytest.mark.parametrize(("scope", "parts"), [("factor", 3), ("factor", 1), ("rare", 3), ("rare", 1)])
def test_reward_of_each_factor_at_its_own_scale(joined: tuple[Learner, Any, Any], scope: str, parts: int) -> None:
    """Each w_i r_i is divided by its own root mean square or mean size, which is at least 3 % of the largest."""
    learner, params, batch = joined
    method = learner.method
    changed = dataclasses.replace(learner, sac=Recorder(parts), normalise_reward=True, reward_scope=scope, reward_scale=2.0)  # type: ignore[arg-type]
    shrunk = eqx.tree_at(
        lambda p: p.phi.mlp.weights[-1], params, params.phi.mlp.weights[-1] * np.array([1, 0.3, 1e-4])[:, None, None]
    )

    def run(start: Any) -> Any:
        _, (_, before, _) = method.loss(shrunk, start.stats, batch, KEY)
        new, info = changed.update(start, batch, KEY)
        return new, info, method.reward(new.params, before, batch)

    new, info, (_, rewards) = fast(run)(unlearned(changed, shrunk))
    rewards = plain(rewards)
    size = np.sqrt((rewards**2).mean(axis=0)) if scope == "factor" else np.abs(rewards).mean(axis=0)
    assert new.reward_square.total.shape == (3,)
    expected = 2.0 * rewards / np.maximum(size, 0.03 * size.max())
    expected = expected if parts == 3 else expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(new.sac.reward, expected, rtol=2e-3, atol=1e-3)
    assert float(info["reward_rms"]) == pytest.approx(np.sqrt((size**2).mean()), rel=1e-3)


def test_scope_of_the_reward_is_an_option_of_factored_methods() -> None:
    assert built("susd", reward_scope="factor").reward_scope == "factor"
    assert built("dusdi", reward_scope="factor").reward_scope == "factor"
    assert built("susd").reward_scope == "total"
    with pytest.raises(UserError, match="--reward-scope is 'factor', but it has no effect in metra; methods with it: susd"):
        built("metra", reward_scope="factor")
    with pytest.raises(UserError, match="it does not apply with --no-normalise-reward"):
        built("susd", reward_scope="factor", normalise_reward=False)


def summed(critic: MLP) -> MLP:
    """A single head whose value is the sum of all heads."""
    weights, biases = (
        (*layers[:-1], np.asarray(layers[-1]).sum(axis=-1, keepdims=True)) for layers in (critic.weights, critic.biases)
    )
    return MLP(weights, biases, critic.activation, critic.precision)


def test_targets_of_the_heads_add_up(joined: tuple[Learner, Any, Any]) -> None:
    """To the target of a single head, for every transition, if both critics agree: then minimum and sum commute."""
    learner, _, batch = joined
    sac = learner.sac
    single = dataclasses.replace(sac, parts=1)
    state = random_like(sac.init)
    alike = jax.tree.map(lambda leaf: np.stack([leaf[0]] * 2), state.target)
    state = eqx.tree_at(lambda s: s.target, state, alike)
    whole = eqx.tree_at(lambda s: (s.target, s.critic), state, (summed(alike), summed(state.critic)))
    x, next_x = (np.concatenate([obs, batch.skill], axis=1) for obs in (batch.obs, batch.next_obs))
    action = np.random.default_rng(0).uniform(-1, 1, (14, 6)).astype(np.float32)
    parts = np.random.default_rng(1).normal(size=(14, 3)).astype(np.float32)
    assert 0 < batch.done.mean() < 1

    noise = np.random.default_rng(2).normal(size=(1, 6)).astype(np.float32)

    def targets(of: Any, its: SacState, reward: np.ndarray) -> jax.Array:
        rows = SacBatch(x, action, reward, next_x, batch.done)

        def target(row: SacBatch) -> jax.Array:  # in a batch of one the target is logged
            return of.critic_loss(its.critic, its, jax.tree.map(lambda v: v[None], row), noise)[1]["target_q"]

        return jax.vmap(target)(rows)

    ours, expected = fast(lambda: (targets(sac, state, parts), targets(single, whole, parts.sum(axis=1, keepdims=True))))()
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)
    ended = batch.done == 1
    np.testing.assert_allclose(plain(ours)[ended], parts.sum(axis=1)[ended], rtol=1e-4, atol=1e-4)
    assert np.abs(plain(ours) - parts.sum(axis=1))[~ended].min() > 1e-3  # the others bootstrap


# --- precision ----------------------------------------------------------------------------------------------------------

WIDTHS = {"hidden": 11, "phi_hidden": 17}  # so that the products of a network are known by their shapes


def products(function: Any, *arguments: Any, width: int) -> list[str]:
    """The matrix products of the lowered program with that width in their shapes."""
    lines = jax.jit(function).lower(*arguments).as_text().splitlines()
    return [line for line in lines if "dot_general" in line and re.search(rf"(<|x){width}(x|>)", line)]


@pytest.mark.parametrize("method", ["susd", "susd-wf", "metra", "lsd", "csd"])
@pytest.mark.parametrize("precision", ["float32", "default", "bfloat16"])
def test_phi_has_the_highest_precision(method: str, precision: str) -> None:
    """In loss, gradient, reward and encode; otherwise recent GPUs and TPUs multiply in TF32 or bfloat16."""
    density = {"density_hidden": 13} if method in ("susd", "csd") else {}
    config = configure("gunner", method=method, precision=precision, batch_size=7, **WIDTHS, **density)
    spec = make("gunner").spec
    learner = Learner.from_config(config, spec)
    sizes = (spec.obs_size, spec.action_size, learner.method.skills.size)
    state, batch = jax.eval_shape(learner.init, KEY), jax.eval_shape(lambda: replay.init(7, *sizes)).data
    update, encode = (learner.update, state, batch, KEY), (learner.method.encode, state.params, batch.obs)
    for found, least in ((products(*update, width=17), 11), (products(*encode, width=17), 3)):
        assert len(found) >= least
        assert all("precision = [HIGHEST, HIGHEST]" in line and "bf16" not in line for line in found), found
    others = [line for width in (11, *density.values()) for line in products(*update, width=width)]
    kind = "[HIGHEST, HIGHEST]" if precision == "float32" else "[DEFAULT, DEFAULT]"
    assert others
    assert all(kind in line for line in others), others
    assert any("bf16" in line for line in others) == (precision == "bfloat16")


def test_reward_of_phi_before_and_after_its_step(joined: tuple[Learner, Any, Any]) -> None:
    learner, params, batch = joined
    start = unlearned(dataclasses.replace(learner, sac=Recorder()), params)  # type: ignore[arg-type]

    def run(start: Any) -> Any:
        _, (_, before, _) = learner.method.loss(params, start.stats, batch, KEY)
        found = []
        for phi in ("before", "after"):
            changed = dataclasses.replace(learner, sac=Recorder(), normalise_reward=False, reward_phi=phi)  # type: ignore[arg-type]
            new, _ = changed.update(start, batch, KEY)
            found.append(
                (new.sac.reward[:, 0], learner.method.reward(params if phi == "before" else new.params, before, batch))
            )
        return found

    (ours, expected), (later, later_expected) = fast(run)(start)
    np.testing.assert_allclose(ours, expected.total, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(later, later_expected.total, rtol=1e-4, atol=1e-4)
    assert np.abs(plain(ours) - plain(later)).max() > 0.01


def test_relabelled_skills() -> None:
    """Where the average phi moved: the first half in the whole episode, the second in the next ten steps."""
    learner = built("susd", relabel=True, prior="factor_sphere", episodes=3, horizon=14, batch_size=42)
    method, skills = learner.method, learner.method.skills
    params = random_like(method.init, scale=0.4)
    data = random_transitions(skills, 18, size=2 * 42)
    data.obs[:, :6] = data.next_obs[:, :6] = 0.0  # the first factor never moves
    buffer = Replay(data, np.int32(0), np.int32(84))
    rows = np.random.default_rng(3).permutation(84)[:42]
    ours = skills.split(plain(fast(learner.relabelled)(params, buffer, rows, data.skill[rows])))

    starts, ends = [], []
    for i, row in enumerate(rows):
        chunk, step, episode = row // 42, row % 42 // 3, row % 3
        first, last = (0, 13) if i < 21 else (step, min(step + 10, 14) - 1)
        starts.append(chunk * 42 + first * 3 + episode)
        ends.append(chunk * 42 + last * 3 + episode)
    encode = fast(method.encode)
    moved = skills.split(plain(encode(params, data.next_obs[ends])) - plain(encode(params, data.obs[starts])))
    enough = (moved**2).mean(axis=-1) >= 0.25
    kept = skills.split(plain(data.skill[rows]))
    unit = moved / np.maximum(np.linalg.norm(moved, axis=-1, keepdims=True), 1e-9)
    assert 0 < enough[:, 1:].mean() < 1
    assert not enough[:, 0].any()
    np.testing.assert_allclose(ours, np.where(enough[..., None], unit, kept), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("method", "changes", "match"),
    [
        ("diayn", {}, "--relabel is True, but it has no effect in diayn; methods with it: susd"),
        ("dusdi", {}, "--relabel is True, but it has no effect in dusdi; methods with it: susd"),
        ("susd-discrete", {}, "relabelled skills have unit length, unlike those of --prior one_hot"),
        ("metra", {"prior": "gaussian"}, "relabelled skills have unit length, unlike those of --prior gaussian"),
    ],
)
def test_relabelling_needs_an_embedding(method: str, changes: dict[str, Any], match: str) -> None:
    with pytest.raises(UserError, match=match):
        built(method, relabel=True, **changes)
