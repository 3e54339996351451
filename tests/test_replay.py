"""The replay buffer compared with a deque, and its samples with the uniform distribution over the stored transitions."""

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from susd import replay
from susd.replay import Replay
from susd.types import Transition

OBS, ACTIONS, SKILLS = 3, 2, 4
SAMPLE = jax.jit(replay.sample, static_argnums=2)


def rows_of(ids: np.ndarray) -> Transition:
    """Transitions that carry their index in every field."""
    column = np.asarray(ids, np.float32)[:, None]
    wide = [np.tile(column, (1, width)) for width in (OBS, ACTIONS, OBS, SKILLS)]
    fields = (wide[0], wide[1] + 0.25, wide[2] + 0.5, wide[3] + 0.75, column[:, 0])
    return Transition(*(jnp.asarray(field) for field in fields))


def ids_of(rows: Transition) -> np.ndarray:
    """The indices, after a check that no field was mixed up."""
    ids = np.asarray(rows.done)
    for field, shift in zip(rows[:4], (0, 0.25, 0.5, 0.75), strict=True):
        np.testing.assert_array_equal(field, np.tile(ids[:, None] + shift, (1, field.shape[1])))
    return ids


def filled(capacity: int, count: int) -> Replay:
    """`count` transitions with indices from 1 on; rows that were never written are 0."""
    data = Transition(
        *(jnp.pad(x, [(0, capacity - count)] + [(0, 0)] * (x.ndim - 1)) for x in rows_of(np.arange(1, count + 1)))
    )
    return Replay(data, jnp.int32(count % capacity), jnp.int32(count))


@pytest.mark.parametrize(("capacity", "chunk"), [(12, 3), (10, 5), (7, 7), (5, 1)])
def test_ring_is_a_deque(capacity: int, chunk: int) -> None:
    ring, reference = replay.init(capacity, OBS, ACTIONS, SKILLS), deque[float](maxlen=capacity)
    add = jax.jit(replay.add)
    for step in range(4 * capacity // chunk + 1):
        ids = np.arange(step * chunk, (step + 1) * chunk) + 1
        ring = add(ring, rows_of(ids))
        reference.extend(ids.tolist())
        size, position = int(ring.size), int(ring.position)
        assert size == len(reference)
        assert position == (step + 1) * chunk % capacity
        stored = ids_of(Transition(*(np.asarray(field)[:size] for field in ring.data)))
        oldest_first = np.roll(stored, -position) if size == capacity else stored
        assert oldest_first.tolist() == list(reference)


def test_capacity_is_a_multiple_of_the_chunk() -> None:
    with pytest.raises(ValueError, match="capacity 10 is not a multiple of the chunk length 3"):
        replay.add(replay.init(10, OBS, ACTIONS, SKILLS), rows_of(np.arange(3)))


@pytest.mark.slow
@pytest.mark.parametrize(("capacity", "count"), [(80, 40), (40, 40), (100, 1)])
def test_sampling_is_uniform_over_filled_rows(capacity: int, count: int) -> None:
    buffer = filled(capacity, count)
    drawn = ids_of(SAMPLE(buffer, jax.random.key(3), 20_000))
    assert drawn.min() >= 1  # an unfilled row would be 0
    assert drawn.max() <= count
    counts = np.bincount(drawn.astype(int), minlength=count + 1)[1:]
    assert (counts > 0).all()
    if count > 1:
        assert stats.chisquare(counts).pvalue > 1e-3


def test_sampling_depends_on_the_key_only() -> None:
    buffer = filled(64, 64)
    first, again, other = (ids_of(SAMPLE(buffer, jax.random.key(k), 64)) for k in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert len(set(first)) < 64  # with replacement


def test_size_of_a_row() -> None:
    buffer = replay.init(1, OBS, ACTIONS, SKILLS)
    assert sum(leaf.size for leaf in jax.tree.leaves(buffer.data)) == replay.row_size(OBS, ACTIONS, SKILLS)


def test_rows_of_the_same_episode() -> None:
    """Chunks of 3 episodes and 4 steps, in the order in which episodes are collected."""
    episodes, horizon = 3, 4
    buffer = replay.init(2 * episodes * horizon, 1, 1, 1)
    for chunk in range(2):
        step, episode = (grid.reshape(-1) for grid in np.mgrid[:horizon, :episodes])
        label = (100 * chunk + 10 * episode + step).astype(np.float32)
        buffer = replay.add(buffer, Transition(*[label[:, None]] * 4, label))
    rows = np.arange(2 * episodes * horizon)
    label = np.asarray(buffer.data.obs[rows, 0])
    for at in range(horizon):
        other = np.asarray(buffer.data.obs[replay.row_at(rows, at, episodes, horizon), 0])
        np.testing.assert_array_equal(other, label // 10 * 10 + at)
