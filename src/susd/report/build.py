"""One page of results: `report([PATH, ..], OUT)` writes OUT/report.html, OUT/figures/*.png and OUT/parity.csv.

A path is a run folder, a folder of results (it holds facts.jsonl), or a folder that contains either. Runs are recorded
first, in OUT/facts.jsonl and OUT/configs.json. The page is one file. The same facts give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from susd.errors import UserError, shown
from susd.evaluation.registry import evaluation, names
from susd.experiments.extract import is_run
from susd.experiments.metrics_store import FACTS
from susd.experiments.record import record
from susd.experiments.suite import names as suite_names
from susd.paths import user_path
from susd.plugins import Trust
from susd.report import parity
from susd.report.html import page, paragraph
from susd.report.load import ReportData, load_results
from susd.report.sections import overview, runs, skills, tasks
from susd.report.sections.tasks import Parts
from susd.runs.atomic import write_text
from susd.runs.find import run_path, writable_run


def report(paths: str | Path | Sequence[str | Path], out: str | Path | None = None, trust: Trust = False) -> Path:
    """Write the report of run folders and folders of results; returns the path of the page.

    By default `out` is the folder of results, or the folder that holds several; RUN/report for one run;
    results/RUN+RUN for several runs. `trust` allows to run the code of evaluations that are files (FILE.py:NAME).
    """
    given = [paths] if isinstance(paths, str | Path) else paths
    if not isinstance(given, Sequence) or isinstance(given, bytes):
        raise UserError(f"paths is {shown(paths)}; it must be a path or a list of them")
    if not given:
        raise UserError("a report needs at least one run folder or folder of results; none was given")
    run_folders, results = _sort([folder for path in given for folder in found_in(run_path(user_path("a path", path)))])
    inside = Path(given[0]) if len(given) == 1 and not run_folders and len(results) > 1 else None
    target = user_path("out", out) if out is not None else inside or _default_out(run_folders, results)
    if run_folders:
        record(run_folders, target, trust)
        results = [*(folder for folder in results if folder.resolve() != target.resolve()), target]
    return build(results, target)


def found_in(path: Path) -> Iterator[Path]:
    """The folder itself, or the run folders and folders of results that it contains."""
    if not path.is_dir():
        raise UserError(f"there is no folder {path}")
    if is_run(path) or (path / FACTS).is_file():
        yield path
        return
    inside = [folder for folder in sorted(path.iterdir(), key=_current_first) if folder.is_dir() and _is_source(folder)]
    if not inside:
        raise UserError(f"{path} is neither a run folder nor a folder of results ({FACTS}), and contains none")
    yield from inside


def _is_source(folder: Path) -> bool:
    return is_run(folder) or (folder / FACTS).is_file()


def _current_first(folder: Path) -> tuple[bool, str]:
    """Results of suites that the package has come before those of earlier ones, which they replace."""
    return folder.name not in suite_names(), folder.name


def _sort(folders: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    return [path for path in folders if is_run(path)], [path for path in folders if not is_run(path)]


def _default_out(run_folders: Sequence[Path], results: Sequence[Path]) -> Path:
    if results:
        return results[0]
    if len(run_folders) == 1:
        return writable_run(run_folders[0]) / "report"
    return Path("results") / "+".join(run.resolve().name for run in run_folders)[:120]


def build(results: Sequence[Path], out: Path) -> Path:
    """Write the report of folders of results."""
    data = load_results(results, out)
    lines = parity.compare(data)
    content = {
        "Summary": overview.summary(data),
        "Questions": overview.questions(data),
        "Comparison with the paper": overview.compared_with_paper(lines),
        "Training": runs.training(data),
        "Tasks": tasks.tasks(data),
        **_evaluations(data),
        "Trajectories": runs.trajectories(data),
        "Ablations and controls": tasks.ablations(data),
        "Definitions": overview.definitions(data),
    }
    about = "Factored unsupervised skill discovery: SUSD and its rivals on one learner, measured in the same way."
    write_text(data.out / "parity.csv", parity.to_csv(lines))
    path = data.out / "report.html"
    write_text(path, page("SUSD: report of results", paragraph(about, class_="lead"), content))
    return path


def _evaluations(data: ReportData) -> dict[str, Parts]:
    """A section for every evaluation that was run: its own, or the generic one."""
    phases = sorted({fact.phase for fact in data.facts} - {"train", "downstream"})
    order = [*(name for name in names() if name in phases), *(name for name in phases if name not in names())]
    return dict(_section(data, name) for name in order)


def _section(data: ReportData, name: str) -> tuple[str, Parts]:
    if name not in names():  # of a file, or of a package that is not installed
        return name, skills.any_evaluation(data, name)
    found = evaluation(name)
    if not found.section:
        return found.title, skills.any_evaluation(data, name)
    module, _, function = found.section.partition(":")
    return found.title, getattr(import_module(module), function)(data)
