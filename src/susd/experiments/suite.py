"""A suite: a TOML file that declares runs, evaluations and downstream tasks, and the jobs that follow from it.

    about = "what it is for"
    seeds = [0, 1, 2]
    train = { preset = "quick" }                  # options of every run
    evaluations = { coverage = {}, decoding = { steps = 20000 } }
    downstream = { episodes = 1000 }              # options of every task

    [environments.multi_particle]
    tasks = ["seq-easy", "fp-easy"]
    layouts = ["1", "2", "3"]
    layouts_per_seed = 1                          # seed 0 in layout 1, seed 1 in 2, ..; the next high-level seed is one on
    first_seed_layouts = ["random"]               # in addition, for the first seed only; as `every_seed_layouts`

    [environments.workshop]
    env = "my_env.py:make"                        # the environment, where the name is not that of one

    [methods.susd]
    interface = ["skill", "goal"]                 # tasks over the same runs with each; as `policy` = ["joint", "entity"]
    [methods.metra-same-size]
    method = "metra"                              # the method, where the name is not that of one
    skill_dim = { gunner = 6, multi_particle = 20 }  # an option may differ between environments
    [methods.flat]
    interface = "flat"                            # tasks without skills
    [controls.susd-w]                             # like methods, but run after all of them

    [methods.dusdi]
    ways = { gunner = [["skill", "joint"], ["goal", "factored"]] }  # pairs of interface and policy instead
    tasks = { gunner = ["lim"] }                  # instead of those of the environment

    scale = "afternoon"                           # which of the scales below is run; `--scale` chooses another
    [scales.afternoon]                            # a part of the file; see SCALE_KEYS
    seeds = [0]
    methods = ["susd", "flat"]
    controls = []
    [scales.cluster]                              # everything

Any key of a method that is not one of METHOD_KEYS (declared.py) is an option of its runs. Methods, environments, tasks and
evaluations may be built in, registered by an installed package, or FILE.py:NAME. A task may be a table with options of its
own: `tasks = [{ task = "my_task.py:Tidy", horizon = 100 }]`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from susd.errors import UserError, shown
from susd.experiments.declared import PARTS, Job, check_keys, jobs_of, list_of, subset_of, table_of
from susd.paths import user_path
from susd.runs.untrusted import read_toml

SHIPPED = Path(__file__).parent / "suites"
LISTS = ("tasks", "every_seed_layouts")  # of environments; a scale may have others
SCALE_KEYS = ("about", "seeds", "downstream", *LISTS, *PARTS)


@dataclass(frozen=True)
class Suite:
    """A checked suite file with its jobs, in the order in which they are started."""

    name: str
    about: str
    text: str  # the file
    jobs: tuple[Job, ...]
    declared: tuple[Job, ...]  # all of the file, also where `jobs` is a part
    scale: str = ""  # the one that was chosen; empty for a file without scales
    scales: tuple[str, ...] = ()  # all of the file

    def only(self, patterns: Sequence[str]) -> Suite:
        """The jobs whose names match one of the patterns (`gunner/*`, `*/susd-s0/*`), and the jobs that these need."""
        for pattern in patterns:
            if not any(fnmatchcase(job.name, pattern) for job in self.jobs):
                raise UserError(
                    f"--only {shown(pattern)} matches no job of {self.name}; jobs are named like {self.jobs[0].name}"
                )
        chosen = [job for job in self.jobs if any(fnmatchcase(job.name, pattern) for pattern in patterns)]
        wanted = {job.name for job in chosen} | {job.needs for job in chosen}
        return dataclasses.replace(self, jobs=tuple(job for job in self.jobs if job.name in wanted))


def names() -> list[str]:
    """The suites of the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load(name: str, scale: str = "") -> Suite:
    """A suite of the package by its name, or your own by the path of its file; all of it is checked before any job runs.

    `scale` is one of those of the file instead of the one that it chooses itself.
    """
    path = user_path("the suite", name) if name.endswith(".toml") else SHIPPED / user_path("the suite", f"{name}.toml")
    if not path.is_file():
        raise UserError(f"there is no suite {name!r}; choose one of {', '.join(names())}, or give the path of a .toml file")
    try:
        text, declared = read_toml(path)
    except UserError as error:
        raise UserError(f"cannot read the suite: {error}") from error
    try:
        scale = _chosen_scale(declared, scale)
        jobs = tuple(jobs_of(_scaled(declared, scale)))
    except UserError as error:
        raise UserError(f"suite {path.name}: {error}") from None
    if not jobs:
        raise UserError(f"suite {path.name} has no jobs")
    if scale:  # jobs are processes of their own, which read the text
        text = re.sub(r'^scale = "[^"]*"', f'scale = "{scale}"', text, count=1, flags=re.MULTILINE)
    about, scales = str(declared.get("about", "")), tuple(table_of(declared, "scales"))
    return Suite(path.stem, about, text, jobs, jobs, scale, scales)


def _chosen_scale(declared: dict[str, Any], wanted: str) -> str:
    """The scale to run; empty where the file has none."""
    scales = table_of(declared, "scales")
    if not scales:
        if wanted or "scale" in declared:
            raise UserError(f"scale is {shown(wanted or declared['scale'])}, but the file has no [scales]")
        return ""
    chosen = wanted or declared.get("scale", "")
    if chosen not in scales or "scale" not in declared:
        raise UserError(f"scale is {shown(chosen)}; it must be one of {', '.join(scales)}")
    return str(chosen)


def _scaled(declared: dict[str, Any], scale: str) -> dict[str, Any]:
    """The part of a file that a scale runs. No option of a run differs, so that a larger scale continues a smaller one."""
    if not scale:
        return declared
    chosen = declared["scales"][scale]
    check_keys(f"scales.{scale}", chosen, SCALE_KEYS)
    found = declared | ({"seeds": chosen["seeds"]} if "seeds" in chosen else {})
    for part in (part for part in PARTS if part in chosen):
        everything = table_of(declared, part)
        found[part] = {name: everything[name] for name in subset_of(chosen, part, everything)}
    environments, options = table_of(found, "environments"), table_of(chosen, "downstream")
    lists = {key: table_of(chosen, key) for key in LISTS}
    for key, of in lists.items():
        subset_of({key: list(of)}, key, environments)
    found["environments"] = {
        name: settings
        | {key: of[name] for key, of in lists.items() if name in of}
        | {"downstream": table_of(settings, "downstream") | options}
        for name, settings in environments.items()
    }
    for kind in ("methods", "controls"):
        entries = table_of(found, kind).items()
        found[kind] = {label: _in_environments(entry, environments) for label, entry in entries}
    return found


def _in_environments(entry: dict[str, Any], environments: Mapping[str, Any]) -> dict[str, Any]:
    """An entry without the environments that a scale leaves out."""
    if "environments" not in entry:
        return entry
    return entry | {"environments": [name for name in list_of(entry, "environments") if name in environments]}
