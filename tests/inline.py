"""Jobs of a suite in this process instead of one process each: most of their time is imports and compilation."""

from collections.abc import Iterable
from pathlib import Path

from susd.errors import UserError
from susd.experiments import scheduler
from susd.experiments.declared import Job
from susd.experiments.job import run_job


class Inline:
    """An engine that does a job when it is started. It takes the place of `scheduler.Local`."""

    slots, note = 1, ""

    def __init__(self, workers: int, runs: Path, results: Path) -> None:
        self._runs, self._results = runs, results
        self._reasons: dict[str, str] = {}

    def start(self, job: Job, declared: str) -> str:
        (self._runs / ".jobs").mkdir(parents=True, exist_ok=True)
        self._reasons[job.name] = ""
        try:
            run_job(job, self._runs, self._results)
        except UserError as error:
            self._reasons[job.name] = str(error)
        return job.name

    def ended(self, handles: Iterable[str], seconds: float) -> list[tuple[str, str]]:
        return [(name, self._reasons.pop(name)) for name in handles]

    def close(self) -> None:
        pass


def install() -> None:
    """Use it in all suites of this process."""
    scheduler.Local = Inline  # type: ignore[assignment, misc]
