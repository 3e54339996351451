"""Statistics compared with scipy and by simulation."""

import numpy as np
import pytest
from scipy import stats

from susd.errors import UserError
from susd.experiments import statistics
from susd.experiments.statistics import estimate, estimate_difference, estimate_improvement, improvement, iqm


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


def test_interval_is_scipys_percentile_bootstrap_of_students_width() -> None:
    scores = np.random.default_rng(1).exponential(size=25)
    ours = estimate([scores], resamples=20_000)
    theirs = stats.bootstrap((scores,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(2))
    assert ours.value == pytest.approx(scores.mean())
    assert ours.count == 25
    wider = stats.t.ppf(0.975, 24) / stats.norm.ppf(0.975) * np.sqrt(25 / 24)
    ends = np.array(theirs.confidence_interval)
    low, high = scores.mean() + wider * (ends - scores.mean())
    assert (ours.low, ours.high) == pytest.approx((low, high), abs=0.03 * (high - low))


def test_strata_are_resampled_separately() -> None:
    """Two tasks whose scores differ by a thousand: a difference between tasks is no uncertainty."""
    tasks = [np.array([0.0, 1.0, 2.0]), np.array([1000.0, 1001.0, 1002.0])]
    separate, pooled = estimate(tasks), estimate([np.concatenate(tasks)])
    assert separate.value == pooled.value == 501.0
    assert separate.high - separate.low < 4.0
    assert pooled.high - pooled.low > 500.0


@pytest.mark.parametrize("statistic", [statistics.mean, iqm])
@pytest.mark.parametrize("seeds", [2, 3, 30])
def test_intervals_have_their_coverage(statistic: object, seeds: int) -> None:
    """95 % with few seeds as with many; a percentile interval of three has 74 %."""
    rng, hits = np.random.default_rng(3), 0
    for trial in range(400):
        found = estimate([rng.normal(1.0, 2.0, seeds)], statistic, seed=trial, resamples=300)  # type: ignore[arg-type]
        hits += found.low <= 1.0 <= found.high
    assert 0.91 <= hits / 400 <= 0.99


@pytest.mark.parametrize("spread", [1.0, 0.1])
def test_interval_of_a_difference_has_its_coverage(spread: float) -> None:
    """Three seeds of both sides, which vary as much or by a tenth."""
    rng, hits = np.random.default_rng(8), 0
    for trial in range(400):
        sides = [rng.normal(5.0, 1.0, 3)], [rng.normal(3.0, spread, 3)]
        found = estimate_difference(*sides, seed=trial, resamples=300)
        hits += found.low <= 2.0 <= found.high
    assert 0.91 <= hits / 400 <= 0.99


def test_difference() -> None:
    found = estimate_difference([np.array([5.0, 6.0, 7.0])], [np.array([1.0, 2.0, 3.0])])
    assert (found.value, found.count, found.seeds) == (4.0, 6, 3)
    assert 0.0 < found.low < 4.0 < found.high
    back = estimate_difference([np.array([1.0, 2.0, 3.0])], [np.array([5.0, 6.0, 7.0])])
    assert back.value == -4.0
    assert back.high < 0.0
    assert not estimate_difference([np.array([1.0])], [np.array([1.0, 2.0])]).known
    same = estimate_difference([np.array([2.0, 2.0])], [np.array([1.0, 1.0])])
    assert (same.low, same.high) == (1.0, 1.0)


def test_interval_of_improvement() -> None:
    low, high = [np.arange(5.0)], [np.arange(5.0) + 100]
    sure = estimate_improvement(high, low, resamples=200)
    assert (sure.value, sure.high, sure.count, sure.seeds) == (1.0, 1.0, 10, 5)
    assert sure.low == pytest.approx(stats.binomtest(5, 5).proportion_ci().low)  # five of five agree: not certainty
    assert estimate_improvement(low, high, resamples=200).high == pytest.approx(1 - sure.low)
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


def test_seeds_are_resampled_not_evaluations() -> None:
    """Ten scores of each of three seeds say no more about a fourth seed than three scores do."""
    seeds = np.repeat([0.0, 5.0, 10.0], 10)
    by_seed = estimate([seeds + np.tile(np.linspace(-0.1, 0.1, 10), 3)], groups=[list(seeds)])
    by_score = estimate([seeds])
    assert (by_seed.count, by_seed.seeds) == (30, 3)
    assert by_seed.high - by_seed.low > 2 * (by_score.high - by_score.low)


def test_hierarchical_intervals_have_their_coverage() -> None:
    """Skill seeds differ by 1, scores within a seed by 1; resampling scores alone would cover the truth far too rarely."""
    rng, hits = np.random.default_rng(5), np.zeros(2)
    for trial in range(150):
        scores = rng.normal(0.0, 1.0, (12, 1)) + rng.normal(0.0, 1.0, (12, 5))
        groups = [list(np.repeat(np.arange(12), 5))]
        for i, of in enumerate((groups, None)):
            found = estimate([scores.ravel()], groups=of, seed=trial, resamples=300)
            hits[i] += found.low <= 0.0 <= found.high
    assert hits[0] / 150 >= 0.9
    assert hits[1] / 150 <= 0.8


def test_no_interval_where_nothing_repeats() -> None:
    """One score per task, or one seed with many scores: a bootstrap would give an interval without any width."""
    for strata, groups in (([[1.0], [2.0], [3.0]], None), ([[1.0, 2.0, 9.0]], [[0, 0, 0]]), ([[1.0], [2.0]], [[0], [1]])):
        found = estimate([np.array(of) for of in strata], groups=groups)
        assert not found.known
        assert np.isnan([found.low, found.high]).all()
    assert not estimate_improvement([np.arange(5.0)], [np.array([1.0])]).known
    assert estimate([np.array([2.0, 2.0])]).known  # two equal scores are a result


def test_every_task_must_repeat() -> None:
    """Two seeds in one task say nothing about the variance in another."""
    strata, seeds = [np.array([1.0, 2.0]), np.array([5.0])], [[0, 1], [0]]
    assert not estimate(strata, iqm, seeds).known
    assert estimate(strata, iqm, seeds).seeds == 1
    assert not statistics.profile(strata, [1.5], seeds)[0].known
    both = [np.array([1.0, 2.0]), np.array([5.0, 6.0])]
    assert not estimate_improvement(strata, both, (seeds, [[0, 1], [0, 1]])).known
    assert estimate_improvement(both, both, ([[0, 1], [0, 1]],) * 2).known


def test_weighted_iqm_is_that_of_repeated_scores() -> None:
    rng = np.random.default_rng(6)
    scores, weights = rng.normal(size=11), rng.integers(0, 4, 11).astype(float)
    assert iqm(scores, weights[None])[0] == pytest.approx(iqm(np.repeat(scores, weights.astype(int))))


def test_a_seed_is_drawn_in_all_tasks() -> None:
    """A seed that is good in every task is one observation, not one for each task."""
    tasks, seeds = [np.array([0.0, 1.0])] * 8, [[0, 1]] * 8
    together, apart = estimate(tasks, groups=seeds), estimate(tasks)
    assert apart.high - apart.low < 0.7 * (together.high - together.low)


def test_profile() -> None:
    shares = statistics.profile([np.array([0.1, 0.5]), np.array([0.7, 0.9])], [0.0, 0.6, 1.0])
    assert [found.value for found in shares] == [1.0, 0.5, 0.0]
    assert [(found.low >= 0.0, found.high <= 1.0, found.low < found.high) for found in shares] == [(True,) * 3] * 3


def test_variance_components_of_a_latin_square() -> None:
    """Known variances are found again; an incomplete square has none."""
    rng, found = np.random.default_rng(7), []
    square = {(i, j, (i + j) % 3) for i in range(3) for j in range(3)}
    for _ in range(400):
        a, b, c = rng.normal(0, 2, 3), rng.normal(0, 1, 3), rng.normal(0, 3, 3)
        components = statistics.variance_components(
            {(i, j, k): a[i] + b[j] + c[k] + rng.normal(0, 0.5) for i, j, k in square}
        )
        assert components is not None
        found.append(components)
    assert np.mean(found, axis=0) == pytest.approx([4.0, 1.0, 9.0, 0.25], rel=0.2)
    assert statistics.variance_components(dict.fromkeys(sorted(square)[:8], 1.0)) is None
