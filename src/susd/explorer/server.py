"""The explorer's server: the files of the page and one WebSocket per session, on asyncio alone.

The address contains a random token; a request without it, from another origin or for another host is refused. Files are
read when the server starts and served by name, so no request reaches the file system.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import json
import os
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from importlib.resources import files
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qs, urlsplit

from susd.errors import UserError, headline
from susd.explorer.websocket import GOING_AWAY, Closed, WebSocket, accept, valid_key
from susd.explorer.workers import Workers

TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
NAMES = ("localhost", "127.0.0.1", "[::1]")
MAX_SESSIONS = 16  # open at the same time; a page that compares two runs has two
MAX_WAITING = 4  # slow requests of one session that are not answered yet
HEAD_SECONDS = 10.0  # for a request to arrive
HEAD_BYTES = 16 * 1024
SLOW = ("influence", "gallery", "maps")  # answered beside the others
SLOW_NICE = 5  # by how much their threads come after the others
Message = dict[str, Any]


class Session(Protocol):
    """One client's environment. All calls come from one thread; `stopped` is set from another to end a long one."""

    stopped: bool

    def open(self) -> Message:
        """The description of the run: the message `hello`."""
        ...

    def answer(self, message: Message) -> Message:
        """The answer to a request; a UserError says what is wrong with it."""
        ...

    def prepare(self, message: Message) -> Callable[[], Message]:
        """A slow request as a function that another thread can call."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


class Request(NamedTuple):
    """The head of an HTTP request; the names of headers are in lower case."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]


class Refused(Exception):
    """A request that is answered with an HTTP status and a sentence."""

    def __init__(self, status: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Server:
    """Serves the page and the sessions of runs. `runs` makes a session for each run."""

    def __init__(self, runs: Sequence[Callable[[], Session]], names: Sequence[str], host: str = "127.0.0.1") -> None:
        self.runs = runs
        self.host = host
        self.port = 0
        self.token = secrets.token_urlsafe(18)
        self.pages = page_files(names)
        self.sessions = 0
        self._slow = Workers(2, "explorer-slow", _yield_to_others)  # two: a quick one passes a slow one
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """The address of the page."""
        shown = f"[{self.host}]" if ":" in self.host else "127.0.0.1" if self.host in ("0.0.0.0", "") else self.host
        return f"http://{shown}:{self.port}/{self.token}/"

    async def start(self, port: int = 0) -> None:
        """Listen; port 0 is any free one."""
        try:
            self._server = await asyncio.start_server(self._connected, self.host, port, limit=HEAD_BYTES)
        except OSError as error:
            raise UserError(f"cannot listen on {self.host} port {port}: {error.strerror or error}") from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """End all connections and free what their sessions hold."""
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._slow.shutdown(wait=False, cancel_futures=True)

    # --- HTTP ---------------------------------------------------------------------------------------------------------

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, Closed):
            pass
        except asyncio.CancelledError:
            pass  # the server stops
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request per connection: a file, or a WebSocket."""
        try:
            request = await _read_request(reader)
            self._check(request)
            name = request.path.removeprefix(f"/{self.token}/")
            if name == "ws":
                await self._websocket(request, reader, writer)
                return
            if request.method not in ("GET", "HEAD"):
                raise Refused("405 Method Not Allowed", "only GET is answered here")
            if name not in self.pages:
                raise Refused("404 Not Found", "there is no such file")
            kind, content = TYPES[(name or "index.html").rpartition(".")[2]], self.pages[name]
            await self._reply(writer, "200 OK", kind, b"" if request.method == "HEAD" else content, len(content))
        except Refused as refused:
            text = f"{refused}\n".encode()
            await self._reply(writer, refused.status, "text/plain", text, len(text))

    def _check(self, request: Request) -> None:
        """The host must be this one and the address must contain the token."""
        if not self._known_host(request.headers.get("host", "")):
            raise Refused("403 Forbidden", "this server is not known under that name")
        given = request.path.split("/")[1] if request.path.count("/") >= 2 else ""
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            raise Refused("403 Forbidden", "the token in the address is missing or wrong; use the one that susd printed")

    def _known_host(self, host: str) -> bool:
        """Whether a Host header is this server: another name may be an attack by DNS rebinding, an address cannot."""
        name, _, port = host.rpartition(":")
        if port != str(self.port):
            return False
        if self.host in ("127.0.0.1", "localhost", "::1"):
            return name in NAMES
        return name in (*NAMES, self.host) or _is_address(name)

    async def _reply(self, writer: asyncio.StreamWriter, status: str, kind: str, content: bytes, length: int) -> None:
        sockets = " ".join(f"ws://{name}:{self.port}" for name in (*NAMES[:2],))
        policy = (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src blob:; "
            f"connect-src 'self' {sockets}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        head = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(length),
            "Content-Security-Policy": policy,
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Connection": "close",
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        writer.write(f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + content)
        await writer.drain()

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def _websocket(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Shake hands, then answer the messages of one session until it ends."""
        headers = request.headers
        if headers.get("origin") != f"http://{headers['host']}":
            raise Refused("403 Forbidden", "only the page of this server may connect")
        key, asked = headers.get("sec-websocket-key", ""), headers.get("upgrade", "").lower()
        if request.method != "GET" or asked != "websocket" or headers.get("sec-websocket-version") != "13":
            raise Refused("400 Bad Request", "this address is for WebSockets")
        run = request.query.get("run", ["0"])[0]
        if not valid_key(key) or not run.isdecimal() or len(run) > 4 or int(run) >= len(self.runs):
            raise Refused("400 Bad Request", "the key or the run is invalid")
        if self.sessions >= MAX_SESSIONS:
            raise Refused("503 Service Unavailable", f"{MAX_SESSIONS} sessions are open already; close a page")
        head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        writer.write(f"{head}Sec-WebSocket-Accept: {accept(key)}\r\n\r\n".encode())
        self.sessions += 1
        try:
            await Client(WebSocket(reader, writer), self._slow).run(self.runs[int(run)])
        finally:
            self.sessions -= 1


class Client:
    """One WebSocket and the session behind it. The session has a thread of its own, as OpenGL demands."""

    def __init__(self, socket: WebSocket, slow: Executor) -> None:
        self.socket = socket
        self.slow = slow
        self.thread = Workers(1, "explorer-session")
        self.waiting: set[asyncio.Task[None]] = set()

    async def run(self, make: Callable[[], Session]) -> None:
        """Say hello, then answer until the connection ends."""
        loop = asyncio.get_running_loop()
        session: Session | None = None
        code = GOING_AWAY
        try:
            session = await loop.run_in_executor(self.thread, make)
            await self._send(await loop.run_in_executor(self.thread, session.open))
            while True:
                await self._receive(session, await self.socket.receive())
        except Closed as closed:
            code = closed.code
        except UserError as error:
            with contextlib.suppress(Closed):
                await self._send({"type": "error", "id": None, "message": str(error)})
        finally:
            for task in self.waiting:
                task.cancel()
            if session is not None:
                session.stopped = True
                self.thread.submit(session.close)
            self.thread.shutdown(wait=False)
            await self.socket.close(code)

    async def _receive(self, session: Session, text: str) -> None:
        """Answer one message, whatever it is."""
        message = _parsed(text)
        number = message.get("id")
        number = number if isinstance(number, int) and not isinstance(number, bool) else None
        if message.get("type") in SLOW:
            if len(self.waiting) >= MAX_WAITING:
                await self._send({"type": "error", "id": number, "message": "too many requests are waiting; try later"})
                return
            task = asyncio.ensure_future(self._answer_slowly(session, message, number))
            self.waiting.add(task)
            task.add_done_callback(self.waiting.discard)
            return
        await self._send(await self._run(self.thread, lambda: session.answer(message), number))

    async def _answer_slowly(self, session: Session, message: Message, number: int | None) -> None:
        """Prepare in the session's thread, which may use its state, and compute in the other."""
        loop, found = asyncio.get_running_loop(), None
        try:
            found = await loop.run_in_executor(self.thread, session.prepare, message)
        except Exception as error:
            answer = _failure(error, number)
        if found is not None:
            answer = await self._run(self.slow, found, number)
        with contextlib.suppress(Closed):
            await self._send(answer)

    async def _run(self, executor: Executor, call: Callable[[], Message], number: int | None) -> Message:
        try:
            return await asyncio.get_running_loop().run_in_executor(executor, call) | {"id": number}
        except Exception as error:  # also of the user's environment: the session stays open
            return _failure(error, number)

    async def _send(self, message: Message) -> None:
        try:
            text = json.dumps(message, allow_nan=False, separators=(",", ":"))
        except ValueError:
            sentence = "the environment or the networks gave a value that is not finite; reset the episode"
            text = json.dumps({"type": "error", "id": message.get("id"), "message": sentence})
        await self.socket.send(text)


def _yield_to_others() -> None:
    """Let this thread wait for those that answer steps, where the system can tell threads apart."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + SLOW_NICE)


def _failure(error: Exception, number: int | None) -> Message:
    if not isinstance(error, UserError):
        print(f"susd: explorer: {headline(error)}", file=sys.stderr)
    message = str(error) if isinstance(error, UserError) else headline(error)
    return {"type": "error", "id": number, "message": message}


def _parsed(text: str) -> Message:
    """The object in a message; anything else becomes one without a type, which is answered with an error."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


async def _read_request(reader: asyncio.StreamReader) -> Request:
    """The head of a request; a body is not read."""
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_SECONDS)
    except (asyncio.IncompleteReadError, TimeoutError):
        raise Closed(GOING_AWAY) from None
    except asyncio.LimitOverrunError:
        raise Refused("431 Request Header Fields Too Large", "the head of the request is too long") from None
    first, *lines = head.decode("latin-1").split("\r\n")
    try:
        method, target, protocol = first.split(" ")
        parts = urlsplit(target)
    except ValueError:
        raise Refused("400 Bad Request", "the request cannot be read") from None
    if not protocol.startswith("HTTP/1.") or not target.startswith("/"):
        raise Refused("400 Bad Request", "the request cannot be read")
    headers = {
        name.strip().lower(): value.strip() for name, colon, value in (line.partition(":") for line in lines) if colon
    }
    return Request(method, parts.path, parse_qs(parts.query), headers)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def page_files(names: Sequence[str]) -> Mapping[str, bytes]:
    """The files of the page by name; "" is the page itself, which learns the names of the runs."""
    folder = files("susd.explorer") / "web"
    found = {item.name: item.read_bytes() for item in folder.iterdir() if item.name.rpartition(".")[2] in TYPES}
    runs = json.dumps(list(names)).replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    found[""] = found.pop("index.html").replace(b"{{runs}}", runs.encode())
    return found


async def serve(server: Server, port: int, ready: Callable[[str], None]) -> None:
    """Listen until Ctrl-C or a signal to terminate; `ready` is called with the address."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    await server.start(port)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        ready(server.url)
        await stop.wait()
    finally:
        await server.stop()
