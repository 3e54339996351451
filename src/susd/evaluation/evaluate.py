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
from susd.envs.base import close
from susd.envs.vector import is_functional
from susd.errors import UserError, shown
from susd.evaluation import coverage
from susd.evaluation.registry import Evaluation, Result, evaluation
from susd.methods.registry import method
from susd.paths import user_path
from susd.plugins import Trust
from susd.runs.atomic import write_json
from susd.runs.find import writable_run
from susd.runs.folder import RunFolder
from susd.runs.progress import Waiting, optional
from susd.runs.untrusted import interpreting, read_object
from susd.training.agent import Agent, load_all, part_names
from susd.training.compiler import use_compilation_cache
from susd.viz import figures, video
from susd.viz.learning_curves import learning_curves

TRAJECTORIES, TILES = 48, 6  # skills that are drawn as lines, and in the video
HOST_STEPS = 4_000  # of the default coverage in a host environment, which is slower
MAX_SEED = 2**31 - 1


def evaluate(
    run: str | Path,
    name: str,
    seed: int = 0,
    *,
    agents: list[Agent] | None = None,
    trust: Trust = False,
    **options: Any,
) -> Result:
    """Evaluate every seed of a run; writes RUN/evaluation/NAME.json and RUN/figures/NAME.png and returns the JSON.

    Results of skills that come with the package are written to a copy of them, runs/NAME.

    `name` is a built-in or registered evaluation, or FILE.py:NAME; `options` are those of the evaluation. `agents` are
    those of `load_all(run)`, if they are loaded already; `trust` is that of `susd.load`.
    """
    found = evaluation(name)
    options = found.check_options(options)
    if type(seed) is not int or not 0 <= seed <= MAX_SEED:
        raise UserError(f"--seed is {shown(seed)}; it must be from 0 to {MAX_SEED}")
    if agents is not None and not (isinstance(agents, list) and agents and all(isinstance(a, Agent) for a in agents)):
        raise UserError(f"agents is {shown(agents)}; it must be a list of agents, as `load_all` returns it")
    folder = RunFolder.open(user_path("the run", run))
    config = agents[0].trainer.config if agents else folder.load_config(trust)
    _refuse(found.undefined(config.env, method(config.method)))
    with loaded(run, agents, trust) as agents:
        spec, card = agents[0].trainer.env.spec, method(config.method)
        _refuse(found.undefined(spec, card))
        found.check_run(spec, card, options)
        folder = RunFolder.open(writable_run(run))
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
    try:
        earlier = read_object(path, {"config": dict, "results": list}) if path.is_file() else {"config": {}}
        if earlier["config"] != config:
            return results
        with interpreting(path, "the results of an evaluation"):
            known = {(one["seed"], one["epoch"]): dict(one) for one in earlier["results"]}
    except UserError as error:  # what was just measured is worth more
        print(f"replaced: {error}", file=sys.stderr)
        return results
    return [known.get((one["seed"], one["epoch"]), {}) | one for one in results]


@contextmanager
def loaded(run: str | Path, agents: list[Agent] | None = None, trust: Trust = False) -> Iterator[list[Agent]]:
    """The agents of a run. Those that are given are used; others are loaded, and their environment is closed at the end."""
    if agents is not None:
        yield agents
        return
    use_compilation_cache()
    agents = load_all(run, trust=trust)
    try:
        yield agents
    finally:
        close(agents[0].trainer.env)  # which all seeds share


def evaluate_default(
    run: str | Path, agents: list[Agent] | None = None, quiet: bool = True, trust: Trust = False
) -> list[Result]:
    """The evaluations at the end of every training: coverage, where there are positions, and control.

    One that fails is reported in one line: the run is worth more.
    """
    reports: list[Result] = []
    with loaded(run, agents, trust) as agents:
        env = agents[0].trainer.env
        if env.spec.planes:
            steps = coverage.STEPS if is_functional(env) else HOST_STEPS
            with optional("coverage"), Waiting("evaluating coverage", quiet):
                reports.append(evaluate(run, "coverage", agents=agents, steps=steps))
        with optional("control"), Waiting("evaluating control", quiet):
            reports.append(evaluate(run, "control", agents=agents))
    return reports


def draw_figures(
    run: str | Path, seed: int = 0, agents: list[Agent] | None = None, quiet: bool = True, trust: Trust = False
) -> list[Path]:
    """Learning curves, trajectories coloured by skill, and a video of several skills; the paths written.

    What cannot be drawn is reported in one line.
    """
    folder, found = RunFolder.open(writable_run(run)), list[Path]()
    with loaded(run, agents, trust) as agents:
        agent = agents[0]
        with optional("learning curves"):
            metrics = method(agent.trainer.config.method).metrics
            found.append(learning_curves(folder.figures / "learning_curves.png", folder.read_metrics(), metrics))
        if agent.trainer.env.spec.planes:
            with optional("trajectories"), Waiting("drawing trajectories", quiet):
                found.append(_trajectories(folder, agent, seed))
        with optional("video"), Waiting("drawing the video", quiet):
            found.append(_video(folder, agent, seed))
    return found


def _trajectories(folder: RunFolder, agent: Agent, seed: int) -> Path:
    trainer, env = agent.trainer, agent.trainer.env
    space, policy = trainer.learner.method.skills, trainer.policy(agent.actor, sampled=False)
    skills, key = space.sample(jax.random.key(seed), TRAJECTORIES), jax.random.key(seed)
    # From one start, where it can be repeated, lines differ by the skill alone.
    start = coverage.FixedStart(env, key) if is_functional(env) else env
    found = rollout_skills(start, policy, skills, trainer.horizon, key)
    obs = np.concatenate([np.asarray(found.obs[:1]), np.asarray(found.next_obs)])
    path = folder.figures / "trajectories.png"
    parts = np.asarray(space.split(skills))
    return figures.trajectories(path, env.spec, obs, parts, space.discrete, part_names(trainer))


def _video(folder: RunFolder, agent: Agent, seed: int) -> Path:
    """The first skills of the figure, next to each other."""
    trainer, env, space = agent.trainer, agent.trainer.env, agent.trainer.learner.method.skills
    policy, key = trainer.policy(agent.actor, sampled=False), jax.random.key(seed)
    skills = space.sample(key, TRAJECTORIES)[:TILES]
    frames = video.skill_frames(env, policy, skills, trainer.horizon, key)
    titles = video.skill_titles(part_names(trainer), np.asarray(space.split(skills)), space.discrete)
    return video.skill_video(folder.videos / "skills.mp4", frames, titles)
