"""Gymnasium worlds stepped together: a chunk of them one after the other, chunks in threads. Imports no JAX."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from susd.envs.gymnasium.source import Source
from susd.envs.gymnasium.spaces import Actions, Observations
from susd.errors import UserError, headline

Step = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # the fields of a HostStep


RESET, STEP = ("observation", "info"), ("observation", "reward", "terminated", "truncated", "info")


class _WrongAnswer(Exception):
    """Something else came back than Gymnasium's contract says."""


class WorldError(UserError):
    """A world failed. The message names the world, the seed and the step, and has the traceback of its own code."""


class Pool(Protocol):
    """Worlds that are stepped together."""

    def reset(self, seed: int) -> np.ndarray:
        """Start all anew; [W, S]."""

    def step(self, actions: np.ndarray) -> Step:
        """Step all by [W, A] in [-1, 1]."""

    def render(self, world: int) -> np.ndarray | None:
        """The frame of one world, or nothing if it cannot draw."""

    def close(self) -> None:
        """End all worlds."""


class Chunk:
    """Some of the worlds, stepped one after the other. A world that ends starts anew by itself."""

    def __init__(self, source: Source, num_envs: range) -> None:
        create = source.creator()
        self._num_envs, self._source = num_envs, source
        self._envs: list[Any] = []
        for _ in num_envs:
            self._envs.append(create())
        self._observations = Observations(self._envs[0].observation_space, source.name)
        self._actions = Actions(self._envs[0].action_space, source.name)
        self._seed, self._steps = 0, 0
        self._episodes = [0] * len(num_envs)

    def reset(self, seed: int) -> np.ndarray:
        """Start all anew, each as a function of the seed and its number alone."""
        self._seed, self._steps = seed, 0
        self._episodes = [0] * len(self._num_envs)
        return np.stack([self._restart(row) for row in range(len(self._num_envs))])

    def step(self, actions: np.ndarray) -> Step:
        """Step all by [n, A] in [-1, 1]."""
        self._steps += 1
        rows = [self._advance(row, action) for row, action in enumerate(actions)]
        obs, next_obs, terminated, truncated = zip(*rows, strict=True)
        return np.stack(obs), np.stack(next_obs), np.array(terminated, bool), np.array(truncated, bool)

    def render(self, world: int) -> np.ndarray | None:
        """The frame of one world, or nothing if it cannot draw."""
        row = self._num_envs.index(world)
        with self._named(row, "drawing"):
            frame = self._envs[row].render() if self._envs[row].render_mode == "rgb_array" else None
        return frame if isinstance(frame, np.ndarray) and frame.ndim == 3 else None

    def close(self) -> None:
        """End all worlds; one that cannot even be closed keeps nobody from ending."""
        for env in self._envs:
            with suppress(Exception):
                env.close()

    def _advance(self, row: int, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool, bool]:
        with self._named(row, f"step {self._steps}"):
            given = self._envs[row].step(self._actions.write(action))
            obs, _, terminated, truncated, _ = _parts_of("step", given, STEP)
            terminated, truncated = bool(terminated), bool(truncated)
        reached = self._read(row, obs, f"step {self._steps}")
        if not (terminated or truncated):
            return reached, reached, False, False
        self._episodes[row] += 1
        return self._restart(row), reached, terminated, truncated

    def _restart(self, row: int) -> np.ndarray:
        where = f"the reset after step {self._steps}" if self._steps else "the reset"
        with self._named(row, where):
            given = self._envs[row].reset(seed=world_seed(self._seed, self._num_envs[row], self._episodes[row]))
            obs, _ = _parts_of("reset", given, RESET)
        return self._read(row, obs, where)

    def _read(self, row: int, obs: Any, where: str) -> np.ndarray:
        try:
            return self._observations.read(obs)
        except ValueError as error:
            raise WorldError(f"the observation of {self._which(row, where)} cannot be used: {error}") from None

    @contextmanager
    def _named(self, row: int, where: str) -> Iterator[None]:
        """Name the world in whatever its code raises."""
        try:
            yield
        except _WrongAnswer as error:
            raise WorldError(f"{self._which(row, where)} cannot be used: {error}") from None
        except (Exception, SystemExit) as error:
            text = "".join(traceback.format_exception(error)).rstrip()
            raise WorldError(f"{self._which(row, where)} failed: {headline(error)}\n{text}") from None

    def _which(self, row: int, where: str) -> str:
        world = self._num_envs[row]
        own = world_seed(self._seed, world, self._episodes[row])
        return (
            f"world {world} of {self._source.name} in {where} (seed {self._seed}; env.reset(seed={own}) began this episode)"
        )


def _parts_of(verb: str, given: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    """What `reset` or `step` gave, if it is a tuple of so many parts."""
    if not isinstance(given, tuple) or len(given) != len(names):
        what = f"a tuple of {len(given)}" if isinstance(given, tuple) else f"a {type(given).__name__}"
        raise _WrongAnswer(f"{verb} gave {what}; Gymnasium's contract is ({', '.join(names)})")
    return given


class Threads:
    """Chunks of worlds in threads of this process; with one thread, in the caller's."""

    def __init__(self, source: Source, num_envs: int, threads: int) -> None:
        self._parts = parts(num_envs, threads)
        self._chunks = [Chunk(source, part) for part in self._parts]
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="environments") if len(self._parts) > 1 else None

    def reset(self, seed: int) -> np.ndarray:
        """Start all anew; [W, S]."""
        if self._executor is None:
            return self._chunks[0].reset(seed)
        return np.concatenate(list(self._executor.map(lambda chunk: chunk.reset(seed), self._chunks)))

    def step(self, actions: np.ndarray) -> Step:
        """Step all by [W, A] in [-1, 1]."""
        if self._executor is None:
            return self._chunks[0].step(actions)
        mine = [actions[part.start : part.stop] for part in self._parts]
        return joined(list(self._executor.map(lambda chunk, own: chunk.step(own), self._chunks, mine)))

    def render(self, world: int) -> np.ndarray | None:
        """The frame of one world; drawn by the caller's thread, because a GL belongs to a thread."""
        return next(chunk.render(world) for chunk, part in zip(self._chunks, self._parts, strict=True) if world in part)

    def close(self) -> None:
        """End threads and worlds."""
        if self._executor is not None:
            self._executor.shutdown()
        for chunk in self._chunks:
            chunk.close()


def world_seed(seed: int, world: int, episode: int) -> int:
    """What an episode of a world is seeded with: a function of the three alone."""
    return int(np.random.SeedSequence((seed, world, episode)).generate_state(1)[0] >> 1)


def parts(num_envs: int, count: int) -> list[range]:
    """The numbers of the worlds, cut into at most `count` ranges of about equal length."""
    edges = np.linspace(0, num_envs, min(count, num_envs) + 1).astype(int).tolist()
    return [range(first, last) for first, last in pairwise(edges)]


def joined(steps: list[Step]) -> Step:
    """The steps of all chunks as one."""
    obs, next_obs, terminated, truncated = (np.concatenate(column) for column in zip(*steps, strict=True))
    return obs, next_obs, terminated, truncated


def cores() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
