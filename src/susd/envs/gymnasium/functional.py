"""The functional environments as ordinary Gymnasium environments: numpy in and out, reward always 0."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import numpy as np

from susd.envs.gunner import Gunner
from susd.envs.multi_particle import MultiParticle
from susd.errors import UserError


class FunctionalEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """A functional environment behind Gymnasium's interface. Its registration sets the time limit."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012 (Gymnasium declares it on the instance)

    def __init__(self, env: Gunner | MultiParticle, render_mode: str | None = None) -> None:
        if render_mode not in (None, "rgb_array"):
            raise UserError(f"render_mode cannot be {render_mode!r}; allowed: rgb_array or None")
        self.env = env
        self.render_mode = render_mode
        low, high = env.bounds
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (env.spec.action_size,), np.float32)
        self._reset, self._step, self._observe = jax.jit(env.reset), jax.jit(env.step), jax.jit(env.observe)
        self._key = jax.random.key(0)
        self._state: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; the seed matters only where the layout is random."""
        super().reset(seed=seed)
        self._key = jax.random.key(int(self.np_random.integers(2**31)))
        self._state = self._reset(self._key)
        return np.asarray(self._observe(self._state)), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step with an action in [-1, 1]; the reward is 0 and nothing terminates."""
        self._state = self._step(self._state, np.asarray(action, np.float32), self._key)
        return np.asarray(self._observe(self._state)), 0.0, False, False, {}

    def render(self) -> np.ndarray | None:
        """The current state as an image when render_mode is rgb_array."""
        return self.env.render(self._state) if self.render_mode == "rgb_array" else None


class GunnerEnv(FunctionalEnv):
    """2D-Gunner; options as in `susd.envs.make("gunner", ...)`."""

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        super().__init__(Gunner(**options), render_mode)


class MultiParticleEnv(FunctionalEnv):
    """Multi-Particle; options as in `susd.envs.make("multi_particle", ...)`."""

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        super().__init__(MultiParticle(**options), render_mode)
