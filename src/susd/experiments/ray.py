"""The jobs of a suite on a Ray cluster, with the extra `cluster`. All nodes must see the folders of runs and results."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from susd.errors import UserError
from susd.experiments.scheduler import failure, start_process
from susd.experiments.suite import Job
from susd.runs.folder import make_folder

LOST_NODES = 10  # how often a job is restarted because its node was lost, which is not the fault of the job
NODE_TIMEOUT = 60.0  # seconds for all nodes to report whether they see the folders; slower ones are checked by each job
# Ray searches for a cluster for many minutes. These variables are read when it is imported, and only by this process.
SHORT_TIMEOUTS = {
    "RAY_NUM_REDIS_GET_RETRIES": "1",
    "RAY_py_gcs_connect_timeout_s": "5",
    "RAY_gcs_server_request_timeout_seconds": "10",
}


class Ray:
    """One Ray task per job; Ray decides where it runs, and restarts it on another node when a node dies."""

    def __init__(self, address: str | None, workers: int | None, runs: Path, results: Path) -> None:
        self._ray = ray = _connect(address, workers)
        self._workers = workers
        self.slots = workers or self._cpus()
        self._task = ray.remote(num_cpus=1, max_retries=LOST_NODES)(_job)
        # New names, because a network file system may show a node an old state of a file that it has seen.
        self._marks = [folder / f".seen-{uuid.uuid4().hex}" for folder in (runs, results)]
        self._arguments = (str(runs), str(results), [str(mark) for mark in self._marks])
        try:
            for mark in self._marks:
                make_folder(mark.parent)
                mark.touch()
            self._check_nodes()
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise UserError(f"cannot write to {error.filename}: {error.strerror}") from error
            raise

    def start(self, job: Job) -> Any:
        """Submit the job to the cluster."""
        return self._task.remote(job.name, *self._arguments)

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
        self.slots = self._workers or max(self.slots, self._cpus())
        return outcomes

    def close(self) -> None:
        """Leave the cluster, which cancels the jobs that still run."""
        for mark in self._marks:
            with contextlib.suppress(OSError):  # it may not exist
                mark.unlink()
        self._ray.shutdown()

    def _cpus(self) -> int:
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def _check_nodes(self) -> None:
        """Raise now, not with every job, if a node cannot do any."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ray, names = self._ray, {}
        for node in ray.nodes():
            if node["Alive"] and node["Resources"].get("CPU", 0) >= 1:
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                task = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(_hidden_folder)
                names[task.remote(self._arguments[2])] = node["NodeManagerHostname"]
        done, _ = ray.wait(list(names), num_returns=len(names), timeout=NODE_TIMEOUT) if names else ([], [])
        for handle in done:
            try:
                why = ray.get(handle)
            except ray.exceptions.RayTaskError as error:
                why = f"node {names[handle]} cannot run jobs: {self._message(error)}"
            except ray.exceptions.RayError:
                continue  # the node was lost in the meantime
            if why:
                raise UserError(why)

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


def _hidden_folder(marks: Sequence[str]) -> str:
    """Why this node cannot run jobs, or ""."""
    for folder in (Path(mark).parent for mark in marks if not Path(mark).exists()):
        return f"node {os.uname().nodename} does not see the folder {folder}; use a file system that all nodes share"
    return ""


def _job(job: str, runs: str, results: str, marks: Sequence[str]) -> str:
    """One job on a node; why it failed, or ""."""
    if hidden := _hidden_folder(marks):
        return hidden
    return failure(job, Path(runs), start_process(job, Path(runs), Path(results), one_thread=True).wait())
