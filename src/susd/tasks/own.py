"""Tasks of the user: the environment's own reward, a class or factory of FILE.py:NAME, and the check of any task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from susd.envs.base import Environment, HostEnvironment, HostStep
from susd.envs.vector import is_functional
from susd.errors import UserError, format_exception
from susd.plugins import stdout_to_stderr
from susd.tasks.base import BaseTask, HostTask, Task, TaskState

AnyEnv = Environment | HostEnvironment
AnyTask = Task | HostTask


class FunctionalReward(Task):
    """The reward that a functional environment defines itself: its method `reward(state, action, next_state)`."""

    terminal = False
    completable = False
    random_episodes = True

    @property
    def horizon(self) -> int:  # type: ignore[override]
        """That of the environment."""
        return self.environment.spec.horizon

    def step_parts(self, state: Any, action: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
        """Unlike other rewards this one may depend on the action."""
        env_state = self.environment.step(state.env_state, action, jax.random.split(key)[0])
        reward = self.env.reward(state.env_state, action, env_state)
        return TaskState(env_state, state.steps + 1), jnp.asarray(reward, jnp.float32)[None]


class HostReward(HostTask):
    """The reward that the steps of a host environment return, such as that of a Gymnasium environment."""

    terminal = False
    completable = False
    random_episodes = True

    @property
    def horizon(self) -> int:  # type: ignore[override]
        """That of the environment."""
        return self.environment.spec.horizon

    def reward(self, step: HostStep) -> np.ndarray:
        """[W] as the environment returned it."""
        if step.reward is None:
            raise _no_reward(self.environment)
        if not np.isfinite(step.reward).all():
            bad = step.reward[~np.isfinite(step.reward)][0]
            raise UserError(f"the reward of {self.environment.spec.name} is {bad}; it must be a finite number")
        return step.reward


def environment_reward(name: str, env: AnyEnv) -> AnyTask:
    """The task `reward` in an environment."""
    if not is_functional(env):
        return HostReward(name, env)
    if not callable(getattr(env, "reward", None)):
        raise _no_reward(env)
    return FunctionalReward(name, env)


def _no_reward(env: AnyEnv) -> UserError:
    how = "a method reward(state, action, next_state)" if is_functional(env) else "steps that return a reward"
    return UserError(f"{env.spec.name} has no reward of its own: that needs {how}; a task of yours is --task FILE.py:NAME")


def check_source(what: str, source: Any) -> None:
    """Refuse what cannot make a task, before there is an environment: the members that a class lacks are named."""
    if not callable(source):
        raise UserError(
            f"{what} is a {type(source).__name__}; it must be a susd.extend.TaskEntry, a subclass of Task or HostTask, "
            "or a function that makes a task for an environment"
        )
    if isinstance(source, type):
        if not issubclass(source, Task | HostTask):
            raise UserError(f"{what} is a class, but not a subclass of susd.extend.Task or susd.extend.HostTask")
        _check_class(what, source)


def _check_class(what: str, cls: type) -> None:
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if issubclass(cls, Task) and all(
        getattr(cls, name) is getattr(Task, name) for name in ("reward", "score", "step_parts")
    ):
        missing.append("reward")
    if missing:
        needs = "reward(env_state)" if issubclass(cls, Task) else "reward(step)"
        raise UserError(f"task {what} lacks the member {missing[0]!r}; a task needs `horizon` and `{needs}`")


def build_task(source: Callable[..., Any], name: str, env: AnyEnv) -> AnyTask:
    """The task that a class or a factory of the user makes for an environment."""
    try:
        with stdout_to_stderr():
            made = source(name, env) if isinstance(source, type) else source(env)
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"task {name!r} cannot be made for {env.spec.name}: {format_exception(error)}") from error
    if not isinstance(made, Task | HostTask):
        raise UserError(f"{name} makes a {type(made).__name__}; it must make a susd.extend.Task or susd.extend.HostTask")
    return made


def check_task(task: AnyTask) -> None:
    """Make one reset and one step, and refuse a task that breaks its contract; the error names the member."""
    env: AnyEnv = task.environment
    if (functional := is_functional(env)) != isinstance(task, Task):
        mine, theirs, needed = ("HostTask", "functional", "Task") if functional else ("Task", "host", "HostTask")
        raise UserError(
            f"task {task.name!r} is a {mine}, but {env.spec.name} is a {theirs} environment; make it a subclass of {needed}"
        )
    _check_class(repr(task.name), type(task))
    _check_sizes(task)
    if isinstance(task, Task):
        _check_functional(task)
    else:
        _check_host(task)


def _check_sizes(task: AnyTask) -> None:
    """The members that are data."""
    size = task.environment.spec.obs_size
    horizon: Any = getattr(task, "horizon", None)
    extra_size = task.extra_size
    if not _is_integer(horizon) or horizon < 1:
        raise _refusal(task, "horizon", f"is {horizon!r}; it must be an integer above zero, the steps of an episode")
    if not _is_integer(extra_size) or extra_size < 0:
        raise _refusal(task, "extra_size", f"is {extra_size!r}; it must be an integer from 0 up")
    if (task.parts is None) != (not len(task.part_of)):
        one, other = ("parts", "part_of") if task.parts is None else ("part_of", "parts")
        raise _refusal(task, one, f"is missing; a task that has `{other}` needs it")
    for member, lowest in (("part_of", 0), ("extra_of", -1)):
        for index in getattr(task, member):
            if not _is_integer(index) or not lowest <= index < size:
                raise _refusal(task, member, f"has {index!r}; allowed are integers from {lowest} to {size - 1}")
    if len(task.extra_of) != extra_size:
        raise _refusal(
            task, "extra_of", f"has {len(task.extra_of)} entries; it must have extra_size, which is {extra_size}"
        )
    if task.best is not None:
        _check_array(task, "best", task.best, (horizon,))


def _check_functional(task: Task) -> None:
    """Compiled, as training does it; each member alone, so that the error can name it."""
    key, action = jax.random.key(0), jnp.zeros(task.environment.spec.action_size)
    state = _call(task, "begin", jax.jit(task.reset), key)
    for name in ("env_state", "steps"):
        if not hasattr(state, name):
            raise _refusal(task, "begin", f"gives a {type(state).__name__}; the state of a task has the field {name!r}")
    _check_array(task, "extra", _call(task, "extra", jax.jit(task.extra), state), (task.extra_size,))
    if type(task).step_parts is Task.step_parts:
        reached = jax.jit(task.environment.step)(state.env_state, action, key)
        member = "reward" if type(task).score is Task.score else "score"
        scored = _call(task, member, jax.jit(task.score), state, reached, key)
        if not isinstance(scored, tuple) or len(scored) != 2:
            raise _refusal(task, member, f"gives a {type(scored).__name__}; it must give the next state and the reward")
        _check_array(task, member, scored[1], ())
        if task.parts is not None:
            parts = _call(task, "parts", jax.jit(task.parts), state, reached)
            _check_array(task, "parts", parts, (len(task.part_of),))
    after, rewards = _call(task, "reward", jax.jit(task.step_parts), state, action, key)
    _check_array(task, "reward", rewards, (1 + len(task.part_of),))
    if _structure(state) != _structure(after):
        raise _refusal(task, "score", "gives a state with other fields, shapes or types than `begin`; they must be equal")
    if task.success is not None:
        _check_array(task, "success", _call(task, "success", jax.jit(task.success), after), ())
    if task.expert is not None:
        _check_array(task, "expert", _call(task, "expert", jax.jit(task.expert), state), action.shape)


def _structure(state: Any) -> tuple[Any, ...]:
    leaves, tree = jax.tree.flatten(state)
    return tree, [(leaf.shape, leaf.dtype) for leaf in leaves]


def _check_host(task: HostTask) -> None:
    env = task.environment
    shape = (env.num_envs, env.spec.action_size)
    env.reset(0)
    _call(task, "begin", task.begin)
    _check_array(task, "extra", _call(task, "extra", task.extra), (env.num_envs, task.extra_size))
    if task.expert is not None:
        _check_array(task, "expert", _call(task, "expert", task.expert), shape)
    step = env.step(np.zeros(shape, np.float32))
    _check_array(task, "reward", _call(task, "reward", task.reward, step), (env.num_envs,))
    if task.parts is not None:
        _check_array(task, "parts", _call(task, "parts", task.parts, step), (env.num_envs, len(task.part_of)))
    if task.success is not None:
        _check_array(task, "success", _call(task, "success", task.success, step), (env.num_envs,))


def _call(task: BaseTask, member: str, function: Callable[..., Any], *arguments: Any) -> Any:
    with _naming(task, member), stdout_to_stderr():
        return function(*arguments)


@contextmanager
def _naming(task: BaseTask, member: str) -> Iterator[None]:
    """Name the task and its member in whatever its code raises."""
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise _refusal(task, member, f"failed: {format_exception(error)}") from error


def _check_array(task: BaseTask, member: str, value: Any, shape: Sequence[int]) -> None:
    """Refuse what is not an array of finite numbers with this shape."""
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise _refusal(task, member, f"gives a {type(value).__name__}; it must give an array of numbers") from None
    if array.shape != tuple(shape):
        raise _refusal(task, member, f"gives an array of shape {array.shape}; it must be {tuple(shape)}")
    if not np.isfinite(array).all():
        raise _refusal(task, member, f"gives {array[~np.isfinite(array)][0]}; it must be finite")


def _refusal(task: BaseTask, member: str, what: str) -> UserError:
    return UserError(f"task {task.name!r}: `{member}` {what}")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
