"""Arrays of an .npz file from others: only those that are asked for are read, once their size is known to be small."""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from susd.errors import UserError, headline
from susd.runs.untrusted import opened

MAX_FILE, MAX_ARRAYS, MAX_DIRECTORY = 2**28, 2**25, 2**20  # bytes: of the file, of all arrays that are read, of the list
_END, _END_SIZE, _LOCATOR = b"PK\x05\x06", 22, b"PK\x06\x07"
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def read_npz(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """The arrays of these names that the file holds; they are numbers or bools, and nothing else of the file is read."""
    with opened(path, MAX_FILE) as file:
        try:
            _check_directory(file.read())
            with zipfile.ZipFile(file) as archive:
                return _read(archive, [f"{name}.npy" for name in names])
        except Exception as error:  # zipfile, zlib and numpy raise many types for bytes that no program has written
            reason = str(error) if isinstance(error, UserError) else headline(error)
            raise UserError(f"{path} is not an .npz file of plain arrays: {reason}") from error


def _check_directory(content: bytes) -> None:
    """Refuse a list of millions of members before it is parsed."""
    at = len(content) - _END_SIZE
    if at < 0 or content[at : at + 4] != _END or content[-2:] != b"\0\0":
        at = content.rfind(_END, max(0, at - 2**16))
    if at < 0 or content[max(0, at - 20) : max(0, at - 20) + 4] == _LOCATOR:
        raise UserError("it is not an ordinary zip file")
    if struct.unpack_from("<I", content, at + 12)[0] > MAX_DIRECTORY:
        raise UserError("it has too many members")


def _read(archive: zipfile.ZipFile, members: list[str]) -> dict[str, np.ndarray]:
    found, left = {}, MAX_ARRAYS
    listed = [member for member in archive.infolist() if member.filename in set(members)]
    if len({member.filename for member in listed}) < len(listed):
        raise UserError("an array is there twice")
    for member in listed:
        name = member.filename.removesuffix(".npy")
        if member.compress_type not in _METHODS:
            raise UserError(f"array {name!r} is compressed by another method than that of numpy")
        found[name] = _array(archive, member, name, left)
        left -= found[name].nbytes
    return found


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, left: int) -> np.ndarray:
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            raise UserError(f"array {name!r} has the format {version}")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream)
        if dtype.kind not in "biuf" or len(shape) > 32 or not all(type(axis) is int and axis >= 0 for axis in shape):
            raise UserError(f"array {name!r} is {dtype}{list(shape)}, not one of numbers")
        size = dtype.itemsize * math.prod(shape)
        if size > left:
            raise UserError(f"array {name!r} claims {size} bytes; at most {MAX_ARRAYS} are read in all")
        content = stream.read(size + 1)  # one more, so that the end is reached, where its checksum is compared
    if len(content) != size:
        raise UserError(f"array {name!r} does not have the {size} bytes of its header")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")
