"""Several devices, simulated on a CPU, in one process and in two: the same result as on one device."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import TINY, Command, refused

FOUR = "--xla_force_host_platform_device_count=4"
NEAR = 1e-5


@pytest.fixture(scope="module")
def found(child_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All that device_checks.py finds, in one child with four devices."""
    environment = child_environment | {"XLA_FLAGS": f"{child_environment['XLA_FLAGS']} {FOUR}", "OMP_NUM_THREADS": "2"}
    command = [sys.executable, Path(__file__).with_name("device_checks.py"), tmp_path_factory.mktemp("runs")]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200)
    assert child.returncode == 0, child.stderr[-3000:]
    return json.loads(child.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("count", ["2", "4"])
def test_one_run_is_independent_of_the_devices(found: dict[str, Any], count: str) -> None:
    """Replay rows, networks, optimisers, running means and logged values after 10 to 40 updates; the ring has wrapped."""
    run = found["one_run"][count]
    assert run["states"][1] < NEAR  # 20 updates
    assert max(run["infos"][:2]) < NEAR
    assert max(run["states"]) < 100 * NEAR  # then the episodes differ by rounding, too
    assert run["split"] == ["P(None, 'devices')"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stages of five", "stages of one"])
def test_pipeline_on_two_cores(found: dict[str, Any], name: str) -> None:
    """The same updates as on one core: those of the method on one, and those of SAC on the other."""
    run = found["pipelines"][name]
    assert max(run["states"]) < 10 * NEAR
    assert max(run["infos"]) < 10 * NEAR
    assert run["learned"] > 100 * NEAR
    assert run["text"].startswith("2 cpu cores: the method on one and SAC on the other; each 60 replay rows")


@pytest.mark.slow
def test_pipeline_resumes_on_one_core(found: dict[str, Any]) -> None:
    assert found["pipelines"]["resumed"] < 100 * NEAR


@pytest.mark.slow
def test_seed_on_its_own_device_is_a_run_of_its_own(found: dict[str, Any]) -> None:
    assert max(found["seeds"]["alone"]) < NEAR
    assert found["seeds"]["pairs"] < 1e-3  # batched products are rounded otherwise


@pytest.mark.slow
def test_resumes_on_another_number_of_devices(found: dict[str, Any]) -> None:
    assert found["resumed"]["distance"] < 100 * NEAR
    assert len(set(found["resumed"]["hashes"])) == 1


@pytest.mark.slow
def test_host_environment_learns_on_all_devices(found: dict[str, Any]) -> None:
    assert found["host"]["distance"] < 100 * NEAR


@pytest.mark.slow
def test_nothing_is_compiled_after_one_epoch(found: dict[str, Any]) -> None:
    assert found["compiled_again"] == 0


@pytest.mark.slow
def test_what_does_not_fit_is_refused(found: dict[str, Any]) -> None:
    allowed = "it must be a number of devices from 1 on, or all"
    assert found["refusals"] == [
        f"--devices is 0; {allowed}",
        f"--devices is 'many'; {allowed}",
        f"--devices is True; {allowed}",
        f"--devices is 5; there are 4 (cpu), at most one for each of the {len(os.sched_getaffinity(0))} CPU cores",
        "--episodes is 6; it must be a multiple of --devices, which is 4",
        "--batch-size is 18; it must be a multiple of --devices, which is 4",
        "--seeds is 6; it must be a multiple of --devices, which is 4",
    ]


@pytest.mark.slow
def test_devices_are_described(found: dict[str, Any]) -> None:
    text = found["one_run"]["4"]["text"]
    assert re.fullmatch(
        r"4 cpu devices: each 1 environments, 4 rows of a batch, 15 replay rows, 0\.\d MiB; "
        r"0\.\d\d MiB are all-reduced in each gradient step",
        text,
    )


def test_bad_options_are_refused_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    train = ("train", "gunner")
    assert refused(capsys, *train, "--devices", "0").startswith("--devices is '0'; it must be a number of devices")
    assert refused(capsys, *train, "--devices", "100000").startswith("--devices is '100000'")
    assert "there is no --coordinator" in refused(capsys, *train, "--num-processes", "2")
    assert "it needs --num-processes" in refused(capsys, *train, "--coordinator", "localhost:1234")
    both = ("--num-processes", "2", "--process-id", "2")
    assert refused(capsys, *train, "--coordinator", "localhost:1234", *both).startswith("--process-id is 2;")
    assert "it must be HOST:PORT" in refused(capsys, *train, "--coordinator", "localhost", *both)


# --- two processes ------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def start_two(susd: Command, *arguments: object) -> list[subprocess.Popen[str]]:
    address = ("--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", 2)
    options = (*arguments, "--no-eval", "--quiet", *address)
    return [susd.start("train", *options, "--process-id", number) for number in range(2)]


def ended(children: list[subprocess.Popen[str]], seconds: float = 900) -> list[tuple[int, str, str]]:
    until, result = time.monotonic() + seconds, []
    try:
        for child in children:
            output, errors = child.communicate(timeout=max(1.0, until - time.monotonic()))
            result.append((child.returncode, output, errors))
    finally:
        for child in children:
            child.kill()
    return result


def last_state(run: Path) -> list[np.ndarray]:
    import jax

    from susd.config import Config
    from susd.runs import checkpoint
    from susd.training.trainer import Trainer

    config = Config.from_json(json.loads((run / "config.json").read_text()))
    state = checkpoint.restore_latest(run / "checkpoints", Trainer.build(config).shapes)[0]
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]


@pytest.mark.slow
def test_two_processes_train_one_run(susd: Command) -> None:
    """Two processes train, one resumes: equal to one process, and only the first process writes."""
    tiny = ("gunner", *TINY, "--checkpoint-every", 3, "--eval-every", 3)
    (first, second) = ended(start_two(susd, *tiny, "--run", "two", "--epochs", 4))
    assert (first[0], second[0]) == (0, 0), first[2] + second[2]
    assert first[1].splitlines()[-1] == "two"  # the lines before it are those of the collectives
    assert "two" not in second[1]
    susd("train", *tiny, "--run", "one", "--epochs", 5, "--no-eval", "--quiet")
    susd.resume("two", "--epochs", 5, "--quiet")
    for a, b in zip(last_state(susd.folder / "two"), last_state(susd.folder / "one"), strict=True):
        np.testing.assert_allclose(a.astype(float), b.astype(float), atol=100 * NEAR)  # five epochs of rounding
    rows = [
        [json.loads(line) for line in (susd.folder / run / "metrics.jsonl").read_text().splitlines()]
        for run in ("two", "one")
    ]
    assert [row["epoch"] for row in rows[0]] == [row["epoch"] for row in rows[1]] == [1, 2, 3, 4, 5]


def wait_for(run: Path, epoch: int, children: list[subprocess.Popen[str]]) -> None:
    until = time.monotonic() + 900
    while not (run / "metrics.jsonl").exists() or len((run / "metrics.jsonl").read_text().splitlines()) < epoch:
        assert time.monotonic() < until
        assert all(child.poll() is None for child in children)
        time.sleep(0.1)


@pytest.mark.slow
def test_signal_to_one_process_stops_both(susd: Command) -> None:
    children = start_two(susd, "gunner", *TINY, "--run", "run", "--epochs", 100_000)
    wait_for(susd.folder / "run", 3, children)
    children[1].send_signal(signal.SIGTERM)
    results = ended(children)
    assert [code for code, _, _ in results] == [130, 130], results
    assert all("stopped by SIGTERM after epoch" in errors for _, _, errors in results)
    assert last_state(susd.folder / "run")


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_killed_process_does_not_hang_the_other(susd: Command, killed: int) -> None:
    children = start_two(susd, "gunner", *TINY, "--run", "run", "--epochs", 100_000)
    wait_for(susd.folder / "run", 3, children)
    children[killed].kill()
    began = time.monotonic()
    results = ended(children, 150)
    assert results[1 - killed][0] != 0
    assert time.monotonic() - began < 120  # heartbeats and shutdown have timeouts


@pytest.mark.slow
def test_refusal_of_one_process_is_that_of_both(susd: Command) -> None:
    (susd.folder / "taken").mkdir()
    (susd.folder / "taken" / "config.json").write_text("{}")
    results = ended(start_two(susd, "gunner", *TINY, "--run", "taken"))
    assert [code for code, _, _ in results] == [2, 2], results
    assert all("taken already holds a run" in errors for _, _, errors in results)


# --- benchmark ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_benchmark_of_devices(child_environment: dict[str, str], tmp_path: Path) -> None:
    """benchmarks/gpu.py measures what there is; a number of devices that does not divide the batch is left out."""
    sizes = {"hidden": 8, "phi_hidden": 8, "density_hidden": 8, "gradient_steps": 2, "batch_size": 8, "episodes": 4}
    sizes |= {"horizon": 5, "buffer_size": 200, "warmup": 40}
    options = [text for name, value in sizes.items() for text in ("--option", name, str(value))]
    script, output = Path(__file__).parents[2] / "benchmarks" / "gpu.py", tmp_path / "found.json"
    which = ("--envs", "gunner", "--presets", "quick", "--precisions", "default", "--devices", "1", "2", "3")
    command = [sys.executable, script, *which, *options, "--seconds", "0.1", "--output", output]
    environment = child_environment | {"XLA_FLAGS": f"{child_environment['XLA_FLAGS']} {FOUR}"}
    child = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert child.returncode == 0, child.stderr[-3000:]
    assert "left out: --episodes is 4; it must be a multiple of --devices, which is 3" in child.stdout
    result = json.loads(output.read_text())
    assert [row["devices"] for row in result["rows"]] == [1, 2]
    assert all(row["gradient_steps_per_second"] > 0 and row["repetitions"] >= 3 for row in result["rows"])
    assert result["rows"][0]["all_reduce_bytes_per_update"] == 0 < result["rows"][1]["all_reduce_bytes_per_update"]
    assert len(result["device_names"]) == 4
    assert "| gunner | quick | default | 8 | 2 |" in child.stdout
