"""The jobs of a suite on a Ray cluster, with the extra `cluster`.

A node that sees the folders of runs and results works there. For any other node an actor on this machine holds the folders,
see `transfer`.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import os
import signal
import socket
import threading
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from susd.errors import UserError
from susd.experiments.declared import Job
from susd.experiments.scheduler import failure, start_process
from susd.experiments.transfer import Order, Store, do_job, visible
from susd.runs.folder import make_folder

LOST_NODES = 10  # how often a job is restarted because its node was lost, which is not the fault of the job
NODE_TIMEOUT = 60.0  # seconds for all nodes to report whether they see the folders; slower ones are not waited for
# Ray searches for a cluster for many minutes. These variables are read when it is imported, and only by this process.
SHORT_TIMEOUTS = {
    "RAY_NUM_REDIS_GET_RETRIES": "1",
    "RAY_py_gcs_connect_timeout_s": "5",
    "RAY_gcs_server_request_timeout_seconds": "10",
}


class Ray:
    """One Ray task per job; Ray decides where it runs, and restarts it on another node when a node dies."""

    def __init__(
        self, address: str | None, workers: int | None, runs: Path, results: Path, gpus: float = 0.0, replay: bool = False
    ) -> None:
        self._ray = ray = _connect(address, workers)
        self._workers, self._gpus, self._replay = workers, gpus, replay
        self._task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=LOST_NODES)(_job)
        # New names, because a network file system may show a node an old state of a file that it has seen.
        self._marks = [folder / f".seen-{uuid.uuid4().hex}" for folder in (runs, results)]
        self._folders = _Folders(str(runs), str(results), tuple(str(mark) for mark in self._marks))
        self._store: Any = None
        self.note = ""
        try:
            if gpus and not self._fitting():
                raise UserError(f"--gpus-per-job is {gpus:g}, but no node of the cluster has that much beside a processor")
            self.slots = workers or max(1, self._fitting())
            for mark in self._marks:
                make_folder(mark.parent)
                mark.touch()
            if blind := self._check_nodes():
                self._store = self._start_store()
                self.note = f"{', '.join(blind)} without a shared folder: files and results travel through Ray"
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise UserError(f"cannot write to {error.filename}: {error.strerror}") from error
            raise

    def start(self, job: Job, declared: str) -> Any:
        """Submit the job to the cluster."""
        order = Order(job.name, job.run, job.phase, job.hash, declared, gpus=self._gpus, replay=self._replay)
        return self._task.remote(order, self._folders, self._store)

    def ended(self, handles: Iterable[Any], seconds: float) -> list[tuple[Any, str]]:
        """The jobs that have ended, or that were lost too often."""
        done, _ = self._ray.wait(list(handles), num_returns=1, timeout=seconds)
        outcomes = []
        for handle in done:
            try:
                outcomes.append((handle, self._ray.get(handle)))
            except self._ray.exceptions.RayError as error:
                outcomes.append((handle, f"Ray: {self._message(error)}"))
        # Nodes may join. When one leaves, its job waits in Ray: there are never fewer slots than jobs that were started.
        self.slots = self._workers or max(self.slots, self._fitting())
        return outcomes

    def close(self) -> None:
        """Leave the cluster, which cancels the jobs that still run."""
        if self._store is not None:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.get(self._store.close.remote(), timeout=10.0)
        for mark in self._marks:
            with contextlib.suppress(OSError):  # it may not exist
                mark.unlink()
        self._ray.shutdown()

    def _fitting(self) -> int:
        """How many jobs fit on all nodes at the same time."""
        alive = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return sum(
            int(min(node.get("CPU", 0), node.get("GPU", 0) / self._gpus if self._gpus else math.inf)) for node in alive
        )

    def _start_store(self) -> Any:
        """The folders as an actor on this machine, for nodes that do not see them."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(self._ray.get_runtime_context().get_node_id(), soft=False)
        store = self._ray.remote(num_cpus=0, scheduling_strategy=here)(Store)
        found = store.remote(self._folders.runs, self._folders.results)
        if not self._ray.get(found.sees.remote(self._folders.marks)):
            raise UserError(f"the Ray node of this machine does not see the folder {self._folders.runs}; start it here")
        return found

    def _check_nodes(self) -> list[str]:
        """The nodes that do not see the folders. Raises now, not with every job, if a node cannot do any."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ray, names = self._ray, {}
        for node in ray.nodes():
            if node["Alive"] and node["Resources"].get("CPU", 0) >= 1:
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                task = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(_sees)
                names[task.remote(self._folders)] = node["NodeManagerHostname"]
        done, _ = ray.wait(list(names), num_returns=len(names), timeout=NODE_TIMEOUT) if names else ([], [])
        blind = []
        for handle in done:
            try:
                if not ray.get(handle):
                    blind.append(f"node {names[handle]}")
            except ray.exceptions.RayTaskError as error:
                raise UserError(f"node {names[handle]} cannot run jobs: {self._message(error)}") from error
            except ray.exceptions.RayError:
                continue  # the node was lost in the meantime
        return blind

    def _message(self, error: Exception) -> str:
        """The line that says what happened: the last of the trace of a task, the first of any other error."""
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return lines[-1 if isinstance(error, self._ray.exceptions.RayTaskError) else 0]


def _connect(address: str | None, workers: int | None) -> Any:
    """The module `ray`, connected to the cluster; `auto` is that of this machine, and without an address one is started."""
    if address is not None:
        if address != "auto":
            _check_address(address)
        os.environ.update(SHORT_TIMEOUTS)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would send statistics to its makers
    try:
        import ray
    except ImportError as error:
        raise UserError("--engine ray needs a package that is missing: pip install 'susd[cluster]'") from error
    if address is None:
        # Ray gives its workers the lowest priority; next to any other process on this machine jobs would make no progress.
        options: dict[str, Any] = {"address": "local", "num_cpus": workers, "include_dashboard": False}
        options |= {"object_store_memory": 100 * 2**20, "_system_config": {"worker_niceness": 0}}
    else:
        options = {"address": address}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray's own would end the command with another exit code
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        if address is None:
            raise UserError(f"cannot start Ray on this machine: {error}") from error
        hint = "give the address that `ray start --head` printed, on a node of the cluster, with the same RAY_AUTH_MODE"
        raise UserError(f"cannot reach a Ray cluster at {address}: {str(error).strip().rstrip('.')}; {hint}") from error
    return ray


def _check_address(address: str) -> None:
    """Fail quickly if no process listens at the address."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UserError(f"--address is {address!r}; it must be HOST:PORT, or auto for the cluster of this machine")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, UnicodeError) as error:
        raise UserError(f"cannot reach a Ray cluster at {address}: {getattr(error, 'strerror', None) or error}") from error


@dataclass(frozen=True)
class _Folders:
    """The folders of runs and results, with files by which a node knows that it sees them."""

    runs: str
    results: str
    marks: tuple[str, ...]


def _sees(folders: _Folders) -> bool:
    """Whether this node sees the folders."""
    return visible(folders.marks)


class _Remote:
    """The methods of an actor as those of an object: each waits for its result."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def __getattr__(self, name: str) -> Any:
        import ray

        return lambda *arguments: ray.get(getattr(self._actor, name).remote(*arguments))


def _job(order: Order, folders: _Folders, store: Any) -> str:
    """One job on a node; why it failed, or ""."""
    if _sees(folders):
        runs, results = Path(folders.runs), Path(folders.results)
        process = start_process(order.job, order.suite, runs, results, order.one_thread, order.gpus)
        return failure(order.job, runs, process.wait())
    if store is None:
        return f"node {os.uname().nodename} joined later and does not see the folder {folders.runs}; start the suite again"
    from susd.training.compiler import cache_folder

    what = hashlib.blake2b(f"{folders.runs}|{order.job}|{order.config_hash}".encode(), digest_size=8).hexdigest()
    return do_job(order, _Remote(store), cache_folder() / "jobs" / what)
