"""Suites: what a file declares, what bad files are told, and jobs that are killed, retried, resumed, or sent away."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import Command
from susd.cli.tables import show
from susd.errors import UserError
from susd.experiments import job as work
from susd.experiments import metrics_store as store
from susd.experiments import scheduler as engine
from susd.experiments import suite
from susd.experiments.metrics_store import Fact
from susd.experiments.suite import Job

TINY = """
about = "for a test"
seeds = [0, 1]
[train]
epochs = 2
episodes = 2
horizon = 10
warmup = 20
gradient_steps = 1
batch_size = 8
hidden = 8
phi_hidden = 8
density_hidden = 8
replay = 2000
[environments.gunner]
[methods.susd]
"""


def declare(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text)
    return str(path)


def table(results: Path) -> list[Fact]:
    """All facts but the time that jobs took."""
    facts = [fact for fact in store.load(results / "facts.jsonl") if fact.metric != store.LAST]
    return sorted(facts, key=lambda fact: (fact.job, fact.subject, fact.metric, fact.step))


@pytest.mark.parametrize("name", suite.names())
def test_the_suites_of_the_package_are_sound(name: str) -> None:
    loaded = suite.load(name)
    assert loaded.about
    named = {job.name for job in loaded.jobs}
    assert len(named) == len(loaded.jobs)
    assert all(job.needs is None or job.needs in named for job in loaded.jobs)
    seconds, measured = engine.forecast(loaded.jobs, loaded, [])
    assert measured == 0
    assert all(0 < value < 1e7 for value in seconds.values())


def test_the_main_suite_has_all_methods_worlds_and_tasks() -> None:
    jobs = suite.load("2d-quick").jobs
    for env, tasks in (("gunner", 2), ("multi_particle", 7)):
        for method in ("susd", "metra", "lsd", "csd", "diayn", "dusdi", "flat"):
            mine = [job for job in jobs if job.environment == env and job.method == method]
            assert len({job.seed for job in mine}) == 3
            assert len({job.config["task"] for job in mine if job.phase == "downstream"}) == tasks
            assert {job.phase for job in mine} >= ({"downstream"} if method == "flat" else {"train", "coverage", "control"})


def test_the_suite_of_the_paper_sends_every_embedding_to_goals() -> None:
    goals = [job for job in suite.load("paper").jobs if job.phase == "zero-shot"]
    assert {job.environment for job in goals} == {"ant", "half_cheetah"}
    assert {job.method for job in goals} == {"susd", "metra", "csd", "lsd", "susd-w", "susd-wf"}


def test_goals_are_where_they_are_defined(tmp_path: Path) -> None:
    text = "evaluations = { zero-shot = {} }\n[environments.gunner]\n[methods.susd]"
    with pytest.raises(UserError, match="zero-shot goals are defined in ant and half_cheetah, not in gunner"):
        suite.load(declare(tmp_path, text))


def test_a_file_declares_jobs(tmp_path: Path) -> None:
    text = """
    seeds = [3, 4]
    train = { epochs = 7 }
    evaluations = { control = {}, decoding = { steps = 4000 } }
    downstream = { episodes = 60 }
    [environments.gunner]
    tasks = ["lim"]
    layouts = ["0", "1"]
    layouts_per_seed = 1
    [environments.multi_particle]
    tasks = ["seq-easy"]
    [methods.susd]
    [methods.big]
    method = "metra"
    skill_dim = { gunner = 6, multi_particle = 20 }
    seeds = [3]
    evaluations = ["control"]
    [methods.flat]
    flat = true
    environments = ["gunner"]
    """
    jobs = {job.name: job for job in suite.load(declare(tmp_path, text)).jobs}
    assert set(jobs) == {
        *(f"gunner/susd-s{s}/{x}" for s in (3, 4) for x in ("train", "control", "decoding", f"lim@{s - 3}")),
        *(f"multi_particle/susd-s{s}/{x}" for s in (3, 4) for x in ("train", "control", "decoding", "seq-easy@1")),
        *(f"gunner/big-s3/{x}" for x in ("train", "control", "lim@0")),
        *(f"multi_particle/big-s3/{x}" for x in ("train", "control", "seq-easy@1")),
        *("gunner/flat-s3/lim@0", "gunner/flat-s4/lim@1"),
    }
    big = jobs["multi_particle/big-s3/train"]
    assert (big.method, big.label, big.seed, big.needs) == ("metra", "big", 3, None)
    assert (big.config["skill_dim"], big.config["epochs"]) == (20, 7)
    assert jobs["gunner/big-s3/train"].config["skill_dim"] == 6
    assert jobs["gunner/susd-s3/decoding"].config == {"steps": 4000}
    task = jobs["gunner/susd-s4/lim@1"]
    assert (task.needs, task.config["episodes"], task.config["layout"]) == ("gunner/susd-s4/train", 60, "1")
    assert jobs["gunner/flat-s3/lim@0"].needs is None
    assert len({job.hash for job in jobs.values()}) == len(jobs)
    assert jobs["gunner/susd-s3/lim@0"].kind == task.kind
    assert jobs["gunner/susd-s3/train"].kind != big.kind


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[methods", "cannot read the suite"),
        ("seed = [0]", "the file has the unknown key 'seed'; it may have about, seeds"),
        ("[methods.susd]\n[environments.mars]", "unknown environment 'mars'; there are: gunner"),
        ("[methods.susd]\n[environments.mars]\nenv = 'no.py:make'", "there is no file 'no.py'"),
        ("[methods.susd]\n[environments.'gymnasium:Ant-v5']", "say what it is with `env`"),
        ("[environments.gunner]\n[methods.best]", "methods.best: method 'best' is unknown; there are susd"),
        ("[environments.gunner]\n[methods.susd]\nepochs = 0", "methods.susd: --epochs is 0; it must be at least 1"),
        ("[environments.gunner]\n[methods.susd]\nepoch = 1", "methods.susd: option 'epoch' is unknown"),
        ("[environments.gunner]\n[methods.susd]\nskill_dim = {ant = 2}", "skill_dim has no value for gunner"),
        ("seeds = [0, 0]\n[environments.gunner]\n[methods.susd]", r"seeds is \[0, 0\]; it must be a list of different"),
        ("[environments.gunner]\ntasks = ['seq-easy']\n[methods.susd]", "task 'seq-easy' is one of multi_particle, not of"),
        ("[environments.gunner]\nlayouts = ['9']\ntasks = ['lim']\n[methods.susd]", "--layout is '9'; for gunner it is"),
        ("[environments.gunner]\nlayouts_per_seed = 4\n[methods.susd]", "layouts_per_seed is 4; it must be from 1 to 1"),
        (
            "[environments.gunner]\n[methods.flat]\nflat = true\nepochs = 3",
            "methods.flat: it is flat and trains no run, so it has no 'epochs'",
        ),
        ("[environments.gunner]\n[methods.'a/b']\nmethod = 'susd'", "a name has letters, digits"),
        ("evaluations = {speed = {}}\n[environments.gunner]\n[methods.susd]", "evaluation 'speed' is unknown"),
        (
            "evaluations = {control = {steps = 1}}\n[environments.gunner]\n[methods.susd]",
            "evaluations.control has the unknown",
        ),
        ("[environments.gunner]\n[methods.susd]\nenvironments = ['ant']", "environments has 'ant', which is not declared"),
        (
            "downstream = {speed = 1}\n[environments.gunner]\ntasks = ['lim']\n[methods.susd]",
            "downstream has the unknown key 'speed'",
        ),
        ("about = 'nothing'", "has no jobs"),
    ],
)
def test_a_bad_file_is_answered_with_a_sentence(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        suite.load(declare(tmp_path, text))


def test_an_unknown_suite_is_answered_with_those_there_are() -> None:
    with pytest.raises(UserError, match=r"there is no suite 'everything'; there are 2d-quick, .*smoke"):
        suite.load("everything")


def test_a_part_of_a_suite_comes_with_what_it_needs() -> None:
    loaded = suite.load("smoke")
    part = loaded.only(["*/susd-s1/seq*", "*/flat*"])
    assert [job.name for job in part.jobs] == [
        "multi_particle/flat-s0/seq-easy@1",
        "multi_particle/susd-s1/train",
        "multi_particle/susd-s1/seq-easy@2",
    ]
    assert part.text == loaded.text
    with pytest.raises(UserError, match=r"--only 'ant/\*' matches no job of smoke"):
        loaded.only(["ant/*"])


def test_finished_jobs_make_the_forecast(tmp_path: Path) -> None:
    loaded = suite.load(declare(tmp_path, TINY))
    one, other = loaded.jobs
    facts = [_ended(one, 50.0)]
    assert engine.forecast([other], loaded, facts) == ({other.name: 50.0}, 1)
    assert engine.forecast([other], loaded.only([other.name]), facts) == ({other.name: 50.0}, 1)
    assert engine.forecast([other], loaded, [])[1] == 0


def _ended(job: Job, seconds: float) -> Fact:
    who = (job.name, job.run, job.label, job.method, job.environment, job.seed, job.phase)
    return Fact(*who, "", 0, store.LAST, seconds, "", "", job.hash)


class Fake:
    """An engine whose jobs end at once, some of them badly."""

    slots = 2

    def __init__(self, failures: dict[str, int]) -> None:
        self.failures, self.started = dict(failures), []

    def start(self, job: Job) -> str:
        self.started.append(job.name)
        return job.name

    def ended(self, handles, seconds):  # type: ignore[no-untyped-def]
        outcomes = []
        for name in handles:
            bad = self.failures.get(name, 0) > 0
            self.failures[name] = self.failures.get(name, 0) - 1
            outcomes.append((name, "it burnt" if bad else ""))
        return outcomes

    def close(self) -> None:
        pass


def test_a_job_that_dies_is_tried_once_more_and_then_reported_without_losing_the_others(tmp_path: Path) -> None:
    loaded = suite.load(declare(tmp_path, "evaluations = {control = {}}\n" + TINY))
    first, second = "gunner/susd-s0", "gunner/susd-s1"
    once = Fake({f"{first}/train": 1})
    summary = engine.run(loaded, once, tmp_path / "runs", tmp_path / "results", quiet=True)
    assert (summary.done, summary.failed) == (4, [])
    assert once.started.count(f"{first}/train") == 2
    twice = Fake({f"{first}/train": 2})
    summary = engine.run(loaded, twice, tmp_path / "runs", tmp_path / "results", quiet=True)
    assert twice.started.count(f"{first}/train") == 2
    assert {outcome.job.name: outcome.reason for outcome in summary.failed} == {
        f"{first}/train": "it burnt",
        f"{first}/control": f"{first}/train failed",
    }
    assert {f"{second}/train", f"{second}/control"} <= set(twice.started)


def test_results_that_came_without_their_runs_are_gone_on_with(tmp_path: Path) -> None:
    """Training is done again where something needs it, and only there."""
    loaded = suite.load(declare(tmp_path, "evaluations = {control = {}}\n" + TINY))
    runs, results = tmp_path / "runs", tmp_path / "results"
    done = [job for job in loaded.jobs if job.name != "gunner/susd-s1/control"]
    for job in done:
        store.append(results / "facts.jsonl", [_ended(job, 1.0)])
    fake = Fake({})
    summary = engine.run(loaded, fake, runs, results, quiet=True)
    assert fake.started == ["gunner/susd-s1/train", "gunner/susd-s1/control"]
    assert (summary.done, summary.skipped) == (2, 2)
    there = runs / "gunner" / "susd-s1" / "checkpoints" / "step-00000002.ckpt"
    there.parent.mkdir(parents=True)
    there.touch()
    again = Fake({})
    engine.run(loaded, again, runs, results, quiet=True)
    assert again.started == ["gunner/susd-s1/control"]


def test_a_real_failure_is_told_with_its_reason(susd: Command) -> None:
    path = declare(susd.folder, TINY.replace("[0, 1]", "[0]"))
    place = susd.folder / "runs" / "mine" / "gunner" / "susd-s0"
    place.mkdir(parents=True)
    (place / "config.json").write_text("no json")
    (place / "meta.json").write_text("{}")
    result = susd("suite", "run", path, code=1)
    assert "again, because it failed: gunner/susd-s0/train: susd: error:" in result.stderr
    assert "0 jobs done, 0 finished before, 1 failed" in result.stdout
    assert "is not valid JSON" in result.stdout


def test_the_smoke_suite_killed_at_a_random_moment_and_resumed_gives_the_same_table(susd: Command) -> None:
    """Killed hard, twice, together with nothing else: jobs notice that their suite is gone and end too."""
    susd("suite", "run", "smoke", "--runs", "whole", "--results", "out/whole")
    whole = susd.folder / "out" / "whole"
    began = (whole / "facts.jsonl").stat().st_size
    assert began
    assert all(work.is_trained(job, susd.folder / "whole") for job in suite.load("smoke").jobs if job.trained)
    assert (whole / "trajectories" / "multi_particle-susd.png").stat().st_size > 1000
    for _ in range(2):
        child = susd.start(
            "suite", "run", "smoke", "--runs", "cut", "--results", "out/cut", "--quiet", start_new_session=True
        )
        time.sleep(random.uniform(3.0, 15.0))
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
        assert _ends(susd.folder / "out" / "cut"), "jobs outlive the suite that was killed"
    result = susd("suite", "run", "smoke", "--runs", "cut", "--results", "out/cut")
    assert "forecast: " in result.stderr
    assert table(susd.folder / "out" / "cut") == table(whole)
    again = susd("suite", "run", "smoke", "--runs", "cut", "--results", "out/cut")
    assert "0 jobs done, 9 finished before, 0 failed" in again.stdout
    status = json.loads(susd("suite", "show", "smoke", "--results", "out/cut", "--json").stdout)
    assert (status["finished"], len(status["jobs"]), status["seconds_left"]) == (9, 9, 0)


def test_a_suite_that_is_interrupted_stops_its_jobs_and_says_so(susd: Command) -> None:
    """The signal reaches the suite alone, as from a batch system; training saves itself and goes on later."""
    path = declare(susd.folder, TINY.replace("[0, 1]", "[0]").replace("epochs = 2", "epochs = 100000"))
    results, run = susd.folder / "results" / "mine", susd.folder / "runs" / "mine" / "gunner" / "susd-s0"
    with susd.start("suite", "run", path, "--workers", 1, start_new_session=True) as child:
        deadline = time.monotonic() + 120
        while not (run / "metrics.jsonl").exists():
            assert time.monotonic() < deadline
            assert child.poll() is None
            time.sleep(0.1)
        os.kill(child.pid, signal.SIGINT)
        _, errors = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "susd: interrupted" in errors
    assert _ends(results)
    assert show(run)["epoch"] > 0
    assert store.load(results / "facts.jsonl") == []


def _ends(folder: Path) -> bool:
    """Whether no job of these results runs any more, very soon."""
    deadline = time.monotonic() + 5
    while _running(folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not _running(folder)


def _running(folder: Path) -> list[int]:
    """Processes that do a job below a folder."""
    found = subprocess.run(["pgrep", "-f", f"susd.experiments.job {folder}"], capture_output=True, text=True)
    return [int(pid) for pid in found.stdout.split()]


# In a process of its own, because Ray forks, which must not be done where JAX runs. With Ray's own priority jobs stand
# still on a busy machine, and it takes its time to notice that a node is dead.
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


def test_on_a_cluster_that_loses_a_node_all_jobs_finish_and_none_twice(
    tmp_path: Path, child_environment: dict[str, str]
) -> None:
    """A real Ray on loopback: a head that does no jobs, and two nodes, one of which is killed while both do a job."""
    pytest.importorskip("ray")
    environment = child_environment | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    path = declare(
        tmp_path,
        """
        seeds = [0, 1, 2]
        downstream = { episodes = 4, num_envs = 2, gradient_steps = 1, batch_size = 8, hidden = 8, eval_episodes = 2 }
        [environments.gunner]
        tasks = ["lim"]
        [methods.flat]
        flat = true
        """,
    )
    loaded = suite.load(path)
    runs, results = engine.folders(loaded, tmp_path / "runs", tmp_path / "results")
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
            assert "3 jobs done, 0 finished before, 0 failed" in output
            assert "again, because it failed" not in errors
        finally:
            if child is not None:
                child.kill()
                child.communicate()
            cluster.communicate("end\nend\n", timeout=60)
    lines = [json.loads(line) for line in (results / "facts.jsonl").read_text().splitlines()]
    ends = [row["job"] for row in lines if row["metric"] == store.LAST]
    assert sorted(ends) == sorted(job.name for job in loaded.jobs)


def test_an_address_without_a_cluster_is_answered(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    began = time.monotonic()
    with pytest.raises(UserError, match=r"cannot reach a Ray cluster at 127\.0\.0\.1:1: .*refused"):
        engine.engine_of("ray", "127.0.0.1:1", None, tmp_path, tmp_path)
    assert time.monotonic() - began < 15
    with pytest.raises(UserError, match="--address is 'x'; it must be HOST:PORT, or auto for"):
        engine.engine_of("ray", "x", None, tmp_path, tmp_path)
    with pytest.raises(UserError, match="--address is 'x', but it is for --engine ray"):
        engine.engine_of("local", "x", None, tmp_path, tmp_path)


def test_a_node_that_does_not_see_a_folder_says_so(tmp_path: Path) -> None:
    from susd.experiments.ray import _blind

    assert _blind([str(tmp_path)]) == ""
    assert f"does not see the folder {tmp_path}; put it on" in _blind([str(tmp_path), str(tmp_path / "seen")])
