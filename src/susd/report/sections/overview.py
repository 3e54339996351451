"""The sections of a report that frame it: what was run, what came of it, the paper's numbers, how ours are made."""

from __future__ import annotations

from collections.abc import Sequence

from susd.experiments.metrics_store import Fact
from susd.report import aggregate as sc
from susd.report import claims as findings
from susd.report import parity
from susd.report.aggregate import ENVIRONMENTS, name_of
from susd.report.html import Html, bullets, code, details, joined, paragraph, table, tag
from susd.report.load import Material
from susd.report.parity import Line
from susd.report.sections.tasks import Parts


def summary(material: Material) -> Parts:
    """What was run, where SUSD is ahead and where not, what is missing."""
    worlds = sorted({(fact.environment, sc.pretrained(fact.label)) for fact in material.facts if fact.label != "flat"})
    told: Parts = []
    for environment, way in worlds:
        if lines := findings.of_world(material.facts, material.scores, environment, way):
            name = findings.world(environment, way, sum(key[0] == environment for key in worlds))
            items = (joined([tag("strong", f"{topic}."), text], " ") for topic, text in lines)
            told += [tag("h4", name), bullets(items)]
    return [
        _what_was_run(material),
        paragraph(_made_with(material.facts), class_="note"),
        tag("h3", "Where SUSD is ahead, and where it is not"),
        *(told or [paragraph("These results do not compare SUSD with a rival.")]),
        tag("h3", "What is not here"),
        bullets(findings.not_run(material.facts)),
    ]


def _what_was_run(material: Material) -> Html:
    rows = []
    for environment in sorted({fact.environment for fact in material.facts}):
        mine = [fact for fact in material.facts if fact.environment == environment]
        tested = [fact for fact in mine if fact.phase == "downstream"]
        tasks = sorted({fact.subject.rpartition("@")[0] for fact in tested}, key=sc.task_order)
        layouts = sorted(
            {fact.subject.rpartition("@")[2] for fact in tested}, key=lambda name: (not name.isdecimal(), len(name), name)
        )
        ways = sorted({sc.pretrained(fact.label) for fact in mine})
        rows.append(
            [
                ENVIRONMENTS.get(environment, environment),
                ", ".join(name_of(label) for label in sc.in_order(sc.base(fact.label) for fact in mine)),
                _spans({fact.seed for fact in mine}),
                _budget([fact for fact in mine if fact.phase == "train"])
                + (" (fixed and random layouts)" if len(ways) > 1 else ""),
                ", ".join(tasks) or "–",
                ", ".join(layouts) or "–",
                _budget(tested),
                f"{material.seconds.get(environment, 0.0) / 3600:.1f}",
            ]
        )
    head = ["environment", "methods", "seeds", "pretraining steps", "tasks", "test layouts", "episodes per task", "hours"]
    return table("What was run. Hours: duration of all jobs together.", head, rows, "run")


def _made_with(facts: Sequence[Fact]) -> str:
    versions, commits = (sorted({getattr(fact, name) for fact in facts} - {""}) for name in ("versions", "commit"))
    which = f"commit{'s' if len(commits) > 1 else ''} {', '.join(commits)}" if commits else "commit not recorded"
    return f"Made with {'; '.join(versions) or 'versions not recorded'}; {which}."


def _budget(facts: Sequence[Fact]) -> str:
    """The last steps that runs came to, from the shortest to the longest."""
    last: dict[tuple[str, str], int] = {}
    for fact in facts:
        place = fact.run, fact.subject
        last[place] = max(last.get(place, 0), fact.step)
    low, high = min(last.values(), default=0), max(last.values(), default=0)
    return "–" if not last else f"{high:,}" if low == high else f"{low:,} to {high:,}"


def _spans(numbers: set[int]) -> str:
    ordered = sorted(numbers)
    if len(ordered) > 3 and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{ordered[0]} to {ordered[-1]}"
    return ", ".join(map(str, ordered))


def beside_the_paper(lines: Sequence[Line]) -> Parts:
    """Each number of the paper with ours, in the order of the paper; what was not run at all is folded away."""
    ran = [line for line in lines if line.ours is not None]
    inside = sum(line.result.startswith("paper's is inside") for line in ran)
    told = f"{len(lines)} numbers and claims; {len(ran)} have ours beside them, {len(lines) - len(ran)} were not run."
    if ran:
        told += f" {inside} of the paper's are inside our 95 % interval."
    about = (
        "“Same protocol” means the same budget, preset, layouts and kind of measurement. Where the paper has figures, "
        "numbers were read off them, with an error of about 0.1; its bands are clipped at 3 and say nothing. "
        "The table is also in parity.csv."
    )
    parts = [paragraph(told), paragraph(about)]
    for source in dict.fromkeys(line.row.source for line in lines):
        mine = [line for line in lines if line.row.source == source]
        shown = _parity_table(source, mine)
        if any(line.ours for line in mine):
            parts += [tag("h3", source), *shown]
        else:
            parts.append(details(f"Not run: {source}, {len(mine)} numbers", *shown))
    return parts


def _parity_table(source: str, lines: Sequence[Line]) -> Parts:
    """The numbers of one place in the paper; what differs is said below the table, once."""
    notes = list(dict.fromkeys(note for line in lines for note in line.notes))
    rows = [_parity_row(line, notes) for line in lines]
    head = ["what", "method", "paper", "ours", "scores", "same protocol", "result", "notes"]
    made = table(parity.SOURCES[source] or "The paper's numbers and ours.", head, rows, "parity")
    return [made, tag("ol", *(tag("li", note) for note in notes), class_="notes")] if notes else [made]


def _parity_row(line: Line, notes: Sequence[str]) -> list[str]:
    row, digits = line.row, 3 if line.row.quantity == "decoding" else 2 if line.row.subject.startswith("cells") else 1
    what = f"{ENVIRONMENTS.get(row.environment, row.environment)}, {row.subject.replace('phi', 'from φ').replace('_', ' ')}"
    what += f", at {int(row.episode):,} episodes" if row.episode else ""
    theirs = f"{row.paper} ({row.spread})" if row.spread else row.paper
    marks = ", ".join(str(notes.index(note) + 1) for note in line.notes)
    if line.ours is None:
        return [what, parity.method_name(row.label), theirs, "not run", "", "", "", marks]
    ours = findings.number(line.ours, digits)
    return [what, parity.method_name(row.label), theirs, ours, str(line.ours.count), line.same, line.result, marks]


def method(material: Material) -> Parts:
    """How to read the numbers, and where they come from."""
    points = [
        "Intervals are 95 % percentile bootstrap intervals. With three scores such an interval reaches from the lowest to "
        "the highest, and is still too narrow; a single score has none, and one score per task gives an aggregate none.",
        "A score is one seed on one layout. Where a seed was tested on several layouts its scores share one skill policy, "
        "so that intervals are narrower than those of as many seeds would be.",
        "A normalised score is 0 for doing nothing and 1 for the scripted expert on the same layout. The expert knows the "
        "rules and acts in every step.",
        "“No skills” is SAC on primitive actions with the same number of episodes, environment steps and gradient steps.",
        "Learning curves are of test episodes, discounted by 0.99 per decision of five steps, as in the paper.",
    ]
    parts = [bullets(points)]
    for folder, text in material.suites.items():
        parts.append(details(f"Suite file of {folder}", code(text)))
    if not material.suites:
        parts.append(paragraph("The results came without a suite file."))
    return parts
