"""What an environment is: a functional one (pure JAX) or a host one (a batch of worlds over numpy)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np

from susd.factors import Factorization


@dataclass(frozen=True)
class Plane:
    """Two observation indices that form a position, and the box it lives in: what coverage is measured on.

    A body that moves along a line has the same index twice. The box is in raw units (see `Scaling`).
    """

    name: str
    x: int
    y: int
    low: float
    high: float
    open: bool = False  # no walls: cells are counted in the box, and courses are drawn as far as they go

    @property
    def is_line(self) -> bool:
        """Whether there is only one direction."""
        return self.x == self.y


@dataclass(frozen=True)
class Scaling:
    """A fixed normalisation of observations: obs = (raw - mean) / std."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def normalise(self, raw: Any) -> Any:
        """From the world's units to the observation's; [.., S] arrays of numpy or JAX."""
        return (raw - np.asarray(self.mean, np.float32)) / np.asarray(self.std, np.float32)

    def raw(self, obs: Any) -> Any:
        """The inverse of `normalise`."""
        return obs * np.asarray(self.std, np.float32) + np.asarray(self.mean, np.float32)


@dataclass(frozen=True)
class EnvSpec:
    """The fixed facts of an environment. Actions are always in [-1, 1]; the environment scales them."""

    name: str
    obs_size: int
    action_size: int
    horizon: int  # steps of one discovery episode
    factorization: Factorization
    planes: tuple[Plane, ...]  # one per body whose coverage is reported; may be empty
    landmarks: dict[str, int]  # named observations that are above zero when something is on; may be empty
    filtered: frozenset[int] = frozenset()  # the observations that the original DUSDi let its discriminators see
    scaling: Scaling | None = None  # where observations are normalised

    def raw(self, obs: Any) -> Any:
        """Observations [.., S] in the world's own units."""
        return obs if self.scaling is None else self.scaling.raw(obs)


@runtime_checkable
class Environment(Protocol):
    """A functional environment: pure, jit-able and vmap-able. It never ends by itself; episodes last `spec.horizon`."""

    @property
    def spec(self) -> EnvSpec: ...

    def reset(self, key: jax.Array) -> Any: ...

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> Any: ...

    def observe(self, state: Any) -> jax.Array: ...

    def render(self, state: Any, size: int = 400) -> np.ndarray:
        """One state as an RGB picture, uint8 [size, size, 3], without any GL."""
        ...


class HostStep(NamedTuple):
    """What one step of W host worlds gives back."""

    obs: np.ndarray  # [W, S] where each world now is (after an auto-reset: the first observation of the new episode)
    next_obs: np.ndarray  # [W, S] where the action led, before any reset
    terminated: np.ndarray  # [W] the world ended by its own rules
    truncated: np.ndarray  # [W] the world has a time limit of its own and reached it


@runtime_checkable
class HostEnvironment(Protocol):
    """A batch of worlds stepped outside JAX, in [-1, 1] actions and float32 observations.

    The time limit is the collector's business: it resets all worlds together after `spec.horizon` steps, or later. A world
    that ends by its own rules meanwhile starts anew by itself.
    """

    @property
    def spec(self) -> EnvSpec: ...

    @property
    def num_envs(self) -> int: ...

    def reset(self, seed: int) -> np.ndarray:
        """Start all worlds anew, as a function of the seed alone; [W, S] observations."""
        ...

    def step(self, actions: np.ndarray) -> HostStep: ...

    def render(self, world: int = 0, size: int = 400) -> np.ndarray:
        """One world as it is now, as an RGB picture, uint8 [size, size, 3]; a UserError where there is none."""
        ...


MEMBERS = {
    "a functional environment": ("spec", "reset", "step", "observe", "render"),
    "a host environment": ("spec", "num_envs", "reset", "step", "render"),
}


def close(env: Environment | HostEnvironment) -> None:
    """End what an environment holds, such as processes of its worlds, where it has a `close`."""
    if callable(end := getattr(env, "close", None)):
        end()


def missing_members(thing: object) -> str:
    """What an object would need to be an environment, in words."""
    lacks = {kind: [name for name in members if not hasattr(thing, name)] for kind, members in MEMBERS.items()}
    return "for " + ", and for ".join(f"{kind} it lacks {', '.join(names)}" for kind, names in lacks.items())
