"""Sessions: every kind of environment, skill, player and goal, without a browser."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import call
from explorer.agents import random_agent
from susd import plugins
from susd.errors import UserError
from susd.explorer.bodies import Bodies
from susd.explorer.describe import _title, describe
from susd.explorer.explore import load_models
from susd.explorer.model import Model
from susd.explorer.own_tasks import find_tasks
from susd.explorer.session import Session
from susd.tasks.gunner import GunnerTask
from susd.training.agent import load


def step(session: Session, steps: int = 1, **control: Any) -> dict[str, Any]:
    return session.answer({"type": "step", "steps": steps, "control": control})


def slow(session: Session, kind: str, **request: Any) -> dict[str, Any]:
    return session.prepare({"type": kind, **request})()


def reset(session: Session, **episode: Any) -> dict[str, Any]:
    return session.answer({"type": "reset", "episode": episode})


@pytest.fixture(scope="module")
def steered(model: Model) -> Session:
    found = Session(model)
    found.open()
    return found


def test_describes_the_run(steered: Session) -> None:
    hello = steered.open()
    assert [(part["name"], part["kind"], part["at"]) for part in hello["parts"]] == [
        ("agent", "ring", 0),
        ("ammo", "ring", 2),
        ("target", "ring", 4),
    ]
    assert hello["scene"] == {"kind": "gunner"}
    assert [plane["name"] for plane in hello["env"]["planes"]] == ["agent", "picker"]
    assert [task["name"] for task in hello["tasks"]] == ["gunner-unlim", "gunner-lim"]
    assert len(hello["env"]["actions"]) == 6


@pytest.mark.parametrize(
    ("options", "kind", "radius"),
    [
        ({"prior": "factor_ball"}, "disc", 1.0),
        ({"skill_dim": 3}, "sliders", 1.0),
        ({"method": "dusdi"}, "buttons", 1.0),
        ({"method": "diayn"}, "disc", 2.5),
        ({"method": "metra"}, "ring", 1.0),
    ],
)
def test_controls_of_every_prior(options: dict[str, Any], kind: str, radius: float) -> None:
    hello = Session(Model(random_agent(**options))).open()
    assert {(part["kind"], part["radius"]) for part in hello["parts"]} == {(kind, radius)}


def test_same_controls_same_episode(steered: Session) -> None:
    controls = [({"player": "skill", "skill": [0.6, 0.8, 1, 0, 0, 1], "sampled": True}, 3)]
    controls += [({"player": "raw", "raw": [0.1, -1, 0, 0, 0, 0.5]}, 2), ({"player": "skill", "skill": [1] * 6}, 4)]
    episode = {"seed": 3, "layout": "2"}
    reset(steered, **episode)
    for control, steps in controls:
        frame = step(steered, steps, **control)
    segments = [{"control": control, "steps": steps} for control, steps in controls]
    again = steered.answer({"type": "replay", "episode": episode, "segments": segments})
    assert len(again.pop("trail")) == 9
    assert again | {"reward": 0} == frame | {"reward": 0}
    other = steered.answer({"type": "replay", "episode": episode | {"seed": 4}, "segments": segments})
    assert other["obs"] != frame["obs"]


def test_influence_is_the_control_matrix_by_hand(steered: Session) -> None:
    """The parts of these skills move their own factor; the picker hangs on the agent."""
    reset(steered, seed=0)
    skill = {"skill": [1, 0, 1, 0, 1, 0]}
    rows = [slow(steered, "influence", part=part, control=skill) for part in range(3)]
    assert [row["from"] for row in rows] == ["here"] * 3
    matrix = np.array([row["change"] for row in rows])
    assert (np.diag(matrix) > 0.35).all()
    assert np.allclose(matrix[[1, 2, 2], [0, 0, 1]], 0.0, atol=1e-3)


def test_goals(steered: Session) -> None:
    reset(steered, seed=0)
    to = [None, None, {"to": [4.0, 4.0]}]
    acting = step(steered, skill=[1, 0, 1, 0, 1, 0], goals=to)["skill"]
    assert acting[:4] == [1, 0, 1, 0]
    assert acting[4:] != [1, 0]
    box = slow(steered, "maps")["parts"][0]
    assert all(low < high for low, high in zip(box["low"], box["high"], strict=True))
    discrete = Session(Model(random_agent(method="dusdi")))
    with pytest.raises(UserError, match="no embedding"):
        step(discrete, skill=[0.0] * discrete.model.space.size, goals=[{"phi": [0.0] * 5}, None, None])
    assert slow(discrete, "maps")["parts"] == [None] * 3


def test_task_and_expert(steered: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GunnerTask, "horizon", 60)
    reset(steered, task="gunner-unlim", layout="centre")
    frame = step(steered, 59, player="expert")
    assert frame["total"] == frame["reward"] > 59
    assert not frame["done"]
    assert step(steered, player="raw", raw=[0] * 6)["done"]
    with pytest.raises(UserError, match="is over"):
        step(steered, player="expert")
    with pytest.raises(UserError, match="no task 'kitchen-bip' here"):
        reset(steered, task="kitchen-bip")
    assert reset(steered)["time"] == 0
    with pytest.raises(UserError, match="only a task has an expert"):
        step(steered, player="expert")


@pytest.mark.slow
@pytest.mark.parametrize("interface", ["skill", "goal"])
def test_saved_policy_plays(gunner: Path, interface: str, tmp_path: Path) -> None:
    """A finished result plays its task again: the same total as in its evaluation."""
    gunner = Path(shutil.copytree(gunner, tmp_path / "run"))  # others read it, too
    small = ("--episodes", 2, "--eval-every", 2, "--hidden", 8, "--num-envs", 2, "--gradient-steps", 1, "--horizon", 50)
    out = gunner / "downstream" / f"test-{interface}"
    call("downstream", gunner, "--task", "unlim", "--interface", interface, "--quiet", "--out", out, *small)
    session = Session(Model(load(gunner), gunner))
    policies = {policy["id"]: policy for policy in session.open()["tasks"][0]["policies"]}
    reset(session, task="gunner-unlim", layout="centre")
    frame = step(session, 50, player="policy", policy=out.name)
    assert frame["total"] == pytest.approx(policies[out.name]["score"], abs=1e-3)
    (out / "policy" / "step-00000002.ckpt").write_bytes(b"damaged")
    other = Session(session.model)
    reset(other, task="gunner-unlim")
    with pytest.raises(UserError, match="damaged"):
        step(other, player="policy", policy=out.name)


@pytest.mark.slow
def test_host_environment() -> None:
    """HalfCheetah: poses of its bodies, an episode of its own for every session, influence from the start."""
    model = Model(random_agent("half_cheetah"))
    session, other = Session(model), Session(model)
    scene = session.open()["scene"]
    assert scene["kind"] == "bodies"
    assert {"plane", "capsule"} == {geom["shape"] for geom in scene["bodies"]["geoms"]}
    skill = [1.0, 0.0]
    frame = step(session, 2, skill=skill)
    torso = 7 * scene["bodies"]["camera"]["body"]
    assert frame["poses"][torso] == pytest.approx(session._env.physics.qpos[0, 0], abs=1e-3)
    assert step(session, skill=skill)["poses"] != frame["poses"]
    assert step(other, skill=skill)["time"] == 1
    assert reset(session, seed=1)["obs"] != reset(session, seed=2)["obs"]
    found = slow(session, "influence", part=0, control={"skill": skill})
    assert found["from"] == "start"
    assert found["change"][0] > 0
    session.close()


def test_environment_of_the_user() -> None:
    """One of Gymnasium, which ends by itself: its bodies are drawn, and its own reward is a task."""
    model = Model(random_agent("gymnasium:InvertedPendulum-v5"))
    session = Session(model)
    hello = session.open()
    assert hello["scene"]["kind"] == "bodies"
    assert hello["scene"]["ground"] is False
    assert hello["can"]["gallery"] is False
    assert [task["name"] for task in hello["tasks"]] == ["reward"]
    reset(session, task="reward")
    frame = step(session, player="raw", raw=[1.0])
    assert frame["total"] == 1.0
    while not frame["done"]:
        frame = step(session, player="raw", raw=[1.0])
    assert frame["ended"]
    assert frame["time"] < 100
    reset(session)
    assert step(session, 64, player="raw", raw=[1.0])["ended"]  # before the last of these steps
    assert not step(session, player="raw", raw=[0.0])["ended"]
    session.close()


def test_names_of_files_and_single_parts() -> None:
    """The folder of a file is not shown; where a skill has one part, redrawing it is another skill."""
    assert _title("/home/me/my_env.py:make") == "my_env.py:make"
    assert _title("gymnasium:ALE/Pong-v5") == "gymnasium:ALE/Pong-v5"
    assert _title("gunner") == "2D-Gunner"
    for method, several in (("susd", True), ("metra", False)):
        assert describe(random_agent(method=method), None, {"kind": "gunner"})["can"]["influence"] is several


def test_plots_where_nothing_can_be_drawn(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = dataclasses.replace(model.spec, name="mine")
    monkeypatch.setattr(model, "spec", spec)
    monkeypatch.setattr(type(model.agent.trainer.env), "render", lambda *_: 1 / 0)
    assert Session(model).open()["scene"] == {"kind": "plots"}


CARTS = """
import gymnasium
import numpy as np
from susd.extend import HostTask


class Carts(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"]}
    factors = {"red": (0, 1), "blue": (2, 3)}
    positions = {"red": (0, 1, -1, 1), "blue": (2, 3, -1, 1)}

    def __init__(self, render_mode=None):
        self.observation_space = gymnasium.spaces.Box(-1, 1, (4,))
        self.action_space = gymnasium.spaces.Box(-1, 1, (4,))
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.zeros(4, np.float32)
        return self.place.copy(), {}

    def step(self, action):
        self.place = np.clip(self.place + 0.1 * np.asarray(action, np.float32), -1, 1)
        return self.place.copy(), float(self.place[0]), False, False, {}

    def render(self):
        return np.full((60, 80, 3), 120, np.uint8)


class Right(HostTask):
    horizon = 30

    def reward(self, step):
        return step.obs[:, 2]
"""
SMALL = ("--episodes", 2, "--eval-every", 2, "--hidden", 8, "--num-envs", 2, "--gradient-steps", 1, "--horizon", 10)


@pytest.fixture(scope="module")
def carts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in an environment of the user, with a learned policy of a task of theirs."""
    folder = tmp_path_factory.mktemp("carts")
    (folder / "carts.py").write_text(CARTS)
    run = folder / "run"
    sizes = ("--epochs", 1, "--episodes", 2, "--hidden", 8, "--phi-hidden", 8, "--gradient-steps", 1, "--batch-size", 8)
    call("train", f"{folder / 'carts.py'}:Carts", "--horizon", 10, *sizes, "--no-eval", "--quiet", "--run", run)
    call("downstream", run, "--task", f"{folder / 'carts.py'}:Right", "--quiet", "--trust", *SMALL)
    return run


@pytest.mark.slow
def test_own_tasks(carts: Path) -> None:
    """The environment's reward and the user's task can be played, the latter also by the policy that was learned."""
    (model,) = load_models([carts], trust=True)
    session = Session(model)
    hello = session.open()
    assert hello["scene"]["kind"] == "image"
    assert hello["reasons"]["tasks"] == ""
    own = f"{carts.parent / 'carts.py'}:Right"
    assert [task["name"] for task in hello["tasks"]] == ["reward", own]
    (policy,) = hello["tasks"][1]["policies"]
    reset(session, task=own)
    frame = step(session, 10, player="policy", policy=policy["id"])
    assert frame["skill"] is not None
    reset(session, task="reward")
    assert step(session, 2, player="raw", raw=[1, 0, 0, 0])["total"] == pytest.approx(0.3, abs=1e-3)
    with pytest.raises(UserError, match="no saved policy"):
        step(session, player="policy", policy=policy["id"])
    reset(session, task=own)
    frame = step(session, 3, player="raw", raw=[0, 0, 1, 0])
    assert frame["total"] == pytest.approx(0.6, abs=1e-3)
    assert frame["image"].startswith("data:image/jpeg;base64,")
    session.close()


@pytest.mark.slow
def test_own_tasks_need_consent(carts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that a result names does not run unless it is trusted; the page says so."""
    agent = load(carts, trust=True)
    config, env = agent.trainer.config, agent.trainer.env
    monkeypatch.setattr(plugins, "_running", set())
    found = find_tasks(config, env, carts, (), trust=False)
    assert found.names == ()
    assert "--trust" in found.reason
    named = f"{carts.parent / 'carts.py'}:Right"
    assert find_tasks(config, env, carts, [named], trust=False) == (((named,), ""))
    with pytest.raises(UserError, match=r"--task is 'reward'"):
        find_tasks(config, env, carts, ["reward"], trust=True)
    with pytest.raises(UserError, match="has no object named 'None_'"):
        find_tasks(config, env, carts, [f"{carts.parent / 'carts.py'}:None_"], trust=True)


def test_stops_when_the_program_ends() -> None:
    """A long rollout in a host environment does not keep the program alive."""
    model = Model(random_agent("half_cheetah"))
    model.stopped = True
    with pytest.raises(UserError, match="the program ends"):
        model.gallery(0, "")


def test_bodies_in_another_process() -> None:
    """The images of the environment remain."""
    session = Session(Model(random_agent("gymnasium:InvertedPendulum-v5", env_options={"parallel": "processes"})))
    assert session.open()["scene"]["kind"] in ("image", "plots")
    session.close()


def test_meshes_are_drawn_as_hulls() -> None:
    import mujoco

    corners = " ".join(f"{x} {y} {z}" for x in (0, 1) for y in (0, 1) for z in (0, 1))
    asset, body = (
        f'<asset><mesh name="m" vertex="{corners}"/></asset>',
        '<worldbody><geom type="mesh" mesh="m"/></worldbody>',
    )
    model = mujoco.MjModel.from_xml_string(f"<mujoco>{asset}{body}</mujoco>")
    (geom,) = Bodies(model, lambda data: None, {}, None).geometry()["geoms"]
    assert len(geom["corners"]) == 8
    assert len(geom["triangles"]) == 12
