"""Suites on a Ray cluster."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import Command
from experiments.suites import SMALL_TASK, declare
from susd.errors import UserError
from susd.experiments import scheduler, suite
from susd.experiments.metrics_store import FACTS

# In a process of its own, because Ray forks, which is unsafe where JAX runs. With the default priority jobs do not
# progress on a busy machine, and with the default health check a dead node is noticed late.
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
settings = {"worker_niceness": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
cluster = Cluster(True, head_node_args={"num_cpus": 0, "include_dashboard": False, "_system_config": settings})
nodes = [cluster.add_node(num_cpus=1, include_dashboard=False) for _ in range(2)]
print("address", cluster.address, flush=True)
sys.stdin.readline()
cluster.remove_node(nodes[0], allow_graceful=False)
sys.stdin.readline()
cluster.shutdown()
"""


@pytest.mark.slow
def test_lost_node(tmp_path: Path, child_environment: dict[str, str]) -> None:
    """A real Ray on loopback: a head without jobs and two nodes, one of which is killed while both run a job.

    All jobs finish, and each is recorded once.
    """
    pytest.importorskip("ray")
    environment = child_environment | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    text = f"""
    seeds = [0, 1]
    downstream = {SMALL_TASK}
    [environments.multi_particle]
    tasks = ["seq-easy"]
    [methods.flat]
    interface = "flat"
    """
    path = declare(tmp_path, text)
    loaded = suite.load(path)
    runs, results = scheduler.folders(loaded, tmp_path / "runs", tmp_path / "results")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([sys.executable, "-c", CLUSTER], env=environment, **pipes) as cluster:
        child = None
        try:
            address = next(line.split()[1] for line in cluster.stdout if line.startswith("address "))
            child = Command(tmp_path, environment).start(
                *("suite", "run", path, "--runs", runs, "--results", results, "--engine", "ray", "--address", address)
            )
            deadline = time.monotonic() + 200
            while len(_running(results)) < 2:
                assert time.monotonic() < deadline, "two jobs should run, one on each node"
                assert child.poll() is None, child.communicate()
                time.sleep(0.2)
            cluster.stdin.write("kill a node\n")
            cluster.stdin.flush()
            output, errors = child.communicate(timeout=400)
            assert child.returncode == 0, errors
            assert "2 jobs done, 0 already finished, 0 failed" in output
            assert "failed, starting again" not in errors
        finally:
            if child is not None:
                child.kill()
                child.communicate()
            cluster.communicate("end\nend\n", timeout=60)
    recorded = [json.loads(line)["job"] for line in (results / FACTS).read_text().splitlines()]
    assert sorted(recorded) == sorted(job.name for job in loaded.jobs)


def _running(folder: Path) -> list[int]:
    """Processes that run a job of these results."""
    found = subprocess.run(["pgrep", "-f", f"susd.experiments.job {folder}"], capture_output=True, text=True)
    return [int(pid) for pid in found.stdout.split()]


def test_no_cluster_at_the_address(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    began = time.monotonic()
    with pytest.raises(UserError, match=r"cannot reach a Ray cluster at 127\.0\.0\.1:1: .*refused"):
        scheduler.engine_of("ray", "127.0.0.1:1", None, tmp_path, tmp_path)
    assert time.monotonic() - began < 15
    with pytest.raises(UserError, match="--address is 'x'; it must be HOST:PORT, or auto for"):
        scheduler.engine_of("ray", "x", None, tmp_path, tmp_path)


def test_node_without_the_folder(tmp_path: Path) -> None:
    from susd.experiments.ray import _hidden_folder

    assert _hidden_folder([str(tmp_path)]) == ""
    assert f"does not see the folder {tmp_path}; use a" in _hidden_folder([str(tmp_path), str(tmp_path / "seen")])
