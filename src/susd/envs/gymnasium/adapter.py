"""Gymnasium environments as a host environment: flat observations, actions in [-1, 1], in threads or processes."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from PIL import Image, ImageOps

from susd.envs.base import EnvSpec, HostStep, Plane, own_dimensions
from susd.envs.gymnasium.loader import Source, find_registration, is_gymnasium
from susd.envs.gymnasium.processes import SubprocessEnvs
from susd.envs.gymnasium.spaces import Actions, Observations
from susd.envs.gymnasium.workers import EnvBatch, ThreadedEnvs, usable_cores
from susd.envs.options import MOST_ENVS, FactorOption, factorization, one_of, positive_integer
from susd.errors import UserError, shown
from susd.factors import Factorization
from susd.plugins import stdout_to_stderr

HORIZON = 200  # steps of an episode where nothing else sets them
BORDER = (250, 249, 246)  # colour around a frame that is not square


class GymnasiumVector:
    """Parallel Gymnasium environments. The first reset creates them; `close` or the end of the program closes them."""

    kind = "Gymnasium"  # in the result of `susd check`

    def __init__(
        self,
        source: Source,
        example: gymnasium.Env[Any, Any],
        num_envs: int = 8,
        horizon: int | None = None,
        parallel: str = "threads",
        factors: FactorOption | None = None,
        positions: str | Mapping[str, Any] | None = None,
        landmarks: str | Mapping[str, Any] | None = None,
    ) -> None:
        self._source = source
        self._num_envs = positive_integer("num_envs", num_envs, MOST_ENVS)
        self._parallel = one_of("parallel", parallel, ("threads", "processes", "none"))
        self._spec = _spec(source.name, example, horizon, factors, positions, landmarks)
        self._observations = declared = Observations(example.observation_space, source.name)
        self._actions = Actions(example.action_space, source.name)
        self.bounds = declared.low, declared.high  # [S] each, of the observation space; `susd check` compares with them
        self._batch: EnvBatch | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None

    @property
    def spec(self) -> EnvSpec:
        """The fixed facts."""
        return self._spec

    @property
    def num_envs(self) -> int:
        """How many environments are stepped together."""
        return self._num_envs

    def reset(self, seed: int) -> np.ndarray:
        """Reset all environments, each as a function of the seed and its index alone; [W, S]."""
        return self._call(self._open(), "reset", seed)

    def step(self, actions: np.ndarray) -> HostStep:
        """Step all environments by [W, A] in [-1, 1]; one that ends resets by itself."""
        expected = (self._num_envs, self._spec.action_size)
        if actions.shape != expected:
            raise UserError(f"the actions have the shape {actions.shape}; {self._spec.name} needs {expected}")
        return HostStep(*self._call(self._open_and_reset(), "step", actions))

    def render(self, index: int = 0, size: int = 400) -> np.ndarray:
        """One environment in its current state, fitted into a square image."""
        if not 0 <= index < self._num_envs:
            raise UserError(f"environment {index} does not exist; allowed: 0 to {self._num_envs - 1}")
        frame = self._call(self._open_and_reset(), "render", index)
        if frame is None:
            raise UserError(f"{self._spec.name} cannot render: it has no render_mode 'rgb_array' that returns an image")
        if frame.dtype != np.uint8 or not all(frame.shape[:2]) or frame.shape[2] not in (3, 4):
            given = f"{frame.dtype} {list(frame.shape)}"
            raise UserError(
                f"{self._spec.name} cannot render: render returned {given}; it must return uint8 [height, width, 3]"
            )
        return np.asarray(ImageOps.pad(Image.fromarray(frame[..., :3]), (size, size), color=BORDER))

    def unwrapped(self, index: int = 0) -> Any:
        """One environment without its wrappers; None where it is in another process."""
        return self._open_and_reset().unwrapped(index)

    def set_horizon(self, horizon: int) -> None:
        """Change the steps of an episode."""
        self._spec = replace(self._spec, horizon=positive_integer("horizon", horizon))

    def flatten(self, obs: Any) -> np.ndarray | None:
        """The vector [S] of an observation as one environment returns it, or of a batch; None if it is flat."""
        return self._observations.flatten(obs) if self._observations.is_native(obs) else None

    def native_action(self, action: np.ndarray) -> np.ndarray:
        """Actions [.., A] in [-1, 1] in the bounds, shape and type of one environment."""
        return self._actions.write(action)

    def close(self) -> None:
        """Close all environments; the next reset creates new ones."""
        if self._finalizer is not None:
            self._finalizer()
        self._batch = self._finalizer = None

    def _open(self) -> EnvBatch:
        if self._batch is None:
            if self._parallel == "processes":
                self._batch = SubprocessEnvs(self._source, self._num_envs, usable_cores())
            else:
                threads = usable_cores() if self._parallel == "threads" else 1
                self._batch = ThreadedEnvs(self._source, self._num_envs, threads)
            self._finalizer = weakref.finalize(self, self._batch.close)  # also at the end of the program
        return self._batch

    def _open_and_reset(self) -> EnvBatch:
        if self._batch is None:
            self.reset(0)
        return self._open()

    def _call(self, batch: EnvBatch, verb: str, argument: Any) -> Any:
        """What the environments return; after a failure or Ctrl-C none of them is left running."""
        try:
            with stdout_to_stderr():
                return getattr(batch, verb)(argument)
        except BaseException:
            self.close()
            raise


def _spec(
    name: str,
    example: gymnasium.Env[Any, Any],
    horizon: int | None,
    factors: FactorOption | None,
    positions: str | Mapping[str, Any] | None,
    landmarks: str | Mapping[str, Any] | None,
) -> EnvSpec:
    """The facts of an environment, from its spaces and its optional attributes factors, positions, landmarks, own.

    Factors, positions and landmarks that are given replace those of the attributes.
    """
    for attribute in ("observation_space", "action_space"):
        if not hasattr(example, attribute):
            raise UserError(f"{name} has no {attribute}; set it in __init__, for example spaces.Box(-1, 1, (3,))")
    observations, actions = Observations(example.observation_space, name), Actions(example.action_space, name)
    size = observations.size
    default = Factorization.from_mapping(dict(_attribute(name, example, "factors")) or observations.factors, size)
    known = {1: Factorization(("state",), (tuple(range(size)),), size), len(default): default}
    chosen = default if factors is None else factorization(factors, size, known)
    planes = _attribute(name, example, "positions") if positions is None else read_positions(positions, observations)
    marks = _attribute(name, example, "landmarks") if landmarks is None else read_landmarks(landmarks)
    owned = [_index(name, f"own[{key!r}]", i, size) for key, of in _attribute(name, example, "own") for i in of]
    return EnvSpec(
        name=name,
        obs_size=size,
        action_size=actions.size,
        horizon=_time_limit(name, example) if horizon is None else positive_integer("horizon", horizon),
        factorization=chosen,
        planes=tuple(_plane(name, body, value, size) for body, value in planes),
        landmarks={key: _index(name, f"landmarks[{key!r}]", value, size) for key, value in marks},
        own=own_dimensions(chosen, owned) if owned else None,
    )


def _time_limit(name: str, example: gymnasium.Env[Any, Any]) -> int:
    registration = find_registration(name.partition(":")[2]) if is_gymnasium(name) else example.spec
    return (registration and registration.max_episode_steps) or HORIZON


def _attribute(name: str, example: gymnasium.Env[Any, Any], attribute: str) -> Any:
    """The items of an optional mapping that the environment, or a wrapper around it, has as an attribute."""
    value = example.get_wrapper_attr(attribute) if example.has_wrapper_attr(attribute) else {}
    if not isinstance(value, Mapping):
        raise UserError(f"the attribute {attribute!r} of {name} is {value!r}; it must be a mapping with names as keys")
    return value.items()


def read_positions(given: str | Mapping[str, Any], observations: Observations) -> Any:
    """Items (name, (x, y, low, high)) of a mapping, or of text such as `cart=0:2,box=2:4@-1:1`.

    NAME=START:STOP has one or two indices, of a line or a plane; @LOW:HIGH is the box in which coverage is measured.
    Without it the box has the bounds of the observation space, which must then be finite.
    """
    if isinstance(given, Mapping):
        return given.items()
    found: dict[str, tuple[int, int, float, float]] = {}
    for body, text in _named_items("positions", given, "cart=0:2,box=2:4 or cart=0:2@-1:1"):
        where, at, box = text.partition("@")
        start, colon, stop = where.partition(":")
        try:
            first = int(start)
            last = int(stop) - 1 if colon else first
            limits = [float(end) for end in box.split(":")] if at else []
        except ValueError:
            first, last, limits = 0, -1, []
        if last - first not in (0, 1) or first < 0 or len(limits) not in (0, 2) or bool(at) != bool(limits):
            raise UserError(
                f"option 'positions': cannot read {shown(text)} of {body!r}; write NAME=START:STOP with one or two "
                "indices, and perhaps @LOW:HIGH, such as cart=0:2@-1:1"
            )
        if last >= observations.size:
            raise UserError(f"option 'positions': {body!r} is {where}; the observation has {observations.size} dimensions")
        if not limits:
            low, high = (
                float(f(side[[first, last]])) for f, side in ((np.min, observations.low), (np.max, observations.high))
            )
            if not np.isfinite([low, high]).all():
                raise UserError(
                    f"option 'positions': the observation has no finite bounds at {where} of {body!r}; write the box, for "
                    f"example {body}={where}@-1:1"
                )
            limits = [low, high]
        found[body] = (first, last, *limits)  # type: ignore[assignment]
    return found.items()


def read_landmarks(given: str | Mapping[str, Any]) -> Any:
    """Items (name, index) of a mapping, or of text such as `door=7,lamp=9`."""
    if isinstance(given, Mapping):
        return given.items()
    items = [(name, text) for name, text in _named_items("landmarks", given, "door=7,lamp=9")]
    for name, text in items:
        if not (text.isdecimal() and len(text) < 10):
            raise UserError(f"option 'landmarks': {name!r} is {shown(text)}; it must be an index, such as {name}=7")
    return [(name, int(text)) for name, text in items]


def _named_items(option: str, text: Any, example: str) -> list[tuple[str, str]]:
    """The parts NAME=VALUE of text with commas; each name once."""
    if not isinstance(text, str):
        raise UserError(f"option {option!r} cannot be {shown(text)}; allowed: a mapping, or text such as {example}")
    found = [tuple(piece.strip() for piece in part.partition("=")) for part in text.split(",")]
    for name, equals, value in found:
        if not (name and equals and value):
            raise UserError(f"option {option!r}: cannot read {shown(text)}; write {example}")
    names = [name for name, _, _ in found]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UserError(f"option {option!r}: {repeated[0]!r} is named twice")
    return [(name, value) for name, _, value in found]


def _plane(name: str, body: str, value: Any, size: int) -> Plane:
    try:
        x, y, low, high = value
        low, high = float(low), float(high)
    except (TypeError, ValueError):
        message = f"positions[{body!r}] of {name} is {value!r}; it must be (index of x, index of y, low, high)"
        raise UserError(message) from None
    if not -np.inf < low < high < np.inf:
        raise UserError(f"positions[{body!r}] of {name} has low {low} and high {high}; low must be below high")
    return Plane(
        body, _index(name, f"positions[{body!r}]", x, size), _index(name, f"positions[{body!r}]", y, size), low, high
    )


def _index(name: str, where: str, value: Any, size: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 0 <= value < size:
        raise UserError(f"{where} of {name} has the index {value!r}; it must be an integer from 0 to {size - 1}")
    return int(value)
