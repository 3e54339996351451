"""The options of downstream tasks: what is refused, presets, folders."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import susd as package
from conftest import refused
from susd.config import Config, configure
from susd.downstream.config import DownstreamConfig, configure_downstream, folder_of
from susd.errors import UserError


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders that look like runs, `gunner` (seeds 5 and 6) and `particles`, in a working directory."""
    monkeypatch.chdir(tmp_path)
    configs = {"gunner": configure("gunner", seed=5, seeds=2), "particles": configure("multi_particle", method="metra")}
    for name, config in configs.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config.to_json()))
        (tmp_path / name / "meta.json").write_text("{}")
    return tmp_path


MISTAKES: dict[str, tuple[str, ...]] = {  # what is typed after `susd downstream`, and what the answer must contain
    "gunner": ("--task",),
    "--task lim": ("name the run", "--interface flat"),
    "gunner --task seq-easy": ("'multi_particle-seq-easy'", "gunner was trained on gunner"),
    "particles --task gunner-lim": ("'gunner-lim'", "trained on multi_particle"),
    "particles --task easy": ("'easy'", "gunner-lim", "multi_particle-fp-difficult", "FILE.py:NAME"),
    "particles --task my_task.py:TASK": ("file 'my_task.py' does not exist",),
    "missing --task lim": ("there is no run folder missing",),
    "gunner --task lim --layout 4": ("--layout", "'4'", "centre, 0, 1, 2 or 3"),
    "gunner --task lim --layout random": ("--layout", "'random'", "centre"),
    "particles --task fp-easy --layout centre": ("--layout", "'centre'", "random"),
    "particles --task fp-easy --layout -1": ("--layout", "'-1'", "random"),
    "particles --task fp-easy --layout 3000000000": ("--layout", "'3000000000'"),
    "gunner --task lim --skill-seed 7": ("--skill-seed", "7", "5 to 6"),
    "gunner --task lim --interface flat --skill-seed 5": ("--skill-seed", "5", "no skills"),
    "--task lim --interface flat --skill-seed 0": ("--skill-seed", "no skills"),
    "gunner --task lim --interface walk": ("--interface", "'walk'", "skill, goal, flat"),
    "gunner --task lim --policy both": ("--policy", "'both'", "joint, factored, entity"),
    "gunner --task lim --context none": ("--context", "'none'", "--policy entity"),
    "gunner --task lim --policy entity --critic-norm layer": ("--critic-norm", "'layer'", "--policy entity"),
    "gunner --task lim --interface flat --policy entity": ("--policy", "'entity'", "flat", "joint"),
    "gunner --task lim --interface flat --policy factored": ("--policy", "'factored'", "flat", "joint"),
    "gunner --task lim --interface flat --skill-steps 10": ("--skill-steps", "10", "no skills"),
    "gunner --task lim --horizon 12": ("--horizon", "12", "multiple of --skill-steps", "5"),
    "gunner --task lim --flat": ("--flat",),
    "gunner --task lim --env ant": ("--env",),
    "gunner --task reward": ("gunner has no reward of its own", "gunner-lim"),
    "--task reward --interface flat": ("task 'reward' names no environment", "run"),
    "gunner --task lim --preset fast": ("'fast'", "quick, paper"),
    "gunner --task lim --episodes 50": ("--episodes", "50", "multiple of --num-envs", "20"),
    "gunner --task lim --episodes 0": ("--episodes", "0", "at least 1"),
    "gunner --task lim --hidden 8.5": ("--hidden", "'8.5'", "integer"),
    "gunner --task lim --learning-rate nan": ("--learning-rate", "'nan'", "finite number"),
    "gunner --task lim --discount 2": ("--discount", "2", "at most 1"),
    "gunner --task lim --seed 2147483647 --seeds 2": ("--seed", "2147483647", "--seeds"),
    "gunner --task lim --eval-episodes 0": ("--eval-episodes", "at least 1"),
    "gunner --task lim --method metra": ("--method",),
    "--task lim --interface flat --batch-size 2000000000": ("GiB of memory", "available", "--batch-size"),
    "--task lim --interface flat --hidden 65536 --layers 16": ("GiB of memory", "--hidden"),
}


@pytest.mark.parametrize("typed", MISTAKES)
def test_mistakes(runs: Path, capsys: pytest.CaptureFixture[str], typed: str) -> None:
    before = sorted(runs.rglob("*"))
    sentence = refused(capsys, "downstream", *typed.split())
    assert len(sentence) < 400
    for part in MISTAKES[typed]:
        assert part in sentence
    assert sorted(runs.rglob("*")) == before


def test_unknown_option_in_python(runs: Path) -> None:
    with pytest.raises(UserError, match="option 'epochs' is unknown"):
        package.downstream("gunner", "lim", epochs=3)


def test_presets_and_defaults(runs: Path) -> None:
    quick, paper = (configure_downstream("particles", "fp-hard", preset=preset) for preset in ("quick", "paper"))
    assert (quick.episodes, quick.gradient_steps, quick.hidden, quick.learning_rate) == (10_000, 2, 128, 1e-3)
    assert (quick.num_envs, quick.batch_size, quick.warmup, quick.eval_every) == (20, 64, 10_000, 500)
    assert paper.num_envs == 1
    assert (paper.episodes, paper.gradient_steps, paper.hidden, paper.learning_rate) == (10_000, 50, 1024, 1e-4)
    assert (paper.eval_every, paper.actor_activation, paper.batch_size, paper.warmup) == (250, "tanh", 256, 1000)
    same = ("discount", "alpha_init", "target_entropy", "eval_episodes", "layout", "tau")
    assert all(getattr(quick, name) == getattr(paper, name) for name in same)
    assert (quick.task, quick.layout, quick.skill_seed) == ("multi_particle-fp-hard", "1", 0)
    gunner = configure_downstream("gunner", "lim", hidden=8)
    assert (gunner.layout, gunner.skill_seed, gunner.hidden) == ("centre", 5, 8)
    assert (gunner.episodes, gunner.gradient_steps, gunner.discount) == (800, 20, 0.9)  # its episodes are longer
    assert configure_downstream("gunner", "lim", preset="paper").discount == 0.99
    entity = [configure_downstream("particles", task, policy="entity") for task in ("fp-hard", "seq-hard")]
    assert [(one.episodes, one.gradient_steps, one.batch_size) for one in entity] == [(1500, 6, 32), (3000, 6, 32)]
    kitchen = configure_downstream(None, "pot", interface="flat")
    assert (kitchen.layout, kitchen.episodes, kitchen.num_envs, kitchen.eval_episodes) == ("random", 1600, 16, 16)
    assert configure_downstream("particles", "fp-hard", layout=22).layout == "22"


def test_sac_options_are_defined_once() -> None:
    for name in ("hidden", "learning_rate", "tau", "alpha_init", "target_entropy", "batch_size"):
        ours, theirs = (config.__dataclass_fields__[name].metadata for config in (DownstreamConfig, Config))
        assert ours == theirs


def test_folders(runs: Path) -> None:
    def folder(run: str | None, task: str, **options: Any) -> str:
        return str(folder_of(configure_downstream(run, task, **options)))

    assert folder("particles", "fp-hard", layout="random", seed=3) == "particles/downstream/fp-hard-random-s3"
    assert folder("particles", "seq-hard", layout=22, seeds=3) == "particles/downstream/seq-hard-22-s0-2"
    assert folder("gunner", "lim") == "gunner/downstream/lim-centre-s0"
    assert folder("gunner", "lim", skill_seed=6) == "gunner/downstream/lim-centre-s0-skills6"
    assert folder("gunner", "lim", interface="goal") == "gunner/downstream/lim-centre-goal-s0"
    assert folder("gunner", "lim", policy="entity", seed=2) == "gunner/downstream/lim-centre-entity-s2"
    assert folder(None, "lim", interface="flat") == "runs/flat-gunner-lim-centre-s0"


def test_task_and_environment_in_files(runs: Path) -> None:
    """Names of files are compared by path, so that a run and a task may be used from any folder."""
    (runs / "mine").mkdir()
    (runs / "mine" / "tasks.py").write_text(
        "from susd.tasks.registry import TaskEntry\nTASK = TaskEntry('reach', 'envs.py:Points', 'nowhere:Nothing')\n"
    )
    (runs / "mine" / "envs.py").write_text("")
    config = configure("gunner").to_json() | {"env": str(runs / "mine" / "envs.py:Points")}
    (runs / "particles" / "config.json").write_text(json.dumps(config))
    made = configure_downstream("particles", "mine/tasks.py:TASK")
    assert (made.task, made.layout) == ("mine/tasks.py:TASK", "random")
    assert str(folder_of(made)) == "particles/downstream/reach-random-s0"
    with pytest.raises(UserError, match=r"'reach' is one of mine/envs.py:Points, but gunner was trained on gunner"):
        configure_downstream("gunner", "mine/tasks.py:TASK")


def test_help_is_light() -> None:
    code = (
        "import sys\nfrom susd.cli.main import main\n"
        "try:\n    main(['downstream', '--help'])\nexcept SystemExit:\n    pass\nassert 'jax' not in sys.modules"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    for part in ("--task", "multi_particle-fp-easy", "--num-envs", "the seed of a layout"):
        assert part in " ".join(shown.split())
