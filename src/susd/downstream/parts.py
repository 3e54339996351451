"""Which factor each part of a task's reward belongs to, for the policies that use it."""

from __future__ import annotations

from susd.errors import UserError
from susd.tasks.base import HostTask, Task


def part_factors(policy: str, task: Task | HostTask, names: tuple[str, ...]) -> tuple[int, ...]:
    """For each part of the reward the number of its factor among the parts `names` of a skill; UserErrors name `policy`."""
    if len(names) < 2:
        raise UserError(
            f"--policy is {policy!r}, but the skills of this run have one part ({', '.join(names)}); "
            "it needs a factored method and an environment with two factors or more"
        )
    owner = task.environment.spec.factorization.owners
    found = [owner[index] for index in task.part_of]
    lost = [name for name in found if name not in names]
    if lost:
        raise UserError(
            f"--policy is {policy!r}, but factor {lost[0]!r} of the reward of {task.name} has no part of the skill"
        )
    return tuple(names.index(name) for name in found)
