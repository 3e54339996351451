"""Statistics of a few seeds: mean, interquartile mean, stratified bootstrap intervals, probability of improvement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from susd.errors import UserError

RESAMPLES = 10_000
LEVEL = 0.95

Strata = Sequence[np.ndarray]  # one array of scores per stratum, for instance per task; each entry is one seed


@dataclass(frozen=True)
class Estimate:
    """A value with its bootstrap interval, and the number of scores that it was computed from."""

    value: float
    low: float
    high: float
    count: int


def mean(scores: np.ndarray) -> np.ndarray:
    """The mean over the last axis."""
    return np.mean(scores, axis=-1)


def iqm(scores: np.ndarray) -> np.ndarray:
    """The interquartile mean over the last axis: a quarter of the scores is cut off at each end, rounded down."""
    ordered = np.sort(scores, axis=-1)
    count = ordered.shape[-1]
    return ordered[..., count // 4 : count - count // 4].mean(axis=-1)


def improvement(first: Strata, second: Strata) -> np.ndarray:
    """P(X > Y) of two methods, ties counting half, averaged over the strata; 0.5 means neither is better."""
    return np.mean([_above(x, y) for x, y in zip(first, second, strict=True)], axis=0)


def _above(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    difference = np.sign(x[..., :, None] - y[..., None, :])
    return (difference.mean(axis=(-1, -2)) + 1) / 2


def estimate(
    strata: Strata, statistic: Callable[[np.ndarray], np.ndarray] = mean, seed: int = 0, resamples: int = RESAMPLES
) -> Estimate:
    """A statistic of all scores with its percentile interval; every stratum is resampled within itself."""
    arrays = _checked(strata)
    drawn = _resample(arrays, np.random.default_rng(seed), resamples)
    interval = _interval(statistic(np.concatenate(drawn, axis=-1)))
    return Estimate(float(statistic(np.concatenate(arrays))), *interval, sum(len(a) for a in arrays))


def estimate_improvement(first: Strata, second: Strata, seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """The probability of improvement of the first over the second, with its percentile interval."""
    one, other = _checked(first), _checked(second)
    if len(one) != len(other):
        raise UserError(f"{len(one)} strata against {len(other)}; both methods need the same tasks")
    rng = np.random.default_rng(seed)
    draws = improvement(_resample(one, rng, resamples), _resample(other, rng, resamples))
    return Estimate(float(improvement(one, other)), *_interval(draws), sum(len(a) for a in (*one, *other)))


def _checked(strata: Strata) -> list[np.ndarray]:
    arrays = [np.asarray(scores, float).ravel() for scores in strata]
    if not arrays or any(len(scores) == 0 for scores in arrays):
        raise UserError("statistics need at least one score in every stratum")
    if not all(np.isfinite(scores).all() for scores in arrays):
        raise UserError("statistics need finite scores")
    return arrays


def _resample(strata: list[np.ndarray], rng: np.random.Generator, resamples: int) -> list[np.ndarray]:
    """Every stratum drawn with replacement from itself, [resamples, n] each."""
    return [scores[rng.integers(0, len(scores), (resamples, len(scores)))] for scores in strata]


def _interval(draws: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
