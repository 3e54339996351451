"""The updates of one run on two CPU cores: a pipeline of the method and SAC.

Within an epoch the method learns from replayed transitions alone, and SAC needs nothing of it but the reward of each batch.
So the first core takes the gradient steps of the method, and the second one those of SAC, one stage of updates behind. The
mathematics is that of `Learner.learn`, on the same batches and with the same random numbers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from susd import replay
from susd.config import Config
from susd.learner import Learner, LearnerState
from susd.replay import Replay
from susd.types import Info

WIDEST = 128  # units of a layer; at 256 a pipeline is as fast as one program with two threads, at 512 slower
STAGE = 5  # updates, at most: in its first stage SAC waits for the method, and in its last one the method is idle


def pays(config: Config) -> bool:
    """Whether a run is faster as a pipeline: with wide layers, two threads for each matrix product are faster."""
    widest = max(config.hidden, config.phi_hidden, config.density_hidden)
    return config.seeds == 1 and not config.overlap and widest <= WIDEST


def learn(
    learner: Learner, axis: str, state: LearnerState, buffer: Replay, key: jax.Array, steps: int, ready: jax.Array
) -> tuple[LearnerState, Info]:
    """`Learner.learn` on the two devices of a mesh axis, to be mapped over it; both have a copy of all arguments."""
    length = max(size for size in range(1, STAGE + 1) if steps % size == 0)
    stages = steps // length
    keys = jax.random.split(key, steps).reshape(stages, length)
    first = jax.lax.axis_index(axis) == 0
    names: tuple[list[str], list[str]] = ([], [])  # of what both log

    def discover(state: LearnerState, drawn: tuple[jax.Array, jax.Array]) -> tuple[LearnerState, Any]:
        rows, key = drawn
        batch = learner.batch(state, buffer, rows)
        state, reward, info = learner.discover(state, batch, key)
        return state, ((reward, batch.skill), _packed(info, names[0]))

    def control(state: LearnerState, drawn: tuple[jax.Array, ...]) -> tuple[LearnerState, jax.Array]:
        rows, noise, reward, skill = drawn
        state, info = learner.control(state, replay.take(buffer, rows)._replace(skill=skill), reward, noise)
        return state, _packed(info, names[1])

    def drawn(stage: jax.Array) -> Any:
        return jax.vmap(partial(learner.draw, buffer))(keys[jnp.clip(stage, 0, stages - 1)])

    def ahead(state: LearnerState, passed: Any, stage: jax.Array) -> Any:
        rows, draws = drawn(stage)
        state, (passed, info) = jax.lax.scan(discover, state, (rows, draws.key))
        return state, passed, info

    def behind(state: LearnerState, passed: Any, stage: jax.Array) -> Any:
        rows, draws = drawn(stage - 1)
        return jax.lax.scan(control, state, (rows, draws.noise, *passed))

    def zeros(shapes: Any) -> Any:
        return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    _, passed, found = jax.eval_shape(ahead, state, None, jnp.int32(0))
    _, others = jax.eval_shape(behind, state, passed, jnp.int32(0))
    nothing = (zeros(passed), zeros(found), zeros(others))

    def run_stage(carry: tuple[LearnerState, Any], stage: jax.Array) -> tuple[tuple[LearnerState, Any], Any]:
        def method(state: LearnerState, passed: Any) -> Any:
            state, passed, info = ahead(state, passed, stage)
            return state, (passed, info, nothing[2])

        def sac(state: LearnerState, passed: Any) -> Any:
            state, info = behind(state, passed, stage)
            return state, (*nothing[:2], info)

        busy = jnp.where(first, stage < stages, stage > 0)
        which = jnp.where(busy, jnp.where(first, 0, 1), 2)
        state, (passed, *infos) = jax.lax.switch(which, (method, sac, lambda state, _: (state, nothing)), *carry)
        return (state, _summed(axis, passed)), infos

    def run(state: LearnerState) -> tuple[LearnerState, Any]:
        (state, _), (found, others) = jax.lax.scan(run_stage, (state, nothing[0]), jnp.arange(stages + 1))
        infos = jnp.concatenate([x.reshape(steps, -1) for x in (found[:-1], others[1:])], axis=1)
        without: Any = replace(state, sac=None)  # type: ignore[arg-type]
        learned = replace(_held(axis, without, first), sac=_held(axis, state.sac, ~first))
        return learned, learner.mean(jax.lax.psum(infos, axis))

    none = jnp.zeros(len(names[0]) + len(names[1]))
    state, values = jax.lax.cond(ready, run, lambda state: (state, none), state)
    return state, dict(zip([*names[0], *names[1]], values, strict=True))


def _packed(info: Info, names: list[str]) -> jax.Array:
    """Values to log as one vector, whose `names` are noted: one row of a table is stored faster than many scalars."""
    names[:] = sorted(info)
    return jnp.stack([info[name] for name in names])


def _summed(axis: str, tree: Any) -> Any:
    """Sums over both cores, in one exchange."""
    vector, unravel = ravel_pytree(tree)
    return unravel(jax.lax.psum(vector, axis))


def _held(axis: str, tree: Any, here: jax.Array) -> Any:
    """What one core has learned, for both: arrays of one type in one exchange."""
    leaves, treedef = jax.tree.flatten(tree)
    for kind in dict.fromkeys(leaf.dtype for leaf in leaves):
        at = [i for i, leaf in enumerate(leaves) if leaf.dtype == kind]
        vector, unravel = ravel_pytree([leaves[i] for i in at])
        found = unravel(jax.lax.psum(jnp.where(here, vector, jnp.zeros((), kind)), axis))
        for i, leaf in zip(at, found, strict=True):
            leaves[i] = leaf
    return jax.tree.unflatten(treedef, leaves)
