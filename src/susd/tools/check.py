"""Whether an environment keeps its contract, and what of it will make learning hard: `susd check ENV`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from susd.config import Config
from susd.envs.base import Environment, EnvSpec, HostEnvironment, HostStep
from susd.envs.gymnasium.adapter import GymnasiumWorlds
from susd.errors import UserError, format_exception
from susd.runs.progress import short
from susd.tools import bench
from susd.tools import diagnostics as advice
from susd.training.build import build_env

SEED, LONG = 7, 200  # of the repeated episodes: their seed, and how many steps they have at most
ROUNDING = 1e-5  # by which an observation in float32 may miss its bounds
SIZE = 64  # pixels of the test picture


class Broken(Exception):
    """The contract does not hold; the message says where."""


class Line(NamedTuple):
    """One thing that was looked at."""

    name: str
    ok: bool
    text: str


def check(config: Config, steps: int = 1000) -> dict[str, Any]:
    """Try the environment of a config with `steps` random steps and more; the result is plain JSON."""
    if not 10 <= steps <= 10_000_000:
        raise UserError(f"--steps is {steps}; it must be from 10 to 10000000")
    env = build_env(config)
    num_envs: HostEnvironment = env if isinstance(env, HostEnvironment) else _Compiled(env, config.episodes)
    tried = _Tried([], [])
    facts: dict[str, Any] = {}
    if tried.do("specification", partial(_specification, num_envs.spec)) and tried.do(
        "first step", partial(_first, num_envs)
    ):
        each = max(-(-steps // num_envs.num_envs), min(num_envs.spec.horizon, LONG))
        walk = tried.do("random actions", partial(_random, num_envs, each))
        tried.do("extreme actions", partial(_extremes, num_envs))
        tried.do("equal seeds", partial(_seeds, num_envs))
        tried.do("picture", partial(_picture, num_envs))
        if walk:
            facts["factors"] = advice.factors(num_envs.spec, walk)
            speed = walk.steps_per_second
            facts["steps_per_second"] = (
                bench.bench_env(config, 0.5)["env_steps_per_second"] if env is not num_envs else speed
            )
            tried.warnings.extend(advice.warnings(num_envs.spec, walk))
    kind = "Gymnasium" if isinstance(env, GymnasiumWorlds) else "functional" if env is not num_envs else "host"
    return {
        "env": config.env,
        "kind": kind,
        "ok": all(line.ok for line in tried.lines),
        "num_envs": num_envs.num_envs,
        "observations": num_envs.spec.obs_size,
        "actions": num_envs.spec.action_size,
        "horizon": num_envs.spec.horizon,
        **facts,
        "checks": [line._asdict() for line in tried.lines],
        "warnings": tried.warnings,
    }


@dataclass(frozen=True)
class _Tried:
    """What was looked at so far."""

    lines: list[Line]
    warnings: list[str]

    def do(self, name: str, look: Callable[[], tuple[str, Any]]) -> Any:
        """Look at one thing; what it gives besides its sentence, or None where the contract does not hold."""
        try:
            text, result = look()
        except advice.Warned as warning:
            self.warnings.append(str(warning))
            return None
        except (Broken, UserError) as error:
            self.lines.append(Line(name, False, str(error)))
            return None
        except Exception as error:  # whatever somebody's environment raises is a finding about it
            self.lines.append(Line(name, False, format_exception(error)))
            return None
        self.lines.append(Line(name, True, text))
        return result


class _Compiled:
    """A functional environment as host worlds, so that all kinds are looked at alike."""

    def __init__(self, env: Environment, num_envs: int) -> None:
        self._env, self._num_envs = env, num_envs
        self._reset, self._step, self._observe = (jax.jit(jax.vmap(f)) for f in (env.reset, env.step, env.observe))
        self._state, self._key = None, jax.random.key(0)

    @property
    def spec(self) -> EnvSpec:
        return self._env.spec

    @property
    def num_envs(self) -> int:
        return self._num_envs

    def reset(self, seed: int) -> np.ndarray:
        self._key, key = jax.random.split(jax.random.key(seed))
        self._state = self._reset(jax.random.split(key, self._num_envs))
        return np.asarray(self._observe(self._state))

    def step(self, actions: np.ndarray) -> HostStep:
        self._key, key = jax.random.split(self._key)
        self._state = self._step(self._state, np.asarray(actions, np.float32), jax.random.split(key, self._num_envs))
        obs, never = np.asarray(self._observe(self._state)), np.zeros(self._num_envs, bool)
        return HostStep(obs, obs, never, never)

    def render(self, world: int = 0, size: int = 400) -> np.ndarray:
        return self._env.render(jax.tree.map(lambda x: x[world], self._state), size)


def _specification(spec: EnvSpec) -> tuple[str, bool]:
    """Sizes and indices fit each other. That factors are a partition is checked where a Factorization is made."""
    for name in ("obs_size", "action_size", "horizon"):
        if not isinstance(value := getattr(spec, name), int) or value < 1:
            raise Broken(f"spec.{name} is {value!r}; it must be a whole number from 1 up")
    if spec.factorization.size != spec.obs_size:
        raise Broken(f"the factors cover {spec.factorization.size} numbers, but spec.obs_size is {spec.obs_size}")
    named = {f"plane {p.name!r}": i for p in spec.planes for i in (p.x, p.y)}
    for what, index in {**named, **{f"landmark {k!r}": i for k, i in spec.landmarks.items()}}.items():
        if not 0 <= index < spec.obs_size:
            raise Broken(f"{what} has the index {index}; the observation has 0 to {spec.obs_size - 1}")
    return f"every one of {spec.obs_size} observations is in one of {len(spec.factorization)} factors", True


def _first(env: HostEnvironment) -> tuple[str, bool]:
    _fits(env, "the first observation", _obs(env, "reset", env.reset(SEED)))
    _step(env, np.zeros((env.num_envs, env.spec.action_size), np.float32), 1)
    return f"observations are float32 [{env.num_envs}, {env.spec.obs_size}], the action 0 is taken", True


def _random(env: HostEnvironment, steps: int) -> tuple[str, advice.Walk]:
    """Random actions for some episodes, with all that is needed to judge the observations."""
    random = np.random.default_rng(0)
    starts, rows, seconds = [], [], 0.0
    for step in range(steps):
        if step % env.spec.horizon == 0:
            obs = _obs(env, "reset", env.reset(step // env.spec.horizon)).copy()
            _fits(env, "the first observation", obs)
            starts.append(obs)
        actions = random.uniform(-1, 1, (env.num_envs, env.spec.action_size)).astype(np.float32)
        began = time.perf_counter()
        result = _step(env, actions, step % env.spec.horizon + 1)
        seconds += time.perf_counter() - began
        rows.append((obs, result.next_obs.copy(), result.terminated.copy(), result.truncated.copy()))
        obs = result.obs.copy()
    before, after, terminated, truncated = (np.stack(column) for column in zip(*rows, strict=True))
    walk = advice.Walk(np.concatenate(starts), before, after, terminated, truncated, env.num_envs * steps / seconds)
    return f"{steps * env.num_envs} steps, all numbers finite", walk


def _extremes(env: HostEnvironment) -> tuple[str, bool]:
    steps = min(env.spec.horizon, 50)
    signs = np.random.default_rng(1).choice([-1.0, 1.0], (env.spec.action_size,))
    for direction in (np.ones(env.spec.action_size), -np.ones(env.spec.action_size), signs):
        env.reset(SEED)
        for step in range(steps):
            _step(env, np.tile(direction, (env.num_envs, 1)).astype(np.float32), step + 1)
    return f"{steps} steps each with all actions at 1, at -1, and some at each: all numbers finite", True


def _seeds(env: HostEnvironment) -> tuple[str, bool]:
    """Two equal episodes from one seed; another seed may start elsewhere."""
    steps = min(env.spec.horizon, LONG)
    actions = np.random.default_rng(2).uniform(-1, 1, (steps, env.num_envs, env.spec.action_size)).astype(np.float32)
    one, two = _episode(env, actions), _episode(env, actions)
    for step, (a, b) in enumerate(zip(one, two, strict=True)):
        if not np.array_equal(a, b, equal_nan=True):
            world, index = np.argwhere(a != b)[0]
            raise Broken(
                f"two episodes with equal seed and actions differ in step {(step + 1) // 2}: world {world}, index {index} "
                f"is {a[world, index]:.9g} and {b[world, index]:.9g}; draw all that is random from the seed of reset"
            )
    other = np.asarray(env.reset(SEED + 1))
    where = "starts alike" if np.array_equal(one[0], other) else "starts elsewhere"
    return f"equal seeds and actions give equal numbers; another seed {where}", True


def _episode(env: HostEnvironment, actions: np.ndarray) -> list[np.ndarray]:
    found = [np.array(env.reset(SEED))]
    return found + [np.array(array) for action in actions for array in env.step(action)[:2]]


def _picture(env: HostEnvironment) -> tuple[str, bool]:
    try:
        env.reset(SEED)
        picture = np.asarray(env.render(0, SIZE))
    except UserError as error:
        raise advice.Warned(f"There will be no videos: {str(error).splitlines()[0].rstrip('.')}.") from None
    if picture.shape != (SIZE, SIZE, 3) or picture.dtype != np.uint8:
        raise Broken(f"render(size={SIZE}) gave {picture.dtype} {picture.shape}; it must be uint8 ({SIZE}, {SIZE}, 3)")
    return f"drawn, {SIZE} x {SIZE}", True


def _step(env: HostEnvironment, actions: np.ndarray, step: int) -> HostStep:
    """One step whose results have been looked at."""
    result = env.step(actions)
    if not isinstance(result, HostStep):
        raise Broken(f"step gave a {type(result).__name__}; it must give a HostStep")
    for name in ("next_obs", "obs"):
        _fits(env, f"{name} of step {step}", _obs(env, "step", getattr(result, name)))
    for name in ("terminated", "truncated"):
        flags = getattr(result, name)
        if not isinstance(flags, np.ndarray) or flags.dtype != bool or flags.shape != (env.num_envs,):
            raise Broken(f"{name} of step {step} is {flags!r}; it must be an array of {env.num_envs} bools")
    same = (result.obs == result.next_obs).all(1) | result.terminated | result.truncated
    if not same.all():
        raise Broken(f"step {step}: world {np.argmin(same)} did not end, but its obs and next_obs differ")
    return result


def _obs(env: HostEnvironment, verb: str, value: Any) -> np.ndarray:
    expected = (env.num_envs, env.spec.obs_size)
    if not isinstance(value, np.ndarray) or value.shape != expected or value.dtype != np.float32:
        given = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
        raise Broken(f"the observations of {verb} are {given}; they must be float32 {expected}")
    return value


def _fits(env: HostEnvironment, where: str, obs: np.ndarray) -> None:
    if not np.isfinite(obs).all():
        world, index = np.argwhere(~np.isfinite(obs))[0]
        raise Broken(f"{where}: world {world} has {obs[world, index]} at index {index}")
    if isinstance(env, GymnasiumWorlds):
        room = ROUNDING * (1.0 + np.abs(obs))
        outside = (obs < env.low - room) | (obs > env.high + room)
        if outside.any():
            world, index = np.argwhere(outside)[0]
            bounds = f"{env.low[index]:g} to {env.high[index]:g}"
            raise Broken(
                f"{where}: world {world} has {obs[world, index]:g} at index {index}, but its space goes from {bounds}"
            )


def table(result: dict[str, Any]) -> str:
    """The result for people: the factors, what holds, then the warnings."""
    lines = [
        f"{result['env']}: {result['observations']} observations, {result['actions']} actions, episodes of "
        f"{result['horizon']} steps ({result['kind']})"
    ]
    if "factors" in result:
        head = ("factor", "numbers", "min", "max", "mean std", "changing")
        rows = [head, *(_row(factor) for factor in result["factors"])]
        widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
        lines += ["  " + "  ".join(f"{c:{w}}" for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        lines.append(f"{short(result['steps_per_second'])} steps/s")
    lines += [f"{'PASS' if line['ok'] else 'FAIL'}  {line['name']}: {line['text']}" for line in result["checks"]]
    lines += [f"WARN  {text}" for text in result["warnings"]]
    count = sum(not line["ok"] for line in result["checks"])
    return "\n".join([*lines, f"{count} FAILED" if count else "The contract holds."])


def _row(factor: dict[str, Any]) -> tuple[str, ...]:
    numbers = (f"{factor[name]:.3g}" for name in ("min", "max", "std"))
    return (factor["name"], str(factor["size"]), *numbers, f"{factor['changing']:.0%}")
