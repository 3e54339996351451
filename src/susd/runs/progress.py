"""The progress line of a run, and short forms of numbers and durations."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from susd.errors import UserError, format_exception


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


class Waiting:
    """Says what is waited for, and for how long so far: every second in a terminal, ever more rarely in a log file."""

    _FIRST, _RAREST = 5.0, 60.0  # seconds between the first lines of a log file, and at most

    def __init__(self, what: str, quiet: bool = False) -> None:
        self._what, self._quiet, self._done = what, quiet, threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True)

    def _report(self) -> None:
        began, terminal = time.monotonic(), sys.stderr.isatty()
        pause = 1.0 if terminal else self._FIRST
        while not self._done.wait(pause):
            text = f"{self._what}: {time.monotonic() - began:.0f} s so far"
            if terminal:
                print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)
            else:
                print(text, file=sys.stderr, flush=True)
                pause = min(2 * pause, self._RAREST)
        if terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Waiting:
        if not self._quiet:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if not self._quiet:
            self._thread.join()


@contextmanager
def optional(what: str) -> Iterator[None]:
    """Something that comes after the work: if it fails, one line says so, and the result is kept."""
    try:
        yield
    except Exception as error:  # user-defined code may raise anything
        reason = str(error) if isinstance(error, UserError) else format_exception(error)
        print(f"no {what}: {(reason.splitlines() or ['no reason given'])[0]}", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Hours, minutes and seconds; from two days on days, from two years on years."""
    days = seconds / 86_400
    if not days < 2:
        return f"{days:.0f} days" if days < 730 else f"{days / 365.25:,.1f} years"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def short(value: float) -> str:
    """A number in at most six characters or so: 0.123, 31, 12.3k, 4.5M."""
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if math.isfinite(value) and abs(value) >= 0.9995 * limit:
            return f"{value / limit:.3g}{suffix}"
    return f"{value:.3g}"
