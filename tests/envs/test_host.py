"""A host environment with the shared learner: the replay holds what the environments did, also around resets."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from susd.collect import host_episodes
from susd.config import Config, configure
from susd.envs.base import EnvSpec, HostStep
from susd.errors import UserError
from susd.factors import Factorization
from susd.runs import checkpoint
from susd.training.train import train
from susd.training.trainer import Trainer
from susd.types import Transition

NUM_ENVS, HORIZON = 4, 6


class Drift:
    """Points in a plane, moved by their actions. Point 1 terminates after 2 steps, point 2 is truncated after 3.

    Observation: x, y, steps since the last reset, resets since the seeded one. Each reset starts elsewhere, so that an
    observation before a reset cannot be confused with one after it.
    """

    num_envs = NUM_ENVS
    spec = EnvSpec("drift", 4, 2, HORIZON, Factorization.from_mapping({"position": [0, 1], "clock": [2, 3]}, 4), (), {})

    def __init__(self) -> None:
        self.calls: list[tuple[np.ndarray, HostStep]] = []
        self.seeds: list[int] = []

    def reset(self, seed: int) -> np.ndarray:
        self.seeds.append(seed)
        self.random = np.random.default_rng(seed)
        self.state = np.zeros((NUM_ENVS, 4), np.float32)
        self._restart(np.ones(NUM_ENVS, bool))
        return self.state  # its own array, as simulators do: a caller that keeps it must copy it

    def _restart(self, which: np.ndarray) -> None:
        self.state[which, :2] = self.random.uniform(-1, 1, (NUM_ENVS, 2))[which]
        self.state[which, 2] = 0

    def step(self, actions: np.ndarray) -> HostStep:
        self.state[:, :2] += 0.1 * actions
        self.state[:, 2] += 1
        terminated = (np.arange(NUM_ENVS) == 1) & (self.state[:, 2] == 2)
        truncated = (np.arange(NUM_ENVS) == 2) & (self.state[:, 2] == 3)
        reached = self.state.copy()
        self._restart(terminated | truncated)
        self.state[terminated | truncated, 3] += 1
        self.calls.append((actions.copy(), HostStep(self.state.copy(), reached, terminated, truncated)))
        return HostStep(self.state, reached, terminated, truncated)

    def render(self, index: int = 0, size: int = 400) -> np.ndarray:
        image = np.zeros((size, size, 3), np.uint8)
        image[:, :, index % 3] = 200
        return image


def small(**changes: Any) -> Config:
    sizes = {"layers": 1, "hidden": 8, "phi_hidden": 8, "density_hidden": 8, "batch_size": 16, "gradient_steps": 2}
    return configure("gunner", **{**sizes, "episodes": NUM_ENVS, "epochs": 3, "buffer_size": 72, "warmup": 30, **changes})


def collect(terminal: bool, env: Drift | None = None, seed: int = 3) -> Transition:
    """One epoch [T, W, ..] with a policy that shows its skill."""
    space = Trainer.build(small(), Drift()).learner.method.skills
    policy = jax.jit(lambda obs, skill, key: 0.5 * skill[:, :2])
    chunk, _ = host_episodes(env or Drift(), policy, space.sample, HORIZON, seed, jax.random.key(0), terminal)
    return jax.tree.map(lambda x: np.asarray(x).reshape(HORIZON, NUM_ENVS, *x.shape[1:]), chunk)


@pytest.mark.parametrize("terminal", [True, False])
def test_done_and_time_limit(terminal: bool) -> None:
    expected = np.zeros((HORIZON, NUM_ENVS))
    expected[1::2, 1] = 1  # point 1 terminates in every second step, whatever the option is
    if terminal:
        expected[2::3, 2] = 1  # the environment's time limit
        expected[-1] = 1  # the epoch's
    np.testing.assert_array_equal(collect(terminal).done, expected)


def test_observations_around_resets() -> None:
    env = Drift()
    chunk = collect(True, env)
    first = Drift().reset(3)
    np.testing.assert_array_equal(chunk.obs[0], first)
    for step, (actions, result) in enumerate(env.calls):
        np.testing.assert_array_equal(chunk.action[step], actions)
        np.testing.assert_array_equal(chunk.next_obs[step], result.next_obs)
        if step + 1 < HORIZON:
            np.testing.assert_array_equal(chunk.obs[step + 1], result.obs)
    moved = chunk.next_obs - chunk.obs  # across a reset the point would have jumped
    np.testing.assert_allclose(moved[..., :2], 0.1 * chunk.action, atol=1e-6)
    np.testing.assert_array_equal(moved[..., 2], 1)
    assert chunk.next_obs[1, 1, 2] == 2  # the clock before the reset ..
    assert chunk.obs[2, 1, 2] == 0  # .. and after it


def test_skills_are_redrawn_after_episodes() -> None:
    skill = collect(True).skill
    lengths = {0: 6, 1: 2, 2: 3, 3: 6}
    for index, length in lengths.items():
        episodes = skill[:, index].reshape(-1, length, skill.shape[-1])
        np.testing.assert_array_equal(episodes, np.broadcast_to(episodes[:, :1], episodes.shape))
    starts = np.concatenate([skill[::length, index] for index, length in lengths.items()])
    assert len(np.unique(starts, axis=0)) == 1 + 3 + 2 + 1
    np.testing.assert_allclose(np.linalg.norm(starts.reshape(-1, 2, 2), axis=-1), 1, atol=1e-6)


def test_actions_use_the_current_skill() -> None:
    chunk = collect(True)
    np.testing.assert_array_equal(chunk.action, 0.5 * chunk.skill[..., :2])


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    return Trainer.build(small(), Drift())


def epochs(trainer: Trainer, count: int) -> Any:
    state = trainer.start()
    for epoch in range(count):
        state, _ = trainer.run_epoch(state, epoch)
    return state


@pytest.mark.slow
def test_replay_holds_all_transitions(trainer: Trainer) -> None:
    assert isinstance(trainer.env, Drift)
    trainer.env.calls.clear()
    data = jax.tree.map(lambda x: np.asarray(x[0]), epochs(trainer, 2).replay)
    assert data.size == data.position == 2 * HORIZON * NUM_ENVS
    np.testing.assert_array_equal(data.data.action[: data.size], np.concatenate([a for a, _ in trainer.env.calls]))
    reached = np.concatenate([result.next_obs for _, result in trainer.env.calls])
    np.testing.assert_array_equal(data.data.next_obs[: data.size], reached)
    ended = np.stack([result.terminated | result.truncated for _, result in trainer.env.calls])
    ended[HORIZON - 1 :: HORIZON] = True
    np.testing.assert_array_equal(data.data.done[: data.size], ended.reshape(-1))
    for column in data.data:
        assert not column[data.size :].any()


@pytest.mark.slow
def test_epochs_learn_after_the_warm_up(trainer: Trainer) -> None:
    assert isinstance(trainer.env, Drift)
    trainer.env.seeds.clear()
    state = trainer.start()
    before = weights(state)
    state, info = trainer.run_epoch(state, 0)  # 24 transitions, fewer than the warm-up
    np.testing.assert_array_equal(weights(state), before)
    assert all(not np.asarray(value).any() for name, value in info.items() if name != "env_seconds")
    state, info = trainer.run_epoch(state, 1)
    assert (weights(state) != before).any()
    assert np.isfinite(np.concatenate([np.asarray(value) for value in info.values()])).all()
    assert len(set(trainer.env.seeds)) == 2


def weights(state: Any) -> np.ndarray:
    return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(state.learner.sac.actor)])


@pytest.mark.slow
def test_runs_are_deterministic(trainer: Trainer) -> None:
    one, two = epochs(trainer, 3), epochs(Trainer.build(small(), Drift()), 3)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.slow
def test_resumed_equals_uninterrupted(trainer: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("susd.training.train.use_compilation_cache", lambda: None)
    run = train(small(epochs=2), run=tmp_path / "run", quiet=True, environment=Drift())
    train(run=run, resume=True, quiet=True, environment=Drift(), epochs=3)
    newest = checkpoint.checkpoints(run / "checkpoints")[0]
    resumed, meta = checkpoint.restore(newest, trainer.shapes)
    assert meta["epoch"] == 3
    assert checkpoint.digest(resumed) == checkpoint.digest(epochs(trainer, 3))
    assert checkpoint.digest(resumed) != checkpoint.digest(epochs(trainer, 2))


@pytest.mark.parametrize(("changes", "sentence"), [({"seeds": 2}, "--seeds is 2"), ({"episodes": 5}, "4")])
def test_invalid_options(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        train(small(**changes), run=tmp_path / "run", environment=Drift())
    assert not (tmp_path / "run").exists()


def test_missing_members_are_listed() -> None:
    class Half:
        num_envs, spec = NUM_ENVS, Drift.spec

        def reset(self, seed: int) -> np.ndarray:
            return np.zeros((NUM_ENVS, 4))

    with pytest.raises(UserError, match=r"Half is .* environment: .*for a host environment it lacks step, render"):
        Trainer.build(small(), Half())  # type: ignore[arg-type]
