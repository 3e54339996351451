"""The self-contained page: it opens from disk, calls nobody, is small, and can be steered; recordings where it must."""

import importlib.util
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import call, refused
from explorer.agents import random_agent, steering_agent
from explorer.browser import Page
from susd.errors import UserError
from susd.explorer import atlas, recorded
from susd.explorer.bodies import find_bodies
from susd.explorer.bundle import bundle
from susd.explorer.recorded import Recorder, record
from susd.training.agent import Agent

pytestmark = pytest.mark.slow  # a browser

ROOT = Path(__file__).parents[2]
Open = Callable[..., Page]
PAD = ".part:nth-of-type({}) .pad"
FRAME = "susd.stages[0].frame"


def write(path: Path, *agents: Agent) -> str:
    """The page of some agents, and its address."""
    path.write_text(atlas.build([(agent, None) for agent in agents], ["run"] * len(agents)), encoding="utf-8")
    return path.as_uri()


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="atlas">(.*?)</script>', page, re.DOTALL)
    assert found
    return dict(json.loads(found[1]))


@pytest.fixture(scope="module")
def steered(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("atlas") / "gunner.html", steering_agent(layers=1, hidden=12))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recordings of few steps and few pairs."""
    monkeypatch.setattr(recorded, "LONGEST_PATH", 6)
    monkeypatch.setattr(recorded, "PAIR_DIRECTIONS", (2,))


def test_command(gunner: Path, tmp_path: Path, page: Open, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "atlas.html"
    call("atlas", gunner, "--beside", gunner, "--out", out)
    assert capsys.readouterr().out.startswith(str(out))
    text = out.read_text(encoding="utf-8")
    assert len(text.encode()) < 1_000_000
    assert str(gunner) not in text  # a page may be published
    assert not re.search(r"(?:src|href)=\"(?!data:)", text)
    found = page(out.as_uri())
    found.wait(f"{FRAME}.time > 5 && susd.gallery.data && susd.stages.length === 2")
    assert found.requests == [out.as_uri()]


@pytest.mark.parametrize(("out", "words"), [("atlas.txt", "ends in .html"), ("no/such/atlas.html", "folder that exists")])
def test_wrong_out(gunner: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], out: str, words: str) -> None:
    assert words in refused(capsys, "atlas", gunner, "--out", tmp_path / out)
    assert not list(tmp_path.iterdir())


def test_wrong_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing" in refused(capsys, "atlas", tmp_path / "nothing", "--out", tmp_path / "atlas.html")
    with pytest.raises(UserError, match="one run or two"):
        atlas.atlas([], tmp_path / "atlas.html")
    assert not list(tmp_path.iterdir())


def test_steering(page: Open, steered: str) -> None:
    """A pad moves its own factor, and the bars say so."""
    found = page(steered)
    found.wait(f"{FRAME}.time > 2")
    found.eval("susd.reset()")
    found.drag(PAD.format(1), (0.5, 0.5), (0.98, 0.5))
    found.wait(f"{FRAME}.obs[4] > 4.9")
    found.drag(PAD.format(1), (0.5, 0.5), (0.02, 0.5))
    found.wait(f"{FRAME}.obs[4] < 0.1")
    found.wait("susd.influence.rows[0].value.textContent !== '–'")
    shares = found.eval("susd.influence.rows.map(({ value }) => parseInt(value.textContent))")
    assert shares[0] > 50
    assert shares[2] < shares[0]
    found.click(".tile:nth-of-type(7)")
    assert found.eval("susd.gallery.data.skills[6].every((x, i) => Math.abs(x - susd.skill[i]) < 1e-3)")


def test_goal(page: Open, tmp_path: Path) -> None:
    """A click in the drawing reaches the networks in the page."""
    found = page(write(tmp_path / "a.html", random_agent()))
    found.wait("susd.cards[0].map.measured")
    found.click(".scene", at=(0.3, 0.3))
    found.wait(f"susd.stages[0].goals[0]?.to && {FRAME}.skill.some((x, i) => Math.abs(x - susd.skill[i]) > 1e-3)")


def test_task(page: Open, steered: str) -> None:
    found = page(steered)
    found.eval("susd.chooseTask('gunner-unlim').then(() => susd.choosePlayer('expert'))")
    found.eval("susd.setRate(60)")
    found.wait(f"{FRAME}.total > 5")
    assert found.eval("document.querySelector('.score').textContent").startswith("Step ")


def test_link(page: Open, steered: str) -> None:
    """What a link from disk restores."""
    found = page(steered)
    found.wait(f"{FRAME}.time > 4")
    found.eval("susd.play(false)")
    found.drag(PAD.format(2), (0.5, 0.5), (0.5, 0.02))
    found.eval("susd.play(false)")
    found.eval("susd.copyLink()")
    link = found.wait("location.hash.length > 20 && location.href")
    seen = f"[{FRAME}.time, {FRAME}.obs, susd.skill]"
    assert page(link).eval(seen) == found.eval(seen)


def test_policy(page: Open, steered: str) -> None:
    """The page may neither ask others nor run other scripts."""
    found = page(steered)
    blocked = """new Promise((resolve) => {
      document.addEventListener("securitypolicyviolation", (event) => resolve(event.effectiveDirective), { once: true });
      %s
    })"""
    script = 'document.body.append(Object.assign(document.createElement("script"), { textContent: "window.bad = 1" }));'
    assert found.eval(blocked % script).startswith("script-src")
    assert found.eval(blocked % 'fetch("https://example.invalid/").catch(() => {});') == "connect-src"
    assert found.eval(blocked % 'new Image().src = "https://example.invalid/a.png";') == "img-src"
    assert not found.eval("window.bad")
    found.eval("1")
    found.errors.clear()  # the browser reports what it refused


def test_phone(page: Open, steered: str) -> None:
    found = page(steered, width=390, height=844, phone=True)
    found.wait(f"{FRAME}.time > 3 && susd.gallery.data")
    assert found.eval("document.documentElement.scrollWidth") <= 390


def test_large_networks_are_recorded(short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atlas, "EMBEDDED_BYTES", 10_000)
    run = data_of(atlas.build([(random_agent(), None)], ["run"]))["runs"][0]
    assert "recordings" in run
    assert run["hello"]["scene"]["kind"] == "gunner"


def test_docs(gunner: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shipped skills become pages of the site, which are kept between builds."""
    hooks = load_file(ROOT / "docs" / "hooks.py")
    monkeypatch.setenv("SUSD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(hooks, "SKILLS", tmp_path / "skills")
    assert hooks.atlas_list() == ""
    hooks.atlases.cache_clear()
    shutil.copytree(gunner, tmp_path / "skills" / "mine")
    (made,) = hooks.atlases().values()
    assert data_of(made.read_text())["runs"][0]["hello"]["run"]["path"] == "mine"
    assert 'href="atlas/mine.html"' in hooks.atlas_list()
    before = made.stat().st_mtime_ns
    hooks.atlases.cache_clear()
    assert [path.stat().st_mtime_ns for path in hooks.atlases().values()] == [before]


def load_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("hooks", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- recordings -----------------------------------------------------------------------------------------------------

TALK = """
const run = new local.RecordedRun(data.run);
await run.ready;
const backend = new local.RecordedBackend(run);
const frames = [];
for (const [type, skill, steps] of data.requests) {
  const control = { player: "skill", skill };
  const { image, ...frame } = await backend.answer({ type, episode: {}, steps, control, part: 0 });
  frames.push(frame);
}
return { frames, first: run.path(0), joints: run.path(1, run.joints), phi: run.path(2, run.phi) };
"""


def test_recordings(short: None, js: Callable[..., Any]) -> None:
    made = random_agent("ant", factors="5")
    run = record(made, None, 3_000_000)
    skills = run["recordings"]["skills"]
    requests: list[Any] = [["reset", None, 0], *(["step", skills[0], 1] for _ in range(8)), ["step", skills[60], 2]]
    found = js(TALK, {"run": run, "requests": [*requests, ["influence", None, 0], ["gallery", None, 0], ["maps", None, 0]]})
    frames, influence, gallery, maps = found["frames"][:-3], *found["frames"][-3:]
    assert [frame["time"] for frame in frames] == [0, 0, 1, 2, 3, 4, 5, 6, 0, 1]  # a new skill and the end start again
    assert [frame["ended"] for frame in frames] == [True, True, *[False] * 6, True, True]
    assert frames[-1]["skill"] == skills[60]

    close_to(found, made, run)
    assert len(influence["change"]) == len(made.factorization.names)
    assert max(influence["change"]) > 0
    assert np.shape(gallery["paths"])[:3] == (48, len(made.trainer.env.spec.planes), 7)
    assert len(maps["parts"]) == made.trainer.learner.method.skills.parts


def test_recordings_fit(short: None) -> None:
    """With less room there are fewer pairs of parts, then shorter trajectories."""
    made = random_agent("half_cheetah", factors="3")
    sizes = {room: record(made, None, room) for room in (3_000_000, 58_000, 40_000)}
    for room, run in sizes.items():
        assert len(json.dumps(run)) < room
    counts = [len(run["recordings"]["skills"]) for run in sizes.values()]
    assert counts == [48 + 1 + 3 * 16 + 3 * 4, 48 + 1 + 3 * 16, 48 + 1 + 3 * 16]
    assert [run["recordings"]["times"] for run in sizes.values()] == [7, 7, 4]


def close_to(found: dict[str, Any], made: Agent, run: dict[str, Any]) -> None:
    """What was decoded in the browser is what the environment did, up to 16 bits per value."""
    from susd.explorer.model import Model

    model, skills = Model(made), np.array(run["recordings"]["skills"], np.float32)
    recorder = Recorder(model, model.environment())  # type: ignore[arg-type]
    columns = [recorder.rollout(skill[None]) for skill in skills[:3]]
    size, joints = made.trainer.env.spec.obs_size, run["recordings"]["columns"]["joints"]
    step = (np.array(run["recordings"]["high"]) - run["recordings"]["low"]) / 65535 + 1e-4
    assert (np.abs(np.array(found["first"]) - columns[0][:, :size]) <= step[:size]).all()
    assert (np.abs(np.array(found["joints"]) - columns[1][:, size : size + joints]) <= step[size : size + joints]).all()
    assert (np.abs(np.array(found["phi"]) - columns[2][:, size + joints :]) <= step[size + joints :]).all()
    obs = np.random.default_rng(0).normal(size=(1, size)).astype(np.float32)
    np.testing.assert_allclose(recorder.act(obs, skills[:1]), made.act(obs, skills[:1]), atol=1e-5)


@pytest.mark.parametrize("env", ["ant", "half_cheetah", "kitchen", "gymnasium:Pusher-v5"])
def test_poses(js: Callable[..., Any], env: str) -> None:
    """From the joints alone the page computes the poses of MuJoCo."""
    from susd.envs import make

    made: Any = make(env, num_envs=1)
    made.reset(3)
    bodies = find_bodies(made)
    assert bodies is not None
    joints, poses = [], []
    for _ in range(4):
        made.step(np.random.default_rng(0).uniform(-1, 1, (1, made.spec.action_size)))
        joints.append(bodies.joints().tolist())
        poses.append(bodies.poses().reshape(-1, 7))
    asked = {"tree": bodies.tree(), "joints": joints}
    found = np.array(js("return data.joints.map((one) => local.kinematics(data.tree, one));", asked)).reshape(4, -1, 7)
    np.testing.assert_allclose(found[..., :3], np.stack(poses)[..., :3], atol=1e-4)
    assert (np.abs((found[..., 3:] * np.stack(poses)[..., 3:]).sum(axis=-1)) > 1 - 1e-5).all()
    assert np.ptp(poses, axis=0).max() > 1e-3


def test_recorded_page(short: None, page: Open, tmp_path: Path) -> None:
    """Bodies are drawn, a pad changes the recording, and what recordings cannot do is not there."""
    address = write(tmp_path / "a.html", random_agent("ant", factors="5"))
    assert (tmp_path / "a.html").stat().st_size < 3_000_000
    found = page(address)
    found.wait("susd.gallery.data && !!susd.stages[0].frame.poses")
    assert found.requests == [address]
    before = found.eval(f"{FRAME}.skill")
    found.drag(PAD.format(2), (0.5, 0.5), (0.98, 0.5))
    found.wait(f"{FRAME}.skill.some((x, i) => Math.abs(x - {json.dumps(before)}[i]) > 0.1)")
    colours = """(() => {
      const c = document.querySelector(".scene"), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
      return new Set(Array.from({ length: 4000 }, (_, i) => d[4 * Math.floor(i * d.length / 16000)])).size; })()"""
    assert found.eval(colours) > 30
    shown = found.eval("document.body.innerText")
    assert "Recorded trajectories" in shown
    for word in ("Raw actions", "Task", "Seed", "Sampled", "Other skills"):
        assert word not in shown


def test_own_environment(short: None, page: Open, tmp_path: Path) -> None:
    """An environment without a drawing is shown as plots."""
    found = page(write(tmp_path / "a.html", random_agent("gymnasium:Pendulum-v1")))
    found.wait(f"{FRAME}.time > 2")
    assert found.eval("susd.hello.scene.kind") == "plots"


# --- the script -----------------------------------------------------------------------------------------------------


def test_bundle(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("export const one = 1;\nexport function two() {\n  return 2;\n}\n")
    (tmp_path / "b.js").write_text('import { one, two as other } from "./a.js";\nexport const three = one + other();\n')
    text = bundle(tmp_path / "b.js")
    assert "import" not in text
    assert "export" not in text
    assert text.index("_a = ") < text.index("_b = ")


@pytest.mark.parametrize("line", ['import a from "./a.js";', "export default 3;", "export { x };", 'import "./a.js";'])
def test_bundle_refuses(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.js").write_text("export const x = 1;\n")
    (tmp_path / "b.js").write_text(f"{line}\n")
    with pytest.raises(ValueError, match="cannot bundle"):
        bundle(tmp_path / "b.js")


def test_bundle_refuses_a_cycle(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text('import { b } from "./b.js";\nexport const a = 1;\n')
    (tmp_path / "b.js").write_text('import { a } from "./a.js";\nexport const b = 1;\n')
    with pytest.raises(ValueError, match="import each other"):
        bundle(tmp_path / "a.js")
