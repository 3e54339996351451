"""`susd check` of a user-defined environment in a process of its own: whatever ends that process is reported."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection, wait
from typing import Any

from susd.config import Config
from susd.envs.gymnasium.processes import STOPS, blocked_signals
from susd.errors import UserError
from susd.tools.check import check, check_steps

PATIENCE = 10.0  # seconds for the process to end after its answer


def check_isolated(config: Config, steps: int) -> dict[str, Any]:
    """The result of `check`; a UserError says how the process ended, if the environment ended it."""
    check_steps(steps)
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(theirs, config, steps))
    try:
        with blocked_signals():
            process.start()
        theirs.close()  # now only the child holds that end, so its death closes the pipe
        wait([mine, process.sentinel])
        answer = json.loads(mine.recv_bytes()) if mine.poll() else None
    except EOFError:
        answer = None
    finally:
        process.join(PATIENCE if sys.exc_info()[0] is None else 0.0)
        if process.is_alive():
            process.kill()
            process.join()
    if answer is None:
        raise UserError(f"{config.env} {_how(process.exitcode)} during the check; it must never do that")
    if "error" in answer:
        raise UserError(answer["error"])
    result: dict[str, Any] = answer["result"]
    return result


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        return f"ended its process by signal {signal.Signals(-code).name}"
    return f"ended its process with exit code {code}"


def _serve(pipe: Connection, config: Config, steps: int) -> None:
    """The program of the child: one check, whose answer is JSON."""
    for number in STOPS:  # they reach the whole process group; the parent decides when to stop
        signal.signal(number, lambda *_: None)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.dup2(2, 1)  # what an environment prints does not mix with results
    try:
        answer: dict[str, Any] = {"result": check(config, steps)}
    except UserError as error:
        answer = {"error": str(error)}
    pipe.send_bytes(json.dumps(answer).encode())


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
