"""One task learned over one skill policy, or flat: the objects a DownstreamConfig describes, and the loop over episodes."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from susd.config import Config, configure
from susd.downstream.config import KINDS, DownstreamConfig, Result, layout_options
from susd.downstream.controller import ActionInterface, Controller, ControllerState, Flat, Skills, play, returns
from susd.downstream.host_controller import HostController
from susd.envs.base import Environment
from susd.errors import UserError
from susd.runs.folder import RunFolder, config_hash
from susd.runs.progress import Progress
from susd.sac import Sac
from susd.tasks import make_task
from susd.tasks.base import SKILL_STEPS, HostTask, Task
from susd.tasks.experts import ceiling, expert
from susd.tasks.multi_particle import FoodPoison
from susd.training.agent import load
from susd.training.build import build_env
from susd.training.resources import available_memory, use_compilation_cache
from susd.training.train import NonFiniteError
from susd.training.trainer import subkey
from susd.viz.video import save_video

MEMORY = 1_000_000  # transitions that the replay holds at most
FRAMES, PIXELS, FPS = 250, 360, 20  # of the film of an episode
SLICE = 10  # episodes between two updates of the progress bar


@dataclass(frozen=True)
class TaskRun:
    """A config with the objects it describes."""

    config: DownstreamConfig
    controller: Controller
    frozen: Any  # weights of the skill policy; None for a flat one
    start: Any  # the world in which every episode begins; None where one is drawn for each
    tests: jax.Array  # keys of the test episodes, the same for all seeds and methods
    skills: dict[str, Any] | None  # where the weights come from
    env_options: dict[str, Any]

    @classmethod
    def build(cls, config: DownstreamConfig) -> TaskRun:
        """Load the skills, make the task, and refuse what does not fit into memory."""
        use_compilation_cache()
        base, frozen, skills = configure(config.env, config.preset), None, None
        if config.run:
            folder = RunFolder.open(Path(config.run))
            base = Config.from_json(folder.config)
        env_options = base.env_options | layout_options(config.env, config.layout)
        # A host environment has a world for each of the episodes that are run together.
        env = build_env(dataclasses.replace(base, env_options=env_options, episodes=config.num_envs))
        task = make_task(config.task, env)
        interface: ActionInterface = Flat(env.spec.action_size)
        if not config.flat:
            agent = load(config.run, config.skill_seed)
            trainer, frozen = agent.trainer, agent.learner.sac.actor
            interface = Skills(trainer.learner.method.skills, lambda actor: trainer.policy(actor, sampled=False))
            skills = {
                "run": folder.path.resolve().name,
                "method": base.method,
                "seed": agent.seed,
                "epoch": agent.epoch,
                "config": folder.config,
                "config_hash": folder.hash,
            }
        controller = _hierarchy(config, task, interface)
        fixed = config.layout != "random"
        tests = config.eval_episodes if isinstance(task, FoodPoison) or not fixed else 1
        _check_memory(config, controller)
        return cls(
            config=config,
            controller=controller,
            frozen=frozen,
            start=env.reset(jax.random.key(0)) if fixed and isinstance(env, Environment) else None,
            tests=jax.random.split(subkey(jax.random.key(0), "tests"), tests),
            skills=skills,
            env_options=env_options,
        )

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the result: the config, with the run's own config in the place of its path."""
        trained = None if self.skills is None else {name: self.skills[name] for name in ("config", "epoch")}
        return self.config.to_json() | {"run": trained, "env_options": self.env_options}

    def references(self) -> Result:
        """The bound and the scores of doing nothing and of a scripted expert, if there is one, on the test episodes."""
        task = self.controller.task
        most = jnp.asarray(np.repeat(ceiling(task), SKILL_STEPS), jnp.float32)
        scores: Result = {"bound": {kind: float(value) for kind, value in returns(most).items()}}
        if isinstance(self.controller, HostController):
            idle = returns(self.controller.nothing(self.tests))
            return scores | {"do_nothing": {kind: float(values.mean()) for kind, values in idle.items()}}
        script = expert(task)

        def run(share: jax.Array, start: Any, tests: jax.Array) -> dict[str, jax.Array]:
            return returns(play(task, lambda state: share * script(state), start, tests))

        # All of what the expert does, and nothing of it: one program for both.
        played = jax.jit(jax.vmap(run, in_axes=(0, None, None)))(jnp.asarray([1.0, 0.0]), self.start, self.tests)
        for index, name in enumerate(("expert", "do_nothing")):
            scores[name] = {kind: float(values[index].mean()) for kind, values in played.items()}
        return scores

    def learn(self, place: Path, quiet: bool, film: bool = False) -> Result:
        """Train every seed, evaluating on the way; one line of metrics per evaluation and seed, and at the end a film."""
        config = self.config
        if not quiet:
            print(f"{_describe(self)}\nfolder {place}; compiling ..", file=sys.stderr, flush=True)
        began = time.perf_counter()
        init, train, evaluate = self.controller.compiled
        seeds = range(config.seed, config.seed + config.seeds)
        states: list[ControllerState] = [init(jnp.int32(seed)) for seed in seeds]
        # No episodes: that compiles and does nothing else. The bounds of the loop are arguments.
        states[0], _ = train(states[0], self.frozen, self.start, jnp.int32(0), jnp.int32(0))
        references = self.references()
        rows = [self._measure(evaluate, states, {}, 0, 0.0)]
        _append(place / "metrics.jsonl", rows[-1])
        compiled = time.perf_counter() - began

        done, seconds = 0, 0.0
        with Progress(config.episodes, quiet=quiet) as progress:
            while done < config.episodes:
                step = max(1, SLICE // config.num_envs) * config.num_envs
                after = min(done + step, (done // config.eval_every + 1) * config.eval_every, config.episodes)
                started, infos = time.perf_counter(), {}
                for index, seed in enumerate(seeds):  # one after another: their matmuls fill the cores already
                    bounds = jnp.int32(done), jnp.int32(after)
                    states[index], info = train(states[index], self.frozen, self.start, *bounds)
                    infos[seed] = {name: float(value) for name, value in info.items()}
                jax.block_until_ready(states)
                seconds += time.perf_counter() - started
                done = after
                _check_finite(infos, done)
                if done % config.eval_every == 0 or done == config.episodes:
                    rows.append(self._measure(evaluate, states, infos, done, seconds))
                    _append(place / "metrics.jsonl", rows[-1])
                score = sum(row["discounted"] for row in rows[-1]) / len(seeds)
                progress.update(done, {"episodes/s": len(seeds) * done / seconds, "return": score})
        if film:
            self._film(place / "episode.mp4", states[0])
        return self._result(references, rows, seconds, compiled)

    def _film(self, path: Path, state: ControllerState) -> None:
        """A video of the first seed's first test episode, in at most FRAMES pictures; none where there is no drawing."""
        every = -(-self.controller.task.horizon // FRAMES)
        try:
            frames = self.controller.film(state.sac, self.frozen, self.start, self.tests[0], every, PIXELS)
            save_video(path, frames, FPS)
        except UserError as error:
            print(f"no video: {error}", file=sys.stderr)

    def _measure(
        self,
        evaluate: Any,
        states: list[ControllerState],
        infos: Mapping[int, Mapping[str, float]],
        done: int,
        seconds: float,
    ) -> list[dict[str, Any]]:
        """The rows of metrics of one evaluation, one for every seed."""
        rows = []
        warmup, num_envs = self.controller.warmup, self.controller.num_envs
        learned = max(0, done - warmup // num_envs * num_envs)
        for index, state in enumerate(states):
            seed = self.config.seed + index
            scores = returns(evaluate(state.sac, self.frozen, self.start, self.tests))
            info = infos.get(seed, {})
            shown = info if learned else {name: info[name] for name in ("training_return",) if name in info}
            rows.append(
                {
                    "episode": done,
                    "seed": seed,
                    "env_steps": done * self.controller.task.horizon,
                    "gradient_steps": learned * self.config.gradient_steps,
                    "seconds": round(seconds, 3),
                    **{kind: float(scores[kind].mean()) for kind in KINDS},
                    **shown,
                }
            )
        return rows

    def _result(self, references: Result, rows: list[list[dict[str, Any]]], seconds: float, compiled: float) -> Result:
        """What `result.json` holds, but for the meta data."""
        config = self.config
        curves = {kind: np.array([[row[kind] for row in at] for at in rows]) for kind in KINDS}  # [evaluations, seeds]
        episodes = [at[0]["episode"] for at in rows]
        late = np.array(episodes) > 0.75 * config.episodes
        last = rows[-1][0]
        return {
            "task": config.task,
            "env": config.env,
            "env_options": self.env_options,
            "layout": config.layout,
            "method": "flat" if self.skills is None else self.skills["method"],
            "seeds": [row["seed"] for row in rows[-1]],
            "final": {kind: curve[-1].tolist() for kind, curve in curves.items()},
            "last_quarter": {kind: curve[late].mean(axis=0).tolist() for kind, curve in curves.items()},
            **references,
            "curve": {"episode": episodes, **{kind: curve.T.tolist() for kind, curve in curves.items()}},
            "test_episodes": len(self.tests),
            "env_steps": last["env_steps"],
            "gradient_steps": last["gradient_steps"],
            "seconds": seconds,
            "compile_seconds": compiled,
            "config": config.to_json(),
            "config_hash": config_hash(self.identity),
            "skills": self.skills,
        }


def _hierarchy(config: DownstreamConfig, task: Task | HostTask, interface: ActionInterface) -> Controller:
    """The learner that the options describe; a flat one gets the same time to warm up and to look ahead."""
    sac = Sac(
        inputs=task.environment.spec.obs_size + task.extra_size,
        actions=interface.size,
        hidden=config.hidden,
        layers=config.layers,
        activation=config.actor_activation,
        precision=config.precision,
        learning_rate=config.learning_rate,
        discount=config.discount ** (interface.span / SKILL_STEPS),
        tau=config.tau,
        alpha_init=config.alpha_init,
        adaptive_alpha=True,
        target_entropy=config.target_entropy,
    )
    decisions = task.horizon // SKILL_STEPS  # of 5 steps each, per episode
    warmup = max(1, min(config.warmup, config.episodes * decisions // 10))
    length = task.horizon // interface.span
    kind: Any = HostController if isinstance(task, HostTask) else Controller
    return kind(
        task=task,
        interface=interface,
        sac=sac,
        gradient_steps=config.gradient_steps,
        batch_size=config.batch_size,
        capacity=min(config.episodes, max(1, MEMORY // length // config.num_envs) * config.num_envs),
        warmup=-(-warmup // decisions) - 1,
        num_envs=config.num_envs,
    )


def _check_memory(config: DownstreamConfig, controller: Controller) -> None:
    shapes = jax.eval_shape(controller.init, jax.ShapeDtypeStruct((), jnp.int32))
    state = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    width = 2 * controller.sac.inputs + controller.sac.actions + 3 * config.layers * config.hidden
    need = config.seeds * state + 4 * config.batch_size * width + 8 * config.gradient_steps
    have = available_memory()
    if jax.default_backend() == "cpu" and need > 0.9 * have:
        raise UserError(
            f"this needs {need / 2**30:.1f} GiB of memory, but only {have / 2**30:.1f} GiB are available; "
            "lower --episodes, --seeds, --batch-size, --gradient-steps or --hidden"
        )


def _check_finite(infos: Mapping[int, Mapping[str, float]], done: int) -> None:
    for seed, info in infos.items():
        if bad := next((name for name, value in info.items() if not math.isfinite(value)), None):
            advice = "a lower --learning-rate may help"
            raise NonFiniteError(f"{bad} of seed {seed} became non-finite by episode {done}; stopped, {advice}")


def _append(path: Path, rows: list[dict[str, Any]]) -> None:
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write("".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))
    except OSError as error:
        raise UserError(f"cannot write metrics to {path}: {error.strerror}") from error


def _describe(trial: TaskRun) -> str:
    config, controller = trial.config, trial.controller
    skills = trial.skills
    who = (
        f"skills of {skills['run']} ({skills['method']}, seed {skills['seed']}, epoch {skills['epoch']})"
        if skills
        else "no skills"
    )
    last = config.seed + config.seeds - 1
    seeds = f"seeds {config.seed} to {last}" if config.seeds > 1 else f"seed {config.seed}"
    return (
        f"{config.task}, layout {config.layout}, {who}, {seeds}\n"
        f"{config.episodes} episodes of {controller.decisions} decisions x {controller.interface.span} steps and "
        f"{config.gradient_steps} gradient steps; {len(trial.tests)} test episodes every {config.eval_every}"
    )
