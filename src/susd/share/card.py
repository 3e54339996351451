"""The model card of skills: what they are, how they were trained, what was measured, how to use them."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from susd import plugins
from susd.config import Config, resolve
from susd.envs.registry import env_entry
from susd.evaluation.registry import evaluation
from susd.methods.registry import method
from susd.runs.tables import Table
from susd.training.agent import Agent, part_names

Reports = Mapping[str, dict[str, Any]]
MEAN_ACTIONS = "trained, mean actions"
FILES = """\
A run folder of susd whose checkpoint holds weights only: it can be used, not trained further. `manifest.json` has the
size and SHA-256 of every file. `actions.json` has observations, skills and the mean actions that belong to them. The files
are JSON and arrays; loading them runs no code."""
PRIOR_TEXT = {
    "sphere": "one unit vector",
    "factor_sphere": "a unit vector for each part",
    "factor_ball": "a vector of at most unit length for each part; its length is the pace, zero is rest",
    "gaussian": "standard normal values",
    "one_hot": "one discrete skill for each part",
}


def train_command(config: Config) -> str:
    """The command that trains the same run, without its folder."""
    words = ["susd", "train", config.env, "--method", config.method, "--preset", config.preset, "--seed", str(config.seed)]
    usual = resolve(config.env, config.preset, method=config.method)
    for spec in dataclasses.fields(config):
        value, flag = getattr(config, spec.name), "--" + spec.name.replace("_", "-")
        if spec.name in ("env", "method", "preset", "seed") or not config.has(spec.name):
            continue
        if spec.name == "env_options":
            changed = {key: item for key, item in value.items() if usual[spec.name].value.get(key) != item}
            words += [word for key, item in changed.items() for word in ("--env-option", f"{key}={item}")]
        elif value != usual[spec.name].value and isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        elif value != usual[spec.name].value:
            words += [flag, str(value)]
    return shlex.join(words)


def about(agent: Agent, seconds: float, reports: Reports) -> dict[str, Any]:
    """What the skills are in short, as JSON: the entry of a list of skills."""
    trainer, config = agent.trainer, agent.trainer.config
    space = trainer.learner.method.skills
    summary: dict[str, Any] = {
        "env": config.env,
        "method": config.method,
        "preset": config.preset,
        "seed": config.seed,
        "steps": agent.epoch * trainer.chunk,
        "train_seconds": round(seconds, 1),
        "parts": list(part_names(trainer)),
        "dim": space.dim,
        "prior": space.prior,
    }
    coverage = reports["coverage"]["results"][0] if "coverage" in reports else {}
    if MEAN_ACTIONS in coverage:
        cells = coverage[MEAN_ACTIONS]["cells"]
        summary["coverage"] = round(cells["average"] / cells["of"], 4)
    if "control" in reports and "ratio" in reports["control"]["results"][0]:
        summary["control_ratio"] = round(reports["control"]["results"][0]["ratio"], 3)
    return summary


def model_card(name: str, agent: Agent, meta: Mapping[str, Any], summary: Mapping[str, Any], reports: Reports) -> str:
    """The card as Markdown."""
    config, card = agent.trainer.config, method(agent.trainer.config.method)
    entry = env_entry(config.env)
    title = entry.title if entry else config.env
    paragraphs = [
        f"# {name}",
        f"Skills that {card.title} discovered in {title} without any reward.",
        *_what(agent, card.summary),
        "## Training",
        _bullets(_training(agent, meta, summary)),
        "## Measured",
        *(_measured(reports) or ["No evaluation was recorded."]),
        "## Use",
        *_use(name, agent),
        "## Files",
        FILES,
    ]
    return "\n\n".join(paragraphs) + "\n"


def _what(agent: Agent, summary: str) -> Iterator[str]:
    trainer, spec = agent.trainer, agent.trainer.env.spec
    space = trainer.learner.method.skills
    factors = ", ".join(f"{n} ({s})" for n, s in zip(spec.factorization.names, spec.factorization.sizes, strict=True))
    sizes = f"{space.size} dimensions: {', '.join(part_names(trainer))}, {space.dim} each"
    rows = [
        ("environment", f"`{trainer.config.env}`"),
        ("observation", f"{spec.obs_size} dimensions; factors {factors}"),
        ("action", f"{spec.action_size} dimensions in [-1, 1]"),
        ("method", f"`{trainer.config.method}`: {summary}"),
        ("skill", f"{sizes}; {PRIOR_TEXT[space.prior]} (`{space.prior}`)"),
    ]
    yield _markdown(("", ""), rows)
    for what, named in (("environment", trainer.config.env), ("method", trainer.config.method)):
        if plugins.is_file(named) or named.startswith("gymnasium:"):
            yield f"The {what} is `{named}`, code that does not come with these files."


def _training(agent: Agent, meta: Mapping[str, Any], summary: Mapping[str, Any]) -> Iterator[str]:
    versions = ", ".join(f"{name} {number}" for name, number in meta["versions"].items())
    yield f"command: `{meta['command']}`"
    yield f"{agent.epoch} epochs, {summary['steps']} environment steps, {summary['train_seconds'] / 60:.1f} minutes"
    yield f"{meta['cpus']} CPUs, device {meta['device']['kind']}, {meta['system']}"
    yield f"versions: {versions}"
    yield f"commit: {meta['commit'] or 'unknown'}"
    yield f"date: {meta['created'][:10]}"


def _measured(reports: Reports) -> list[str]:
    parts: list[str] = []
    for name, report in reports.items():
        options = " ".join(f"--{key.replace('_', '-')} {value}" for key, value in report["options"].items())
        command = f"susd evaluate RUN {name} --seed {report['evaluation_seed']} {options}".rstrip()
        parts.append(f"By `{command}`:")
        for table in evaluation(report["evaluation"]).tables(report):
            parts += [table.title.replace("\n", " "), _table(table)]
    return parts


def _use(name: str, agent: Agent) -> Iterator[str]:
    yield "```sh\n" + "\n".join(f"susd {words}" for words in (f"show {name}", f"evaluate {name} control")) + "\n```"
    lines = ["import susd", "", f'agent = susd.load("{name}")', "skill = agent.sample_skill(seed=0)"]
    lines += [f"action = agent.act(obs, skill)  # obs [{agent.trainer.env.spec.obs_size}], action in [-1, 1]"]
    yield "```python\n" + "\n".join(lines) + "\n```"
    yield f"`{name}` stands for the folder `runs/{name}`, where `susd pull` puts them, or for skills that come with susd."


def _table(table: Table) -> str:
    return _markdown(table.columns, table.rows)


def _markdown(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(columns)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
