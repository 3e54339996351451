"""Checkpoints: a pytree of arrays and some JSON in one checksummed file, which is written completely or not at all.

Layout (little-endian): magic, format version, header length, file length; the header as JSON (epoch, config hash, meta and,
for each leaf, its path, dtype, shape, offset and checksum); a blake2b checksum of all of that; the leaves' bytes, each
aligned. Since every leaf has its own checksum, a part of the leaves can be read and verified without the others.
"""

import contextlib
import errno
import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from io import BufferedReader
from pathlib import Path
from typing import Any

import jax
import numpy as np

from susd.errors import UserError
from susd.runs.atomic import replace_file
from susd.runs.header import (
    ALIGN,
    CHECKSUM_BYTES,
    MAGIC,
    PREFIX,
    VERSION,
    CheckpointError,
    DamagedCheckpointError,
    checkpoints,
    epoch_of,
    inspect,
    opened,
    read_header,
    start_of_leaves,
    training_meta,
)
from susd.runs.leaves import Leaf, checksum, chunks, describe, flatten, host_array, to_jax

__all__ = [
    "CheckpointError",
    "DamagedCheckpointError",
    "checkpoints",
    "copy_leaves",
    "digest",
    "digest_of",
    "epoch_of",
    "inspect",
    "restore",
    "restore_latest",
    "save",
]


def save(
    folder: Path,
    epoch: int,
    state: Any,
    meta: dict[str, Any],
    keep: int = 2,
    *,
    config: str = "",
    rows: Mapping[str, tuple[int, int]] | None = None,
) -> Path:
    """Write `state` as the checkpoint of `epoch`, then delete all but the last `keep`.

    `config` is the hash that `restore` compares. `rows` maps a part of a leaf's path to (axis, n): where everything beyond
    the first n rows along that axis is zero, as in a replay buffer that is not full yet, only those n rows are written.
    Checkpoints of later epochs are deleted, too: the run was resumed from before they were made.
    """
    if keep < 1:
        raise ValueError(f"keep must be at least 1, got {keep}")
    arrays = dict(flatten(state))
    leaves = _plan(arrays, rows or {})
    target = Path(folder) / f"step-{epoch:08d}.ckpt"
    for leftover in target.parent.glob(".step-*.tmp"):  # of a process that was killed
        with contextlib.suppress(OSError):
            leftover.unlink()
    _write(target, {"epoch": epoch, "config": config, "meta": meta}, leaves, arrays)
    _delete_old(target, epoch, keep)
    return target


def copy_leaves(source: Path, target: Path, only: tuple[str, ...], meta: Mapping[str, Any]) -> None:
    """Write the leaves of a checkpoint whose path begins with one of `only` to another file, with more meta data."""
    with opened(source) as file:
        header = read_header(file, source)
        leaves, end = [], 0
        for leaf in _table(header):
            if leaf.path.startswith(only):
                leaves.append(replace(leaf, offset=-(-end // ALIGN) * ALIGN))
                end = leaves[-1].end
        kept = {leaf.path for leaf in leaves}
        arrays = {leaf.path: _read(file, source, leaf, header["start"]) for leaf in _table(header) if leaf.path in kept}
    head = {"epoch": header["epoch"], "config": header["config"], "meta": {**header["meta"], **meta}}
    _write(target, head, leaves, arrays)


def _write(target: Path, head: Mapping[str, Any], leaves: list[Leaf], arrays: Mapping[str, Any]) -> None:
    header = json.dumps({**head, "leaves": [asdict(leaf) for leaf in leaves]}).encode()
    length = start_of_leaves(len(header)) + (leaves[-1].end if leaves else 0)
    try:
        with (
            replace_file(target, lambda error: _reason(error, target.parent, length)) as temporary,
            open(temporary, "wb") as file,
        ):
            for chunk in _content(header, length, leaves, arrays):
                file.write(chunk)
    except UserError as error:
        raise CheckpointError(str(error)) from error.__cause__


def restore(
    path: Path, like: Any, expected: str | None = None, only: tuple[str, ...] = ("",), of_run: bool = False
) -> tuple[Any, dict[str, Any]]:
    """Read (state, meta) back as JAX arrays on the default device, bit for bit.

    `like` is a pytree of the same structure, of arrays or of the `jax.ShapeDtypeStruct`s that `jax.eval_shape` returns;
    `expected` is the config hash it must have been saved with; `of_run` says that it has the meta data of a run. Only the
    leaves whose path begins with one of `only` are read and verified; the others stay as they are in `like`, and the file
    may lack them. 64-bit leaves stay numpy arrays unless JAX has x64 enabled.
    """
    flat = dict(flatten(like))
    with opened(path) as file:
        header = read_header(file, path)
        meta, made_by = training_meta(header, path) if of_run else header["meta"], header["config"]
        if expected is not None and made_by != expected:
            raise CheckpointError(
                f"checkpoint {path} was made by another config: its hash is {made_by!r}, not {expected!r}"
            )
        leaves = {leaf.path: leaf for leaf in _table(header)}
        wanted = [name for name in flat if name.startswith(only)]
        _compare(path, leaves, {name: describe(name, flat[name]) for name in flat if name in leaves or name in wanted})
        if len(wanted) == len(flat):
            _check_gaps(file, path, leaves.values(), header["start"])
        for name in wanted:
            flat[name] = to_jax(leaves[name], _read(file, path, leaves[name], header["start"]))
    return jax.tree.unflatten(jax.tree.structure(like), flat.values()), meta


def restore_latest(
    folder: Path,
    like: Any,
    expected: str | None = None,
    on_skip: Callable[[str], None] = lambda _: None,
    only: tuple[str, ...] = ("",),
    of_run: bool = False,
) -> tuple[Any, dict[str, Any], Path]:
    """Restore the newest undamaged checkpoint as (state, meta, path); `on_skip` receives the error of each damaged one."""
    paths = checkpoints(folder)
    if not paths:
        raise CheckpointError(f"no checkpoint in {folder}")
    reasons = []
    for path in paths:
        try:
            return *restore(path, like, expected, only, of_run), path
        except DamagedCheckpointError as error:  # a mismatch with `like` is no damage: older ones would not fit, either
            reasons.append(str(error))
            on_skip(str(error))
    raise CheckpointError(f"no usable checkpoint in {folder}, all {len(paths)} are damaged: {'; '.join(reasons)}")


def digest(state: Any) -> str:
    """A checksum of the whole content of a pytree of arrays: paths, dtypes, shapes and bytes."""
    return _digest((describe(path, array), host_array(array)) for path, array in flatten(state))


def digest_of(path: Path) -> str:
    """The `digest` of the state in a checkpoint file, without knowing its structure."""
    with opened(path) as file:
        header = read_header(file, path)
        leaves = _table(header)
        _check_gaps(file, path, leaves, header["start"])
        return _digest((leaf, _read(file, path, leaf, header["start"])) for leaf in leaves)


def _digest(content: Iterator[tuple[Leaf, np.ndarray]]) -> str:
    total = hashlib.blake2b(digest_size=16)
    for leaf, array in content:
        total.update(json.dumps([leaf.path, leaf.dtype, leaf.shape, leaf.impl]).encode() + b"\n")
        for chunk in chunks(array):
            total.update(chunk)
    return total.hexdigest()


def _filled(leaf: Leaf, array: np.ndarray, rows: Mapping[str, tuple[int, int]]) -> tuple[int, int] | None:
    """How much of a leaf has to be stored. The bytes are checked, so that a wrong `rows` costs space but never data."""
    for part, (axis, count) in rows.items():
        if part in leaf.path and len(leaf.shape) > axis and 0 <= count < leaf.shape[axis]:
            rest = array[(slice(None),) * axis + (slice(count, None),)]
            return (axis, count) if not any(np.asarray(chunk).max() for chunk in chunks(rest)) else None
    return None


def _plan(arrays: Mapping[str, Any], rows: Mapping[str, tuple[int, int]]) -> list[Leaf]:
    leaves, end = [], 0
    for path, array in arrays.items():
        leaf, host = describe(path, array), host_array(array)
        leaf = replace(leaf, rows=_filled(leaf, host, rows), offset=-(-end // ALIGN) * ALIGN)
        leaves.append(replace(leaf, checksum=checksum(leaf.stored(host))))
        end = leaf.end
    return leaves


def _content(header: bytes, length: int, leaves: list[Leaf], arrays: Mapping[str, Any]) -> Iterator[bytes | memoryview]:
    head = PREFIX.pack(MAGIC, VERSION, len(header), length) + header
    yield head
    yield hashlib.blake2b(head, digest_size=CHECKSUM_BYTES).digest()
    end = 0
    for leaf in leaves:
        yield bytes(leaf.offset - end)
        yield from chunks(leaf.stored(host_array(arrays[leaf.path])))
        end = leaf.end


def _check_gaps(file: BufferedReader, path: Path, leaves: Iterable[Leaf], start: int) -> None:
    """The bytes between the leaves, which no checksum covers, must be zero."""
    end = 0
    for leaf in leaves:
        file.seek(start + end)
        if any(file.read(leaf.offset - end)):
            raise DamagedCheckpointError(f"checkpoint {path} is damaged: the bytes before leaf {leaf.path} are not zero")
        end = leaf.end


def _table(header: dict[str, Any]) -> list[Leaf]:
    return [
        Leaf(**row | {"shape": tuple(row["shape"]), "rows": row["rows"] and tuple(row["rows"])}) for row in header["leaves"]
    ]


def _compare(path: Path, found: Mapping[str, Leaf], wanted: Mapping[str, Leaf]) -> None:
    wrong = [f"it lacks leaf {name}" for name in wanted if name not in found]
    wrong += [f"it has leaf {name}, which is not expected" for name in found if name not in wanted]
    for name, leaf in found.items():
        other = wanted.get(name, leaf)
        if (leaf.dtype, leaf.shape) != (other.dtype, other.shape):
            wrong.append(f"leaf {name} is {leaf}, expected {other}")
    if wrong:
        more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise CheckpointError(f"checkpoint {path} was made by another config or environment: {'; '.join(wrong[:3])}{more}")


def _read(file: BufferedReader, path: Path, leaf: Leaf, start: int) -> np.ndarray:
    array = np.zeros(leaf.shape, leaf.raw_dtype)
    file.seek(start + leaf.offset)
    for chunk in chunks(leaf.stored(array)):
        if file.readinto(chunk) != chunk.nbytes:
            raise OSError(errno.EIO, "the file became shorter while it was read")
    if checksum(leaf.stored(array)) != leaf.checksum:
        raise DamagedCheckpointError(f"checkpoint {path} is damaged: the checksum of leaf {leaf.path} does not match")
    return array


def _delete_old(newest: Path, epoch: int, keep: int) -> None:
    kept = 0
    for path in checkpoints(newest.parent):
        if epoch_of(path) > epoch or kept >= keep:
            with contextlib.suppress(OSError):
                path.unlink()
            continue
        with contextlib.suppress(CheckpointError):  # an incomplete one does not count as kept
            inspect(path)
            kept += 1


def _reason(error: OSError, folder: Path, needed: int) -> str:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return error.strerror or str(error)
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(folder).free
        return f"the disk is full ({needed / 1e6:.1f} MB needed, {free / 1e6:.1f} MB free)"
    return "the disk is full"
