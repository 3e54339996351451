"""Suites: the jobs that a file declares, and the errors of bad files."""

from pathlib import Path

import pytest

from experiments.suites import declare
from susd.errors import UserError
from susd.experiments import scheduler, suite
from susd.methods.registry import methods
from susd.tasks.registry import tasks


@pytest.mark.parametrize("name", suite.names())
def test_shipped_suites_load(name: str) -> None:
    loaded = suite.load(name)
    assert loaded.about
    named = {job.name for job in loaded.jobs}
    assert len(named) == len(loaded.jobs)
    assert all(job.needs is None or job.needs in named for job in loaded.jobs)
    seconds, measured = scheduler.forecast(loaded.jobs, loaded, [])
    assert measured == 0
    assert all(0 < value < 1e7 for value in seconds.values())


def test_main_suite_is_complete() -> None:
    """All methods, both 2D environments and all of their tasks."""
    jobs = suite.load("2d-quick").jobs
    for env in ("gunner", "multi_particle"):
        for method in (*(name for name, card in methods().items() if not card.base), "flat"):
            mine = [job for job in jobs if job.environment == env and job.method == method]
            assert len({job.seed for job in mine}) == 3
            assert {job.config["task"] for job in mine if job.phase == "downstream"} == {
                name for name, entry in tasks().items() if entry.env == env
            }
            assert {job.phase for job in mine} >= ({"downstream"} if method == "flat" else {"train", "coverage", "control"})


def test_zero_shot_jobs_where_defined() -> None:
    """In environments with goals, for methods whose embedding gives directions."""
    goals = [job for job in suite.load("paper").jobs if job.phase == "zero-shot"]
    assert {job.environment for job in goals} == {"ant", "half_cheetah"}
    assert {job.method for job in goals} == {"susd", "metra", "csd", "lsd", "susd-w", "susd-wf"}


def test_jobs_of_a_file(tmp_path: Path) -> None:
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
        ("seed = [0]", "the file has the unknown key 'seed'; allowed are about, seeds"),
        ("[methods.susd]\n[environments.mars]", "unknown environment 'mars'; choose one of: gunner"),
        ("[methods.susd]\n[environments.mars]\nenv = 'no.py:make'", "file 'no.py' does not exist"),
        ("[methods.susd]\n[environments.'gymnasium:Ant-v5']", "declare the environment with `env`"),
        ("[environments.gunner]\n[methods.best]", "methods.best: method 'best' is unknown; choose one of susd"),
        ("[environments.gunner]\n[methods.susd]\nepochs = 0", "methods.susd: --epochs is 0; it must be at least 1"),
        ("[environments.gunner]\n[methods.susd]\nepoch = 1", "methods.susd: option 'epoch' is unknown"),
        ("[environments.gunner]\n[methods.susd]\nskill_dim = {ant = 2}", "skill_dim has no value for gunner"),
        ("seeds = [0, 0]\n[environments.gunner]\n[methods.susd]", r"seeds is \[0, 0\]; it must be a list of different"),
        ("[environments.gunner]\ntasks = ['seq-easy']\n[methods.susd]", "task 'seq-easy' is one of multi_particle, not of"),
        ("[environments.gunner]\nlayouts = ['9']\ntasks = ['lim']\n[methods.susd]", "--layout is '9'; for gunner it is"),
        (
            "[environments.gunner]\nlayouts_per_seed = 4\ntasks = ['lim']\n[methods.susd]",
            "layouts_per_seed is 4; it must be from 1 to 1",
        ),
        (
            "[environments.gunner]\n[methods.flat]\nflat = true\nepochs = 3",
            "methods.flat: it is flat and trains no run, so it has no option 'epochs'",
        ),
        ("[environments.gunner]\n[methods.'a/b']\nmethod = 'susd'", "a name has only letters, digits"),
        ("evaluations = {speed = {}}\n[environments.gunner]\n[methods.susd]", "unknown evaluation 'speed'"),
        (
            "evaluations = {control = {steps = 1}}\n[environments.gunner]\n[methods.susd]",
            "evaluation 'control' has no option 'steps'",
        ),
        ("[environments.gunner]\n[methods.susd]\nenvironments = ['ant']", "environments has 'ant', which is not declared"),
        (
            "downstream = {speed = 1}\n[environments.gunner]\ntasks = ['lim']\n[methods.susd]",
            "downstream has the unknown key 'speed'",
        ),
        ("about = 'nothing'", "has no jobs"),
        (
            "evaluations = {zero-shot = {}}\n[environments.gunner]\n[methods.susd]",
            "evaluation 'zero-shot' is undefined: .*gunner",
        ),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        suite.load(declare(tmp_path, text))


def test_unknown_suite() -> None:
    with pytest.raises(UserError, match=r"there is no suite 'everything'; choose one of 2d-quick, .*smoke"):
        suite.load("everything")


def test_only_some_jobs() -> None:
    """They come with the jobs that they need."""
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


EXTENSION = """
import dataclasses

from susd.evaluation.registry import Evaluation, Option
from susd.methods.registry import method
from susd.tasks.registry import task_entry

CARD = dataclasses.replace(method("metra"), name="mine", title="Mine", colour="")
TASK = dataclasses.replace(task_entry("gunner-lim"), name="gunner-mine")
SPEED = Evaluation("speed", "Speed", "how fast", measure=lambda agent, seed, scale: {}, options=(Option("scale", 1.0, ""),))
"""


def test_extensions_of_a_file(tmp_path: Path) -> None:
    """Methods, tasks and evaluations may be FILE.py:NAME; their options are checked too."""
    (tmp_path / "more.py").write_text(EXTENSION)
    more = tmp_path / "more.py"
    text = f"""
    evaluations = {{ "{more}:SPEED" = {{ scale = 2.0 }} }}
    [environments.gunner]
    tasks = ["{more}:TASK"]
    [methods.mine]
    method = "{more}:CARD"
    """
    jobs = suite.load(declare(tmp_path, text)).jobs
    assert [job.name for job in jobs] == [f"gunner/mine-s0/{what}" for what in ("train", "speed", "mine@centre")]
    assert {job.method for job in jobs} == {"mine"}
    assert (jobs[1].evaluation, jobs[1].phase, jobs[1].config) == (f"{more}:SPEED", "speed", {"scale": 2.0})
    with pytest.raises(UserError, match="evaluation 'speed' has no option 'size'; its options are scale"):
        suite.load(declare(tmp_path, text.replace("scale", "size")))
