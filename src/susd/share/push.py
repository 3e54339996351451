"""`susd push RUN FOLDER`: the skills of a run as a small folder that others can pull, load and check.

    manifest.json  README.md  config.json  meta.json  metrics.jsonl  actions.json  evaluation/  checkpoints/

It is a run folder whose checkpoint holds weights only, so that every command that takes a run takes it, too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from susd.collect import rollout_skills
from susd.config import Config
from susd.errors import UserError
from susd.evaluation.evaluate import loaded
from susd.paths import user_path
from susd.plugins import Trust
from susd.runs import checkpoint
from susd.runs.atomic import new_folder, write_json, write_text
from susd.runs.find import PLAIN_NAME
from susd.runs.folder import RunFolder
from susd.runs.untrusted import read_json
from susd.share.card import about, model_card, train_command
from susd.share.manifest import MANIFEST, Manifest, describe
from susd.training.agent import Agent, save_weights

EXAMPLES, STEPS = 8, 20  # recorded actions, and the steps before them


def push(run: str | Path, folder: str | Path, force: bool = False, trust: Trust = False) -> Path:
    """Write the skills of a run to a new folder, with a model card and a manifest; returns the folder.

    `force` replaces a skill folder that exists. The name of the folder is that of the skills. `trust` is
    that of `susd.load`.
    """
    folder, source = user_path("the folder", folder), RunFolder.open(user_path("the run", run))
    name = folder.resolve().name
    if not PLAIN_NAME.fullmatch(name):
        raise UserError(f"skills cannot be named {name!r}; letters, digits and ._+- are allowed")
    if folder.exists() and force and not (folder / MANIFEST).is_file() and any(folder.iterdir()):
        raise UserError(f"{folder} is not a skill folder; it is not replaced")
    if folder.exists() and not force and any(folder.iterdir()):
        raise UserError(f"{folder} already exists; replace it with --force")
    with loaded(run, trust=trust) as agents, new_folder(folder, replace=force) as temporary:
        _write(source, agents, temporary, name)
    return folder


def _write(source: RunFolder, agents: list[Agent], folder: Path, name: str) -> Manifest:
    config = Config.from_json(source.config)
    meta = source.meta | {"command": train_command(config)}  # without folders of this machine
    times = checkpoint.inspect(source.checkpoints / f"step-{agents[0].epoch:08d}.ckpt")["meta"]
    save_weights(agents, folder / "checkpoints", {key: times[key] for key in ("train_seconds", "compile_seconds")})
    write_json(folder / "config.json", source.config)
    write_json(folder / "meta.json", meta)
    write_text(folder / "actions.json", json.dumps(example_actions(agents[0])) + "\n")
    shared = RunFolder.open(folder)
    rows = [row for row in source.read_metrics() if row["epoch"] <= agents[0].epoch]
    shared.append_metrics([row for row in rows if "coverage_worst" in row or row["epoch"] == agents[0].epoch])
    reports = _evaluations(source, agents[0].epoch)
    for evaluation, report in reports.items():
        write_json(folder / "evaluation" / f"{evaluation}.json", report | {"run": name, "meta": meta})
    summary = about(agents[0], times["train_seconds"], reports)
    write_text(folder / "README.md", model_card(name, agents[0], meta, summary, reports))
    manifest = describe(folder, name, summary)
    manifest.write(folder)
    return manifest


def _evaluations(source: RunFolder, epoch: int) -> dict[str, dict[str, Any]]:
    """The evaluations of a run by name; those of an earlier epoch are left out."""
    reports = {path.stem: read_json(path) for path in sorted((source.path / "evaluation").glob("*.json"))}
    return {name: report for name, report in reports.items() if all(one["epoch"] == epoch for one in report["results"])}


def example_actions(agent: Agent) -> dict[str, list[list[float]]]:
    """Some observations and skills with the mean actions and embeddings of an agent, to check copies of it."""
    trainer, space = agent.trainer, agent.trainer.learner.method.skills
    skills = np.asarray(space.sample(jax.random.key(1), EXAMPLES))
    steps = min(STEPS, trainer.horizon)
    seen = rollout_skills(trainer.env, trainer.policy(agent.actor, sampled=False), skills, steps, jax.random.key(1))
    obs = np.asarray(seen.obs[-1])
    found = {"obs": obs, "skill": skills, "action": agent.act(obs, skills), "phi": agent.encode(obs)}
    return {name: [[float(f"{x:.9g}") for x in row] for row in values.tolist()] for name, values in found.items()}
