"""Gymnasium environments in worker processes, for environments whose Python code would block threads. Imports no JAX.

Processes are spawned, never forked: forking a process that runs JAX can deadlock. A worker that fails or dies raises an
EnvError here; a worker that hangs is waited for.
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

from susd.envs.gymnasium.loader import Source
from susd.envs.gymnasium.workers import EnvError, SequentialEnvs, Step, join_steps, split_range
from susd.errors import UserError

STOPS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 2.0  # seconds that a worker has to end when it is asked to


class SubprocessEnvs:
    """Groups of environments, each in a process that receives requests over a pipe."""

    def __init__(self, source: Source, num_envs: int, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._ranges, self._name = split_range(num_envs, processes), source.name
        self._pipes: list[Connection] = []
        self._workers: list[Any] = []
        try:
            for indices in self._ranges:
                mine, theirs = context.Pipe()
                self._pipes.append(mine)
                self._workers.append(context.Process(target=serve, args=(theirs, source, indices), daemon=True))
                with blocked_signals():
                    self._workers[-1].start()
                theirs.close()  # now only the worker holds that end, so its death closes the pipe
            self._receive()  # every worker has made its environments
        except BaseException:
            self.close()
            raise

    def reset(self, seed: int) -> np.ndarray:
        """Reset all environments; [W, S]."""
        return np.concatenate(self._request([("reset", seed)] * len(self._pipes)))

    def step(self, actions: np.ndarray) -> Step:
        """Step all environments by [W, A] in [-1, 1]."""
        return join_steps(self._request([("step", actions[indices.start : indices.stop]) for indices in self._ranges]))

    def render(self, index: int) -> np.ndarray | None:
        """The frame of one environment."""
        which = next(worker for worker, indices in enumerate(self._ranges) if index in indices)
        frames = self._request([("render", index) if worker == which else None for worker in range(len(self._ranges))])
        frame: np.ndarray | None = frames[which]
        return frame

    def unwrapped(self, index: int) -> None:
        """None: it is in another process."""

    def close(self) -> None:
        """End all workers: first by a request, then by a signal."""
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

    def _request(self, requests: list[tuple[str, Any] | None]) -> list[Any]:
        for index, request in enumerate(requests):
            if request is not None:
                try:
                    self._pipes[index].send(request)
                except OSError:
                    raise self._dead(index) from None
        return self._receive([index for index, request in enumerate(requests) if request is not None])

    def _receive(self, asked: list[int] | None = None) -> list[Any]:
        """One answer from each worker that was asked, in the order of arrival: the first failure is raised at once."""
        waiting = {self._pipes[index]: index for index in (range(len(self._pipes)) if asked is None else asked)}
        found: list[Any] = [None] * len(self._pipes)
        while waiting:
            ready = wait(list(waiting), timeout=PATIENCE)
            for index in () if ready else waiting.values():  # a child of a dead worker may hold its end of the pipe
                if self._workers[index].exitcode is not None:
                    raise self._dead(index)
            for pipe in ready:
                assert isinstance(pipe, Connection)
                index = waiting.pop(pipe)
                try:
                    answer = pipe.recv()
                except (EOFError, OSError):
                    raise self._dead(index) from None
                if isinstance(answer, Exception):
                    raise answer
                found[index] = answer
        return found

    def _dead(self, index: int) -> EnvError:
        worker, indices = self._workers[index], self._ranges[index]
        worker.join(PATIENCE)
        code = worker.exitcode
        how = f"exited with code {code}"
        if code is not None and code < 0:
            how = f"was killed by signal {signal.Signals(-code).name}" + (" (out of memory?)" * (-code == signal.SIGKILL))
        envs = f"environments {indices.start} to {indices.stop - 1} of {self._name}"
        return EnvError(f"process {worker.pid} with {envs} {how}")


def serve(pipe: Connection, source: Source, indices: range) -> None:
    """The program of a worker: make its environments, then answer requests until None arrives or the pipe closes."""
    for number in STOPS:  # they reach the whole process group; the main process decides when to stop
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which children of an environment would inherit
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)  # see blocked_signals
    sys.stdout = sys.stderr  # what environments print does not mix with results
    try:
        envs = SequentialEnvs(source, indices)
    except UserError as error:
        with suppress(OSError):
            pipe.send(EnvError(str(error)))
        return
    with suppress(EOFError, OSError):
        pipe.send(None)
        while request := pipe.recv():
            verb, argument = request
            try:
                answer: Any = getattr(envs, verb)(argument)
            except EnvError as error:
                answer = error
            pipe.send(answer)
    envs.close()


@contextmanager
def blocked_signals() -> Iterator[None]:
    """A process started here ignores Ctrl-C from its first moment; the caller receives it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
