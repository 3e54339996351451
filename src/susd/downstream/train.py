"""Learn a task over the frozen skills of a run, or without skills, and write the result.

    config.json  metrics.jsonl  checkpoints/  curve.png  episode.mp4  policy/  result.json

`result.json` is written last, so a folder that has one holds a finished result. Until then `checkpoints/` holds what
`--resume` continues from.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import shutil
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from susd.config import configure
from susd.downstream.config import RETURNS, SUCCESS, DownstreamConfig, configure_downstream, folder_of
from susd.downstream.controller import Controller, ControllerState
from susd.downstream.interface import ActionInterface, FlatActions, GoalWeights, skill_interface
from susd.downstream.policy import build_controller, save_policy
from susd.downstream.result import Result, draw_result
from susd.downstream.session import CHECKPOINTS, TaskSession
from susd.downstream.vector import VectorTask, vectorize_task
from susd.envs.base import Environment, HostEnvironment
from susd.envs.vector import is_functional
from susd.errors import UserError, shown
from susd.paths import user_path
from susd.plugins import Trust, also
from susd.runs.atomic import write_json
from susd.runs.find import results_path, writable_run
from susd.runs.folder import RunFolder, config_hash, describe_machine, make_folder
from susd.runs.progress import optional
from susd.runs.signals import stop_signals
from susd.runs.untrusted import read_object
from susd.tasks.own import check_task
from susd.tasks.registry import BUILT_IN, make_task, task_entry
from susd.training.agent import load, part_names
from susd.training.compiler import use_compilation_cache
from susd.training.resources import available_memory
from susd.training.session import print_now
from susd.training.trainer import build_env, subkey
from susd.viz.video import save_video

FRAMES, PIXELS, FPS = 250, 360, 20  # of the video of an episode


def downstream(
    run: str | Path | None,
    task: str,
    *,
    out: str | Path | None = None,
    force: bool = False,
    resume: bool = False,
    quiet: bool = True,
    trust: Trust = False,
    **options: Any,
) -> Result:
    """Learn a task over the frozen skills of a run (None with interface="flat") and return the content of `result.json`.

    Options are those of `DownstreamConfig`; `out` replaces the folder below the run, `force` an existing result. With
    `resume` an interrupted one continues from its last checkpoint. `trust` is that of `susd.load`.
    """
    folder = None if out is None else user_path("out", out)
    return run_downstream(configure_downstream(run, task, **options), folder, force, quiet, trust=trust, resume=resume)


def run_downstream(
    config: DownstreamConfig,
    out: str | Path | None = None,
    force: bool = False,
    quiet: bool = True,
    video: bool = True,
    trust: Trust = False,
    resume: bool = False,
) -> Result:
    """Train every seed, evaluate, draw, and write all files of the result."""
    folder = folder_of(config) if out is None else Path(out)
    if (folder / "result.json").exists() and not force:
        raise UserError(f"{folder} already holds a finished result; replace it with --force")
    if resume:
        check_resumable(folder, config)
    run = TaskRun.build(config, trust)
    if config.run and folder.is_relative_to(results_path(config.run)):
        writable_run(config.run)
    make_folder(folder)
    meta = describe_machine(run.identity, shlex.join(sys.argv))
    with RunFolder(folder, config.to_json(), meta).lock(), stop_signals("these episodes") as stop:
        for name in ("result.json", "curve.png", "episode.mp4"):  # of a result that is replaced
            (folder / name).unlink(missing_ok=True)
        if not resume:
            shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
        write_json(folder / "config.json", config.to_json())
        if not quiet:
            print_now(f"{_describe(run)}\nfolder {folder}; compiling ..")
        session = TaskSession.start(run, folder, quiet, stop)
        session.train()
        save_policy(folder, session.states[0].policy, config.episodes, config_hash(run.identity))
        if video:
            run.save_video(folder / "episode.mp4", session.states[0])
        result = run.result(session) | {"meta": meta}
        with optional("curve"):
            draw_result(folder / "curve.png", result)
        write_json(folder / "result.json", result)
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    return result


def check_resumable(folder: Path, config: DownstreamConfig) -> None:
    """Refuse to resume where nothing was started, or with another config than the one it was started with."""
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder} holds no task that was started; start it without --resume")
    started = read_object(folder / "config.json")
    for name, value in config.to_json().items():
        if name != "run" and json.dumps(started.get(name), sort_keys=True) != json.dumps(value, sort_keys=True):
            raise UserError(
                f"{folder} was started with {name} = {shown(started.get(name))}; it cannot be resumed with {shown(value)}"
            )


@dataclass(frozen=True)
class TaskRun:
    """A config with the objects it describes."""

    config: DownstreamConfig
    controller: Controller
    frozen: Any  # weights of the skill policy; None for a flat one
    start: Any  # the environment state in which every episode starts; None where a new one is drawn for each
    tests: jax.Array  # keys of the test episodes, the same for all seeds and methods
    skills: dict[str, Any] | None  # the source of the weights
    env_options: dict[str, Any]

    @classmethod
    def build(cls, config: DownstreamConfig, trust: Trust = False) -> TaskRun:
        """Load the skills, make the task, and check that all fits into memory."""
        use_compilation_cache()
        entry = config.entry
        if config.run:
            trust = also(trust, task_entry(config.task).env)  # which the task names, and so does who names the task
            base = RunFolder.open(Path(config.run)).load_config(trust)
        else:
            base = configure(entry.env, config.preset, env_options=config.env_options, horizon=config.env_horizon)
        env_options = base.env_options | entry.layout_options(config.layout)
        # Host environments step all parallel episodes of a round together.
        env = build_env(dataclasses.replace(base, env_options=env_options, episodes=config.num_envs))
        task = make_task(config.task, env)
        if entry not in BUILT_IN:
            check_task(task)
        interface: ActionInterface = FlatActions(env.spec.action_size)
        frozen, skills, names = None, None, tuple[str, ...]()
        if config.interface != "flat":
            interface, frozen, skills, names = _load_skills(config, env, trust)
        controller = build_controller(config, task, interface, names)
        _check_memory(config, controller)
        fixed = config.layout not in entry.layouts.random
        count = config.eval_episodes if task.random_episodes or not fixed else 1
        return cls(
            config=config,
            controller=controller,
            frozen=frozen,
            start=env.reset(jax.random.key(0)) if fixed and is_functional(env) else None,
            tests=jax.random.split(subkey(jax.random.key(0), "tests"), count),
            skills=skills,
            env_options=env_options,
        )

    @cached_property
    def vector(self) -> VectorTask:
        """The test episodes, side by side."""
        return vectorize_task(self.controller.task, len(self.tests), self.start)

    @property
    def identity(self) -> dict[str, Any]:
        """What determines the result: the config, with the config of the skills' run in place of its path."""
        trained = None if self.skills is None else {name: self.skills[name] for name in ("config", "epoch")}
        return self.config.to_json() | {"run": trained, "env_options": self.env_options}

    def save_video(self, path: Path, state: ControllerState) -> None:
        """The first seed in the first test episode, in at most FRAMES frames; none where nothing can be drawn."""
        every = -(-self.controller.steps // FRAMES)
        with optional("video"):
            frames = self.controller.video(self.vector, state.policy, self.frozen, self.tests, every, PIXELS)
            save_video(path, frames, FPS)

    def result(self, session: TaskSession) -> Result:
        """The content of `result.json`, except the meta data."""
        config, entry, rows = self.config, self.config.entry, session.rows
        kinds = [kind for kind in (*RETURNS, SUCCESS) if kind in rows[0][0]]
        curves = {kind: np.array([[row[kind] for row in at] for at in rows]) for kind in kinds}  # [evaluations, seeds]
        episodes = [at[0]["episode"] for at in rows]
        late = np.array(episodes) > 0.75 * config.episodes
        last = rows[-1][0]
        return {
            "task": entry.name,
            "env": entry.env,
            "env_options": self.env_options,
            "layout": config.layout,
            "method": "flat" if self.skills is None else self.skills["method"],
            "interface": config.interface,
            "policy": config.policy,
            "seeds": [row["seed"] for row in rows[-1]],
            "final": {kind: curve[-1].tolist() for kind, curve in curves.items()},
            "last_quarter": {kind: curve[late].mean(axis=0).tolist() for kind, curve in curves.items()},
            **session.compared,
            "curve": {"episode": episodes, **{kind: curve.T.tolist() for kind, curve in curves.items()}},
            "test_episodes": len(self.tests),
            "env_steps": last["env_steps"],
            "gradient_steps": last["gradient_steps"],
            "seconds": session.seconds,
            "compile_seconds": session.compile_seconds,
            "config": config.to_json(),
            "config_hash": config_hash(self.identity),
            "skills": self.skills,
        }


def _load_skills(
    config: DownstreamConfig, env: Environment | HostEnvironment, trust: Trust
) -> tuple[ActionInterface, Any, dict[str, Any], tuple[str, ...]]:
    """The interface to the skills of a run, their weights, where these come from, and the names of the skill's parts."""
    folder = RunFolder.open(Path(config.run))
    agent = load(config.run, config.skill_seed, trust=trust)
    source = {
        "run": folder.path.resolve().name,
        "method": agent.trainer.config.method,
        "seed": agent.seed,
        "epoch": agent.epoch,
        "config": folder.config,
        "config_hash": folder.hash,
    }
    interface, frozen = skill_interface(agent, env, config.interface, config.skill_steps)
    if isinstance(frozen, GoalWeights):
        source["goals"] = frozen.goals.to_json()
    return interface, frozen, source, part_names(agent.trainer)


def _check_memory(config: DownstreamConfig, controller: Controller) -> None:
    shapes = jax.eval_shape(controller.init, jax.ShapeDtypeStruct((), jnp.int32))
    state = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    width = 2 * controller.sac.inputs + controller.sac.actions + 3 * config.layers * config.hidden
    need = (config.seeds + 1) * state + 4 * config.batch_size * width + 8 * config.gradient_steps
    have = available_memory()
    if jax.default_backend() == "cpu" and need > 0.9 * have:
        raise UserError(
            f"this needs {need / 2**30:.1f} GiB of memory, but only {have / 2**30:.1f} GiB are available; "
            "lower --episodes, --seeds, --batch-size, --gradient-steps or --hidden"
        )


def _describe(run: TaskRun) -> str:
    config, controller, skills = run.config, run.controller, run.skills
    source = "no skills"
    if skills:
        source = f"skills of {skills['run']} ({skills['method']}, seed {skills['seed']}, epoch {skills['epoch']})"
    last = config.seed + config.seeds - 1
    seeds = f"seeds {config.seed} to {last}" if config.seeds > 1 else f"seed {config.seed}"
    tests = f"{len(run.tests)} test episodes" if len(run.tests) > 1 else "1 test episode"
    how = f"{config.interface} actions, {config.policy} policy"
    return (
        f"{config.entry.name}, layout {config.layout}, {source}, {how}, {seeds}\n"
        f"{config.episodes} episodes of {controller.length} high-level actions x {controller.interface.duration} steps, "
        f"{config.gradient_steps} gradient steps each; {tests} every {config.eval_every}"
    )
