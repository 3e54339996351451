"""What the tests share: tiny runs that are trained once, and the command line in this process and in children."""

import atexit
import contextlib
import gc
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Optimising tiny programs takes longer than running them. What follows is set before JAX is imported, here and in all
# children, so that their runs are the same bit for bit.
os.environ["XLA_FLAGS"] = " ".join(
    (
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
        "--xla_cpu_use_fusion_emitters=false",  # they compile half as fast
        "--xla_cpu_parallel_codegen_split_count=1",  # a tiny program in parts takes longer to compile
    )
)
# What one test has compiled, others load: all workers and children share an empty cache, which ends with the session.
if "PYTEST_XDIST_WORKER" not in os.environ:
    CACHE = tempfile.mkdtemp(prefix="susd-cache-")
    atexit.register(shutil.rmtree, CACHE, ignore_errors=True)
    os.environ |= {"SUSD_CACHE_DIR": CACHE, "JAX_COMPILATION_CACHE_DIR": CACHE}
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

import pytest

import sharing

# Tracing makes many objects that live on; to look through them for cycles again and again takes a tenth of all time.
gc.set_threshold(50_000, 10, 10)

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


def call(*arguments: object, code: int = 0) -> None:
    """`susd` in this process, which is much faster than a child; what it prints can be captured by capsys."""
    from susd.cli.main import main

    with pytest.raises(SystemExit) as exited:
        main([str(argument) for argument in arguments])
    assert (exited.value.code or 0) == code


def call_train(env: str, run: object, *arguments: object, code: int = 0) -> None:
    """A new tiny run in this process, without the evaluation at its end."""
    call("train", env, "--run", run, *TINY, "--no-eval", "--quiet", *arguments, code=code)


def call_resume(run: object, *arguments: object, code: int = 0) -> None:
    """Resume a run in this process."""
    call("train", "--run", run, "--resume", "--no-eval", "--quiet", *arguments, code=code)


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one sentence of a command that exits with 2."""
    capsys.readouterr()
    call(*arguments, code=2)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    prefix, sentence = "susd: error: ", printed.err.strip()
    assert sentence.startswith(prefix)
    return sentence.removeprefix(prefix)


def checksum(run: Path) -> str:
    """The checksum of the whole state, as `susd show` prints it."""
    from susd.runs.status import status

    found = status(run)
    assert found["checksum"]
    assert found["skipped"] == []
    return str(found["checksum"])


def metrics(run: Path) -> list[dict[str, Any]]:
    """All rows of the metrics file without the times, which differ between equal runs."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert all(row.pop("seconds") > row.pop("env_seconds", 0) for row in rows)
    return rows


# Files whose tests take longest come first, so that all workers end at about the same time.
LONGEST = (
    *("test_devices", "test_registry", "test_examples", "test_tutorial", "test_train", "test_scheduler", "test_extend"),
    *(
        "test_cli",
        "test_page",
        "test_ray",
        "test_docs",
        "test_susd",
        "test_kill",
        "test_session",
        "test_local",
        "test_slurm",
    ),
    *("test_slurm", "test_controller", "test_zero_shot", "test_host", "test_bodies", "test_entity", "test_atlas"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by file; the order inside a file stays."""
    names = [item.path.stem for item in items]
    order = {name: number for number, name in enumerate([*LONGEST, *(n for n in names if n not in LONGEST)])}
    items.sort(key=lambda item: order[item.path.stem])


@pytest.fixture(scope="session", autouse=True)
def shared_programs() -> None:
    sharing.install()


@pytest.fixture(scope="module")
def quick_figures() -> Iterator[None]:
    """Figures without the search for their layout, which takes half of their time. Tests in tests/viz have the search."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("matplotlib.layout_engine.ConstrainedLayoutEngine.execute", lambda *_: None)
        yield


@pytest.fixture(scope="session")
def child_environment() -> dict[str, str]:
    """That of a child with one core, since tests run side by side."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture
def susd(tmp_path: Path, child_environment: dict[str, str]) -> Command:
    return Command(tmp_path, child_environment)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Train a run once in the session and return its folder, to be read and copied, never changed."""
    done: dict[tuple[object, ...], Path] = {}

    def train(env: str, *arguments: object) -> Path:
        if (env, *arguments) not in done:
            run = tmp_path_factory.mktemp("trained") / "run"
            with contextlib.redirect_stdout(io.StringIO()):
                call_train(env, run, *arguments)
            done[env, *arguments] = run
        return done[env, *arguments]

    return train
