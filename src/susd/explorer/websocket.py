"""The server's side of a WebSocket (RFC 6455) over asyncio streams: text messages, pings, a clean close.

It is here, and not a dependency, because the explorer needs a fiftieth of what a web framework brings, and because
`susd explore` should work with nothing but the package installed.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import struct
from typing import NamedTuple

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
LARGEST = 4 * 2**20  # bytes of a message from the page: a link of a very long episode fits
TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA
NORMAL, GOING_AWAY, PROTOCOL_ERROR, UNSUPPORTED, NOT_UTF8, TOO_BIG = 1000, 1001, 1002, 1003, 1007, 1009


class Closed(Exception):
    """The connection has ended; `code` is the reason that is sent to the other side."""

    def __init__(self, code: int) -> None:
        super().__init__(f"closed with code {code}")
        self.code = code


class Frame(NamedTuple):
    """One frame: whether it ends its message, what it is, its content."""

    final: bool
    opcode: int
    payload: bytes


def accept(key: str) -> str:
    """The answer to the key of a handshake."""
    return base64.b64encode(hashlib.sha1(key.encode() + GUID, usedforsecurity=False).digest()).decode()


def valid_key(key: str) -> bool:
    """Whether the key of a handshake is 16 bytes in base 64."""
    try:
        return len(base64.b64decode(key, validate=True)) == 16
    except ValueError:
        return False


class WebSocket:
    """An open connection. `receive` is called by one task; `send` may be called by several."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._closed = False

    async def receive(self) -> str:
        """The next text message; `Closed` when there is none any more."""
        parts: list[bytes] = []
        while True:
            frame = await self._frame()
            if frame.opcode == CLOSE:
                raise Closed(NORMAL)
            if frame.opcode == PING:
                await self._write(PONG, frame.payload)
            if frame.opcode in (PING, PONG):
                continue
            if frame.opcode == BINARY:
                raise Closed(UNSUPPORTED)
            if (frame.opcode == TEXT) == bool(parts):  # a new message inside another, or a continuation of none
                raise Closed(PROTOCOL_ERROR)
            parts.append(frame.payload)
            if sum(map(len, parts)) > LARGEST:
                raise Closed(TOO_BIG)
            if frame.final:
                return _decoded(b"".join(parts))
            if not frame.payload and len(parts) > 1:
                raise Closed(PROTOCOL_ERROR)  # endless empty fragments

    async def send(self, text: str) -> None:
        """Send a text message and wait until the other side keeps up."""
        await self._write(TEXT, text.encode())

    async def close(self, code: int) -> None:
        """Say why and end the connection."""
        if not self._closed:
            try:
                await self._write(CLOSE, struct.pack(">H", code))
            except Closed:
                return
            self._closed = True

    async def _frame(self) -> Frame:
        """The next frame, unmasked and checked."""
        first, second = await self._read(2)
        final, opcode, length = bool(first & 0x80), first & 0x0F, second & 0x7F
        if first & 0x70 or not second & 0x80 or opcode not in (0, TEXT, BINARY, CLOSE, PING, PONG):
            raise Closed(PROTOCOL_ERROR)  # reserved bits, not masked, unknown
        if opcode >= CLOSE and (length > 125 or not final):
            raise Closed(PROTOCOL_ERROR)
        if length == 126:
            (length,) = struct.unpack(">H", await self._read(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", await self._read(8))
        if length > LARGEST:
            raise Closed(TOO_BIG)
        mask = await self._read(4)
        return Frame(final, opcode, _unmasked(await self._read(length), mask))

    async def _read(self, count: int) -> bytes:
        try:
            return await self._reader.readexactly(count)
        except (asyncio.IncompleteReadError, OSError):
            raise Closed(GOING_AWAY) from None

    async def _write(self, opcode: int, payload: bytes) -> None:
        if self._closed:
            raise Closed(GOING_AWAY)
        length = len(payload)
        head = bytes([0x80 | opcode])
        if length < 126:
            head += bytes([length])
        else:
            head += struct.pack(">BH", 126, length) if length < 2**16 else struct.pack(">BQ", 127, length)
        try:
            self._writer.write(head + payload)
            await self._writer.drain()
        except OSError:
            raise Closed(GOING_AWAY) from None


def _unmasked(payload: bytes, mask: bytes) -> bytes:
    """The payload XOR the repeated mask, as one big integer: a Python loop over bytes would be slow."""
    repeated = (mask * (len(payload) // 4 + 1))[: len(payload)]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(len(payload), "big")


def _decoded(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise Closed(NOT_UTF8) from None
