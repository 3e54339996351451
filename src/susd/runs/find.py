"""Where a run is: a folder, or the name of skills that come with the package. Imports no JAX."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from susd.errors import UserError
from susd.runs.atomic import new_folder

SHIPPED = Path(__file__).parent.parent / "pretrained"  # the skills that come with the package
RUNS = Path("runs")
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


def shipped() -> dict[str, Path]:
    """The folders of the skills that come with the package, by name."""
    return {path.parent.name: path.parent for path in sorted(SHIPPED.glob("*/manifest.json"))}


def run_path(run: str | Path) -> Path:
    """The folder of a run. A plain name is that of a folder, then of one in runs/, then of skills of the package."""
    path = Path(run)
    if PLAIN_NAME.fullmatch(str(run)):
        for folder in (path, RUNS / path, SHIPPED / path):
            if (folder / "config.json").is_file():
                return folder
    return path


def known_names(path: Path) -> str:
    """For a sentence about a folder that does not exist: the names that there are, if it could be one of them."""
    names = ", ".join(shipped())
    return f"; skills of the package are {names}" if names and PLAIN_NAME.fullmatch(str(path)) else ""


def results_path(run: str | Path) -> Path:
    """Where the results of a run are written: into its folder; for skills of the package into a copy of it in runs/."""
    path = run_path(run)
    return RUNS / path.name if path.resolve().parent == SHIPPED.resolve() else path


def writable_run(run: str | Path) -> Path:
    """`results_path`, after skills of the package were copied there."""
    source, target = run_path(run), results_path(run)
    if source != target:
        try:
            with new_folder(target) as temporary:
                shutil.copytree(source, temporary, dirs_exist_ok=True)
        except UserError:
            if not (target / "config.json").is_file():  # else another process has copied them just now
                raise
    return target
