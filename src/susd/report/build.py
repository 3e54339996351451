"""One page of all results: `build([FOLDER], OUT)` writes OUT/report.html, OUT/figures/*.png and OUT/parity.csv.

The page needs nothing but itself: pictures and styles are inside. The same facts give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from susd.report import parity
from susd.report.html import page, paragraph
from susd.report.load import gather, presets
from susd.report.sections import overview
from susd.report.sections import skills as measurements
from susd.report.sections import tasks as sections
from susd.viz.figures import whole_file


def build(results: Sequence[Path], out: Path) -> Path:
    """Write the report of these folders of results into `out`; returns the path of the page."""
    material = gather(results, out)
    lines = parity.compare(material.facts, material.scores, presets(material.suites))
    content = {
        "Summary": overview.summary(material),
        "Tasks": sections.tasks(material),
        "Coverage": measurements.coverage(material),
        "Decoding": measurements.decoding(material),
        "Control": measurements.control(material),
        "Completions": measurements.completions(material),
        "Zero-shot goals": measurements.zero_shot(material),
        "Trajectories": measurements.trajectories(material),
        "Ablations and controls": sections.ablations(material),
        "Beside the paper": overview.beside_the_paper(lines),
        "How the numbers are made": overview.method(material),
    }
    about = "Factored unsupervised skill discovery: SUSD and its rivals on one learner, measured alike."
    _write(material.out / "parity.csv", parity.to_csv(lines))
    return _write(material.out / "report.html", page("SUSD: report of results", paragraph(about, class_="lead"), content))


def _write(path: Path, text: str) -> Path:
    """A text file, whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return path
