"""A policy that `susd export` wrote. It needs numpy only: `Policy("policy.npz").act(obs, skill)`."""

import json
from typing import Any

import numpy as np

ACTIVATIONS: dict[str, Any] = {"relu": lambda x: np.maximum(x, 0.0), "tanh": np.tanh}


class Policy:
    """pi(a | s, z) and phi(s): observations [S] or [B, S], skills [Z] or [B, Z], actions in [-1, 1]."""

    def __init__(self, path: str = "policy.npz") -> None:
        with np.load(path) as file:
            self.arrays = dict(file)
        self.info: dict[str, Any] = json.loads(str(self.arrays["info"]))

    def act(self, obs: Any, skill: Any, rng: np.random.Generator | None = None) -> np.ndarray:
        """The mean action, or with a random number generator a sampled one."""
        obs, skill = np.asarray(obs, np.float32), np.asarray(skill, np.float32)
        skill = np.broadcast_to(skill, (*obs.shape[:-1], skill.shape[-1]))
        mean, log_std = np.split(self._forward("policy", np.concatenate([obs, skill], axis=-1)), 2, axis=-1)
        if rng is not None:
            mean = mean + np.exp(np.clip(log_std, *self.info["log_std"])) * rng.standard_normal(mean.shape, np.float32)
        return np.tanh(mean)

    def encode(self, obs: Any) -> np.ndarray:
        """phi(s), [Z] or [B, Z]: one small network per part of the skill, each with its own inputs."""
        inputs = np.asarray(obs, np.float32)[..., self.arrays["phi_inputs"]]
        out = self._forward("phi", inputs[..., None, :])
        return out.reshape(*out.shape[:-3], -1)

    def _forward(self, network: str, x: np.ndarray) -> np.ndarray:
        last = self.info["layers"][network] - 1
        for layer in range(last + 1):
            x = x @ self.arrays[f"{network}_weight{layer}"] + self.arrays[f"{network}_bias{layer}"]
            x = x if layer == last else ACTIVATIONS[self.info["activation"][network]](x)
        return x
