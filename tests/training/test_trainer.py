"""The compiled program: equal seeds give equal bits, alone or next to other seeds."""

import dataclasses
import logging
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from susd.collect import episodes
from susd.config import Config, configure
from susd.envs import make
from susd.errors import UserError
from susd.runs.checkpoint import digest
from susd.training.trainer import Trainer, TrainState, subkey
from susd.types import Transition

HORIZON, NUM_ENVS, CHUNK = 5, 4, 20


def tiny(**changes: Any) -> Config:
    options: dict[str, Any] = {
        "horizon": HORIZON,
        "episodes": NUM_ENVS,
        "gradient_steps": 2,
        "batch_size": 16,
        "buffer_size": 79,
        "warmup": 40,
        "hidden": 8,
        "phi_hidden": 8,
        "density_hidden": 8,
        "layers": 1,
        "prior": "factor_sphere",
        "time_limit": "terminal",
        "seed": 3,
    }
    return configure("gunner", **{**options, **changes})


def host(tree: Any) -> Any:
    """A copy outside JAX: the state itself is donated to the next epoch."""
    return jax.tree.map(lambda x: np.array(x), tree)


def run(trainer: Trainer, epochs: int) -> list[TrainState]:
    """The states before the first epoch and after each."""
    state = trainer.start()
    found = [host(state)]
    for epoch in range(epochs):
        state, _ = trainer.run_epoch(state, epoch)
        found.append(host(state))
    return found


def assert_same(a: Any, b: Any) -> None:
    assert digest(a) == digest(b)


@pytest.fixture(scope="module")
def alone() -> Trainer:
    return Trainer.build(tiny())


@pytest.fixture(scope="module")
def states(alone: Trainer) -> list[TrainState]:
    return run(alone, 5)


@pytest.fixture(scope="module")
def pair() -> list[TrainState]:
    return run(Trainer.build(tiny(seed=2, seeds=2)), 3)


@pytest.mark.slow
def test_same_seed_same_bits(states: list[TrainState]) -> None:
    again = run(Trainer.build(tiny()), 3)
    assert [digest(state) for state in again] == [digest(state) for state in states[:4]]


@pytest.mark.slow
def test_other_seed_other_bits(pair: list[TrainState]) -> None:
    """Nothing that is sampled or learned is shared between seeds 2 and 3."""
    first, second = (jax.tree.map(lambda x, i=i: x[i], pair[-1]) for i in range(2))
    assert (first.key != second.key).any()
    assert (first.replay.data.skill != second.replay.data.skill)[: 3 * CHUNK].any(axis=1).all()
    for network in ("actor", "critic"):
        for a, b in zip(*(jax.tree.leaves(getattr(s.learner.sac, network)) for s in (first, second)), strict=True):
            assert (a != b).any()


@pytest.mark.slow
def test_two_seeds_equal_single_seeds(states: list[TrainState], pair: list[TrainState]) -> None:
    """Seed 3 as the second of two and alone: batched products differ in the last bits only."""
    for epoch in range(4):
        second = jax.tree.map(lambda x: x[1], pair[epoch])
        single = jax.tree.map(lambda x: x[0], states[epoch])
        np.testing.assert_array_equal(second.key, single.key)
        for a, b in zip(second.replay.data, single.replay.data, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5 if epoch < 2 else 1e-3)
        a, b = (np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(s.learner)]) for s in (second, single))
        near = np.isclose(a, b, rtol=1e-4, atol=1e-6)  # Adam makes full steps even for gradients that are rounding errors
        assert near.all() if epoch < 2 else near.mean() > 0.98
        np.testing.assert_allclose(a, b, atol=5e-3)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(pair[-1]) if leaf.dtype.kind == "f")


@pytest.mark.slow
def test_nothing_is_learned_before_warm_up(alone: Trainer, states: list[TrainState]) -> None:
    """40 transitions are there with the second epoch, which is the first that learns."""
    assert alone.warmup_epochs == 1
    assert_same(states[1].learner, states[0].learner)
    assert digest(states[2].learner) != digest(states[1].learner)
    for a, b in zip(*(jax.tree.leaves(s.learner.sac) for s in states[1:3]), strict=True):
        assert (a != b).any()
    last = len(states[0].learner.params.phi.mlp.weights) - 1
    before, after = (jax.tree_util.tree_leaves_with_path(s.learner.params) for s in states[1:3])
    for (path, a), (_, b) in zip(before, after, strict=True):
        offset = jax.tree_util.keystr(path) == f".phi.mlp.biases[{last}]"  # it cancels in phi(s') - phi(s)
        assert offset or (a != b).any()


@pytest.mark.slow
def test_gradient_steps_per_epoch(states: list[TrainState]) -> None:
    counts = [[int(leaf[0]) for leaf in jax.tree.leaves(state.learner.sac) if leaf.dtype == np.int32] for state in states]
    assert [set(count) for count in counts] == [{0}, {0}, {2}, {4}, {6}, {8}]


@pytest.mark.parametrize(("warmup", "epochs"), [(1, 0), (20, 0), (21, 1), (40, 1), (41, 2), (60, 2)])
def test_warm_up_in_epochs(warmup: int, epochs: int) -> None:
    assert Trainer.build(tiny(warmup=warmup)).warmup_epochs == epochs


@pytest.mark.slow
def test_replay_is_a_multiple_of_an_epoch(alone: Trainer, states: list[TrainState]) -> None:
    assert alone.capacity == 60
    assert states[0].replay.data.done.shape == (1, 60)
    assert [int(state.replay.size[0]) for state in states] == [0, 20, 40, 60, 60, 60]
    assert [int(state.replay.position[0]) for state in states] == [0, 20, 40, 0, 20, 40]
    assert alone.replay_bytes() == sum(leaf.nbytes for leaf in states[0].replay.data)
    for old, new in zip(states[3].replay.data, states[4].replay.data, strict=True):
        np.testing.assert_array_equal(old[:, CHUNK:], new[:, CHUNK:])  # the fourth epoch replaces the first
        assert old.ndim == 2 or (old[:, :CHUNK] != new[:, :CHUNK]).any()


def test_errors_come_before_compiling() -> None:
    with pytest.raises(UserError, match="--buffer-size is 19; it must be at least 20, the transitions of one epoch"):
        Trainer.build(tiny(buffer_size=19))
    with pytest.raises(UserError, match="--warmup is 61; it must be at most 60, the size of the replay buffer"):
        Trainer.build(tiny(warmup=61))
    with pytest.raises(UserError, match="unknown environment 'gunman'"):
        Trainer.build(dataclasses.replace(tiny(), env="gunman"))


def test_state_is_donated(alone: Trainer) -> None:
    state = alone.start()
    new, _ = alone.run_epoch(state, 0)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(new))


def test_nothing_is_compiled_after_one_epoch(alone: Trainer, caplog: pytest.LogCaptureFixture) -> None:
    def compilations() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.getMessage().startswith("Compiling")]

    state, _ = alone.run_epoch(alone.start(), 0)
    with jax.log_compiles(), caplog.at_level(logging.DEBUG, logger="jax"):
        jax.jit(lambda x: x + 1)(jnp.zeros(3))
        assert compilations()  # so it would be seen
        caplog.clear()
        for epoch in range(1, 4):
            state, _ = alone.run_epoch(state, epoch)
        assert compilations() == []


# --- what is collected ------------------------------------------------------------------------------------------------


def episodes_of(state: TrainState, epoch: int) -> Transition:
    """The chunk of one epoch as [T, W, ..]."""
    rows = slice(epoch * CHUNK, (epoch + 1) * CHUNK)
    return Transition(*(x[0, rows].reshape(HORIZON, NUM_ENVS, *x.shape[2:]) for x in state.replay.data))


@pytest.mark.slow
def test_episodes_in_the_replay(alone: Trainer, states: list[TrainState]) -> None:
    first, second = episodes_of(states[3], 0), episodes_of(states[3], 1)
    for chunk in (first, second):
        np.testing.assert_array_equal(chunk.next_obs[:-1], chunk.obs[1:])
        np.testing.assert_array_equal(chunk.skill, np.broadcast_to(chunk.skill[:1], chunk.skill.shape))
        np.testing.assert_array_equal(chunk.done, np.arange(HORIZON)[:, None] == [[HORIZON - 1] * NUM_ENVS])
        lengths = np.linalg.norm(chunk.skill.reshape(HORIZON, NUM_ENVS, 3, 2), axis=-1)
        np.testing.assert_allclose(lengths, 1.0, rtol=1e-5)
        assert (np.abs(chunk.action) < 1).all()
        assert len(np.unique(chunk.action)) == chunk.action.size  # noise in every environment, step and dimension
    assert len(np.unique(np.concatenate([first.skill[0], second.skill[0]]), axis=0)) == 2 * NUM_ENVS  # all different

    env = alone.env
    state = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), NUM_ENVS))  # Gunner's start and motion use no key
    observe, step = jax.jit(jax.vmap(env.observe)), jax.jit(jax.vmap(env.step))
    np.testing.assert_allclose(observe(state), first.obs[0], atol=1e-6)
    for t in range(HORIZON):
        state = step(state, first.action[t], jax.random.split(jax.random.key(t), NUM_ENVS))
        np.testing.assert_allclose(observe(state), first.next_obs[t], atol=1e-5)


@pytest.mark.slow
def test_actions_come_from_the_actor(alone: Trainer, states: list[TrainState]) -> None:
    """Undo the squashing: the noise of the actor of the epoch is standard normal."""
    trainer = Trainer.build(tiny(episodes=200, buffer_size=1000, warmup=1000))
    state = jax.tree.map(lambda x: x[0], states[0])
    actor = state.learner.sac.actor
    chunk = jax.jit(trainer.collect)(state, jnp.int32(0))
    scale = trainer.learner.skill_input_scale
    x = np.concatenate([chunk.obs, scale * np.asarray(chunk.skill)], axis=1)
    mean, log_std = jax.jit(lambda a, v: a(v))(actor, x)
    noise = (np.arctanh(np.asarray(chunk.action, np.float64)) - mean) / np.exp(log_std)
    np.testing.assert_allclose(noise.mean(axis=0), 0.0, atol=0.15)
    np.testing.assert_allclose(noise.std(axis=0), 1.0, atol=0.1)
    mode = jax.jit(lambda a, o, z: trainer.policy(a, sampled=False)(o, z, jax.random.key(0)))(actor, chunk.obs, chunk.skill)
    np.testing.assert_allclose(mode, np.tanh(mean), atol=1e-5)


@pytest.mark.parametrize("terminal", [True, False])
def test_time_limit_marks_the_last_step(terminal: bool) -> None:
    skills = np.ones((NUM_ENVS, 6), np.float32)

    @jax.jit
    def collect(key: jax.Array) -> Transition:
        return episodes(make("gunner"), lambda obs, skill, key: jnp.zeros((NUM_ENVS, 6)), skills, HORIZON, key, terminal)

    done = np.asarray(collect(jax.random.key(0)).done).reshape(HORIZON, NUM_ENVS)
    assert (done[:-1] == 0).all()
    assert (done[-1] == terminal).all()


def test_named_keys_differ() -> None:
    key = jax.random.key(0)
    drawn = [jax.random.key_data(subkey(key, name)).tobytes() for name in ("init", "collect", "learn", "skills")]
    drawn.append(jax.random.key_data(key).tobytes())
    assert len(set(drawn)) == len(drawn)


OPTIONS = {"critic_norm": "layer", "actor_every": 2, "reward_phi": "before", "relabel": True}


def test_learner_options_resume(states: list[TrainState]) -> None:
    """All together: equal bits from the start, and from a state in which the actor has skipped an update."""
    trainer = Trainer.build(tiny(**OPTIONS, gradient_steps=3))
    found = run(trainer, 4)
    state = jax.tree.map(jnp.asarray, found[2])
    assert state.learner.sac.updates.tolist() == [1]  # epochs 0 and 1 warm up and take three steps
    for epoch in (2, 3):
        state, info = trainer.run_epoch(state, epoch)
    assert_same(host(state), found[4])
    assert_same(run(trainer, 2)[2], found[2])
    assert all(np.isfinite(value).all() for value in info.values())
    assert digest(found[2].learner.average) != digest(found[4].learner.average)
    assert states[0].learner.average is None
    assert states[0].learner.sac.updates is None


def test_relabelling_needs_episodes_of_one_length() -> None:
    with pytest.raises(UserError, match="--relabel needs episodes of one length, but those of"):
        Trainer.build(configure("gymnasium:Pendulum-v1", factors="all=0:3", relabel=True))
    kitchen = Trainer.build(configure("kitchen", relabel=True, episodes=2, warmup=1, hidden=8))
    assert kitchen.learner.relabel
