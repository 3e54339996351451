"""Statistics compared with scipy and by simulation."""

import numpy as np
import pytest
from scipy import stats

from susd.errors import UserError
from susd.experiments import statistics
from susd.experiments.statistics import Estimate, estimate, estimate_improvement, improvement, iqm


@pytest.mark.parametrize("count", [1, 3, 4, 7, 8, 30])
def test_iqm_is_the_trimmed_mean(count: int) -> None:
    scores = np.random.default_rng(count).normal(size=count)
    assert iqm(scores) == pytest.approx(stats.trim_mean(scores, 0.25))
    assert iqm(scores.reshape(1, -1)) == iqm(scores[::-1])


def test_iqm_ignores_an_outlier() -> None:
    assert iqm(np.array([1.0, 2.0, 3.0, 1e9])) == 2.5


def test_improvement_is_the_rank_statistic() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 9, 12).astype(float), rng.integers(2, 11, 15).astype(float)  # with ties
    expected = stats.mannwhitneyu(x, y).statistic / (12 * 15)
    assert improvement([x], [y]) == pytest.approx(expected)
    assert improvement([y], [x]) == pytest.approx(1 - expected)
    assert improvement([x, y], [x, x]) == pytest.approx((0.5 + improvement([y], [x])) / 2)


def test_interval_is_scipys_percentile_bootstrap() -> None:
    scores = np.random.default_rng(1).exponential(size=25)
    ours = estimate([scores], resamples=20_000)
    theirs = stats.bootstrap((scores,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(2))
    assert ours.value == pytest.approx(scores.mean())
    assert ours.count == 25
    width = theirs.confidence_interval.high - theirs.confidence_interval.low
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=0.03 * width)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=0.03 * width)


def test_strata_are_resampled_separately() -> None:
    """Two tasks whose scores differ by a thousand: a difference between tasks is no uncertainty."""
    tasks = [np.array([0.0, 1.0, 2.0]), np.array([1000.0, 1001.0, 1002.0])]
    separate, pooled = estimate(tasks), estimate([np.concatenate(tasks)])
    assert separate.value == pooled.value == 501.0
    assert separate.high - separate.low < 2.0
    assert pooled.high - pooled.low > 500.0


@pytest.mark.parametrize(("statistic", "truth"), [(statistics.mean, 1.0), (iqm, 1.0)])
def test_intervals_have_their_coverage(statistic: object, truth: float) -> None:
    rng = np.random.default_rng(3)
    hits = 0
    for trial in range(200):
        found = estimate([rng.normal(truth, 2.0, 30)], statistic, seed=trial, resamples=400)  # type: ignore[arg-type]
        hits += found.low <= truth <= found.high
    assert 0.88 <= hits / 200 <= 0.99  # 0.95, a little less for a percentile interval of 30 scores


def test_interval_of_improvement() -> None:
    low, high = [np.arange(5.0)], [np.arange(5.0) + 100]
    assert estimate_improvement(high, low, resamples=200) == Estimate(1.0, 1.0, 1.0, 10)
    undecided = estimate_improvement(low, [np.arange(5.0)[::-1].copy()], resamples=500)
    assert undecided.value == 0.5
    assert undecided.low < 0.3
    assert undecided.high > 0.7


def test_same_seed_same_interval() -> None:
    scores = [np.random.default_rng(4).normal(size=9)]
    assert estimate(scores, iqm, seed=7, resamples=300) == estimate(scores, iqm, seed=7, resamples=300)
    assert estimate(scores, iqm, seed=7, resamples=300) != estimate(scores, iqm, seed=8, resamples=300)


def test_bad_scores_are_refused() -> None:
    with pytest.raises(UserError, match="at least one score in every stratum"):
        estimate([np.array([1.0]), np.array([])])
    with pytest.raises(UserError, match="finite"):
        estimate([np.array([1.0, np.nan])])
    with pytest.raises(UserError, match="2 strata against 1"):
        estimate_improvement([np.ones(2), np.ones(2)], [np.ones(2)])
