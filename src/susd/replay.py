"""The replay buffer: a ring buffer of transitions as a pytree, with pure functions."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from susd.types import Transition


class Replay(eqx.Module):
    """Transitions in rows 0 .. size-1; new transitions overwrite the oldest."""

    data: Transition
    position: jax.Array
    size: jax.Array


def row_size(obs_size: int, action_size: int, skill_size: int) -> int:
    """The number of float32 values of one transition."""
    return 2 * obs_size + action_size + skill_size + 1


def init(capacity: int, obs_size: int, action_size: int, skill_size: int) -> Replay:
    """An empty buffer of `capacity` transitions."""
    rows = Transition(
        jnp.zeros((capacity, obs_size)),
        jnp.zeros((capacity, action_size)),
        jnp.zeros((capacity, obs_size)),
        jnp.zeros((capacity, skill_size)),
        jnp.zeros((capacity,)),
    )
    return Replay(rows, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))


def add(replay: Replay, rows: Transition) -> Replay:
    """Add a chunk of transitions; the capacity must be a multiple of its length, so that no chunk wraps around."""
    count, capacity = rows.done.shape[0], replay.data.done.shape[0]
    if capacity % count:
        raise ValueError(f"replay capacity {capacity} is not a multiple of the chunk length {count}")
    data = jax.tree.map(
        lambda ring, new: jax.lax.dynamic_update_slice_in_dim(ring, new, replay.position, axis=0), replay.data, rows
    )
    return Replay(data, (replay.position + count) % capacity, jnp.minimum(replay.size + count, capacity))


def sample(replay: Replay, key: jax.Array, count: int) -> Transition:
    """`count` transitions, sampled uniformly with replacement."""
    rows = jax.random.randint(key, (count,), 0, jnp.maximum(replay.size, 1))
    return jax.tree.map(lambda ring: ring[rows], replay.data)
