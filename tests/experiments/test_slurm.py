"""Suites as an array of SLURM: the script, its body run here, and the results of its tasks merged."""

import json
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from conftest import call, refused
from experiments.suites import SMALL_TASK, TINY
from susd.experiments import metrics_store, scheduler, slurm, suite
from susd.experiments.metrics_store import CONFIGS, FACTS, Fact

ODD = 'it\'s "odd" $HOME `x`'

FLAT = f"""
seeds = [0, 1]
downstream = {SMALL_TASK}
[environments.multi_particle]
tasks = ["seq-easy"]
[methods.flat]
interface = "flat"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a name that a shell must not interpret, and a suite in it."""
    found = tmp_path / ODD
    found.mkdir()
    (found / "my suite.toml").write_text(TINY)
    monkeypatch.chdir(found)
    return found


def written(*options: object) -> str:
    call("suite", "slurm", "my suite.toml", "--out", "array.sbatch", *options)
    subprocess.run(["bash", "-n", "array.sbatch"], check=True)
    return Path("array.sbatch").read_text()


def cases(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.startswith("  ")][:-1]


def ended(job: suite.Job) -> Fact:
    columns = (job.name, job.run, job.label, job.method, job.environment, job.seed, job.phase)
    return Fact(*columns, "", 0, "seconds", 1.0, "", "", job.hash)


@pytest.mark.slow
def test_tasks_run_and_merge(folder: Path, child_environment: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Two tasks at once, as SLURM starts them, in another folder."""
    (folder / "my suite.toml").write_text(FLAT)
    written()
    tasks = [
        subprocess.Popen(
            ["bash", folder / "array.sbatch"], env=child_environment | {"SLURM_ARRAY_TASK_ID": str(i)}, cwd="/"
        )
        for i in range(2)
    ]
    assert [task.wait(500) for task in tasks] == [0, 0], [p.read_text() for p in folder.rglob("log.txt")]
    capsys.readouterr()
    for new in (2, 0):  # merging again changes nothing
        call("suite", "merge", "my suite.toml")
        facts = folder / "results" / "my suite" / FACTS
        assert capsys.readouterr().out == f"{new} new jobs from 2 tasks\n{facts}\n"
    rows = [json.loads(line) for line in facts.read_text().splitlines()]
    assert [row["job"] for row in rows] == [f"multi_particle/flat-s{seed}/seq-easy@1" for seed in (0, 1)]
    assert {row["config_hash"] for row in rows} == set(json.loads((facts.parent / CONFIGS).read_text()))
    assert "are finished" in refused(capsys, "suite", "slurm", "my suite.toml")


def test_options_of_the_script(folder: Path) -> None:
    text = written("--time", "2-12:00:00", "--partition", "a,b", "--cpus", 4, "--gpus", 1, "--max-parallel", 8)
    wanted = ("array=0-1%8", "time=2-12:00:00", "partition=a,b", "cpus-per-task=4", "gres=gpu:1", "job-name=susd-my_suite")
    assert {f"#SBATCH --{line}" for line in wanted} <= set(text.splitlines())
    assert "--workers 1 " in text  # jobs of a task share its GPU
    assert "--workers 4 " in written("--cpus", 4)
    assert "--time" not in written()


def test_finished_jobs_are_left_out(folder: Path) -> None:
    (folder / "my suite.toml").write_text("evaluations = {control = {}}\n" + TINY)
    loaded = suite.load("my suite.toml")
    assert cases(written()) == [
        f"{seed}) part='gunner~susd-s{seed}'; only=(--only 'gunner/susd-s{seed}/*') ;;" for seed in (0, 1)
    ]
    _, results = scheduler.folders(loaded, None, None)
    for job in loaded.jobs:
        if job.name != "gunner/susd-s1/control":
            metrics_store.append(results / FACTS, [ended(job)])
    assert cases(written()) == ["0) part='gunner~susd-s1'; only=(--only gunner/susd-s1/control) ;;"]


def test_merge_leaves_out_other_options(folder: Path) -> None:
    loaded = suite.load("my suite.toml")
    runs, results = scheduler.folders(loaded, None, None)
    part = runs / slurm.PARTS / "gunner~susd-s0"
    metrics_store.append(part / FACTS, [ended(loaded.jobs[0])])
    (part / CONFIGS).write_text("{}")
    (part / "trajectories").mkdir()
    Image.new("RGB", (4, 4)).save(part / "trajectories" / "gunner-susd.png")
    (folder / "my suite.toml").write_text(TINY.replace("epochs = 2", "epochs = 3"))
    assert slurm.merge(suite.load("my suite.toml"), runs, results) == slurm.Merged(1, 0, 1)
    assert not (results / FACTS).exists()
    assert (results / "trajectories" / "gunner-susd.png").is_file()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--time", "soon"), "--time is 'soon'; it must be like 90 (minutes), 12:00:00 or 2-12:00:00"),
        (("--time", "1\n#SBATCH x"), "--time is '1\\n#SBATCH x'; it must be like"),
        (("--partition", "a b"), "--partition is 'a b'; it must be a name, or several joined by commas"),
        (("--cpus", 0), "--cpus is 0; it must be from 1 to 1024"),
        (("--gpus", 65), "--gpus is 65; it must be from 0 to 64"),
        (("--max-parallel", -1), "--max-parallel is -1; it must be from 0 to 10000"),
    ],
)
def test_refused_options(
    folder: Path, options: tuple[object, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, "suite", "slurm", "my suite.toml", *options).startswith(sentence)


def test_nothing_to_merge(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sentence = refused(capsys, "suite", "merge", "my suite.toml")
    assert sentence == f"there are no results of tasks in {folder / 'runs' / 'my suite' / '.slurm'}"
