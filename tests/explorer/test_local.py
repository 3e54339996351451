"""Environments, tasks and networks in JavaScript, against recordings of the originals, against JAX and the server."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageSequence

from explorer.agents import random_agent, random_weights
from susd.downstream.config import DownstreamConfig
from susd.downstream.interface import FlatActions, GoalActions, SkillActions
from susd.downstream.policy import Restored, build_controller, high_level_policy
from susd.downstream.views import ScaledActor, Views
from susd.envs.multi_particle import fixed_layout
from susd.explorer.embedded import embed
from susd.explorer.model import Model
from susd.explorer.session import Session
from susd.explorer.weights import actor_to_json, phi_to_json, policy_to_json
from susd.skills import PRIORS, SkillSpace
from susd.tasks import make_task
from susd.tools.golden import RECORDINGS
from susd.training.agent import part_names

pytestmark = pytest.mark.slow  # a browser

GOLDEN = Path(__file__).parents[1] / "golden"
Js = Callable[..., Any]  # statements that return a value; they see `data`, and the modules' exports as `local`


EPISODES = """
const { Gunner, MultiParticle, Random, makeTask } = local;
return data.seeds.map((seed, e) => {
  const options = { start: seed in [0, 1, 2, 3] ? seed : "centre", points: data.points[seed], actions: data.kind };
  const env = data.gunner ? new Gunner(options) : new MultiParticle(options);
  const task = data.task && makeTask(env, data.task);
  const random = new Random(0);
  let state = env.reset(random);
  let memory = task && task.begin(random);
  const coins = data.coins && data.coins[e];
  if (coins) memory.indicator = coins[0];
  const first = { obs: [...env.observe(state)], extra: task ? task.extra(memory) : [], reward: 0 };
  return [first, ...data.actions[e].map((action, t) => {
    state = data.gunner ? env.apply(state, action) : env.step(state, action);
    let reward = 0;
    if (task) ({ memory, reward } = task.score(memory, state, random));
    if (coins && memory.steps % 50 === 0) memory.indicator = coins[t + 1];
    return { obs: [...env.observe(state)], extra: task ? task.extra(memory) : [], reward };
  })];
});
"""


def points(seeds: Any) -> dict[str, list[float]]:
    return {str(seed): fixed_layout(seed).ravel().tolist() for seed in seeds if seed >= 0}


def task_json(name: str, **changes: Any) -> dict[str, Any]:
    task: Any = make_task(name)
    options = {"limited": task.limited} if hasattr(task, "limited") else {"agents": list(task.agents)}
    return {"kind": type(task).__name__, "options": options | changes}


@pytest.mark.parametrize("name", RECORDINGS)
def test_recordings(js: Js, name: str) -> None:
    kind = RECORDINGS[name]
    with np.load(GOLDEN / f"{name}.npz") as archive:
        data = dict(archive)
    seeds = data["reset_seed"].astype(int).tolist()
    sent = {"seeds": seeds, "actions": kind.scale(data["action"]).tolist(), "points": points(seeds)}
    sent |= {"gunner": name.startswith("gunner"), "kind": getattr(kind.env, "actions", ""), "task": None, "coins": None}
    if kind.task:
        sent["task"] = task_json(kind.task, **({"agents": data["agents"].astype(int).tolist()} if "agents" in data else {}))
    if "indicator" in data:
        sent["coins"] = data["indicator"].tolist()
    found = js(EPISODES, sent)
    obs, reward, extra = (np.array([[step[key] for step in rows] for rows in found]) for key in ("obs", "reward", "extra"))
    order = data["perm"].astype(int) if kind.raw_order else np.arange(obs.shape[-1])
    assert np.abs(obs - data["obs"][..., order]).max() < 1e-5
    flags = sorted(kind.env.spec.landmarks.values())
    np.testing.assert_array_equal(obs[..., flags], data["obs"][..., order][..., flags])
    if kind.task:
        np.testing.assert_allclose(reward[:, 1:], data["reward"], atol=1e-6)
        np.testing.assert_allclose(extra[:, ::5], data["hl_obs"][..., len(order) :], atol=1e-6)


NETWORKS = """
const { Actor, Phi, floats } = local;
const actor = new Actor(data.actor, data.scale);
const phi = new Phi(data.phi.networks, floats(data.phi.values));
const each = (f) => data.obs.map((obs, i) => f(Float32Array.from(obs), Float32Array.from(data.skills[i]), data.noise[i]));
return {
  mean: each((obs, skill) => [...actor.act(obs, skill)]),
  sampled: each((obs, skill, noise) => [...actor.act(obs, skill, noise)]),
  phi: each((obs) => [...phi.encode(obs)]),
};
"""
METHODS = [
    {"method": "susd"},
    {"method": "susd", "prior": "sphere", "scale_skill": False},
    {"method": "susd", "prior": "gaussian", "actor_activation": "tanh", "layers": 1},
    {"method": "susd", "share_agent": "all", "skill_dim": 3},
    {"method": "susd-wf", "prior": "sphere"},
    {"method": "susd-discrete", "skill_dim": 4},
    {"method": "susd-paced"},
    {"method": "metra"},
    {"method": "lsd"},
    {"method": "csd"},
    {"method": "diayn"},
    {"method": "diayn-discrete", "skill_dim": 5},
    {"method": "dusdi", "features": "filtered"},
    {"method": "susd", "precision": "bfloat16"},
    {"method": "susd", "env": "multi_particle", "factors": "20", "layers": 3},
    {"method": "susd", "env": "kitchen", "phi_input": "own"},
]


@pytest.mark.parametrize("options", METHODS, ids=lambda options: "-".join(map(str, options.values())))
def test_networks(js: Js, options: dict[str, Any]) -> None:
    made = random_agent(**options)
    spec, learner = made.trainer.env.spec, made.trainer.learner
    rng, key = np.random.default_rng(1), jax.random.key(1)
    obs, skills = rng.normal(size=(64, spec.obs_size)).astype(np.float32), made.sample_skill(2, 64)

    @jax.jit
    def act(obs: jax.Array, skills: jax.Array) -> tuple[jax.Array, ...]:
        x = learner.policy_input(obs, skills)
        return made.actor.mode(x), made.actor.sample(x, key), jax.random.normal(key, (64, spec.action_size))

    mean, sampled, noise = (np.asarray(x) for x in act(obs, skills))
    sent = {"obs": obs.tolist(), "skills": skills.tolist(), "noise": noise.tolist()}
    found = js(
        NETWORKS, sent | {"scale": learner.skill_input_scale, "actor": actor_to_json(made.actor), "phi": phi_to_json(made)}
    )
    assert mean.std() > 0.1  # the test is not about values near zero
    np.testing.assert_allclose(found["mean"], mean, atol=1e-4)
    np.testing.assert_allclose(found["sampled"], sampled, atol=1e-4)
    expected = made.encode(obs)
    assert expected.std() > 0.1
    np.testing.assert_allclose(found["phi"], expected, atol=1e-4)


@pytest.mark.parametrize("prior", PRIORS)
def test_skills(js: Js, prior: str) -> None:
    space = SkillSpace(prior, 3, 4)
    vectors = np.random.default_rng(0).normal(size=(30, 12)).astype(np.float32)
    vectors[0] = 0.0
    code = """
    const space = new local.SkillSpace(data.space);
    const random = new local.Random(5);
    const samples = Array.from({ length: 4000 }, () => space.sample(random));
    return {
      project: data.vectors.map((vector) => space.project(vector)),
      towards: data.vectors.map((vector) => space.towards(space.split(vector))),
      samples,
      varied: samples.slice(0, 1000).map((skill) => space.vary(random, skill, 1)),
    };
    """
    found = js(code, {"space": {"prior": prior, "parts": 3, "dim": 4}, "vectors": vectors.tolist()})
    found = {name: np.array(value) for name, value in found.items()}
    np.testing.assert_allclose(found["project"], space.project(jnp.asarray(vectors)), atol=1e-6)
    np.testing.assert_allclose(found["towards"], space.towards(space.split(jnp.asarray(vectors))), atol=1e-6)
    python = np.asarray(space.sample(jax.random.key(0), 4000))
    np.testing.assert_allclose(found["samples"].mean(axis=0), python.mean(axis=0), atol=0.08)
    np.testing.assert_allclose(np.cov(found["samples"].T), np.cov(python.T), atol=0.08)
    lengths = [np.linalg.norm(one.reshape(-1, 4), axis=1) for one in (found["samples"], python)]
    np.testing.assert_allclose(*(np.quantile(one, (0.05, 0.15, 0.35, 0.5, 0.65, 0.8, 0.95)) for one in lengths), atol=0.05)
    kept = np.r_[0:4, 8:12]
    np.testing.assert_array_equal(found["varied"][:, kept], found["samples"][:1000, kept])
    assert (found["varied"] != found["samples"][:1000]).any(axis=1).mean() > 0.7
    np.testing.assert_allclose(found["varied"], space.project(jnp.asarray(found["varied"])), atol=1e-6)


def test_random_numbers(js: Js) -> None:
    found = np.array(js("const random = new local.Random(3); return Array.from(random.normal(20000));"))
    assert abs(found.mean()) < 0.03
    assert abs(found.std() - 1.0) < 0.03
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.03
    assert len({js(f"return new local.Random({seeds}).uniform()") for seeds in ("0, 1", "1, 0", "0, 2", "2, 0", "0")}) == 5


def test_random_layout(js: Js) -> None:
    code = """
    const env = new local.MultiParticle();
    return Array.from({ length: 500 }, (_, seed) => [...env.observe(env.reset(new local.Random(seed)))]);
    """
    obs = np.array(js(code)).reshape(500, 10, 7)
    points = obs[..., 3:]
    assert (obs[..., 1:3] == 0).all()
    assert (np.abs(points) <= 1).all()
    np.testing.assert_allclose(points.mean(axis=0), 0.0, atol=0.12)
    np.testing.assert_allclose(points.std(axis=0), 3**-0.5, atol=0.05)
    assert abs(np.corrcoef(points.reshape(500, -1).T) - np.eye(40)).max() < 0.25


TALK = """
const backend = new local.LocalBackend(new local.LocalRun(data.run));
const answers = [];
backend.onmessage = (message) => answers.push(message);
data.messages.forEach((message, id) => backend.send({ ...message, id }));
while (answers.length < data.messages.length + 1) await new Promise((resolve) => setTimeout(resolve, 5));
if (answers[0].type !== "hello") throw new Error("the first message is not hello");
return answers.slice(1).sort((a, b) => a.id - b.id);
"""


def conversation(session: Session, task: str, actions: int) -> list[dict[str, Any]]:
    """Requests of every kind whose answers do not depend on the random numbers."""
    hello, rng = session.open(), np.random.default_rng(0)
    size, parts = session.model.space.size, session.model.space.parts
    nobody: list[Any] = [None] * parts
    skills = rng.normal(size=(8, size)).round(3).tolist()

    def step(steps: int, **control: Any) -> dict[str, Any]:
        return {"type": "step", "steps": steps, "control": {"player": "skill", "skill": skills[0], **control}}

    free = {"seed": 0, "layout": "", "task": None}
    messages: list[dict[str, Any]] = [{"type": "reset", "episode": free}]
    messages += [step(3, skill=skill) for skill in skills]
    messages += [step(1, player="raw", raw=rng.uniform(-1.5, 1.5, actions).tolist()) for _ in range(4)]
    if hello["can"]["goals"]:
        for handle in hello["handles"]:
            goals = [{"to": [0.7, 0.4]} if part == handle["part"] else None for part in range(parts)]
            messages.append(step(4, goals=goals))
        messages.append(step(4, goals=[{"phi": [0.3] * session.model.space.dim}, *nobody[1:]]))
    messages.append({"type": "reset", "episode": {"seed": 0, "layout": "1", "task": task}})
    messages += [step(7), step(30, player="expert"), {"type": "maps"}]
    segments = [{"steps": 5, "control": {"player": "skill", "skill": skill}} for skill in skills]
    messages.append({"type": "replay", "episode": free, "segments": segments})
    return messages


@pytest.mark.parametrize(
    ("options", "task"),
    [
        ({"method": "susd"}, "gunner-lim"),
        (
            {"method": "susd-paced", "env": "multi_particle", "env_options": {"layout": "fixed"}},
            "multi_particle-seq-easy",
        ),
        ({"method": "dusdi", "env_options": {"start": "2"}}, "gunner-unlim"),
    ],
    ids=["susd", "susd-paced", "dusdi"],
)
def test_answers_like_the_server(js: Js, options: dict[str, Any], task: str) -> None:
    made = random_agent(**options)
    session = Session(Model(made))
    messages = conversation(session, task, made.trainer.env.spec.action_size)
    found = js(TALK, {"run": embed(made, None), "messages": messages})
    for request, answer in zip(messages, found, strict=True):
        expected = session.prepare(request)() if request["type"] == "maps" else session.answer(request)
        assert answer["type"] == expected["type"], answer
        assert set(expected) <= set(answer)
        for name, value in expected.items():
            if value is None or isinstance(value, (str, bool)):
                assert answer[name] == value, name
            elif name != "parts":
                np.testing.assert_allclose(answer[name], value, atol=1e-4, rtol=1e-5, err_msg=f"{name} of {request}")


def test_slow_answers(js: Js) -> None:
    """The gallery and the influence: shapes, and that a part which the policy ignores changes nothing."""
    made = random_agent()
    weights = made.actor.trunk.weights[0]
    weights[18:20] = 0.0  # the first part of the skill
    skill = [1.0, 0.0] * 3
    control = {"player": "skill", "skill": skill}
    messages = [{"type": "influence", "part": part, "control": control} for part in range(3)]
    messages += [{"type": "gallery", "seed": seed, "layout": ""} for seed in (0, 0, 1)]
    run = embed(made, None)
    *influences, gallery, again, other = js(TALK, {"run": run, "messages": messages})
    assert influences[0]["change"] == [0, 0, 0]
    assert all(0 < max(one["change"]) < 3 for one in influences[1:])
    assert {one["from"] for one in influences} == {"here"}
    assert np.shape(gallery["skills"]) == (48, 6)
    assert np.shape(gallery["paths"]) == (48, len(run["hello"]["env"]["planes"]), 51, 2)
    assert np.shape(gallery["phi"]) == (48, 3, 51, 2)
    assert gallery["skills"] == again["skills"] != other["skills"]


def test_refusals(js: Js) -> None:
    made = random_agent()
    bad = [
        {"type": "reset", "episode": {"seed": 0, "layout": "nowhere", "task": None}},
        {"type": "reset", "episode": {"seed": 0, "layout": "", "task": "none"}},
        {"type": "step", "steps": 1, "control": {"player": "policy", "policy": "x"}},
        {"type": "step", "steps": 1},
        {"type": "unknown"},
        {},
    ]
    found = js(TALK, {"run": embed(made, None), "messages": bad})
    assert [one["type"] for one in found] == ["error"] * len(bad)
    assert "nowhere" in found[0]["message"]


def test_high_level_policies(js: Js) -> None:
    """Policies of every kind in the page play like those of the server."""
    made = random_agent("multi_particle", method="susd-paced")
    model, method = Model(made, Path("nowhere")), made.trainer.learner.method
    task, session, run = make_task("seq-easy", made.trainer.env), Session(model), embed(made, None)
    interfaces = {
        "skill": SkillActions(method.skills, made.trainer.policy, 3),
        "goal": GoalActions(method, made.trainer.policy, 3),
        "flat": FlatActions(made.trainer.env.spec.action_size),
    }

    def untrained(kind: str, name: str) -> Restored:
        options: dict[str, Any] = {
            "interface": name,
            "policy": kind,
            "hidden": 16,
            "skill_steps": 3,
            "horizon": 48,
            "scale_view": name == "goal",
        }
        config = DownstreamConfig(task=task.name, layout="1", **options)
        controller = build_controller(config, task, interfaces[name], part_names(made.trainer))
        weights = random_weights(jax.eval_shape(lambda: controller.init(jnp.int32(0)).policy))
        if weights.views is not None:
            size = len(weights.views.mean)
            views = Views.init(size).add(jnp.asarray(np.random.default_rng(0).normal(0.5, 2.0, (50, size)), jnp.float32))
            weights = ScaledActor(weights.actor, views)
        return Restored(interfaces[name], model.goals() if name == "goal" else None, weights)

    for kind, name in (("joint", "skill"), ("factored", "goal"), ("entity", "goal"), ("joint", "flat")):
        restored = untrained(kind, name)
        session._policies[task.name, "mine"] = high_level_policy(restored)
        run["policies"] = [{"id": "mine", "task": task.name, **policy_to_json(restored)}]
        control = {"player": "policy", "policy": "mine"}
        episode = {"seed": 0, "layout": "1", "task": task.name}
        messages = [{"type": "reset", "episode": episode}, *[{"type": "step", "steps": 4, "control": control}] * 6]
        found = js(TALK, {"run": run, "messages": messages})
        for request, answer in zip(messages, found, strict=True):
            expected = session.answer(request)
            np.testing.assert_allclose(answer["obs"], expected["obs"], atol=1e-4, err_msg=f"{kind} {name}")
            assert answer["total"] == pytest.approx(expected["total"], abs=1e-5)
            if expected["skill"]:
                np.testing.assert_allclose(answer["skill"], expected["skill"], atol=1e-3, err_msg=f"{kind} {name}")
        assert np.std(found[-1]["action"]) > 0.05


ORDER = """
const solids = data.map((geom) => local.solidOf({ quat: [1, 0, 0, 0], alpha: 1, fixed: true, colour: [0, 0, 0], ...geom }));
const shapes = solids.map((solid) => local.placed(solid, [0, 0, 0], [1, 0, 0, 0]));
const camera = new local.Camera({ body: null, lookat: [0, 0, 0], distance: 3, azimuth: 90, elevation: -30, fovy: 45 });
const view = camera.view(null, 400, 400, null);
const boxes = shapes.map((shape) => local.BodyPainter.prototype.bounds(shape, view));
return local.sorted(shapes, boxes, view);
"""


def test_what_hides_what(js: Callable[..., Any]) -> None:
    """The camera looks along +y, from above: far things first, and what lies on a table, slightly sunken, after it."""
    table = {"shape": "box", "size": [1, 1, 0.1], "pos": [0, 0, 0]}
    sunken = {"shape": "box", "size": [0.05, 0.05, 0.05], "pos": [0, 0.9, 0.149]}
    ball = {"shape": "sphere", "size": [0.1, 0, 0], "pos": [0, 0.6, 0.199]}
    below = {"shape": "capsule", "size": [0.05, 0.1, 0], "pos": [0, -0.5, -0.4]}
    for shapes in ([ball, sunken, table, below], [below, table, ball, sunken]):
        order = [shapes[number] for number in js(ORDER, shapes)]
        assert order.index(below) < order.index(table) < min(order.index(sunken), order.index(ball))
        assert order.index(sunken) < order.index(ball)


def test_gif_decodes(js: Callable[..., Any]) -> None:
    """Noise needs all code widths and new tables of LZW; a frame that stays is left out."""
    noise = np.random.default_rng(0).integers(0, 256, (3, 90, 120, 3), dtype=np.uint8) // 64 * 64
    noise[2] = noise[1]
    code = """
    const rgba = (frame) => frame.flatMap((row) => row.flatMap((pixel) => [...pixel, 255]));
    const parts = await local.encodeGif(data.map((frame) => local.reduced(rgba(frame))), 120, 90, 12.5);
    return parts.flatMap((part) => [...part]);"""
    content = bytes(js(code, noise.tolist()))
    with Image.open(io.BytesIO(content)) as image:
        assert (image.size, image.n_frames) == ((120, 90), 3)
        frames = [np.asarray(frame.convert("RGB")).astype(int) for frame in ImageSequence.Iterator(image)]
    assert np.abs(np.stack(frames) - noise).max() <= 8  # five bits per channel
    assert content.count(b"\x21\xf9") == 3
