"""The devices of a run, in one process or in several that are connected.

A run of several seeds splits its seeds over the devices; a run of one seed splits parallel environments, replay rows and
batches (data parallelism). The program of a run is written for the whole batch and partitioned by the compiler, so that a
mean over the batch is the mean over all devices in every method, and random numbers belong to rows, not to devices. On two
CPU cores one seed is a pipeline instead, see pipeline.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from susd.errors import UserError, shown
from susd.training.compiler import compiler_options

AXIS = "devices"
START_TIMEOUT, HEARTBEAT_TIMEOUT, SHUTDOWN_TIMEOUT = 300, 60, 30  # seconds that processes wait for each other
Result = TypeVar("Result")


@dataclass(frozen=True)
class Devices:
    """The devices that a run is split over; without a mesh it is JAX's default device, and nothing is split."""

    mesh: Mesh | None = None
    pipeline: bool = False  # both devices have a copy of everything: one learns the method, the other one SAC

    @property
    def count(self) -> int:
        """Of all processes."""
        return 1 if self.mesh is None else self.mesh.size

    @property
    def processes(self) -> int:
        """That train together."""
        return 1 if self.mesh is None else len({device.process_index for device in self.mesh.devices.flat})

    @property
    def main(self) -> bool:
        """Whether this process is the one that reads and writes the run folder."""
        return self.processes == 1 or jax.process_index() == 0

    def describe(self) -> str:
        """Number, platform and kind of the devices."""
        device = jax.devices()[0] if self.mesh is None else self.mesh.devices.flat[0]
        kind = "" if device.device_kind == device.platform else f" ({device.device_kind})"
        processes = f" in {self.processes} processes" if self.processes > 1 else ""
        return f"{self.count} {device.platform} device{'s' * (self.count > 1)}{kind}{processes}"

    @property
    def compiler_options(self) -> dict[str, Any] | None:
        """On a CPU: one thread for the products of each core that is a device, since together they use all cores."""
        options = compiler_options()
        return options | {"xla_cpu_multi_thread_eigen": False} if options and self.count > self.processes else options

    # --- arrays -------------------------------------------------------------------------------------------------------

    def sharding(self, *axes: str | None) -> NamedSharding:
        """The placement of an array whose axis named AXIS is split; without it, every device has a copy."""
        assert self.mesh is not None
        return NamedSharding(self.mesh, P(*axes))

    def split(self, rows: jax.Array) -> jax.Array:
        """Inside a compiled function: split the first axis, and all that is computed row by row from it."""
        return rows if self.mesh is None else jax.lax.with_sharding_constraint(rows, self.sharding(AXIS))

    def over_seeds(self, function: Callable[..., Any], axes: tuple[int | None, ...]) -> Callable[..., Any]:
        """A function whose arguments have a leading axis of seeds where `axes` is 0: each device computes its own seeds."""
        if self.mesh is None:
            return function
        specs = tuple(P() if axis is None else P(AXIS) for axis in axes)
        return jax.shard_map(function, mesh=self.mesh, in_specs=specs, out_specs=P(AXIS), check_vma=False)

    def on_both(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that both cores of a pipeline run with copies of the same arguments."""
        assert self.mesh is not None
        return jax.shard_map(function, mesh=self.mesh, in_specs=P(), out_specs=P(), check_vma=False)

    def place(self, tree: Any, shapes: Any, layout: Any) -> Any:
        """Arrays that the first process has, with these shapes, placed on the devices by `layout`, a tree of shardings."""
        if self.mesh is None:
            return tree
        if self.processes > 1:
            zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
            tree = multihost_utils.broadcast_one_to_all(tree if self.main else zeros)
        hosts = jax.tree.map(np.asarray, tree)
        return jax.tree.map(lambda x, at: jax.make_array_from_callback(x.shape, at, lambda i: x[i]), hosts, layout)

    def whole(self, tree: Any) -> Any:
        """The arrays in the memory of each process; every process has to call it."""
        return jax.tree.map(self._whole, tree) if self.processes > 1 else tree

    def _whole(self, array: jax.Array) -> Any:
        if array.is_fully_addressable:
            return array
        return np.asarray((array if array.is_fully_replicated else self._replicate(array)).addressable_data(0))

    @cached_property
    def _replicate(self) -> Callable[[jax.Array], jax.Array]:
        return jax.jit(lambda x: x, out_shardings=self.sharding())

    def local(self, tree: Any) -> Any:
        """Arrays of which every device has a copy, on one device of this process."""
        return tree if self.mesh is None else jax.tree.map(lambda x: x.addressable_data(0), tree)

    # --- processes ----------------------------------------------------------------------------------------------------

    def exchange(self, text: str) -> list[str]:
        """The texts of all processes, in their order; every process has to call it."""
        if self.processes == 1:
            return [text]
        own = np.frombuffer(text.encode(), np.uint8)
        sizes = multihost_utils.process_allgather(np.int32(own.size)).reshape(-1)
        padded = np.pad(own, (0, int(sizes.max()) + 1 - own.size))
        found = multihost_utils.process_allgather(padded).reshape(len(sizes), -1)
        return [row[:size].tobytes().decode() for row, size in zip(np.asarray(found), sizes, strict=True)]

    def together(self, step: Callable[[], Result]) -> Result:
        """Run a step that may be refused; if one process refuses it, all do, with the same sentence."""
        result, refusal = None, ""
        try:
            result = step()
        except UserError as error:
            if self.processes == 1:
                raise
            refusal = str(error)
        if found := next(filter(None, self.exchange(refusal)), ""):
            raise UserError(found)
        return result  # type: ignore[return-value]

    def from_main(self, step: Callable[[], Any]) -> Any:
        """What a step returns in the first process, as JSON values; the others wait for it."""
        result = self.together(lambda: step() if self.main else None)
        return result if self.processes == 1 else json.loads(self.exchange(json.dumps(result))[0])


ONE = Devices()


def two_cores() -> Devices:
    """Two CPU cores as a pipeline; the default device if there is one core only, or if JAX has started with one device."""
    if min(usable_cores(), _threads()) < 2:
        return ONE
    _split_cpu(2)
    found = jax.local_devices()
    return Devices(_mesh(found[:2]), pipeline=True) if found[0].platform == "cpu" and len(found) > 1 else ONE


def _threads() -> int:
    """OMP_NUM_THREADS, with which users and parallel jobs of a suite limit the threads of a process."""
    text = os.environ.get("OMP_NUM_THREADS", "")
    return int(text) if text.isdecimal() and 0 < len(text) < 5 else 2


def _mesh(devices: list[jax.Device]) -> Mesh:
    return Mesh(np.array(devices), (AXIS,), axis_types=(AxisType.Auto,))


def find_devices(
    devices: int | str | None = None,
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
) -> Devices:
    """The devices of a run: a number or "all", of this process or of all that connect to the coordinator.

    Without a number there is one device per process. On a CPU each core can be a device, if JAX has not started yet.
    """
    asked = 1 if devices is None else _number(devices)
    processes = _check_processes(coordinator, num_processes, process_id)
    if asked == 1 and coordinator is None:
        return ONE
    if asked != 1:
        _split_cpu(asked if asked is None else -(-asked // (processes or 1)))
    if coordinator is not None:
        connect(coordinator, num_processes, process_id)
        processes = jax.process_count()
    found = jax.devices()
    if devices is None:
        asked = processes or 1
    elif asked is None:
        asked = len(found)
    if asked > len(found):
        raise UserError(f"--devices is {asked}; {_available(found)}")
    chosen = _from_each(found, asked, processes or 1)
    return Devices(_mesh(chosen))


def connect(coordinator: str, num_processes: int | None, process_id: int | None) -> None:
    """Join the processes of a run; `auto` asks the cluster (SLURM, Open MPI, Kubernetes) for address and numbers."""
    if jax.distributed.is_initialized():
        return
    # A signal ends the run in all processes after the epoch; JAX would keep it to itself.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            None if coordinator == "auto" else coordinator,
            num_processes,
            process_id,
            cluster_detection_method=None if coordinator == "auto" else "deactivate",
            initialization_timeout=START_TIMEOUT,
            heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT,
            shutdown_timeout_seconds=SHUTDOWN_TIMEOUT,
        )
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"--coordinator is {shown(coordinator)}; the processes did not connect: {reason}") from error


def disconnect() -> bool:
    """Leave the processes of a run: what follows happens in this process alone. Whether it was the first of them."""
    first = jax.process_index() == 0
    if jax.distributed.is_initialized():
        jax.distributed.shutdown()
    return first


def usable_cores() -> int:
    """The CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _number(devices: int | str) -> int | None:
    """The number of devices; None stands for all that there are."""
    text = str(devices)
    if text == "all":
        return None
    if isinstance(devices, bool) or not text.isdecimal() or not 0 < int(text[:10]) < 2**16:
        raise UserError(f"--devices is {shown(devices)}; it must be a number of devices from 1 on, or all")
    return int(text)


def _check_processes(coordinator: str | None, num_processes: int | None, process_id: int | None) -> int | None:
    """The number of processes, if it is known."""
    if coordinator is None:
        for flag, value in (("--num-processes", num_processes), ("--process-id", process_id)):
            if value is not None:
                raise UserError(f"{flag} is {shown(value)}, but there is no --coordinator HOST:PORT")
        return None
    for flag, value in (("--num-processes", num_processes), ("--process-id", process_id)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**16):
            raise UserError(f"{flag} is {shown(value)}; it must be an integer from 0 to {2**16 - 1}")
    if coordinator == "auto":
        return num_processes
    host, _, port = coordinator.rpartition(":") if isinstance(coordinator, str) else ("", "", "")
    if not host or not port.isdecimal() or not 0 < int(port[:6]) < 2**16:
        raise UserError(f"--coordinator is {shown(coordinator)}; it must be HOST:PORT of the first process, or auto")
    if num_processes is None or process_id is None:
        raise UserError(f"--coordinator is {shown(coordinator)}; it needs --num-processes and --process-id")
    if not 0 <= process_id < num_processes:
        raise UserError(f"--process-id is {process_id}; with --num-processes {num_processes} it must be from 0 to one less")
    return num_processes


def _split_cpu(asked: int | None) -> None:
    """Let JAX see as many CPU devices as asked for, at most one per core; without effect once JAX has started."""
    decided = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if decided or jax.config.jax_num_cpu_devices > 0:  # type: ignore[attr-defined]
        return
    try:
        jax.config.update("jax_num_cpu_devices", min(asked or usable_cores(), usable_cores()))
    except RuntimeError:
        return


def _available(found: list[jax.Device]) -> str:
    """What there is instead, and how to have more of it."""
    platform, cores = found[0].platform, usable_cores()
    there = f"there {'is' if len(found) == 1 else 'are'} {len(found)} ({platform})"
    if platform != "cpu":
        return there
    if len(found) < cores:
        return f"{there}, since JAX has already started: call susd.train before anything else computes"
    return f"{there}, at most one for each of the {cores} CPU cores"


def _from_each(found: list[jax.Device], asked: int, processes: int) -> list[jax.Device]:
    """The first devices of every process, in the order of processes: all of them have to take part."""
    if asked % processes:
        raise UserError(f"--devices is {asked}; it must be a multiple of {processes}, the number of processes")
    share, chosen = asked // processes, []
    for process in range(processes):
        own = [device for device in found if device.process_index == process]
        if len(own) < share:
            raise UserError(f"--devices is {asked}, {share} for each process, but process {process} has {len(own)}")
        chosen += own[:share]
    return chosen
