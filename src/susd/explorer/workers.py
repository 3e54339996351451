"""Threads that compute for pages, and an end of the program that does not wait for what they compile."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, ClassVar, TypeVar

Found = TypeVar("Found")
Job = tuple["Future[Any]", Callable[[], Any]]
PATIENCE = 0.7  # seconds that the end of the program waits for sessions to close


class Workers(Executor):
    """A pool of daemon threads. Those of a ThreadPoolExecutor end a program only after all their work is done.

    `start` is called in every thread before its first work.
    """

    everyone: ClassVar[weakref.WeakSet[Workers]] = weakref.WeakSet()

    def __init__(self, count: int, name: str, start: Callable[[], None] = lambda: None) -> None:
        self.count = count
        self.name = name
        self.start = start
        self.threads: list[threading.Thread] = []
        self.ended = False
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        Workers.everyone.add(self)

    def submit(self, call: Callable[..., Found], /, *given: Any, **named: Any) -> Future[Found]:
        """Call a function in one of the threads."""
        future: Future[Found] = Future()
        with self._lock:
            if self.ended:
                raise RuntimeError("the workers have ended")
            self._jobs.put((future, lambda: call(*given, **named)))
            if len(self.threads) < self.count:
                thread = threading.Thread(target=self._work, name=f"{self.name}-{len(self.threads)}", daemon=True)
                self.threads.append(thread)
                thread.start()
        return future

    def _work(self) -> None:
        self.start()
        while (job := self._jobs.get()) is not None:
            future, call = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            del job, future, call  # they may hold a whole session

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Threads end when all work is done; with `cancel_futures` what has not begun is not done."""
        with self._lock:
            self.ended = True
            if cancel_futures:
                while not self._jobs.empty():
                    job = self._jobs.get()
                    if job is not None:
                        job[0].cancel()
            for _ in self.threads:
                self._jobs.put(None)
        if wait:
            for thread in self.threads:
                thread.join()


@atexit.register
def _finish() -> None:
    """Python must not end while its threads are inside of compiled code."""
    for workers in list(Workers.everyone):
        workers.shutdown(cancel_futures=True)


def share_promptly() -> None:
    """Let a step of the environment wait half a millisecond for the interpreter, not five, while slow answers are computed.

    A step in MuJoCo gives it away and takes it back many times.
    """
    sys.setswitchinterval(0.0005)


def end_promptly() -> None:
    """Let the program end with code 0, if it comes to its end, although a thread is compiling: it cannot be stopped."""
    atexit.register(_leave)


def _leave() -> None:
    """Called before `_finish`: functions that were registered last come first."""
    threads = []
    for workers in list(Workers.everyone):
        workers.shutdown(wait=False, cancel_futures=True)
        threads += workers.threads
    until = time.monotonic() + PATIENCE
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
