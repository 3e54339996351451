"""The two kinds of environment: functional (pure JAX) and host (a batch over numpy)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np

from susd.errors import UserError
from susd.factors import Factorization

if TYPE_CHECKING:
    from typing_extensions import TypeIs


@dataclass(frozen=True)
class Plane:
    """Two observation indices that form a position, and the box in which coverage is measured.

    A body that moves along a line has the same index twice. The box is in raw units (see `Scaling`).
    """

    name: str
    x: int
    y: int
    low: float
    high: float
    open: bool = False  # no walls: coverage counts cells in the box, figures show whole trajectories

    @property
    def is_line(self) -> bool:
        """Whether the position has one dimension."""
        return self.x == self.y


@dataclass(frozen=True)
class Scaling:
    """A fixed normalisation of observations: obs = (raw - mean) / std."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def normalise(self, raw: Any) -> Any:
        """From raw units to those of the observation; [.., S] arrays of numpy or JAX."""
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
    landmarks: dict[str, int]  # named observations that are above zero while something is on; may be empty
    filtered: frozenset[int] = frozenset()  # the observations that the original DUSDi gave to its discriminators
    scaling: Scaling | None = None  # where observations are normalised
    # Factor -> the observations that belong to the entity itself, not to how the agent sees it. A factor that is absent has
    # nothing of its own that can move. None: not declared.
    own: Mapping[str, tuple[int, ...]] | None = None
    ends_early: bool = True  # whether an episode outside JAX may end before the horizon

    def __post_init__(self) -> None:
        for name, indices in (self.own or {}).items():
            factors = dict(zip(self.factorization.names, self.factorization.indices, strict=True))
            if name not in factors:
                raise UserError(f"own dimensions of {name!r}: {self.name} has the factors {', '.join(factors)}")
            if not indices or len(set(indices)) != len(indices):
                raise UserError(f"own dimensions of {name!r} are {list(indices)}; name at least one, and each once")
            for index in indices:
                if index not in factors[name]:
                    raise UserError(f"own dimensions of {name!r}: index {index} is not one of the factor's")

    def raw(self, obs: Any) -> Any:
        """Observations [.., S] in raw units."""
        return obs if self.scaling is None else self.scaling.raw(obs)


def own_dimensions(factors: Factorization, indices: Iterable[int]) -> dict[str, tuple[int, ...]]:
    """`EnvSpec.own` for any factors, from the own dimensions of all entities; factors without any are absent."""
    wanted = set(indices)
    own = {name: tuple(i for i in of if i in wanted) for name, of in zip(factors.names, factors.indices, strict=True)}
    return {name: found for name, found in own.items() if found}


@runtime_checkable
class Environment(Protocol):
    """A functional environment: pure, jit-able and vmap-able. It never terminates; episodes last `spec.horizon`."""

    @property
    def spec(self) -> EnvSpec: ...

    def reset(self, key: jax.Array) -> Any: ...

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> Any: ...

    def observe(self, state: Any) -> jax.Array: ...

    def render(self, state: Any, size: int = 400) -> np.ndarray:
        """One state as an RGB image, uint8 [size, size, 3]."""
        ...


class HostStep(NamedTuple):
    """The result of one step of W environments."""

    obs: np.ndarray  # [W, S] current observations (after an automatic reset: the first of the new episode)
    next_obs: np.ndarray  # [W, S] the observations that the actions led to, before any reset
    terminated: np.ndarray  # [W] the environment reached a terminal state
    truncated: np.ndarray  # [W] the environment reached a time limit of its own
    reward: np.ndarray | None = None  # [W] the environment's own reward, where it has one; discovery never uses it


@runtime_checkable
class HostEnvironment(Protocol):
    """A batch of environments stepped outside JAX, with actions in [-1, 1] and float32 observations.

    The collector applies the time limit: it resets the whole batch after `spec.horizon` steps, or later. An environment
    that terminates earlier resets by itself.
    """

    @property
    def spec(self) -> EnvSpec: ...

    @property
    def num_envs(self) -> int: ...

    def reset(self, seed: int) -> np.ndarray:
        """Reset all environments, as a function of the seed alone; [W, S] observations."""
        ...

    def step(self, actions: np.ndarray) -> HostStep: ...

    def render(self, index: int = 0, size: int = 400) -> np.ndarray:
        """One environment in its current state as an RGB image, uint8 [size, size, 3]; a UserError if it cannot render."""
        ...


MEMBERS = {
    "a functional environment": ("spec", "reset", "step", "observe", "render"),
    "a host environment": ("spec", "num_envs", "reset", "step", "render"),
}


def is_environment(thing: object) -> TypeIs[Environment | HostEnvironment]:
    """Whether an object has all members of one of the two kinds."""
    return isinstance(thing, (Environment, HostEnvironment))


def missing_members(thing: object) -> str:
    """Which members an object lacks to be an environment of either kind."""
    lacks = {kind: [name for name in members if not hasattr(thing, name)] for kind, members in MEMBERS.items()}
    return "for " + ", and for ".join(f"{kind} it lacks {', '.join(names)}" for kind, names in lacks.items())


def close(env: Environment | HostEnvironment) -> None:
    """Free what an environment holds, such as worker processes, if it has a `close`."""
    if callable(end := getattr(env, "close", None)):
        end()
