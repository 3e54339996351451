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

    def discover(state: LearnerState, drawn: tuple[jax.Array, jax.Array]) -> tuple[LearnerState, Any]:
        rows, key = drawn
        batch = learner.batch(state, buffer, rows)
        state, reward, info = learner.discover(state, batch, key)
        return state, ((reward, batch.skill), info)

    def control(state: LearnerState, drawn: tuple[jax.Array, ...]) -> tuple[LearnerState, Info]:
        rows, noise, reward, skill = drawn
        return learner.control(state, replay.take(buffer, rows)._replace(skill=skill), reward, noise)

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
        infos = jax.tree.map(lambda x: x[:-1], found) | jax.tree.map(lambda x: x[1:], others)
        without: Any = replace(state, sac=None)  # type: ignore[arg-type]
        learned = replace(_held(axis, without, first), sac=_held(axis, state.sac, ~first))
        rows, unravel = ravel_pytree(infos)
        return learned, jax.tree.map(lambda x: learner.mean(x.reshape(steps)), unravel(jax.lax.psum(rows, axis)))

    none = {name: jnp.zeros(()) for name in (*nothing[1], *nothing[2])}
    return jax.lax.cond(ready, run, lambda state: (state, none), state)


def _summed(axis: str, tree: Any) -> Any:
    """Sums over both cores, in one exchange."""
    vector, unravel = ravel_pytree(tree)
    return unravel(jax.lax.psum(vector, axis))


def _held(axis: str, tree: Any, here: jax.Array) -> Any:
    """What one core has learned, for both: arrays of one type in one exchange."""
    leaves, treedef = jax.tree.flatten(tree)
    for kind in dict.fromkeys(leaf.dtype for leaf in leaves):
        at = [i for i, leaf in enumerate(leaves) if leaf.dtype == kind]
        found = _summed(axis, [jnp.where(here, leaves[i], jnp.zeros((), kind)) for i in at])
        for i, leaf in zip(at, found, strict=True):
            leaves[i] = leaf
    return jax.tree.unflatten(treedef, leaves)
