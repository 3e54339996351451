"""A hook of mkdocs: fills the tables of options and the help texts from the code, so that they cannot drift.

`<!-- options -->` becomes the tables of all options, `<!-- methods -->` the table of the methods, `<!-- defaults -->` that
of their presets, `<!-- help train -->` the help text of `susd train`, and `<!-- video NAME -->` plays
results/videos/NAME.mp4.
"""

import contextlib
import dataclasses
import io
import os
import re
from pathlib import Path
from typing import Any
from unittest import mock

from mkdocs.structure.files import File, Files

from susd.cli.main import parser
from susd.config import PRESETS, Config, configure
from susd.envs import ENVIRONMENTS
from susd.methods.registry import METHODS

HEADINGS = {  # the option that begins a group -> the group's heading
    "env": "What is run",
    "epochs": "The loop",
    "skill_dim": "The method",
    "hidden": "Networks",
    "learning_rate": "Optimisation and SAC",
    "eval_every": "Measuring and saving",
}
VIDEOS = Path(__file__).parent.parent / "results" / "videos"
COLUMNS = ("option", "`paper`", "`quick`", "meaning")


def on_files(files: Files, config: Any) -> Files:
    """Called by mkdocs with all files of the site; the videos are among the results."""
    for path in sorted(VIDEOS.glob("*.mp4")):
        files.append(File.generated(config, f"videos/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs with the text of every page."""
    tables = {"options": options, "methods": methods, "defaults": defaults}
    markdown = re.sub(rf"<!-- ({'|'.join(tables)}) -->", lambda found: tables[found[1]](), markdown)
    markdown = re.sub(r"<!-- video ([\w-]+) -->", lambda found: video(found[1]), markdown)
    return re.sub(r"<!-- help ?([\w-]*) -->", lambda found: help_text(found[1]), markdown)


def options() -> str:
    """All options of `Config` in tables, one for each group."""
    lines: list[str] = []
    for spec in dataclasses.fields(Config):
        if spec.name in HEADINGS:
            lines += ["", f"### {HEADINGS[spec.name]}", "", _row(COLUMNS), _row(["---"] * len(COLUMNS))]
        values = [_value(spec.name, preset) for preset in ("paper", "quick")]
        if spec.name in ("env", "preset"):
            values = ["", ""]
        elif values[0] != values[1]:
            values[1] = f"**{values[1]}**"
        lines.append(_row([f"`{_flag(spec.name)}`", *values, _meaning(spec)]))
    return "\n".join(lines)


def methods() -> str:
    """Every method that is not a variant, from its card."""
    columns = ("method", "objective", "constraint", "weight", "reward of the policy", "skills")
    cards = [card for card in METHODS.values() if not card.base]
    texts = [(card.objective, card.constraint, card.weight, card.reward, card.prior) for card in cards]
    rows = [_row([f"[{card.name}]({card.name}.md)", *text]) for card, text in zip(cards, texts, strict=True)]
    return "\n".join([_row(columns), _row(["---"] * len(columns)), *rows])


def defaults() -> str:
    """For every method, and in each preset, the options whose values are not those of SUSD."""
    presets = ("paper", "quick")
    lines = [_row(("method", *(f"`{preset}`" for preset in presets))), _row(["---"] * 3)]
    for name, card in list(METHODS.items())[1:]:
        lines.append(_row([f"[{name}]({card.code}.md)", *(_own(name, preset) for preset in presets)]))
    return "\n".join(lines)


def _own(method: str, preset: str) -> str:
    """Where a method's values are not SUSD's, or SUSD has no such option."""
    configs = {env: (configure(env, preset, method=method), configure(env, preset)) for env in ENVIRONMENTS}
    cells = []
    for name in (spec.name for spec in dataclasses.fields(Config) if spec.name != "method"):
        values = {env: getattr(own, name) for env, (own, _) in configs.items() if own.has(name)}
        susd = {env: getattr(config, name) if config.has(name) else None for env, (_, config) in configs.items()}
        changed = {env: _text(value) for env, value in values.items() if value != susd[env]}
        same = len(changed) == len(configs) and len(set(changed.values())) == 1
        texts = set(changed.values()) if same else [f"{value} ({env})" for env, value in changed.items()]
        cells += [f"`{name}` {text.replace('`', '')}" for text in texts]
    return ", ".join(cells) or "as SUSD"


def deviations() -> set[str]:
    """The options in which `quick` differs from `paper`, in any environment."""
    names = {spec.name for spec in dataclasses.fields(Config)} - {"env", "preset"}
    return {name for name in names if _value(name, "paper") != _value(name, "quick")}


def help_text(command: str) -> str:
    """What `susd COMMAND --help` prints, as a code block; the options of the run are left to their own page."""
    output = io.StringIO()
    wide = mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"})
    with wide, contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        parser().parse_args([*command.split(), "--help"])
    text, shared, _ = output.getvalue().partition("options of the run")
    more = "options of the run: see the page on presets and options\n" if shared else ""
    return f"```text\n{text}{more}```"


def video(name: str) -> str:
    """A player, for pages at the top of the site."""
    if not (VIDEOS / f"{name}.mp4").is_file():
        raise FileNotFoundError(f"no video {VIDEOS / name}.mp4")
    return f'<video controls loop muted playsinline preload="metadata" width="100%" src="videos/{name}.mp4"></video>'


def _value(name: str, preset: str) -> str:
    """The value of an option in a preset; environments that have their own are named."""
    common = _text(PRESETS[preset]["*"].get(name, _default(name)))
    values = {env: _text(getattr(configure(env, preset), name)) for env in ENVIRONMENTS}
    own = [f"{env}: {value}" for env, value in values.items() if value != common]
    return "; ".join(own if len(own) == len(values) else [common, *own])


def _default(name: str) -> Any:
    spec = next(spec for spec in dataclasses.fields(Config) if spec.name == name)
    return spec.default if spec.default is not dataclasses.MISSING else {}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"`{name}={item}`" for name, item in value.items()) or "none"
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{value}`" if value != "" else "none"


def _meaning(spec: Any) -> str:
    choices = ", ".join(f"`{choice}`" for choice in spec.metadata.get("choices") or ())
    return f"{spec.metadata['help']} ({choices})" if choices else spec.metadata["help"]


def _flag(name: str) -> str:
    """As it is written on the command line."""
    return {"env": "ENV", "env_options": "--env-option NAME=VALUE"}.get(name, "--" + name.replace("_", "-"))


def _row(cells: Any) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
