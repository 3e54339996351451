"""What random actions tell about the factors of an environment: scales, dead and doubled numbers, and what to do."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from susd.envs.base import EnvSpec

SMALL, LARGE = 1e-2, 10.0  # a factor whose standard deviation is outside is badly scaled
APART = 100.0  # .. and so are two factors whose scales differ by more
ALIKE = 0.9999  # correlation of two numbers that say the same
EARLY = 0.2  # episodes that end within this share of the horizon are very short
SHOWN = 6  # indices named in one sentence


class Warned(Exception):
    """Something that is allowed, but worth a sentence."""


class Walk(NamedTuple):
    """T random steps of W worlds, reset together every horizon."""

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
        """[S] whether a number ever changed from one step to the next."""
        return (self.obs != self.next_obs).any((0, 1))


def factors(spec: EnvSpec, walk: Walk) -> list[dict[str, Any]]:
    """Size, range, mean standard deviation and share of changing numbers of each factor."""
    seen, moved = walk.seen, walk.moved
    deviation = seen.std(0)
    found = []
    for name, indices in zip(spec.factorization.names, spec.factorization.indices, strict=True):
        own = list(indices)
        lively = [i for i in own if deviation[i] > 0]
        found.append(
            {
                "name": name,
                "size": len(own),
                "min": float(seen[:, own].min()),
                "max": float(seen[:, own].max()),
                "std": float(deviation[lively].mean()) if lively else 0.0,
                "changing": float(moved[own].mean()),
            }
        )
    return found


def warnings(spec: EnvSpec, walk: Walk) -> list[str]:
    """A sentence for each thing that will make learning hard, with its numbers and what to do about it."""
    return [*_still(spec, walk), *_doubled(walk), *_scales(spec, walk), *_endings(spec, walk)]


def _still(spec: EnvSpec, walk: Walk) -> list[str]:
    """Numbers that never change, and factors that only resets change."""
    constant, moved = np.ptp(walk.seen, axis=0) == 0, walk.moved
    found = []
    for name, indices in zip(spec.factorization.names, spec.factorization.indices, strict=True):
        own = np.array(indices)
        if dead := [int(i) for i in own[constant[own]]]:
            share = f"all {len(own)}" if len(dead) == len(own) else f"{len(dead)} of {len(own)}"
            found.append(f"Factor {name!r}: {share} numbers are constant ({_indices(dead)}); leave them out.")
        if not moved[own].any() and not constant[own].all():
            found.append(
                f"Factor {name!r} changes only at resets: random actions never moved it in {_steps(walk)} steps. A skill "
                "can hardly learn to control it; join it to another factor, or leave it out."
            )
    return found


def _doubled(walk: Walk) -> list[str]:
    """Pairs of numbers of which one can be told from the other."""
    seen = walk.seen
    centred = seen - seen.mean(0)
    norms = np.sqrt((centred**2).sum(0))
    lively = np.flatnonzero(norms > 1e-6 * (1 + np.abs(seen).max(0)))
    unit = centred[:, lively] / norms[lively]
    correlation = np.abs(unit.T @ unit)
    pairs = [(int(lively[i]), int(lively[j]), correlation[i, j]) for i, j in np.argwhere(np.triu(correlation, 1) > ALIKE)]
    if not pairs:
        return []
    shown = ", ".join(f"{i} and {j} ({r:.5f})" for i, j, r in pairs[:SHOWN]) + (", .." if len(pairs) > SHOWN else "")
    pair = "pair" if len(pairs) == 1 else "pairs"
    return [f"{len(pairs)} {pair} of observations say the same (correlation of indices {shown}); keep one of each."]


def _scales(spec: EnvSpec, walk: Walk) -> list[str]:
    """Factors far from the size of one, and numbers of one factor, or factors, that are far from each other."""
    scale = {factor["name"]: factor["std"] for factor in factors(spec, walk) if factor["std"] > 0}
    found = [
        f"Factor {name!r} has a mean standard deviation of {value:.2g}, {'below' if value < SMALL else 'above'} "
        f"{SMALL if value < SMALL else LARGE:g}; scale its numbers to about 1."
        for name, value in scale.items()
        if not SMALL <= value <= LARGE
    ]
    deviation = walk.seen.std(0)
    for name, indices in zip(spec.factorization.names, spec.factorization.indices, strict=True):
        own = sorted((i for i in indices if walk.moved[i]), key=lambda i: deviation[i])
        if own and deviation[own[-1]] > APART * deviation[own[0]] > 0:
            found.append(
                f"Within factor {name!r} the standard deviations of index {own[0]} ({deviation[own[0]]:.2g}) and index "
                f"{own[-1]} ({deviation[own[-1]]:.2g}) differ {deviation[own[-1]] / deviation[own[0]]:.0f} times; scale "
                "both to about 1."
            )
    ordered = sorted(scale, key=lambda name: scale[name])
    if ordered and scale[ordered[-1]] > APART * scale[ordered[0]]:
        low, high = ordered[0], ordered[-1]
        found.append(
            f"The scales of {low!r} ({scale[low]:.2g}) and {high!r} ({scale[high]:.2g}) differ "
            f"{scale[high] / scale[low]:.0f} times; scale both to about 1."
        )
    return found


def _endings(spec: EnvSpec, walk: Walk) -> list[str]:
    """Episodes that end by themselves after a few steps, or that a time limit of the environment's own cuts off."""
    num_envs = np.arange(len(walk.obs)) % spec.horizon == spec.horizon - 1  # where all worlds are reset
    ended, cut = [], []
    for terminated, truncated in zip(walk.terminated.T, walk.truncated.T, strict=True):
        ends = [-1, *np.flatnonzero(terminated | truncated | num_envs).tolist()]
        for first, last in pairwise(ends):
            if terminated[last]:
                ended.append(last - first)
            elif truncated[last] and last - first < spec.horizon:
                cut.append(last - first)
    found = []
    if ended and np.mean(ended) < EARLY * spec.horizon:
        found.append(
            f"{len(ended)} episodes ended by themselves after {np.mean(ended):.1f} steps on average, of {spec.horizon}; a "
            "skill has little time to show. End episodes later, or set a shorter horizon."
        )
    if cut:
        found.append(
            f"A time limit of the environment's own cut off {len(cut)} episodes after {np.mean(cut):.1f} steps on average, "
            f"of {spec.horizon}; set horizon to its limit, or remove it."
        )
    return found


def _steps(walk: Walk) -> int:
    return int(np.prod(walk.terminated.shape))


def _indices(indices: list[int]) -> str:
    shown = ", ".join(map(str, indices[:SHOWN])) + (", .." if len(indices) > SHOWN else "")
    return f"ind{'ex' if len(indices) == 1 else 'ices'} {shown}"
