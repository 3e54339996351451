"""Evaluate a trained run by name, and draw it: `susd evaluate RUN NAME`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from susd.collect import rollout_skills
from susd.config import Config
from susd.envs.base import close
from susd.envs.vector import is_functional
from susd.errors import UserError, format_exception
from susd.evaluation import coverage
from susd.evaluation.registry import Evaluation, Result, evaluation
from susd.methods.registry import method
from susd.runs.atomic import write_json
from susd.runs.folder import RunFolder, read_json
from susd.training.agent import Agent, load_all, part_names
from susd.training.resources import use_compilation_cache
from susd.viz import figures, video
from susd.viz.learning_curves import learning_curves

TRAJECTORIES, TILES = 48, 6  # skills that are drawn as lines, and in the video
HOST_STEPS = 4_000  # of the default coverage in a host environment, which is slower
MAX_SEED = 2**31 - 1


def evaluate(run: str | Path, name: str, seed: int = 0, *, agents: list[Agent] | None = None, **options: Any) -> Result:
    """Evaluate every seed of a run; writes RUN/evaluation/NAME.json and RUN/figures/NAME.png and returns the JSON.

    `name` is a built-in or registered evaluation, or FILE.py:NAME; `options` are those of the evaluation. `agents` are
    those of `load_all(run)`, if they are loaded already.
    """
    found = evaluation(name)
    options = found.check_options(options)
    if type(seed) is not int or not 0 <= seed <= MAX_SEED:
        raise UserError(f"--seed is {seed}; it must be from 0 to {MAX_SEED}")
    folder = RunFolder.open(Path(run))
    config = Config.from_json(folder.config)
    _refuse(found.undefined(config.env, method(config.method)))
    with loaded(run, agents) as agents:
        _refuse(found.undefined(agents[0].trainer.env.spec, method(config.method)))
        results = [_evaluate_seed(found, agent, seed, options, folder, draw=agent is agents[0]) for agent in agents]
    path = folder.path / "evaluation" / f"{found.name}.json"
    if found.accumulates:
        results = _with_earlier(results, path, folder.config)
    report = {
        "evaluation": name,
        "run": folder.path.name,
        "evaluation_seed": seed,
        "options": options,
        "results": results,
        "config": folder.config,
        "meta": folder.meta,
    }
    write_json(path, report)
    return report


def _refuse(reason: str) -> None:
    if reason:
        raise UserError(reason)


def _evaluate_seed(
    found: Evaluation, agent: Agent, seed: int, options: dict[str, Any], folder: RunFolder, draw: bool
) -> Result:
    measured = found.measure(agent, seed, **options)
    result, artifacts = measured if isinstance(measured, tuple) else (measured, {})
    if draw:
        found.draw(folder.figures / f"{found.name}.png", agent.trainer.env.spec, result, artifacts)
    return {"seed": agent.seed, "epoch": agent.epoch, **result}


def _with_earlier(results: list[Result], path: Path, config: dict[str, Any]) -> list[Result]:
    """The results with the entries of an earlier report that they lack, where config, seed and epoch are the same."""
    earlier = read_json(path) if path.is_file() else {}
    if earlier.get("config") != config:
        return results
    known = {(one["seed"], one["epoch"]): one for one in earlier["results"]}
    return [known.get((one["seed"], one["epoch"]), {}) | one for one in results]


@contextmanager
def loaded(run: str | Path, agents: list[Agent] | None = None) -> Iterator[list[Agent]]:
    """The agents of a run. Those that are given are used; others are loaded, and their environment is closed at the end."""
    if agents is not None:
        yield agents
        return
    use_compilation_cache()
    agents = load_all(run)
    try:
        yield agents
    finally:
        close(agents[0].trainer.env)  # which all seeds share


def evaluate_default(run: str | Path, agents: list[Agent] | None = None) -> list[Result]:
    """The evaluations at the end of every training: coverage, where there are positions, and control."""
    with loaded(run, agents) as agents:
        env, reports = agents[0].trainer.env, []
        if env.spec.planes:
            steps = coverage.STEPS if is_functional(env) else HOST_STEPS
            reports.append(evaluate(run, "coverage", agents=agents, steps=steps))
        return [*reports, evaluate(run, "control", agents=agents)]


def draw_figures(run: str | Path, seed: int = 0, agents: list[Agent] | None = None) -> list[Path]:
    """Learning curves, trajectories coloured by skill, and a video of several skills; the paths written."""
    folder = RunFolder.open(Path(run))
    with loaded(run, agents) as agents:
        agent = agents[0]
        return [*_learning_curves(folder, agent), *_trajectories(folder, agent, seed), *_video(folder, agent, seed)]


def _learning_curves(folder: RunFolder, agent: Agent) -> list[Path]:
    rows, metrics = folder.read_metrics(), method(agent.trainer.config.method).metrics
    try:
        return [learning_curves(folder.figures / "learning_curves.png", rows, metrics)]
    except UserError as error:  # a run that is too short has none
        print(f"no learning curves: {error}", file=sys.stderr)
        return []


def _trajectories(folder: RunFolder, agent: Agent, seed: int) -> list[Path]:
    trainer, env = agent.trainer, agent.trainer.env
    if not env.spec.planes:
        return []
    space, policy = trainer.learner.method.skills, trainer.policy(agent.actor, sampled=False)
    skills = space.sample(jax.random.key(seed), TRAJECTORIES)
    found = rollout_skills(env, policy, skills, trainer.horizon, jax.random.key(seed))
    obs = np.concatenate([np.asarray(found.obs[:1]), np.asarray(found.next_obs)])
    path = folder.figures / "trajectories.png"
    parts = np.asarray(space.split(skills))
    return [figures.trajectories(path, env.spec, obs, parts, space.discrete, part_names(trainer))]


def _video(folder: RunFolder, agent: Agent, seed: int) -> list[Path]:
    """The first skills of the figure, next to each other; nothing where the environment cannot be drawn."""
    trainer, env, space = agent.trainer, agent.trainer.env, agent.trainer.learner.method.skills
    policy, key = trainer.policy(agent.actor, sampled=False), jax.random.key(seed)
    skills = space.sample(key, TRAJECTORIES)[:TILES]
    try:
        frames = video.skill_frames(env, policy, skills, trainer.horizon, key)
    except Exception as error:  # user-defined drawing may raise anything, and the results are worth more than the video
        reason = str(error) if isinstance(error, UserError) else format_exception(error)
        print(f"no video: {reason.splitlines()[0]}", file=sys.stderr)
        return []
    titles = video.skill_titles(part_names(trainer), np.asarray(space.split(skills)), space.discrete)
    return [video.skill_video(folder.videos / "skills.mp4", frames, titles)]
