"""Gymnasium worlds in processes of their own, for worlds whose Python would keep threads waiting. Imports no JAX.

Processes are spawned, never forked: forking a process that runs JAX can hang. One that fails or dies ends the run with a
sentence; one that hangs is waited for.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from susd.envs.gymnasium.source import Source
from susd.envs.gymnasium.workers import Chunk, Step, WorldError, joined, parts
from susd.errors import UserError

STOPS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 2.0  # seconds that a worker has to end when it is asked to


class Processes:
    """Chunks of worlds, each in a process that is told what to do over a pipe."""

    def __init__(self, source: Source, num_envs: int, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._parts, self._name = parts(num_envs, processes), source.name
        self._pipes: list[Connection] = []
        self._workers: list[Any] = []
        try:
            for part in self._parts:
                mine, theirs = context.Pipe()
                self._pipes.append(mine)
                self._workers.append(context.Process(target=serve, args=(theirs, source, part), daemon=True))
                with _without_stops():
                    self._workers[-1].start()
                theirs.close()  # now the worker alone holds that end, so that its death ends the pipe
            self._answers()  # all have made their worlds
        except BaseException:
            self.close()
            raise

    def reset(self, seed: int) -> np.ndarray:
        """Start all anew; [W, S]."""
        return np.concatenate(self._ask([("reset", seed)] * len(self._pipes)))

    def step(self, actions: np.ndarray) -> Step:
        """Step all by [W, A] in [-1, 1]."""
        return joined(self._ask([("step", actions[part.start : part.stop]) for part in self._parts]))

    def render(self, world: int) -> np.ndarray | None:
        """The frame of one world."""
        which = next(index for index, part in enumerate(self._parts) if world in part)
        frames = self._ask([("render", world) if index == which else None for index in range(len(self._parts))])
        frame: np.ndarray | None = frames[which]
        return frame

    def close(self) -> None:
        """End all workers: first by asking, then by force."""
        for pipe in self._pipes:
            with suppress(OSError):
                pipe.send(None)
            pipe.close()
        for worker in self._workers:
            if worker.pid is None:  # it could not be started
                continue
            worker.join(PATIENCE)
            if worker.is_alive():
                worker.kill()
                worker.join()

    def _ask(self, requests: list[tuple[str, Any] | None]) -> list[Any]:
        for index, request in enumerate(requests):
            if request is not None:
                try:
                    self._pipes[index].send(request)
                except OSError:
                    raise self._died(index) from None
        return self._answers([index for index, request in enumerate(requests) if request is not None])

    def _answers(self, asked: list[int] | None = None) -> list[Any]:
        """One answer from each worker that was asked, taken as they come: so the first that fails is heard at once."""
        waiting = {self._pipes[index]: index for index in (range(len(self._pipes)) if asked is None else asked)}
        found: list[Any] = [None] * len(self._pipes)
        while waiting:
            ready = wait(list(waiting), timeout=PATIENCE)
            for index in () if ready else waiting.values():  # a child of a dead worker may hold its end of the pipe
                if self._workers[index].exitcode is not None:
                    raise self._died(index)
            for pipe in ready:
                assert isinstance(pipe, Connection)
                index = waiting.pop(pipe)
                try:
                    answer = pipe.recv()
                except (EOFError, OSError):
                    raise self._died(index) from None
                if isinstance(answer, Exception):
                    raise answer
                found[index] = answer
        return found

    def _died(self, index: int) -> WorldError:
        worker = self._workers[index]
        worker.join(PATIENCE)
        code = worker.exitcode
        how = f"with exit code {code}"
        if code is not None and code < 0:
            how = f"by the signal {signal.Signals(-code).name}" + (" (out of memory?)" * (-code == signal.SIGKILL))
        num_envs = f"the worlds {_named(self._parts[index])} of {self._name}"
        return WorldError(f"the process {worker.pid} with {num_envs} was ended {how}")


def serve(pipe: Connection, source: Source, num_envs: range) -> None:
    """What a worker does: make its worlds, then answer until it is told to end or the other end is gone."""
    for number in STOPS:  # they reach the whole group; the run decides when to stop
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which programs that a world starts would inherit
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)  # see _without_stops
    sys.stdout = sys.stderr  # what worlds print does not mix with results
    try:
        chunk = Chunk(source, num_envs)
    except UserError as error:
        with suppress(OSError):
            pipe.send(WorldError(str(error)))
        return
    with suppress(EOFError, OSError):
        pipe.send(None)
        while request := pipe.recv():
            verb, argument = request
            try:
                answer: Any = getattr(chunk, verb)(argument)
            except WorldError as error:
                answer = error
            pipe.send(answer)
    chunk.close()


@contextmanager
def _without_stops() -> Iterator[None]:
    """A process started here is deaf to Ctrl-C from its first moment on; the caller hears it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _named(part: range) -> str:
    return f"{part.start} to {part.stop - 1}"
