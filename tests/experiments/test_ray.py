"""Suites on a Ray cluster: nodes with and without a shared folder, nodes that are lost, and GPUs."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import susd
from conftest import Command
from experiments.suites import SMALL_TASK, TINY, declare
from susd.errors import UserError
from susd.experiments import scheduler, suite
from susd.experiments.metrics_store import FACTS
from susd.runs import checkpoint
from susd.runs.header import weights_only

# In a process of its own, because Ray forks, which is unsafe where JAX runs. With the default priority jobs do not
# progress on a busy machine, and with the default health check a dead node is noticed late. The second node has a GPU by
# name only; it runs in a mount namespace of its own, in which the folder of the test is empty.
CLUSTER = """
import subprocess, sys, time
import ray
from ray.cluster_utils import Cluster
settings = {"worker_niceness": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
cluster = Cluster(True, head_node_args={"num_cpus": 0, "include_dashboard": False, "_system_config": settings})
seeing = cluster.add_node(num_cpus=1, include_dashboard=False)
hide = 'mount -t tmpfs none "$1" && shift && exec "$@"'
start = "import sys; from ray.scripts.scripts import main; sys.argv[0] = 'ray'; main()"
node = [sys.executable, "-c", start, "start", "--address", cluster.address, "--num-cpus=1", "--num-gpus=1", "--block"]
command = ["unshare", "--map-root-user", "--mount", "sh", "-c", hide, "sh", sys.argv[1], *node]
blind = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, cwd="/")
ray.init(address=cluster.address, logging_level="ERROR")
while sum(node["Alive"] for node in ray.nodes()) < 3:
    assert blind.poll() is None
    time.sleep(0.2)
ray.shutdown()
print("address", cluster.address, flush=True)
sys.stdin.readline()
cluster.remove_node(seeing, allow_graceful=False)
sys.stdin.readline()
blind.terminate()
cluster.shutdown()
blind.wait()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that one node does not see."""
    return tmp_path_factory.mktemp("driver")


@pytest.fixture(scope="module")
def environment(child_environment: dict[str, str]) -> dict[str, str]:
    return child_environment | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}


@pytest.fixture(scope="module")
def cluster(folder: Path, environment: dict[str, str]) -> Iterator[tuple[str, Callable[[], None]]]:
    """A real Ray on loopback, a head and two nodes: its address, and what kills the node that sees the folder."""
    pytest.importorskip("ray")
    probe = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", str(folder)]
    if not shutil.which("unshare") or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("this system has no mount namespaces for its users")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([sys.executable, "-c", CLUSTER, str(folder)], env=environment, **pipes) as process:

        def kill() -> None:
            process.stdin.write("kill a node\n")
            process.stdin.flush()

        try:
            yield next(line.split()[1] for line in process.stdout if line.startswith("address ")), kill
        finally:
            process.communicate("end\nend\n", timeout=60)


FLAT = f"""
seeds = [0, 1]
downstream = {SMALL_TASK}
[environments.multi_particle]
tasks = ["seq-easy"]
[methods.flat]
interface = "flat"
"""


@pytest.mark.slow
def test_lost_node(cluster: tuple[str, Callable[[], None]], folder: Path, environment: dict[str, str]) -> None:
    """The node with the folder is killed while both run a job: all jobs finish, and each is recorded once."""
    address, kill = cluster
    path = declare(folder, FLAT)
    loaded = suite.load(path)
    runs, results = scheduler.folders(loaded, folder / "runs", folder / "results")
    child = Command(folder, environment).start(
        *("suite", "run", path, "--runs", runs, "--results", results, "--engine", "ray", "--address", address)
    )
    try:
        deadline = time.monotonic() + 200
        while len(_running(loaded)) < 2:
            assert time.monotonic() < deadline, "two jobs should run, one on each node"
            assert child.poll() is None, child.communicate()
            time.sleep(0.2)
        kill()
        output, errors = child.communicate(timeout=400)
    finally:
        child.kill()
        child.communicate()
    assert child.returncode == 0, errors
    assert "2 jobs done, 0 already finished, 0 failed" in output
    assert "without a shared folder: files and results travel through Ray" in errors
    assert "failed, starting again" not in errors
    recorded = [json.loads(line)["job"] for line in (results / FACTS).read_text().splitlines()]
    assert sorted(recorded) == sorted(job.name for job in loaded.jobs)
    for job in loaded.jobs:
        assert (runs / job.run / "downstream" / "seq-easy@1" / "result.json").is_file()


def _running(loaded: suite.Suite) -> list[int]:
    """Processes that run a job of this suite."""
    pattern = rf"susd\.experiments\.job .*\.toml {loaded.jobs[0].environment}/"
    found = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True)
    return [int(pid) for pid in found.stdout.split()]


@pytest.mark.slow
def test_node_without_the_folder(
    cluster: tuple[str, Callable[[], None]], folder: Path, environment: dict[str, str]
) -> None:
    """A run and its evaluation on the node with a GPU, which does not see the folder: weights and results arrive."""
    path = declare(folder, "evaluations = {control = {}}\n" + TINY.replace("[0, 1]", "[0]"))
    there = ("--runs", folder / "runs", "--results", folder / "second", "--engine", "ray", "--address", cluster[0])
    susd_command = Command(folder, environment)
    result = susd_command("suite", "run", path, *there, "--gpus-per-job", 0.25)
    assert "2 jobs done, 0 already finished, 0 failed" in result.stdout
    run = folder / "runs" / "gunner" / "susd-s0"
    (newest,) = checkpoint.checkpoints(run / "checkpoints")
    assert weights_only(newest)
    assert susd.load(run).epoch == 2
    assert (run / "evaluation" / "control.json").is_file()
    assert (folder / "second" / "trajectories" / "gunner-susd.png").is_file()
    refused = susd_command("suite", "run", path, *there, "--gpus-per-job", 2, code=2)
    assert "--gpus-per-job is 2, but no node of the cluster has that much beside a processor" in refused.stderr


def test_no_cluster_at_the_address(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    began = time.monotonic()
    with pytest.raises(UserError, match=r"cannot reach a Ray cluster at 127\.0\.0\.1:1: .*refused"):
        scheduler.engine_of("ray", "127.0.0.1:1", None, tmp_path, tmp_path)
    assert time.monotonic() - began < 15
    with pytest.raises(UserError, match="--address is 'x'; it must be HOST:PORT, or auto for"):
        scheduler.engine_of("ray", "x", None, tmp_path, tmp_path)


@pytest.mark.parametrize("gpus", [-1.0, 1.5, 65.0])
def test_refused_gpus(gpus: float, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"--gpus-per-job is {gpus:g}; it must be from 0 to 1, or an integer up to 64"):
        scheduler.engine_of("ray", None, None, tmp_path, tmp_path, gpus)


def test_options_of_ray(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--gpus-per-job is 0\.5, but it is for --engine ray"):
        scheduler.engine_of("local", None, None, tmp_path, tmp_path, 0.5)
    with pytest.raises(UserError, match="--with-replay is on, but it is for --engine ray"):
        scheduler.engine_of("local", None, None, tmp_path, tmp_path, 0.0, True)


def test_jobs_share_the_memory_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION", raising=False)
    assert scheduler.job_environment(True, 0.25)["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.225"
    for whole in (0.0, 1.0, 2.0):
        assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in scheduler.job_environment(True, whole)
