"""The tables of the Kitchen, Ant and HalfCheetah: columns and rows from recorded facts, means over seeds with intervals."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from susd.experiments.metrics_store import Fact, select
from susd.report.aggregate import PerSeed, over_seeds
from susd.report.claims import format_estimate
from susd.report.labels import split_way, title_of

MEAN, RANDOM = "trained, mean actions", "random actions"
ARM = "robot"  # the factor that moves all others
POLICIES = (MEAN, "trained, sampled actions", "untrained, mean actions", RANDOM)
ByMethod = Mapping[str, Sequence[Fact]]
PaperValues = Mapping[tuple[str, str], str]  # task and method -> what the paper prints
Table = tuple[tuple[str, ...], list[tuple[str, ...]]]  # head and rows
AT_THE_END = ("bound_discounted", "env_steps")
LEARNED = ("whole training", "last quarter", "best evaluation", "solved, last quarter")
REWARDS = {"goal": "goal", "random_skill": "random skills", "as_released": "goal as released"}


def of_subjects(facts: Iterable[Fact], metric: str) -> dict[str, PerSeed]:
    """The last value of a metric by subject and seed."""
    found: dict[str, PerSeed] = {}
    for fact in facts:
        if fact.metric == metric:
            found.setdefault(fact.subject, {})[fact.seed] = fact.value
    return found


def under(facts: Iterable[Fact], subject: str, metric: str) -> dict[str, PerSeed]:
    """The same of everything below a subject: bodies or landmarks of a policy, columns of a matrix."""
    found = of_subjects(facts, metric)
    return {name.rpartition(">")[2]: of for name, of in found.items() if name.startswith(f"{subject}>")}


def shown(values: PerSeed, digits: int = 1, scale: float = 1.0, unit: str = "") -> str:
    """The mean over seeds with its interval; a dash where there is no value."""
    return format_estimate(over_seeds(values), digits, scale, unit) if values else "-"


def percent(values: PerSeed) -> str:
    """A share."""
    return shown(values, 0, 100, " %")


def moved(found: ByMethod) -> Table:
    """What the skills of each method moved in the Kitchen, compared with policies that did not learn."""
    rows, names = [], list[str]()
    measured = {method: facts for method, facts in found.items() if under(facts, MEAN, "moved")}
    for method, facts in measured.items():
        for policy in POLICIES:
            if policy == RANDOM and method != list(measured)[-1]:  # the same for all
                continue
            things, marks = under(facts, policy, "moved"), under(facts, policy, "landmark")
            whose = "-" if policy == RANDOM else title_of(method)
            rows.append((whose, policy, *map(percent, (*things.values(), *marks.values()))))
            names = [*(f"{name} moved" for name in things), *(name.replace("_", " ") for name in marks)]
    return ("method", "policy", *names), rows


def control(found: ByMethod) -> Table:
    """The spread of each factor of the Kitchen over unrelated skills, and how much of it its own part causes."""
    rows: list[tuple[str, ...]] = []
    spread: dict[str, PerSeed] = {}
    for method, facts in found.items():
        spread = of_subjects(facts, "spread")
        rows.append((title_of(method), "spread", *(shown(values, 3) for values in spread.values())))
        if shares := _shares(facts, spread):
            own, other = zip(*(shares.get(name, ({}, {})) for name in spread), strict=True)
            rows.append((title_of(method), "share moved by its own part", *(shown(values, 2) for values in own)))
            rows.append((title_of(method), "by another part, on average", *(shown(values, 2) for values in other)))
    return ("method", "", *spread), rows


def _shares(facts: Sequence[Fact], factors: Iterable[str]) -> dict[str, tuple[PerSeed, PerSeed]]:
    """How much of a factor's spread its own part causes, and another one on average, for factors that have a part."""
    matrix = {name: row for name in factors if (row := under(facts, name, "change"))}
    of_others = {name: _mean([row.get(name, {}) for part, row in matrix.items() if part != name]) for name in matrix}
    return {name: (row.get(name, {}), of_others[name]) for name, row in matrix.items()}  # no column if it never moved


def kitchen_options(facts: Sequence[Fact]) -> Table:
    """Settings of the Kitchen, one per row: what skills move, own part by other parts, and accidental completions."""
    rows: list[tuple[str, ...]] = []
    names, tasks = list[str](), list[str]()
    for label in dict.fromkeys(fact.label for fact in facts):
        mine = select(facts, label=label)
        things, marks = under(mine, MEAN, "moved"), under(mine, MEAN, "landmark")
        things = {name: of for name, of in things.items() if name != "gripper"} | {"button": marks.get("button_on", {})}
        shares = _shares(mine, of_subjects(mine, "spread"))
        still = {name for name, of in things.items() if not any(of.values())}  # what was never moved has no ratio
        ratios = ({} if name in still else _ratio(*shares.get(name, ({}, {}))) for name in (ARM, *things))
        counts = of_subjects(select(mine, phase="completions"), "mean")
        names, tasks = [*names, *(name for name in things if name not in names)], [*counts] or tasks
        rows.append(
            (f"`{label}`", *map(percent, things.values()), *(shown(of, 1) for of in ratios), *map(shown, counts.values()))
        )
    head = (
        *(f"{name} {'on' if name == 'button' else 'moved'}" for name in names),
        *(f"own / other: {name}" for name in (ARM, *names)),
    )
    return ("", *head, *(f"`{task}`" for task in tasks)), rows


def _ratio(own: PerSeed, other: PerSeed) -> PerSeed:
    return {seed: own[seed] / other[seed] for seed in own if other.get(seed)}


def _mean(values: Sequence[PerSeed]) -> PerSeed:
    """The mean of several values, for each seed that has all of them."""
    seeds = [seed for seed in values[0] if all(seed in of for of in values)] if values else []
    return {seed: sum(of[seed] for of in values) / len(values) for seed in seeds}


def control_floor(root: Path) -> Table:
    """How much a small turn of the whole skill changes each factor of the Kitchen."""
    measured = json.loads((root / "benchmarks" / "results" / "control-floor.json").read_text())["rows"]
    names, angles = measured[0]["factors"], measured[0]["share"]
    rows = []
    for angle in angles:
        by_factor = zip(*(run["share"][angle] for run in measured), strict=True)
        seeds = [run["seed"] for run in measured]
        rows.append((f"{angle}°", *(shown(dict(zip(seeds, values, strict=True)), 2) for values in by_factor)))
    return ("every part turned by", *names), rows


def completions(found: ByMethod, paper: PaperValues) -> Table:
    """Accidental completions in the Kitchen compared with the paper's: 8 x 10,000 steps of each policy."""
    rows: list[tuple[str, ...]] = []
    means: dict[str, PerSeed] = {}
    for method, facts in found.items():
        mine = select(facts, phase="completions")
        means, stds = of_subjects(mine, "mean"), of_subjects(mine, "std")
        ours = (f"{shown(means[name])} ± {over_seeds(stds[name]).value:.1f}" for name in means)
        rows.append((title_of(method), "ours", *ours))
        rows.append(
            (title_of(method), "paper", *(paper.get((name.removeprefix("kitchen-"), method), "-") for name in means))
        )
    return ("method", "", *(f"`{name}`" for name in means)), rows


def kitchen_tasks(found: ByMethod, paper: PaperValues) -> Table:
    """Tasks that were learned over the skills of each method in the Kitchen. The paper's value is of the whole training."""
    rows: list[tuple[str, ...]] = []
    for method, facts in found.items():
        tested = select(facts, phase="downstream")
        for label, subject in dict.fromkeys((fact.label, fact.subject) for fact in tested if fact.subject):
            mine = select(tested, label=label, subject=subject)
            bound, steps = (of_subjects(mine, name)[subject] for name in AT_THE_END)
            task = subject.rpartition("@")[0]
            count = len({fact.job for fact in mine})
            scores = (str(count), *_learned(mine), f"{over_seeds(bound).value:.1f}")
            title = ", ".join([title_of(method), *title_of(label).split(", ")[1:]])  # with what its high-level actions are
            theirs = paper.get((task, method), "-")
            rows.append((title, f"`kitchen-{task}`", f"{over_seeds(steps).value:,.0f}", *scores, theirs))
    return ("skills of", "task", "steps", "scores", *LEARNED, "bound", "paper, 2.5 M steps"), rows


def kitchen_task_trial(facts: Sequence[Fact]) -> Table:
    """Settings of the high-level policy, one per row: how well it learned a task."""
    learned = [fact for fact in facts if fact.phase == "downstream"]
    labels = dict.fromkeys(fact.label for fact in learned)
    return ("", *LEARNED), [(f"`{split_way(label)[0]}`", *_learned(select(learned, label=label))) for label in labels]


def _learned(facts: Sequence[Fact]) -> tuple[str, ...]:
    """The columns LEARNED of one task with one kind of policy, over seeds of skills, each with its mean over policies."""
    runs = {fact.job: fact.run for fact in facts}
    curves = {job: [fact.value for fact in select(facts, job=job, metric="discounted")] for job in runs}
    whole = {job: sum(curve) / len(curve) for job, curve in curves.items()}
    best = {job: max(curve) for job, curve in curves.items()}
    last, solved = ({f.job: f.value for f in select(facts, metric=f"last_quarter_{x}")} for x in ("discounted", "success"))
    return *(shown(_by_skills(of, runs)) for of in (whole, last, best)), percent(_by_skills(solved, runs))


def _by_skills(values: Mapping[str, float], runs: Mapping[str, str]) -> PerSeed:
    """The mean over the high-level policies of each run, by the number of the run."""
    found: dict[str, list[float]] = {}
    for job, value in values.items():
        found.setdefault(runs[job], []).append(value)
    return {number: sum(of) / len(of) for number, of in enumerate(found.values())}


def locomotion(found: ByMethod, cells: int) -> Table:
    """Ant or HalfCheetah: how far the skills reach, cells of a metre of so many, and the zero-shot rewards."""
    rows, ways = [], list(REWARDS)
    for method, facts in found.items():
        steps = max(fact.step for fact in select(facts, metric="train_seconds"))
        covered = []
        for policy in POLICIES:
            (reach,) = under(facts, policy, "reach").values()
            covered.append(f"{shown(reach)} m / {shown(of_subjects(facts, 'cells_average')[policy], 0, cells)}")
        mine = select(facts, phase="zero-shot")
        rewards, low, high = (of_subjects(mine, name) for name in ("reward", "reward_low", "reward_high"))
        ways = [way for way in ways if way in rewards]
        many = len(rewards[ways[0]]) > 1  # else the interval over environment seeds
        over_envs = [f"{shown(rewards[w], 0)} [{shown(low[w], 0)}, {shown(high[w], 0)}]" for w in ways]
        given = [shown(rewards[way], 0) for way in ways] if many else over_envs
        rows.append((title_of(method), f"{steps / 1e6:.2f} M", *covered, *given))
    return ("method", "steps", *(f"{policy}: reach / cells" for policy in POLICIES), *(REWARDS[way] for way in ways)), rows
