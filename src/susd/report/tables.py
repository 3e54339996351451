"""The Markdown tables of README and docs, from the facts in results/ and the benchmarks in benchmarks/results/.

A table stands between `<!-- table NAME -->` and `<!-- end -->`; `fill` writes it there.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from susd.errors import UserError
from susd.experiments import metrics_store
from susd.experiments.metrics_store import FACTS, Fact
from susd.report import parity, svg
from susd.report.aggregate import Score, Setting, labels_of, mean_of
from susd.report.body_tables import (
    completions,
    control,
    control_floor,
    kitchen_options,
    kitchen_task_trial,
    kitchen_tasks,
    locomotion,
    moved,
)
from susd.report.build import found_in
from susd.report.claims import format_estimate
from susd.report.labels import OURS, environment_title, in_order, split_way, title_of
from susd.report.load import ReportData, load_results
from susd.report.paper import paper_values
from susd.report.questions import Answer, answers
from susd.report.quick_tables import TWO_DIMENSIONAL, ablations, coverage, headline, methods, quick
from susd.report.sections.overview import PARITY_HEAD, parity_row
from susd.report.sections.tasks import references
from susd.report.speed_tables import (
    before_and_after,
    explorer,
    first_start,
    method_speed,
    overlap,
    precision,
    rates,
    release,
    same_learning,
    simulators,
    speed,
    time_summary,
    time_to_paper,
)
from susd.report.trials import trial, trial_facts

ROOT = Path(__file__).resolve().parents[3]  # of the repository
QUESTION_PAGES = "docs/results/questions"
SKILL_KINDS = (("susd-paced", "paced"), (OURS, "unit"))
GUNNER, PARTICLES = Setting("gunner", "fixed", "fixed"), Setting("multi_particle", "random", "random")
WAY_CELLS = (  # setting, its policy by factor, and task
    (GUNNER, "factored", "unlim"),
    (GUNNER, "factored", "lim"),
    (PARTICLES, "entity", "fp-difficult"),
    (PARTICLES, "entity", "seq-medium"),
)


@cache
def _facts(name: str) -> tuple[Fact, ...]:
    """The facts of results/NAME."""
    path = ROOT / "results" / name / FACTS
    if not path.is_file():
        raise UserError(f"there is no file {path}; the tables of the docs are made in a clone of the repository")
    return tuple(metrics_store.load(path))


@cache
def recorded() -> ReportData:
    """All results of the repository, as `susd report results` reads them."""
    return load_results(list(found_in(ROOT / "results")), ROOT / "results")


@cache
def recorded_answers() -> tuple[Answer, ...]:
    """The questions with their answers from the results of the repository."""
    return tuple(answers(recorded().scores))


def answer_table() -> str:
    """Every question with its answer in a sentence."""
    rows = [(f"[{found.title}]({QUESTION_PAGES}/{found.key}.md)", found.sentence) for found in recorded_answers()]
    return markdown(("question", "answer"), rows)


def question(key: str) -> str:
    """The page of a question: answer, figure, values and the command."""
    (found,) = (answer for answer in recorded_answers() if answer.key == key)
    parts = [f"**{found.sentence}**"]
    if found.intervals:
        parts.append(f"![{found.title} Intervals of the values below]({key}.svg)")
    if len(found.rows) > 1:
        head, *rows = found.rows
        parts.append(markdown(head, rows))
    return "\n\n".join([*parts, f"```sh\n{found.command}\n```"])


def question_figures() -> dict[Path, str]:
    """The figures of the questions, as the text of SVG files."""
    folder = ROOT / "docs" / "results" / "questions"
    return {
        folder / f"{found.key}.svg": svg.intervals(found.intervals, found.axis, found.ends)
        for found in recorded_answers()
        if found.intervals
    }


@cache
def parity_lines() -> tuple[parity.Line, ...]:
    """Every value of the paper with ours."""
    return tuple(parity.compare(recorded()))


def parity_counts() -> str:
    """How many values of the paper were measured, and how."""
    return markdown(("", "count"), [(name, str(count)) for name, count in parity.counts(parity_lines()).items()])


def parity_table() -> str:
    """Every value of the paper, ours with its interval, the protocol, and why they differ."""
    rows = []
    for line in parity_lines():
        *cells, why = (cell.replace("|", "\\|") for cell in parity_row(line))
        rows.append((*cells, f"<details><summary>why</summary>{why}</details>" if why else ""))
    return markdown(PARITY_HEAD, rows)


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (columns, ("---",) * len(columns), *rows))


def _methods(name: str) -> dict[str, list[Fact]]:
    """The facts of results/NAME by method; it has one label of each, apart from the ways in which tasks use its skills."""
    facts = _facts(name)
    plain = in_order(split_way(fact.label)[0] for fact in facts)
    by_label = ([fact for fact in facts if split_way(fact.label)[0] == label] for label in plain)
    return {found[0].method: found for found in by_label}


def _kitchen_2m() -> list[Fact]:
    """Both settings after 2 M steps."""
    names = {"kitchen-2m": "quick", "kitchen-2m-layer": "150 updates, LayerNorm"}
    return [replace(fact, label=name) for folder, name in names.items() for fact in _facts(folder)]


def _completions(folder: str) -> str:
    """Accidental completions, with mean and standard deviation of the paper."""
    rows = [row for row in paper_values() if (row.environment, row.quantity) == ("kitchen", "completions")]
    theirs = {(row.subject, row.label): f"{float(row.paper):.1f} ({row.spread})" for row in rows}
    return markdown(*completions(_methods(folder), theirs))


def _paper_scores(env: str) -> dict[tuple[str, str], str]:
    """The paper's scores at the end of training, by task and method."""
    rows = [row for row in paper_values() if (row.environment, row.quantity, row.episode) == (env, "downstream", "")]
    return {(row.subject, row.label): row.paper for row in rows}


def tasks(env: str, pretrained: str, tested: str = "fixed") -> str:
    """Every method on the tasks of one environment: mean discounted return in the last quarter, with its interval."""
    found = recorded().scores.get(Setting(env, pretrained, tested), {})
    theirs = _paper_scores(env)
    rows = [
        (title_of(label), *(_score_cell(by_label.get(label, [])) for by_label in found.values()))
        for label in labels_of(found)
    ]
    known = [references(by_label) for by_label in found.values()]
    for name, title in (("expert", "expert"), ("do_nothing", "do nothing")):
        rows.append((f"*{title}*", *(f"{of[name]:.1f}" if name in of else "-" for of in known)))
    if tested == "fixed":
        rows.append(("*the paper's SUSD*", *(theirs.get((task, OURS), "-") for task in found)))
    return markdown(("", *(f"`{task}`" for task in found)), rows)


def ways() -> str:
    """Paced and unit skills of SUSD, by what a high-level action is and by the high-level policy, in two dimensions."""
    rows = []
    for (skills, kind), action, by_factor in itertools.product(SKILL_KINDS, ("goal", "skill"), (True, False)):
        cells = []
        for at, policy, task in WAY_CELLS:
            endings = ("goal" if action == "goal" else "", policy if by_factor else "")
            label = "-".join([skills, *filter(None, endings)])
            cells.append(_score_cell(recorded().scores.get(at, {}).get(task, {}).get(label, [])))
        rows.append((kind, action, "by factor" if by_factor else "joint", *cells))
    names = (f"{environment_title(at.environment)}: `{task}`, {policy}" for at, policy, task in WAY_CELLS)
    return markdown(("skills", "action", "policy", *names), rows)


def _score_cell(scores: Sequence[Score]) -> str:
    """A mean with its interval and the number of scores; one seed has no interval."""
    if not scores:
        return "-"
    mean = mean_of(scores)
    count = f"{mean.count} scores" if mean.count > 1 else "n = 1"
    return f"{format_estimate(mean)} ({count}{', one seed' if mean.count > 1 and not mean.known else ''})".replace(
        "n = 1", "n\u00a0=\u00a01"
    )


TABLES: dict[str, Callable[[], str]] = {
    "headline": lambda: markdown(*headline(_facts)),
    "answers": answer_table,
    "parity": parity_table,
    "parity_counts": parity_counts,
    "kitchen_moved": lambda: markdown(*moved(_methods("kitchen"))),
    "kitchen_control": lambda: markdown(*control(_methods("kitchen"))),
    "kitchen_completions": lambda: _completions("kitchen"),
    "kitchen_tasks": lambda: markdown(*kitchen_tasks(_methods("kitchen"), _paper_scores("kitchen"))),
    "kitchen_2m_moved": lambda: markdown(*moved(_methods("kitchen-2m"))),
    "kitchen_2m_control": lambda: markdown(*control(_methods("kitchen-2m"))),
    "kitchen_2m_completions": lambda: _completions("kitchen-2m"),
    "kitchen_2m_tasks": lambda: markdown(*kitchen_tasks(_methods("kitchen-2m"), _paper_scores("kitchen"))),
    "control_floor": lambda: markdown(*control_floor(ROOT)),
    "kitchen_2m_layer": lambda: markdown(*kitchen_options(_kitchen_2m())),
    "kitchen_quick_moved": lambda: markdown(*moved(_methods("kitchen-quick"))),
    "kitchen_quick_control": lambda: markdown(*control(_methods("kitchen-quick"))),
    "kitchen_quick_completions": lambda: _completions("kitchen-quick"),
    "kitchen_1m_moved": lambda: markdown(*moved(_methods("kitchen-1m"))),
    "kitchen_1m_completions": lambda: _completions("kitchen-1m"),
    "ant": lambda: markdown(*locomotion(_methods("ant"), 2500)),
    "half_cheetah": lambda: markdown(*locomotion(_methods("half_cheetah"), 50)),
    "quick": lambda: markdown(*quick(_facts)),
    "coverage": lambda: markdown(*coverage(_facts)),
    "ablations": lambda: markdown(*ablations(_facts)),
    "speed": lambda: markdown(*speed(ROOT)),
    "simulators": lambda: markdown(*simulators(ROOT)),
    "overlap": lambda: markdown(*overlap(ROOT)),
    "precision": lambda: markdown(*precision(ROOT)),
    "same_learning": lambda: markdown(*same_learning(ROOT)),
    "first_start": lambda: markdown(*first_start(ROOT)),
    "before_and_after": lambda: markdown(*before_and_after(ROOT, TWO_DIMENSIONAL)),
    "time_summary": lambda: markdown(*time_summary(ROOT)),
    "time_to_paper": lambda: markdown(*time_to_paper(ROOT)),
    "trial_skills": lambda: markdown(*trial(ROOT, "epochs")),
    "trial_kitchen_moved": lambda: markdown(*moved({"susd-paced": trial_facts(ROOT, "kitchen")})),
    "trial_kitchen_control": lambda: markdown(*control({"susd-paced": trial_facts(ROOT, "kitchen")})),
    "trial_kitchen_options": lambda: markdown(*kitchen_options(trial_facts(ROOT, "kitchen-options"))),
    "trial_kitchen_tasks": lambda: markdown(*kitchen_task_trial(trial_facts(ROOT, "kitchen-tasks"))),
    "trial_kitchen_two_stages": lambda: markdown(*control({"susd": trial_facts(ROOT, "kitchen-two-stages")})),
    "trial_options": lambda: markdown(*trial(ROOT, "options")),
    "explorer": lambda: markdown(*explorer(ROOT)),
    "release": lambda: markdown(*release(ROOT)),
    "methods_gunner": lambda: markdown(*methods("gunner", _facts, rates(ROOT, "gunner"))),
    "methods_multi_particle": lambda: markdown(*methods("multi_particle", _facts, rates(ROOT, "multi_particle"))),
    "method_speed": lambda: markdown(*method_speed(ROOT, TWO_DIMENSIONAL)),
    "ways": ways,
    "tasks_gunner": lambda: tasks("gunner", "fixed"),
    "tasks_random": lambda: tasks("multi_particle", "random"),
    "tasks_random_random": lambda: tasks("multi_particle", "random", "random"),
    "tasks_fixed": lambda: tasks("multi_particle", "fixed"),
}


def fill(text: str) -> str:
    """The text of a page with its tables made from the results."""

    def made(found: re.Match[str]) -> str:
        if found[1] not in TABLES:
            raise UserError(f"there is no table {found[1]!r}; choose one of {', '.join(TABLES)}")
        return f"<!-- table {found[1]} -->\n\n{TABLES[found[1]]()}\n\n<!-- end -->"

    return re.sub(r"<!-- table (\w+) -->.*?<!-- end -->", made, text, flags=re.DOTALL)
