"""The progress line: plain text in a file, one line in a terminal, nothing when quiet."""

import math
import os
import pty
import re
import subprocess
import sys
import threading
import time

import pytest

from susd.errors import UserError
from susd.runs.progress import Progress, Waiting, duration, optional, short


def test_log_file_has_a_line_every_ten_seconds(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with Progress(total_epochs=110, start_epoch=100) as progress:
        for epoch in range(101, 111):
            progress.update(epoch, {"steps/s": 12345.6, "coverage": "31"})
        progress.message("done [bold]")
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert lines[0] == "101/110  0:00:36 left  steps/s 12.3k  coverage 31"
    assert [line.split("/")[0] for line in lines[:-1]] == ["101", "104", "107", "110"]
    assert lines[-1] == "done [bold]"


def test_quiet_prints_messages_only(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(10, quiet=True) as progress:
        progress.update(10, {})
        progress.message("a checkpoint is damaged")
    assert capsys.readouterr().err == "a checkpoint is damaged\n"


SHOW = """
from susd.runs.progress import Progress
with Progress(1000, start_epoch=990) as progress:
    for epoch in range(991, 1001):
        progress.update(epoch, {"steps/s": 12345.6, "updates/s": 321.5, "coverage": 1234.0, "a rather long name": 1e-3})
        if epoch == 995:
            progress.message("saved [checkpoint] 995")
"""


def test_terminal_has_one_line_of_80_columns() -> None:
    leader, follower = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    child = subprocess.Popen([sys.executable, "-c", SHOW], stderr=follower, stdout=subprocess.DEVNULL, env=environment)
    os.close(follower)
    output = b""
    while True:
        try:
            if not (part := os.read(leader, 4096)):
                break
        except OSError:  # on Linux: the other side is closed
            break
        output += part
    os.close(leader)
    assert child.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\r", output.decode())
    lines = [line for line in re.split(r"[\r\n]+", text) if line.strip()]
    assert any("saved [checkpoint] 995" in line for line in lines)
    assert all(len(line) <= 80 for line in lines)
    last = output.decode().rsplit("\r", 2)[-2]
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", last)
    assert "1000/1000  0:00:00 left  steps/s 12.3k  updates/s 322  coverage 1.23k" in shown
    assert len(shown.strip("\n")) <= 80


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.12345, "0.123"),
        (999.6, "1k"),
        (12345, "12.3k"),
        (-4.5e6, "-4.5M"),
        (math.nan, "nan"),
        (math.inf, "inf"),
    ],
)
def test_short_numbers(value: float, text: str) -> None:
    assert short(value) == text


def test_waiting_says_for_how_long(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In a log file, ever more rarely."""
    monkeypatch.setattr(Waiting, "_FIRST", 0.05)
    monkeypatch.setattr(Waiting, "_RAREST", 0.2)
    with Waiting("compiling the epoch"):
        time.sleep(1.0)
    lines = capsys.readouterr().err.splitlines()
    assert 2 <= len(lines) <= 7
    assert all(re.fullmatch(r"compiling the epoch: \d+ s so far", line) for line in lines)
    with Waiting("compiling the epoch", quiet=True):
        time.sleep(0.2)
    assert capsys.readouterr().err == ""


def test_waiting_ends_with_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), Waiting("compiling"):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == ""
    assert not [thread for thread in threading.enumerate() if thread.name.endswith("(_report)")]


def test_waiting_in_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Waiting("compiling"):
        time.sleep(1.5)
    assert re.fullmatch(r"(\rcompiling: \d s so far\x1b\[K)+\r\x1b\[K", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0:00:00"),
        (3661, "1:01:01"),
        (2 * 86_400 - 1, "47:59:59"),
        (2 * 86_400, "2 days"),
        (40 * 86_400, "40 days"),
        (35_425 * 3600 + 20 * 60 + 35, "4.0 years"),
        (1e12, "31,688.1 years"),
        (math.inf, "inf years"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UserError("nothing to draw\nat all"), "no figure: nothing to draw"),
        (ZeroDivisionError("by zero"), "no figure: ZeroDivisionError: by zero"),
        (UserError(""), "no figure: no reason given"),
    ],
)
def test_optional_work_never_fails(error: Exception, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with optional("figure"):
        raise error
    assert capsys.readouterr().err.startswith(line)
    with pytest.raises(KeyboardInterrupt), optional("figure"):
        raise KeyboardInterrupt
