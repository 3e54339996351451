"""What the scores of a task are held against: scripted experts that know its rules and its true state, and its ceiling."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from susd.envs.gunner import AMMO, RANGE, SIDE, ZONES
from susd.envs.multi_particle import ParticleState
from susd.errors import UserError
from susd.tasks.base import SKILL_STEPS, HostTask, Task
from susd.tasks.gunner import PHASE, GunnerTask, GunnerTaskState
from susd.tasks.multi_particle import WINDOW, FoodPoison, Sequential

Expert = Callable[[Any], jax.Array]  # task state -> primitive action in [-1, 1]

RING = 0.75  # distance to its station at which an agent waits: clear of the 0.6 that count, but not far
DIAGONALS = np.array(list(itertools.product((-1.0, 1.0), repeat=2)), np.float32)
CORNERS = SIDE * np.array([(1, 0), (1, 1), (0, 0), (0, 1)], np.float32)  # Gunner's targets
MARGIN = 0.05  # how far inside a cell's edge Gunner's expert goes


def expert(task: Task) -> Expert:
    """The scripted policy of a task."""
    if isinstance(task, GunnerTask):
        return lambda state: _gun(task, state)
    if isinstance(task, Sequential):
        return lambda state: _steer(task, state.world, task.target(state) > 0)
    if isinstance(task, FoodPoison):
        return lambda state: _steer(task, state.world, state.indicator == 0)
    raise UserError(f"task {task.name!r} has no scripted expert")


def ceiling(task: Task | HostTask) -> np.ndarray:
    """[decisions] the most that each decision can pay; their sum is the task's bound."""
    best = np.ones(task.horizon // SKILL_STEPS)
    if isinstance(task, HostTask):  # all of them pay alike in every step
        return task.bound / len(best) * best
    if isinstance(task, GunnerTask):
        return 2.0 * best
    if isinstance(task, FoodPoison):
        return len(task.agents) * best
    if isinstance(task, Sequential):  # ten points per step, once the last turn has passed
        best[: WINDOW * len(task.agents) // SKILL_STEPS] = 0.0
        return 10.0 * best
    raise UserError(f"task {task.name!r} has no known ceiling")


def _steer(task: Sequential | FoodPoison, world: ParticleState, wanted: jax.Array) -> jax.Array:
    """Agents that are wanted fly to their station; the others leave it the shortest way and wait on a ring around it."""
    position, station = world.position, world.station
    offset = position - station
    distance = jnp.maximum(jnp.linalg.norm(offset, axis=1, keepdims=True), 1e-6)
    # Forces are bounded per axis, so the way out is a diagonal: the one that leads farthest before a wall is in the way.
    exits = jnp.clip(position[:, None] + 0.5 * DIAGONALS, -1.0, 1.0)
    farthest = jnp.argmax(jnp.linalg.norm(exits - station[:, None], axis=-1), axis=1)
    leave = jnp.take_along_axis(exits, farthest[:, None, None], axis=1)[:, 0]
    wait = station + RING * offset / distance
    goal = jnp.where(wanted[:, None], station, jnp.where(distance < RING - 0.02, leave, wait))
    force = jnp.clip(10.0 * (goal - position) - 3.0 * world.velocity, -1.0, 1.0)
    if task.env.actions == "five":  # slots: unused, +x, -x, +y, -y
        force = jnp.stack([0.0 * force[:, 0], force[:, 0], -force[:, 0], force[:, 1], -force[:, 1]], axis=1)
    return force.reshape(-1)


def _gun(task: GunnerTask, state: GunnerTaskState) -> jax.Array:
    """Walk to the goal's zone, aim at its corner, and with limited ammo fetch the right kind first and lock it."""
    world = state.world
    goal = jnp.minimum((state.steps + 1) // PHASE, 3)  # the one that the coming step is paid for
    following = jnp.minimum(goal + 1, 3)
    zones = jnp.asarray(ZONES[:, 0], jnp.float32)
    spot = _into(zones[goal], zones[following] + 0.5)  # inside the zone, but as near to the next one as can be
    walk = jnp.clip((spot - world.agent) / RANGE[:2], -1.0, 1.0)
    agent = jnp.clip(world.agent + walk * RANGE[:2], 0.0, SIDE)

    places = _into(
        jnp.asarray(AMMO[0], jnp.float32), spot
    )  # the agent outruns the picker, so the place nearest to its goal
    place = places[jnp.argmin(jnp.abs(places - spot).max(axis=-1))]
    reach = jnp.clip((place - agent - world.picker) / RANGE[2:4], -1.0, 1.0)
    grip = jnp.where(world.ammo[0] > 0, -1.0, jnp.where(world.grip < 0.5, 1.0, 0.0))  # below 0.5 the ammo is kept
    fetch = jnp.append(reach, grip) * task.limited

    corner = jnp.asarray(CORNERS)[goal] - agent
    turn = jnp.clip((jnp.arctan2(corner[0], corner[1]) - world.view) / RANGE[5], -1.0, 1.0)
    return jnp.concatenate([walk, fetch, turn[None]])


def _into(cells: jax.Array, point: jax.Array) -> jax.Array:
    """The point of each unit cell, [.., 2] by their lower corners, that is nearest to a point, safely inside."""
    return jnp.clip(point, cells + MARGIN, cells + 1.0 - MARGIN)
