"""What random actions show about the factors of an environment: scales, constant and redundant dimensions, early ends."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from susd.envs.base import EnvSpec

SMALL, LARGE = 1e-2, 10.0  # a factor whose standard deviation is outside is badly scaled
APART = 100.0  # .. and so are two factors whose scales differ by more
REDUNDANT = 0.9999  # correlation from which two dimensions count as equal
EARLY = 0.2  # episodes that end within this share of the horizon are very short
SHOWN = 6  # indices named in one sentence

Bounds = tuple[np.ndarray, np.ndarray] | None


class RandomSteps(NamedTuple):
    """T random steps of W environments, which are reset together after every horizon."""

    starts: np.ndarray  # [K * W, S] the first observations of all seeded episodes
    obs: np.ndarray  # [T, W, S]
    next_obs: np.ndarray  # [T, W, S]
    terminated: np.ndarray  # [T, W]
    truncated: np.ndarray  # [T, W]
    steps_per_second: float

    @property
    def seen(self) -> np.ndarray:
        """[R, S] every observation, in double precision."""
        size = self.obs.shape[-1]
        return np.concatenate([self.starts, self.next_obs.reshape(-1, size)]).astype(np.float64)

    @property
    def moved(self) -> np.ndarray:
        """[S] whether a dimension ever changed from one step to the next."""
        return (self.obs != self.next_obs).any((0, 1))

    @property
    def total(self) -> int:
        """The number of environment steps."""
        return int(self.terminated.size)


def describe_factors(spec: EnvSpec, random: RandomSteps) -> list[dict[str, Any]]:
    """Size, range, mean standard deviation and share of changing dimensions of each factor."""
    seen, moved = random.seen, random.moved
    deviation = seen.std(0)
    found = []
    for name, indices in zip(spec.factorization.names, spec.factorization.indices, strict=True):
        own = list(indices)
        varying = [i for i in own if deviation[i] > 0]
        found.append(
            {
                "name": name,
                "size": len(own),
                "min": float(seen[:, own].min()),
                "max": float(seen[:, own].max()),
                "std": float(deviation[varying].mean()) if varying else 0.0,
                "changing": float(moved[own].mean()),
            }
        )
    return found


def find_problems(spec: EnvSpec, random: RandomSteps, bounds: Bounds = None) -> list[str]:
    """One sentence for each property that will make learning hard, with its values and what to do.

    `bounds` are the smallest and largest observation, [S] each, where the environment declares them.
    """
    return [*_unreached(spec, random, bounds), *_redundant(random), *_scales(spec, random), *_early_ends(spec, random)]


def _unreached(spec: EnvSpec, random: RandomSteps, bounds: Bounds) -> list[str]:
    """Factors and dimensions that random actions never changed, and dimensions that cannot change."""
    moved, constant = random.moved, np.ptp(random.seen, axis=0) == 0
    fixed = constant & _without_range(bounds, spec.obs_size)
    found = []
    for name, indices in zip(spec.factorization.names, spec.factorization.indices, strict=True):
        own = np.array(indices)
        if dead := [int(i) for i in own[fixed[own]]]:
            share = f"all {len(own)}" if len(dead) == len(own) else f"{len(dead)} of {len(own)}"
            found.append(
                f"Factor {name!r}: {share} dimensions are constant ({_indices(dead)}): neither actions nor resets change "
                "them, and no bounds say that they can; remove them."
            )
        if still := [int(i) for i in own[~moved[own] & ~fixed[own]]]:
            share = "" if len(still) == len(own) else f", {len(still)} of its {len(own)} dimensions ({_indices(still)})"
            found.append(
                f"Factor {name!r}{share}: not reached by random actions in {random.total} steps. Skills may reach it; "
                "after training, `susd evaluate RUN control` says whether they do."
            )
    return found


def _without_range(bounds: Bounds, size: int) -> np.ndarray:
    """[S] whether no declared bounds of a dimension suggest that it changes: they are equal, infinite or missing."""
    if bounds is None:
        return np.ones(size, bool)
    low, high = (np.asarray(bound, np.float64) for bound in bounds)
    return ~(np.isfinite(low) & np.isfinite(high) & (low < high))


def _redundant(random: RandomSteps) -> list[str]:
    """Pairs of dimensions of which one determines the other."""
    seen = random.seen
    centred = seen - seen.mean(0)
    norms = np.sqrt((centred**2).sum(0))
    varying = np.flatnonzero(norms > 1e-6 * (1 + np.abs(seen).max(0)))
    unit = centred[:, varying] / norms[varying]
    correlation = np.abs(unit.T @ unit)
    found = np.argwhere(np.triu(correlation, 1) > REDUNDANT)
    pairs = [(int(varying[i]), int(varying[j]), correlation[i, j]) for i, j in found]
    if not pairs:
        return []
    shown = ", ".join(f"{i} and {j} ({r:.5f})" for i, j, r in pairs[:SHOWN]) + (", .." if len(pairs) > SHOWN else "")
    are = "pair of observations is" if len(pairs) == 1 else "pairs of observations are"
    return [f"{len(pairs)} {are} redundant (correlation of indices {shown}); keep one of each."]


def _scales(spec: EnvSpec, random: RandomSteps) -> list[str]:
    """Factors whose scale is far from one, and dimensions of one factor, or factors, whose scales are far apart."""
    scale = {factor["name"]: factor["std"] for factor in describe_factors(spec, random) if factor["std"] > 0}
    found = [
        f"Factor {name!r} has a mean standard deviation of {value:.2g}, {'below' if value < SMALL else 'above'} "
        f"{SMALL if value < SMALL else LARGE:g}; scale its dimensions to about 1."
        for name, value in scale.items()
        if not SMALL <= value <= LARGE
    ]
    deviation = random.seen.std(0)
    for name, indices in zip(spec.factorization.names, spec.factorization.indices, strict=True):
        own = sorted((i for i in indices if random.moved[i]), key=lambda i: deviation[i])
        if own and deviation[own[-1]] > APART * deviation[own[0]] > 0:
            found.append(
                f"Within factor {name!r} the standard deviations of index {own[0]} ({deviation[own[0]]:.2g}) and index "
                f"{own[-1]} ({deviation[own[-1]]:.2g}) differ by a factor of {deviation[own[-1]] / deviation[own[0]]:.0f}; "
                "scale both to about 1."
            )
    ordered = sorted(scale, key=lambda name: scale[name])
    if ordered and scale[ordered[-1]] > APART * scale[ordered[0]]:
        low, high = ordered[0], ordered[-1]
        found.append(
            f"The scales of {low!r} ({scale[low]:.2g}) and {high!r} ({scale[high]:.2g}) differ by a factor of "
            f"{scale[high] / scale[low]:.0f}; scale both to about 1."
        )
    return found


def _early_ends(spec: EnvSpec, random: RandomSteps) -> list[str]:
    """Episodes that terminate after a few steps, or that a time limit of the environment truncates."""
    resets = np.arange(len(random.obs)) % spec.horizon == spec.horizon - 1  # of the whole batch
    terminated_after, truncated_after = [], []
    for terminated, truncated in zip(random.terminated.T, random.truncated.T, strict=True):
        ends = [-1, *np.flatnonzero(terminated | truncated | resets).tolist()]
        for first, last in pairwise(ends):
            if terminated[last]:
                terminated_after.append(last - first)
            elif truncated[last] and last - first < spec.horizon:
                truncated_after.append(last - first)
    found = []
    if terminated_after and np.mean(terminated_after) < EARLY * spec.horizon:
        found.append(
            f"{len(terminated_after)} episodes terminated after {np.mean(terminated_after):.1f} steps on average, of "
            f"{spec.horizon}; skills have little time to differ. Terminate later, or set a shorter --horizon."
        )
    if truncated_after:
        found.append(
            f"A time limit of the environment truncated {len(truncated_after)} episodes after "
            f"{np.mean(truncated_after):.1f} steps on average, of {spec.horizon}; set --horizon to it, or remove it."
        )
    return found


def _indices(indices: list[int]) -> str:
    shown = ", ".join(map(str, indices[:SHOWN])) + (", .." if len(indices) > SHOWN else "")
    return f"ind{'ex' if len(indices) == 1 else 'ices'} {shown}"
