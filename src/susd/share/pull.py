"""`susd pull URL_OR_FOLDER`: fetch skills that somebody shares. They are data: nothing of them is run."""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

from susd.errors import UserError, shown
from susd.paths import user_path
from susd.runs.atomic import new_folder
from susd.runs.find import RUNS
from susd.runs.untrusted import read_json
from susd.share.manifest import MANIFEST, MAX_MANIFEST, REQUIRED, File, parse, read_at_most

SECONDS = 30.0  # without any data
Fetch = Callable[[str, int], bytes]  # (path of a file, limit) -> its bytes, at most one more than the limit


def pull(source: str | Path, out: str | Path | None = None) -> Path:
    """Fetch a skill folder from an address or another folder to runs/NAME, or to `out`; returns the new folder.

    Every file is compared with its size and checksum in the manifest. The folder appears complete or not at all.
    """
    text = str(source)
    fetch = _from_web(text) if "://" in text else _from_folder(user_path("the folder", text))
    content = fetch(MANIFEST, MAX_MANIFEST)
    manifest = parse(content, text)
    target = user_path("--out", out) if out is not None else RUNS / manifest.name
    with new_folder(target) as temporary:
        (temporary / MANIFEST).write_bytes(content)
        for path, expected in manifest.files.items():
            file = temporary / path
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(_checked(fetch(path, expected.size), expected, f"{path} of {text}"))
        for name in REQUIRED:
            _check_object(temporary / name, f"{name} of {text}")
    return target


def _checked(content: bytes, expected: File, name: str) -> bytes:
    found = File.of(content)
    if found.size != expected.size:
        how = "more" if found.size > expected.size else "fewer"
        raise UserError(f"{name} has {how} than the {expected.size} bytes of its manifest")
    if found != expected:
        raise UserError(f"{name} has another checksum than in the manifest: it was changed or damaged")
    return content


def _check_object(path: Path, name: str) -> None:
    try:
        found = read_json(path)
    except UserError as error:
        raise UserError(f"{name} is not valid JSON") from error
    if not isinstance(found, dict):
        raise UserError(f"{name} must be a JSON object")


def _from_folder(folder: Path) -> Fetch:
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}; name a skill folder, or an address that starts with https://")

    def fetch(path: str, limit: int) -> bytes:
        try:
            return read_at_most(folder / path, limit)
        except FileNotFoundError as error:
            raise UserError(f"{folder} has no file {path}; `susd push` writes folders that can be pulled") from error
        except OSError as error:
            raise UserError(f"cannot read {folder / path}: {error.strerror}") from error

    return fetch


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never from https to something else."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if req.type == "https" and not newurl.startswith("https:"):
            raise UserError(f"{req.full_url} redirects to an address without encryption")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _from_web(address: str) -> Fetch:
    try:
        parts = urllib.parse.urlsplit(address)
    except ValueError as error:
        raise UserError(f"{shown(address)} is not an address: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(
            f"{shown(address)} cannot be fetched; name a folder, or an address that starts with https:// or http://"
        )
    base = parts.path.removesuffix(MANIFEST).rstrip("/")
    opener = urllib.request.OpenerDirector()  # no other protocols than these
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
        _Redirects(),
    ):
        opener.add_handler(handler)

    def fetch(path: str, limit: int) -> bytes:
        url = urllib.parse.urlunsplit(parts._replace(path=f"{base}/{path}", fragment=""))
        try:
            with opener.open(url, timeout=SECONDS) as response:
                content: bytes = response.read(limit + 1)
                return content
        except urllib.error.HTTPError as error:
            error.close()
            raise UserError(f"cannot fetch {url}: the server answers {error.code}") from error
        except (OSError, HTTPException, ValueError) as error:
            if isinstance(error, UserError):
                raise
            reason = getattr(error, "reason", error)
            raise UserError(f"cannot fetch {url}: {' '.join(str(reason).split()) or type(error).__name__}") from error

    return fetch
