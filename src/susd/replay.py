"""The replay buffer: a ring buffer of transitions as a pytree, with pure functions.

On several devices each holds an equal block of consecutive rows. Rows are drawn by their global number, so that a batch is
the same on any number of devices: every device looks up the rows that it holds, and one sum over devices gives each of them
its share of the batch. That moves one batch per gradient step, which is little compared with the gradients.
"""

from __future__ import annotations

import math
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from susd.types import Transition


class Replay(eqx.Module):
    """Transitions in rows 0 .. size-1; new transitions overwrite the oldest."""

    data: Transition
    position: jax.Array
    size: jax.Array
    mesh: Mesh | None = eqx.field(static=True, default=None)  # of the devices that hold a block of the rows each


def row_size(obs_size: int, action_size: int, skill_size: int) -> int:
    """The number of float32 values of one transition."""
    return 2 * obs_size + action_size + skill_size + 1


def init(capacity: int, obs_size: int, action_size: int, skill_size: int, mesh: Mesh | None = None) -> Replay:
    """An empty buffer of `capacity` transitions; the devices of a mesh hold equal blocks of them."""
    rows = Transition(
        jnp.zeros((capacity, obs_size)),
        jnp.zeros((capacity, action_size)),
        jnp.zeros((capacity, obs_size)),
        jnp.zeros((capacity, skill_size)),
        jnp.zeros((capacity,)),
    )
    return Replay(rows, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32), mesh)


def add(replay: Replay, rows: Transition) -> Replay:
    """Add a chunk of transitions; the capacity must be a multiple of its length, so that no chunk wraps around."""
    count, capacity = rows.done.shape[0], replay.data.done.shape[0]
    if capacity % count:
        raise ValueError(f"replay capacity {capacity} is not a multiple of the chunk length {count}")
    if replay.mesh is None:
        data = jax.tree.map(
            lambda ring, new: jax.lax.dynamic_update_slice_in_dim(ring, new, replay.position, axis=0), replay.data, rows
        )
    else:
        (axis,) = replay.mesh.axis_names
        write = jax.shard_map(
            partial(_write, axis), mesh=replay.mesh, in_specs=(P(axis), P(), P()), out_specs=P(axis), check_vma=False
        )
        data = write(replay.data, rows, replay.position)
    return Replay(data, (replay.position + count) % capacity, jnp.minimum(replay.size + count, capacity), replay.mesh)


def sample(replay: Replay, key: jax.Array, count: int) -> Transition:
    """`count` transitions, sampled uniformly with replacement; several devices each receive an equal share of them."""
    return take(replay, sample_rows(replay.size, key, count))


def sample_rows(size: jax.Array, key: jax.Array, count: int) -> jax.Array:
    """`count` of the rows 0 .. size-1, sampled uniformly with replacement."""
    return jax.random.randint(key, (count,), 0, jnp.maximum(size, 1))


def take(replay: Replay, rows: jax.Array) -> Transition:
    """The transitions in some rows; several devices each receive an equal share of them."""
    if replay.mesh is None:
        return jax.tree.map(lambda ring: ring[rows], replay.data)
    (axis,) = replay.mesh.axis_names
    read = jax.shard_map(
        partial(_read, axis), mesh=replay.mesh, in_specs=(P(axis), P()), out_specs=P(axis), check_vma=False
    )
    return read(replay.data, rows)


def row_at(rows: jax.Array, step: jax.Array | int, episodes: int, horizon: int) -> jax.Array:
    """The rows of a step of the same episodes. A chunk has `episodes` rows for each of `horizon` steps, and never wraps."""
    chunk = episodes * horizon
    return rows // chunk * chunk + step * episodes + rows % episodes


def _write(axis: str, block: Transition, rows: Transition, position: jax.Array) -> Transition:
    """Write those rows of a chunk that belong to the block of this device."""
    size = len(block.done)
    at = position + jnp.arange(len(rows.done)) - jax.lax.axis_index(axis) * size
    at = jnp.where(at < 0, size, at)  # a negative index would count from the end; one past the end is dropped
    return jax.tree.map(lambda ring, new: ring.at[at].set(new, mode="drop"), block, rows)


def _read(axis: str, block: Transition, rows: jax.Array) -> Transition:
    """This device's share of the rows, which any of the devices may hold: the others add zeros to it."""
    size = len(block.done)
    at = rows - jax.lax.axis_index(axis) * size
    mine = (at >= 0) & (at < size)
    found = [ring[jnp.where(mine, at, 0)].reshape(len(rows), -1) for ring in block]
    joined = jnp.where(mine[:, None], jnp.concatenate(found, axis=1), 0.0)  # one sum for all fields
    share = jax.lax.psum_scatter(joined, axis, scatter_dimension=0, tiled=True)
    ends = np.cumsum([math.prod(ring.shape[1:]) for ring in block])
    parts = jnp.split(share, ends[:-1], axis=1)
    return Transition(*(part.reshape(-1, *ring.shape[1:]) for part, ring in zip(parts, block, strict=True)))
