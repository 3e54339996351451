"""Write the generated parts of README.md and docs/ into the files: `python docs/generate.py`, or `--check` to compare only.

A generated part stands between a marker, such as `<!-- options -->`, and `<!-- end -->`, so pages are complete as Markdown.
BLOCKS has the markers; `<!-- table NAME -->` is a table of results, see susd.report.tables.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import inspect
import io
import json
import os
import pkgutil
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from susd.cli.common import flag_of
from susd.cli.main import main as susd
from susd.config import GROUPS, Config, configure, resolve
from susd.downstream.config import FROM_RUN, DownstreamConfig, preset_options
from susd.envs.registry import environments
from susd.methods.registry import Card, methods
from susd.report import tables
from susd.report.labels import base
from susd.tasks.registry import task_entry

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
PRESETS = ("paper", "quick")
ENVIRONMENTS = [entry.name for entry in environments().values() if entry.source.startswith("susd.")]
METHODS = {name: card for name, card in methods().items() if str(card.implementation).startswith("susd.")}
RUN_OPTIONS = "options of the run"  # the heading in help texts below which all options of a run follow


def option_tables(_: str = "") -> str:
    """All options of a run, one table for each group."""
    lines: list[str] = []
    for spec in dataclasses.fields(Config):
        if spec.name in GROUPS:
            lines += ["", f"### {GROUPS[spec.name]}", "", *_head("option", "`paper`", "`quick`", "meaning")]
        values = ["", ""] if spec.name in ("env", "preset") else [_value(spec.name, preset) for preset in PRESETS]
        if values[0] != values[1]:
            values[1] = f"**{values[1]}**"
        choices = ", ".join(f"`{choice}`" for choice in spec.metadata.get("choices") or ())
        meaning = spec.metadata["help"] + (f" ({choices})" if choices else "")
        lines.append(_row(f"`{flag_of(spec.name)}`", *values, meaning))
    return "\n".join(lines[1:])


def method_list(_: str = "") -> str:
    """Every method that is not a variant, from its card."""
    lines: list[str] = []
    for card in METHODS.values():
        if card.base:
            continue
        texts = {"objective": card.objective, "constraint": card.constraint, "weight": card.weight, "reward": card.reward}
        lines.append(f"- **[{card.title}]({card.name}.md)**: {card.summary} ({card.source})")
        lines += [f"    - {name}: {_formula(text)}" for name, text in texts.items() if text != "none"]
        lines.append(f"    - skills: {card.prior}")
    return "\n".join(lines)


def method_defaults(_: str = "") -> str:
    """For every method and preset, the options whose values are not those of SUSD."""
    lines = _head("method", *(f"`{preset}`" for preset in PRESETS))
    for name, card in METHODS.items():
        if name != "susd":
            lines.append(_row(f"[{name}]({card.code}.md)", *(_changes(card, preset) for preset in PRESETS)))
    return "\n".join(lines)


def _changes(card: Card, preset: str) -> str:
    """Where a method's values are not SUSD's, or SUSD does not have the option."""
    pairs = {env: (resolve(env, preset, method=card.name), resolve(env, preset)) for env in ENVIRONMENTS}
    cells = []
    for name in (spec.name for spec in dataclasses.fields(Config) if spec.name != "method"):
        changed = {
            env: _text(mine[name].value)
            for env, (mine, susd) in pairs.items()
            if mine[name].used and (mine[name].value != susd[name].value or not susd[name].used)
        }
        same = len(changed) == len(pairs) and len(set(changed.values())) == 1
        texts = set(changed.values()) if same else [f"{value} ({env})" for env, value in changed.items()]
        cells += [f"`{name}` {text.replace('`', '')}" for text in texts]
    return ", ".join(cells) or "as SUSD"


def deviations() -> set[str]:
    """The options in which `quick` differs from `paper`, in any environment."""
    names = {spec.name for spec in dataclasses.fields(Config)} - {"env", "preset"}
    return {name for name in names if _value(name, "paper") != _value(name, "quick")}


def _value(name: str, preset: str) -> str:
    """The value of an option in a preset; environments with another value are named."""
    settings = {env: resolve(env, preset)[name] for env in ENVIRONMENTS}
    common = [_text(s.value) for s in settings.values() if s.layer in ("default", "preset")][:1]
    other = [f"{env}: {_text(s.value)}" for env, s in settings.items() if [_text(s.value)] != common]
    return "; ".join([*common, *other])


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"`{name}={item}`" for name, item in value.items()) or "none"
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{value}`" if value != "" else "none"


def _formula(text: str) -> str:
    """Formulas of cards are plain text; as code, Markdown leaves them alone."""
    return f"`{text}`" if "(" in text else text


def _head(*columns: str) -> list[str]:
    return [_row(*columns), _row(*["---"] * len(columns))]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def help_text(command: str) -> str:
    """The output of `susd COMMAND --help`; the options of the run have their own page."""
    text, shared, _ = printed(*command.split(), "--help").partition(RUN_OPTIONS)
    more = f"{RUN_OPTIONS}: see the page on presets and options\n" if shared else ""
    return f"```text\n{text}{more}```"


def config_text(arguments: str) -> str:
    """The output of `susd config ..`."""
    return f"```text\n{printed('config', *arguments.split())}```"


def printed(*arguments: str) -> str:
    """What a command prints, in 100 columns and without colour."""
    output = io.StringIO()
    plain = mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"})
    with plain, contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        susd(arguments)
    return output.getvalue()


def commands(folder: str) -> str:
    """The commands behind results/FOLDER, from the recorded configs: whatever a preset has become, they give these runs."""
    jobs = [json.loads(line) for line in (ROOT / "results" / folder / "facts.jsonl").read_text().splitlines()]
    recorded = json.loads((ROOT / "results" / folder / "configs.json").read_text())
    lines = [_command(folder, job, recorded[job["config_hash"]]) for job in jobs]
    lines = [line for line in dict.fromkeys(lines) if line] + [f"susd report runs/{folder} --out results/{folder}"]
    return "\n".join(["```sh", *lines, "```"])


def _command(folder: str, job: dict[str, Any], recorded: dict[str, Any]) -> str:
    label = base(job["label"])
    name = label.removeprefix("susd-") if folder.startswith("ablations") else f"{label}-s{job['seed']}"
    run, env, phase = f"runs/{folder}/{name}", job["environment"], job["phase"]
    if phase == "train":
        words = [
            "train",
            env,
            *_training_words(env, recorded["config"]["config"], recorded["config"]["epoch"]),
            "--run",
            run,
        ]
    elif phase == "downstream":
        words = ["downstream", *_task_words(f"runs/{folder}/{job['run'].partition('/')[2]}", recorded["config"])]
    elif phase == "coverage" and env in HOST:
        words = ["evaluate", run, phase, "--steps", "20000"]
    elif phase in ("coverage", "control"):
        return ""  # `susd train` runs it
    else:
        words = ["evaluate", run, phase]
    return shlex.join(["susd", *words])


def _task_words(run: str, config: dict[str, Any]) -> Iterator[str]:
    """The words of a recorded task: its run, unless it is flat, and the options that are not those of its preset."""
    if config.get("interface") != "flat":
        yield run
    yield from ("--task", config["task"])
    entry = task_entry(config["task"], config.get("env", ""))
    usual = {field.name: field.default for field in dataclasses.fields(DownstreamConfig)}
    usual |= preset_options(config["preset"], entry) | {"preset": "quick", "layout": entry.layouts.default}
    for name in (name for name in usual if name in config and name not in (*FROM_RUN, "task", "skill_seed")):
        if config[name] != usual[name]:
            yield from (f"--{name.replace('_', '-')}", str(config[name]))


HOST = ("kitchen", "ant", "half_cheetah")  # where `susd train` runs a short version of coverage


def _training_words(env: str, recorded: dict[str, Any], epochs: int) -> Iterator[str]:
    """The options of a recorded training that are not those of its preset."""
    before = {field.name: field.default for field in dataclasses.fields(Config)} | recorded | {"epochs": epochs}
    before["buffer_size"] = recorded.get("replay", before["buffer_size"])  # its name in the first recorded runs
    named = [name for name in ("method", "preset", "seed", "seeds") if name in recorded]
    chosen = {name: recorded[name] for name in named}
    now = configure(env, **chosen).to_json()
    usual = configure(env).to_json()
    for name in (*(name for name in named if recorded[name] != usual[name]), *(name for name in now if name not in named)):
        if name not in UNDECIDED and (name in named or now[name] != before[name]):
            yield from _words(name, before[name])
    options = {name: value for name, value in recorded["env_options"].items() if name != "threads"}
    for name, value in (env_defaults(env) | options).items():
        if value != now["env_options"].get(name, env_defaults(env)[name]):
            yield from ("--env-option", f"{name}={str(value).lower()}")


def _words(name: str, value: Any) -> tuple[str, ...]:
    """An option with its value; a switch has none."""
    flag = flag_of(name)
    return (flag if value else flag.replace("--", "--no-", 1),) if isinstance(value, bool) else (flag, str(value))


def env_defaults(env: str) -> dict[str, Any]:
    """The default of every option of an environment."""
    parameters = inspect.signature(pkgutil.resolve_name(environments()[env].source)).parameters
    return {name: parameter.default for name, parameter in parameters.items()}


UNDECIDED = ("env", "env_options", "eval_every", "checkpoint_every", "keep_checkpoints")  # decide nothing that is learned
BLOCKS: dict[str, Callable[[str], str]] = {
    "options": option_tables,
    "methods": method_list,
    "defaults": method_defaults,
    "help": help_text,
    "config": config_text,
    "commands": commands,
    "question": tables.question,
}


def fill(text: str) -> str:
    """A page with all its generated parts up to date."""

    def block(found: re.Match[str]) -> str:
        return f"<!-- {found[1]}{found[2]} -->\n\n{BLOCKS[found[1]](found[2].strip())}\n\n<!-- end -->"

    text = re.sub(rf"<!-- ({'|'.join(BLOCKS)})((?: [^ >]+)*) -->.*?<!-- end -->", block, text, flags=re.DOTALL)
    return tables.fill(text)


def stale(pages: Iterable[Path] = PAGES) -> list[Path]:
    """The pages whose generated parts are out of date."""
    return [page for page in pages if filled(page) != page.read_text()]


def filled(page: Path) -> str:
    """A page as it should be; links to the pages of questions are relative to it."""
    folder = os.path.relpath(ROOT / tables.QUESTION_PAGES, page.parent)
    return fill(page.read_text()).replace(f"]({tables.QUESTION_PAGES}/", f"]({folder}/")


def main() -> int:
    """Write the pages, or with `--check` only compare them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if a page is out of date")
    check = parser.parse_args().check
    texts = {page: filled(page) for page in PAGES} | tables.question_figures()  # these are no pages
    changed = {path: text for path, text in texts.items() if not path.exists() or path.read_text() != text}
    for path, text in changed.items():
        print(f"{path.relative_to(ROOT)}: " + ("out of date; run make docs" if check else "written"))
        if not check:
            path.write_text(text)
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
