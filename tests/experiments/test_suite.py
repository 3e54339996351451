"""Suites: the jobs that a file declares, and the errors of bad files."""

from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from experiments.suites import declare
from susd.errors import UserError
from susd.experiments import scheduler, suite
from susd.experiments.job import check_tasks
from susd.methods.registry import methods
from susd.tasks.registry import tasks

shipped = cache(suite.load)  # the large ones take seconds


@pytest.mark.parametrize("name", suite.names())
def test_shipped_suites_load(name: str) -> None:
    loaded = shipped(name)
    assert loaded.about
    named = {job.name for job in loaded.jobs}
    assert len(named) == len(loaded.jobs)
    assert all(job.needs is None or job.needs in named for job in loaded.jobs)
    seconds, measured = scheduler.forecast(loaded.jobs, loaded, [])
    assert measured == 0
    assert all(0 < value < 1e7 for value in seconds.values())


def test_main_suite_is_complete() -> None:
    """All methods, both 2D environments and all of their tasks."""
    jobs = shipped("2d").jobs
    for env in ("gunner", "multi_particle"):
        for method in (*(name for name, card in methods().items() if not card.base), "flat"):
            mine = [job for job in jobs if job.environment == env and job.method == method]
            assert len({job.run for job in mine}) >= 3
            assert {job.config["task"] for job in mine if job.phase == "downstream"} == {
                name for name, entry in tasks().items() if entry.env == env
            }
            assert {job.phase for job in mine} >= ({"downstream"} if method == "flat" else {"train", "coverage", "control"})


def test_seeds_and_layouts_are_a_latin_square() -> None:
    """Nine scores per cell: every seed of skills and every high-level seed meets every layout once."""
    jobs = [job for job in shipped("use").jobs if job.config.get("task") == "gunner-lim" and job.method == "susd-paced"]
    square = [(job.config["skill_seed"], job.seed - job.config["skill_seed"], job.config["layout"]) for job in jobs]
    assert len(square) == 9
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert len({(entry[one], entry[other]) for entry in square}) == 9


def test_main_suite_contains_the_skills_in_use() -> None:
    """Under the same names and with the same options, so that nothing is trained or learned twice."""
    everything = {job.name: job.hash for job in shipped("2d").jobs}
    again = [job for job in shipped("use").jobs if everything.get(job.name) != job.hash]
    assert {job.phase for job in again} == {"control", "coverage"}  # these measure more than they did


@pytest.mark.parametrize("name", ["kitchen", "bodies"])
def test_scales(name: str) -> None:
    """A larger scale continues a smaller one; all methods have a seed before the next one begins, variants come last."""
    scales = shipped(name).scales
    assert scales == ("afternoon", "night", "weekend", "cluster")
    jobs = {scale: suite.load(name, scale).jobs for scale in scales}
    assert all({*map(identity, less)} < {*map(identity, more)} for less, more in pairwise(jobs.values()))
    trained = [job for job in jobs["night"] if job.phase == "train"]
    assert [job.seed for job in trained] == sorted(job.seed for job in trained)
    labels = [job.label for job in jobs["weekend"]]
    assert labels.index("csd" if name == "bodies" else "csd-same-size") > len(labels) - labels[::-1].index("susd") - 1


def test_main_table_has_nine_scores_per_cell() -> None:
    """Three seeds of skills with three high-level seeds each, on the paper's layouts, for every method and way."""
    jobs = suite.load("2d", "main").jobs
    cells = Counter((job.environment, job.label, job.config["task"]) for job in jobs if job.phase == "downstream")
    assert set(cells.values()) == {9}
    learned = [job.hash for job in jobs if job.phase == "downstream"]
    assert len(set(learned)) == len(learned)  # no score twice, also without skills
    assert {*map(identity, jobs)} < {*map(identity, shipped("2d").jobs)}


def identity(job: suite.Job) -> tuple[str, str]:
    return job.name, job.hash


SCALES = """
scale = "small"
[scales.small]
seeds = [1]
methods = ["susd"]
tasks = { gunner = ["lim"] }
[scales.large]
[environments.gunner]
tasks = ["lim", "unlim"]
[methods.susd]
[methods.metra]
ways = [["goal", "joint"]]
tasks = { gunner = ["unlim"] }
"""


def test_scale_of_a_file(tmp_path: Path) -> None:
    """The scale is kept in the text, which the processes of jobs read."""
    path = declare(tmp_path, SCALES)
    assert [job.name for job in suite.load(path).jobs] == ["gunner/susd-s1/train", "gunner/susd-s1/lim@centre"]
    large = suite.load(path, "large")
    assert [job.name for job in large.jobs if job.phase != "train"] == [
        "gunner/susd-s0/lim@centre",
        "gunner/susd-s0/unlim@centre",
        "gunner/metra-s0/unlim@centre-goal",
    ]
    assert suite.load(declare(tmp_path, large.text)).jobs == large.jobs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("small]", "tiny]"), "scale is 'small'; it must be one of tiny, large"),
        (('["susd"]', '["dusdi"]'), "methods has 'dusdi', which is not declared; declared are susd, metra"),
        (("seeds", "seed"), "scales.small has the unknown key 'seed'"),
        (("{ gunner", "{ kitchen"), "tasks has 'kitchen', which is not declared"),
        (('"goal", "joint"', '"goal"'), "ways is .*; it must be a list of pairs"),
    ],
)
def test_bad_scales(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        suite.load(declare(tmp_path, SCALES.replace(*change)), "large" if "ways" in message else "")


def test_zero_shot_jobs_where_defined() -> None:
    """In environments with goals, for methods whose embedding gives directions."""
    goals = [job for job in shipped("paper").jobs if job.phase == "zero-shot"]
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
    interface = "flat"
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
            "[environments.gunner]\n[methods.flat]\ninterface = 'flat'\nepochs = 3",
            "methods.flat: its interface is flat and it trains no run, so it has no option 'epochs'",
        ),
        (
            "[environments.gunner]\ntasks = ['lim']\n[methods.susd]\ninterface = ['skill', 'flat']",
            "interface has 'flat', which needs no run; give it an entry of its own",
        ),
        (
            "[environments.gunner]\ntasks = ['lim']\n[methods.susd]\ninterface = []",
            r"interface is \[\]; it must be a value or a list",
        ),
        (
            "[environments.gunner]\ntasks = ['lim']\n[methods.susd]\ninterface = 'walk'",
            "--interface is 'walk'; choose one of skill, goal, flat",
        ),
        (
            "[environments.gunner]\ntasks = ['lim']\n[methods.diayn]\ninterface = 'goal'",
            "methods.diayn: interface is 'goal', but goals need an embedding",
        ),
        (
            "[environments.gunner]\ntasks = ['lim']\n[methods.metra]\npolicy = 'entity'",
            "policy is 'entity', but the skills of metra have one part",
        ),
        (
            "[environments.gunner]\ntasks = [{task = 'lim', steps = 3}]\n[methods.susd]",
            "downstream has the unknown key 'steps'; allowed are interface, policy",
        ),
        (
            "downstream = {context = 'none'}\n[environments.gunner]\ntasks = ['lim']\n[methods.susd]",
            "downstream has context = 'none', but only policy = 'entity' has one",
        ),
        ("[environments.gunner]\ntasks = ['reward']\n[methods.susd]", "gunner has no reward of its own"),
        (
            "downstream = {seeds = 0}\n[environments.gunner]\ntasks = ['lim']\n[methods.susd]",
            "downstream has seeds = 0; it must be a number of high-level policies",
        ),
        ("[environments.gunner]\n[methods.flat]\nflat = true", "methods.flat: .*'flat'"),
        ("[environments.gunner]\n[methods.'a/b']\nmethod = 'susd'", "a name has at most 64 letters, digits"),
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
            "evaluations = {zero-shot = {}}\n[environments.gunner]\n[methods.diayn]",
            "evaluation 'zero-shot' is undefined: .*diayn",
        ),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        suite.load(declare(tmp_path, text))


def test_unknown_suite() -> None:
    with pytest.raises(UserError, match=r"there is no suite 'everything'; choose one of 2d, .*smoke"):
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


def test_ways_to_use_the_skills(tmp_path: Path) -> None:
    """One training for all of them; every way is a job and a label of its own."""
    text = """
    downstream = { seeds = 2, policy = ["joint", "entity"], context = "none" }
    [environments.gunner]
    tasks = ["lim", { task = "unlim", policy = "joint", horizon = 100, skill_steps = 10 }]
    [methods.susd]
    interface = ["skill", "goal"]
    [methods.susd-random]
    method = "susd"
    interface = "goal"
    tasks = [{ task = "lim", policy = "joint", seeds = 1 }]
    [methods.flat]
    interface = "flat"
    """
    jobs = suite.load(declare(tmp_path, text)).jobs
    mine = {job.name.removeprefix("gunner/"): job for job in jobs if job.phase == "downstream"}
    ways = {"": "susd", "-entity": "susd-entity", "-goal": "susd-goal", "-goal-entity": "susd-goal-entity"}
    expected = {f"susd-s0/lim@centre{way}{seed}": label for way, label in ways.items() for seed in ("", "-s1")}
    expected |= {f"susd-s0/unlim@centre{way}{seed}": ways[way] for way in ("", "-goal") for seed in ("", "-s1")}
    expected |= {"susd-random-s0/lim@centre-goal": "susd-goal-random"}
    expected |= {f"flat-s0/{task}@centre{seed}": "flat" for task in ("lim", "unlim") for seed in ("", "-s1")}
    assert {name: job.label for name, job in mine.items()} == expected
    assert [job.name for job in jobs if job.phase == "train"] == ["gunner/susd-s0/train", "gunner/susd-random-s0/train"]
    other = mine["susd-s0/lim@centre-goal-entity-s1"]
    assert (other.run, other.seed, other.method) == ("gunner/susd-s0", 1, "susd")
    assert (other.config["seed"], other.config["skill_seed"], other.config["seeds"]) == (1, 0, 1)
    assert (other.config["interface"], other.config["policy"], other.config["context"]) == ("goal", "entity", "none")
    assert mine["susd-s0/lim@centre"].config["context"] == "mean"
    short = mine["susd-s0/unlim@centre-goal"].config
    assert (short["horizon"], short["skill_steps"], short["episodes"]) == (100, 10, 800)
    assert len({job.hash for job in jobs}) == len(jobs) - 2  # both runs have the same options, and one task


def test_recorded_results_remain_valid() -> None:
    """Options that came later change nothing where they have their usual values."""
    jobs = {job.name: job for job in shipped("2d").jobs}
    config = jobs["gunner/susd-s0/lim@0"].identity["config"]
    assert config["flat"] is False
    assert not {"interface", "policy", "context", "horizon", "skill_steps", "env", "env_options"} & config.keys()
    flat = jobs["gunner/flat-s0/lim@0"].identity["config"]
    assert flat["flat"] is True
    assert flat.keys() == config.keys()


OWN = """
import jax.numpy as jnp
from susd.extend import EnvSpec, Factorization, Task

class Slider:
    def __init__(self, horizon=10):
        self.spec = EnvSpec("slider", 2, 2, horizon, Factorization.from_mapping({"x": [0], "y": [1]}, 2), (), {})
    def reset(self, key):
        return jnp.zeros(2)
    def step(self, state, action, key):
        return state + action
    def observe(self, state):
        return state
    def reward(self, state, action, next_state):
        return next_state[0]
    def render(self, state, size=400):
        return None

class Right(Task):
    horizon = 10
    def reward(self, env_state):
        return env_state[0] > 0

class Wrong(Right):
    def reward(self, env_state):
        return env_state
"""


def test_tasks_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes, and the environment's own reward, also without skills; they are tried before any job runs."""
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    text = """
    train = { horizon = 20 }
    [environments.slider]
    env = "own.py:Slider"
    tasks = ["own.py:Right", "reward"]
    [methods.susd]
    [methods.flat]
    interface = "flat"
    """
    jobs = {job.name: job for job in suite.load(declare(tmp_path, text)).jobs}
    assert set(jobs) == {
        *(f"slider/susd-s0/{what}" for what in ("train", "Right@random", "reward@random")),
        *(f"slider/flat-s0/{what}" for what in ("Right@random", "reward@random")),
    }
    flat = jobs["slider/flat-s0/reward@random"]
    assert (flat.config["env"], flat.config["env_horizon"]) == ("own.py:Slider", 20)
    check_tasks(jobs.values())
    for name, message in (
        (("own.py:Right", "own.py:Wrong"), r"slider/susd-s0/Wrong@random: task 'Wrong': `reward` gives an array of shape"),
        (
            ("{ horizon = 20 }", "{ horizon = 12 }"),
            r"slider/susd-s0/reward@random: the horizon is 12; it must be",
        ),
    ):
        with pytest.raises(UserError, match=message):
            check_tasks(suite.load(declare(tmp_path, text.replace(*name))).jobs)
