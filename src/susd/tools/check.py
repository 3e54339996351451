"""Whether an environment satisfies its contract, and which properties will make learning hard: `susd check ENV`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from susd.config import Config, configure
from susd.envs.base import Environment, EnvSpec, HostEnvironment, HostStep, close, is_environment, missing_members
from susd.envs.vector import is_functional, vectorize
from susd.errors import UserError, format_exception, shown
from susd.runs.progress import short
from susd.runs.tables import Table, format_table
from susd.tools import diagnostics
from susd.tools.bench import measure_env
from susd.training.trainer import build_env

SEED, LONGEST = 7, 200  # of the repeated episodes: their seed, and their largest number of steps
ROUNDING = 1e-5  # by which an observation in float32 may exceed its bounds
SIZE = 64  # pixels of the test image
NUM_ENVS = 8  # of a functional environment that is given as an object


class ContractError(Exception):
    """The contract is violated; the message says where."""


class CheckWarning(Exception):
    """Something that is allowed, but that the user should know."""


def check(env: str | Config | Environment | HostEnvironment, steps: int = 1000, **options: Any) -> dict[str, Any]:
    """Check an environment, given by name, by config or as an object, with `steps` random steps and more.

    `options` are those of `susd.config`, such as `env_options` and `factors`. The result is plain JSON; its `ok` says
    whether the contract holds.
    """
    check_steps(steps)
    if is_environment(env):
        return _check(env, env.spec.name, steps, NUM_ENVS)
    if not isinstance(env, (str, Config)):
        raise UserError(f"{shown(env)} is not an environment, its name or its config: {missing_members(env)}")
    config = configure(env, **options) if isinstance(env, str) else env
    made = build_env(config)
    try:
        return _check(made, config.env, steps, config.episodes, config.horizon)
    finally:
        close(made)


def check_steps(steps: Any) -> None:
    """Refuse numbers of random steps that say nothing or take days."""
    if type(steps) is not int or not 10 <= steps <= 10_000_000:
        raise UserError(f"--steps is {shown(steps)}; it must be an integer from 10 to 10000000")


def _check(env: Environment | HostEnvironment, name: str, steps: int, num_envs: int, horizon: int = 0) -> dict[str, Any]:
    vector, bounds = vectorize(env, num_envs), _declared_bounds(env)
    spec = replace(vector.spec, horizon=horizon or vector.spec.horizon)
    checks = _Checks(vector, spec, bounds)
    facts: dict[str, Any] = {}
    if checks.run("specification", checks.specification) and checks.run("first step", checks.first_step):
        each = max(-(-steps // vector.num_envs), min(spec.horizon, LONGEST))
        random = checks.run("random actions", partial(checks.random_actions, each))
        checks.run("extreme actions", checks.extreme_actions)
        checks.run("equal seeds", checks.equal_seeds)
        checks.run("rendering", checks.rendering)
        if random:
            facts["factors"] = diagnostics.describe_factors(spec, random)
            facts["steps_per_second"] = random.steps_per_second
            if is_functional(env):  # faster in one scan, as in training
                facts["steps_per_second"] = measure_env(env, 0.5)["env_steps_per_second"]
            checks.warnings.extend(diagnostics.find_problems(spec, random, bounds))
    return {
        "env": name,
        "kind": "functional" if is_functional(env) else getattr(env, "kind", "host"),
        "ok": all(line.ok for line in checks.lines),
        "num_envs": vector.num_envs,
        "observations": spec.obs_size,
        "actions": spec.action_size,
        "horizon": spec.horizon,
        **facts,
        "checks": [asdict(line) for line in checks.lines],
        "warnings": checks.warnings,
    }


@dataclass(frozen=True)
class CheckResult:
    """The result of one check."""

    name: str
    ok: bool
    text: str


@dataclass(frozen=True)
class _Checks:
    """The checks of one environment and their results so far. A check returns a sentence and a value."""

    env: HostEnvironment
    spec: EnvSpec  # with the horizon of the check
    bounds: tuple[np.ndarray, np.ndarray] | None  # [S] each, where the environment declares them
    lines: list[CheckResult] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def run(self, name: str, function: Callable[[], tuple[str, Any]]) -> Any:
        """Run one check; its value, or None where the contract is violated."""
        try:
            text, value = function()
        except CheckWarning as warning:
            self.warnings.append(str(warning))
            return None
        except (ContractError, UserError) as error:
            self.lines.append(CheckResult(name, False, str(error)))
            return None
        except Exception as error:  # any exception of a user-defined environment is a result about it
            self.lines.append(CheckResult(name, False, format_exception(error)))
            return None
        self.lines.append(CheckResult(name, True, text))
        return value

    def specification(self) -> tuple[str, bool]:
        """Sizes and indices are consistent. A Factorization checks itself that it is a partition."""
        spec = self.spec
        for name in ("obs_size", "action_size", "horizon"):
            if not isinstance(value := getattr(spec, name), int) or value < 1:
                raise ContractError(f"spec.{name} is {value!r}; it must be an integer from 1 up")
        if spec.factorization.size != spec.obs_size:
            covered = spec.factorization.size
            raise ContractError(f"the factors cover {covered} dimensions, but spec.obs_size is {spec.obs_size}")
        indices = {f"plane {p.name!r}": i for p in spec.planes for i in (p.x, p.y)}
        for what, index in {**indices, **{f"landmark {k!r}": i for k, i in spec.landmarks.items()}}.items():
            if not 0 <= index < spec.obs_size:
                raise ContractError(f"{what} has the index {index}; the observation has 0 to {spec.obs_size - 1}")
        if len(spec.factorization) == 1:
            return f"all {spec.obs_size} observations are in one factor", True
        return f"each of the {spec.obs_size} observations is in one of {len(spec.factorization)} factors", True

    def first_step(self) -> tuple[str, bool]:
        """A reset and a step with the action 0."""
        env = self.env
        self._reset(SEED)
        self._step(np.zeros((env.num_envs, env.spec.action_size), np.float32), 1)
        return f"observations are float32 [{env.num_envs}, {env.spec.obs_size}], the action 0 is accepted", True

    def random_actions(self, steps: int) -> tuple[str, diagnostics.RandomSteps]:
        """Random actions for some episodes, with everything that diagnostics need."""
        env, random = self.env, np.random.default_rng(0)
        starts, rows, seconds = [], [], 0.0
        for step in range(steps):
            if step % self.spec.horizon == 0:
                obs = self._reset(step // self.spec.horizon).copy()
                starts.append(obs)
            actions = random.uniform(-1, 1, (env.num_envs, env.spec.action_size)).astype(np.float32)
            began = time.perf_counter()
            result = self._step(actions, step % self.spec.horizon + 1)
            seconds += time.perf_counter() - began
            rows.append((obs, result.next_obs.copy(), result.terminated.copy(), result.truncated.copy()))
            obs = result.obs.copy()
        before, after, terminated, truncated = (np.stack(column) for column in zip(*rows, strict=True))
        speed = env.num_envs * steps / seconds
        found = diagnostics.RandomSteps(np.concatenate(starts), before, after, terminated, truncated, speed)
        return f"{steps * env.num_envs} steps, all values finite", found

    def extreme_actions(self) -> tuple[str, bool]:
        """Actions at the ends of their range."""
        env, steps = self.env, min(self.spec.horizon, 50)
        signs = np.random.default_rng(1).choice([-1.0, 1.0], (env.spec.action_size,))
        for direction in (np.ones(env.spec.action_size), -np.ones(env.spec.action_size), signs):
            env.reset(SEED)
            for step in range(steps):
                self._step(np.tile(direction, (env.num_envs, 1)).astype(np.float32), step + 1)
        return f"{steps} steps each with all actions at 1, all at -1, and a mixture: all values finite", True

    def equal_seeds(self) -> tuple[str, bool]:
        """Equal seeds and actions give equal episodes; another seed may start elsewhere."""
        env, steps = self.env, min(self.spec.horizon, LONGEST)
        shape = (steps, env.num_envs, env.spec.action_size)
        actions = np.random.default_rng(2).uniform(-1, 1, shape).astype(np.float32)
        one, two = _episode(env, actions), _episode(env, actions)
        for step, (a, b) in enumerate(zip(one, two, strict=True)):
            if not np.array_equal(a, b, equal_nan=True):
                row, index = np.argwhere(a != b)[0]
                raise ContractError(
                    f"two episodes with equal seed and actions differ in step {(step + 1) // 2}: index {index} of "
                    f"environment {row} is {a[row, index]:.9g} and {b[row, index]:.9g}; use only randomness that is seeded "
                    "by reset"
                )
        equal = np.array_equal(one[0], np.asarray(env.reset(SEED + 1)))
        other = "has the same start" if equal else "has another start"
        return f"equal seeds and actions give equal values; another seed {other}", True

    def rendering(self) -> tuple[str, bool]:
        """An image of the requested size."""
        try:
            self.env.reset(SEED)
            image = np.asarray(self.env.render(0, SIZE))
        except UserError as error:
            raise CheckWarning(f"There will be no videos: {str(error).splitlines()[0].rstrip('.')}.") from None
        if image.shape != (SIZE, SIZE, 3) or image.dtype != np.uint8:
            expected = f"uint8 ({SIZE}, {SIZE}, 3)"
            raise ContractError(f"render(size={SIZE}) returned {image.dtype} {image.shape}; it must return {expected}")
        return f"{SIZE} x {SIZE} pixels", True

    def _reset(self, seed: int) -> np.ndarray:
        return self._checked_obs("reset", "the first observation", self.env.reset(seed))

    def _step(self, actions: np.ndarray, step: int) -> HostStep:
        """One step whose results have been checked."""
        result, num_envs = self.env.step(actions), self.env.num_envs
        if not isinstance(result, HostStep):
            raise ContractError(f"step returned a {type(result).__name__}; it must return a HostStep")
        for name in ("next_obs", "obs"):
            self._checked_obs("step", f"{name} of step {step}", getattr(result, name))
        for name in ("terminated", "truncated"):
            flags = getattr(result, name)
            if not isinstance(flags, np.ndarray) or flags.dtype != bool or flags.shape != (num_envs,):
                raise ContractError(f"{name} of step {step} is {flags!r}; it must be an array of {num_envs} bools")
        same = (result.obs == result.next_obs).all(1) | result.terminated | result.truncated
        if not same.all():
            raise ContractError(f"step {step}: environment {np.argmin(same)} did not end, but its obs and next_obs differ")
        return result

    def _checked_obs(self, verb: str, where: str, obs: Any) -> np.ndarray:
        """Observations of the right type and shape, finite and within the bounds."""
        expected = (self.env.num_envs, self.env.spec.obs_size)
        if not isinstance(obs, np.ndarray) or obs.shape != expected or obs.dtype != np.float32:
            given = f"{obs.dtype} {obs.shape}" if isinstance(obs, np.ndarray) else f"a {type(obs).__name__}"
            raise ContractError(f"the observations of {verb} are {given}; they must be float32 {expected}")
        if not np.isfinite(obs).all():
            row, index = np.argwhere(~np.isfinite(obs))[0]
            raise ContractError(f"{where}: environment {row} has {obs[row, index]} at index {index}")
        if self.bounds is not None:
            (low, high), margin = self.bounds, ROUNDING * (1.0 + np.abs(obs))
            outside = (obs < low - margin) | (obs > high + margin)
            if outside.any():
                row, index = np.argwhere(outside)[0]
                raise ContractError(
                    f"{where}: environment {row} has {obs[row, index]:g} at index {index}, but its bounds are "
                    f"{low[index]:g} to {high[index]:g}"
                )
        return obs


def _declared_bounds(env: Environment | HostEnvironment) -> tuple[np.ndarray, np.ndarray] | None:
    """The smallest and largest observation, where an environment has them as `bounds`."""
    bounds = getattr(env, "bounds", None)
    fits = isinstance(bounds, tuple) and [np.shape(bound) for bound in bounds] == 2 * [(env.spec.obs_size,)]
    return bounds if fits else None


def _episode(env: HostEnvironment, actions: np.ndarray) -> list[np.ndarray]:
    """The first observations, then obs and next_obs of every step."""
    found = [np.array(env.reset(SEED))]
    return found + [np.array(array) for action in actions for array in env.step(action)[:2]]


def format_check(result: dict[str, Any]) -> str:
    """The result as text: the factors, then the checks, then the warnings."""
    title = (
        f"{result['env']}: {result['observations']} observations, {result['actions']} actions, episodes of "
        f"{result['horizon']} steps ({result['kind']})"
    )
    lines = [title]
    if "factors" in result:
        columns = ("factor", "dimensions", "min", "max", "mean std", "changing")
        lines = [format_table(Table(title, columns, [_row(factor) for factor in result["factors"]]))]
        lines.append(f"{short(result['steps_per_second'])} steps/s")
    lines += [f"{'PASS' if line['ok'] else 'FAIL'}  {line['name']}: {line['text']}" for line in result["checks"]]
    lines += [f"WARN  {text}" for text in result["warnings"]]
    count = sum(not line["ok"] for line in result["checks"])
    return "\n".join([*lines, f"{count} FAILED" if count else "The contract holds."])


def _row(factor: dict[str, Any]) -> tuple[str, ...]:
    values = (f"{factor[name]:.3g}" for name in ("min", "max", "std"))
    return (factor["name"], str(factor["size"]), *values, f"{factor['changing']:.0%}")
