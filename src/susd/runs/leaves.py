"""The leaves of a checkpoint: arrays of a pytree, their description, their bytes and checksums."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from susd.runs.header import CHECKSUM_BYTES

CHUNK = 1 << 24


@dataclass(frozen=True)
class Leaf:
    """One array of a checkpoint. `shape` is that of the raw data, which for PRNG keys is the key data."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    impl: str | None = None  # of a PRNG key array
    rows: tuple[int, int] | None = None  # (axis, n): only the first n rows along axis are stored, the others are zero
    offset: int = 0  # from the end of the header's checksum
    checksum: str = ""  # of the stored bytes

    @property
    def raw_dtype(self) -> np.dtype:
        """The dtype of the stored bytes."""
        return np.dtype(np.uint32) if self.dtype.startswith("key<") else jnp.dtype(self.dtype)

    @property
    def end(self) -> int:
        """Where the stored bytes end, counted as `offset` is."""
        shape = list(self.shape)
        if self.rows is not None:
            shape[self.rows[0]] = self.rows[1]
        return self.offset + self.raw_dtype.itemsize * math.prod(shape)

    def stored(self, array: np.ndarray) -> np.ndarray:
        """The part of a full array that is stored, as a view."""
        return array if self.rows is None else array[(slice(None),) * self.rows[0] + (slice(self.rows[1]),)]

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


def flatten(tree: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of a pytree with their paths."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        yield jax.tree_util.keystr(path), leaf


def describe(path: str, leaf: Any) -> Leaf:
    """Dtype and shape of an array or a `jax.ShapeDtypeStruct`."""
    dtype = getattr(leaf, "dtype", None)
    if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key):
        impl = str(jax.random.key_impl(leaf)) if isinstance(leaf, jax.Array) else None
        return Leaf(path, str(dtype), jax.eval_shape(jax.random.key_data, leaf).shape, impl)
    if dtype is None or not (jnp.issubdtype(dtype, np.number) or jnp.issubdtype(dtype, np.bool_)):
        raise TypeError(f"leaf {path or 'at the root'} of a checkpoint must be an array, got {type(leaf).__name__}")
    return Leaf(path, np.dtype(dtype).name, tuple(leaf.shape))


def host_array(leaf: Any) -> np.ndarray:
    """The raw data as a C-contiguous little-endian numpy array; on a CPU a view, not a copy."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf)
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def chunks(array: np.ndarray) -> Iterator[memoryview]:
    """Views of the array's memory in order, as pieces of bytes; the array is a stored part of a C-contiguous one."""
    if not array.flags.c_contiguous:
        for part in array:
            yield from chunks(part)
        return
    flat = array.reshape(-1).view(np.uint8)
    for start in range(0, flat.size, CHUNK):
        yield flat[start : start + CHUNK].data


def checksum(array: np.ndarray) -> str:
    """A blake2b checksum of the bytes."""
    total = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
    for chunk in chunks(array):
        total.update(chunk)
    return total.hexdigest()


def to_jax(leaf: Leaf, array: np.ndarray) -> Any:
    """The array on the default device; a 64-bit one stays in numpy unless JAX has x64 enabled."""
    if leaf.impl is not None:
        return jax.random.wrap_key_data(jax.device_put(array), impl=leaf.impl)
    # Not committed to the device, like the arrays of a new run, so that both share compiled functions.
    return jax.device_put(array) if jax.dtypes.canonicalize_dtype(array.dtype) == array.dtype else array
