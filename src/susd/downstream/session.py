"""The training of high-level policies in one process: rounds of episodes, evaluation, metrics, checkpoints."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from susd.downstream.config import SUCCESS
from susd.downstream.controller import ControllerState
from susd.downstream.returns import mean_returns, references
from susd.errors import UserError
from susd.runs import checkpoint
from susd.runs.atomic import write_text
from susd.runs.folder import config_hash, make_folder
from susd.runs.progress import Progress, Waiting
from susd.runs.untrusted import interpreting
from susd.training.compiler import compiler_options
from susd.training.session import Interrupted, NonFiniteError, print_now

if TYPE_CHECKING:
    from susd.downstream.train import TaskRun

SLICE = 10  # episodes between two updates of the progress bar
SAVE_SECONDS = 60.0  # between two checkpoints, which are made after an evaluation
CHECKPOINTS = "checkpoints"  # below the folder of a result, until it is finished
Rows = list[dict[str, Any]]


@dataclass
class TaskSession:
    """All high-level seeds after `done` episodes, the rows of their evaluations so far, and the time it took."""

    run: TaskRun
    folder: Path
    quiet: bool
    stop: list[str]  # the signals received
    compared: Mapping[str, Any]  # returns of bound, expert and doing nothing
    states: list[ControllerState]
    rows: list[Rows] = field(default_factory=list)
    done: int = 0
    seconds: float = 0.0
    compile_seconds: float = 0.0
    saved: float = 0.0  # when the last checkpoint was made

    @classmethod
    def start(cls, run: TaskRun, folder: Path, quiet: bool, stop: list[str]) -> TaskSession:
        """Compiled, and evaluated before the first episode, or as the last good checkpoint left it."""
        began, controller = time.perf_counter(), run.controller
        init = jax.jit(controller.init, compiler_options=compiler_options(once=True))
        seeds = range(run.config.seed, run.config.seed + run.config.seeds)
        states: list[ControllerState] = [init(jnp.int32(seed)) for seed in seeds]
        with Waiting("compiling", quiet), ThreadPoolExecutor(1) as other:
            # No episodes of a state that nobody needs: this only compiles, at the same time as the test episodes.
            training = other.submit(controller.train, init(jnp.int32(0)), run.frozen, run.start, 0, 0)
            compared = references(run.vector, run.tests, controller.steps)
            session = cls(run, folder, quiet, stop, compared, states)
            first = session.evaluated({})
            training.result()
        if checkpoint.checkpoints(folder / CHECKPOINTS):
            session.restore()
        else:
            session.rows = [first]
        session.write_metrics()
        session.compile_seconds += time.perf_counter() - began
        session.saved = time.monotonic()
        return session

    def train(self) -> None:
        """All episodes that are left."""
        config = self.run.config
        with Progress(config.episodes, self.done, quiet=self.quiet) as progress:
            while self.done < config.episodes:
                infos = self.episodes()
                if self.done % config.eval_every == 0 or self.done == config.episodes:
                    self.rows.append(self.evaluated(infos))
                    self.write_metrics(self.rows[-1])
                    if time.monotonic() - self.saved > SAVE_SECONDS and self.done < config.episodes:
                        self.save()
                score = sum(row["discounted"] for row in self.rows[-1]) / config.seeds
                progress.update(self.done, {"episodes/s": config.seeds * self.done / self.seconds, "return": score})
                self.stop_if_signalled()

    def episodes(self) -> Mapping[int, Mapping[str, float]]:
        """The next few training episodes of every seed, up to the next evaluation at most: the info of each seed."""
        config, controller = self.run.config, self.run.controller
        step = max(1, SLICE // config.num_envs) * config.num_envs
        after = min(self.done + step, (self.done // config.eval_every + 1) * config.eval_every, config.episodes)
        started, infos = time.perf_counter(), {}
        for index in range(config.seeds):  # one after another: their matmuls use all cores already
            state, info = controller.train(self.states[index], self.run.frozen, self.run.start, self.done, after)
            self.states[index] = state
            infos[config.seed + index] = {name: float(value) for name, value in info.items()}
        jax.block_until_ready(self.states)
        self.seconds += time.perf_counter() - started
        self.done = after
        _check_finite(infos, after)
        return infos

    def evaluated(self, infos: Mapping[int, Mapping[str, float]]) -> Rows:
        """The rows of metrics of one evaluation, one for every seed."""
        rows: Rows = []
        config, controller = self.run.config, self.run.controller
        learned = max(0, self.done - controller.warmup // controller.num_envs * controller.num_envs)
        for seed, state in enumerate(self.states, start=config.seed):
            info = infos.get(seed, {})
            shown = info if learned else {name: info[name] for name in ("training_return",) if name in info}
            rows.append(
                {
                    "episode": self.done,
                    "seed": seed,
                    "env_steps": self.done * controller.steps,
                    "gradient_steps": learned * config.gradient_steps,
                    "seconds": round(self.seconds, 3),
                    **self.scores(state),
                    **shown,
                }
            )
        return rows

    def scores(self, state: ControllerState) -> dict[str, float]:
        """Both returns in the test episodes and, where the task says when it is solved, the share of those that were."""
        run = self.run
        rewards, solved = run.controller.evaluate(run.vector, state.policy, run.frozen, run.tests)
        share = {} if run.controller.task.success is None else {SUCCESS: float(solved.mean())}
        return mean_returns(rewards) | share

    def write_metrics(self, rows: Rows | None = None) -> None:
        """Add rows to the metrics file, or write all of it."""
        path = self.folder / "metrics.jsonl"
        if rows is None:
            write_text(path, _lines(row for at in self.rows for row in at))
            return
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(_lines(rows))
        except OSError as error:
            raise UserError(f"cannot write metrics to {path}: {error.strerror}") from error

    def save(self) -> None:
        """A checkpoint of all seeds, with the rows so far."""
        make_folder(self.folder / CHECKPOINTS)
        meta = {"rows": self.rows, "seconds": self.seconds, "compile_seconds": self.compile_seconds}
        checkpoint.save(
            self.folder / CHECKPOINTS,
            self.done,
            self.states,
            meta,
            keep=1,
            config=config_hash(self.run.identity),
            rows={".replay.data": (0, int(self.states[0].replay.size))},
        )
        self.saved = time.monotonic()

    def restore(self) -> None:
        """Continue from the last good checkpoint."""
        like = jax.eval_shape(lambda states: states, self.states)
        found = checkpoint.restore_latest(self.folder / CHECKPOINTS, like, config_hash(self.run.identity), _skipped)
        self.states, meta, path = found
        with interpreting(path, "a checkpoint of a task"):
            self.rows, self.done = [[dict(row) for row in at] for at in meta["rows"]], checkpoint.epoch_of(path)
            self.seconds, self.compile_seconds = float(meta["seconds"]), float(meta["compile_seconds"])
        if not self.quiet:
            print_now(f"resumed after episode {self.done}")

    def stop_if_signalled(self) -> None:
        """Save and raise, if a signal was received before the last episode."""
        if self.stop and self.done < self.run.config.episodes:
            self.save()
            raise Interrupted(
                f"stopped by {self.stop[0]} after episode {self.done}; saved. Repeat the command with --resume"
            )


def _lines(rows: Any) -> str:
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)


def _skipped(text: str) -> None:
    print_now(f"skipped: {text}")


def _check_finite(infos: Mapping[int, Mapping[str, float]], done: int) -> None:
    for seed, info in infos.items():
        if bad := next((name for name, value in info.items() if not math.isfinite(value)), None):
            raise NonFiniteError(
                f"{bad} of seed {seed} became non-finite by episode {done}; stopped, a lower --learning-rate may help"
            )
