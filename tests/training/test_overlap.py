"""Collecting beside learning: the policy is one epoch old, equal runs have equal bits, and no thread outlives its epoch."""

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Thread, get_native_id
from typing import Any

import jax
import numpy as np
import pytest

import susd
from conftest import refused
from susd.config import Config, configure
from susd.envs.base import EnvSpec, HostStep
from susd.factors import Factorization
from susd.runs import checkpoint
from susd.training.overlap import TASKS, XLA_THREADS, physics_first
from susd.training.train import train
from susd.training.trainer import Trainer, TrainState

NUM_ENVS, HORIZON, EPOCHS = 2, 5, 4
CHUNK = NUM_ENVS * HORIZON


class Points:
    """Points in a plane, moved by their actions; after some resets it fails."""

    num_envs = NUM_ENVS
    spec = EnvSpec("points", 2, 2, HORIZON, Factorization.from_mapping({"x": [0], "y": [1]}, 2), (), {})

    def __init__(self, resets: int = 1000, pause: float = 0.0) -> None:
        self.left, self.pause, self.threads = resets, pause, set[str]()
        self.stepped = threading.Event()  # in a thread

    def reset(self, seed: int) -> np.ndarray:
        self.left -= 1
        if self.left < 0:
            raise ConnectionError("the simulator is gone")
        self.state = np.random.default_rng(seed).uniform(-1, 1, (NUM_ENVS, 2)).astype(np.float32)
        return self.state

    def step(self, actions: np.ndarray) -> HostStep:
        time.sleep(self.pause)
        self.state = self.state + 0.1 * actions
        self.threads.add(threading.current_thread().name)
        if threading.current_thread() is not threading.main_thread():
            self.stepped.set()
        never = np.zeros(NUM_ENVS, bool)
        return HostStep(self.state, self.state, never, never)

    def render(self, index: int = 0, size: int = 400) -> np.ndarray:
        return np.zeros((size, size, 3), np.uint8)


def small(**changes: Any) -> Config:
    sizes = {"layers": 1, "hidden": 8, "phi_hidden": 8, "density_hidden": 8, "batch_size": 16, "gradient_steps": 2}
    run = {"episodes": NUM_ENVS, "epochs": EPOCHS, "buffer_size": 1000, "warmup": 1, "checkpoint_every": 1}
    return configure("gunner", **{**sizes, **run, "overlap": True, "learning_rate": 0.01, **changes})


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    return Trainer.build(small(), Points())


@pytest.fixture(scope="module")
def states(trainer: Trainer) -> list[TrainState]:
    """Before the first epoch and after each, outside JAX: the states themselves are donated."""
    state = trainer.start()
    found = [jax.tree.map(np.array, state)]
    for epoch in range(EPOCHS):
        state, _ = trainer.run_epoch(state, epoch)
        found.append(jax.tree.map(np.array, state))
    return found


def collected(trainer: Trainer, states: list[TrainState], actor: int, epoch: int) -> np.ndarray:
    """The actions of the actor after `actor` epochs in the episodes of an epoch."""
    policy = trainer._host_policy(states[actor].learner.sac.actor)
    return np.asarray(trainer.collect_host(policy, trainer._collect_key(states[0], epoch))[0].action)


def test_policy_is_one_epoch_old(trainer: Trainer, states: list[TrainState]) -> None:
    stored = states[-1].replay.data.action[0]
    for epoch in range(EPOCHS):
        actions = stored[epoch * CHUNK : (epoch + 1) * CHUNK]
        np.testing.assert_array_equal(actions, collected(trainer, states, max(epoch - 1, 0), epoch))
        assert epoch == 0 or (actions != collected(trainer, states, epoch, epoch)).any()


@pytest.mark.slow
def test_equal_runs_have_equal_bits(states: list[TrainState]) -> None:
    again, state = Trainer.build(small(), Points()), None
    for epoch in range(EPOCHS):
        state, _ = again.run_epoch(state or again.start(), epoch)
    assert checkpoint.digest(state) == checkpoint.digest(states[-1])


def test_any_state_collects_its_own_episodes(trainer: Trainer, states: list[TrainState]) -> None:
    """Episodes that were collected for another state are not used."""
    state = jax.tree.map(jax.numpy.asarray, states[1])
    trainer.run_epoch(jax.tree.map(jax.numpy.asarray, states[0]), 0)
    assert checkpoint.digest(trainer.run_epoch(state, 1)[0]) == checkpoint.digest(states[2])


def rows(run: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert all(row.pop("seconds") >= row.pop("env_seconds") for row in found)
    return found


@pytest.mark.slow
def test_resumed_equals_uninterrupted(states: list[TrainState], tmp_path: Path) -> None:
    """The environment fails in the thread: it is raised after the epoch that was learning, which is logged and saved."""
    whole, run = tmp_path / "whole", tmp_path / "run"
    train(small(), run=whole, quiet=True, environment=Points())
    with pytest.raises(ConnectionError, match="the simulator is gone"):
        train(small(), run=run, quiet=True, environment=Points(resets=3))  # the first of them checks the environment
    assert [row["epoch"] for row in rows(run)] == [1, 2]
    assert checkpoint.epoch_of(checkpoint.checkpoints(run / "checkpoints")[0]) == 2
    train(run=run, resume=True, quiet=True, environment=Points())
    assert rows(run) == rows(whole)
    for folder in (whole, run):
        newest = checkpoint.checkpoints(folder / "checkpoints")[0]
        assert checkpoint.digest_of(newest) == checkpoint.digest(states[-1])
    agent = susd.load(run, environment=Points())
    assert checkpoint.digest(agent.actor) == checkpoint.digest(jax.tree.map(lambda x: x[0], states[-1].learner.sac.actor))


def test_learning_and_collecting_at_once(monkeypatch: pytest.MonkeyPatch, states: list[TrainState]) -> None:
    env = Points()
    trainer = Trainer.build(small(), env)
    learn = trainer._host_learn

    def waiting(*arguments: Any) -> Any:
        assert env.stepped.wait(60)
        return learn(*arguments)

    monkeypatch.setitem(vars(trainer), "_host_learn", waiting)
    _, info = trainer.run_epoch(trainer.start(), 0)
    assert env.threads == {"MainThread", "susd-collect"}
    assert info["env_seconds"] > 0
    assert not alive()


def alive() -> bool:
    return any(thread.name == "susd-collect" for thread in threading.enumerate())


@pytest.mark.slow
def test_interrupt_stops_collecting(monkeypatch: pytest.MonkeyPatch) -> None:
    env = Points(pause=0.02)
    trainer = Trainer.build(small(horizon=500, buffer_size=2000), env)

    def interrupted(*arguments: Any) -> Any:
        assert env.stepped.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setitem(vars(trainer), "_host_learn", interrupted)
    state = trainer.start()
    monkeypatch.setattr(trainer._ahead, "take", lambda actor, epoch: "chunk")  # collecting it would take ten seconds
    with pytest.raises(KeyboardInterrupt):
        trainer.run_epoch(state, 0)
    assert not alive()


def test_last_epoch_collects_nothing(trainer: Trainer, states: list[TrainState]) -> None:
    assert isinstance(trainer.env, Points)
    state, before = jax.tree.map(jax.numpy.asarray, states[EPOCHS - 1]), trainer.env.left
    trainer.run_epoch(state, EPOCHS - 1)
    assert trainer.env.left == before - 1  # its own episodes, since it is the first of this state


def test_other_runs_have_no_second_actor(trainer: Trainer) -> None:
    assert trainer.shapes.collector is not None
    assert Trainer.build(small(overlap=False), Points()).shapes.collector is None


def test_environments_inside_jax_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sentence = refused(capsys, "train", "gunner", "--overlap", "--run", tmp_path / "run")
    assert sentence == (
        "--overlap is on, but gunner runs inside JAX; it is for environments outside JAX, such as kitchen and ant"
    )
    assert not (tmp_path / "run").exists()


def may_be_batch() -> bool:
    """Whether threads may become batch threads here."""

    def ask() -> bool:
        try:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        except (OSError, AttributeError):
            return False
        return True

    with ThreadPoolExecutor(1) as other:
        return other.submit(ask).result()


@pytest.mark.skipif(not may_be_batch(), reason="the system has no batch threads, or does not allow them")
def test_only_the_learner_threads_are_batch() -> None:
    """XLA's threads wait for a free core; others are scheduled as before."""
    names, found, ready, asked = (f"{XLA_THREADS}Test", "physics"), dict[str, int](), Barrier(3), Barrier(3)

    def wait(name: str) -> None:
        (TASKS / str(get_native_id()) / "comm").write_text(name)
        ready.wait(60)
        asked.wait(60)
        found[name] = os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK

    threads = [Thread(target=wait, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    ready.wait(60)
    physics_first()
    asked.wait(60)
    for thread in threads:
        thread.join()
    assert found == {names[0]: os.SCHED_BATCH, names[1]: os.sched_getscheduler(0)}
