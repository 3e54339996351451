"""Recorded datasets hold what the environment returned, can be replayed from their seeds, and are read back by others."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import call, refused
from susd.collect import HostTrajectories
from susd.envs.base import HostStep
from susd.envs.vector import vectorize
from susd.share import dataset as datasets
from susd.share.dataset import arrays, record
from susd.training.agent import load
from susd.types import Transition

Trained = Callable[..., Path]


@pytest.fixture(scope="module")
def run(trained: Trained) -> Path:
    return trained("gunner", "--epochs", 3)


@pytest.fixture(scope="module")
def file(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five episodes in batches of two environments."""
    path = tmp_path_factory.mktemp("dataset") / "gunner.npz"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "NUM_ENVS", 2)
        assert record(run, 5, out=path, seed=3) == path
    return path


def read(path: Path) -> dict[str, Any]:
    with np.load(path) as archive:
        return dict(archive)


def transitions(data: Any) -> dict[str, np.ndarray]:
    """Transitions of a file as offline RL reads OGBench's: the last state of a trajectory is only a next state."""
    last = data["terminals"] == 1
    first = np.concatenate([[True], last[:-1]])
    found = {name: data[name][~last] for name in ("observations", "actions", "skills")}
    return found | {"next_observations": data["observations"][~first]}


def test_layout(file: Path) -> None:
    data = read(file)
    assert {name: data[name].shape for name in data if name != "info"} == {
        "observations": (55, 18),
        "actions": (55, 6),
        "terminals": (55,),
        "terminations": (55,),
        "skills": (55, 6),
        "episode_seeds": (5,),
        "episode_indices": (5,),
    }
    assert all(data[name].dtype == np.float32 for name in ("observations", "actions", "terminals", "skills"))
    assert np.flatnonzero(data["terminals"]).tolist() == [10, 21, 32, 43, 54]
    assert not data["terminations"].any()
    assert data["episode_seeds"].tolist() == [3, 3, 4, 4, 5]
    assert data["episode_indices"].tolist() == [0, 1, 0, 1, 0]
    assert len(np.unique(data["skills"], axis=0)) == 5
    info = json.loads(str(data["info"]))
    assert info["factors"]["ammo"] == [6, 7, 8, 9, 10, 11, 12]
    assert info["skill"] == {"prior": "factor_sphere", "parts": ["agent", "ammo", "target"], "dim": 2}
    assert (info["env"], info["actions"], info["epoch"]) == ("gunner", "sampled", 3)


def test_replay_from_the_seeds(file: Path, run: Path) -> None:
    data, env = read(file), load(run).trainer.env
    observations, actions = (data[name].reshape(5, 11, -1) for name in ("observations", "actions"))
    vector = vectorize(env, 2)
    for pair, seed in ((slice(0, 2), 3), (slice(2, 4), 4)):
        np.testing.assert_array_equal(vector.reset(seed), observations[pair, 0])
        for step in range(10):
            np.testing.assert_array_equal(vector.step(actions[pair, step]).obs, observations[pair, step + 1])


def test_mean_actions_are_those_of_the_skill(run: Path, tmp_path: Path) -> None:
    found = transitions(read(record(run, 3, out=tmp_path / "a.npz", steps=4, mean=True)))
    assert len(found["observations"]) == 12
    expected = load(run).act(found["observations"], found["skills"])
    np.testing.assert_allclose(found["actions"], expected, atol=1e-5)
    np.testing.assert_array_equal(found["observations"][1:4], found["next_observations"][:3])


def test_episodes_end_where_the_environment_does() -> None:
    obs = np.arange(4, dtype=np.float32)[:, None, None] + np.array([0.0, 10.0, 20.0], np.float32)[:, None]  # [4, 3, 1]
    terminated, truncated = np.zeros((4, 3), np.float32), np.zeros((4, 3), bool)
    terminated[1, 0], truncated[2, 1] = 1.0, True
    fields: Any = (obs, 0 * obs, obs + 1, 0 * obs, terminated)
    found = HostTrajectories(Transition(*fields), truncated, 0.0)
    episodes = [datasets._episode(found, 7, index) for index in range(3)]
    assert [episode.observations[:, 0].tolist() for episode in episodes] == [
        [0.0, 1.0, 2.0],
        [10.0, 11.0, 12.0, 13.0],
        [20.0, 21.0, 22.0, 23.0, 24.0],
    ]
    assert [len(episode.actions) for episode in episodes] == [2, 3, 4]
    assert [episode.terminated for episode in episodes] == [True, False, False]
    data = arrays(episodes, {})
    assert np.flatnonzero(data["terminals"]).tolist() == [2, 6, 11]
    assert np.flatnonzero(data["terminations"]).tolist() == [2]


class Falling:
    """A host environment of two copies: the first terminates after three steps."""

    num_envs = 2

    def __init__(self, spec: Any) -> None:
        self.spec = spec

    def reset(self, seed: int) -> np.ndarray:
        self.time = np.zeros(2, int)
        return np.full((2, self.spec.obs_size), seed, np.float32)

    def step(self, actions: np.ndarray) -> Any:
        self.time += 1
        next_obs = np.repeat(self.time[:, None], self.spec.obs_size, 1).astype(np.float32)
        over = (self.time == 3) & np.array([True, False])
        self.time[over] = 0
        return HostStep(np.where(over[:, None], np.float32(-1), next_obs), next_obs, over, np.zeros(2, bool))

    def render(self, index: int = 0, size: int = 400) -> np.ndarray:
        raise NotImplementedError


def test_host_environment(run: Path) -> None:
    agent = load(run)
    trainer = dataclasses.replace(agent.trainer, env=Falling(agent.trainer.env.spec))
    agent = dataclasses.replace(agent, trainer=trainer)
    found = list(datasets.rollouts(agent, 3, seed=5, steps=6, mean=False))
    assert [(episode.seed, episode.index, episode.terminated) for episode in found] == [
        (5, 0, True),
        (5, 1, False),
        (6, 0, True),
    ]
    assert [episode.observations[:, 0].tolist() for episode in found] == [[5, 1, 2, 3], [5, 1, 2, 3, 4, 5, 6], [6, 1, 2, 3]]


def test_minari_reads_it_back(
    run: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import minari

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    monkeypatch.setattr(datasets, "NUM_ENVS", 2)
    command = ("record", run, "--episodes", 5, "--seed", 3, "--format", "minari", "--out", "susd/gunner-v3")
    call(*command)
    assert capsys.readouterr().out == "susd/gunner-v3\n"
    dataset = minari.load_dataset("susd/gunner-v3")
    assert (dataset.total_episodes, dataset.total_steps) == (5, 50)
    data = read(file)  # the same episodes
    for number, episode in enumerate(dataset.iterate_episodes()):
        rows = slice(11 * number, 11 * number + 11)
        np.testing.assert_array_equal(episode.observations, data["observations"][rows])
        np.testing.assert_array_equal(episode.actions, data["actions"][rows][:-1])
        np.testing.assert_array_equal(episode.infos["skill"], data["skills"][rows])
        assert episode.truncations.tolist() == [False] * 9 + [True]
        assert not episode.terminations.any()
        assert not np.any(episode.rewards)
    metadata = list(dataset.storage.get_episode_metadata(range(5)))
    assert [(one["seed"], int(one["options"]["index"])) for one in metadata] == [(3, 0), (3, 1), (4, 0), (4, 1), (5, 0)]
    assert json.loads(dataset.storage.metadata["susd"]) == json.loads(str(data["info"]))
    assert dataset.recover_environment().observation_space.shape == (18,)
    assert "Minari has a dataset susd/gunner-v3 already" in refused(capsys, *command)
    call(*command[:2], "--episodes", 1, *command[4:], "--force")
    assert minari.load_dataset("susd/gunner-v3").total_episodes == 1


REFUSED = {
    "--episodes 0": "--episodes is 0; it must be from 1 to 1000000",
    "--episodes 2 --steps -1": "--steps is -1; it must be from 0 to 100000",
    "--episodes 2 --seed -1": "--seed is -1",
    "--episodes 2 --format csv": "--format is 'csv'; choose one of npz, minari",
    "--episodes 2 --format minari --out x": "--out is 'x'; the id of a Minari dataset has the form",
    "--episodes 2 --format minari --out ../x-v0": "--out is '../x-v0'",
    "": "--episodes",
}


@pytest.mark.parametrize("words", REFUSED)
def test_bad_input(words: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    assert REFUSED[words] in refused(capsys, "record", run, *words.split())


def test_existing_file_is_kept(run: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = file.read_bytes()
    sentence = refused(capsys, "record", run, "--episodes", 1, "--out", file)
    assert sentence == f"{file} already exists; replace it with --force"
    assert file.read_bytes() == before


def test_missing_packages(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    sentence = refused(capsys, "record", run, "--episodes", 1, "--format", "minari")
    assert sentence == "--format minari needs packages that are missing: pip install 'susd[data]'"
