"""Checkpoints: a pytree of arrays and a little JSON in one checksummed file, written whole or not at all.

Layout (little-endian): magic, format version, header length, file length; the header as JSON (epoch, config hash, meta and,
for each leaf, its path, dtype, shape and offset); the leaves' bytes, each aligned; a blake2b checksum of all of it.
"""

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from io import BufferedReader
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from susd.errors import UserError

MAGIC = b"SUSDCKPT"
VERSION = 1
_PREFIX = struct.Struct("<8sIQQ")
_CHECKSUM_BYTES = 32
_CHUNK = 1 << 24
_ALIGN = 64


class CheckpointError(UserError):
    """A checkpoint cannot be written, read or used here; the message names the file and the reason."""


class DamagedCheckpointError(CheckpointError):
    """The file is not, or no longer, the bytes that were saved; an older checkpoint may still be good."""


@dataclass(frozen=True)
class Leaf:
    """One array of a checkpoint. `shape` is that of the raw data, which for PRNG keys is the key data."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    impl: str | None = None  # of a PRNG key array
    rows: tuple[int, int] | None = None  # (axis, n): only the first n rows along axis are stored, the others are zero
    offset: int = 0  # from the end of the header

    @property
    def raw_dtype(self) -> np.dtype:
        """The dtype of the stored bytes."""
        return np.dtype(np.uint32) if self.dtype.startswith("key<") else jnp.dtype(self.dtype)

    @property
    def end(self) -> int:
        """Where the stored bytes end, from the end of the header."""
        shape = list(self.shape)
        if self.rows is not None:
            shape[self.rows[0]] = self.rows[1]
        return self.offset + self.raw_dtype.itemsize * math.prod(shape)

    def stored(self, array: np.ndarray) -> np.ndarray:
        """The part of a full array that is stored, as a view."""
        return array if self.rows is None else array[(slice(None),) * self.rows[0] + (slice(self.rows[1]),)]

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


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
    Checkpoints of later epochs are deleted too: the run went back to before they were made.
    """
    if keep < 1:
        raise ValueError(f"keep must be at least 1, got {keep}")
    arrays = dict(_flatten(state))
    leaves = _plan(arrays, rows or {})
    table = [asdict(leaf) for leaf in leaves]
    header = json.dumps({"epoch": epoch, "config": config, "meta": meta, "leaves": table}).encode()
    length = _PREFIX.size + len(header) + (leaves[-1].end if leaves else 0) + _CHECKSUM_BYTES

    folder = Path(folder)
    target = folder / f"step-{epoch:08d}.ckpt"
    temporary = folder / f".{target.name}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(".step-*.ckpt.tmp"):
            leftover.unlink()
        with open(temporary, "wb") as file:
            checksum = hashlib.blake2b(digest_size=_CHECKSUM_BYTES)
            for chunk in _content(header, length, leaves, arrays):
                file.write(chunk)
                checksum.update(chunk)
            file.write(checksum.digest())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        _sync_folder(folder)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise CheckpointError(f"cannot write checkpoint {target}: {_reason(error, folder, length)}") from error
        raise
    _delete_old(target, epoch, keep)
    return target


def restore(path: Path, like: Any, expected: str | None = None) -> tuple[Any, dict[str, Any]]:
    """Read (state, meta) back as JAX arrays on the default device, bit for bit.

    `like` is a pytree of the same structure, of arrays or of the `jax.ShapeDtypeStruct`s that `jax.eval_shape` returns;
    `expected` is the config hash it must have been saved with. 64-bit leaves stay numpy arrays unless JAX has x64 enabled.
    """
    wanted = {name: _describe(name, leaf) for name, leaf in _flatten(like)}
    with _opened(path) as file:
        header = _header(file, path, verify=True)
        made_by = header["config"]
        if expected is not None and made_by != expected:
            raise CheckpointError(
                f"checkpoint {path} was made by another config: its hash is {made_by!r}, not {expected!r}"
            )
        found = {leaf.path: leaf for leaf in _table(header)}
        _compare(path, found, wanted)
        arrays = [_to_jax(found[name], _read(file, found[name], header["start"])) for name in wanted]
    return jax.tree.unflatten(jax.tree.structure(like), arrays), header["meta"]


def restore_latest(
    folder: Path, like: Any, expected: str | None = None, on_skip: Callable[[str], None] = lambda _: None
) -> tuple[Any, dict[str, Any], Path]:
    """Restore the newest undamaged checkpoint as (state, meta, path); `on_skip` is told of each damaged one passed over."""
    paths = checkpoints(folder)
    if not paths:
        raise CheckpointError(f"no checkpoint in {folder}")
    reasons = []
    for path in paths:
        try:
            return *restore(path, like, expected), path
        except DamagedCheckpointError as error:  # a mismatch with `like` is no damage: older ones would not fit either
            reasons.append(str(error))
            on_skip(str(error))
    raise CheckpointError(f"no usable checkpoint in {folder}, all {len(paths)} are damaged: {'; '.join(reasons)}")


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, newest first."""
    found = [path for path in Path(folder).glob("step-*.ckpt") if re.fullmatch(r"step-\d+\.ckpt", path.name)]
    return sorted(found, key=epoch_of, reverse=True)


def epoch_of(path: Path) -> int:
    """The epoch in a checkpoint's file name."""
    return int(path.stem.removeprefix("step-"))


def inspect(path: Path) -> dict[str, Any]:
    """A checkpoint's header: version, epoch, config, meta, leaves and file size; cheap, as the checksum is not checked."""
    with _opened(path) as file:
        header = _header(file, path, verify=False)
    return {"bytes": header.pop("length"), **{name: value for name, value in header.items() if name != "start"}}


def digest(state: Any) -> str:
    """A checksum of the whole content of a pytree of arrays: paths, dtypes, shapes and bytes."""
    return _digest((_describe(path, array), _host(array)) for path, array in _flatten(state))


def digest_of(path: Path) -> str:
    """The `digest` of the state in a checkpoint file, without knowing its structure."""
    with _opened(path) as file:
        header = _header(file, path, verify=True)
        return _digest((leaf, _read(file, leaf, header["start"])) for leaf in _table(header))


def _digest(content: Iterator[tuple[Leaf, np.ndarray]]) -> str:
    total = hashlib.blake2b(digest_size=16)
    for leaf, array in content:
        total.update(json.dumps([leaf.path, leaf.dtype, leaf.shape, leaf.impl]).encode() + b"\n")
        for chunk in _chunks(array):
            total.update(chunk)
    return total.hexdigest()


def _flatten(tree: Any) -> Iterator[tuple[str, Any]]:
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        yield jax.tree_util.keystr(path), leaf


def _describe(path: str, leaf: Any) -> Leaf:
    dtype = getattr(leaf, "dtype", None)
    if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key):
        impl = str(jax.random.key_impl(leaf)) if isinstance(leaf, jax.Array) else None
        return Leaf(path, str(dtype), jax.eval_shape(jax.random.key_data, leaf).shape, impl)
    if dtype is None or not (jnp.issubdtype(dtype, np.number) or jnp.issubdtype(dtype, np.bool_)):
        raise TypeError(f"leaf {path or 'at the root'} of a checkpoint must be an array, got {type(leaf).__name__}")
    return Leaf(path, np.dtype(dtype).name, tuple(leaf.shape))


def _host(leaf: Any) -> np.ndarray:
    """The raw data as a C-contiguous little-endian numpy array; on a CPU a view, not a copy."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf)
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _chunks(array: np.ndarray) -> Iterator[memoryview]:
    """Views of the array's memory in order, as pieces of bytes; the array is a stored part of a C-contiguous one."""
    if not array.flags.c_contiguous:
        for part in array:
            yield from _chunks(part)
        return
    flat = array.reshape(-1).view(np.uint8)
    for start in range(0, flat.size, _CHUNK):
        yield flat[start : start + _CHUNK].data


def _filled(leaf: Leaf, array: Any, rows: Mapping[str, tuple[int, int]]) -> tuple[int, int] | None:
    """How much of a leaf has to be stored. The bytes are looked at, so that a wrong `rows` costs space but never data."""
    for part, (axis, count) in rows.items():
        if part in leaf.path and len(leaf.shape) > axis and 0 <= count < leaf.shape[axis]:
            rest = _host(array)[(slice(None),) * axis + (slice(count, None),)]
            return (axis, count) if not any(np.asarray(chunk).max() for chunk in _chunks(rest)) else None
    return None


def _plan(arrays: Mapping[str, Any], rows: Mapping[str, tuple[int, int]]) -> list[Leaf]:
    leaves, end = [], 0
    for path, array in arrays.items():
        leaf = _describe(path, array)
        leaves.append(replace(leaf, rows=_filled(leaf, array, rows), offset=-(-end // _ALIGN) * _ALIGN))
        end = leaves[-1].end
    return leaves


def _content(header: bytes, length: int, leaves: list[Leaf], arrays: Mapping[str, Any]) -> Iterator[bytes | memoryview]:
    yield _PREFIX.pack(MAGIC, VERSION, len(header), length)
    yield header
    end = 0
    for leaf in leaves:
        yield bytes(leaf.offset - end)
        yield from _chunks(leaf.stored(_host(arrays[leaf.path])))
        end = leaf.end


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    try:
        with open(path, "rb") as file:
            yield file
    except FileNotFoundError as error:
        raise CheckpointError(f"there is no checkpoint {path}") from error
    except OSError as error:
        raise DamagedCheckpointError(f"checkpoint {path} cannot be read: {error.strerror or error}") from error


def _header(file: BufferedReader, path: Path, verify: bool) -> dict[str, Any]:
    """The header, with the `version`, the `length` of the file and the `start` of the leaves' bytes added."""
    size = os.fstat(file.fileno()).st_size
    prefix = file.read(_PREFIX.size)
    if prefix[: len(MAGIC)] != MAGIC[: len(prefix)]:
        raise DamagedCheckpointError(f"{path} is not a susd checkpoint, or its beginning is damaged")
    if len(prefix) < _PREFIX.size:
        raise DamagedCheckpointError(f"checkpoint {path} is cut short: it has only {size} bytes")
    _, version, header_length, length = _PREFIX.unpack(prefix)
    if size < length:
        raise DamagedCheckpointError(f"checkpoint {path} is cut short: it has {size} of {length} bytes")
    start = _PREFIX.size + header_length
    if size > length or start + _CHECKSUM_BYTES > length:
        raise DamagedCheckpointError(f"checkpoint {path} is damaged: it has {size} bytes instead of {length}")
    if verify and not _matches_checksum(file, size):  # before the version is believed
        raise DamagedCheckpointError(f"checkpoint {path} is damaged: its checksum does not match its content")
    if version != VERSION:
        raise CheckpointError(f"checkpoint {path} has format {version}; this version of susd reads format {VERSION}")
    file.seek(_PREFIX.size)
    try:
        return dict(json.loads(file.read(header_length))) | {"version": version, "length": length, "start": start}
    except (ValueError, TypeError) as error:
        raise DamagedCheckpointError(f"checkpoint {path} is damaged: its header is not readable") from error


def _matches_checksum(file: BufferedReader, size: int) -> bool:
    checksum = hashlib.blake2b(digest_size=_CHECKSUM_BYTES)
    file.seek(0)
    remaining = size - _CHECKSUM_BYTES
    while remaining > 0 and (chunk := file.read(min(_CHUNK, remaining))):
        checksum.update(chunk)
        remaining -= len(chunk)
    return file.read() == checksum.digest()


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


def _read(file: BufferedReader, leaf: Leaf, start: int) -> np.ndarray:
    array = np.zeros(leaf.shape, leaf.raw_dtype)
    file.seek(start + leaf.offset)
    for chunk in _chunks(leaf.stored(array)):
        if file.readinto(chunk) != chunk.nbytes:
            raise OSError(errno.EIO, "the file became shorter while it was read")
    return array


def _to_jax(leaf: Leaf, array: np.ndarray) -> Any:
    if leaf.impl is not None:
        return jax.random.wrap_key_data(jax.device_put(array), impl=leaf.impl)
    # Not committed to the device, just as the arrays of a new run, so that both share compiled functions.
    return jax.device_put(array) if jax.dtypes.canonicalize_dtype(array.dtype) == array.dtype else array


def _delete_old(newest: Path, epoch: int, keep: int) -> None:
    kept = 0
    for path in checkpoints(newest.parent):
        if epoch_of(path) > epoch or kept >= keep:
            with contextlib.suppress(OSError):
                path.unlink()
            continue
        with contextlib.suppress(CheckpointError):  # one that is cut short does not count as kept
            inspect(path)
            kept += 1


def _sync_folder(folder: Path) -> None:
    """Make the new name itself survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: OSError, folder: Path, needed: int) -> str:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return error.strerror or str(error)
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(folder).free
        return f"the disk is full ({needed / 1e6:.1f} MB needed, {free / 1e6:.1f} MB free)"
    return "the disk is full"
