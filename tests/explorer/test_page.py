"""The page in a real browser: steering, every control, the keyboard, phones, links, two runs."""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image, ImageSequence

from explorer.agents import random_agent
from explorer.browser import Page
from explorer.conftest import serving
from susd.explorer import model as model_module
from susd.explorer.model import Model
from susd.explorer.server import Server
from susd.training.agent import load

pytestmark = pytest.mark.slow  # a browser

Open = Callable[..., Page]
OBS = "susd.stages[0].frame.obs"
PAD = ".part:nth-of-type({}) .pad"


def observed(page: Page) -> np.ndarray:
    return np.array(page.eval(OBS))


def steps(page: Page, count: int) -> None:
    """Wait until so many more steps were drawn."""
    start = page.eval("susd.stages[0].frame.time")
    page.wait(f"susd.stages[0].frame.time >= {start + count} || susd.stages[0].frame.time < {start}")


def button(page: Page, label: str) -> None:
    page.click(f'[aria-label="{label}"]')


def skill(page: Page) -> list[float]:
    found: list[float] = page.eval("susd.skill")
    return found


@pytest.fixture
def explorer(page: Open, server: Server) -> Page:
    """The page of skills that steer perfectly, paused at its start."""
    found = page(server.url)
    found.wait("susd.stages[0].frame.time > 3")  # it plays by itself
    button(found, "Pause")
    found.eval("susd.reset()")
    found.wait("susd.stages[0].frame.time === 0 && !susd.busy")
    return found


def test_loads_alone(page: Open, server: Server) -> None:
    found = page(server.url)
    found.wait("susd.gallery.data && susd.cards[0].map.measured && susd.stages[0].frame.time > 10")
    assert {urlsplit(url).netloc for url in found.requests if not url.startswith("data:")} == {urlsplit(server.url).netloc}
    assert found.eval("document.title") == "2D-Gunner · SUSD · susd"


def test_dragging_a_pad_moves_its_factor(explorer: Page) -> None:
    """East, then north: the agent goes there; the gun, frozen first, is not moved by it."""
    explorer.eval("susd.steer(2, [0, 1], true); susd.toggleFreeze(2)")
    button(explorer, "Play")
    explorer.drag(PAD.format(1), (0.5, 0.5), (0.7, 0.5), (0.94, 0.5))
    assert skill(explorer)[0] > 0.99
    before = observed(explorer)
    steps(explorer, 3)
    after = observed(explorer)
    assert after[4] > before[4] + 0.2
    assert abs(after[5] - before[5]) < 0.02
    assert abs(after[17] - before[17]) < 0.02
    explorer.drag(PAD.format(1), (0.94, 0.5), (0.5, 0.06))
    steps(explorer, 1)
    before = observed(explorer)
    steps(explorer, 3)
    assert observed(explorer)[5] > before[5] + 0.2


def test_latency(explorer: Page) -> None:
    """From a drag to the drawing of a frame that it changed: the third best of ten, since others use the machine."""
    button(explorer, "Play")
    script = """(async () => {
        const times = [];
        for (let k = 0; k < 10; k++) {
            await new Promise((done) => setTimeout(done, 150));
            const began = performance.now(), value = [Math.cos(k), Math.sin(k)];
            susd.steer(0, value, true);
            const wanted = JSON.stringify(susd.skill);
            while (JSON.stringify(susd.stages[0].segments.at(-1).control.skill) !== wanted)
                await new Promise(requestAnimationFrame);
            await new Promise(requestAnimationFrame);
            times.push(performance.now() - began);
        }
        return times.sort((a, b) => a - b)[2];
    })()"""
    assert explorer.eval(script) < 100


def test_idle_page_draws_nothing(explorer: Page) -> None:
    explorer.wait("!susd.awake && !susd.asking")
    explorer.eval("window.ticks = 0; const tick = susd.tick; susd.tick = function () { ticks += 1; tick.call(susd); }")
    time.sleep(0.5)
    assert explorer.eval("ticks") == 0


ROUNDED = 2e-4  # the page shows four digits


def test_pads(explorer: Page) -> None:
    first = skill(explorer)
    button(explorer, "Freeze agent")
    explorer.drag(PAD.format(1), (0.5, 0.1))
    button(explorer, "Randomise agent")
    assert skill(explorer) == pytest.approx(first, abs=ROUNDED)
    explorer.click(".tools .button:nth-child(1)")  # randomise all
    changed = skill(explorer)
    assert changed[:2] == pytest.approx(first[:2], abs=ROUNDED)
    assert changed[2:] != first[2:]
    explorer.click(".tools .button:nth-child(2)")  # undo
    assert skill(explorer) == pytest.approx(first, abs=ROUNDED)
    button(explorer, "Freeze agent")
    button(explorer, "Sweep ammo")
    explorer.wait(f"Math.abs(susd.skill[2] - {first[2]}) > 0.05")
    assert skill(explorer)[:2] == pytest.approx(first[:2], abs=ROUNDED)
    button(explorer, "Sweep ammo")
    explorer.eval("document.querySelector('[aria-label=\"target: degrees\"]').value = 90")
    explorer.eval("document.querySelector('[aria-label=\"target: degrees\"]').dispatchEvent(new Event('change'))")
    assert skill(explorer)[4:] == pytest.approx([0.0, 1.0], abs=1e-3)
    assert explorer.eval(f"document.querySelector('{PAD.format(3)}').getAttribute('aria-valuetext')") == "90°"


def test_what_else_moved(explorer: Page) -> None:
    """Perfect skills: the agent's part moves the agent, and the picker that hangs on it, but not the gun."""
    explorer.eval("susd.select(2)")
    values = "[...document.querySelectorAll('.bar-value')].map((node) => parseFloat(node.textContent))"
    explorer.wait(f"{values}[2] > 50 && {values}[0] === 0")
    explorer.click(".part:nth-of-type(1) .part-name")
    explorer.wait(f"{values}[0] > 50")


def test_gallery(explorer: Page) -> None:
    explorer.wait("susd.gallery.data")
    explorer.click(".tile:nth-child(5)")
    assert np.allclose(skill(explorer), explorer.eval("susd.gallery.data.skills[4]"), atol=2e-3)
    assert explorer.eval("document.querySelectorAll('.tile.current').length") == 1
    first = explorer.eval("susd.gallery.data.skills[0]")
    explorer.click('[aria-label="48 skills"] .button')
    explorer.wait(f"JSON.stringify(susd.gallery.data.skills[0]) !== '{json.dumps(first, separators=(',', ':'))}'")


def test_goals(explorer: Page) -> None:
    """A click in the drawing or in a map sends the part there; a drag of its pad takes over again."""
    explorer.wait("susd.cards[0].map.measured")
    explorer.click(".scene", (0.8, 0.3))
    goal = explorer.eval("susd.stages[0].goals[0].to")
    assert goal == pytest.approx([4.2, 3.7], abs=0.3)
    explorer.click(".part:nth-of-type(2) .phi-map", (0.3, 0.3))
    assert len(explorer.eval("susd.stages[0].goals[1].phi")) == 2
    button(explorer, "One step")
    explorer.wait("susd.stages[0].frame.time > 0 && !susd.busy")
    assert not np.allclose(explorer.eval("susd.stages[0].frame.skill"), skill(explorer), atol=1e-3)
    button(explorer, "Stop the goal of ammo")
    assert explorer.eval("susd.stages[0].goals[1]") is None
    explorer.drag(PAD.format(1), (0.5, 0.1))
    assert explorer.eval("susd.stages[0].goals.every((goal) => goal === null)")


def test_episode_controls(explorer: Page) -> None:
    button(explorer, "One step")
    explorer.wait("susd.stages[0].frame.time === 1")
    button(explorer, "Reset the episode")
    explorer.wait("susd.stages[0].frame.time === 0")
    explorer.set("[aria-label=Start]", "3")
    explorer.wait(f"{OBS}[4] > 3.9 && {OBS}[5] > 3.9")
    explorer.set("[aria-label=Seed]", "7")
    explorer.wait("susd.stages[0].episode.seed === 7")
    explorer.set('[aria-label="Steps per second"]', "60", "input")
    assert explorer.eval("susd.rate") == 60
    explorer.click(".transport .check input")
    button(explorer, "Play")
    steps(explorer, 4)
    assert explorer.eval("susd.stages[0].segments.at(-1).control.sampled") is True


def test_task(explorer: Page) -> None:
    explorer.set("select[aria-label=Task]", "gunner-unlim")
    explorer.wait("susd.stages[0].episode.task === 'gunner-unlim' && !susd.busy")
    explorer.eval("susd.setRate(60)")
    explorer.set('[aria-label="Who plays"]', "expert")
    explorer.wait("susd.stages[0].frame.total > 5")
    assert "of 1000" in explorer.eval("document.querySelector('.score').textContent")
    explorer.click(".tasks .button")  # play against the expert
    explorer.wait("susd.stages.length === 2 && susd.stages[1].frame?.time > 20")
    explorer.eval("susd.choosePlayer('skill')")
    assert "opponent" in explorer.eval("document.querySelector('.score').textContent")
    explorer.set("select[aria-label=Task]", "")
    explorer.wait("susd.stages.length === 1 && !susd.stages[0].episode.task")


def test_raw_actions(explorer: Page) -> None:
    """With the keys of the raw actions, and by a slider."""
    explorer.key("k", "k")
    assert explorer.eval("susd.control.player") == "raw"
    before = observed(explorer)
    explorer.key("ArrowRight", number=39, hold=0.5)
    after = observed(explorer)
    assert after[4] > before[4] + 0.2
    assert after[5] == before[5]
    explorer.key("Escape", number=27)
    assert explorer.eval("susd.control.player") == "skill"
    explorer.set('[aria-label="agent y"]', "-1", "input")
    assert explorer.eval("susd.control.player") == "raw"
    explorer.wait(f"{OBS}[5] < {after[5]} - 0.2")


def test_copies(page: Open, gunner: Path) -> None:
    """The Python of what is seen gives the action that was taken."""
    with serving(Model(load(gunner), gunner)) as server:
        found = page(server.url)
        found.eval("susd.play(false); navigator.clipboard.writeText = async (text) => { window.copied = text; }")
        found.wait("!susd.busy")
        found.click(".header-tools .button:nth-child(2)")
        given: dict[str, Any] = {}
        exec(found.wait("window.copied"), given)
        found.eval("susd.single()")
        found.wait("!susd.busy")
        assert np.allclose(given["action"], found.eval("susd.stages[0].frame.action"), atol=1e-4)


def test_header(explorer: Page) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    light = explorer.eval(paper)
    button(explorer, "Light or dark")
    button(explorer, "Light or dark")
    assert explorer.eval(paper) != light
    button(explorer, "Help and keys")
    assert explorer.eval("document.querySelector('.help').open")
    explorer.key("Escape", number=27)
    explorer.wait("!document.querySelector('.help').open")
    explorer.eval("window.made = []; URL.createObjectURL = (blob) => { made.push(blob.size); return 'data:,'; }")
    button(explorer, "Record a video")
    time.sleep(1.5)  # an encoder that starts slowly must have seen frames
    button(explorer, "Record a video")
    explorer.wait("made[0] > 500")


def test_gif(explorer: Page) -> None:
    """A GIF of what is seen: its size, its frames, its colours."""
    explorer.eval("window.made = []; URL.createObjectURL = (blob) => { made.push(blob); return 'data:,'; }")
    button(explorer, "Record a GIF")
    explorer.wait("susd.recorder.frames.length >= 4")
    button(explorer, "Record a GIF")
    explorer.wait("made[0]?.type === 'image/gif' && !susd.recorder.active")
    count = explorer.eval("susd.recorder.frames.length")
    assert count == 0
    text = explorer.eval("made[0].arrayBuffer().then((b) => btoa(String.fromCharCode(...new Uint8Array(b))))")
    with Image.open(io.BytesIO(base64.b64decode(text))) as image:
        assert image.size == (360, 360)
        assert image.n_frames >= 4
        frames = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(image)]
    assert np.abs(frames[0][2, 2].astype(int) - 252).max() < 8  # the paper of the drawing
    assert (frames[0] != frames[-1]).any()


@pytest.fixture(scope="module")
def ant() -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch, serving(Model(random_agent("ant"))) as found:
        patch.setattr(model_module, "LONGEST_PATH", 20)  # steps of the gallery
        yield found


def test_bodies(page: Open, ant: Server) -> None:
    """A simulation is drawn from poses; its view is turned by mouse, wheel, keys and buttons, and is part of a link."""
    found = page(ant.url)
    found.wait("susd.stages[0].frame.time > 5")
    view = "JSON.stringify(susd.stages[0].camera.state)"
    seen = [found.eval(view)]
    found.drag(".scene", (0.5, 0.6), (0.6, 0.6), (0.7, 0.5))
    seen.append(found.eval(view))
    assert found.eval("susd.stages[0].goals.every((goal) => goal === null)")  # a drag is no click
    found.key("ArrowLeft", number=37)
    seen.append(found.eval(view))
    for label in ("Closer", "Follow the body"):
        button(found, label)
        seen.append(found.eval(view))
    assert len(set(seen)) == 5
    found.eval("susd.play(false)")
    found.wait("!susd.busy")
    found.eval("susd.copyLink()")
    other = page(found.wait("location.hash.length > 20 && location.href"))
    assert other.eval(view) == seen[-1]
    poses = "susd.stages[0].frame.poses"
    assert other.eval(poses) == found.eval(poses)
    button(found, "Reset the view")
    assert found.eval(view) == seen[0]
    assert found.eval("susd.stages[0].camera.target(null)[2] > 0.5")


def test_ground(page: Open, ant: Server) -> None:
    """A click on the ground, or in the small map, sends the body there."""
    found = page(ant.url)
    found.wait("susd.stages[0].frame.time > 2 && susd.cards[0].map.measured")
    found.eval("susd.play(false)")
    found.wait("!susd.busy && !susd.awake")
    spot = """(() => { const s = susd.stages[0], { width, height } = s.canvas.getBoundingClientRect();
        const p = s.camera.view(s.frame.poses, width, height, 0).project([1, 1, 0]);
        return [p.x / width, p.y / height]; })()"""
    found.click(".scene", found.eval(spot))
    assert found.eval("susd.stages[0].goals[0].to") == pytest.approx([1, 1], abs=0.03)
    found.click(".scene", (0.87, 0.13))
    assert np.abs(found.eval("susd.stages[0].goals[0].to")).max() < 0.3
    button(found, "One step")
    found.wait("susd.stages[0].frame.time > 2 && !susd.busy")
    assert not np.allclose(found.eval("susd.stages[0].frame.skill"), skill(found), atol=1e-3)


def test_frames_per_second(page: Open, ant: Server) -> None:
    """Thirty drawings a second in the best of some quarters of a second, since others use the machine."""
    found = page(ant.url)
    found.wait("susd.gallery.data && susd.cards[0].map.measured")
    found.eval("susd.play(true)")
    script = """(async () => {
        const counts = [], { draw } = Object.getPrototypeOf(susd.stages[0]);
        let drawn = 0;
        susd.stages[0].draw = function (...given) { drawn += 1; return draw.apply(this, given); };
        for (let k = 0; k < 12; k++) {
            const [before, began] = [drawn, performance.now()];
            await new Promise((done) => setTimeout(done, 250));
            counts.push((drawn - before) / (performance.now() - began) * 1000);
        }
        return Math.max(...counts);
    })()"""
    assert found.eval(script) >= 30


def test_small_drawings(explorer: Page) -> None:
    """A state outside of its map is on its edge; trajectories fill their tiles; colours are lighter in the dark."""
    script = """Promise.all(["maps.js", "gallery.js", "ui.js"].map((name) => import(new URL(name, location.href)))).then(
        ([maps, gallery, ui]) => [maps.withinMap([250, 40], 100, 80), maps.withinMap([50, 40], 100, 80),
            gallery.closeUp([[0, 0], [0.2, 0.1]], -1, 1), gallery.closeUp([[-1, 0], [1, 0]], -1, 1),
            ...[["#0072b2", 0], ["#0072b2", 0.3], ["#000000", 0]]
                .map(([c, lift]) => ui.visible(c, { lift, ink: "#eee" }))])"""
    edge, inside, near, whole, *colours = explorer.eval(script)
    assert edge == {"x": 94, "y": 40, "outside": True}
    assert inside == {"x": 50, "y": 40, "outside": False}
    assert np.allclose(near, [[-0.01, -0.06], [0.21, 0.16]])
    assert whole == [[-1, -1], [1, 1]]
    assert colours == ["#0072b2", "#4d9cc9", "#eee"]


def test_says_that_it_compiles(explorer: Page) -> None:
    keep = "(message) => { if (message.type === 'step') window.asked = message.id; }"  # no answer comes
    explorer.eval(f"window.send = susd.stages[0].backend.send; susd.stages[0].backend.send = {keep}")
    explorer.eval("susd.stages[0].answered.clear(); void susd.single()")
    explorer.wait("document.querySelector('.stage-note').checkVisibility()")
    assert explorer.eval("document.querySelector('.stage-note').textContent") == "Compiling …"
    explorer.eval("susd.stages[0].backend.send = window.send")
    explorer.eval("susd.stages[0].receive({ ...susd.stages[0].frame, id: window.asked })")
    explorer.wait("!document.querySelector('.stage-note').checkVisibility() && !susd.busy")


def test_names_of_five_parts_fit(page: Open) -> None:
    with pytest.MonkeyPatch.context() as patch, serving(Model(random_agent("kitchen"))) as server:
        patch.setattr(model_module, "LONGEST_PATH", 5)
        found = page(server.url, width=1280, height=800)
        names = "[...document.querySelectorAll('.part-name span:last-child')]"
        assert found.eval(f"{names}.length") == 5
        assert found.eval(f"{names}.filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.textContent)") == []


def test_keyboard_alone(explorer: Page) -> None:
    explorer.key("2", "2")
    assert explorer.eval("document.activeElement.getAttribute('aria-label')") == "ammo: direction"
    before = explorer.eval("Math.atan2(susd.skill[3], susd.skill[2])")
    explorer.key("ArrowLeft", number=37)
    turned = explorer.eval("Math.atan2(susd.skill[3], susd.skill[2])") - before
    assert np.isclose(np.degrees(turned) % 360, 5, atol=0.1)
    explorer.key(" ", " ", "Space", 32)
    explorer.wait("susd.playing")
    explorer.key(" ", " ", "Space", 32)
    explorer.wait("!susd.playing")
    time_before = explorer.eval("susd.stages[0].frame.time")
    explorer.key(".", ".")
    explorer.wait(f"susd.stages[0].frame.time === {time_before + 1}")
    explorer.key("f", "f")
    assert explorer.eval("susd.frozen.has(1)")
    explorer.key("f", "f")
    explorer.key("x", "x")
    explorer.key("u", "u")
    explorer.key("r", "r")
    explorer.wait("susd.stages[0].frame.time === 0")
    reached = []
    for _ in range(90):  # every control can be reached with Tab, and says what it is
        explorer.key("Tab", number=9)
        reached.append(
            explorer.eval(
                "((e) => e.ariaLabel || e.innerText || e.labels?.[0]?.innerText || e.tagName)(document.activeElement)"
            )
        )
    assert {"Play", "One step", "Seed", "Task", "agent x", "Help and keys", "Copy link"} <= set(reached)
    assert not {"INPUT", "BUTTON", "SELECT"} & set(reached)


def test_phone(page: Open, server: Server) -> None:
    found = page(server.url, width=390, height=844, phone=True)
    found.wait("susd.gallery.data && susd.stages[0].frame.time > 5")
    assert found.eval("document.documentElement.scrollWidth") <= 390
    assert (
        found.eval("Math.max(...[...document.querySelectorAll('body *')].map((e) => e.getBoundingClientRect().right))")
        <= 391
    )
    found.box(PAD.format(3))  # scrolls there
    top, bottom = found.eval(
        "(() => { const b = document.querySelector('.scene').getBoundingClientRect(); return [b.top, b.bottom]; })()"
    )
    assert -1 <= top < bottom < 500  # the drawing stays in view above the pad


def test_layout_does_not_jump(explorer: Page) -> None:
    boxes = """JSON.stringify([...document.querySelectorAll(".block, .part, .transport, .scene")].map((e) => {
        const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height].map(Math.round); }))"""
    explorer.wait("susd.gallery.data && susd.cards[0].map.measured")
    explorer.eval("window.scrollTo(0, 0)")
    before = explorer.eval(boxes)
    button(explorer, "Play")
    explorer.eval("susd.sendTo(0, {to: [1, 1]}); susd.toggleSweep(1); susd.select(2)")
    steps(explorer, 8)
    explorer.eval("window.scrollTo(0, 0)")
    assert explorer.eval(boxes) == before


def test_link_restores(explorer: Page, page: Open) -> None:
    explorer.eval("susd.changeEpisode({ layout: '1', seed: 3 })")
    explorer.wait("susd.stages[0].episode.layout === '1'")
    explorer.eval("susd.setSampled(true); susd.steer(0, [0.6, 0.8], true); susd.play(true)")
    steps(explorer, 5)
    explorer.eval("susd.sendTo(0, { to: [1, 4] })")
    steps(explorer, 5)
    explorer.eval("susd.choosePlayer('raw'); susd.raw.set(1, 0.5)")
    steps(explorer, 5)
    explorer.eval("susd.play(false)")
    explorer.wait("!susd.busy")
    explorer.eval("susd.copyLink()")
    link = explorer.wait("location.hash.length > 20 && location.href")
    other = page(link)
    seen = "((s) => [s.frame.time, s.frame.obs, susd.skill, susd.control, s.goals, susd.episode])(susd.stages[0])"
    assert other.eval(seen) == explorer.eval(seen)
    assert not other.eval("susd.playing")
    assert other.eval("susd.stages[0].trail.length") >= 15


def test_broken_link(page: Open, server: Server) -> None:
    found = page(f"{server.url}#garbage")
    assert "could not be read" in found.eval("document.getElementById('toast').textContent")
    found.wait("susd.stages[0].frame.time > 0")


def test_two_runs_side_by_side(page: Open, model: Model) -> None:
    """The same skill in two runs; where their spaces differ, the selected part is the other's skill."""
    with serving(model, Model(random_agent(method="metra"))) as server:
        found = page(server.url)
        found.wait("susd.stages.every((stage) => stage.frame?.time > 3)")
        assert "SUSD beside METRA" in found.eval("document.title")
        found.eval("susd.steer(0, [0, 1], true)")
        steps(found, 2)
        assert found.eval("susd.stages[1].segments.at(-1).control.skill") == [0, 1]
        found.eval("susd.play(false)")
        found.wait("!susd.busy && susd.stages[0].frame.time === susd.stages[1].frame.time")


def test_server_gone(page: Open, model: Model) -> None:
    with serving(model) as server:
        found = page(server.url)
        found.wait("susd.stages[0].frame.time > 0")
    found.wait("document.getElementById('toast').textContent.includes('server has ended')")
    assert found.wait("!susd.playing") is not None
    found.errors.clear()  # the browser reports the lost connection


def test_discrete_skills(page: Open) -> None:
    with serving(Model(random_agent(method="dusdi"))) as server:
        found = page(server.url)
        found.wait("susd.stages[0].frame.time > 3")
        found.click(".part:nth-of-type(1) .pad-button:nth-child(2)")
        assert found.eval("susd.skill.slice(0, 3)")[:2] == [0, 1]
        assert "goals need an embedding" in found.eval("document.body.innerText")
        assert found.eval("document.querySelector('.phi-map')") is None
