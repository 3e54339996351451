"""Every recording of the original replays, and a recording with one changed value does not."""

from pathlib import Path

import numpy as np
import pytest

from susd.errors import UserError
from susd.tools.golden import RECORDINGS, agrees, recording_name, verify

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(RECORDINGS))
def test_golden_recordings(name: str) -> None:
    result = verify(GOLDEN / f"{name}.npz")
    assert result["name"] == name
    assert result["max_obs_error"] <= 1e-5
    assert (result["reward_mismatches"], result["flag_mismatches"]) == (0, 0)
    assert agrees(result)


def changed(tmp_path: Path, name: str, **arrays: np.ndarray | None) -> Path:
    """A copy of a golden recording with some arrays replaced or, for None, left out."""
    with np.load(GOLDEN / f"{name}.npz") as archive:
        data = {key: archive[key] for key in archive.files}
    path = tmp_path / f"{name}_changed.npz"
    np.savez(path, **{k: v for k, v in {**data, **arrays}.items() if v is not None})
    return path


MUTATIONS = [
    ("gunner", "obs", (3, 77, 4), 2e-5, "max_obs_error"),
    ("gunner", "obs", (3, 77, 8), 1.0, "flag_mismatches"),
    ("gunner", "state", (2, 150, 3), 2e-5, "max_obs_error"),
    ("gunner", "state", (2, 150, 7), 1.0, "flag_mismatches"),
    ("gunner", "state", (2, 150, 10), 1.0, "flag_mismatches"),
    ("gunner", "reward", (0, 3), 1.0, "reward_mismatches"),
    ("gunner", "action", (5, 0, 5), 1e-4, "max_obs_error"),
    ("gunner", "reset_seed", (0,), 2.0, "max_obs_error"),
    ("gunner_lim", "obs", (0, 1000, 12), 2e-5, "max_obs_error"),
    ("gunner_lim", "done", (0, 999), 1, "flag_mismatches"),
    ("gunner_lim", "hl_done", (0, 199), 1, "flag_mismatches"),
    ("gunner_lim", "hl_obs", (3, 100, 18), 2e-5, "max_obs_error"),
    ("gunner_nolim", "hl_reward", (3, 199), 2e-5, "reward_mismatches"),
    ("multi_particle_raw50", "agent_vel", (2, 60, 9, 1), 2e-5, "max_obs_error"),
    ("multi_particle_raw50", "station_pos", (2, 9, 1), 2e-5, "max_obs_error"),
    ("mp_seq_hard", "progress", (1, 75), 1.0, "flag_mismatches"),
    ("mp_seq_hard", "charge", (1, 75), 1.0, "flag_mismatches"),
    ("mp_seq_hard", "target", (1, 75, 0), 1.0, "flag_mismatches"),
    ("mp_seq_hard", "reward", (7, 74), 1e-4, "reward_mismatches"),
    ("mp_fp_medium", "indicator", (4, 30, 5), 1.0, "flag_mismatches"),
    ("mp_fp_medium", "reward_vec", (4, 30, 5), 2.0, "reward_mismatches"),
]


@pytest.mark.parametrize(("name", "key", "where", "amount", "metric"), MUTATIONS)
def test_changed_value_is_found(
    tmp_path: Path, name: str, key: str, where: tuple[int, ...], amount: float, metric: str
) -> None:
    with np.load(GOLDEN / f"{name}.npz") as archive:
        array = archive[key].copy()
    array[where] = not array[where] if array.dtype == bool else array[where] + amount
    result = verify(changed(tmp_path, name, **{key: array}))
    assert not agrees(result)
    assert result[metric] > (1e-5 if metric == "max_obs_error" else 0)


def test_other_lengths_and_agents(tmp_path: Path) -> None:
    with np.load(GOLDEN / "mp_fp_easy.npz") as archive:
        data = {key: archive[key] for key in archive.files}
    episodes, steps, actions = 3, 23, 4
    lengths = {76: steps + 1, 75: steps, 16: actions + 1, 15: actions}
    short = {
        key: value[(slice(episodes), *(slice(lengths.get(n, n)) for n in value.shape[1:]))]
        if value.shape[0] == 8
        else value
        for key, value in data.items()
    }
    agents = np.array([9, 0, 4])
    rewards = short["reward_vec"][..., agents].sum(-1)
    short |= {"agents": agents, "reward": rewards, "hl_reward": rewards[:, :20].reshape(episodes, 4, 5).mean(-1)}
    path = tmp_path / "mp_fp_easy_short.npz"
    np.savez(path, **short)
    result = verify(path)
    assert agrees(result)
    assert result["steps"] == episodes * steps


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gunner", "gunner"),
        ("gunner_lim_heldout", "gunner_lim"),
        ("heldout-gunner-overrange-2", "gunner_overrange"),
        ("gunner-unlim", "gunner_nolim"),
        ("lim", "gunner_lim"),
        ("multi_particle_b", "multi_particle"),
        ("multi_particle-seq-easy", "mp_seq_easy"),
        ("fp-difficult", "mp_fp_difficult"),
        ("MP_seq_hard.v2", "mp_seq_hard"),
    ],
)
def test_recording_names(name: str, kind: str) -> None:
    assert recording_name(name) == kind


def test_given_name_overrides_file_name(tmp_path: Path) -> None:
    path = tmp_path / "something.npz"
    path.write_bytes((GOLDEN / "gunner_overrange.npz").read_bytes())
    with pytest.raises(UserError, match="'something' names no known recording"):
        verify(path)
    assert agrees(verify(path, "gunner"))
    with pytest.raises(UserError, match=r"'action' has the shape \(2, 60, 6\), expected \(2, 60, 20\)"):
        verify(path, "multi_particle")


@pytest.mark.parametrize(
    ("name", "arrays", "message"),
    [
        ("gunner", {"state": None}, "the array 'state' is missing"),
        ("gunner", {"obs": np.zeros((8, 200, 18))}, r"'obs' has the shape \(8, 200, 18\), expected \(8, 201, 18\)"),
        ("gunner", {"reward": np.full((8, 200), np.nan)}, "'reward' must hold finite values"),
        ("gunner", {"action": np.zeros((8, 0, 6))}, "'action' has the shape"),
        ("gunner", {"done": np.full((8, 200), "no")}, r"array 'done' is <U2\[8, 200\], not one of numbers"),
        ("gunner", {"reset_seed": np.full(8, 0.5)}, "seeds must be integers"),
        ("gunner_lim", {"perm": np.zeros(18)}, "'perm' is not a permutation"),
        ("mp_fp_easy", {"agents": np.array([1, 10])}, "allowed are the agents 0 to 9"),
        ("mp_seq_easy", {"charge": None}, "the array 'charge' is missing"),
    ],
)
def test_invalid_arrays(tmp_path: Path, name: str, arrays: dict[str, np.ndarray | None], message: str) -> None:
    with pytest.raises(UserError, match=message):
        verify(changed(tmp_path, name, **arrays))


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 torn", None])
def test_invalid_files(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "gunner.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"not an \.npz file of plain arrays" if content is not None else "does not exist"):
        verify(path)


def test_single_array_is_not_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "gunner.npz"
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(UserError, match=r"not an \.npz file of plain arrays"):
        verify(path)
