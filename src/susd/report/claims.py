"""Sentences made from the results: where SUSD is ahead, where it is not, and what was not run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from susd.downstream.config import WAYS
from susd.envs.registry import environments
from susd.evaluation.registry import evaluation, names
from susd.experiments.extract import FLAT
from susd.experiments.metrics_store import Fact
from susd.experiments.statistics import Estimate
from susd.methods.registry import methods
from susd.report.aggregate import (
    PerSeed,
    Setting,
    Tasks,
    by_way,
    differences,
    interquartile_means,
    labels_of,
    mean_of,
    over_seeds,
    per_seed,
    repeated,
)
from susd.report.labels import OURS, base, environment_title, in_order, is_rival, pretrained, title_of
from susd.tasks.registry import tasks as registered_tasks

Claim = tuple[str, str]  # topic and sentences
SHARE = 100.0  # the scale of shares, which cannot be above 100 %


def group_title(environment: str, pretrained: str, ways: int) -> str:
    """The title of an environment; how runs were pretrained is added where there are several ways."""
    name = environment_title(environment)
    how = {"fixed": "pretrained on one layout", "random": "pretrained on random layouts"}[pretrained]
    return f"{name}, {how}" if ways > 1 or pretrained == "random" else name


def setting_title(setting: Setting, settings: Sequence[Setting]) -> str:
    """The title of a setting, with what distinguishes it from the others of its environment."""
    others = [other for other in settings if other.environment == setting.environment]
    name = group_title(setting.environment, setting.pretrained, len({other.pretrained for other in others}))
    many = len({other.tested for other in others}) > 1 or setting.tested == "random"
    return f"{name}, tested on {setting.tested} layouts" if many else name


def format_estimate(found: Estimate, digits: int = 1, scale: float = 1.0, unit: str = "") -> str:
    """A mean with its interval, that of a share within 100 %; what is not repeated has none."""
    found = found.within(-math.inf, 1.0) if scale == SHARE else found
    value, low, high = (decimal(scale * part, digits) for part in (found.value, found.low, found.high))
    return f"{value}{unit}" if not found.known else f"{value}{unit} [{low}, {high}]"


def decimal(value: float, digits: int) -> str:
    """A value with so many digits; zero has no minus sign."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def in_words(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def overlap(one: Estimate, other: Estimate) -> bool:
    """Whether two intervals share a point; one seed has no interval, so overlap cannot be ruled out."""
    return not one.known or not other.known or (one.low <= other.high and other.low <= one.high)


def _close(one: Estimate, other: Estimate) -> str:
    if not (one.known and other.known):
        return ", a single seed on one side"
    return ", intervals overlap" if overlap(one, other) else ""


def claims(facts: Sequence[Fact], scores: Mapping[Setting, Tasks], environment: str, way: str) -> list[Claim]:
    """The rank of SUSD among its rivals in one environment, pretrained in one way."""
    found = []
    for tested in ("fixed", "random"):
        tasks = scores.get(Setting(environment, way, tested), {})
        topic = "Tasks" if tested == "fixed" else "Tasks on random layouts"
        for endings, own in by_way(tasks).items():
            if sentences := [*_tasks(own), *_over_tasks(own)]:
                found.append((", ".join([topic, *(WAYS[ending] for ending in endings)]), " ".join(sentences)))
    mine = [fact for fact in facts if fact.environment == environment and pretrained(fact.label) == way]
    covered = [f for f in mine if (f.metric, f.subject) == ("cells_worst", "trained, mean actions")]
    steps = min((fact.step for fact in covered), default=0)
    topic = f"Coverage (cells of the worst body, mean actions, {steps:,} steps)"
    found += _leader(topic, per_seed(covered, step=steps), 1, 100.0, " %")
    errors = per_seed(mine, phase="decoding", metric="error", subject="phi")
    found += _leader("Decoding (error from the whole embedding)", errors, 3, low=True)
    return found + _leader("Control (own factor moved / others)", per_seed(mine, phase="control", metric="ratio"), 1)


def main_results(facts: Sequence[Fact], environment: str, way: str) -> list[Claim]:
    """Training, coverage and control of every label in one environment, where there is nothing to compare."""
    mine = [fact for fact in facts if fact.environment == environment and pretrained(fact.label) == way]
    found = []
    for label in in_order(base(fact.label) for fact in mine):
        own = [fact for fact in mine if base(fact.label) == label]
        parts = []
        if seconds := per_seed(own, metric="train_seconds").get(label):
            steps = max(fact.step for fact in own if fact.metric == "train_seconds")
            parts.append(f"{steps:,} steps of training in {over_seeds(seconds).value / 60:.1f} minutes")
        cells = {
            who: per_seed(own, subject=f"{who}, mean actions", metric="cells_worst") for who in ("trained", "untrained")
        }
        if all(label in of for of in cells.values()):
            shares = [format_estimate(over_seeds(of[label]), 1, 100, " %") for of in cells.values()]
            parts.append(f"{shares[0]} of the cells visited with mean actions (untrained: {shares[1]})")
        if ratios := per_seed(own, phase="control", metric="ratio").get(label):
            parts.append(f"own factor moved {format_estimate(over_seeds(ratios))} times as much as others")
        if parts:
            found.append((title_of(label), f"{'; '.join(parts)}."))
    return found


def _tasks(tasks: Tasks) -> list[str]:
    """Which tasks SUSD leads, and which methods lead the others; a task with one seed on a side allows no claim."""
    led, lost, single = [], [], []
    for task, by_label in tasks.items():
        rivals = {label: mean_of(found) for label, found in by_label.items() if is_rival(label)}
        if OURS not in by_label or not rivals:
            continue
        ours = mean_of(by_label[OURS])
        known = {label: found for label, found in rivals.items() if found.known}
        if not ours.known or not known:
            single.append(task)
            continue
        order = sorted(known, key=lambda label: -known[label].value)
        above = [label for label in order if known[label].value > ours.value]
        if not above:
            led.append(f"{task}{_close(known[order[0]], ours)}")
            continue
        close = _close(known[above[0]], ours)
        more = f", also behind {in_words([title_of(label) for label in above[1:]])}" if above[1:] else ""
        best = f"{title_of(above[0])} {format_estimate(known[above[0]])}"
        lost.append(f"{task} ({best} against {format_estimate(ours)}{close}{more})")
    sentences = []
    if led or lost:
        which = f": {'; '.join(led)}" if led else ""
        sentences.append(f"SUSD has the highest mean in {len(led)} of {len(led) + len(lost)}{which}.")
    sentences += [f"It is behind in {in_words(lost)}."] if lost else []
    return sentences + ([f"One seed on a side allows no comparison in {in_words(single)}."] if single else [])


def _over_tasks(tasks: Tasks) -> list[str]:
    """The aggregate of SUSD and of its best rival, and which rivals it differs from."""
    iqm, further = interquartile_means(tasks), differences(tasks, OURS)
    rivals = {label: found for label, found in iqm.items() if is_rival(label)}
    if OURS not in iqm or not rivals:
        return []
    best = max(rivals, key=lambda label: rivals[label].value)
    both = f"SUSD {format_estimate(iqm[OURS], 2)}, the best rival, {title_of(best)}, {format_estimate(rivals[best], 2)}"
    known = iqm[OURS].known and rivals[best].known
    sentences = [f"Interquartile mean of normalised scores: {both}."] if known else []
    several = {label: repeated(tasks, OURS) and repeated(tasks, label) for label in further if is_rival(label)}
    against = {label: further[label] for label, known in several.items() if known}
    higher = [title_of(label) for label, found in against.items() if found.low > 0]
    if higher:
        sentences.append(f"SUSD scores higher than {in_words(higher)}.")
    lower = [label for label, found in against.items() if found.high < 0]
    close = [label for label, found in against.items() if found.low <= 0 <= found.high]
    for words, labels in (("It scores lower than", lower), ("It cannot be distinguished from", close)):
        if labels:
            by = {label: f"difference {format_estimate(against[label], 2)}" for label in labels}
            sentences.append(f"{words} {in_words([f'{title_of(label)} ({words})' for label, words in by.items()])}.")
    if single := [title_of(label) for label, known in several.items() if not known]:
        sentences.append(f"One seed is too few for a comparison with {in_words(single)}.")
    return sentences


def _leader(
    topic: str, values: Mapping[str, PerSeed], digits: int, scale: float = 1.0, unit: str = "", low: bool = False
) -> list[Claim]:
    """Which method is ahead in a measurement, and the rank of SUSD."""
    found = {label: over_seeds(of) for label, of in values.items() if label == OURS or is_rival(label)}
    if OURS not in found or len(found) < 2:
        return []
    ours, sign = found[OURS], 1 if low else -1
    if not ours.known or not any(of.known for label, of in found.items() if label != OURS):
        each = in_words([f"{title_of(label)} {decimal(scale * of.value, digits)}{unit}" for label, of in found.items()])
        return [(topic, f"One seed on a side allows no comparison: {each}.")]
    found = {label: of for label, of in found.items() if of.known}
    values_of = {label: f"{title_of(label)} {format_estimate(of, digits, scale, unit)}" for label, of in found.items()}
    rivals = sorted((label for label in found if label != OURS), key=lambda label: sign * found[label].value)
    ahead = [label for label in rivals if sign * found[label].value < sign * ours.value]
    close = _close(found[rivals[0]], ours)
    mine = format_estimate(ours, digits, scale, unit)
    if ahead:
        rank = f"SUSD is number {len(ahead) + 1} of {len(found)} with {mine}"
        return [(topic, f"{rank}, behind {in_words([values_of[label] for label in ahead])}{close}.")]
    equal = found[rivals[0]].value == ours.value
    rank, then = ("is level", "") if equal else ("leads", "next is ")
    return [(topic, f"SUSD {rank} with {mine}; {then}{values_of[rivals[0]]}{close}.")]


def not_run(facts: Sequence[Fact]) -> list[str]:
    """What the package has and these facts do not."""
    run = sorted({fact.environment for fact in facts})
    lines = []
    if missing := [entry.title for name, entry in environments().items() if name not in run]:
        lines.append(f"Not run: {in_words(missing)}.")
    for environment in run:
        mine = [fact for fact in facts if fact.environment == environment]
        labels = {base(fact.label) for fact in mine}
        tasks = {fact.subject.rpartition("@")[0] for fact in mine if fact.phase == "downstream"}
        gaps = [card.title for name, card in methods().items() if name not in labels and not card.base]
        known = [entry.short for entry in registered_tasks().values() if entry.env == environment]
        gaps += [title_of(FLAT)] * (FLAT not in labels and bool(known))
        gaps += [f"task {task}" for task in known if task not in tasks]
        missing = [name for name in names() if not any(fact.phase == name for fact in mine)]
        gaps += [name for name in missing if not evaluation(name).undefined(environment, methods()[OURS])]
        if gaps:
            lines.append(f"Not run in {environment_title(environment)}: {in_words(gaps)}.")
    return lines or ["Every environment, method and task of the package was run."]


def fewer_scores(tasks: Tasks) -> list[str]:
    """Labels with fewer scores than the others in a task."""
    gaps = []
    for task, by_label in tasks.items():
        most = max(map(len, by_label.values()))
        counts = {label: len(by_label.get(label, ())) for label in labels_of(tasks)}
        gaps += [f"{title_of(label)} in {task} ({count} of {most})" for label, count in counts.items() if count < most]
    return [f"Fewer scores than the others: {in_words(gaps)}."] if gaps else []
