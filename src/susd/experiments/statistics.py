"""Statistics of a few seeds: means, interquartile means, probability of improvement, profiles, variance components.

The unit is the seed of the skills. Scores of one set of skills, with other high-level seeds or layouts, are not
independent: the bootstrap draws seeds, and with a seed all its scores in all tasks (Davison and Hinkley, 1997, 3.8). A
percentile interval of three seeds holds their mean in three cases of four instead of 95 of 100; its ends are moved away
from the value by the factor that makes that of a mean as wide as Student's (Hesterberg, 2015). Where only one seed is
known there is no interval, however many scores it has, and none over several tasks unless each has two seeds or more.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtrit

from susd.errors import UserError

RESAMPLES = 2000
TAIL = 0.025  # that an interval of 95 % leaves out on either side

Strata = Sequence[np.ndarray]  # one array of scores per stratum, for instance per task
Groups = Sequence[Sequence[Hashable]] | None  # the seed of every score, by stratum; None: every score has its own
Square = tuple[Hashable, Hashable, Hashable]  # a cell of a Latin square: row, column, letter
Statistic = Callable[[np.ndarray, np.ndarray | None], np.ndarray]


@dataclass(frozen=True)
class Estimate:
    """A value with its bootstrap interval, the number of its scores, and of seeds in every stratum at least."""

    value: float
    low: float  # not a number where nothing is repeated
    high: float
    count: int
    seeds: int

    @property
    def known(self) -> bool:
        """Whether it has an interval."""
        return not math.isnan(self.low)

    def within(self, low: float, high: float) -> Estimate:
        """The same, with an interval that ends where values cannot be."""
        return dataclasses.replace(self, low=max(low, self.low), high=min(high, self.high)) if self.known else self


def mean(scores: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """The mean over the last axis; weights [.., n] say how often each score counts."""
    if weights is None:
        return np.mean(scores, axis=-1)
    return (weights * scores).sum(axis=-1) / weights.sum(axis=-1)


def iqm(scores: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """The interquartile mean over the last axis: a quarter of the scores is cut off at each end, rounded down."""
    order = np.argsort(scores, axis=-1)
    scores = np.take_along_axis(scores, order, axis=-1)
    weights = np.ones_like(scores) if weights is None else weights[..., order]
    total = weights.sum(axis=-1, keepdims=True)
    cut, end = total // 4, np.cumsum(weights, axis=-1)
    kept = np.clip(np.minimum(end, total - cut) - np.maximum(end - weights, cut), 0, None)
    return (kept * scores).sum(axis=-1) / kept.sum(axis=-1)


def improvement(first: Strata, second: Strata) -> float:
    """P(X > Y) of two methods, ties counting half, averaged over the strata; 0.5 means neither is better."""
    return float(np.mean([_above(x, y).mean() for x, y in zip(first, second, strict=True)]))


def _above(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """[n, m]: 1 where a score of the first is higher, 0.5 where they are equal."""
    return (np.sign(x[:, None] - y[None, :]) + 1) / 2


def estimate(
    strata: Strata, statistic: Statistic = mean, groups: Groups = None, seed: int = 0, resamples: int = RESAMPLES
) -> Estimate:
    """A statistic of all scores with its interval."""
    arrays, seeds = _checked(strata, groups)
    scores, count = np.concatenate(arrays), _repeats(seeds)
    value = float(statistic(scores, None))
    if count < 2:
        return Estimate(value, math.nan, math.nan, len(scores), count)
    weights = np.concatenate(_weights(seeds, np.random.default_rng(seed), resamples, groups is not None), axis=-1)
    return Estimate(value, *_interval(statistic(scores, weights), value, count), len(scores), count)


def estimate_difference(
    first: Strata,
    second: Strata,
    statistic: Statistic = mean,
    groups: tuple[Groups, Groups] = (None, None),
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Estimate:
    """A statistic of the first minus that of the second, with its interval, which draws the seeds of both apart."""
    rng, values, draws, counts, repeats = np.random.default_rng(seed), [], [], 0, []
    for strata, of in zip((first, second), groups, strict=True):
        arrays, seeds = _checked(strata, of)
        scores, count = np.concatenate(arrays), _repeats(seeds)
        weights = np.concatenate(_weights(seeds, rng, resamples, of is not None), axis=-1)
        values.append(float(statistic(scores, None)))
        draws.append(statistic(scores, weights))
        counts += len(scores)
        repeats.append(count)
    value = values[0] - values[1]
    if min(repeats) < 2:
        return Estimate(value, math.nan, math.nan, counts, min(repeats))
    variances = [float(np.nanvar(of)) for of in draws]
    low, high = _interval(draws[0] - draws[1], value, *repeats, variances=variances)
    return Estimate(value, low, high, counts, min(repeats))


def estimate_improvement(
    first: Strata,
    second: Strata,
    groups: tuple[Groups, Groups] = (None, None),
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Estimate:
    """The probability of improvement of the first over the second, with its interval."""
    (one, own), (other, theirs) = (_checked(strata, of) for strata, of in zip((first, second), groups, strict=True))
    if len(one) != len(other):
        raise UserError(f"{len(one)} strata against {len(other)}; both methods need the same tasks")
    value, count = improvement(one, other), sum(len(a) for a in (*one, *other))
    seeds = min(_repeats(own), _repeats(theirs))
    if seeds < 2:
        return Estimate(value, math.nan, math.nan, count, seeds)
    rng, draws = np.random.default_rng(seed), []
    both = [_weights(of, rng, resamples, given is not None) for of, given in zip((own, theirs), groups, strict=True)]
    for x, y, of_x, of_y in zip(one, other, *both, strict=True):
        pairs = of_x.sum(axis=1) * of_y.sum(axis=1)
        found = np.einsum("ri,ij,rj->r", of_x, _above(x, y), of_y)
        draws.append(np.where(pairs > 0, found / np.maximum(pairs, 1), np.nan))
    return _of_share(value, np.nanmean(draws, axis=0), count, seeds)


def profile(strata: Strata, thresholds: Sequence[float], groups: Groups = None, seed: int = 0) -> list[Estimate]:
    """The share of scores above each threshold (performance profile; Agarwal et al., 2021)."""
    arrays, seeds = _checked(strata, groups)
    above = np.concatenate(arrays)[:, None] > np.asarray(thresholds)[None, :]
    shares, count = above.mean(axis=0), _repeats(seeds)
    if count < 2:
        return [Estimate(float(share), math.nan, math.nan, len(above), count) for share in shares]
    weights = np.concatenate(_weights(seeds, np.random.default_rng(seed), RESAMPLES, groups is not None), axis=-1)
    draws = weights @ above / weights.sum(axis=-1, keepdims=True)
    return [_of_share(float(share), of, len(above), count) for share, of in zip(shares, draws.T, strict=True)]


def variance_components(
    cells: Mapping[tuple[Hashable, Hashable, Hashable], float],
) -> tuple[float, float, float, float] | None:
    """The variance due to each factor of a complete Latin square, and the rest; None if a cell is missing.

    `cells` maps (row, column, letter) to a score: skill seed, high-level seed and layout. Components are those of the
    analysis of variance, (mean square - mean square of the rest) / n, at least 0.
    """
    levels = [sorted({key[axis] for key in cells}, key=repr) for axis in range(3)]
    n = len(levels[0])
    pairs = [len({(key[i], key[j]) for key in cells}) for i, j in ((0, 1), (0, 2), (1, 2))]
    if n < 3 or {len(of) for of in levels} != {n} or len(cells) != n * n or set(pairs) != {n * n}:
        return None
    centre = np.mean(list(cells.values()))
    squares = [
        n * sum((np.mean([v for key, v in cells.items() if key[axis] == level]) - centre) ** 2 for level in levels[axis])
        for axis in range(3)
    ]
    rest = sum((value - centre) ** 2 for value in cells.values()) - sum(squares)
    noise = max(0.0, float(rest)) / ((n - 1) * (n - 2))
    one, two, three = (max(0.0, (float(square) / (n - 1) - noise) / n) for square in squares)
    return one, two, three, noise


def _checked(strata: Strata, groups: Groups) -> tuple[list[np.ndarray], list[list[Hashable]]]:
    arrays = [np.asarray(scores, float).ravel() for scores in strata]
    if not arrays or any(len(scores) == 0 for scores in arrays):
        raise UserError("statistics need at least one score in every stratum")
    if not all(np.isfinite(scores).all() for scores in arrays):
        raise UserError("statistics need finite scores")
    names: list[list[Hashable]] = [list(range(len(a))) for a in arrays] if groups is None else [list(of) for of in groups]
    if [len(of) for of in names] != [len(a) for a in arrays]:
        raise UserError("statistics need one seed for every score")
    return arrays, names


def _repeats(seeds: list[list[Hashable]]) -> int:
    """The fewest seeds that a stratum has: a task with one seed varies too, by an amount that nobody knows."""
    return min(len(set(of)) for of in seeds)


def _weights(
    seeds: list[list[Hashable]], rng: np.random.Generator, resamples: int, shared: bool = True
) -> list[np.ndarray]:
    """How often every score is drawn, [resamples, n] by stratum: as often as its seed.

    A seed of that name is the same one in all strata, unless they share none.
    """
    if not shared:
        return [_weights([of], rng, resamples)[0] for of in seeds]
    names = sorted({name for of in seeds for name in of}, key=repr)
    drawn = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), resamples).astype(float)
    return [drawn[:, [names.index(name) for name in of]] for of in seeds]


def _interval(draws: np.ndarray, value: float, *seeds: int, variances: Sequence[float] = (1.0,)) -> tuple[float, float]:
    """The percentile interval, its ends moved away from the value by what few seeds make it too narrow.

    A bootstrap variance lacks the factor n / (n - 1), and percentiles are those of a normal distribution instead of
    Student's t. Of two sides, whose variances are given, the degrees of freedom are those of Welch (1947).
    """
    number, drawn = np.array(seeds, float), np.array(variances)
    unbiased = drawn * number / (number - 1)
    wider = 1.0
    if unbiased.sum() > 0:
        freedom = unbiased.sum() ** 2 / (unbiased**2 / (number - 1)).sum()
        wider = stdtrit(freedom, 1 - TAIL) / ndtri(1 - TAIL) * math.sqrt(unbiased.sum() / drawn.sum())
    low, high = np.nanquantile(draws, (TAIL, 1 - TAIL))
    return float(value + wider * (low - value)), float(value + wider * (high - value))


def _of_share(value: float, draws: np.ndarray, count: int, seeds: int) -> Estimate:
    """A share with its interval; where all seeds agree, the exact one of as many trials (Clopper and Pearson, 1934)."""
    found = Estimate(value, *_interval(draws, value, seeds), count, seeds).within(0.0, 1.0)
    if found.low < found.high:
        return found
    far = 1 - TAIL ** (1 / seeds)  # the largest probability of never seeing it
    return dataclasses.replace(found, low=max(0.0, value - far), high=min(1.0, value + far))
