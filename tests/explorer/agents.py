"""Agents that are not trained, for pages and their networks."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from susd.config import configure
from susd.networks import MLP, Actor
from susd.training.agent import Agent
from susd.training.trainer import Trainer


def random_agent(env: str = "gunner", **options: Any) -> Agent:
    """Small networks with random weights and biases; nothing is compiled for them."""
    trainer = Trainer.build(configure(env, **({"hidden": 16, "phi_hidden": 12, "episodes": 1} | options)))
    shapes = jax.eval_shape(lambda: trainer.init(jnp.int32(0)).learner)
    actor, params = random_weights((shapes.sac.actor, shapes.params))
    return Agent(trainer, actor, params, 0, 0)


def random_weights(shapes: Any) -> Any:
    """Networks of the given shapes."""
    rng = np.random.default_rng(0)

    def drawn(leaf: Any) -> Any:
        return rng.normal(0.0, (leaf.shape[-2] if len(leaf.shape) > 1 else 4) ** -0.5, leaf.shape).astype(np.float32)

    return jax.tree.map(drawn, shapes)


def steering_agent(env: str = "gunner", **options: Any) -> Agent:
    """Skills of 2D-Gunner that move their own factor and nothing else: a third of a part is the action of its factor."""
    made = random_agent(env, **options)
    obs, size, actions = 18, 6, 6
    scale = made.trainer.learner.skill_input_scale
    inputs = np.zeros((obs + size, 2 * size), np.float32)
    inputs[obs:, :size], inputs[obs:, size:] = np.eye(size) / scale, -np.eye(size) / scale  # z = relu(z) - relu(-z)
    heads = np.zeros((2 * size, 2 * actions), np.float32)
    for part, action in enumerate((0, 1, 2, 3, 5)):  # agent x and y, picker x and y, gun
        heads[part, action], heads[size + part, action] = 0.35, -0.35
    layers = [MLP((w,), (np.zeros(w.shape[1], np.float32),), "relu", "float32") for w in (inputs, heads)]
    return dataclasses.replace(made, actor=Actor(*layers, made.actor.min_log_std, made.actor.max_log_std))
