"""How fast this machine is: environment steps, gradient steps compared with the machine's matmul rate, whole epochs.

Times exclude compilation. Things that are compared are measured alternately and compared round by round, so that other
work on the machine affects both equally.
"""

from __future__ import annotations

import dataclasses
import math
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.interpreters.partial_eval import dce_jaxpr

from susd import replay
from susd.config import Config, configure
from susd.envs.base import Environment, HostEnvironment, close
from susd.envs.vector import is_functional
from susd.errors import UserError, shown
from susd.methods.registry import method_options, methods
from susd.runs.folder import describe_machine
from susd.runs.progress import short
from susd.training.resources import check_envs, check_memory
from susd.training.trainer import Trainer, TrainState, build_env, subkey

NUM_ENVS, STEPS = 1024, 100  # of a functional environment: how many, and steps of one scan
MOST_SECONDS, MOST_ENVS = 86_400, 10_000_000
MATMUL = 2048  # large enough that the rate no longer grows with it
_COMPILED = "/jax/core/compile/backend_compile_duration"


def run(what: str, config: Config, seconds: float, num_envs: int | None = None) -> dict[str, Any]:
    """Measure `env`, `update` or `epoch` for about `seconds` after compiling; the result is plain JSON."""
    if what not in _BENCHES:
        raise UserError(f"benchmark {what!r} is unknown; choose one of {', '.join(_BENCHES)}")
    if not 0 < seconds <= MOST_SECONDS:
        raise UserError(f"--seconds is {shown(seconds)}; it must be more than 0, and at most {MOST_SECONDS}")
    if num_envs is not None and what != "env":
        raise UserError(f"--num-envs is {shown(num_envs)}, but it is for `susd bench env`")
    if num_envs is not None and not 1 <= num_envs <= MOST_ENVS:
        raise UserError(f"--num-envs is {shown(num_envs)}; it must be from 1 to {MOST_ENVS}")
    values = _BENCHES[what](config, seconds, num_envs)
    meta = describe_machine(config.to_json(), "")
    del meta["command"]  # it holds paths of this machine, and the config says more
    return {"bench": what, "config": config.to_json(), **meta, **values, "peak_resident_bytes": peak_memory()}


def bench_env(config: Config, seconds: float, num_envs: int | None = None) -> dict[str, Any]:
    """Environment steps per second under uniformly random actions, observations included."""
    env: Any = build_env(config if num_envs is None else dataclasses.replace(config, episodes=num_envs))
    try:
        if is_functional(env):
            check_envs(env, num_envs or NUM_ENVS)
        return measure_env(env, seconds, config.seed, num_envs or NUM_ENVS)
    finally:
        close(env)


def measure_env(
    env: Environment | HostEnvironment, seconds: float, seed: int = 0, num_envs: int = NUM_ENVS
) -> dict[str, Any]:
    """Steps per second of a functional environment in one scan, or of a host environment in whole episodes with resets."""
    with _stopwatch() as compile_seconds:
        if is_functional(env):
            once, steps = _random_scan(env, num_envs, seed), STEPS
        else:
            once, steps, num_envs = _random_episode(env, seed), env.spec.horizon, env.num_envs
        once()
    times = measure({"env": once}, seconds)["env"]
    return {
        "num_envs": num_envs,
        "env_steps_per_second": num_envs * steps / statistics.median(times),
        "env_steps_per_second_best": num_envs * steps / min(times),
        "repetitions": len(times),
        "compile_seconds": compile_seconds[0],
    }


@dataclass(frozen=True)
class _Updates:
    """Gradient steps of one learner, compiled and ready to be timed."""

    run: Callable[[], None]  # takes `steps` gradient steps
    steps: int
    flops: int  # of the matrix products of one step
    flops_xla: float | None
    parameters: int
    compile_seconds: float


def _updates(trainer: Trainer) -> _Updates:
    """Compile the updates of a trainer's learner on replayed batches of its untrained policy."""
    config, learner = trainer.config, trainer.learner
    state = jax.jit(learner.init)(jax.random.key(config.seed))
    buffer = _filled(trainer)
    example = jax.eval_shape(lambda: replay.sample(buffer, jax.random.key(0), config.batch_size))
    flops = matmul_flops(learner.update, state, example, jax.random.key(0))
    steps = max(1, min(config.gradient_steps, round(2e10 / flops)))  # a fraction of a second per call
    parameters = sum(x.size for x in jax.tree.leaves((state.params, state.sac.actor, state.sac.critic)))
    counted = (jax.jit(learner.update).lower(state, example, jax.random.key(0)).cost_analysis() or {}).get("flops")

    def learn(state: Any, key: jax.Array) -> Any:
        return learner.learn(state, buffer, key, steps, jnp.bool_(True))[0]

    with _stopwatch() as compile_seconds:
        compiled = jax.jit(learn, donate_argnums=0).lower(state, jax.random.key(0)).compile()

    def run() -> None:
        nonlocal state
        state = jax.block_until_ready(compiled(state, jax.random.key(1)))

    return _Updates(run, steps, flops, counted, parameters, compile_seconds[0])


def bench_update(config: Config, seconds: float, num_envs: int | None = None) -> dict[str, Any]:
    """Gradient steps per second on replayed batches, and their FLOP/s as a share of those of a large matmul."""
    del num_envs
    if config.seeds > 1:
        raise UserError(f"--seeds is {config.seeds}, but `update` measures one agent; `susd bench epoch` measures several")
    trainer = Trainer.build(config)
    check_memory(trainer)
    updates = _updates(trainer)
    flops, steps = updates.flops, updates.steps
    kinds = ["float32", *(["bfloat16"] if config.precision == "bfloat16" else [])]
    times = measure({"update": updates.run, **{kind: matmul(kind, MATMUL) for kind in kinds}}, seconds)
    result: dict[str, Any] = {
        "gradient_steps_per_second": steps / statistics.median(times["update"]),
        "gradient_steps_per_second_best": steps / min(times["update"]),
        "flops_per_update": flops,
        "flops_per_update_xla": updates.flops_xla,
        "flops_per_second": flops * steps / statistics.median(times["update"]),
        "parameters": updates.parameters,
        "repetitions": len(times["update"]),
        "steps_per_repetition": steps,
        "compile_seconds": updates.compile_seconds,
    }
    for kind in kinds:
        rates = [2 * MATMUL**3 / t for t in times[kind]]
        shares = [flops * steps / t / rate for t, rate in zip(times["update"], rates, strict=True)]
        result[f"matmul_{kind}_flops_per_second"] = statistics.median(rates)
        result[f"matmul_{kind}_flops_per_second_best"] = max(rates)
        result[f"share_of_matmul_{kind}"] = statistics.median(shares)
    return result


def bench_methods(config: Config, seconds: float, num_envs: int | None = None) -> dict[str, Any]:
    """Gradient steps per second of every method: time and FLOPs of one step compared with those of SUSD."""
    del num_envs
    preset = configure(config.env, config.preset, method=config.method).to_json()
    changes = {k: v for k, v in config.to_json().items() if v != preset.get(k)}
    for name in sorted(changes.keys() & (method_options() | {"seeds"})):
        what = "it measures one agent of each method" if name == "seeds" else "not all methods have it"
        raise UserError(
            f"--{name.replace('_', '-')} is {changes[name]!r}, but {what}; leave it out of `susd bench methods`"
        )
    configs = {
        name: configure(**{**changes, "env": config.env, "preset": config.preset, "method": name}) for name in methods()
    }
    trainers = {name: Trainer.build(one) for name, one in configs.items()}  # all first, so that errors come at once
    for trainer in trainers.values():
        check_memory(trainer)
    updates = {name: _updates(trainer) for name, trainer in trainers.items()}
    times = measure({name: one.run for name, one in updates.items()}, seconds)
    per_step = {name: [t / updates[name].steps for t in times[name]] for name in updates}
    measured = {
        name: {
            "gradient_steps_per_second": 1 / statistics.median(per_step[name]),
            "flops_per_update": one.flops,
            "time_of_susd": statistics.median(a / b for a, b in zip(per_step[name], per_step["susd"], strict=True)),
            "flops_of_susd": one.flops / updates["susd"].flops,
            "parameters": one.parameters,
        }
        for name, one in updates.items()
    }
    return {"methods": measured, "repetitions": len(times["susd"])}


def bench_epoch(config: Config, seconds: float, num_envs: int | None = None) -> dict[str, Any]:
    """Whole epochs of `susd train`, collection and learning, per second."""
    del num_envs
    trainer = Trainer.build(config)
    check_memory(trainer)
    with _stopwatch() as compile_seconds:
        trainer.compile()
    # Epochs counted from the end of the warm-up all learn, without collecting the warm-up first.
    state, epoch = trainer.start(), max(trainer.warmup_epochs, 0)
    state = jax.block_until_ready(trainer.run_epoch(state, epoch))[0]

    def once() -> None:
        nonlocal state, epoch
        epoch += 1
        state = jax.block_until_ready(trainer.run_epoch(state, epoch))[0]

    with _count_compilations() as compilations:
        times = measure({"epoch": once}, seconds, least=2)["epoch"]
    rate = config.seeds / statistics.median(times)
    return {
        "epochs_per_second": rate,
        "epoch_seconds": statistics.median(times),
        "epoch_seconds_best": min(times),
        "env_steps_per_second": rate * trainer.chunk,
        "gradient_steps_per_second": rate * config.gradient_steps,
        "repetitions": len(times),
        "compile_seconds": compile_seconds[0],
        "compilations_after_first_epoch": len(compilations),
        "replay_bytes": trainer.replay_bytes(),
    }


_BENCHES: dict[str, Callable[[Config, float, int | None], dict[str, Any]]] = {
    "env": bench_env,
    "update": bench_update,
    "epoch": bench_epoch,
    "methods": bench_methods,
}


def measure(functions: dict[str, Callable[[], Any]], seconds: float, least: int = 3) -> dict[str, list[float]]:
    """Call all functions alternately for that long, each at least `least` times; the seconds of every call."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    began = time.perf_counter()
    rounds = 0
    while rounds < least or time.perf_counter() - began < seconds:
        for name, function in functions.items():
            started = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - started)
        rounds += 1
    return times


def matmul(kind: str, size: int) -> Callable[[], Any]:
    """A compiled product of two square matrices, `float32` or `bfloat16` with float32 accumulation; 2 size^3 FLOPs."""
    matrix = jax.random.normal(jax.random.key(0), (size, size)).astype(kind)
    product = jax.jit(lambda a: jnp.matmul(a, a, preferred_element_type=jnp.float32))
    jax.block_until_ready(product(matrix))
    return lambda: jax.block_until_ready(product(matrix))


def matmul_flops(function: Callable[..., Any], *arguments: Any) -> int:
    """FLOPs of all matrix products of a function, two per multiplication and addition, from the shapes alone."""
    jaxpr = jax.make_jaxpr(function)(*arguments).jaxpr
    # Unused products are in the jaxpr, for instance those of a gradient written by hand, but they never run.
    return _count(dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[0])


def _count(jaxpr: Jaxpr) -> int:
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            length = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)  # type: ignore[attr-defined]
            total += 2 * length * math.prod(equation.outvars[0].aval.shape)  # type: ignore[attr-defined]
        inner = [_count(sub) for sub in _inner(equation.params)]
        if equation.primitive.name == "cond":  # one branch runs
            total += max(inner)
        else:
            total += sum(inner) * (equation.params["length"] if equation.primitive.name == "scan" else 1)
    return total


def _inner(params: dict[str, Any]) -> Iterator[Jaxpr]:
    for value in params.values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, Jaxpr):
                yield item


def _random_episode(env: HostEnvironment, seed: int) -> Callable[[], None]:
    """One episode of random actions, with the reset."""
    random, shape = np.random.default_rng(seed), (env.num_envs, env.spec.action_size)

    def once() -> None:
        env.reset(int(random.integers(2**31)))
        for _ in range(env.spec.horizon):
            env.step(random.uniform(-1.0, 1.0, shape).astype(np.float32))

    return once


def _random_scan(env: Environment, num_envs: int, seed: int) -> Callable[[], None]:
    """STEPS random steps, compiled as one scan over the state and the last observations."""
    observe = jax.vmap(env.observe)

    def start(key: jax.Array) -> Any:
        state = jax.vmap(env.reset)(jax.random.split(key, num_envs))
        return state, observe(state)

    def one(carry: Any, key: jax.Array) -> tuple[Any, None]:
        k_action, k_env = jax.random.split(key)
        action = jax.random.uniform(k_action, (num_envs, env.spec.action_size), minval=-1.0, maxval=1.0)
        state = jax.vmap(env.step)(carry[0], action, jax.random.split(k_env, num_envs))
        return (state, observe(state)), None

    def advance(carry: Any, key: jax.Array) -> Any:
        return jax.lax.scan(one, carry, jax.random.split(key, STEPS))[0]

    carry = jax.jit(start)(jax.random.key(seed))
    compiled = jax.jit(advance, donate_argnums=0)

    def once() -> None:
        nonlocal carry
        carry = jax.block_until_ready(compiled(carry, jax.random.key(1)))

    return once


def _filled(trainer: Trainer) -> replay.Replay:
    """A small full replay of transitions of the untrained policy."""
    spec, copies = trainer.env.spec, max(1, 10_000 // trainer.chunk)
    if not is_functional(trainer.env):
        state, key = jax.jit(trainer.init)(jnp.int32(trainer.config.seed)), jax.random.key(trainer.config.seed)
        buffer = replay.init(copies * trainer.chunk, spec.obs_size, spec.action_size, trainer.learner.method.skills.size)
        policy = trainer.policy(state.learner.sac.actor)
        for copy in range(copies):
            buffer = replay.add(buffer, trainer.collect_host(policy, jax.random.fold_in(key, copy))[0])
        return buffer

    def fill(key: jax.Array) -> replay.Replay:
        empty = replay.init(copies * trainer.chunk, spec.obs_size, spec.action_size, trainer.learner.method.skills.size)
        state = TrainState(trainer.learner.init(key), empty, jax.random.key_data(subkey(key, "bench")))
        rows = jax.lax.map(lambda epoch: trainer.collect(state, epoch), jnp.arange(copies))
        return replay.add(empty, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows))

    filled: replay.Replay = jax.jit(fill)(jax.random.key(trainer.config.seed))
    return filled


def peak_memory() -> int:
    """The peak resident memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@contextmanager
def _stopwatch() -> Iterator[list[float]]:
    seconds: list[float] = []
    started = time.perf_counter()
    yield seconds
    seconds.append(time.perf_counter() - started)


@contextmanager
def _count_compilations() -> Iterator[list[float]]:
    """The seconds of every compilation inside the context."""
    seen: list[float] = []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == _COMPILED:
            seen.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield seen
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


_ROWS: tuple[tuple[str, str, str], ...] = (  # key, name, unit
    ("env_steps_per_second", "environment steps", "/s"),
    ("epochs_per_second", "epochs", "/s"),
    ("gradient_steps_per_second", "gradient steps", "/s"),
    ("flops_per_update", "matmul FLOPs per update", ""),
    ("flops_per_update_xla", "FLOPs per update, by XLA's count", ""),
    ("flops_per_second", "FLOP/s of the update", ""),
    ("matmul_float32_flops_per_second", f"FLOP/s of a {MATMUL} x {MATMUL} matmul, float32", ""),
    ("matmul_bfloat16_flops_per_second", f"FLOP/s of a {MATMUL} x {MATMUL} matmul, bfloat16", ""),
    ("parameters", "parameters", ""),
    ("repetitions", "repetitions", ""),
    ("compile_seconds", "compiling", " s"),
    ("compilations_after_first_epoch", "compilations after the first epoch", ""),
    ("peak_resident_bytes", "peak resident memory", "B"),
)


def format_bench(result: dict[str, Any]) -> str:
    """The result as text; medians over the repetitions."""
    config, device = result["config"], result["device"]
    subject = f"{config['method']}, preset {config['preset']}"
    if "num_envs" in result:
        subject = f"{result['num_envs']} parallel environments"
    if "methods" in result:
        subject = f"preset {config['preset']}"
    lines = [f"{result['bench']} {config['env']}, {subject}; {device['kind']} x {device['count']}, {result['cpus']} CPUs"]
    rows = [(text, short(result[key]) + unit) for key, text, unit in _ROWS if result.get(key) is not None]
    for kind in ("float32", "bfloat16"):
        if (share := result.get(f"share_of_matmul_{kind}")) is not None:
            rows.append((f"share of the {kind} matmul rate", f"{100 * share:.0f} %"))
    for name, one in result.get("methods", {}).items():
        ratios = f"{one['time_of_susd']:.2f} x the time and {one['flops_of_susd']:.2f} x the FLOPs of susd"
        rows.append((f"{name}: {ratios}", short(one["gradient_steps_per_second"]) + "/s"))
    return "\n".join([*lines, *(f"  {text:<60}{value:>10}" for text, value in rows)])
