"""Your own environment in JAX: a cart in a square, and a lamp that it can dim. Check it, train on it, run its skills."""

import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import susd
from susd.extend import EnvSpec, Plane, run_skills

options = {name: int(value) for name, value in (word.split("=") for word in sys.argv[1:])}  # such as epochs=50


class State(NamedTuple):
    cart: jax.Array  # [2] position
    lamp: jax.Array  # [1] brightness


class Workshop:
    spec = EnvSpec(
        name="workshop",
        obs_size=3,
        action_size=3,
        horizon=20,
        factorization=susd.Factorization.from_mapping({"cart": [0, 1], "lamp": [2]}, size=3),
        planes=(Plane("cart", x=0, y=1, low=-1.0, high=1.0),),
        landmarks={},
    )

    def reset(self, key):
        return State(cart=jax.random.uniform(key, (2,), minval=-0.1, maxval=0.1), lamp=jnp.zeros(1))

    def step(self, state, action, key):
        moved = State(state.cart + 0.1 * action[:2], state.lamp + 0.1 * action[2:])
        return jax.tree.map(lambda x: jnp.clip(x, -1.0, 1.0), moved)

    def observe(self, state):
        return jnp.concatenate([state.cart, state.lamp])

    def render(self, state, size=400):
        image = np.full((size, size, 3), int(155 + 100 * state.lamp[0]), np.uint8)
        x, y = ((np.asarray(state.cart) + 1) / 2 * (size - 1)).astype(int)
        image[size - 1 - y, x] = (200, 0, 0)
        return image


print("the contract holds:", susd.check(Workshop(), steps=200)["ok"])
run = susd.train("workshop", environment=Workshop(), **{"epochs": 200, **options})
agent = susd.load(run, environment=Workshop())
ends = run_skills(agent, agent.sample_skill(count=8)).next_obs[-1]
for end in ends:
    print(f"cart at ({end[0]:+.2f}, {end[1]:+.2f}), lamp {end[2]:+.2f}")
