"""The tasks of the user in the page: those that were named, and those that a run has learned policies of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from susd.config import Config
from susd.downstream.config import same_env
from susd.downstream.policy import saved_policies
from susd.envs.base import Environment, HostEnvironment
from susd.errors import UserError
from susd.plugins import Trust, check_trust, code_of, is_file, same_name
from susd.tasks.own import check_task
from susd.tasks.registry import make_task, task_entry


class OwnTasks(NamedTuple):
    """Names FILE.py:NAME that the page offers, and why it does not offer others."""

    names: tuple[str, ...] = ()
    reason: str = ""


NONE = OwnTasks()


def find_tasks(
    config: Config, env: Environment | HostEnvironment, path: Path, named: Sequence[str], trust: Trust
) -> OwnTasks:
    """Tasks that the user has named, which must work, and trusted ones of saved policies, which are left out otherwise."""
    for name in named:
        _check(name, config, env)
    found, withheld = list(named), []
    for name in dict.fromkeys(policy.task for policy in saved_policies(path)):
        if not code_of(name) or any(same_name(name) == same_name(other) for other in found):
            continue
        try:
            check_trust([name], trust, str(path))
            _check(name, config, env)
            found.append(name)
        except UserError as error:
            withheld.append(f"There is a learned policy of another task, but {error}.")
    return OwnTasks(tuple(found), " ".join(withheld))


def _check(name: str, config: Config, env: Environment | HostEnvironment) -> None:
    """Refuse what is no file's task of this environment, or breaks the contract of tasks."""
    if not is_file(name):
        raise UserError(f"--task is {name!r}; it must be FILE.py:NAME: other tasks of the environment are offered anyway")
    if not same_env(other := task_entry(name, config.env).env, config.env):
        raise UserError(f"task {name!r} is one of {other}, but the run was trained on {config.env}")
    check_task(make_task(name, env))
