"""Signals that stop a run when its state is complete."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_signals(unit: str) -> Iterator[list[str]]:
    """Ctrl-C and SIGTERM are added to the list, and obeyed after `unit`, such as the epoch, when the state is complete.

    A second Ctrl-C ends the program at once, unless it follows within a second: `make` and `timeout` repeat the signal that
    the terminal has already sent.
    """
    caught: list[str] = []
    first = math.inf

    def note(number: int, _: Any) -> None:
        nonlocal first
        if number == signal.SIGINT and time.monotonic() > first + 1.0:
            raise KeyboardInterrupt
        if not caught:
            first = time.monotonic()
            print(f"stopping after {unit} ..", file=sys.stderr, flush=True)
        caught.append(signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():  # only the main thread can handle signals
        yield caught
        return
    old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
