"""The manifest of a skill folder: every file with its size and checksum. It comes from others and is checked first."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from susd.errors import UserError
from susd.runs.atomic import write_json
from susd.runs.find import PLAIN_NAME
from susd.runs.untrusted import parse_json

MANIFEST = "manifest.json"
FORMAT = 1
MAX_MANIFEST, MAX_BYTES, MAX_FILES = 1 << 18, 1 << 28, 64  # bytes of the manifest, bytes of all files, files
REQUIRED = ("config.json", "meta.json")
FILE = re.compile(
    r"config\.json|meta\.json|metrics\.jsonl|actions\.json|README\.md"
    r"|evaluation/[A-Za-z0-9][A-Za-z0-9._-]{0,63}\.json|checkpoints/step-[0-9]{8}\.ckpt"
)
SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class File:
    """What a file must be."""

    size: int  # in bytes
    sha256: str

    @classmethod
    def of(cls, content: bytes) -> File:
        """The size and checksum of some content."""
        return cls(len(content), hashlib.sha256(content).hexdigest())


@dataclass(frozen=True)
class Manifest:
    """The name of some skills, what they are in short, and their files."""

    name: str
    about: dict[str, Any]
    files: Mapping[str, File]

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files.values())

    def write(self, folder: Path) -> None:
        """Write it to its file."""
        files = {path: vars(file) for path, file in self.files.items()}
        write_json(folder / MANIFEST, {"format": FORMAT, "name": self.name, "about": self.about, "files": files})


def describe(folder: Path, name: str, about: dict[str, Any]) -> Manifest:
    """The manifest of the files in a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    return Manifest(name, about, {path.relative_to(folder).as_posix(): File.of(path.read_bytes()) for path in paths})


def read_manifest(folder: Path) -> Manifest:
    """The manifest in a folder."""
    try:
        return parse(read_at_most(folder / MANIFEST, MAX_MANIFEST), str(folder))
    except FileNotFoundError as error:
        raise UserError(f"{folder} is not a skill folder: it has no {MANIFEST}") from error


def read_at_most(path: Path, limit: int) -> bytes:
    """The beginning of a regular file: all of it, or one byte more than the limit."""
    if not path.is_file():
        raise FileNotFoundError(path)
    with open(path, "rb") as file:
        return file.read(limit + 1)


def parse(content: bytes, source: str) -> Manifest:
    """A manifest from its bytes; whatever is not as it must be is a UserError."""

    def refuse(reason: str) -> UserError:
        return UserError(f"the manifest of {source} cannot be used: {reason}")

    if len(content) > MAX_MANIFEST:
        raise refuse(f"it has more than {MAX_MANIFEST} bytes")
    try:
        found = parse_json(content, "it")
    except UserError as error:
        raise refuse("it is not valid JSON") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        given = found.get("format") if isinstance(found, dict) else None
        raise refuse(f"its format is {_short(given)}; this version of susd reads format {FORMAT}")
    name, about, files = found.get("name"), found.get("about"), found.get("files")
    if not isinstance(name, str) or not PLAIN_NAME.fullmatch(name):
        raise refuse(f"its name is {_short(name)}; letters, digits and ._+- are allowed")
    if not isinstance(about, dict) or not isinstance(files, dict):
        raise refuse("'about' and 'files' must be JSON objects")
    if reason := _wrong_files(files):
        raise refuse(reason)
    return Manifest(name, about, {path: File(**entry) for path, entry in files.items()})


def _wrong_files(files: dict[str, Any]) -> str:
    """What is wrong with the list of files, or ""."""
    if len(files) > MAX_FILES:
        return f"it lists {len(files)} files; at most {MAX_FILES} are allowed"
    for path, entry in files.items():
        if not FILE.fullmatch(path):
            return f"it lists the file {_short(path)}, which skills do not have"
        if not isinstance(entry, dict) or set(entry) != {"size", "sha256"}:
            return f"the entry of {path} must have 'size' and 'sha256'"
        if type(entry["size"]) is not int or entry["size"] < 0:
            return f"the size of {path} is {_short(entry['size'])}; it must be a number of bytes"
        if not isinstance(entry["sha256"], str) or not SHA256.fullmatch(entry["sha256"]):
            return f"the checksum of {path} is {_short(entry['sha256'])}; it must be 64 hexadecimal digits"
    if (total := sum(entry["size"] for entry in files.values())) > MAX_BYTES:
        return f"its files have {total} bytes; at most {MAX_BYTES} are allowed"
    missing = [name for name in REQUIRED if name not in files]
    if missing or not any(path.startswith("checkpoints/") for path in files):
        return f"it lists no {' and no '.join(missing or ['checkpoint'])}"
    return ""


def _short(value: Any) -> str:
    """A value of somebody else for a sentence: one short line without control characters."""
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
