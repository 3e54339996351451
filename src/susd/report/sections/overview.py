"""The sections that frame a report: what was run, the main results, comparison with the paper, how values are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from susd.experiments.extract import FLAT
from susd.experiments.metrics_store import Fact
from susd.report import parity, svg
from susd.report.aggregate import task_order
from susd.report.claims import Claim, claims, format_estimate, group_title, main_results, not_run
from susd.report.html import Html, Text, bullets, code, details, html_table, joined, paragraph, tag
from susd.report.labels import base, environment_title, in_order, pretrained, split_way, title_of
from susd.report.load import ReportData
from susd.report.paper import SOURCES
from susd.report.parity import Line
from susd.report.questions import answers
from susd.report.sections.tasks import Parts


def summary(data: ReportData) -> Parts:
    """What was run, where SUSD is ahead and where not, what is missing; of a single method its main results."""
    parts = [_what_was_run(data), *_made_with(data.facts)]
    missing = bullets(not_run(data.facts))
    if compared := _by_group(data, lambda *group: claims(data.facts, data.scores, *group)):
        parts += [tag("h3", "Where SUSD is ahead, and where it is not"), *compared]
        return [*parts, tag("h3", "What was not run"), missing]
    parts += _by_group(data, lambda *group: main_results(data.facts, *group))
    return [*parts, details("Parts of the package that were not run", missing)]


def _by_group(data: ReportData, sentences: Callable[[str, str], Sequence[Claim]]) -> Parts:
    """A list of claims for every environment and way to pretrain."""
    groups = sorted({(fact.environment, pretrained(fact.label)) for fact in data.facts if fact.label != FLAT})
    parts: Parts = []
    for environment, way in groups:
        if lines := sentences(environment, way):
            title = group_title(environment, way, sum(key[0] == environment for key in groups))
            items = (joined([tag("strong", f"{topic}."), text], " ") for topic, text in lines)
            parts += [tag("h4", title), bullets(items)]
    return parts


def _what_was_run(data: ReportData) -> Html:
    rows = []
    for environment in sorted({fact.environment for fact in data.facts}):
        mine = [fact for fact in data.facts if fact.environment == environment]
        tested = [fact for fact in mine if fact.phase == "downstream"]
        tasks = sorted({fact.subject.rpartition("@")[0] for fact in tested}, key=task_order)
        layouts = sorted(
            {fact.subject.rpartition("@")[2] for fact in tested}, key=lambda name: (not name.isdecimal(), len(name), name)
        )
        ways = sorted({pretrained(fact.label) for fact in mine})
        rows.append(
            [
                environment_title(environment),
                ", ".join(title_of(label) for label in in_order(base(fact.label) for fact in mine)),
                _spans({fact.seed for fact in mine}),
                _budget([fact for fact in mine if fact.phase == "train"])
                + (" (fixed and random layouts)" if len(ways) > 1 else ""),
                ", ".join(tasks) or "–",
                ", ".join(layouts) or "–",
                _budget(tested),
                f"{data.seconds.get(environment, 0.0) / 3600:.1f}",
            ]
        )
    head = ["environment", "methods", "seeds", "pretraining steps", "tasks", "test layouts", "episodes per task", "hours"]
    shown = [i for i in range(len(head)) if any(row[i] != "–" for row in rows)]
    head, rows = [head[i] for i in shown], [[row[i] for i in shown] for row in rows]
    return html_table("What was run. Hours: computing time of all jobs together.", head, rows, "run")


def _made_with(facts: Sequence[Fact]) -> Parts:
    """Versions and commits; many commits open on request."""
    versions, commits = (sorted({getattr(fact, name) for fact in facts} - {""}) for name in ("versions", "commit"))
    with_versions = f"Computed with {'; '.join(versions) or 'versions not recorded'}"
    if len(commits) > 2:
        text = paragraph(f"{with_versions}; {len(commits)} commits.", class_="note")
        return [text, details("Commits", paragraph(", ".join(commits), class_="note"))]
    which = f"commit{'s' * (len(commits) > 1)} {' and '.join(commits)}" if commits else "commit not recorded"
    return [paragraph(f"{with_versions}; {which}.", class_="note")]


def _budget(facts: Sequence[Fact]) -> str:
    """The last steps of runs, from the shortest to the longest."""
    last: dict[tuple[str, str], int] = {}
    for fact in facts:
        key = fact.run, fact.subject
        last[key] = max(last.get(key, 0), fact.step)
    low, high = min(last.values(), default=0), max(last.values(), default=0)
    return "–" if not last else f"{high:,}" if low == high else f"{low:,} to {high:,}"


def _spans(numbers: set[int]) -> str:
    ordered = sorted(numbers)
    if len(ordered) > 3 and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{ordered[0]} to {ordered[-1]}"
    return ", ".join(map(str, ordered))


def questions(data: ReportData) -> Parts:
    """Every question with its answer, the interval and the command."""
    parts: Parts = []
    for found in answers(data.scores):
        parts += [tag("h3", found.title), paragraph(found.sentence, class_="answer")]
        if found.intervals:
            drawn = svg.intervals(found.intervals, found.axis, found.ends)
            parts.append(tag("figure", Html(drawn), class_="drawn"))
        if len(found.rows) > 1:
            head, *rows = found.rows
            table = html_table(f"{found.title} Interval in brackets; n = 1: one seed, no interval.", head, rows, "numbers")
            parts.append(details("Values", table))
        parts.append(details("Reproduce", code(found.command)))
    return parts


def compared_with_paper(lines: Sequence[Line]) -> Parts:
    """Each value of the paper with ours, in the order of the paper; what was not run is folded."""
    if all(line.ours is None for line in lines):
        return [paragraph(f"None of the paper's {len(lines)} values was measured here.")]
    values, measured, known, same, smaller, inside = parity.counts(lines).values()
    text = (
        f"{values} values and claims; {measured} were measured here, {known} of them with an interval and {same} with the "
        f"same protocol ({smaller} of these with smaller networks, as the table says); {values - measured} were not run. "
        f"{inside} of the paper's values are inside our 95 % interval."
    )
    about = (
        "“Same protocol” means the same budget, preset, layouts and kind of measurement; the size of networks is named "
        "where it differs. Where the paper has figures, values were read from them, with an error of about 0.1; its bands "
        "are clipped at 3 and carry no information. The table is also in parity.csv."
    )
    return [paragraph(text), paragraph(about), tag("div", _parity_table(lines), class_="sortable")]


PARITY_HEAD = ("environment", "what", "method", "paper", "ours", "seeds", "protocol", "result", "where", "why they differ")


def _parity_table(lines: Sequence[Line]) -> Html:
    caption = "The paper's values and ours. Interval in brackets; n = 1: one seed, no interval. Click a column to sort."
    return html_table(caption, PARITY_HEAD, [_folded(line) for line in lines], "parity")


def _folded(line: Line) -> list[Text]:
    """The cells of one value; the reasons open on request, so that a row stays on one line."""
    *cells, why = parity_row(line)
    return [*cells, details("why", why) if why else ""]


def parity_row(line: Line) -> list[str]:
    """The cells of one value of the paper."""
    row = line.row
    what = row.subject.replace("phi", "decoding from φ").replace("_", " ")
    what += f", at {int(row.episode):,} episodes" if row.episode else ""
    theirs = f"{row.paper} ({row.spread})" if row.spread else row.paper
    why = " ".join([*line.notes, SOURCES[row.source]]).strip()
    first = [environment_title(row.environment), what, title_of(row.label), theirs]
    if line.ours is None:
        return [*first, "not run", "", "", "not run", row.source, why]
    ours = format_estimate(line.ours, row.digits) + ("" if line.ours.known else " (n\u00a0=\u00a01)")
    protocol = "other" if line.same == "no" else line.same.replace("yes", "same")
    return [*first, ours, str(line.ours.seeds), protocol, line.result, row.source, why]


def definitions(data: ReportData) -> Parts:
    """How to read the values, and where they come from."""
    points = [
        "Intervals are of 95 %. A bootstrap draws seeds of skills, and with a seed all its scores, because scores over one "
        "set of skills are not independent. Percentiles of three seeds are too narrow, and are widened to what Student's t "
        "says of a mean; so three seeds have wide intervals. One seed has none, however many scores it has, and is grey.",
        "A normalised score is 0 for doing nothing and 1 for the scripted expert on the same layout, or for the bound of a "
        "task without one. The expert knows the rules and acts in every step.",
        "“No skills” is SAC on primitive actions with the same number of episodes, environment steps and gradient steps.",
        "Learning curves are of test episodes, discounted by 0.99 per high-level action of five steps, as in the paper.",
    ]
    if any(split_way(base(fact.label))[1] for fact in data.facts):
        points.append(
            "“Goal actions”: the high-level policy chooses a point in the space of phi, and in every step the skill is the "
            "one that leads there. “Entity-wise”: one network, shared by all factors, chooses each factor's part. Labels "
            "without these words have skills as high-level actions and one network for all factors, as in the paper."
        )
    parts = [bullets(points), *(paragraph(line, class_="note") for line in data.left_out)]
    for folder, text in data.suites.items():
        parts.append(details(f"Suite file of {folder}", code(text)))
    if not data.suites:
        parts.append(
            paragraph("The configs of the runs are in configs.json; these results have no suite file.", class_="note")
        )
    return parts
