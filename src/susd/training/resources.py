"""What a run needs: memory and disk space. Checked before anything is compiled."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import jax

from susd.envs.base import Environment
from susd.errors import UserError
from susd.replay import row_size
from susd.training.trainer import Trainer


def state_bytes(trainer: Trainer) -> int:
    """Memory of the training state with its replay buffer, computed without allocating it."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(trainer.shapes))


def device_bytes(trainer: Trainer) -> int:
    """Memory of the share of the training state that each device holds."""
    total, rows = state_bytes(trainer), trainer.replay_bytes()
    if trainer.devices.pipeline:
        return total
    if trainer.config.seeds > 1:
        return total // trainer.devices.count
    return total - rows + rows // trainer.devices.count


def traffic_bytes(trainer: Trainer) -> int:
    """What the devices sum up in each gradient step: all gradients and the batch; nothing if they have their own seeds."""
    config, state = trainer.config, trainer.shapes.learner
    if trainer.devices.count == 1 or trainer.devices.pipeline or config.seeds > 1:
        return 0
    networks = jax.tree.leaves((state.params, state.sac.actor, state.sac.critic, state.sac.log_alpha))
    row = trainer.replay_bytes() // trainer.capacity
    return sum(leaf.size * leaf.dtype.itemsize for leaf in networks) + config.batch_size * row


def describe_devices(trainer: Trainer) -> str:
    """The devices, what each of them holds, and what they exchange."""
    config, count, mib = trainer.config, trainer.devices.count, 2**20
    held = f"{device_bytes(trainer) / mib:.1f} MiB"
    if count == 1:
        return f"{trainer.devices.describe()}: {trainer.capacity * config.seeds} replay rows, {held}"
    if trainer.devices.pipeline:
        return f"2 cpu cores: the method on one and SAC on the other; each {trainer.capacity} replay rows, {held}"
    if config.seeds > 1:
        share = config.seeds // count
        rows = f"{share} seed{'s' * (share > 1)}, {trainer.capacity * share} replay rows"
        return f"{trainer.devices.describe()}: each {rows}, {held}; nothing is all-reduced"
    shares = (config.episodes // count, config.batch_size // count, trainer.capacity // count)
    rows = "{} environments, {} rows of a batch, {} replay rows".format(*shares)
    traffic = f"{traffic_bytes(trainer) / mib:.2f} MiB are all-reduced in each gradient step"
    return f"{trainer.devices.describe()}: each {rows}, {held}; {traffic}"


def available_memory() -> int:
    """Bytes of memory that are still available."""
    try:
        with open("/proc/meminfo") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def update_bytes(trainer: Trainer) -> int:
    """A lower limit for the gradient steps of an epoch: a batch through actor and critics, and a key for each step."""
    config, spec = trainer.config, trainer.env.spec
    row = row_size(spec.obs_size, spec.action_size, trainer.learner.method.skills.size)
    return config.seeds * (4 * config.batch_size * (row + 3 * config.layers * config.hidden) + 8 * config.gradient_steps)


def check_memory(trainer: Trainer) -> None:
    """Refuse a run that does not fit into memory, before anything is compiled."""
    local = trainer.devices.count // trainer.devices.processes  # devices that share the memory of this machine
    config, need, have = trainer.config, local * device_bytes(trainer) + update_bytes(trainer), available_memory()
    gib = 2**30
    if jax.default_backend() == "cpu" and need > 0.9 * have:
        raise UserError(
            f"this run needs {need / gib:.1f} GiB of memory ({trainer.replay_bytes() / gib:.1f} for the replay buffer of "
            f"{trainer.capacity} transitions x {config.seeds} seeds), but only {have / gib:.1f} GiB are "
            "available; lower --buffer-size, --seeds, --batch-size, --gradient-steps or the network sizes"
        )


def check_resources(trainer: Trainer, path: Path) -> None:
    """Refuse a run that does not fit into memory or on the disk, before anything is compiled."""
    check_memory(trainer)
    config, gib = trainer.config, 2**30
    while not path.exists():
        path = path.parent
    free = shutil.disk_usage(path).free
    files = (config.keep_checkpoints + 1) * state_bytes(trainer)
    if files > free:
        raise UserError(
            f"the checkpoints of this run may take {files / gib:.2f} GiB, but only {free / gib:.2f} GiB are free at "
            f"{path.resolve()}; choose another --run folder, or lower --buffer-size or --keep-checkpoints"
        )


def check_envs(env: Environment, num_envs: int) -> None:
    """Refuse more parallel copies of a functional environment than fit into memory."""
    one = jax.eval_shape(lambda: (state := env.reset(jax.random.key(0)), env.observe(state)))
    need = 3 * num_envs * sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(one))
    if jax.default_backend() == "cpu" and need > 0.9 * (have := available_memory()):
        need_gib, have_gib = need / 2**30, have / 2**30
        raise UserError(
            f"--num-envs is {num_envs}; this needs {need_gib:.1f} GiB of memory, but {have_gib:.1f} are available"
        )
