"""Skills that are pushed are small, complete, described, and act as the run does; the shipped ones act as recorded."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import susd
from conftest import call, refused
from reference import random_like
from susd.config import configure
from susd.runs import find
from susd.runs.folder import RunFolder
from susd.share.card import train_command
from susd.share.manifest import File, read_manifest
from susd.training.agent import Agent, load_all, save_weights
from susd.training.trainer import Trainer

Trained = Callable[..., Path]


def examples(folder: Path) -> dict[str, np.ndarray]:
    recorded = json.loads((folder / "actions.json").read_text())
    return {name: np.array(values, np.float32) for name, values in recorded.items()}


def assert_acts_as_recorded(folder: Path) -> None:
    agent, found = susd.load(folder), examples(folder)
    np.testing.assert_allclose(agent.act(found["obs"], found["skill"]), found["action"], atol=1e-5)
    np.testing.assert_allclose(agent.encode(found["obs"]), found["phi"], rtol=1e-4, atol=1e-4)
    assert np.ptp(found["action"], axis=0).max() > 1e-4  # not one action for all


def test_pushed_skills_act_as_the_run(pushed: Path, trained: Trained) -> None:
    run, copy = susd.load(trained("gunner", "--epochs", 3)), susd.load(pushed)
    found = examples(pushed)
    assert np.array_equal(run.act(found["obs"], found["skill"]), copy.act(found["obs"], found["skill"]))
    assert np.array_equal(run.encode(found["obs"]), copy.encode(found["obs"]))
    assert (copy.seed, copy.epoch) == (0, 3)
    assert_acts_as_recorded(pushed)


def test_another_action_is_noticed(pushed: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(pushed, tmp_path / "tiny"))
    recorded = json.loads((folder / "actions.json").read_text())
    recorded["action"][3][2] += 1e-4
    (folder / "actions.json").write_text(json.dumps(recorded))
    with pytest.raises(AssertionError, match="Not equal"):
        assert_acts_as_recorded(folder)


def test_manifest_and_card(pushed: Path) -> None:
    manifest = read_manifest(pushed)
    files = {path.relative_to(pushed).as_posix() for path in pushed.rglob("*") if path.is_file()}
    assert set(manifest.files) | {"manifest.json"} == files
    assert "checkpoints/step-00000003.ckpt" in files
    assert all(File.of((pushed / path).read_bytes()) == file for path, file in manifest.files.items())
    assert manifest.size < 30_000  # the checkpoint of the run has 180 kB
    card = (pushed / "README.md").read_text()
    factors = "agent (6), ammo (7), target (5)"
    for text in ("# tiny", "2D-Gunner", factors, "factor_sphere", "--epochs 3", 'susd.load("tiny")'):
        assert text in card
    private = [pushed / name for name in ("README.md", "meta.json", "config.json", "manifest.json")]
    assert not any(re.search(r"/tmp|/home|/root|\.py\b", path.read_text()) for path in private)


def test_command_of_the_card_gives_the_config() -> None:
    from susd.cli.common import given
    from susd.cli.main import parser

    options: dict[str, Any] = {"method": "dusdi", "seed": 3, "hidden": 32, "env_options": {"layout": "random"}}
    for preset, scaled in (("quick", False), ("paper", True)):
        config = configure("gunner", preset, scale_skill=scaled, **options)
        words = train_command(config).split()
        assert words[:3] == ["susd", "train", "gunner"]
        parsed = given(parser().parse_args(words[1:]))
        assert configure("gunner", parsed.pop("preset"), **parsed) == config


def test_evaluations_are_part_of_the_card(trained: Trained, tmp_path: Path) -> None:
    run = Path(shutil.copytree(trained("gunner", "--epochs", 3), tmp_path / "run"))
    susd.evaluate(run, "control")
    folder = susd.push(run, tmp_path / "measured")
    ratio = read_manifest(folder).about["control_ratio"]
    assert ratio > 0
    assert f"{ratio:.2f}" in (folder / "README.md").read_text()
    assert json.loads((folder / "evaluation" / "control.json").read_text())["run"] == "measured"
    report = run / "evaluation" / "control.json"
    report.write_text(report.read_text().replace('"epoch": 3', '"epoch": 2'))
    assert "control_ratio" not in read_manifest(susd.push(run, folder, force=True)).about  # of an earlier epoch


def test_folder_is_refused(pushed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.txt").write_text("mine")
    assert refused(capsys, "push", pushed, tmp_path / "taken").endswith("taken already exists; replace it with --force")
    assert "is not a skill folder" in refused(capsys, "push", pushed, tmp_path / "taken", "--force")
    assert "cannot be named 'a b'" in refused(capsys, "push", pushed, tmp_path / "a b")
    assert [path.name for path in tmp_path.rglob("*")] == ["taken", "thesis.txt"]


def test_training_cannot_be_resumed(pushed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(pushed.rglob("*"))
    sentence = refused(capsys, "train", "--resume", "--run", pushed, "--epochs", "9")
    assert sentence == f"{pushed} holds weights only: its skills can be used, but training cannot be resumed"
    assert sorted(pushed.rglob("*")) == before


def test_weights_of_all_seeds_are_kept(tmp_path: Path) -> None:
    sizes = {"hidden": 8, "phi_hidden": 8, "buffer_size": 400, "warmup": 1}
    trainer = Trainer.build(configure("gunner", seed=5, seeds=2, method="metra", **sizes))
    weights = [random_like(trainer.learner.init, seed) for seed in range(2)]
    agents = [Agent(trainer, found.sac.actor, found.params, 5 + seed, 9) for seed, found in enumerate(weights)]
    folder = RunFolder.create(tmp_path / "run", trainer.config.to_json(), "")
    save_weights(agents, folder.checkpoints, {"train_seconds": 1.0, "compile_seconds": 1.0})
    for saved, found in zip(agents, load_all(tmp_path / "run"), strict=True):
        assert (found.seed, found.epoch) == (saved.seed, saved.epoch)
        assert jax.tree.all(jax.tree.map(np.array_equal, (found.actor, found.params), (saved.actor, saved.params)))


# The skills that come with the package.


@pytest.mark.parametrize("name", find.shipped())
def test_shipped_skills_act_as_recorded(name: str) -> None:
    folder = find.shipped()[name]
    manifest = read_manifest(folder)
    assert manifest.name == name
    assert all(File.of((folder / path).read_bytes()) == file for path, file in manifest.files.items())
    assert manifest.size < 1_000_000
    assert_acts_as_recorded(folder)


def test_shipped_skills_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert sum(read_manifest(folder).size for folder in find.shipped().values()) < 5_000_000
    call("skills")
    printed = capsys.readouterr().out
    call("skills", "--json")
    listed = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in listed] == list(find.shipped())
    for one in listed:
        assert re.search(rf"^  {one['name']} +{one['env']} +{one['method']} ", printed, re.MULTILINE)
        assert one["name"].split("-")[0] == one["env"]
        assert one["method"] == (one["name"].split("-")[1:] or ["susd"])[0]
        assert {"coverage", "steps"} <= set(one)
        assert RunFolder.open(Path(one["name"])).path == find.SHIPPED / one["name"]
