"""Discover skills in 2D-Gunner, then steer one factor: change its part of the skill and keep the others."""

import sys

import gymnasium
import numpy as np

import susd

options = {name: int(value) for name, value in (word.split("=") for word in sys.argv[1:])}  # such as epochs=50

run = susd.train("gunner", **options)  # about three minutes on two cores
agent = susd.load(run)
names = agent.factorization.names
env = gymnasium.make("susd/Gunner-v0")


def trajectory(skill: np.ndarray) -> np.ndarray:
    """The observations of one episode of 50 steps."""
    obs, _ = env.reset(seed=0)
    found = [obs]
    for _ in range(50):
        obs, *_ = env.step(agent.act(obs, skill))
        found.append(obs)
    return np.stack(found)


skill = agent.sample_skill(seed=0)  # one part for each factor
before = trajectory(skill)
for part, factor in enumerate(names):
    changed = skill.reshape(len(names), -1).copy()
    changed[part] = -changed[part]  # the opposite direction
    difference = np.abs(trajectory(changed.ravel()) - before).mean(axis=0)
    moved = [difference[list(indices)].mean() for indices in agent.factorization.indices]
    changes = (f"{name} changes by {value:.2f}" for name, value in zip(names, moved, strict=True))
    print(f"reverse the part of {factor}:", ", ".join(changes))
