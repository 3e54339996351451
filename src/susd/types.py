"""Types that many modules share: transitions, policies, what is logged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

Info = dict[str, jax.Array]  # what an update logs
Policy = Callable[[Any, Any, jax.Array], jax.Array]  # (obs [W, S], skill [W, Z], key) -> action [W, A]


class Transition(NamedTuple):
    """One step of one skill; arrays have leading batch axes."""

    obs: jax.Array
    action: jax.Array
    next_obs: jax.Array
    skill: jax.Array
    done: jax.Array  # 1 where the value of next_obs is zero by definition
