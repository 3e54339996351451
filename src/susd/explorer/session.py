"""One client's episode: resets, steps and replays it, as requests ask. Everything is a function of seed and controls."""

from __future__ import annotations

import base64
import io
import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from susd.downstream.policy import Choice, HighLevelPolicy, load_policy, saved_policies
from susd.envs.base import close
from susd.errors import UserError, headline
from susd.explorer.bodies import Bodies, find_bodies
from susd.explorer.describe import DRAWN, describe, task_of
from susd.explorer.messages import (
    MOST_SEED,
    MOST_STEPS,
    Control,
    Episode,
    Target,
    integer,
    read_control,
    read_episode,
    read_segments,
    text,
)
from susd.explorer.model import Inputs, Model, Weights
from susd.plugins import same_name
from susd.tasks.base import HostTask, Task
from susd.training.trainer import subkey

PIXELS, QUALITY = 640, 80  # of streamed images
TRAIL = 300  # observations that a replay returns
Message = dict[str, Any]


class Now(NamedTuple):
    """Where the episode is."""

    state: Any  # of a functional environment or task
    obs: np.ndarray
    extra: np.ndarray
    time: int = 0
    total: float = 0.0
    reward: float = 0.0  # of the last frame
    skill: np.ndarray | None = None
    action: np.ndarray | None = None
    phi: np.ndarray | None = None
    ended: bool = False  # the environment ended the episode by itself
    choice: Choice | None = None  # of the high-level policy
    chosen: int = 0  # when


class Session:
    """The environment of one page. `answer` and `prepare` are called from one thread."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.episode = Episode()
        self.task: Task | HostTask | None = None
        self.scene = "plots"
        self.bodies: Bodies | None = None  # of the simulation, where the page draws it
        self.stopped = False  # set from another thread: ends a long replay
        self.handles: dict[int, dict[str, Any]] = {}
        self._env: Any = None  # of its own, where it is a host environment
        self._key = jax.random.key(0)
        self._steppers: dict[str, Callable[..., Any]] = {}
        self._experts: dict[str, Callable[..., Any]] = {}
        self._policies: dict[tuple[str, str], HighLevelPolicy] = {}  # by task and name
        self.now: Now = self._reset(self.episode)

    def open(self) -> Message:
        """Find out how the environment can be drawn, and describe the run."""
        scene = self._find_scene()
        self.scene = scene["kind"]
        hello = describe(self.model.agent, self.model.path, scene, own=self.model.own_tasks)
        self.handles = {handle["part"]: handle for handle in hello["handles"]}
        return hello

    def close(self) -> None:
        """Free the environment."""
        if self._env is not None:
            close(self._env)

    def _find_scene(self) -> Message:
        """From the state where the page knows how, else from poses of bodies, else as images, else as plots."""
        if self.model.spec.name in DRAWN:
            return {"kind": self.model.spec.name}
        try:
            self.bodies = None if self._env is None else find_bodies(self._env)
        except Exception as error:  # of a user's model that has more than can be drawn: its images remain
            print(f"susd: explorer: the bodies cannot be drawn: {headline(error)}", file=sys.stderr)
        if self.bodies is not None:
            return {"kind": "bodies", "bodies": self.bodies.geometry()}
        return {"kind": "image" if self._render() else "plots"}

    # --- requests -----------------------------------------------------------------------------------------------------

    def answer(self, message: Message) -> Message:
        """The answer to a request."""
        kind, sizes = message.get("type"), self.model.sizes
        if kind == "reset":
            self.now = self._reset(read_episode(message.get("episode")))
            return self._frame()
        if kind == "step":
            steps = integer("steps", message.get("steps"), 1, MOST_STEPS)
            self._advance([(read_control(message.get("control"), sizes), steps)], [])
            return self._frame()
        if kind == "replay":
            return self._replay(read_episode(message.get("episode")), read_segments(message.get("segments"), sizes))
        raise UserError(
            f"the type of a message is {str(kind)[:40]!r}; it must be reset, step, replay, influence, gallery or maps"
        )

    def prepare(self, message: Message) -> Callable[[], Message]:
        """A slow request as a function of its own, which does not touch the session."""
        kind, model = message.get("type"), self.model
        if kind == "maps":
            return model.maps
        if kind == "gallery":
            seed = integer("the seed", message.get("seed", 0), 0, MOST_SEED)
            layout, start = text("the layout", message.get("layout")), self.episode.seed
            return lambda: model.gallery(seed, layout, start)
        part = integer("the part", message.get("part"), 0, model.space.parts - 1)
        skill = read_control(message.get("control"), model.sizes).skill
        state = self.now.state if self.task is None or self.now.state is None else self.now.state.env_state
        seed, layout, place = self.episode.seed, self.episode.layout, "here" if model.functional else "start"

        def influence() -> Message:
            change = model.influence(state, skill, part, seed, layout)
            return {"type": "influence", "part": part, "change": change, "from": place}

        return influence

    def _replay(self, episode: Episode, segments: list[tuple[Control, int]]) -> Message:
        trail: list[np.ndarray] = []
        self.now = self._reset(episode)
        self._advance(segments, trail)
        frame = self._frame()
        return frame | {"trail": [_numbers(self.model.spec.raw(obs)) for obs in trail[-TRAIL:]]}

    # --- the episode --------------------------------------------------------------------------------------------------

    def _reset(self, episode: Episode) -> Now:
        """The first state; nothing changes if the request is refused."""
        model = self.model
        now, task = (self._functional_start if model.functional else self._host_start)(episode)
        self.episode, self.task = episode, task
        self._key = subkey(jax.random.key(episode.seed), "explore")
        return now._replace(phi=model.encode(now.obs[None])[0] if model.embeds else None)

    def _functional_start(self, episode: Episode) -> tuple[Now, Task | None]:
        model = self.model
        env: Any = model.agent.trainer.env
        state = model.starter(episode.layout)(episode.seed)
        if not episode.task:
            return Now(state, np.asarray(env.observe(state)), np.zeros(0)), None
        task = task_of(episode.task, model.config, env, model.own_tasks.names)
        assert isinstance(task, Task)
        state = task.begin(state, jax.random.key(episode.seed))
        return Now(state, np.asarray(task.observe(state)), np.asarray(task.extra(state))), task

    def _host_start(self, episode: Episode) -> tuple[Now, HostTask | None]:
        model = self.model
        if episode.layout:
            raise UserError(f"the layout is {episode.layout!r}, but {model.spec.name} has no layouts")
        if self._env is None:
            self._env = model.environment()
        task = task_of(episode.task, model.config, self._env, model.own_tasks.names) if episode.task else None
        obs = np.array(self._env.reset(episode.seed)[0], np.float32)
        if task is None:
            return Now(None, obs, np.zeros(0)), None
        assert isinstance(task, HostTask)
        task.begin()
        return Now(None, obs, np.array(task.extra()[0])), task

    @property
    def done(self) -> bool:
        """Whether the task's horizon is reached."""
        return self.task is not None and (self.now.time >= self.task.horizon or self.now.ended)

    def _advance(self, segments: list[tuple[Control, int]], trail: list[np.ndarray]) -> None:
        """Run controls one after another; the observations before each step are added to the trail."""
        before, ended = self.now.total, False
        for control, steps in segments:
            for _ in range(steps):
                if self.stopped:
                    raise UserError("the session has ended")
                if self.done:
                    raise UserError("the episode of the task is over; reset it")
                trail.append(self.now.obs)
                self.now = self._step(control)
                ended = ended or self.now.ended
        self.now = self.now._replace(reward=self.now.total - before, ended=ended)

    def _step(self, control: Control) -> Now:
        now, choice, chosen = self.now, self.now.choice, self.now.chosen
        if control.player == "policy":
            policy = self._policy(control.policy)
            if choice is None or now.time - chosen >= policy.duration:
                choice, chosen = policy.choose(np.concatenate([now.obs, now.extra])), now.time
            inputs, goals = self._chosen(choice), policy.goals
        else:
            choice, inputs, goals = None, self._inputs(control), None
        weights = self.model.weights if goals is None else self.model.weights._replace(goals=goals)
        run = self._functional_step if self.model.functional else self._host_step
        after = run(weights, inputs)
        acted = bool(inputs.is_raw)
        skill = None if acted else after.skill
        return after._replace(time=now.time + 1, skill=skill, choice=choice, chosen=chosen)

    def _functional_step(self, weights: Weights, inputs: Inputs) -> Now:
        model, name = self.model, self.episode.task
        if name not in self._steppers:
            self._steppers[name] = model.stepper(self.task)
        found = self._steppers[name](weights, self.now.state, self.now.obs, inputs, self._key, self.now.time)
        state, (obs, action, skill, phi, reward, extra) = found[0], (np.asarray(value) for value in found[1:])
        now = Now(state, obs, extra, total=self.now.total + float(reward), skill=skill, action=action)
        return now._replace(phi=phi if model.embeds else None)

    def _host_step(self, weights: Weights, inputs: Inputs) -> Now:
        model = self.model
        action, skill = (np.asarray(x) for x in model.decide(weights, self.now.obs, inputs, self._key, self.now.time))
        step = self._env.step(action[None])
        reward, extra = 0.0, np.zeros(0)
        if isinstance(self.task, HostTask):
            reward, extra = float(self.task.reward(step)[0]), np.array(self.task.extra()[0])
        obs, ended = np.array(step.obs[0], np.float32), bool(step.terminated[0] or step.truncated[0])
        phi = model.encode(obs[None])[0] if model.embeds else None
        return Now(None, obs, extra, 0, self.now.total + reward, 0.0, skill, action, phi, ended)

    # --- who acts -----------------------------------------------------------------------------------------------------

    def _inputs(self, control: Control, **changes: Any) -> Inputs:
        """The arguments of the compiled step."""
        model, sizes = self.model, self.model.sizes
        towards = np.array([goal is not None for goal in control.goals])
        goal = np.zeros((sizes.parts, sizes.dim), np.float32)
        if towards.any():
            if not model.embeds:
                raise UserError(f"{model.config.method} has no embedding that goals could be in")
            model.goals()
            goal = self._goal_points(control.goals)
        raw = np.zeros(sizes.actions, np.float32) if control.raw is None else np.clip(control.raw, -1.0, 1.0)
        if control.player == "expert":
            raw = self._expert()
        is_raw = control.player in ("raw", "expert")
        return Inputs(control.skill, towards, goal, np.bool_(control.sampled), raw, np.bool_(is_raw))

    def _chosen(self, choice: Choice) -> Inputs:
        """A choice of the high-level policy, with mean actions."""
        sizes = self.model.sizes
        idle = Control("skill", np.zeros(sizes.parts * sizes.dim, np.float32), (None,) * sizes.parts)
        inputs = self._inputs(idle)
        if choice.skill is not None:
            return inputs._replace(skill=choice.skill)
        if choice.goal is not None:
            return inputs._replace(goal=choice.goal, towards=np.ones(sizes.parts, bool))
        return inputs._replace(raw=choice.action, is_raw=np.bool_(True))

    def _goal_points(self, goals: tuple[Target | None, ...]) -> np.ndarray:
        """[N, D] goals in the space of phi; a point in the drawing is the embedding of the state with the factor there."""
        sizes, spec = self.model.sizes, self.model.spec
        raw = np.array(spec.raw(self.now.obs))
        for part, goal in enumerate(goals):
            if goal is not None and goal.to is not None:
                if part not in self.handles:
                    raise UserError(f"part {part} has no place in the drawing; choose a point in its map")
                _place(raw, self.handles[part], goal.to)
        obs = raw if spec.scaling is None else spec.scaling.normalise(raw)
        points = np.array(self.model.encode(np.asarray(obs, np.float32)[None])[0]).reshape(sizes.parts, sizes.dim)
        for part, goal in enumerate(goals):
            if goal is not None and goal.phi is not None:
                points[part] = goal.phi
        return points

    def _expert(self) -> np.ndarray:
        if self.task is None or self.task.expert is None:
            raise UserError("only a task has an expert, and not every task")
        if isinstance(self.task, HostTask):
            action = self.task.expert()[0]
        else:
            self._experts.setdefault(self.episode.task, jax.jit(self.task.expert))
            action = self._experts[self.episode.task](self.now.state)
        return np.clip(np.asarray(action, np.float32), -1.0, 1.0)

    def _policy(self, name: str) -> HighLevelPolicy:
        """A saved policy of the current task, loaded when it is first asked for."""
        if self.task is None or self.model.path is None:
            raise UserError("a high-level policy acts in a task; choose one")
        key = self.episode.task, name
        if key not in self._policies:
            known = {p.folder.name: p for p in saved_policies(self.model.path)}
            if name not in known or same_name(known[name].task) != same_name(self.episode.task):
                raise UserError(f"there is no saved policy {name!r} of {self.episode.task}")
            self._policies[key] = load_policy(known[name], self.model.agent, self.task)
        return self._policies[key]

    # --- frames -------------------------------------------------------------------------------------------------------

    def _frame(self) -> Message:
        """What the page draws."""
        now = self.now
        frame: Message = {
            "type": "frame",
            "time": now.time,
            "obs": _numbers(self.model.spec.raw(now.obs)),
            "reward": round(now.reward, 6),
            "total": round(now.total, 6),
            "extra": _numbers(now.extra),
            "done": self.done,
            "ended": now.ended,
        }
        frame |= {name: _optional(getattr(now, name)) for name in ("skill", "action", "phi")}
        if self.scene == "image":
            frame["image"] = self._render()
        if self.bodies is not None:
            frame["poses"] = np.round(self.bodies.poses(), 4).tolist()
        return frame

    def _render(self) -> str:
        """The environment's own image as a data URL, or "" where it has none."""
        env: Any = self.model.agent.trainer.env
        try:
            if self._env is not None:
                pixels = self._env.render(0, PIXELS)
            else:
                state = self.now.state if self.task is None else self.now.state.env_state
                pixels = env.render(state, PIXELS)
            return _jpeg(np.asarray(pixels, np.uint8))
        except Exception:  # of the user's environment: it is drawn as plots
            return ""


def _place(raw: np.ndarray, handle: dict[str, Any], point: tuple[float, float]) -> None:
    """Set a factor to a point of the drawing."""
    if handle["kind"] == "point":
        raw[handle["x"]] = point[0]
        if handle["y"] is not None:  # else it moves along a line
            raw[handle["y"]] = point[1]
    else:
        x, y = (raw[index] for index in handle["origin"])
        raw[handle["index"]] = math.atan2(point[0] - x, point[1] - y)


def _jpeg(pixels: np.ndarray) -> str:
    from PIL import Image

    if pixels.ndim != 3 or pixels.shape[-1] != 3 or not pixels.size:
        return ""
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "JPEG", quality=QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(content.getvalue()).decode()


def _numbers(values: Any) -> list[float]:
    return [float(f"{value:.6g}") for value in np.asarray(values).tolist()]


def _optional(values: np.ndarray | None) -> list[float] | None:
    return None if values is None else _numbers(values)
