"""Ant and HalfCheetah: equal to Gymnasium's physics, seeded resets, factors, scaling, rendering."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from susd.envs import make
from susd.envs.base import HostEnvironment, Plane
from susd.envs.mujoco.bodies import Ant, Body, HalfCheetah, scalings
from susd.errors import UserError
from susd.evaluation.coverage import visited_cells

BODIES: list[type[Body]] = [Ant, HalfCheetah]
SIZES = {"ant": (15, 14, 8), "half_cheetah": (9, 9, 6)}
either = pytest.mark.parametrize("kind", BODIES, ids=lambda kind: kind.name)


def actions(env: Body, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (env.num_envs, env.spec.action_size))


def run(env: Body, seed: int = 3, steps: int = 20) -> np.ndarray:
    """[T + 1, W, S] observations of random actions."""
    rows = [env.reset(seed)]
    for step in range(steps):
        result = env.step(actions(env, step))
        assert not result.terminated.any()
        assert not result.truncated.any()
        assert np.array_equal(result.obs, result.next_obs)
        rows.append(result.obs)
    return np.stack(rows)


@pytest.mark.parametrize("engine", ["batch", "plain"])
@pytest.mark.parametrize(("kind", "id"), [(Ant, "Ant-v5"), (HalfCheetah, "HalfCheetah-v5")])
@pytest.mark.filterwarnings("ignore:compiler attribute")
def test_moves_as_gymnasium_does(
    kind: type[Body], id: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where MuJoCo logs a deprecation in Gymnasium's file
    ours, theirs = kind(num_envs=2, engine=engine), gymnasium.make(id)
    body: Any = theirs.unwrapped
    ours.reset(5)
    theirs.reset(seed=0)
    body.set_state(ours.physics.qpos[1].copy(), ours.physics.qvel[1].copy())
    ours.physics.qacc_warmstart[1] = body.data.qacc_warmstart  # from which the solver starts; resets have zeros
    for step in range(20):
        action = actions(ours, step)
        ours.step(action)
        body.step(action[1])
        np.testing.assert_array_equal(ours.physics.qpos[1], body.data.qpos)
        np.testing.assert_array_equal(ours.physics.qvel[1], body.data.qvel)
    theirs.close()


@either
def test_engines_and_seeds(kind: type[Body]) -> None:
    first = run(kind(num_envs=3))
    assert first.dtype == np.float32
    np.testing.assert_array_equal(run(kind(num_envs=3, engine="plain")), first)
    np.testing.assert_array_equal(run(kind(num_envs=3, threads=1)), first)
    np.testing.assert_array_equal(run(kind(num_envs=2)), first[:, :2])  # the number of environments does not matter
    assert (run(kind(num_envs=3), seed=4, steps=0) != first[0]).any(axis=1).all()
    assert len(np.unique(first[0], axis=0)) == 3


@either
def test_resets_are_independent(kind: type[Body]) -> None:
    env = kind(num_envs=2)
    first = run(env)
    run(env, seed=9)
    np.testing.assert_array_equal(run(env), first)


@pytest.mark.parametrize("engine", ["batch", "plain"])
@either
def test_restart_some_environments(kind: type[Body], engine: str) -> None:
    env = kind(num_envs=4, engine=engine)
    first = env.reset(7)
    for step in range(5):
        moved = env.step(actions(env, step)).obs
    again = env.restart(np.array([3, 1]), [7, 8])
    np.testing.assert_array_equal(again[0], first[3])
    assert (again[1] != first[1]).any()
    now = env.spec.scaling.normalise(env.state).astype(np.float32)
    np.testing.assert_array_equal(now[[0, 2]], moved[[0, 2]])
    np.testing.assert_array_equal(now[[3, 1]], again)
    alone = kind(num_envs=4, engine=engine)
    alone.reset(7)
    np.testing.assert_array_equal(env.step(actions(env)).obs[3], alone.step(actions(alone)).obs[3])


@either
def test_reset_ranges(kind: type[Body]) -> None:
    env = kind(num_envs=400)
    env.reset(0)
    positions, velocities = env.physics.qpos - env.physics.model.qpos0, env.physics.qvel
    free = [i for i in range(positions.shape[1]) if env.quaternion is None or i not in range(3, 7)]
    assert np.abs(positions[:, free]).max() <= 0.1
    np.testing.assert_allclose(positions[:, free].std(axis=0), 0.1 / 3**0.5, rtol=0.15)
    np.testing.assert_allclose(velocities.std(axis=0), 0.1, rtol=0.15)
    np.testing.assert_allclose(velocities.mean(axis=0), 0, atol=0.02)
    if env.quaternion is not None:
        np.testing.assert_allclose(np.linalg.norm(env.physics.qpos[:, 3:7], axis=1), 1, atol=1e-12)


@either
def test_spec(kind: type[Body]) -> None:
    env = make(kind.name, num_envs=2)
    assert isinstance(env, kind)
    assert isinstance(env, HostEnvironment)
    nq, nv, nu = SIZES[kind.name]
    assert (env.num_envs, env.spec.obs_size, env.spec.action_size, env.spec.horizon) == (2, nq + nv, nu, 200)
    assert env.spec.factorization.names == ("state",)
    assert env.spec.planes == (Plane("body", 0, 1 if kind is Ant else 0, -25.0, 25.0, open=True),)
    obs = env.reset(0)
    np.testing.assert_allclose(env.spec.raw(obs), np.concatenate([env.physics.qpos, env.physics.qvel], 1), atol=1e-5)
    np.testing.assert_array_equal(env.positions, env.physics.qpos[:, : 2 if kind is Ant else 1])


@pytest.mark.parametrize(
    ("kind", "factors", "joints"),
    [
        (Ant, 5, {"front_left_leg": "_1", "front_right_leg": "_2", "back_leg": "_3", "right_back_leg": "_4"}),
        (HalfCheetah, 3, {"front_leg": "f", "back_leg": "b"}),
    ],
)
def test_factors_match_the_joints(kind: type[Body], factors: int, joints: dict[str, str]) -> None:
    env = kind(num_envs=1, factors=factors)
    found = env.spec.factorization
    assert found.names == ("torso", *joints)
    assert sorted(i for part in found.indices for i in part) == list(range(env.spec.obs_size))
    model = env.physics.model
    for name, mark in joints.items():
        own = [j for j in range(model.njnt) if mark in (model.joint(j).name[:1], model.joint(j).name[-2:])]
        indices = [*model.jnt_qposadr[own], *(model.nq + model.jnt_dofadr[own])]
        assert sorted(found.indices[found.names.index(name)]) == sorted(indices)
        if kind is Ant:  # the joints hang below the body that gives the factor its name
            assert all(model.body_rootid[model.jnt_bodyid[j]] == model.body("torso").id for j in own)
            assert model.body_parentid[model.jnt_bodyid[own[0]]] == model.body(name).id


def test_user_defined_factors() -> None:
    env = HalfCheetah(num_envs=1, factors="position=0,rest=1:18")
    assert env.spec.factorization.names == ("position", "rest")


@pytest.fixture(scope="module")
def script() -> Any:
    """benchmarks/scaling.py as a module."""
    path = Path(__file__).parent.parent.parent / "benchmarks" / "scaling.py"
    spec = importlib.util.spec_from_file_location("scaling", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@either
def test_scaling_matches_new_measurement(kind: type[Body], script: Any) -> None:
    mean, std = script.measure(kind(num_envs=64), 128 if kind is Ant else 256, seed=1)
    stored = scalings()[kind.name]
    np.testing.assert_allclose(std, stored.std, rtol=0.5)  # a few somersaults make half of the cheetah's pitch
    np.testing.assert_allclose((mean - stored.mean) / stored.std, 0, atol=0.3)
    released = {"ant": (0.625, 0.620), "half_cheetah": (0.404,)}[kind.name]  # of the paper's program
    np.testing.assert_allclose(np.array(stored.std)[list(kind.axes)], released, rtol=0.05)


@pytest.mark.slow
@either
def test_camera_follows_the_body(kind: type[Body]) -> None:
    env = kind(num_envs=2)
    env.reset(0)
    env.physics.qpos[1] = env.physics.qpos[0]
    env.physics.qpos[1, 0] += 120.0  # an integer number of floor squares, and beyond the end of Gymnasium's floor
    try:
        near, far = env.render(0, 96), env.render(1, 96)
    except UserError as error:
        pytest.skip(str(error))
    assert near.shape == (96, 96, 3)
    assert near.dtype == np.uint8
    assert 60 < near.mean() < 230
    assert near.std() > 20
    assert np.abs(near.astype(int) - far).mean() < 12
    assert env.render(0, 1000).shape == (1000, 1000, 3)
    for index, size, sentence in ((2, 96, "environment 2 does not exist; allowed: 0 to 1"), (0, 5, "cannot be 5 pixels")):
        with pytest.raises(UserError, match=sentence):
            env.render(index, size)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"num_envs": 0}, "option 'num_envs' cannot be 0"),
        ({"engine": "warp"}, "option 'engine' cannot be 'warp'; allowed: auto, batch, plain"),
        ({"factors": 3}, "option 'factors' cannot be 3; allowed: 1, 5, or a user-defined one"),
        ({"threads": -1}, "option 'threads' cannot be -1"),
    ],
)
def test_invalid_options(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        Ant(**options)


def test_invalid_actions_and_seeds() -> None:
    env = HalfCheetah(num_envs=1)
    with pytest.raises(UserError, match="option 'seed' cannot be -1"):
        env.reset(-1)
    env.reset(0)
    with pytest.raises(UserError, match=r"the actions have the shape \(6,\); it must be \(1, 6\)"):
        env.step(np.zeros(6))
    with pytest.raises(UserError, match="action 0 of environment 0 is nan; it must be finite"):
        env.step(np.full((1, 6), np.nan))
    for ids in ([1], [0, 0], [0.0]):
        with pytest.raises(UserError, match=r"cannot restart environments .*; allowed: distinct indices from 0 to 0"):
            env.restart(np.array(ids), [0] * len(ids))
    for index in (True, 0.0):
        with pytest.raises(UserError, match=r"environment .* does not exist"):
            env.render(index)  # type: ignore[arg-type]


def test_steps_return_copies() -> None:
    env = Ant(num_envs=2)
    env.reset(0)
    step = env.step(np.zeros((2, 8)))
    reached = step.next_obs.copy()
    step.obs[:] = env.restart(np.arange(2), [1, 2])
    step.terminated[:] = True
    np.testing.assert_array_equal(step.next_obs, reached)
    assert not step.truncated.any()


def test_open_plane_counts_cells_in_its_box() -> None:
    spec = HalfCheetah(num_envs=1).spec
    assert spec.scaling is not None
    raw = np.zeros((4, 1, 18), np.float32)
    raw[:, 0, 0] = [-24.5, 0.5, 60.0, -400.0]
    assert int(visited_cells(spec, spec.scaling.normalise(raw))[0]) == 2


WITHOUT = """
import ctypes, os
loads = ctypes.CDLL
def missing(name, *rest, **more):
    if name and "EGL" in str(name):
        raise OSError(name)
    return loads(name, *rest, **more)
ctypes.CDLL = missing
"""
DRAW = """
from susd.envs import make
from susd.errors import UserError
for name in ("half_cheetah", "half_cheetah", "kitchen"):
    env = make(name, num_envs=1)
    env.reset(0)
    try:
        env.render()
    except UserError as error:
        print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "gl", "count", "sentence"),
    [
        (WITHOUT, "", 3, "need OpenGL, which cannot be started"),
        (WITHOUT, "egl", 3, "need OpenGL, which cannot be started"),
        ("", "disabled", 3, "need OpenGL, which cannot be started"),
        ("", "glfw", 3, "need OpenGL, which cannot be started"),
        ("", "foo", 0, "the environment variable MUJOCO_GL is 'foo'; allowed: egl, osmesa, glfw, disabled"),
    ],
)
def test_runs_without_opengl(before: str, gl: str, count: int, sentence: str) -> None:
    kept = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    command = [sys.executable, "-c", before + DRAW]
    child = subprocess.run(command, env=kept | {"MUJOCO_GL": gl}, capture_output=True, text=True, timeout=120)
    assert child.returncode == (0 if count else 1), child.stderr
    assert child.stdout.count(sentence) == count
    assert sentence in (child.stdout if count else child.stderr)
    assert [line.split(" need")[0] for line in child.stdout.splitlines()] == [
        *2 * ["images of the half cheetah"],
        "images of the kitchen",
    ][:count]


def test_functional_environments_need_no_opengl() -> None:
    code = "import os, susd.training.train, susd.evaluation.evaluate; assert os.environ['MUJOCO_GL'] == 'foo'"
    child = subprocess.run([sys.executable, "-c", code], env=os.environ | {"MUJOCO_GL": "foo"}, timeout=120)
    assert child.returncode == 0
