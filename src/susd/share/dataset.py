"""`susd record RUN`: episodes of a run's skills as a dataset, in OGBench's layout (npz) or for Minari.

Every episode has one skill, and ends when the environment does or after `steps` steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from susd.collect import HostTrajectories, host_rollout
from susd.config import MAX_SEED
from susd.envs.base import close
from susd.envs.vector import vectorize
from susd.errors import UserError, shown
from susd.paths import user_path
from susd.plugins import Trust
from susd.runs.atomic import replace_file
from susd.runs.find import results_path, run_path, writable_run
from susd.training.agent import Agent, load, part_names
from susd.training.compiler import use_compilation_cache

FORMATS = ("npz", "minari")
NUM_ENVS = 64  # parallel environments, where they run in JAX
MAX_EPISODES, MAX_STEPS = 1_000_000, 100_000


@dataclass(frozen=True)
class Episode:
    """One skill from reset to end."""

    observations: np.ndarray  # [T + 1, S]
    actions: np.ndarray  # [T, A]
    skill: np.ndarray  # [Z]
    terminated: bool  # by the environment; otherwise it was truncated
    seed: int  # of the reset of all parallel environments
    index: int  # of this one among them


def record(
    run: str | Path,
    episodes: int,
    format: str = "npz",
    out: str | Path | None = None,
    *,
    seed: int = 0,
    steps: int = 0,
    mean: bool = False,
    force: bool = False,
    trust: Trust = False,
) -> Path | str:
    """Record episodes of random skills; returns the path of the npz file, or the id of the Minari dataset.

    `out` is that path or id; by default RUN/dataset.npz, or susd/RUN-v0. Actions are sampled, or with `mean` the mean ones.
    `steps` is the length of an episode, by default that of training. `trust` is that of `susd.load`.
    """
    _check(format, episodes, seed, steps)
    name = run_path(run).resolve().name
    target = str(out) if out is not None else f"susd/{''.join(c if c.isalnum() else '-' for c in name)}-v0"
    if format == "minari":
        from susd.share import minari_store

        minari_store.check(target, force)
    path = user_path("--out", out) if out is not None else results_path(run) / "dataset.npz"
    if format == "npz" and path.exists() and not force:
        raise UserError(f"{path} already exists; replace it with --force")
    use_compilation_cache()
    agent = load(run, trust=trust)
    try:
        found = list(rollouts(agent, episodes, seed, steps or agent.trainer.horizon, mean))
    finally:
        close(agent.trainer.env)
    about = _about(agent, name, mean)
    if format == "minari":
        return minari_store.write(target, found, about, agent)
    if out is None:
        writable_run(run)
    with replace_file(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays(found, about))
    return path


def _check(format: str, episodes: int, seed: int, steps: int) -> None:
    if format not in FORMATS:
        raise UserError(f"--format is {shown(format)}; choose one of {', '.join(FORMATS)}")
    for flag, value, low, high in (
        ("--episodes", episodes, 1, MAX_EPISODES),
        ("--steps", steps, 0, MAX_STEPS),
        ("--seed", seed, 0, MAX_SEED - MAX_EPISODES),
    ):
        if not low <= value <= high:
            raise UserError(f"{flag} is {value}; it must be from {low} to {high}")


def rollouts(agent: Agent, episodes: int, seed: int, steps: int, mean: bool) -> Iterator[Episode]:
    """Episodes in batches of parallel environments, whose resets have the seeds `seed`, `seed + 1`, .."""
    trainer = agent.trainer
    vector = vectorize(trainer.env, min(episodes, NUM_ENVS))
    skills = np.asarray(trainer.learner.method.skills.sample(jax.random.key(seed), episodes))
    policy = trainer.policy(agent.actor, sampled=not mean)
    for batch, first in enumerate(range(0, episodes, vector.num_envs)):
        rows = np.arange(first, first + vector.num_envs) % episodes  # the last batch is filled up with earlier skills
        key = jax.random.fold_in(jax.random.key(seed), batch)
        found = host_rollout(vector, policy, skills[rows], steps, seed + batch, key)
        for index in range(min(vector.num_envs, episodes - first)):
            yield _episode(found, seed + batch, index)


def _episode(found: HostTrajectories, seed: int, index: int) -> Episode:
    """One environment of a batch up to its first end; what follows belongs to another episode."""
    obs, action, next_obs, skill, terminated = (np.asarray(field[:, index]) for field in found.transitions)
    ends = np.flatnonzero((terminated > 0) | found.truncated[:, index])
    length = int(ends[0]) + 1 if len(ends) else len(obs)
    observations = np.concatenate([obs[:length], next_obs[length - 1 : length]])
    return Episode(observations, action[:length], skill[0], bool(terminated[length - 1]), seed, index)


def _about(agent: Agent, name: str, mean: bool) -> dict[str, Any]:
    """What the data is, as JSON."""
    trainer, config = agent.trainer, agent.trainer.config
    space = trainer.learner.method.skills
    return {
        "run": name,
        "env": config.env,
        "env_options": config.env_options,
        "method": config.method,
        "seed": agent.seed,
        "epoch": agent.epoch,
        "actions": "mean" if mean else "sampled",
        "factors": trainer.env.spec.factorization.to_json(),
        "skill": {"prior": space.prior, "parts": list(part_names(trainer)), "dim": space.dim},
    }


def arrays(episodes: list[Episode], about: dict[str, Any]) -> dict[str, Any]:
    """The arrays of the npz file: a row for every state, so that the last row of an episode has no action."""
    lengths = [len(episode.observations) for episode in episodes]
    last = np.cumsum(lengths) - 1
    ended = np.array([episode.terminated for episode in episodes], np.float32)
    terminals, terminations = np.zeros((2, sum(lengths)), np.float32)
    terminals[last], terminations[last] = 1.0, ended
    return {
        "observations": np.concatenate([episode.observations for episode in episodes]),
        "actions": np.concatenate([np.pad(episode.actions, ((0, 1), (0, 0))) for episode in episodes]),
        "terminals": terminals,
        "terminations": terminations,
        "skills": np.repeat(np.stack([episode.skill for episode in episodes]), lengths, axis=0),
        "episode_seeds": np.array([episode.seed for episode in episodes]),
        "episode_indices": np.array([episode.index for episode in episodes]),
        "info": np.array(json.dumps(about)),
    }
