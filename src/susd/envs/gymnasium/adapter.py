"""Gymnasium environments as a host environment: flat observations, actions in [-1, 1], worlds in threads or processes."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from PIL import Image, ImageOps

from susd.envs.base import EnvSpec, HostStep, Plane
from susd.envs.gymnasium.processes import Processes
from susd.envs.gymnasium.source import Source, is_gymnasium, spec_of, stdout_to_stderr
from susd.envs.gymnasium.spaces import Actions, Observations
from susd.envs.gymnasium.workers import Pool, Threads, cores
from susd.envs.options import FactorOption, factorization, one_of, positive_number
from susd.errors import UserError
from susd.factors import Factorization

HORIZON = 200  # where nothing says how long an episode is
BORDER = (250, 249, 246)  # beside a picture that is not square


class GymnasiumWorlds:
    """W worlds of a Gymnasium environment. They are made by the first reset and closed when the program ends, or before."""

    def __init__(
        self,
        source: Source,
        example: gymnasium.Env[Any, Any],
        num_envs: int = 8,
        horizon: int | None = None,
        parallel: str = "threads",
        factors: FactorOption | None = None,
    ) -> None:
        self._source = source
        self._num_envs = positive_number("num_envs", num_envs)
        self._parallel = one_of("parallel", parallel, ("threads", "processes", "none"))
        self._spec = _spec(source.name, example, horizon, factors)
        declared = Observations(example.observation_space, source.name)
        self.low, self.high = declared.low, declared.high  # [S] what the observation space says; `susd check` compares
        self._pool: Pool | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None

    @property
    def spec(self) -> EnvSpec:
        """The fixed facts."""
        return self._spec

    @property
    def num_envs(self) -> int:
        """How many worlds there are."""
        return self._num_envs

    def reset(self, seed: int) -> np.ndarray:
        """Start all worlds anew, each as a function of the seed and its number alone; [W, S]."""
        return self._of(self._started(), "reset", seed)

    def step(self, actions: np.ndarray) -> HostStep:
        """Step all worlds by [W, A] in [-1, 1]; one that ends starts anew by itself."""
        expected = (self._num_envs, self._spec.action_size)
        if actions.shape != expected:
            raise UserError(f"the actions have the shape {actions.shape}; {self._spec.name} needs {expected}")
        return HostStep(*self._of(self._reset_before(), "step", actions))

    def render(self, world: int = 0, size: int = 400) -> np.ndarray:
        """One world as it is now, fitted into a square picture."""
        if not 0 <= world < self._num_envs:
            raise UserError(f"there is no world {world}; there are 0 to {self._num_envs - 1}")
        frame = self._of(self._reset_before(), "render", world)
        if frame is None:
            raise UserError(f"{self._spec.name} cannot draw: it has no render_mode 'rgb_array' that gives a picture")
        if frame.dtype != np.uint8 or not all(frame.shape[:2]) or frame.shape[2] not in (3, 4):
            given = f"{frame.dtype} {list(frame.shape)}"
            raise UserError(
                f"{self._spec.name} cannot draw: its render gave {given}; it must give uint8 [height, width, 3]"
            )
        return np.asarray(ImageOps.pad(Image.fromarray(frame[..., :3]), (size, size), color=BORDER))

    def close(self) -> None:
        """End all worlds; the next reset makes new ones."""
        if self._finalizer is not None:
            self._finalizer()
        self._pool = self._finalizer = None

    def _started(self) -> Pool:
        if self._pool is None:
            if self._parallel == "processes":
                self._pool = Processes(self._source, self._num_envs, cores())
            else:
                self._pool = Threads(self._source, self._num_envs, cores() if self._parallel == "threads" else 1)
            self._finalizer = weakref.finalize(self, self._pool.close)  # also at the end of the program, however it ends
        return self._pool

    def _reset_before(self) -> Pool:
        if self._pool is None:
            self.reset(0)
        return self._started()

    def _of(self, pool: Pool, verb: str, argument: Any) -> Any:
        """What the worlds answer; after a failure, or Ctrl-C in the middle, none of them is left running."""
        try:
            with stdout_to_stderr():
                return getattr(pool, verb)(argument)
        except BaseException:
            self.close()
            raise


def _spec(name: str, example: gymnasium.Env[Any, Any], horizon: int | None, factors: FactorOption | None) -> EnvSpec:
    """The facts of an environment, read from its spaces and from what it says of itself."""
    for attribute in ("observation_space", "action_space"):
        if not hasattr(example, attribute):
            raise UserError(f"{name} has no {attribute}; set it in __init__, for example spaces.Box(-1, 1, (3,))")
    observations, actions = Observations(example.observation_space, name), Actions(example.action_space, name)
    size = observations.size
    default = Factorization.from_mapping(dict(_said(name, example, "factors")) or observations.factors, size)
    known = {1: Factorization(("state",), (tuple(range(size)),), size), len(default): default}
    return EnvSpec(
        name=name,
        obs_size=size,
        action_size=actions.size,
        horizon=_limit(name, example) if horizon is None else positive_number("horizon", horizon),
        factorization=default if factors is None else factorization(factors, size, known),
        planes=tuple(_plane(name, body, value, size) for body, value in _said(name, example, "positions")),
        landmarks={
            mark: _index(name, f"landmarks[{mark!r}]", value, size) for mark, value in _said(name, example, "landmarks")
        },
    )


def _limit(name: str, example: gymnasium.Env[Any, Any]) -> int:
    registered = spec_of(name.partition(":")[2]) if is_gymnasium(name) else example.spec
    return (registered and registered.max_episode_steps) or HORIZON


def _said(name: str, example: gymnasium.Env[Any, Any], attribute: str) -> Any:
    """The entries of a mapping that the environment, or a wrapper of it, may have as an attribute."""
    value = example.get_wrapper_attr(attribute) if example.has_wrapper_attr(attribute) else {}
    if not isinstance(value, Mapping):
        raise UserError(f"the attribute {attribute!r} of {name} is {value!r}; it must be a mapping with names as keys")
    return value.items()


def _plane(name: str, body: str, value: Any, size: int) -> Plane:
    try:
        x, y, low, high = value
        low, high = float(low), float(high)
    except (TypeError, ValueError):
        message = f"positions[{body!r}] of {name} is {value!r}; it must be (index of x, index of y, low, high)"
        raise UserError(message) from None
    if not -np.inf < low < high < np.inf:
        raise UserError(f"positions[{body!r}] of {name} goes from {low} to {high}; low must be below high")
    return Plane(
        body, _index(name, f"positions[{body!r}]", x, size), _index(name, f"positions[{body!r}]", y, size), low, high
    )


def _index(name: str, where: str, value: Any, size: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 0 <= value < size:
        raise UserError(f"{where} of {name} has the index {value!r}; it must be a whole number from 0 to {size - 1}")
    return int(value)
