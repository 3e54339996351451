"""Whether susd will run well on this machine: device, versions, memory, tools, a short benchmark."""

from __future__ import annotations

import importlib.metadata
import os
import statistics
from pathlib import Path
from typing import Any

import jax

from susd.config import Config
from susd.errors import UserError
from susd.runs.folder import describe_machine
from susd.runs.progress import short
from susd.tools import bench
from susd.training.compiler import use_compilation_cache
from susd.training.devices import ONE, Devices, usable_cores
from susd.training.resources import available_memory, describe_devices, device_bytes, state_bytes, traffic_bytes
from susd.training.trainer import Trainer

OPTIONAL = {  # package -> the extra that installs it
    "numba": "fast",
    "tensorboardX": "tensorboard",
    "wandb": "wandb",
    "onnx": "export",
    "minari": "data",
}
_FAST_BF16 = ("avx512_bf16", "amx_bf16", "amx_tile")


def examine(config: Config, devices: Devices = ONE) -> dict[str, Any]:
    """Everything about this machine that matters for a run of this config on these devices; takes some seconds."""
    trainer = Trainer.build(config, devices=devices)
    use_compilation_cache()
    cache = Path(str(jax.config.jax_compilation_cache_dir))  # type: ignore[attr-defined]
    meta = describe_machine(config.to_json(), "")
    result: dict[str, Any] = {
        "config": config.to_json(),
        **{name: meta[name] for name in ("versions", "device", "cpus", "system", "commit")},
        "usable_cpus": usable_cores(),
        "memory_total_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "memory_available_bytes": available_memory(),
        "replay_transitions": trainer.capacity,
        "replay_bytes": trainer.replay_bytes(),
        "state_bytes": state_bytes(trainer),
        "devices_used": devices.count,
        "replay_transitions_per_device": trainer.capacity * config.seeds // devices.count,
        "state_bytes_per_device": device_bytes(trainer),
        "all_reduce_bytes_per_update": traffic_bytes(trainer),
        "split": describe_devices(trainer),
        "bf16_cpu_flags": [flag for flag in _FAST_BF16 if flag in cpu_flags()],
        "cache_folder": str(cache),
        "cache_writable": writable(cache),
        "ffmpeg": ffmpeg(),
        "mujoco": _version("mujoco"),
        "mujoco_rendering_problem": rendering_problem(),
        "optional_packages": {name: _version(name) for name in OPTIONAL},
        **_benchmark(config),
    }
    return {**result, "problems": problems(result)}


def _benchmark(config: Config) -> dict[str, Any]:
    """Two seconds of benchmarks: environment steps, and a large matmul in both precisions."""
    env = bench.bench_env(config, 1.0)
    size = 1024
    times = bench.measure({kind: bench.matmul(kind, size) for kind in ("float32", "bfloat16")}, 1.0)
    ratios = [slow / fast for slow, fast in zip(times["float32"], times["bfloat16"], strict=True)]
    return {
        "num_envs": env["num_envs"],
        "env_steps_per_second": env["env_steps_per_second"],
        "matmul_float32_flops_per_second": 2 * size**3 / statistics.median(times["float32"]),
        "matmul_bfloat16_flops_per_second": 2 * size**3 / statistics.median(times["bfloat16"]),
        "bf16_speedup": statistics.median(ratios),
    }


def problems(result: dict[str, Any]) -> list[str]:
    """One sentence for each problem, with what to do about it."""
    found = []
    need, have = result["devices_used"] * result["state_bytes_per_device"], result["memory_available_bytes"]
    if result["device"]["platform"] == "cpu" and need > 0.9 * have:
        found.append(
            f"This run needs {_size(need)} of memory, but {_size(have)} are available: reduce --buffer-size, --seeds or "
            "the network sizes."
        )
    if not result["cache_writable"]:
        found.append(
            f"Compiled programs cannot be cached in {result['cache_folder']}, so every run compiles again: set "
            "SUSD_CACHE_DIR to a writable folder."
        )
    if result["ffmpeg"] is None:
        found.append("ffmpeg was not found, so there will be no videos: pip install imageio-ffmpeg.")
    if result["mujoco_rendering_problem"]:
        found.append(f"There will be no videos of MuJoCo environments: {result['mujoco_rendering_problem']}.")
    if result["usable_cpus"] < result["cpus"]:
        found.append(
            f"This process may use {result['usable_cpus']} of {result['cpus']} CPUs: raise its limit (taskset, or that "
            "of the container or job) for more speed."
        )
    if result["config"]["precision"] == "bfloat16" and result["bf16_speedup"] < 1.2:
        found.append(
            f"bfloat16 matmuls run at {result['bf16_speedup']:.2f} times the float32 rate here, which is no gain: use "
            "--precision float32."
        )
    return found


def cpu_flags() -> set[str]:
    """The instruction sets of the CPU; empty where the system does not list them."""
    try:
        with open("/proc/cpuinfo") as file:
            return next((set(line.split(":", 1)[1].split()) for line in file if line.startswith("flags")), set())
    except OSError:
        return set()


def writable(folder: Path) -> bool:
    """Whether files can be created in this folder, which may not exist yet; creates nothing."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def ffmpeg() -> str | None:
    """The path of ffmpeg."""
    try:
        import imageio_ffmpeg

        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        return None


def rendering_problem() -> str:
    """Why MuJoCo cannot render here; empty if it can."""
    from susd.envs.mujoco.bodies import load_model
    from susd.envs.mujoco.camera import Camera

    try:
        Camera("environments", load_model("ant.xml"), 16)
    except UserError as error:
        return str(error)
    return ""


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def format_doctor(result: dict[str, Any]) -> str:
    """The result as text, the problems last."""
    device, config = result["device"], result["config"]
    packages = [
        f"{name} {version}" if version else f"{name} is missing (pip install 'susd[{OPTIONAL[name]}]')"
        for name, version in result["optional_packages"].items()
    ]
    bf16 = ", ".join(result["bf16_cpu_flags"]) or f"the CPU has no {' or '.join(_FAST_BF16)}"
    rows = {
        "device": f"{device['platform']}, {device['kind']} x {device['count']}",
        "CPUs": f"{result['usable_cpus']} of {result['cpus']} usable",
        "system": result["system"],
        "versions": ", ".join(f"{name} {version}" for name, version in result["versions"].items()),
        "memory": f"{_size(result['memory_available_bytes'])} available of {_size(result['memory_total_bytes'])}",
        "this run": f"{config['method']} on {config['env']}, preset {config['preset']}, seeds: {config['seeds']}",
        "its replay": f"{_size(result['replay_bytes'])} for {result['replay_transitions']} transitions",
        "its whole state": _size(result["state_bytes"]),
        "its devices": result["split"],
        "compiled programs": f"{result['cache_folder']} ({'' if result['cache_writable'] else 'not '}writable)",
        "ffmpeg": result["ffmpeg"] or "not found",
        "MuJoCo": f"{result['mujoco']}, {'cannot render' if result['mujoco_rendering_problem'] else 'renders'}",
        "optional packages": "; ".join(packages),
        "environment": f"{short(result['env_steps_per_second'])} steps/s with {result['num_envs']} parallel environments",
        "matmul, float32": f"{short(result['matmul_float32_flops_per_second'])}FLOP/s",
        "matmul, bfloat16": f"{result['bf16_speedup']:.2f} times float32's rate ({bf16})",
    }
    lines = [f"{name:<18} {value}" for name, value in rows.items()]
    return "\n".join([*lines, "", *(result["problems"] or ["No problems found."])])


def _size(count: int) -> str:
    return f"{count / 2**30:.2f} GiB"
