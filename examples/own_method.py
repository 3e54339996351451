"""Your own method: an embedding that moves along the skill, with a quadratic penalty. docs/extend/method.md explains it."""

import sys
from dataclasses import dataclass

import jax.numpy as jnp
import optax

import susd
from susd.extend import MLP, Card, Reward, SkillSpace, difference


@dataclass(frozen=True)
class Penalty:
    sizes: tuple[int, ...]
    skills: SkillSpace
    learning_rate: float

    @classmethod
    def from_config(cls, config, spec):
        sizes = (spec.obs_size, *[config.phi_hidden] * config.layers, config.skill_dim)
        return cls(sizes, SkillSpace(config.prior, 1, config.skill_dim), config.learning_rate)

    def init(self, key):
        return MLP.init(key, self.sizes)

    def init_stats(self, params):
        return None

    def optimizer(self):
        return optax.adam(self.learning_rate)

    def loss(self, params, stats, batch, key):
        delta = difference(params, batch)  # phi(s') - phi(s)
        reward, square = jnp.sum(delta * batch.skill, axis=-1), jnp.sum(delta**2, axis=-1)
        loss = -jnp.mean(reward - 0.5 * square)
        return loss, (stats, None, {"phi_reward": reward.mean(), "phi_square": square.mean()})

    def reward(self, params, before, batch):
        reward = jnp.sum(difference(params, batch) * batch.skill, axis=-1)
        return Reward(reward, reward[:, None])

    def encode(self, params, obs):
        return params(obs)


CARD = Card(name="penalty", title="Penalty", summary="quadratic penalty", implementation=Penalty, quick={"prior": "sphere"})

if __name__ == "__main__":
    options = {name: int(value) for name, value in (word.split("=") for word in sys.argv[1:])}  # such as epochs=50
    run = susd.train("gunner", method=f"{__file__}:CARD", **options)
    cells = susd.evaluate(run, "coverage", steps=20_000)["results"][0]["trained, mean actions"]["cells"]
    print(f"skills visit {cells['worst']:.0f} of {cells['of']} cells; the run is in {run}")
