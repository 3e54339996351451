"""Run folders refuse other runs, and a killed and resumed run has the metrics of an uninterrupted one."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from susd.errors import UserError
from susd.runs import folder as folder_module
from susd.runs import untrusted
from susd.runs.folder import RunFolder

CONFIG = {
    **{"env": "gunner", "env_options": {}, "method": "susd", "preset": "quick", "seed": 0, "seeds": 1, "epochs": 5},
    "sac": {"lr": 1e-4, "layers": [256, 256]},
}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs" / "one", CONFIG, "susd train --seed 0")


def test_import_is_light() -> None:
    code = "import sys, susd.runs.folder; sys.exit(bool({'jax', 'rich', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# JSON files and config hashes.


def test_unreadable_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no file .*b\.json"):
        untrusted.read_json(tmp_path / "b.json")
    (tmp_path / "c.json").write_text('{"a": 1,')
    with pytest.raises(UserError, match=r"c\.json is not valid JSON: .*line 1"):
        untrusted.read_json(tmp_path / "c.json")
    with pytest.raises(UserError, match="cannot read"):
        untrusted.read_json(tmp_path)


def test_config_hash_is_stable() -> None:
    old = {"method": "susd", "seed": 0, "sac": {"lr": 1e-4, "layers": [256, 256]}}
    assert folder_module.config_hash(old) == "d1fea158d9866f32"  # checkpoints of earlier versions carry it
    assert folder_module.config_hash(dict(reversed(CONFIG.items()))) == folder_module.config_hash(CONFIG)
    assert folder_module.config_hash(json.loads(json.dumps(CONFIG, indent=3))) == folder_module.config_hash(CONFIG)
    assert folder_module.config_hash(CONFIG | {"seed": 1}) != folder_module.config_hash(CONFIG)


# The folder.


def test_new_run_describes_itself(run: RunFolder) -> None:
    again = RunFolder.open(run.path)
    assert again == run
    assert again.config == CONFIG
    assert again.hash == again.meta["config_hash"] == folder_module.config_hash(CONFIG)
    assert again.meta["command"] == "susd train --seed 0"
    assert set(again.meta["versions"]) == {"python", "jax", "jaxlib", "equinox", "optax", "numpy", "susd"}
    assert again.meta["device"]["platform"]
    assert all(folder.is_dir() for folder in (run.checkpoints, run.figures, run.videos))


def test_folder_with_a_run_is_refused(run: RunFolder) -> None:
    before = (run.path / "config.json").read_bytes()
    with pytest.raises(UserError, match=r"one already holds a run; continue it with --resume or .* --run"):
        RunFolder.create(run.path, {"other": 1}, "")
    assert (run.path / "config.json").read_bytes() == before


def test_incomplete_folder_can_be_created_again(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "meta.json").write_text("{}")
    assert RunFolder.create(tmp_path, CONFIG, "").config == CONFIG


@pytest.mark.parametrize("below", ["", "a/b"])
def test_file_in_the_path_is_named(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="file is not a folder"):
        RunFolder.create(tmp_path / "file" / below, CONFIG, "")
    assert (tmp_path / "file").read_text() == "mine"


def test_unwritable_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module.os, "access", lambda *_: False)
    with pytest.raises(UserError, match=f"no permission to write in {tmp_path}"):
        RunFolder.create(tmp_path / "a" / "b", CONFIG, "")
    assert not list(tmp_path.iterdir())


def test_other_folders_are_refused(tmp_path: Path, run: RunFolder) -> None:
    with pytest.raises(UserError, match="there is no run folder"):
        RunFolder.open(tmp_path / "nothing")
    with pytest.raises(UserError, match="is a file, not a run folder"):
        RunFolder.open(run.path / "meta.json")
    with pytest.raises(UserError, match=r"not a run folder: it has no config\.json and no meta\.json"):
        RunFolder.open(tmp_path)
    (run.path / "meta.json").unlink()
    with pytest.raises(UserError, match=r"it has no meta\.json"):
        RunFolder.open(run.path)


def test_source_commit(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(
            ["git", "-C", str(tmp_path), *identity, *arguments], capture_output=True, text=True, check=True
        ).stdout

    source = tmp_path / "a.py"
    source.write_text("1")
    assert folder_module.source_commit(source) is None
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "another repository")
    assert folder_module.source_commit(source) is None
    git("add", "a.py")
    git("commit", "-q", "-m", "b")
    head = git("rev-parse", "HEAD").strip()
    assert folder_module.source_commit(source) == head
    source.write_text("2")
    assert folder_module.source_commit(source) == head + "-dirty"


# Metrics.


def test_metrics_round_trip(run: RunFolder) -> None:
    assert run.read_metrics() == []
    run.append_metrics([{"epoch": 1, "loss": 0.5, "per factor": np.array([1.0, -math.inf]), "n": np.int32(3)}])
    run.append_metrics([{"epoch": 2, "loss": jnp.float32(math.nan), "note": "text", "nested": {"a": (math.inf,)}}])
    run.sync_metrics()
    first, second = run.read_metrics()
    assert first == {"epoch": 1, "loss": 0.5, "per factor": [1.0, -math.inf], "n": 3}
    assert math.isnan(second.pop("loss"))
    assert second == {"epoch": 2, "note": "text", "nested": {"a": [math.inf]}}

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    for line in run.metrics.read_text().splitlines():
        json.loads(line, parse_constant=refuse)
    with pytest.raises(ValueError, match="needs an epoch"):
        run.append_metrics([{"loss": 1}])


@settings(max_examples=40, deadline=None)
@given(
    checkpointed=st.integers(0, 6),
    cut=st.integers(0, 400),
    garbage=st.sampled_from([b"", b"\0\0\0", b'{"epoch": 3', b"12"]),
)
def test_resumed_metrics_equal_uninterrupted(
    tmp_path_factory: pytest.TempPathFactory, checkpointed: int, cut: int, garbage: bytes
) -> None:
    rows = [{"epoch": epoch, "loss": 1 / epoch} for epoch in range(1, 9)]
    runs = [RunFolder(tmp_path_factory.mktemp("run"), {}, {}) for _ in range(2)]
    runs[0].append_metrics(rows)
    # What was written before the checkpoint is there; anything after it may be cut off anywhere.
    runs[1].append_metrics(rows[:checkpointed])
    safe = runs[1].metrics.stat().st_size if checkpointed else 0
    runs[1].append_metrics(rows[checkpointed:])
    with open(runs[1].metrics, "r+b") as file:
        file.truncate(max(safe, cut))
        file.seek(0, os.SEEK_END)
        file.write(garbage)
    assert runs[1].read_metrics()[:checkpointed] == rows[:checkpointed]
    runs[1].truncate_metrics(checkpointed)
    assert runs[1].read_metrics() == rows[:checkpointed]
    runs[1].append_metrics(rows[checkpointed:])
    assert runs[1].metrics.read_bytes() == runs[0].metrics.read_bytes()


def test_damaged_line_is_named(run: RunFolder) -> None:
    run.append_metrics([{"epoch": 1}, {"epoch": 2}, {"epoch": 3}])
    run.metrics.write_bytes(run.metrics.read_bytes().replace(b"2}", b"2"))
    for read in (run.read_metrics, lambda: run.truncate_metrics(1)):
        with pytest.raises(UserError, match=r"metrics\.jsonl is damaged: line 2"):
            read()
    assert len(run.metrics.read_bytes().splitlines()) == 3


def test_metrics_on_a_full_disk(run: RunFolder) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs a device that is always full")
    run.metrics.symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"cannot write metrics to .*No space left"):
        run.append_metrics([{"epoch": 1}])


# The lock.

HOLD = """
import sys, time
from pathlib import Path
from susd.runs.folder import RunFolder
with RunFolder(Path(sys.argv[1]), {}, {}).lock():
    print("locked", flush=True)
    time.sleep(60)
"""


def test_lock_lasts_as_long_as_its_process(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, {}, {})
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "locked\n"
            with pytest.raises(UserError, match=rf"{tmp_path} is in use by process {child.pid};"), run.lock():
                pass
        finally:
            child.send_signal(signal.SIGKILL)
    for _ in range(2):
        with run.lock():
            assert (tmp_path / ".lock").read_text() == str(os.getpid())
