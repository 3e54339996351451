"""Files are replaced completely or not at all."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from susd.errors import UserError
from susd.runs.atomic import new_folder, replace_file, write_json, write_text
from susd.runs.untrusted import read_json


def test_json_and_text_round_trip(tmp_path: Path) -> None:
    write_json(tmp_path / "new" / "a.json", {"ü": [1, None]})
    assert read_json(tmp_path / "new" / "a.json") == {"ü": [1, None]}
    write_text(tmp_path / "a.txt", "one\ntwo\r\n")
    assert (tmp_path / "a.txt").read_bytes() == b"one\ntwo\r\n"


def test_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_json(path, 1)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"cannot write .*a\.json: No space left"):
        write_json(path, {"new": 1})
    assert read_json(path) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_interrupt_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"old")

    def interrupted() -> None:
        with replace_file(path) as temporary:
            temporary.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.png"]


def test_reason_is_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    impossible = replace_file(tmp_path / "file" / "a.txt", lambda error: f"error number {error.errno}")
    with pytest.raises(UserError, match=r"cannot write .*file/a\.txt: error number \d+"), impossible:
        pass


def test_new_folder_is_complete_or_absent(tmp_path: Path) -> None:
    def fill(replace: bool, fail: bool = False) -> None:
        with new_folder(tmp_path / "a", replace) as temporary:
            (temporary / "x").write_text("new")
            if fail:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill(False, fail=True)
    assert os.listdir(tmp_path) == []
    fill(False)
    (tmp_path / "a" / "old").touch()
    with pytest.raises(UserError, match="already exists"):
        fill(False)
    with pytest.raises(KeyboardInterrupt):
        fill(True, fail=True)
    assert sorted(os.listdir(tmp_path / "a")) == ["old", "x"]
    fill(True)
    assert os.listdir(tmp_path / "a") == ["x"]
    assert os.listdir(tmp_path) == ["a"]


def test_failed_replacement_keeps_the_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "old").touch()
    real = os.replace

    def replace(source: Path, target: Path) -> None:
        if Path(source).suffix == ".tmp":
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(UserError, match=r"cannot write .*: No space left"), new_folder(tmp_path / "a", True):
        pass
    assert os.listdir(tmp_path / "a") == ["old"]
    assert os.listdir(tmp_path) == ["a"]
