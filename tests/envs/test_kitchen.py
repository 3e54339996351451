"""The Kitchen compared with recordings of the original, and its engines, controllers and seeds with each other."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susd.envs.base import HostEnvironment, HostStep
from susd.envs.kitchen import DISCOVERY, Facts, Kitchen, controller, starts
from susd.envs.kitchen.observation import FACTORS, GRIP, LAYOUTS, START, TOUCHED
from susd.errors import UserError
from susd.evaluation import coverage
from susd.tasks import make_task
from susd.tasks.kitchen import PREDICATES
from susd.tools.golden import agrees, recording_name, verify

GOLDEN = Path(__file__).parent.parent / "golden" / "kitchen.npz"
SCRIPTS = ("butter_to_pot", "meatball_to_pot", "pot_to_stove", "pot_to_target", "button_on_off")
EXACT = 3e-7  # relative quaternions are single precision in the original


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(GOLDEN) as archive:
        return {key: archive[key] for key in archive.files}


def kitchen(num_envs: int, **options: Any) -> Kitchen:
    return Kitchen(num_envs=num_envs, threads=1, **options)


def at_rest(qpos: np.ndarray, fixtures: np.ndarray, **options: Any) -> Kitchen:
    env = kitchen(len(qpos), **options)
    env.restore(qpos, np.zeros((len(qpos), 27)), np.zeros((len(qpos), 27)), np.zeros(len(qpos)), fixtures)
    return env


def facts_of(env: Kitchen) -> Facts:
    """The facts of a state without a previous step, where the original's check has no memory."""
    seen = env._snapshot()
    butter, meatball, stove = seen.contacts.T
    target = env._fixtures[:, 2]
    return Facts(
        env.physics.qpos[:, 0] >= 0, butter, butter, meatball, stove, seen.touches[:, 0, 1], seen.positions[:, 0], target
    )


def rewards(facts: Facts) -> np.ndarray:
    """[W, 4] the reward of every task."""
    return np.stack([holds(facts) for holds in PREDICATES.values()], axis=1)


def test_observations_at_resets(golden: dict[str, np.ndarray]) -> None:
    env = at_rest(golden["reset_qpos"], golden["reset_fixture_pos_table_frame"])
    ours = env.raw.copy()
    ours[:, [4, 6]] = golden["reset_melt_cook"]
    np.testing.assert_allclose(ours, golden["reset_obs_raw"], rtol=0, atol=EXACT)


def test_boundary_states(golden: dict[str, np.ndarray]) -> None:
    env = at_rest(golden["state_qpos"], golden["state_fixture_pos"])
    facts = facts_of(env)
    ours = rewards(facts)
    wrong = [str(golden["state_label"][i]) for i in np.flatnonzero((ours != golden["state_predicates"]).any(axis=1))]
    assert wrong == []
    np.testing.assert_array_equal(facts.pot_touched, golden["state_pot_touched"])
    seen = env.raw[:, golden["layout_permutation"]]
    moving = ~np.isin(
        golden["layout_paper_names"], ["butter_melt_status", "meatball_cook_status", "butter_in_pot", "meatball_in_pot"]
    )
    np.testing.assert_allclose(seen[:, moving], golden["state_obs"][:, moving], rtol=0, atol=EXACT)


@pytest.mark.slow
def test_one_step_in_free_motion(golden: dict[str, np.ndarray]) -> None:
    rows = np.arange(10, 100, 6)  # the pot has landed
    now = {key: golden[f"random_{key}"][0][rows] for key in ("qpos", "qvel", "warm", "grip", "obs_raw", "flags", "action")}
    then = {key: golden[f"random_{key}"][0][rows + 1] for key in ("qpos", "qvel", "grip", "obs_raw")}
    env = kitchen(len(rows))
    fixtures = np.broadcast_to(golden["random_fixture_pos"][0], (len(rows), 3, 3))
    env.restore(
        *(now[key] for key in ("qpos", "qvel", "warm")),
        now["grip"][:, 0],
        fixtures,
        held=now["obs_raw"][:, GRIP : GRIP + 3],
        flags=now["flags"][:, 1:],
        status=golden["random_melt_cook"][0],
    )
    env.advance(now["action"])
    np.testing.assert_allclose(env.physics.qpos[:, 1:7], then["qpos"][:, 1:7], rtol=0, atol=1e-6)
    np.testing.assert_allclose(env.physics.qvel[:, 1:9], then["qvel"][:, 1:9], rtol=0, atol=1e-5)
    np.testing.assert_allclose(env._grip, then["grip"][:, 0], rtol=0, atol=1e-12)
    robot = [0, 1, 2, *range(113, 142)]  # hand velocity and all of the robot, with their mixture of two instants
    np.testing.assert_allclose(env.raw[:, robot], then["obs_raw"][:, robot], rtol=0, atol=1e-6)
    # The loose objects rest on contacts of another MuJoCo version, a tenth of a millimetre deeper or higher.
    np.testing.assert_allclose(env.physics.qpos[:, 9:12], then["qpos"][:, 9:12], rtol=0, atol=2e-4)


def test_first_fall_is_exact(golden: dict[str, np.ndarray]) -> None:
    """The pot has the mass, damping and drag of the recorded one: it falls equally to the last bit."""
    env = at_rest(golden["random_qpos"][:, 0], golden["random_fixture_pos"])
    env.advance(golden["random_action"][:, 0])
    np.testing.assert_allclose(env.physics.qpos[:, 9:16], golden["random_qpos"][:, 1, 9:16], rtol=0, atol=1e-15)
    np.testing.assert_allclose(env.physics.qvel[:, 9:15], golden["random_qvel"][:, 1, 9:15], rtol=0, atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("sleeping", [False, True])
def test_scripted_episodes(golden: dict[str, np.ndarray], sleeping: bool) -> None:
    def all_of(key: str) -> list[np.ndarray]:
        return [golden[f"script_{name}_{key}"] for name in SCRIPTS]

    env = kitchen(len(SCRIPTS), sleeping=sleeping)
    first = [np.stack([rows[0] for rows in all_of(key)]) for key in ("qpos", "qvel", "warm", "grip")]
    env.restore(*first[:3], first[3][:, 0], np.stack(all_of("fixture_pos")))
    actions, lengths = all_of("action"), [len(rows) for rows in all_of("action")]
    flags, received, ends = np.zeros((len(SCRIPTS), max(lengths), 4), bool), np.zeros((len(SCRIPTS), max(lengths), 4)), {}
    for step in range(max(lengths)):
        env.advance(np.stack([rows[step] if step < len(rows) else np.zeros(4) for rows in actions]))
        assert env.facts is not None
        flags[:, step], received[:, step] = env.facts.flags, rewards(env.facts)
        ends |= {i: env.physics.qpos[i].copy() for i, length in enumerate(lengths) if length == step + 1}
    for i, (name, length) in enumerate(zip(SCRIPTS, lengths, strict=True)):
        recorded = golden[f"script_{name}_flags"][1:]
        np.testing.assert_array_equal(flags[i, length - 1], recorded[-1], err_msg=name)
        assert (flags[i, :length] == recorded).mean(axis=0).min() >= 0.98
        recorded = golden[f"script_{name}_reward"][:, [0, 1, 2, 5]]
        assert (received[i, :length] == recorded).mean(axis=0).min() >= 0.97
        last = golden[f"script_{name}_qpos"][-1]
        for body in (9, 16, 23):
            assert np.linalg.norm(ends[i][body : body + 3] - last[body : body + 3]) < (0.015 if body == 23 else 0.01), name


def test_rewards_of_recorded_states(golden: dict[str, np.ndarray]) -> None:
    """The predicates on the recorded flags and poses give exactly the rewards of the original."""
    for name in SCRIPTS:
        flags, pot, target = (golden[f"script_{name}_{key}"] for key in ("flags", "pot", "target"))
        on, butter, meatball, stove = flags[1:].T
        targets = np.broadcast_to(target, (len(on), 3))
        facts = Facts(on, butter, flags[:-1, 1], meatball, stove, pot[1:, 3] > 0, pot[1:, :3], targets)
        ours = rewards(facts)
        np.testing.assert_array_equal(ours, golden[f"script_{name}_reward"][:, [0, 1, 2, 5]], err_msg=name)


def test_reset_ranges(golden: dict[str, np.ndarray]) -> None:
    drawn = [starts.draw(seed, index) for seed in range(10) for index in range(20)]
    ours = np.stack([start.qpos for start in drawn]), np.stack([start.fixtures for start in drawn])
    theirs = golden["reset_qpos"], golden["reset_fixture_pos_table_frame"] + [0, 0, 0.775]
    for qpos, fixtures in (ours, theirs):
        assert np.abs(qpos[:, 1:7] - starts.ARM).max() < 5 * starts.NOISE
        np.testing.assert_allclose(qpos[:, [0, 7, 8]], np.tile([-0.3, 0.020833, -0.020833], (len(qpos), 1)), atol=1e-12)
        for name, at in (("pot", 9), ("butter", 16), ("meatball", 23)):
            (xs, ys), height, _ = starts.LOOSE[name]
            assert xs[0] <= qpos[:, at].min() <= qpos[:, at].max() <= xs[1]
            assert ys[0] <= qpos[:, at + 1].min() <= qpos[:, at + 1].max() <= ys[1]
            np.testing.assert_allclose(qpos[:, at + 2], height, atol=1e-9)
            yaw = 2 * np.arctan2(qpos[:, at + 6], qpos[:, at + 3])
            assert (np.abs(yaw) <= 0.1 + 1e-9).all() if name == "pot" else np.allclose(yaw, -np.pi / 2)
        for i, (xs, ys) in enumerate(starts.FIXED.values()):
            assert xs[0] <= fixtures[:, i, 0].min() <= fixtures[:, i, 0].max() <= xs[1]
            assert ys[0] <= fixtures[:, i, 1].min() <= fixtures[:, i, 1].max() <= ys[1]
        np.testing.assert_allclose(fixtures[..., 2], np.tile([0.795, 0.795, 0.780], (len(fixtures), 1)), atol=1e-12)
    noise = (ours[0][:, 1:7] - starts.ARM).std()
    assert 0.018 < noise < 0.022
    status = np.stack([start.status for start in drawn])
    assert -1 <= status.min() < -0.95
    assert -0.55 < status.max() <= -0.5


def actions(num_envs: int, steps: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(-1.2, 1.2, (steps, num_envs, 4))


def run(seed: int = 5, num_envs: int = 2, steps: int = 4, **options: Any) -> list[np.ndarray]:
    """Every array that a short run returns."""
    env = kitchen(num_envs, **options)
    found = [env.reset(seed)]
    for row in actions(num_envs, steps):
        found += arrays(env.step(row))
    return found


def arrays(step: HostStep) -> list[np.ndarray]:
    """The four arrays of a step; there is no reward."""
    assert step.reward is None
    return [np.array(part) for part in step[:4]]


def same(one: list[np.ndarray], two: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.fixture(scope="module")
def usual() -> list[np.ndarray]:
    return run()


def test_run_depends_on_the_seed(usual: list[np.ndarray]) -> None:
    env = kitchen(2)
    env.reset(99)
    env.step(actions(2, 1)[0])  # earlier episodes do not matter
    again = [env.reset(5)]
    for row in actions(2, 4):
        again += arrays(env.step(row))
    assert same(usual, again)
    assert not same(usual[:1], run(seed=6, steps=0))


@pytest.mark.slow
def test_plain_engine_gives_equal_results(usual: list[np.ndarray]) -> None:
    assert same(usual, run(engine="plain"))


def test_numba_gives_equal_results(usual: list[np.ndarray]) -> None:
    if controller.compiled() is None:
        pytest.skip("numba is not installed")
    assert same(run(controller="numba"), run(controller="numpy"))


def test_never_terminates(usual: list[np.ndarray]) -> None:
    assert isinstance(kitchen(1), HostEnvironment)
    first, steps = usual[0], [usual[i : i + 4] for i in range(1, len(usual), 4)]
    for obs, reached, terminated, truncated in steps:
        assert obs.dtype == reached.dtype == np.float32
        assert not terminated.any()
        assert not truncated.any()
        assert np.array_equal(obs, reached)
    assert not np.array_equal(first[0], first[1])  # every environment has its own start


@pytest.mark.parametrize(
    ("layout", "sizes"),
    [
        ("released", (33, 22, 18, 19, 22, 14, 14)),
        ("documented", (33, 22, 18, 19, 22, 14, 14)),
        ("semantic", (32, 22, 18, 19, 23, 14, 14)),
    ],
)
def test_layouts(golden: dict[str, np.ndarray], layout: str, sizes: tuple[int, ...]) -> None:
    found = LAYOUTS[layout]
    assert sorted(found.order.tolist()) == list(range(142))
    assert found.factors.names == FACTORS
    assert tuple(len(part) for part in found.factors.indices) == sizes
    if layout == "released":
        np.testing.assert_array_equal(found.order, golden["layout_permutation"])
        assert np.cumsum([0, *sizes]).tolist() == golden["factor_points"].tolist()
        return
    owners = golden["layout_raw_entity"][found.order]
    for name, part in zip(found.factors.names, found.factors.indices, strict=True):
        strangers = set(owners[list(part)].tolist()) - {name}
        assert strangers == ({"button"} if (layout, name) == ("documented", "robot") else set())


def test_spec_indices(golden: dict[str, np.ndarray]) -> None:
    names = golden["layout_raw_names"]
    env = kitchen(1, layout="semantic")
    order = LAYOUTS["semantic"].order
    assert {p.name: names[order[p.x]] for p in env.spec.planes} == {
        "gripper": "robot0_eef_pos[0]",
        **{name: f"{name}_pos[0]" for name in ("pot", "butter", "meatball")},
    }
    for name, index in env.spec.landmarks.items():
        assert names[order[index]] == {"button_on": "button_joint_qpos"}.get(name, name)
    assert env.spec.horizon == DISCOVERY == 50
    assert [str(names[index]) for index in TOUCHED.values()] == [f"{name}_touched" for name in TOUCHED]


def test_own_dimensions(golden: dict[str, np.ndarray]) -> None:
    names = golden["layout_raw_names"]

    def named(env: Kitchen) -> dict[str, list[str]]:
        order = LAYOUTS["semantic"].order
        assert env.spec.own is not None
        return {factor: [str(names[order[i]]) for i in own] for factor, own in env.spec.own.items()}

    found = named(kitchen(1, layout="semantic"))
    assert list(found) == ["robot", "pot", "butter", "meatball", "button"]  # stove and target never move
    assert found["robot"][:3] == [f"robot0_eef_pos[{axis}]" for axis in range(3)]
    assert len(found["robot"]) == 5
    for name in ("pot", "butter", "meatball"):
        assert found[name] == [f"{name}_pos[{axis}]" for axis in range(3)]
    assert found["button"] == ["button_joint_qpos"]
    released = kitchen(1, layout="released").spec  # there the angle is in the block of the robot
    assert released.own is not None
    assert "button" not in released.own
    assert len(released.own["robot"]) == 6
    split = kitchen(1, layout="semantic", factors="robot=0:32,rest=32:142").spec
    assert split.own is not None
    assert {name: len(own) for name, own in split.own.items()} == {"robot": 5, "rest": 10}


def test_scaled_observations() -> None:
    plain, scaled = kitchen(2, layout="semantic"), kitchen(2, layout="semantic", scaled=True)
    assert plain.spec.scaling is None
    assert scaled.spec.scaling is not None
    assert min(scaled.spec.scaling.std) == pytest.approx(0.05)
    for seed, action in ((3, np.full((2, 4), 0.7)), (4, np.full((2, 4), -0.4))):
        raw, obs = plain.reset(seed), scaled.reset(seed)
        for _ in range(3):
            np.testing.assert_allclose(scaled.spec.raw(obs), raw, atol=2e-5)
            raw, obs = plain.step(action).next_obs, scaled.step(action).next_obs
        assert obs.dtype == np.float32
        assert np.abs(obs - raw).max() > 0.5
    # A landmark is above zero in raw units: at the reset nothing is touched, and the button is off.
    shares = coverage.landmarks(scaled.spec, scaled.reset(5)[None])
    assert {name: float(share) for name, share in shares.items()} == dict.fromkeys(plain.spec.landmarks, 0.0)


def test_continuous_quaternions_do_not_jump(golden: dict[str, np.ndarray]) -> None:
    columns = [i for at in START.values() for i in range(at + 10, at + 14)]

    def largest(quaternions: str) -> float:
        env = kitchen(1, quaternions=quaternions)
        first = [golden[f"random_{key}"][:1, 0] for key in ("qpos", "qvel", "warm")]
        rows = [env.restore(*first, np.zeros(1), golden["random_fixture_pos"][:1])[0, columns].copy()]
        for action in golden["random_action"][0, :20]:
            env.advance(action[None])
            rows.append(env.raw[0, columns].copy())
        return float(np.abs(np.diff(rows, axis=0)).max())

    assert largest("canonical") > 1.5
    assert largest("continuous") < 0.3


def recording(golden: dict[str, np.ndarray], tmp_path: Path, steps: int = 8, **changes: np.ndarray | None) -> Path:
    keys = ("qpos", "qvel", "warm", "grip", "flags", "obs_raw")
    data = {key: golden[f"random_{key}"][:, : steps + 1] for key in keys}
    data |= {"action": golden["random_action"][:, :steps], "fixture_pos": golden["random_fixture_pos"]}
    path = tmp_path / "episodes.npz"
    np.savez(path, **{key: value for key, value in {**data, **changes}.items() if value is not None})
    return path


def test_recording_replays(golden: dict[str, np.ndarray], tmp_path: Path) -> None:
    assert recording_name("heldout-kitchen-2") == "kitchen"
    result = json.loads(json.dumps(verify(recording(golden, tmp_path), "kitchen")))
    assert (result["name"], result["steps"]) == ("kitchen", 16)
    assert set(result["flags"].values()) == {1.0}
    assert result["max_arm_error"] < 1e-6
    assert max(result[f"max_{body}_error"] for body in ("pot", "butter", "meatball")) < 2e-3
    assert agrees(result)
    moved = golden["random_flags"][:, :9].copy()
    moved[:, 5:, 3] = True
    worse = verify(recording(golden, tmp_path, flags=moved), "kitchen")
    assert worse["flags"]["pot_on_stove"] == 0.5
    assert not agrees(worse)


def test_invalid_recordings(golden: dict[str, np.ndarray], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'warm' is missing"):
        verify(recording(golden, tmp_path, warm=None), "kitchen")
    with pytest.raises(UserError, match=r"'qpos' has the shape \(2, 9, 29\), expected \(2, 9, 30\)"):
        verify(recording(golden, tmp_path, qpos=np.zeros((2, 9, 29))), "kitchen")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"layout": "paper"}, "option 'layout' cannot be 'paper'; allowed: released, documented, semantic"),
        ({"num_envs": 0}, "option 'num_envs' cannot be 0"),
        ({"quaternions": "free"}, "option 'quaternions' cannot be 'free'"),
        ({"engine": "warp"}, "option 'engine' cannot be 'warp'"),
        ({"factors": 3}, "option 'factors' cannot be 3"),
        ({"sleeping": "deep"}, "option 'sleeping' cannot be 'deep'"),
        ({"scaled": "much"}, "option 'scaled' cannot be 'much'"),
    ],
)
def test_invalid_options(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        Kitchen(**options)


def test_invalid_actions_and_tasks() -> None:
    env = kitchen(1)
    with pytest.raises(UserError, match="the Kitchen has no state yet; call reset first"):
        env.step(np.zeros((1, 4)))
    env.reset(0)
    with pytest.raises(UserError, match=r"the actions have the shape \(4,\); it must be \(1, 4\)"):
        env.step(np.zeros(4))
    step = env.step(np.zeros((1, 4)))
    assert make_task("kitchen-pot", env).reward(step).tolist() == [0.0]
    with pytest.raises(UserError, match="unknown task 'kitchen-toast'"):
        make_task("kitchen-toast", env)


def test_rendering() -> None:
    env = kitchen(1)
    env.reset(0)
    try:
        image = env.render(0, 96)
    except UserError as error:
        pytest.skip(str(error))
    assert image.shape == (96, 96, 3)
    assert image.dtype == np.uint8
    assert 40 < image.mean() < 220
    assert image.std() > 20
    with pytest.raises(UserError, match="environment 1 does not exist; allowed: 0 to 0"):
        env.render(1)
