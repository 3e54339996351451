"""The registry of evaluations, a user-defined evaluation, and what an evaluation of a run writes."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import TINY, call, refused
from susd import plugins
from susd.errors import UserError
from susd.evaluation import evaluate as module
from susd.evaluation.evaluate import draw_figures, evaluate, evaluate_default
from susd.evaluation.registry import Evaluation, Option, evaluation, names, value_facts
from susd.runs.folder import RunFolder
from susd.training.trainer import Trainer

Trained = Callable[..., Path]

TOY = """
from susd.errors import UserError
from susd.evaluation.registry import Evaluation, Option


def check(value):
    if value < 0:
        raise UserError(f"--scale is {value}; it must be at least 0")


def measure(agent, seed, scale, power):
    return {"size": agent.sample_skill(seed).size * scale**power, "parts": {"first": 1.0}, "note": "text"}


def undefined(env, card):
    return "" if "gunner" in (env, getattr(env, "name", "")) else f"toy is undefined in {env}"


TOY = Evaluation(
    name="toy", title="Toy", summary="the size of a skill", measure=measure, undefined=undefined,
    options=(Option("scale", 1.0, "factor", check), Option("power", 1, "exponent")),
)
OTHER = 3
"""


@pytest.fixture
def run(trained: Trained, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained("gunner", "--epochs", 3), tmp_path / "run"))


@pytest.fixture
def toy(tmp_path: Path) -> str:
    (tmp_path / "toy.py").write_text(TOY)
    return f"{tmp_path / 'toy.py'}:TOY"


def test_names_import_no_jax() -> None:
    code = "import sys; from susd.evaluation.registry import names; print(*names()); sys.exit('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ceiling", "completions", "control", "coverage", "decoding", "zero-shot"]


@pytest.mark.parametrize("name", names())
def test_every_evaluation_is_complete(name: str) -> None:
    found = evaluation(name)
    assert found.name == name
    assert found.title
    assert found.summary
    assert found.seconds > 0
    assert found.section.startswith("susd.report.sections.")
    assert all(option.help for option in found.options)
    needed = {"task": "gunner-lim"} if name == "ceiling" else {}
    assert found.check_options(needed) == {option.name: option.default for option in found.options} | needed


def test_unknown_names_are_refused(toy: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown evaluation 'covrage'; there are: ceiling, completions, control, coverage"):
        evaluation("covrage")
    with pytest.raises(UserError, match=r"toy\.py:OTHER' is of type int, not an Evaluation"):
        evaluation(toy.replace(":TOY", ":OTHER"))
    assert evaluation(toy).name == "toy"


def test_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Evaluation("mine", "Mine", "one line", measure=lambda agent, seed: {})
    entry = SimpleNamespace(load=lambda: mine)
    monkeypatch.setattr(plugins, "registered", lambda kind: {"mine": entry} if kind == "evaluations" else {})
    assert names()[-1] == "mine"
    assert evaluation("mine") is mine


def test_options_are_checked(toy: str) -> None:
    found = evaluation(toy)
    assert found.check_options({"scale": 2}) == {"scale": 2, "power": 1}
    with pytest.raises(UserError, match="'toy' has no option 'size'; its options are scale, power"):
        found.check_options({"size": 1})
    with pytest.raises(UserError, match=r"power of evaluation 'toy' is 1\.5; it must be an integer"):
        found.check_options({"power": 1.5})
    with pytest.raises(UserError, match="--scale is -1"):
        found.check_options({"scale": -1})
    with pytest.raises(UserError, match="'control' has no option 'steps'; its options are pairs"):
        evaluation("control").check_options({"steps": 400})
    assert Option("a", 1, "b").check(5) is None


def test_user_defined_evaluation(toy: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call("evaluate", run, toy, "--seed", 1, "--scale", "2", "--power", "3", "--json")
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((run / "evaluation" / "toy.json").read_text())
    assert (report["evaluation"], report["evaluation_seed"]) == (toy, 1)
    assert report["options"] == {"scale": 2.0, "power": 3}
    (result,) = report["results"]
    assert (result["seed"], result["epoch"], result["size"]) == (0, 3, 48.0)
    assert list(value_facts({"size": 48.0, "parts": {"first": 1}, "note": "text"})) == [
        ("", 0, "size", 48.0),
        ("parts", 0, "first", 1.0),
    ]
    assert not (run / "figures" / "toy.png").exists()
    call("evaluate", run, toy)
    assert "parts>first" in capsys.readouterr().out


def test_help_shows_the_options(toy: str, capsys: pytest.CaptureFixture[str]) -> None:
    call("evaluate", "--help")
    assert "coverage, decoding, zero-shot, or FILE.py:NAME" in " ".join(capsys.readouterr().out.split()).replace("- ", "-")
    call("evaluate", "anywhere", toy, "--help")
    shown = capsys.readouterr().out
    assert "--scale X" in shown
    assert "exponent; default: 1" in shown
    assert "Toy: the size of a skill." in shown


def test_mistakes_come_before_any_work(
    toy: str, trained: Trained, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "load_all", lambda *_: pytest.fail("the run was loaded"))
    run = trained("gunner", "--epochs", 3)
    assert "unrecognized arguments: --steps 400" in refused(capsys, "evaluate", run, "control", "--steps", 400)
    assert "--scale: 'many' is not a finite number" in refused(capsys, "evaluate", run, toy, "--scale", "many")
    for steps in (0, -200, 100, 10**12):
        assert f"--steps is {steps}; it must be" in refused(capsys, "evaluate", run, "coverage", "--steps", steps)
    for seed in (-1, 2**31, 10**30):
        sentence = f"--seed is {seed}; it must be from 0 to 2147483647"
        assert refused(capsys, "evaluate", run, "control", "--seed", seed) == sentence
    assert "name a task with --task" in refused(capsys, "evaluate", run, "ceiling")
    assert "cannot read 'agent' of the goal" in refused(capsys, "evaluate", run, "zero-shot", "--goal", "agent")
    assert not (run / "evaluation").exists()
    other = tmp_path / "other"
    shutil.copytree(run, other, ignore=shutil.ignore_patterns("*.ckpt"))
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"env": "multi_particle"}))
    assert refused(capsys, "evaluate", other, toy) == "toy is undefined in multi_particle"


def test_given_agents_are_used(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with module.loaded(run) as agents:
        monkeypatch.setattr(module, "load_all", lambda *_: pytest.fail("the run was loaded again"))
        first = evaluate(run, "control", agents=agents)
        assert first["results"][0]["factors"] == ["agent", "ammo", "target"]
        with module.loaded(run, agents) as same:
            assert same is agents


def test_accumulating_reports(tmp_path: Path) -> None:
    """Entries of an earlier report are kept where config, seed and epoch are the same, and replaced where they are new."""
    path, config = tmp_path / "toy.json", {"env": "gunner"}
    path.write_text(json.dumps({"config": config, "results": [{"seed": 0, "epoch": 3, "a": 1, "b": 1}]}))
    kept = module._with_earlier([{"seed": 0, "epoch": 3, "b": 2}, {"seed": 1, "epoch": 3, "b": 5}], path, config)
    assert kept == [{"seed": 0, "epoch": 3, "a": 1, "b": 2}, {"seed": 1, "epoch": 3, "b": 5}]
    later = [{"seed": 0, "epoch": 4, "b": 2}]
    assert module._with_earlier(later, path, config) == module._with_earlier(later, path, {}) == later


@pytest.mark.slow
def test_training_loads_and_builds_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One trainer to train with and one for the agents, which all evaluations and figures share."""
    built: list[Any] = []
    build = Trainer.build.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(Trainer, "build", classmethod(lambda cls, *args: built.append(args) or build(cls, *args)))
    call("train", "gunner", "--run", tmp_path / "run", *TINY, "--epochs", 3, "--quiet")
    assert len(built) == 2
    assert {path.name for path in (tmp_path / "run" / "evaluation").iterdir()} == {"coverage.json", "control.json"}
    assert {path.name for path in (tmp_path / "run" / "figures").iterdir()} == {
        "control.png", "coverage.png", "learning_curves.png", "trajectories.png"
    }  # fmt: skip
    assert capsys.readouterr().out == f"{tmp_path / 'run'}\n"


def test_no_learning_curves_is_no_error(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder.open(run)
    folder.metrics.write_text('{"epoch": 1, "seed": 0}\n')
    written = draw_figures(run)
    assert [path.name for path in written] == ["trajectories.png", "skills.mp4"]
    assert capsys.readouterr().err == "no learning curves: no epoch has learned or measured anything yet\n"


def test_trajectories_are_drawn_from_one_start(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that lines differ by the skill alone."""
    module, seen = sys.modules[draw_figures.__module__], list[object]()
    original = module.rollout_skills
    monkeypatch.setattr(module, "rollout_skills", lambda env, *rest: seen.append(env) or original(env, *rest))
    draw_figures(run)
    assert [type(env).__name__ for env in seen] == ["FixedStart"]


@pytest.mark.slow
def test_default_evaluations(run: Path) -> None:
    reports = evaluate_default(run)
    assert [report["evaluation"] for report in reports] == ["coverage", "control"]
    assert reports[0]["options"] == {"steps": 20_000}
    assert "longer" not in reports[0]["results"][0]["random actions"]
