"""Skills are fetched from folders and over HTTP completely or not at all; what is not as announced is refused."""

import http.server
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import call, refused
from susd.errors import UserError
from susd.share import manifest as manifests
from susd.share.pull import pull


@pytest.fixture
def skills(pushed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the skills that a test may change; the current folder is an empty one."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return Path(shutil.copytree(pushed, tmp_path / "shared" / "tiny"))


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder; some paths redirect."""

    redirects: dict[str, str] = {}  # noqa: RUF012

    def do_GET(self) -> None:
        if self.path in self.redirects:
            self.send_response(302)
            self.send_header("Location", self.redirects[self.path])
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(skills: Path) -> Iterator[str]:
    class Here(Handler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(skills.parent))

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Here) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def same(one: Path, other: Path) -> bool:
    files = [{p.relative_to(root): p.read_bytes() for p in root.rglob("*") if p.is_file()} for root in (one, other)]
    return files[0] == files[1]


def left() -> list[Path]:
    return [path for path in Path().rglob("*") if path != Path("runs")]


def test_from_a_folder(skills: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call("pull", skills)
    assert capsys.readouterr().out == "runs/tiny\n"
    assert same(skills, Path("runs/tiny"))
    assert refused(capsys, "pull", skills) == "runs/tiny already exists; delete it or choose another folder"
    call("pull", "runs/tiny", "--out", "other")
    assert same(skills, Path("other"))


def test_over_http(skills: Path, server: str) -> None:
    assert pull(f"{server}/tiny") == Path("runs/tiny")
    assert same(skills, Path("runs/tiny"))
    for number, address in enumerate((f"{server}/tiny/", f"{server}/tiny/manifest.json", f"{server}/tiny?key=1#top")):
        assert same(skills, pull(address, f"again{number}"))


def test_redirects(skills: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = skills.parent / "secret.json"
    secret.write_text("{}")
    targets = {
        "/a/manifest.json": "/tiny/manifest.json",
        "/b/manifest.json": secret.as_uri(),
        "/c/manifest.json": "ftp://h/x",
    }
    monkeypatch.setattr(Handler, "redirects", targets | {"/d/manifest.json": "/d/manifest.json"})
    with pytest.raises(UserError, match=r"cannot fetch .*/a/.*: the server answers 404"):
        pull(f"{server}/a")  # the manifest moved, the files did not
    for name in "bcd":
        with pytest.raises(UserError, match=f"cannot fetch .*/{name}/manifest.json: "):
            pull(f"{server}/{name}")
    assert left() == []


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("nowhere", "there is no folder nowhere; name a skill folder, or an address"),
        ("ftp://host/x", "'ftp://host/x' cannot be fetched; name a folder, or an address that starts with https://"),
        ("file:///etc", "'file:///etc' cannot be fetched"),
        ("http://", "'http://' cannot be fetched"),
        ("http://[x/y", "is not an address"),
        ("http://127.0.0.1:1/x", "cannot fetch http://127.0.0.1:1/x/manifest.json: "),
        ("http://host:port/x", "cannot fetch http://host:port/x/manifest.json: "),
        (".", "has no file manifest.json; `susd push` writes folders that can be pulled"),
    ],
)
def test_other_sources_are_refused(skills: Path, capsys: pytest.CaptureFixture[str], source: str, reason: str) -> None:
    assert reason in refused(capsys, "pull", source)
    assert left() == []


def rewrite(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    replaced = change(content)
    path.write_text(json.dumps(content if replaced is None else replaced))


def add_file(name: str, size: Any = 2, digest: str = "0" * 64) -> Callable[[dict[str, Any]], Any]:
    return lambda content: content["files"].update({name: {"size": size, "sha256": digest}})


HOSTILE: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "format": (lambda c: c.update(format=2), "its format is 2; this version of susd reads format 1"),
    "list": (lambda c: [c], "its format is None"),
    "name up": (lambda c: c.update(name=".."), "its name is '..'; letters, digits and"),
    "name path": (lambda c: c.update(name="a/b"), "its name is 'a/b'"),
    "name absolute": (lambda c: c.update(name="/etc/x"), "its name is '/etc/x'"),
    "name escape": (lambda c: c.update(name="\x1b[2J"), r"its name is '\x1b[2J'"),
    "name number": (lambda c: c.update(name=3), "its name is 3"),
    "no name": (lambda c: c.pop("name") and None, "its name is None"),
    "files list": (lambda c: c.update(files=[]), "'about' and 'files' must be JSON objects"),
    "about text": (lambda c: c.update(about="x"), "'about' and 'files' must be JSON objects"),
    "traversal": (add_file("../evil.json"), "it lists the file '../evil.json', which skills do not have"),
    "traversal below": (add_file("evaluation/../../evil.json"), "'evaluation/../../evil.json', which skills do not"),
    "absolute": (add_file("/tmp/evil.json"), "it lists the file '/tmp/evil.json'"),
    "backslash": (add_file("evaluation\\x.json"), "it lists the file"),
    "newline": (add_file("config.json\n"), r"it lists the file 'config.json\n'"),
    "code": (add_file("evil.py"), "it lists the file 'evil.py'"),
    "hidden": (add_file("evaluation/.x.json"), "it lists the file 'evaluation/.x.json'"),
    "long name": (add_file("x" * 500), "it lists the file 'xxxxxxxx"),
    "size text": (add_file("evaluation/x.json", "2"), "the size of evaluation/x.json is '2'; it must be a number of bytes"),
    "size bool": (add_file("evaluation/x.json", True), "the size of evaluation/x.json is True"),
    "size below zero": (add_file("evaluation/x.json", -1), "the size of evaluation/x.json is -1"),
    "huge": (add_file("evaluation/x.json", 1 << 40), "bytes; at most 268435456 are allowed"),
    "checksum": (add_file("evaluation/x.json", 2, "00"), "the checksum of evaluation/x.json is '00'; it must be 64"),
    "entry": (lambda c: c["files"].update({"README.md": 3}), "the entry of README.md must have 'size' and 'sha256'"),
    "many": (lambda c: c["files"].update({str(i): {} for i in range(99)}), "files; at most 64 are allowed"),
    "no config": (lambda c: c["files"].pop("config.json") and None, "it lists no config.json"),
    "no weights": (lambda c: c["files"].pop("checkpoints/step-00000003.ckpt") and None, "it lists no checkpoint"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_manifest_is_refused(skills: Path, capsys: pytest.CaptureFixture[str], case: str) -> None:
    change, reason = HOSTILE[case]
    rewrite(skills, change)
    sentence = refused(capsys, "pull", skills)
    assert sentence.startswith(f"the manifest of {skills} cannot be used: ")
    assert reason in sentence
    assert len(sentence) < 400
    assert left() == []
    assert not (skills.parent / "evil.json").exists()


@pytest.mark.parametrize("content", ["", "{", "[" * 100_000, "\x00", '{"format": 1e999999}', '{"a": ' + "9" * 5000 + "}"])
def test_manifest_that_is_no_json(skills: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    (skills / "manifest.json").write_text(content)
    assert f"the manifest of {skills} cannot be used" in refused(capsys, "pull", skills)
    assert left() == []


def test_manifest_that_is_too_long(skills: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (skills / "manifest.json").write_text(" " * (manifests.MAX_MANIFEST + 1))
    assert "it has more than 262144 bytes" in refused(capsys, "pull", skills)


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


CHANGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "bit": (damage, "has another checksum than in the manifest: it was changed or damaged"),
    "longer": (lambda path: path.write_bytes(path.read_bytes() + b"x"), "has more than the"),
    "shorter": (lambda path: path.write_bytes(path.read_bytes()[:-1]), "has fewer than the"),
    "missing": (lambda path: path.unlink(), "has no file checkpoints/step-00000003.ckpt"),
    "folder": (lambda path: (path.unlink(), path.mkdir()), "has no file checkpoints/step-00000003.ckpt"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_changed_file_is_refused(skills: Path, capsys: pytest.CaptureFixture[str], case: str) -> None:
    change, reason = CHANGES[case]
    change(skills / "checkpoints" / "step-00000003.ckpt")
    assert reason in refused(capsys, "pull", skills)
    assert left() == []


def test_changed_file_over_http(skills: Path, server: str, capsys: pytest.CaptureFixture[str]) -> None:
    damage(skills / "config.json")
    assert f"config.json of {server}/tiny has another checksum" in refused(capsys, "pull", f"{server}/tiny")
    assert left() == []


def test_config_that_is_no_object(skills: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content, reason in (("[]", "must be a JSON object"), ("{", "is not valid JSON")):
        (skills / "config.json").write_text(content)
        rewrite(skills, lambda c, text=content: c["files"].update({"config.json": vars(manifests.File.of(text.encode()))}))
        assert f"config.json of {skills} {reason}" in refused(capsys, "pull", skills)
        assert left() == []


def test_pulling_imports_no_jax(skills: Path) -> None:
    code = f"import sys, susd; susd.pull({str(skills)!r}); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
