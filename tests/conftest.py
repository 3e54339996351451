"""Children that run the command line for real, on tiny networks, with one cache of compiled programs for the session."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# Optimising tiny programs takes longer than running them. Children alone get this, and all of them the same.
XLA_FLAGS = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
TINY = (
    *("--hidden", "8", "--phi-hidden", "8", "--density-hidden", "8", "--gradient-steps", "2", "--batch-size", "8"),
    *("--episodes", "2", "--horizon", "10", "--buffer-size", "2000", "--warmup", "60"),
)


# A shell starts background jobs with Ctrl-C ignored, and children would inherit that; tests send it to them.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class Command:
    """`susd` in a child process, started in `folder`."""

    folder: Path
    environment: dict[str, str]

    def start(self, *arguments: object, **options: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "susd.cli.main", *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, **{**pipes, "cwd": self.folder, "env": self.environment, **options})

    def __call__(self, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        with self.start(*arguments) as child:
            output, errors = child.communicate(timeout=600)
        assert child.returncode == code, f"exit code {child.returncode}, not {code}\n{output}\n{errors}"
        assert "Traceback" not in errors
        return subprocess.CompletedProcess(child.args, child.returncode, output, errors)

    def train(self, env: str, run: object, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        """A new tiny run, without the evaluation at its end."""
        return self("train", env, "--run", run, *TINY, "--no-eval", *arguments, code=code)

    def resume(self, run: object, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        return self("train", "--run", run, "--resume", "--no-eval", *arguments, code=code)


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one sentence with which a command ends that exits with 2."""
    from susd.cli.main import main

    with pytest.raises(SystemExit) as exited:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    assert exited.value.code == 2, printed
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    prefix, sentence = "susd: error: ", printed.err.strip()
    assert sentence.startswith(prefix)
    return sentence.removeprefix(prefix)


def checksum(run: Path) -> str:
    """What `susd show` says of the whole state."""
    from susd.cli.tables import show

    status = show(run)
    assert status["checksum"]
    assert status["skipped"] == []
    return str(status["checksum"])


def metrics(run: Path) -> list[dict[str, Any]]:
    """All rows as they are in the file, without the times, which alone may differ between two equal runs."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert all(row.pop("seconds") > row.pop("env_seconds", 0) for row in rows)
    return rows


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Compiled programs of this session, instead of those in the user's home."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUSD_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(scope="session")
def child_environment(cache: Path) -> dict[str, str]:
    return os.environ | {"SUSD_CACHE_DIR": str(cache), "XLA_FLAGS": XLA_FLAGS}


@pytest.fixture
def susd(tmp_path: Path, child_environment: dict[str, str]) -> Command:
    return Command(tmp_path, child_environment)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, child_environment: dict[str, str]) -> Callable[..., Path]:
    """Train a run once in the session and return its folder, to be read and copied, never changed."""
    done: dict[tuple[object, ...], Path] = {}

    def train(env: str, *arguments: object) -> Path:
        if (env, *arguments) not in done:
            folder = tmp_path_factory.mktemp("trained")
            Command(folder, child_environment).train(env, "run", *arguments)
            done[env, *arguments] = folder / "run"
        return done[env, *arguments]

    return train
