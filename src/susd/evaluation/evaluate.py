"""`susd evaluate RUN WHAT`: measure a trained run, write JSON and a figure into its folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from susd.collect import rollout, rollout_skills
from susd.config import Config
from susd.envs.base import Environment, HostEnvironment, close
from susd.errors import UserError, format_exception
from susd.evaluation import DEFAULT_STEPS, EVALUATIONS, completions, control, coverage, decoding
from susd.runs.folder import RunFolder, write_json
from susd.tasks import TASKS, make_task
from susd.training.agent import Agent, load_all
from susd.training.build import build_env
from susd.training.resources import use_compilation_cache
from susd.types import Policy
from susd.viz import figures, video

Result = dict[str, Any]
Draw = Callable[[Path], Any]
COURSES, TILES = 48, 6  # skills drawn as lines, and in the video
HOST_STEPS = 4_000  # of the first look at the coverage in a host environment, which takes its time
MAX_STEPS = 2_000_000  # a hundred times the paper's; all observations are in memory together


def compiled(env: Environment | HostEnvironment, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """The function under jit where the environment can be compiled; else itself, a loop around a compiled policy."""
    return jax.jit(function, **options) if isinstance(env, Environment) else function


def untrained_actor(agent: Agent) -> Any:
    """The actor as it was before the first gradient step of the same seed."""
    return jax.jit(lambda seed: agent.trainer.init(seed).learner.sac.actor)(jnp.int32(agent.seed))  # without a replay


def random_actions(action_size: int) -> Policy:
    """Uniform actions that ignore everything."""
    return lambda obs, _, key: jax.random.uniform(key, (obs.shape[0], action_size), minval=-1.0, maxval=1.0)


def check_steps(steps: int) -> None:
    """Refuse a number of steps that is not a number of whole skills, or that no memory holds."""
    if steps < coverage.PERIOD or steps % coverage.PERIOD:
        raise UserError(f"--steps is {steps}; it must be a multiple of {coverage.PERIOD}, the length of one skill")
    if steps > MAX_STEPS:
        raise UserError(f"--steps is {steps}; it must be at most {MAX_STEPS}")


def evaluate_coverage(agent: Agent, seed: int = 0, steps: int = coverage.STEPS) -> tuple[Result, dict[str, np.ndarray]]:
    """Coverage of sampled and of mean actions beside the untrained policy and random actions; also visits per cell.

    The numbers are of the first 20,000 steps, as in the paper; a longer run has those of all its steps under `longer`.
    """
    env, trainer = agent.trainer.env, agent.trainer
    check_steps(steps)
    trained, untrained = agent.learner.sac.actor, untrained_actor(agent)
    first = min(steps, coverage.STEPS)
    chunks = [first] * (steps // first) + [steps % first] * (steps % first > 0)

    def run(policy: Callable[[Any], Policy]) -> Callable[..., jax.Array]:  # weights are arguments: compiled only once
        skills = trainer.learner.method.skills

        def trajectories(actor: Any, key: jax.Array, steps: int) -> jax.Array:
            return coverage.trajectories(env, policy(actor), skills, key, steps)

        return compiled(env, trajectories, static_argnums=2)

    mean, sampled = run(lambda actor: trainer.policy(actor, sampled=False)), run(trainer.policy)
    random = run(lambda _: random_actions(env.spec.action_size))
    policies = {
        "trained, mean actions": (mean, trained),
        "trained, sampled actions": (sampled, trained),
        "untrained, mean actions": (mean, untrained),
        "untrained, sampled actions": (sampled, untrained),
        "random actions": (random, None),
    }
    keys = [jax.random.key(seed), *(jax.random.fold_in(jax.random.key(seed), i) for i in range(1, len(chunks)))]
    result: Result = {}
    grids: dict[str, np.ndarray] = {}
    for label, (function, actor) in policies.items():
        parts = [np.asarray(function(actor, key, size)) for key, size in zip(keys, chunks, strict=True)]
        grids[label] = np.asarray(coverage.grid(env.spec, jnp.asarray(parts[0])))
        result[label] = coverage.summarise(env.spec, parts[0])
        if len(parts) > 1:
            result[label]["longer"] = coverage.summarise(env.spec, np.concatenate(parts, axis=1))
    return result, grids


def evaluate_control(agent: Agent, seed: int = 0, pairs: int = control.PAIRS) -> tuple[Result, np.ndarray]:
    """Which part of the skill moves which factor, with mean actions over one training episode."""
    env, trainer = agent.trainer.env, agent.trainer
    skills = trainer.learner.method.skills

    def run(actor: Any, key: jax.Array) -> control.Control:
        return control.control_matrix(env, trainer.policy(actor, sampled=False), skills, key, trainer.horizon, pairs)

    measured = compiled(env, run)(agent.learner.sac.actor, jax.random.key(seed))
    return control.summarise(env.spec, measured), np.asarray(measured.matrix)


def evaluate_decoding(agent: Agent, seed: int = 0, steps: int = decoding.STEPS, epochs: int = decoding.EPOCHS) -> Result:
    """Error of reading every factor from phi(s), and from a random projection of phi(s) to two numbers as a control.

    DIAYN and DUSDi have no phi; what their discriminators say of a state takes its place.
    """
    env, trainer = agent.trainer.env, agent.trainer
    check_steps(steps)
    if steps < 10 * coverage.PERIOD:
        raise UserError(f"--steps is {steps}; decoding needs at least {10 * coverage.PERIOD}, ten courses to split")
    skills, method = trainer.learner.method.skills, trainer.learner.method

    def run(actor: Any, params: Any, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        obs = jnp.asarray(coverage.trajectories(env, trainer.policy(actor), skills, key, steps))
        code = method.encode(params, obs.reshape(-1, obs.shape[-1]))
        return jnp.swapaxes(obs, 0, 1), jnp.swapaxes(code.reshape(*obs.shape[:2], -1), 0, 1)

    obs, code = map(np.asarray, compiled(env, run)(agent.learner.sac.actor, agent.learner.params, jax.random.key(seed)))
    sizes = decoding.HIDDEN.get(env.spec.name, decoding.OTHER_HIDDEN)
    decode = partial(decoding.decode, obs=obs, factors=env.spec.factorization, sizes=sizes, seed=seed, epochs=epochs)
    result: Result = {"phi": decode(code)}
    if code.shape[-1] > 2:
        projection = np.random.default_rng(seed).normal(size=(code.shape[-1], 2)) / code.shape[-1] ** 0.5
        result["random projection to 2"] = decode(code @ projection)
    return result


def evaluate_completions(agent: Agent, seed: int = 0) -> Result:
    """Steps of 10,000 in which random skills, with sampled actions, happen to complete each task of the environment."""
    env, trainer = agent.trainer.env, agent.trainer
    tasks: list[Any] = [make_task(name, env) for name, entry in TASKS.items() if entry.env == env.spec.name]
    tasks = [task for task in tasks if task.completable]
    if not tasks:
        raise UserError(f"{env.spec.name} has no task that random skills could complete")
    keys = jax.random.split(jax.random.key(seed), completions.REPETITIONS)
    skills, actor = trainer.learner.method.skills, agent.learner.sac.actor
    if not isinstance(env, Environment):
        counts = np.stack([completions.count_all(tasks, trainer.policy(actor), skills, key) for key in keys], axis=1)
        return {task.name: completions.summarise(row) for task, row in zip(tasks, counts, strict=True)}

    def run(actor: Any, task: Any) -> jax.Array:
        return jax.lax.map(lambda key: completions.count(task, trainer.policy(actor), skills, key), keys)

    counted = jax.jit(run, static_argnums=1)
    return {task.name: completions.summarise(np.asarray(counted(actor, task))) for task in tasks}


def _measure(agent: Agent, what: str, seed: int, steps: int) -> tuple[Result, Draw]:
    """One evaluation of one seed: its numbers, and what draws them."""
    spec = agent.trainer.env.spec
    if what == "coverage":
        result, grids = evaluate_coverage(agent, seed, steps)
        shown = {k: v for k, v in grids.items() if k.endswith("mean actions") or k == "random actions"}
        return result, lambda path: figures.coverage_map(path, spec, shown)
    if what == "control":
        result, matrix = evaluate_control(agent, seed)
        names = list(spec.factorization.names)
        parts = names if len(matrix) == len(names) else [f"part {i + 1}" for i in range(len(matrix))]
        return result, lambda path: figures.control_matrix(path, parts, names, matrix, result.get("ratio"))
    if what == "decoding":
        result = evaluate_decoding(agent, seed, steps)
        return result, lambda path: figures.decoding_errors(path, result)
    result = evaluate_completions(agent, seed)
    return result, lambda path: figures.completions(path, result)


def evaluate(run: str | Path, what: str, seed: int = 0, steps: int | None = None) -> Result:
    """Evaluate every seed of a run; writes RUN/evaluation/WHAT.json and RUN/figures/WHAT.png and returns the JSON."""
    if what not in EVALUATIONS:
        raise UserError(f"evaluation {what!r} is unknown; choose one of {', '.join(EVALUATIONS)}")
    if not 0 <= seed < 2**31:
        raise UserError(f"--seed is {seed}; it must be from 0 to {2**31 - 1}")
    if steps is not None and what not in DEFAULT_STEPS:
        raise UserError(f"--steps is {steps}, but {what} has a fixed length; it works with {', '.join(DEFAULT_STEPS)}")
    steps = DEFAULT_STEPS.get(what, 0) if steps is None else steps
    if what in DEFAULT_STEPS:
        check_steps(steps)
    folder = RunFolder.open(Path(run))
    use_compilation_cache()
    agents = load_all(folder.path)
    results: list[Result] = []
    try:
        for index, agent in enumerate(agents):
            result, draw = _measure(agent, what, seed, steps)
            if index == 0:
                draw(folder.figures / f"{what}.png")
            results.append({"seed": agent.seed, "epoch": agent.epoch, **result})
    finally:
        close(agents[0].trainer.env)  # which all seeds share
    report = {
        "evaluation": what,
        "run": folder.path.name,
        "evaluation_seed": seed,
        "results": results,
        "config": folder.config,
        "meta": folder.meta,
    }
    path = folder.path / "evaluation" / f"{what}.json"
    path.parent.mkdir(exist_ok=True)
    write_json(path, report)
    return report


def evaluate_default(run: str | Path) -> list[Result]:
    """What is measured at the end of every training: coverage, where there are positions, and control."""
    env = build_env(Config.from_json(RunFolder.open(Path(run)).config))
    steps = coverage.STEPS if isinstance(env, Environment) else HOST_STEPS
    found = [evaluate(run, "coverage", steps=steps)] if env.spec.planes else []
    return [*found, evaluate(run, "control")]


def pictures(run: str | Path, seed: int = 0) -> list[Path]:
    """Learning curves, trajectories coloured by skill, and a video of several skills; the paths written."""
    folder = RunFolder.open(Path(run))
    agent = load_all(folder.path)[0]
    paths = [figures.learning_curves(folder.figures / "learning_curves.png", folder.read_metrics())]
    env, trainer = agent.trainer.env, agent.trainer
    skills = trainer.learner.method.skills
    drawn = skills.sample(jax.random.key(seed), COURSES)
    parts = np.asarray(skills.split(drawn))

    def course(actor: Any, skill: jax.Array) -> Any:
        return rollout_skills(env, trainer.policy(actor, sampled=False), skill, trainer.horizon, jax.random.key(seed))

    try:
        if env.spec.planes:
            transitions = compiled(env, course)(agent.learner.sac.actor, drawn)
            obs = np.concatenate([np.asarray(transitions.obs[:1]), np.asarray(transitions.next_obs)])
            paths.append(figures.trajectories(folder.figures / "trajectories.png", env.spec, obs, parts, skills.discrete))
        return [*paths, *_video(agent, drawn[:TILES], folder.videos / "skills.mp4", seed)]
    finally:
        close(env)


def _video(agent: Agent, skills: jax.Array, path: Path, seed: int) -> list[Path]:
    """The skills side by side, in the same starts as the pictures; nothing where the worlds cannot be drawn."""
    trainer, env, space = agent.trainer, agent.trainer.env, agent.trainer.learner.method.skills
    policy, key = trainer.policy(agent.learner.sac.actor, sampled=False), jax.random.key(seed)
    try:
        if isinstance(env, Environment):
            states = jax.jit(lambda z: rollout(env, policy, z, trainer.horizon, key)[0])(skills)
            frames = video.functional_frames(env, states)
        else:
            frames = video.host_frames(env, policy, np.asarray(skills), trainer.horizon, key)
    except Exception as error:  # whatever drawing somebody's world raises: the numbers are there, and worth more
        reason = str(error) if isinstance(error, UserError) else format_exception(error)
        print(f"no video: {reason.splitlines()[0]}", file=sys.stderr)
        return []
    names = env.spec.factorization.names
    titles = video.skill_titles(names, np.asarray(space.split(skills)), space.discrete)
    return [video.skill_video(path, frames, titles)]
