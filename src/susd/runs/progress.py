"""The progress line of a run, and short forms of numbers and durations."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import Any


class Progress:
    """The progress of a run: a bar in a terminal, a plain line every ten seconds in a log file."""

    _INTERVAL = 10.0

    def __init__(self, total_epochs: int, start_epoch: int = 0, quiet: bool = False) -> None:
        self._total, self._start, self._quiet = total_epochs, start_epoch, quiet
        self._began = time.monotonic()
        self._printed = -math.inf
        self._bar: Any = None
        if not quiet and sys.stderr.isatty():
            self._bar = _terminal_bar()
            self._task = self._bar.add_task("", total=total_epochs, completed=start_epoch, text="starting")
            self._bar.start()

    def update(self, epoch: int, fields: Mapping[str, float | str], left: float | None = None) -> None:
        """Show that `epoch` epochs are done, the time left and some values, such as {"steps/s": 1.2e4, "coverage": 31}."""
        now = time.monotonic()
        if left is None:
            left = (now - self._began) / max(epoch - self._start, 1) * (self._total - epoch)
        values = [f"{name} {value if isinstance(value, str) else short(value)}" for name, value in fields.items()]
        text = "  ".join([f"{epoch}/{self._total}", f"{duration(left)} left", *values])
        if self._bar is not None:
            self._bar.update(self._task, completed=epoch, text=text)
        elif not self._quiet and (now - self._printed >= self._INTERVAL or epoch >= self._total):
            self._printed = now
            print(text, file=sys.stderr, flush=True)

    def message(self, text: str) -> None:
        """Print a line, above the bar if there is one; also when quiet."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the bar; its last line stays."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _terminal_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as RichProgress

    text = TextColumn("{task.fields[text]}", markup=False)
    return RichProgress(BarColumn(bar_width=12), text, console=Console(stderr=True))


def duration(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def short(value: float) -> str:
    """A number in at most six characters or so: 0.123, 31, 12.3k, 4.5M."""
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if math.isfinite(value) and abs(value) >= 0.9995 * limit:
            return f"{value / limit:.3g}{suffix}"
    return f"{value:.3g}"
