"""What the numbers say, in sentences made from them: where SUSD is ahead, where it is not, and what was not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from susd.evaluation import EVALUATIONS, ZERO_SHOT
from susd.experiments.metrics_store import Fact
from susd.experiments.statistics import Estimate
from susd.report import aggregate as sc
from susd.report.aggregate import ENVIRONMENTS, OURS, Setting, Tasks, name_of
from susd.tasks import TASKS
from susd.tasks.goals import RULES

Finding = tuple[str, str]  # what it is about, and the sentences


def world(environment: str, pretrained: str, ways: int) -> str:
    """An environment in words; how it was pretrained only where there are several ways."""
    name = ENVIRONMENTS.get(environment, environment)
    how = {"fixed": "pretrained on one layout", "random": "pretrained on random layouts"}[pretrained]
    return f"{name}, {how}" if ways > 1 or pretrained == "random" else name


def title(setting: Setting, settings: Sequence[Setting]) -> str:
    """A setting in words, with what sets it apart from the others of its environment."""
    others = [other for other in settings if other.environment == setting.environment]
    name = world(setting.environment, setting.pretrained, len({other.pretrained for other in others}))
    many = len({other.tested for other in others}) > 1 or setting.tested == "random"
    return f"{name}, tested on {setting.tested} layouts" if many else name


def number(found: Estimate, digits: int = 1, scale: float = 1.0, unit: str = "") -> str:
    """A mean with its interval, which a single score has not."""
    value, low, high = (decimal(scale * part, digits) for part in (found.value, found.low, found.high))
    return f"{value}{unit}" if found.count == 1 else f"{value}{unit} [{low}, {high}]"


def decimal(value: float, digits: int) -> str:
    """With so many digits, and no minus before a zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def overlap(one: Estimate, other: Estimate) -> bool:
    """Whether two intervals share a point; a single score has none, so nothing can be said against it."""
    return one.count == 1 or other.count == 1 or (one.low <= other.high and other.low <= one.high)


def _close(one: Estimate, other: Estimate) -> str:
    if min(one.count, other.count) == 1:
        return ", a single score on one side"
    return ", intervals overlap" if overlap(one, other) else ""


def of_world(facts: Sequence[Fact], scores: Mapping[Setting, Tasks], environment: str, way: str) -> list[Finding]:
    """Where SUSD stands among its rivals in one environment, pretrained in one way."""
    found = []
    for tested in ("fixed", "random"):
        tasks = scores.get(Setting(environment, way, tested), {})
        topic = "Tasks" if tested == "fixed" else "Tasks on random layouts"
        if sentences := [*_tasks(tasks), *_over_tasks(tasks)]:
            found.append((topic, " ".join(sentences)))
    mine = [fact for fact in facts if fact.environment == environment and sc.pretrained(fact.label) == way]
    covered = [f for f in mine if (f.metric, f.subject) == ("cells_worst", "trained, mean actions")]
    steps = min((fact.step for fact in covered), default=0)
    topic = f"Coverage (cells of the worst body, mean actions, {steps:,} steps)"
    found += _leader(topic, sc.per_seed(covered, step=steps), 1, 100.0, " %")
    errors = sc.per_seed(mine, phase="decoding", metric="error", subject="phi")
    found += _leader("Decoding (error from the whole embedding)", errors, 3, low=True)
    return found + _leader("Control (own factor moved / others)", sc.per_seed(mine, phase="control", metric="ratio"), 1)


def _tasks(tasks: Tasks) -> list[str]:
    """Which tasks SUSD leads, and who leads the others."""
    led, lost = [], []
    for task, by_label in tasks.items():
        rivals = {label: sc.mean_of(found) for label, found in by_label.items() if sc.is_rival(label)}
        if OURS not in by_label or not rivals:
            continue
        ours = sc.mean_of(by_label[OURS])
        order = sorted(rivals, key=lambda label: -rivals[label].value)
        above = [label for label in order if rivals[label].value > ours.value]
        if not above:
            led.append(task)
            continue
        close = _close(rivals[above[0]], ours)
        more = f", also behind {listed([name_of(label) for label in above[1:]])}" if above[1:] else ""
        lost.append(f"{task} ({name_of(above[0])} {number(rivals[above[0]])} against {number(ours)}{close}{more})")
    if not led and not lost:
        return []
    count = len(led) + len(lost)
    which = f": {listed(led)}" if led and lost else ""
    behind = [f"It is behind in {listed(lost)}."] if lost else []
    return [f"SUSD has the highest mean in {len(led)} of {count}{which}.", *behind]


def _over_tasks(tasks: Tasks) -> list[str]:
    """The aggregate of SUSD beside its best rival's, and whom it can be told apart from."""
    iqm, better = sc.aggregate(tasks), sc.improvements(tasks)
    rivals = {label: found for label, found in iqm.items() if sc.is_rival(label)}
    if OURS not in iqm or not rivals:
        return []
    best = max(rivals, key=lambda label: rivals[label].value)
    told = f"SUSD {number(iqm[OURS], 2)}, the best rival, {name_of(best)}, {number(rivals[best], 2)}"
    sentences = [f"Interquartile mean of normalised scores: {told}."]
    several = {label: sc.repeated(tasks, OURS) and sc.repeated(tasks, label) for label in better if sc.is_rival(label)}
    against = {label: better[label] for label, known in several.items() if known}
    higher = [name_of(label) for label, found in against.items() if found.low > 0.5]
    if higher:
        sentences.append(f"SUSD is more likely to score higher than {listed(higher)}.")
    for words, labels in (
        ("It is more likely to score lower than", [label for label, found in against.items() if found.high < 0.5]),
        ("It cannot be told apart from", [label for label, found in against.items() if found.low <= 0.5 <= found.high]),
    ):
        if labels:
            numbers = [f"{name_of(label)} (probability of being higher {number(against[label], 2)})" for label in labels]
            sentences.append(f"{words} {listed(numbers)}.")
    if single := [name_of(label) for label, known in several.items() if not known]:
        sentences.append(f"One score per task is too few to tell it from {listed(single)}.")
    return sentences


def _leader(
    topic: str, values: Mapping[str, sc.PerSeed], digits: int, scale: float = 1.0, unit: str = "", low: bool = False
) -> list[Finding]:
    """Who is ahead in a measurement, and where SUSD stands."""
    found = {label: sc.over_seeds(of) for label, of in values.items() if label == OURS or sc.is_rival(label)}
    if OURS not in found or len(found) < 2:
        return []
    ours, sign = found[OURS], 1 if low else -1
    told = {label: f"{name_of(label)} {number(of, digits, scale, unit)}" for label, of in found.items()}
    rivals = sorted((label for label in found if label != OURS), key=lambda label: sign * found[label].value)
    ahead = [label for label in rivals if sign * found[label].value < sign * ours.value]
    close = _close(found[rivals[0]], ours)
    mine = number(ours, digits, scale, unit)
    if ahead:
        place = f"SUSD is number {len(ahead) + 1} of {len(found)} with {mine}"
        return [(topic, f"{place}, behind {listed([told[label] for label in ahead])}{close}.")]
    equal = found[rivals[0]].value == ours.value
    rank, then = ("is level", "") if equal else ("leads", "next is ")
    return [(topic, f"SUSD {rank} with {mine}; {then}{told[rivals[0]]}{close}.")]


def not_run(facts: Sequence[Fact]) -> list[str]:
    """What the paper has and these facts do not."""
    environments = sorted({fact.environment for fact in facts})
    lines = []
    if missing := [name for key, name in ENVIRONMENTS.items() if key not in environments]:
        lines.append(f"Not run: {listed(missing)}.")
    for environment in environments:
        mine = [fact for fact in facts if fact.environment == environment]
        labels = {sc.base(fact.label) for fact in mine}
        tasks = {fact.subject.rpartition("@")[0] for fact in mine if fact.phase == "downstream"}
        known = [full.partition("-")[2] for full, entry in TASKS.items() if entry.env == environment]
        gaps = [name for label, name in sc.NAMES.items() if label not in labels]
        gaps += [f"task {task}" for task in known if task not in tasks]
        phases = [phase for phase in EVALUATIONS if phase != "completions" or known]
        phases += [ZERO_SHOT] if environment in RULES else []
        gaps += [phase for phase in phases if not any(fact.phase == phase for fact in mine)]
        if gaps:
            lines.append(f"Not run in {ENVIRONMENTS.get(environment, environment)}: {listed(gaps)}.")
    return lines or ["Every environment, method and task of the package was run."]


def fewer_scores(tasks: Tasks) -> list[str]:
    """Methods with fewer scores than the others in a task."""
    gaps = []
    for task, by_label in tasks.items():
        most = max(map(len, by_label.values()))
        counts = {label: len(by_label.get(label, ())) for label in sc.labels_of(tasks)}
        gaps += [f"{name_of(label)} in {task} ({count} of {most})" for label, count in counts.items() if count < most]
    return [f"Fewer scores than the others: {listed(gaps)}."] if gaps else []
