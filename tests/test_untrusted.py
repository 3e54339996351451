"""Every reader of a file from others: whatever bytes it gets, it succeeds or ends with one sentence."""

import copy
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from conftest import call
from experiments.run_folders import make_run
from experiments.suites import TINY
from susd.cli.tables import print_status
from susd.errors import UserError
from susd.experiments import metrics_store, suite
from susd.experiments.extract import facts_of_run
from susd.experiments.record import record
from susd.report.load import load_results
from susd.runs import checkpoint, header
from susd.runs.folder import RunFolder
from susd.runs.npz import read_npz
from susd.runs.status import status
from susd.tools.golden import verify

GOLDEN = Path(__file__).parent / "golden" / "gunner_overrange.npz"
CONFIG = {"env": "gunner", "method": "susd", "preset": "quick", "seed": 0, "seeds": 2, "epochs": 2, "env_options": {}}
STATE = {"w": jnp.arange(6.0).reshape(2, 3), "n": jnp.int32(2)}
META = {"epoch": 2, "train_seconds": 1.0, "compile_seconds": 0.5, "config": CONFIG}
DEEP = [[[]]]
for _ in range(60):
    DEEP = [DEEP]
ODD = [
    *(None, True, False, -1, 0, 7, 2**40, 2**70, 10**400, 0.5, -1e308, 1e39, float("nan"), float("inf"), "", "x", "nan"),
    *(
        "\ud800",
        "\x1b[2J",
        "a\nb",
        "é",
        "x" * 3000,
        "../../../up",
        "/etc/passwd",
        "no.py:make",
        "gymnasium:zz:X-v0",
    ),
    *([], {}, [1, 2], [[]], [None], ["a"], {"a": 1}, {"": {}}, DEEP),
]
few = settings(max_examples=60, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))


def ends_well(read: Callable[[], Any]) -> bool:
    """Whether it succeeds; otherwise it is refused with one sentence."""
    try:
        read()
    except UserError as error:
        message = str(error)
        assert 10 < len(message) < 2000
        assert message.isprintable()
        return False
    return True


# Bytes that nobody wrote, and valid files in which something was changed.


@st.composite
def damaged(draw: st.DrawFn, valid: bytes) -> bytes:
    """Any bytes, or the valid ones with a part cut off, replaced, repeated or flipped."""
    start, stop = sorted((draw(st.integers(0, len(valid))), draw(st.integers(0, len(valid)))))
    part = draw(st.binary(max_size=40))
    flipped = bytearray(valid)
    for at in draw(st.lists(st.integers(0, len(valid) - 1), max_size=4)):
        flipped[at] ^= 1 << draw(st.integers(0, 7))
    choices = (part, valid[:stop], valid[:start] + part + valid[stop:], valid + valid[start:stop], bytes(flipped))
    return draw(st.sampled_from(choices))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something is in a JSON value."""
    yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


@st.composite
def changed(draw: st.DrawFn, valid: Any) -> Any:
    """A JSON value with up to two entries replaced by odd ones, deleted or added."""
    value = copy.deepcopy(valid)
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(list(places(value))))
        odd = draw(st.sampled_from(ODD))
        if not path:
            return draw(st.sampled_from([odd, value]))
        target = value
        for key in path[:-1]:
            target = target[key]
        verb = draw(st.sampled_from(["replace", "replace", "delete", "add"]))
        if verb == "replace":
            target[path[-1]] = odd
        elif verb == "delete":
            del target[path[-1]]
        elif isinstance(target, dict):
            target["extra"] = odd
        else:
            target.append(odd)
    return value


def documents(valid: Any) -> st.SearchStrategy[bytes]:
    """The content of a JSON file."""
    return st.one_of(damaged(json.dumps(valid).encode()), changed(valid).map(lambda value: json.dumps(value).encode()))


def lines(valid: list[Any]) -> st.SearchStrategy[bytes]:
    """The content of a file of lines."""

    def written(rows: Any) -> bytes:
        return b"".join(json.dumps(row).encode() + b"\n" for row in (rows if isinstance(rows, list) else [rows]))

    return st.one_of(damaged(written(valid)), changed(valid).map(written))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with everything in it; tests put back what they change."""
    path = make_run(tmp_path_factory.mktemp("untrusted") / "run")
    checkpoint.save(path / "checkpoints", 2, STATE, META, config="abc")
    return path


def with_file(path: Path, content: bytes, read: Callable[[], Any]) -> bool:
    """`ends_well` with another content of a file."""
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        return ends_well(read)
    finally:
        path.write_bytes(before)


FILES = {
    "config.json": CONFIG,
    "meta.json": {"versions": {"jax": "1"}, "commit": "abc"},
    "evaluation/control.json": None,
    "downstream/lim-0-s0-1/result.json": None,
}


@few
@given(data=st.data())
@pytest.mark.parametrize("name", FILES)
def test_documents_of_a_run(run: Path, name: str, data: st.DataObject) -> None:
    valid = json.loads((run / name).read_text())
    content = data.draw(documents(valid))

    def read() -> None:
        print_status(status(run))
        facts_of_run(run)

    with_file(run / name, content, read)


@few
@given(data=st.data())
def test_metrics(run: Path, data: st.DataObject) -> None:
    valid = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    content = data.draw(lines(valid))
    for read in (
        lambda: print_status(status(run)),
        lambda: facts_of_run(run),
        lambda: RunFolder.open(run).truncate_metrics(1),
    ):
        with_file(run / "metrics.jsonl", content, read)


def header_of(path: Path) -> dict[str, Any]:
    return {name: checkpoint.inspect(path)[name] for name in ("epoch", "config", "meta", "leaves")}


def rewritten(path: Path, value: Any) -> bytes:
    """A checkpoint with another header and valid checksums."""
    content = path.read_bytes()
    _, version, length, _ = header.PREFIX.unpack(content[: header.PREFIX.size])
    leaves = content[header.start_of_leaves(length) :]
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    head = header.PREFIX.pack(header.MAGIC, version, len(text), header.start_of_leaves(len(text)) + len(leaves)) + text
    return head + hashlib.blake2b(head, digest_size=header.CHECKSUM_BYTES).digest() + leaves


def read_checkpoint(run: Path) -> None:
    print_status(status(run))
    checkpoint.restore_latest(run / "checkpoints", STATE, "abc", of_run=True)


@few
@given(data=st.data())
def test_checkpoints(run: Path, data: st.DataObject) -> None:
    path = checkpoint.checkpoints(run / "checkpoints")[0]
    head = changed(header_of(path)).map(lambda value: rewritten(path, value))
    content = data.draw(st.one_of(damaged(path.read_bytes()), head, head))
    with_file(path, content, lambda: read_checkpoint(run))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"meta": {}}, "its meta data has no 'epoch'"),
        ({"meta": []}, "has the meta a list of 0; it must be an object"),
        ({"leaves": []}, r"its leaves have 0 of \d+ bytes"),
        ({"leaves": {}}, "has the leaves an object of 0; it must be a list"),
        ({"dtype": "object"}, "has the dtype 'object'"),
        ({"dtype": "float32", "shape": [10**13]}, "is not where it must be in the file|need .* GiB of memory"),
        ({"shape": [2, 3], "rows": [0, 9]}, "stores the rows a list of 2"),
        ({"shape": [10**9, 10**4], "rows": [0, 0]}, r"need .* GiB of memory; this machine has|of \d+ bytes"),
        ({"shape": [2, "3"]}, "has the shape"),
        ({"impl": "rbg"}, "of 'rbg'"),
        ({"path": "['x']"}, "it lacks leaf"),
        ({"surprise": 1}, "the entries checksum, dtype"),
    ],
)
def test_wrong_headers(run: Path, change: dict[str, Any], message: str) -> None:
    path = checkpoint.checkpoints(run / "checkpoints")[0]
    valid = header_of(path)
    if set(change) <= set(valid):
        valid |= change
    else:
        valid["leaves"][-1] |= change
    before = path.read_bytes()
    path.write_bytes(rewritten(path, valid))
    try:
        with pytest.raises(checkpoint.CheckpointError, match=message):
            checkpoint.restore_latest(run / "checkpoints", STATE, "abc", of_run=True)
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "holds a list of 0; it must hold an object"),
        ("{}", "has no 'env'"),
        ("[" * 100_000, "is nested too deeply"),
        ('{"a":' * 100_000, "is nested too deeply"),
        ('{"env": "a", "env": "b"}', "the name 'env' is there twice"),
        ('{"env": NaN}', "NaN is not a finite number"),
        ('{"env": 1e999}', "holds inf: it is not a finite number"),
        ('{"env": ' + "9" * 5000 + "}", "is not valid JSON"),
        ("\0", "is not valid JSON"),
    ],
)
def test_configs(run: Path, capsys: pytest.CaptureFixture[str], content: str, message: str) -> None:
    before = (run / "config.json").read_bytes()
    (run / "config.json").write_text(content)
    try:
        for command in ("show", "report"):
            call(command, run, code=2)
            errors = capsys.readouterr().err
            assert message in errors
            assert errors.count("\n") == 1
    finally:
        (run / "config.json").write_bytes(before)


def test_files_that_are_no_files(run: Path, tmp_path: Path) -> None:
    """Reading a pipe would wait for ever."""
    copied = Path(shutil.copytree(run, tmp_path / "run"))
    (copied / "metrics.jsonl").unlink()
    (copied / "metrics.jsonl").mkdir()
    assert not ends_well(lambda: status(copied))
    (copied / "metrics.jsonl").rmdir()
    for name in ("metrics.jsonl", "config.json"):
        (copied / name).unlink(missing_ok=True)
        os.mkfifo(copied / name)
        assert not ends_well(lambda: status(copied))
    os.truncate(checkpoint.checkpoints(copied / "checkpoints")[0], 2**42)
    assert not ends_well(lambda: checkpoint.restore_latest(copied / "checkpoints", STATE))


# Results.


def results_of(run: Path, folder: Path) -> Path:
    record([run], folder)
    (folder / "suite.toml").write_text(TINY)
    return folder


@few
@given(data=st.data())
@pytest.mark.parametrize("name", ["facts.jsonl", "configs.json", "suite.toml"])
def test_results(run: Path, tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject) -> None:
    folder = run.parent / "results"
    if not folder.exists():
        results_of(run, folder)
    content = (folder / name).read_bytes()
    if name == "facts.jsonl":
        strategy = lines([json.loads(line) for line in content.splitlines()[:3]])
    else:
        strategy = damaged(content) if name == "suite.toml" else documents(json.loads(content))
    drawn = data.draw(strategy)

    def read() -> None:
        load_results([folder], folder)
        facts = metrics_store.load(folder / "facts.jsonl")
        metrics_store.append(folder / "facts.jsonl", facts[:1])
        metrics_store.append_configs(folder / "configs.json", {"new": {}})

    with_file(folder / name, drawn, read)


@few
@given(data=st.data())
@example(data=None)
def test_suites(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject | None) -> None:
    path = tmp_path_factory.mktemp("suite") / "mine.toml"
    deep, dotted, many = b"a = " + b"[" * 50_000, b"a." * 90_000 + b"a = 1", b"seeds = [" + b"1," * 90_000 + b"1]"
    many += b"\n[environments.gunner]\n[methods.susd]"
    for content in [data.draw(damaged(TINY.encode()))] if data else [deep, dotted, many]:
        path.write_bytes(content)
        assert ends_well(lambda: suite.load(str(path))) in ({True, False} if data else {False})


# Recordings.


@few
@given(data=st.data())
def test_recordings(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("npz") / "gunner.npz"
    path.write_bytes(data.draw(damaged(GOLDEN.read_bytes())))
    ends_well(lambda: verify(path))


def member(value: Any, claim: tuple[int, ...] | None = None) -> bytes:
    """An array as an .npy file, perhaps with a header that claims another shape."""
    shape, dtype = claim or value.shape, value.dtype.descr if value.dtype.names else value.dtype.str
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + (b"" if value.dtype.hasobject else value.tobytes())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("obs", b"no array", "the magic string is not correct"),
        ("obs", member(np.zeros(3), (10**13,)), "claims 80000000000000 bytes"),
        ("obs", member(np.zeros(3), (2,)), "does not have the 16 bytes of its header"),
        ("obs", member(np.zeros(3, object)), r"is object\[3\], not one of numbers"),
        ("obs", member(np.zeros(3), (-1,)), "not one of numbers"),
        ("obs", member(np.zeros(3))[:20], "EOF"),
    ],
)
def test_odd_members(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / "gunner.npz"
    path.write_bytes(GOLDEN.read_bytes())
    with zipfile.ZipFile(GOLDEN) as old, zipfile.ZipFile(path, "w") as new:
        for entry in old.namelist():
            new.writestr(entry, content if entry == f"{name}.npy" else old.read(entry))
    with pytest.raises(UserError, match=message):
        verify(path)


def test_only_what_is_needed_is_read(tmp_path: Path) -> None:
    """A zip bomb, and something that is no array, under names that nobody asks for."""
    path = tmp_path / "gunner.npz"
    shutil.copy(GOLDEN, path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.npy", bytes(50_000_000))
        archive.writestr("readme.txt", "hello")
    assert path.stat().st_size < 200_000
    assert set(read_npz(path, ("obs", "nothing"))) == {"obs"}
    assert verify(path)["max_obs_error"] < 1e-5
    with pytest.raises(UserError, match="the magic string is not correct"):
        read_npz(path, ("bomb",))


# Large files, in a process whose memory is measured.

BOMBS = """
import sys, time
from pathlib import Path
from susd.errors import UserError
from susd.experiments import metrics_store, suite
from susd.runs.folder import RunFolder
from susd.runs.npz import read_npz
from susd.runs.untrusted import read_json

def refused(name, read, *parts):
    path = Path(name)
    with open(path, "wb") as file:
        for part, count in parts:
            file.write(part * count)
    began = time.process_time()
    try:
        read(path)
    except UserError as error:
        assert len(str(error)) < 2000
    else:
        raise AssertionError(name)
    assert time.process_time() - began < 10, name

run = RunFolder(Path("."), {}, {})
refused("a.json", read_json, (b"[", 10_000_000))
refused("b.json", read_json, (b"[[],", 8_000_000))
refused("metrics.jsonl", lambda _: run.read_metrics(), (b"x", 50_000_000))
refused("metrics.jsonl", lambda _: run.read_metrics(), (b'{"epoch":1}\\n', 1_100_000))
refused("facts.jsonl", metrics_store.load, (b"{}" , 1), (b" ", 50_000_000), (b"\\n", 1))
refused("c.toml", lambda path: suite.load(str(path)), (b"a = 1\\n", 1_000_000))
refused("d.npz", lambda path: read_npz(path, ("a",)), (b"PK", 50_000_000))
print(int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) // 1024)
"""


@pytest.mark.slow
def test_large_files(tmp_path: Path, child_environment: dict[str, str]) -> None:
    command = [sys.executable, "-c", BOMBS]
    child = subprocess.run(command, cwd=tmp_path, env=child_environment, capture_output=True, text=True, timeout=300)
    assert child.returncode == 0, child.stderr
    assert int(child.stdout) < 2048
