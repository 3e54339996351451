"""The jobs in folders of results, each with what was trained and how it was measured, and which of them are reported.

Jobs of several folders may have the same name and other options. Of every cell (environment, label, phase, task) one
version is reported, with all its seeds: the one that was recorded last, or that of the first folder where no date is known.
Runs that differ have other names, so that no value is reported with the options or the budget of another run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from susd.config import Config
from susd.errors import UserError
from susd.experiments import metrics_store
from susd.experiments.extract import FLAT
from susd.experiments.metrics_store import CONFIGS, FACTS, Fact
from susd.report.labels import PAPER, paper_label
from susd.report.protocol import Reasons, canonical, defaults, run_reasons, task_reasons
from susd.runs.folder import config_hash
from susd.runs.untrusted import interpreting, parse_toml, read_object, read_text

Cell = tuple[str, str, str, str, bool]  # environment, label, phase, task, on random layouts: what is compared as one
OTHERWISE = ("eval_every", "checkpoint_every", "keep_checkpoints")  # options of a run that change no result
REPEATED = ("seed", "seeds", "skill_seed", "layout", "run")  # in which the scores of one cell differ


@dataclass(frozen=True)
class Block:
    """The facts of one job, and what its config says."""

    facts: list[Fact]
    folder: Path
    trained: str  # equal for jobs of one run; the folder where options are not recorded
    version: str  # equal for jobs that repeat each other, with other seeds and layouts
    created: str  # when the job ran, as a date that sorts; empty if unknown
    preset: str  # of the run
    of_run: Reasons  # what distinguishes the run from the paper's
    of_task: Reasons  # and the options of a task

    @property
    def first(self) -> Fact:
        """A fact, for what all of them share."""
        return self.facts[0]

    @property
    def cell(self) -> Cell:
        """What it is compared as."""
        first = self.first
        named = (fact.subject for fact in self.facts if fact.phase == "downstream" and "@" in fact.subject)
        task, _, layout = next(named, "").rpartition("@")
        return first.environment, first.label, first.phase, task, layout == "random"


def read_blocks(folder: Path) -> list[Block]:
    """The jobs of a folder of results, with labels by what was trained."""
    path = folder / FACTS
    if not path.is_file():
        raise UserError(f"{folder} has no {FACTS}; a folder of results holds one")
    jobs: dict[str, list[Fact]] = {}
    for fact in metrics_store.load(path):
        jobs.setdefault(fact.job, []).append(fact)
    if not jobs:
        raise UserError(f"{path} has no finished job; there is nothing to report")
    suite = presets_of_suite(folder)
    with interpreting(folder / CONFIGS, "the configs of results"):
        configs = read_object(folder / CONFIGS) if (folder / CONFIGS).is_file() else {}
        return [_block(facts, folder, configs, suite) for facts in jobs.values()]


def _block(facts: list[Fact], folder: Path, configs: Mapping[str, Any], suite: Reasons) -> Block:
    first, entry = facts[0], configs.get(facts[0].config_hash, {})
    config = entry.get("config", {})
    training = _training(first.phase, config, configs)
    inner = config.get("config", config)  # of a suite, or of a recorded run
    measured = {} if first.phase == "train" else {k: v for k, v in inner.items() if k not in (*REPEATED, "trained")}
    version = {"trained": training and _options(training, REPEATED), "measured": measured}
    block = Block(
        facts=facts,
        folder=folder,
        trained=config_hash(_options(training)) if training else folder.name,
        version=config_hash(version) if config else folder.name,
        created=str(entry.get("meta", {}).get("created", "")),
        preset=str(training.get("preset", Config.preset)) if training else "unknown" if suite else PAPER,
        of_run=run_reasons(first.environment, training) if training else suite,
        of_task=() if first.phase != "downstream" else task_reasons(inner) if "task" in inner else suite,
    )
    return _labelled(block, training) if training else block


def _training(phase: str, config: Mapping[str, Any], configs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The options of a run: a suite records them with every job, `susd report` once, and their hash with other jobs."""
    if isinstance(config.get("trained"), dict):
        return dict(config["trained"])
    if phase == "train":
        return dict(config["config"]) | {"epochs": config["epoch"]} if "config" in config else None
    name = config.get("trained") or config.get("run")
    return _training("train", configs[str(name)]["config"], configs) if name in configs else None


def _options(training: Mapping[str, Any], without: tuple[str, ...] = ()) -> dict[str, Any]:
    """All options of a run that decide its result."""
    return {k: v for k, v in (defaults(Config) | dict(training)).items() if k not in (*OTHERWISE, *without)}


def _labelled(block: Block, training: Mapping[str, Any]) -> Block:
    """The job with the label of what was trained."""
    first = block.first
    run_label, _, seed = first.run.partition("/")[2].rpartition("-s")
    run = f"{first.environment}/{canonical(run_label, first.environment, training)}-s{seed}"
    return _renamed(block, run, canonical(first.label, first.environment, training))


def _renamed(block: Block, run: str, label: str) -> Block:
    if (run, label) == (block.first.run, block.first.label):
        return block
    job = run + block.first.job.removeprefix(block.first.run)
    return dataclasses.replace(block, facts=[dataclasses.replace(f, run=run, label=label, job=job) for f in block.facts])


def marked(blocks: Sequence[Block]) -> list[Block]:
    """The jobs with an ending for runs of the preset `paper`, in environments that have others, too."""
    presets: dict[str, set[str]] = {}
    for block in blocks:
        if block.first.method != FLAT:
            presets.setdefault(block.first.environment, set()).add(block.preset)
    mixed = {environment for environment, found in presets.items() if len(found) > 1}
    return [_of_paper(block) if block.preset == PAPER and block.first.environment in mixed else block for block in blocks]


def _of_paper(block: Block) -> Block:
    first = block.first
    if first.method == FLAT:
        return block
    environment, _, rest = first.run.partition("/")
    run_label, _, seed = rest.rpartition("-s")
    return _renamed(block, f"{environment}/{paper_label(run_label)}-s{seed}", paper_label(first.label))


def chosen(blocks: Sequence[Block]) -> tuple[list[Block], list[str]]:
    """Each job once and one version of each cell, the one that was recorded last; sentences on what is left out."""
    jobs: dict[tuple[str, str], Block] = {}
    for block in blocks:
        jobs.setdefault((block.first.job, block.first.config_hash), block)
    cells: dict[Cell, dict[str, list[Block]]] = {}
    for block in jobs.values():
        cells.setdefault(block.cell, {}).setdefault(block.version, []).append(block)
    kept: list[Block] = []
    dropped: dict[str, list[str]] = {}  # folder -> the folders that have its cells, once for each job
    for versions in cells.values():
        best = max(versions.values(), key=lambda found: max(block.created for block in found))
        kept += best
        for block in (block for found in versions.values() if found is not best for block in found):
            dropped.setdefault(block.folder.name, []).append(best[0].folder.name)
    sentences = [
        f"{len(by)} jobs of {folder} are left out: {', '.join(sorted(set(by)))} has them with other options."
        for folder, by in sorted(dropped.items())
    ]
    return list(_distinct(kept)), sentences


def _distinct(blocks: Sequence[Block]) -> Iterator[Block]:
    """The jobs with other names for runs that differ from the first run of that name."""
    known: dict[str, str] = {}
    for block in blocks:
        run = block.first.run
        if known.setdefault(run, block.trained) != block.trained:
            block = _renamed(block, f"{block.trained}:{run}", block.first.label)
        yield block


def protocols(blocks: Sequence[Block]) -> dict[str, Reasons]:
    """What distinguishes every run, and the options of every task, from the paper's."""
    runs = {block.first.run: block.of_run for block in blocks}
    return runs | {block.first.job: block.of_task for block in blocks if block.first.phase == "downstream"}


def budgets(everything: Sequence[Block], reported: Sequence[Block]) -> dict[str, int]:
    """The environment steps of every reported run; its training may be one of the jobs that are left out."""
    steps: dict[tuple[str, str], int] = {}
    for block in everything:
        if block.first.phase == "train":
            steps[_trained_run(block)] = max(fact.step for fact in block.facts)
    return {block.first.run: steps[_trained_run(block)] for block in reported if _trained_run(block) in steps}


def _trained_run(block: Block) -> tuple[str, str]:
    return block.trained, block.first.run.removeprefix(f"{block.trained}:")


def presets_of_suite(folder: Path) -> Reasons:
    """The presets that a suite file names, as a reason; `quick` where it names none."""
    file = folder / "suite.toml"
    if not file.is_file():
        return ("preset unknown, no suite file",)
    try:
        found = _presets(parse_toml(read_text(file), "the suite")) or {"quick"}
    except UserError:
        found = {"unknown"}
    return () if found == {"paper"} else (f"preset {' and '.join(sorted(found))}",)


def _presets(value: Any, key: str = "") -> set[str]:
    """The values of all entries named `preset`."""
    if isinstance(value, dict):
        return set[str]().union(*(_presets(entry, name) for name, entry in value.items()))
    if isinstance(value, list):
        return set[str]().union(*(_presets(entry, key) for entry in value))
    return {str(value)} if key == "preset" else set()
