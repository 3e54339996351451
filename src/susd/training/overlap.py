"""`--overlap`: the episodes of the next epoch are collected in a thread while the learner updates.

They are collected by the policy of one epoch ago, because the updates of this epoch are not done yet. That actor is part of
the state, so a resumed run collects the same episodes again. No thread outlives its epoch.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jax

from susd.types import Policy, Transition

PATIENCE = 2.0  # seconds that the environment has to finish its step when training ends early
TASKS, XLA_THREADS = Path("/proc/self/task"), "tf_XLA"  # the threads of this process on Linux, and how XLA names its own

Episodes = tuple[Transition, float]  # and the seconds spent in the environment


class _Stopped(Exception):
    """Training ended while episodes were collected."""


def physics_first() -> None:
    """Let XLA's threads wait for a free core instead of interrupting the physics.

    They hand work to each other many times per update, and each time one wakes up it may take the core of the thread that
    collects. Linux does not let batch threads do that. Threads they start are scheduled as usual. On other systems
    nothing changes.
    """
    for task in TASKS.glob("*"):
        with suppress(OSError, AttributeError):  # a thread has ended, or this system has no such policy
            if (task / "comm").read_text().startswith(XLA_THREADS):
                os.sched_setscheduler(int(task.name), os.SCHED_BATCH | os.SCHED_RESET_ON_FORK, os.sched_param(0))


class Ahead:
    """Episodes that are collected before their epoch, of one epoch at a time."""

    def __init__(self) -> None:
        self._found: tuple[Any, int, Future[Episodes]] | None = None

    def keep(self, actor: Any, epoch: int, episodes: Episodes) -> None:
        """Keep what an actor has collected for an epoch."""
        found = Future[Episodes]()
        found.set_result(episodes)
        self._found = actor, epoch, found

    def take(self, actor: Any, epoch: int) -> Transition | None:
        """The episodes that this very actor has collected for an epoch; None if there are none.

        What the environment raised in the thread is raised here, where the episodes are needed.
        """
        found, self._found = self._found, None
        return found[2].result()[0] if found and found[0] is actor and found[1] == epoch else None

    @contextmanager
    def collecting(
        self, actor: Any, epoch: int, policy: Policy, collect: Callable[[Policy], Episodes]
    ) -> Iterator[Callable[[], float]]:
        """Collect the episodes of an epoch while the block runs; at its end they are complete.

        It gives a function that waits for them and returns the seconds spent in the environment.
        """
        physics_first()
        stop, found = threading.Event(), Future[Episodes]()

        def stoppable(obs: jax.Array, skill: jax.Array, key: jax.Array) -> jax.Array:
            if stop.is_set():
                raise _Stopped
            return policy(obs, skill, key)

        def work() -> None:
            try:
                found.set_result(collect(stoppable))
            except BaseException as error:
                found.set_exception(error)

        # A daemon, so that an environment that hangs does not keep the program from ending.
        threading.Thread(target=work, name="susd-collect", daemon=True).start()
        try:
            yield lambda: 0.0 if found.exception() else found.result()[1]
            found.exception()
        except BaseException:
            stop.set()
            with suppress(TimeoutError):
                found.exception(PATIENCE)
            raise
        self._found = actor, epoch, found
