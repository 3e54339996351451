"""Gymnasium environments stepped as a batch: one after the other, or groups of them in threads. Imports no JAX."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from susd.envs.gymnasium.loader import Source
from susd.envs.gymnasium.spaces import Actions, Observations
from susd.errors import UserError, headline

Step = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # the fields of a HostStep


RESET, STEP = ("observation", "info"), ("observation", "reward", "terminated", "truncated", "info")


class _InvalidReturn(Exception):
    """`reset` or `step` returned something that Gymnasium's interface does not allow."""


class EnvError(UserError):
    """An environment failed. The message names it, the seed and the step, and ends with the traceback of its code."""


class EnvBatch(Protocol):
    """Environments that are stepped together."""

    def reset(self, seed: int) -> np.ndarray:
        """Reset all environments; [W, S]."""

    def step(self, actions: np.ndarray) -> Step:
        """Step all environments by [W, A] in [-1, 1]."""

    def render(self, index: int) -> np.ndarray | None:
        """The frame of one environment, or None if it cannot render."""

    def unwrapped(self, index: int) -> Any:
        """One environment without its wrappers, or None if it is in another process."""

    def close(self) -> None:
        """Close all environments."""


class SequentialEnvs:
    """Some of the environments, stepped one after the other. One that ends resets by itself."""

    def __init__(self, source: Source, indices: range) -> None:
        create = source.creator()
        self._indices, self._source = indices, source
        self._envs: list[Any] = []
        for _ in indices:
            self._envs.append(create())
        self._observations = Observations(self._envs[0].observation_space, source.name)
        self._actions = Actions(self._envs[0].action_space, source.name)
        self._seed, self._steps = 0, 0
        self._episodes = [0] * len(indices)

    def reset(self, seed: int) -> np.ndarray:
        """Reset all, each as a function of the seed and its index alone."""
        self._seed, self._steps = seed, 0
        self._episodes = [0] * len(self._indices)
        return np.stack([self._reset_one(row) for row in range(len(self._indices))])

    def step(self, actions: np.ndarray) -> Step:
        """Step all by [n, A] in [-1, 1]."""
        self._steps += 1
        rows = [self._step_one(row, action) for row, action in enumerate(actions)]
        obs, next_obs, terminated, truncated, rewards = zip(*rows, strict=True)
        ends = np.array(terminated, bool), np.array(truncated, bool)
        return np.stack(obs), np.stack(next_obs), *ends, np.array(rewards, np.float32)

    def render(self, index: int) -> np.ndarray | None:
        """The frame of one environment, or None if it cannot render."""
        row = self._indices.index(index)
        with self._naming(row, "render"):
            frame = self._envs[row].render() if self._envs[row].render_mode == "rgb_array" else None
        return frame if isinstance(frame, np.ndarray) and frame.ndim == 3 else None

    def unwrapped(self, index: int) -> Any:
        """One environment without its wrappers."""
        return self._envs[self._indices.index(index)].unwrapped

    def close(self) -> None:
        """Close all; an environment whose `close` fails does not keep the others open."""
        for env in self._envs:
            with suppress(Exception):
                env.close()

    def _step_one(self, row: int, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool, bool, float]:
        where = f"step {self._steps}"
        with self._naming(row, where):
            returned = self._envs[row].step(self._actions.write(action))
            obs, reward, terminated, truncated, _ = _unpack("step", returned, STEP)
            terminated, truncated, reward = bool(terminated), bool(truncated), _number(reward)
        next_obs = self._read(row, obs, where)
        if not (terminated or truncated):
            return next_obs, next_obs, False, False, reward
        self._episodes[row] += 1
        return self._reset_one(row), next_obs, terminated, truncated, reward

    def _reset_one(self, row: int) -> np.ndarray:
        where = f"the reset after step {self._steps}" if self._steps else "the reset"
        with self._naming(row, where):
            returned = self._envs[row].reset(seed=env_seed(self._seed, self._indices[row], self._episodes[row]))
            obs, _ = _unpack("reset", returned, RESET)
        return self._read(row, obs, where)

    def _read(self, row: int, obs: Any, where: str) -> np.ndarray:
        try:
            return self._observations.read(obs)
        except ValueError as error:
            raise EnvError(
                f"{self._name(row)} returned an invalid observation in {where} {self._seeds(row)}: {error}"
            ) from None

    @contextmanager
    def _naming(self, row: int, where: str) -> Iterator[None]:
        """Name the environment in whatever its code raises."""
        try:
            yield
        except _InvalidReturn as error:
            raise EnvError(f"{self._name(row)} failed in {where} {self._seeds(row)}: {error}") from None
        except (Exception, SystemExit) as error:
            text = "".join(traceback.format_exception(error)).rstrip()
            raise EnvError(f"{self._name(row)} failed in {where} {self._seeds(row)}: {headline(error)}\n{text}") from None

    def _name(self, row: int) -> str:
        return f"environment {self._indices[row]} of {self._source.name}"

    def _seeds(self, row: int) -> str:
        """How to repeat the episode."""
        own = env_seed(self._seed, self._indices[row], self._episodes[row])
        return f"(seed {self._seed}; its episode starts with env.reset(seed={own}))"


def _unpack(verb: str, returned: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    """What `reset` or `step` returned, if it is a tuple of the right length."""
    if not isinstance(returned, tuple) or len(returned) != len(names):
        what = f"a tuple of {len(returned)}" if isinstance(returned, tuple) else f"a {type(returned).__name__}"
        raise _InvalidReturn(f"{verb} returned {what}; Gymnasium's interface is ({', '.join(names)})")
    return returned


def _number(reward: Any) -> float:
    """A reward as a number, NaN where it is none: discovery never uses it, and the task `reward` refuses NaN."""
    if isinstance(reward, (int, float, np.number)):
        return float(reward)
    try:
        array = np.asarray(reward, np.float64)
    except (TypeError, ValueError):
        return np.nan
    return float(array.item()) if array.size == 1 else np.nan


class ThreadedEnvs:
    """Groups of environments in threads of this process; with one thread, in the caller's."""

    def __init__(self, source: Source, num_envs: int, threads: int) -> None:
        self._ranges = split_range(num_envs, threads)
        self._groups = [SequentialEnvs(source, indices) for indices in self._ranges]
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="environments") if len(self._ranges) > 1 else None

    def reset(self, seed: int) -> np.ndarray:
        """Reset all environments; [W, S]."""
        if self._executor is None:
            return self._groups[0].reset(seed)
        return np.concatenate(list(self._executor.map(lambda group: group.reset(seed), self._groups)))

    def step(self, actions: np.ndarray) -> Step:
        """Step all environments by [W, A] in [-1, 1]."""
        if self._executor is None:
            return self._groups[0].step(actions)
        chunks = [actions[indices.start : indices.stop] for indices in self._ranges]
        return join_steps(list(self._executor.map(lambda group, chunk: group.step(chunk), self._groups, chunks)))

    def render(self, index: int) -> np.ndarray | None:
        """The frame of one environment; rendered in the caller's thread, because a GL context belongs to one thread."""
        return self._group(index).render(index)

    def unwrapped(self, index: int) -> Any:
        """One environment without its wrappers."""
        return self._group(index).unwrapped(index)

    def _group(self, index: int) -> SequentialEnvs:
        return next(group for group, indices in zip(self._groups, self._ranges, strict=True) if index in indices)

    def close(self) -> None:
        """End the threads and close all environments."""
        if self._executor is not None:
            self._executor.shutdown()
        for group in self._groups:
            group.close()


def env_seed(seed: int, index: int, episode: int) -> int:
    """The seed of one episode of one environment: a function of the three alone."""
    return int(np.random.SeedSequence((seed, index, episode)).generate_state(1)[0] >> 1)


def split_range(num_envs: int, count: int) -> list[range]:
    """The indices of the environments, split into at most `count` ranges of about equal length."""
    edges = np.linspace(0, num_envs, min(count, num_envs) + 1).astype(int).tolist()
    return [range(first, last) for first, last in pairwise(edges)]


def join_steps(steps: list[Step]) -> Step:
    """The steps of all groups as one."""
    obs, next_obs, terminated, truncated, rewards = (np.concatenate(column) for column in zip(*steps, strict=True))
    return obs, next_obs, terminated, truncated, rewards


def usable_cores() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
