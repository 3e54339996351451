"""The header of a checkpoint, read and checked without JAX: what was saved, when, and with which config.

A valid checksum says that the bytes are those that were written, not who wrote them: every entry is checked for its type
and size before it is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import struct
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any

from susd.errors import UserError
from susd.runs import untrusted
from susd.runs.untrusted import check_object

MAGIC = b"SUSDCKPT"
VERSION = 2
OLD_VERSIONS = (1,)  # whose headers have no checksum of their own
CHECKSUM_BYTES = 32
ALIGN = 64  # of the leaves
PREFIX = struct.Struct("<8sIQQ")
MAX_HEADER = 2**25
TRAINING: untrusted.Kinds = {
    "epoch": int,
    "train_seconds": (float, int),
    "compile_seconds": (float, int),
}
KEYS = {"key<fry>": ("threefry2x32", 2), "key<rbg>": ("rbg", 4), "key<urbg>": ("unsafe_rbg", 4)}  # PRNG keys
BYTES = {
    **dict.fromkeys(("bool", "int2", "int4", "int8", "uint2", "uint4", "uint8"), 1),
    **dict.fromkeys(("float8_e3m4", "float8_e4m3", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"), 1),
    **dict.fromkeys(("float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz", "float4_e2m1fn"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32", *KEYS), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}
_LEAF = {"path": str, "dtype": str, "shape": list, "offset": int, "checksum": str}
_HEADER = {"epoch": int, "config": str, "meta": dict, "leaves": list}


class CheckpointError(UserError):
    """A checkpoint cannot be written, read or used here; the message names the file and the reason."""


class DamagedCheckpointError(CheckpointError):
    """The file does not hold what was saved; an older checkpoint may still be good."""


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, newest first."""
    found = [path for path in Path(folder).glob("step-*.ckpt") if re.fullmatch(r"step-\d{1,18}\.ckpt", path.name)]
    return sorted(found, key=epoch_of, reverse=True)


def epoch_of(path: Path) -> int:
    """The epoch in a checkpoint's file name."""
    return int(path.stem.removeprefix("step-"))


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BufferedReader]:
    """A checkpoint file; what makes it unreadable is a CheckpointError."""
    try:
        with untrusted.opened(path, 2**63) as file:
            yield file
    except CheckpointError:
        raise
    except UserError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise CheckpointError(f"there is no checkpoint {path}") from error
        reason = str(error).removeprefix(f"cannot read {path}: ")
        raise DamagedCheckpointError(f"checkpoint {path} cannot be read: {reason}") from error


def start_of_leaves(header_length: int) -> int:
    """Where the leaves' bytes begin."""
    return PREFIX.size + header_length + CHECKSUM_BYTES


def inspect(path: Path) -> dict[str, Any]:
    """A checkpoint's header: version, epoch, config, meta, leaves and file size; cheap, as no leaf is read."""
    with opened(path) as file:
        header = read_header(file, path)
    return {"bytes": header.pop("length"), **{name: value for name, value in header.items() if name != "start"}}


def weights_only(path: Path) -> bool:
    """Whether a checkpoint was saved without what training needs; a damaged one counts as a whole one."""
    try:
        return bool(inspect(path)["meta"].get("weights_only"))
    except DamagedCheckpointError:
        return False


def read_header(file: BufferedReader, path: Path) -> dict[str, Any]:
    """The verified header, with the `version`, the `length` of the file and the `start` of the leaves' bytes added."""
    size = os.fstat(file.fileno()).st_size
    prefix = file.read(PREFIX.size)
    if prefix[: len(MAGIC)] != MAGIC[: len(prefix)]:
        raise DamagedCheckpointError(f"{path} is not a susd checkpoint, or its beginning is damaged")
    if len(prefix) < PREFIX.size:
        raise DamagedCheckpointError(f"checkpoint {path} is incomplete: it has only {size} bytes")
    _, version, header_length, length = PREFIX.unpack(prefix)
    if size < length:
        raise DamagedCheckpointError(f"checkpoint {path} is incomplete: it has {size} of {length} bytes")
    start = start_of_leaves(header_length)
    if size > length or start > length:
        raise DamagedCheckpointError(f"checkpoint {path} is damaged: it has {size} bytes instead of {length}")
    if header_length > MAX_HEADER:
        raise DamagedCheckpointError(f"checkpoint {path} is damaged: its header has {header_length} bytes")
    header, stored = file.read(header_length), file.read(CHECKSUM_BYTES)
    intact = hashlib.blake2b(prefix + header, digest_size=CHECKSUM_BYTES).digest() == stored
    if not intact and version not in OLD_VERSIONS:
        raise DamagedCheckpointError(f"checkpoint {path} is damaged: the checksum of its header does not match")
    if version != VERSION:
        raise CheckpointError(
            f"checkpoint {path} has format {version}; this version of susd reads format {VERSION}: train the run again"
        )
    return _checked(header, path, length - start) | {"version": version, "length": length, "start": start}


def training_meta(header: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The meta data that every checkpoint of a run has: the epoch and the seconds."""
    with _damaged(path):
        check_object(meta := header["meta"], "its meta data", TRAINING)
        if not 0 <= meta["epoch"] == header["epoch"] == epoch_of(path):
            raise UserError(f"its epoch is {meta['epoch']} in its meta data and {header['epoch']} in its header")
        return dict(meta)


def _checked(content: bytes, path: Path, size: int) -> dict[str, Any]:
    """The header as JSON, with the types and sizes that a header has; `size` is that of all leaves in the file."""
    with _damaged(path):
        header = untrusted.parse_json(content, "its header")
        check_object(header, "its header", _HEADER)
        end, memory, names = 0, 0, set()
        for leaf in header["leaves"]:
            stored, full = _leaf_bytes(leaf)
            if leaf["path"] in names:
                raise UserError(f"leaf {leaf['path']} is there twice")
            if not end <= leaf["offset"] < end + ALIGN or leaf["offset"] + stored > size:
                raise UserError(f"leaf {leaf['path']} is not where it must be in the file")
            names.add(leaf["path"])
            end, memory = leaf["offset"] + stored, memory + full
        if end != size or header["epoch"] < 0:
            raise UserError(f"its leaves have {end} of {size} bytes, its epoch is {header['epoch']}")
        if memory > (machine := _machine_memory()):
            raise UserError(
                f"its leaves need {memory / 2**30:.3g} GiB of memory; this machine has {machine / 2**30:.3g} GiB"
            )
        return dict(header)


def _leaf_bytes(leaf: Any) -> tuple[int, int]:
    """The bytes of a leaf in the file and in memory; refuses what no leaf can be."""
    check_object(leaf, "a leaf", _LEAF)
    name, dtype, shape, rows, impl = (leaf.get(entry) for entry in ("path", "dtype", "shape", "rows", "impl"))
    if set(leaf) != {*_LEAF, "rows", "impl"} or not name.isprintable() or len(name) > 1000:
        raise UserError(f"a leaf has the path {untrusted.describe(name)} and the entries {', '.join(sorted(leaf))[:200]}")
    width = BYTES.get(dtype, 0)
    if not width:
        raise UserError(f"leaf {name} has the dtype {untrusted.describe(dtype)}")
    if len(shape) > 32 or not all(type(axis) is int and 0 <= axis < 2**48 for axis in shape):
        raise UserError(f"leaf {name} has the shape {untrusted.describe(shape)}")
    wanted, words = KEYS.get(dtype, (None, 0))
    if impl != wanted or (wanted and shape[-1:] != [words]):
        raise UserError(f"leaf {name} is {dtype}{shape} of {untrusted.describe(impl)}")
    full = width * math.prod(shape)
    if rows is None:
        return full, full
    pair = isinstance(rows, list) and len(rows) == 2 and all(type(entry) is int for entry in rows)
    if not pair or not 0 <= rows[0] < len(shape) or not 0 <= rows[1] <= shape[rows[0]]:
        raise UserError(f"leaf {name} stores the rows {untrusted.describe(rows)} of {dtype}{shape}")
    return width * math.prod([*shape[: rows[0]], rows[1], *shape[rows[0] + 1 :]]), full


@contextlib.contextmanager
def _damaged(path: Path) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        raise DamagedCheckpointError(f"checkpoint {path} is not one of susd: {error}") from None


def _machine_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 2**40
