"""The server: who may connect, what it survives, how it ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from conftest import Command, refused
from explorer.conftest import serving
from susd.explorer.model import Model
from susd.explorer.server import MAX_SESSIONS, MAX_WAITING, Server
from susd.training.agent import load

CONTROL = {"player": "skill", "skill": [1, 0, 1, 0, 1, 0]}
STEP = {"type": "step", "id": 1, "steps": 1, "control": CONTROL}


@contextlib.contextmanager
def session(url: str, run: int = 0, **options: Any) -> Iterator[ClientConnection]:
    """A client of the protocol, after `hello`."""
    parts = urlsplit(url)
    address = f"ws://{parts.netloc}{parts.path}ws?run={run}"
    with connect(address, **{"origin": f"http://{parts.netloc}", "max_size": None, **options}) as socket:
        assert json.loads(socket.recv(30))["type"] == "hello"
        yield socket


def ask(socket: ClientConnection, message: Any) -> dict[str, Any]:
    socket.send(message if isinstance(message, str) else json.dumps(message))
    found: dict[str, Any] = json.loads(socket.recv(60))
    return found


def get(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content, dict(answer.getheaders())


def raw(server: Server, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        connection.sendall(data)
        found = b""
        with contextlib.suppress(OSError):
            while chunk := connection.recv(65536):
                found += chunk
        return found


def test_files(server: Server) -> None:
    status, content, headers = get(server, f"/{server.token}/")
    assert status == 200
    assert b"susd explorer" in content
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert get(server, f"/{server.token}/app.js")[2]["Content-Type"] == "text/javascript; charset=utf-8"
    assert get(server, f"/{server.token}/app.js", "HEAD")[1] == b""
    assert get(server, f"/{server.token}/", "POST")[0] == 405


@pytest.mark.parametrize(
    "path", ["/", "/favicon.ico", "/app.js", "/wrong/app.js", "/{token}x/", "/x{token}/", "/../{token}/", "//{token}/"]
)
def test_wrong_token(server: Server, path: str) -> None:
    status, content, _ = get(server, path.format(token=server.token))
    assert status == 403
    assert b"token" in content
    assert server.token.encode() not in content


@pytest.mark.parametrize(
    "name",
    [
        "../server.py",
        "..%2fserver.py",
        "%2e%2e/server.py",
        "web/app.js",
        "/etc/passwd",
        "local",
        "index.html",
        "app.js/",
        ".",
    ],
)
def test_traversal(server: Server, name: str) -> None:
    assert get(server, f"/{server.token}/{name}")[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "", "127.0.0.1.evil.example:{port}"])
def test_wrong_host(server: Server, host: str) -> None:
    assert get(server, f"/{server.token}/", Host=host.format(port=server.port))[0] == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", None])
def test_wrong_origin(server: Server, origin: str | None) -> None:
    with pytest.raises(InvalidStatus, match="403"), session(server.url, origin=origin):
        pass


@pytest.mark.parametrize("run", [1, 99999, -1])
def test_unknown_run(server: Server, run: int) -> None:
    with pytest.raises(InvalidStatus, match="400"), session(server.url, run):
        pass


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\r\n\r\n", b"400"),
        (b"GET\r\n\r\n", b"400"),
        (b"GET http://x/ HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/9.1\r\n\r\n", b"400"),
        (b"\xff\xfe\x00" * 30 + b"\r\n\r\n", b"400"),
        (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n\r\n", b"431"),
    ],
)
def test_garbage_requests(server: Server, data: bytes, status: bytes) -> None:
    assert raw(server, data).startswith(b"HTTP/1.1 " + status)
    assert get(server, f"/{server.token}/")[0] == 200


def garbage() -> Iterator[Any]:
    """Messages that are wrong in every way, the same ones every time."""
    yield from ("", "{", "null", "[]", "7", '"x"', "{}", "[" * 50_000, '{"type":"step","id":1e999}', "\x00", "{" * 1000)
    values: list[Any] = [None, True, -1, 0, 1e300, 2**70, "x", "x" * 5000, [], {}, [[]], {"a": {}}, [None] * 6, ["a"] * 6]
    numbers = random.Random(0)
    shapes: list[dict[str, Any]] = [
        {"type": "reset", "episode": {"seed": 0, "layout": "", "task": None}},
        STEP | {"control": CONTROL | {"goals": [None, {"to": [1, 1]}, {"phi": [0, 0]}], "raw": [0] * 6, "policy": "x"}},
        {"type": "replay", "episode": {}, "segments": [{"control": CONTROL, "steps": 2}]},
        {"type": "influence", "part": 0, "control": CONTROL},
        {"type": "gallery", "seed": 0, "layout": ""},
    ]
    for _ in range(250):
        message = json.loads(json.dumps(numbers.choice(shapes)))
        place = message
        while isinstance(inner := place[numbers.choice(list(place))], dict) and inner and numbers.random() < 0.7:
            place = inner
        place[numbers.choice(list(place))] = numbers.choice(values)
        yield message


@pytest.mark.slow
def test_garbage_messages(server: Server) -> None:
    with session(server.url) as socket:
        for message in garbage():
            answer = ask(socket, message)
            assert answer["type"] in ("error", "frame", "influence", "gallery"), message
            if answer["type"] == "error":
                assert "Error" not in answer["message"], message
        assert ask(socket, {"type": "reset", "id": 5, "episode": {"seed": 0}}) | {"phi": None} == ask(
            socket, {"type": "reset", "id": 5, "episode": {}}
        ) | {"phi": None}
        assert ask(socket, STEP)["time"] == 1


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x81\x05hello", 1002),  # not masked
        (b"\xf1\x80abcd", 1002),  # reserved bits
        (b"\x83\x80abcd", 1002),  # unknown kind
        (b"\x82\x81abcd\x00", 1003),  # binary
        (b"\x80\x81abcd\x00", 1002),  # continuation of nothing
        (b"\x81\xff\x00\x00\x00\x7f\xff\xff\xff\xffabcd", 1009),  # half a terabyte
        (b"\x81\x81abcd\x9e", 1007),  # not UTF-8
        (b"\x89\xfe\x00\xffabcd", 1002),  # a long ping
    ],
)
def test_garbage_frames(server: Server, frame: bytes, code: int) -> None:
    with pytest.raises(ConnectionClosed) as closed, session(server.url) as socket:  # noqa: PT012
        socket.socket.sendall(frame)
        while True:
            socket.recv(30)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == code


def test_two_clients_do_not_share_an_episode(server: Server) -> None:
    with session(server.url) as one, session(server.url) as other:
        for _ in range(3):
            ask(one, STEP)
        assert ask(other, STEP)["time"] == 1
        assert ask(one, STEP)["time"] == 4


def test_client_gone(server: Server) -> None:
    before = server.sessions
    with session(server.url) as socket:
        socket.send(
            json.dumps({"type": "replay", "id": 1, "episode": {}, "segments": [{"control": CONTROL, "steps": 300}]})
        )
        socket.socket.close()
    end = time.monotonic() + 20
    while server.sessions > before and time.monotonic() < end:
        time.sleep(0.02)
    assert server.sessions == before
    with session(server.url) as socket:
        assert ask(socket, STEP)["time"] == 1


def test_limits(server: Server) -> None:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(session(server.url)) for _ in range(MAX_SESSIONS - server.sessions)]
        with pytest.raises(InvalidStatus, match="503"):
            stack.enter_context(session(server.url))
        for number in range(3 * MAX_WAITING):
            sockets[0].send(json.dumps({"type": "gallery", "id": number, "seed": 0}))
        answers = [json.loads(sockets[0].recv(60)) for _ in range(3 * MAX_WAITING)]
        assert {answer["type"] for answer in answers} == {"gallery", "error"}


@pytest.mark.slow
def test_folder_deleted(trained: Callable[..., Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained("gunner", "--epochs", "1"), run)
    with serving(Model(load(run), run)) as server, session(server.url) as socket:
        shutil.rmtree(run)
        assert ask(socket, STEP)["time"] == 1
        ask(socket, {"type": "reset", "id": 1, "episode": {"task": "gunner-unlim"}})
        answer = ask(socket, STEP | {"control": {"player": "policy", "policy": "x"}})
        assert answer == {"type": "error", "id": 1, "message": "there is no saved policy 'x' of gunner-unlim"}
        with session(server.url) as other:
            assert ask(other, STEP)["time"] == 1


@pytest.mark.slow
def test_command(susd: Command, gunner: Path) -> None:
    """It prints the address, serves, and ends cleanly on Ctrl-C while a page is open."""
    with susd.start("explore", gunner, "--no-browser") as child:
        assert child.stdout is not None
        url = child.stdout.readline().strip()
        with contextlib.suppress(ConnectionClosed), session(url) as socket:
            ask(socket, STEP)
            child.send_signal(signal.SIGINT)
            socket.recv(20)
        output, errors = child.communicate(timeout=30)
    assert child.returncode == 0
    assert output == ""
    assert "Traceback" not in errors
    assert errors.endswith("closed\n")


def test_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, gunner: Path) -> None:
    assert "there is no run folder" in refused(capsys, "explore", tmp_path / "none", "--no-browser")
    assert "there is no run folder" in refused(capsys, "explore", gunner, "--beside", tmp_path / "none")
    assert "--port is 70000" in refused(capsys, "explore", gunner, "--port", 70000)
    assert "cannot listen on" in refused(capsys, "explore", gunner, "--no-browser", "--host", "203.0.113.7")


BUSY = """
import sys, time
from susd.explorer import explore as module

class Compiling(module.Session):
    def open(self):
        time.sleep(60)  # as a program that is compiled: nothing can stop it

module.Session = Compiling
from susd.cli.main import main
main(["explore", sys.argv[1], "--no-browser"])
"""


@pytest.mark.slow
def test_ends_while_it_compiles(gunner: Path, tmp_path: Path) -> None:
    """Ctrl-C does not wait for a thread that is inside of compiled code."""
    program = tmp_path / "busy.py"
    program.write_text(BUSY)
    child = subprocess.Popen([sys.executable, program, gunner], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with child:
        assert child.stdout is not None
        parts = urlsplit(child.stdout.readline().strip())
        address = f"ws://{parts.netloc}{parts.path}ws?run=0"
        with contextlib.suppress(ConnectionClosed), connect(address, origin=f"http://{parts.netloc}") as socket:
            time.sleep(2)  # until the session is made and opens
            child.send_signal(signal.SIGINT)
            socket.recv(20)
        _, errors = child.communicate(timeout=20)
    assert child.returncode == 0
    assert errors.endswith("closed\n")
