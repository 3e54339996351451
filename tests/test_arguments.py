"""Wrong arguments of the whole public Python API: a UserError that names the thing, and never a foreign exception."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import susd
import susd.training.train
from susd.config import Config
from susd.downstream.config import FROM_RUN, DownstreamConfig, configure_downstream
from susd.training.agent import Agent
from susd.training.trainer import Trainer

WEIRD: tuple[Any, ...] = (
    *(None, 5, -2, 2.5, math.nan, True, "", "q", "x" * 300, "\0", "\ud800", b"x", 1j, 10**400, -(10**5000)),
    *([], {}, [None], {"a": None}, (1, "b"), object(), np.zeros((0, 3)), np.array(["t"]), [[1.0], [2.0, 3.0]]),
)


class Started(Exception):
    """The arguments were accepted."""


@pytest.fixture(autouse=True)
def no_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def start(*_: Any) -> None:
        raise Started

    monkeypatch.setattr(susd.training.train.Session, "start", start)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def agent() -> Agent:
    """Without training: the first weights."""
    sizes = {"hidden": 8, "phi_hidden": 8, "density_hidden": 8, "buffer_size": 400, "warmup": 400}
    trainer = Trainer.build(susd.config("gunner", **sizes))
    learner = jax.jit(trainer.learner.init)(jax.random.key(0))
    return Agent(trainer, learner.sac.actor, learner.params, 0, 0)


def accepts(call: Callable[..., Any], name: str, value: Any, /, **rest: Any) -> bool:
    """Whether a value is accepted; if not, it must be refused with one short sentence."""
    sentence = ""
    try:
        call(**{**rest, name: value})
    except Started:
        return True
    except susd.UserError as error:
        sentence = str(error)
    assert len(sentence) < 1000
    assert "\n" not in sentence
    return not sentence


def accepted(call: Callable[..., Any], name: str, /, **rest: Any) -> list[Any]:
    return [value for value in WEIRD if accepts(call, name, value, **rest)]


def test_train() -> None:
    assert accepted(susd.train, "env") == []
    assert accepted(susd.train, "run", env="gunner") == [None, "q"]
    assert accepted(susd.train, "environment", env="gunner") == [None]
    assert accepted(susd.train, "run", env="gunner", resume=True) == ["q"]  # the folder that was made above
    with pytest.raises(susd.UserError, match="--run is 5; it must be a path, as text"):
        susd.train("gunner", run=5)  # type: ignore[arg-type]
    with pytest.raises(susd.UserError, match="--run has a name of 300 bytes"):
        susd.train("gunner", run="x" * 300)
    with pytest.raises(susd.UserError, match="--run is ''; it must name a folder"):
        susd.train("gunner", run="")


@pytest.mark.parametrize("name", [spec.name for spec in dataclasses.fields(Config)])
def test_config(name: str) -> None:
    accepted(susd.config, name, **({} if name == "env" else {"env": "gunner"}))


def test_load_evaluate_and_report(tmp_path: Path) -> None:
    for call in (susd.load, susd.evaluate, susd.downstream):
        rest = {susd.evaluate: {"name": "control"}, susd.downstream: {"task": "lim"}}.get(call, {})
        assert accepted(call, "run", **rest) == []
    assert accepted(susd.evaluate, "name", run="q") == []
    assert accepted(susd.evaluate, "seed", run="q", name="control") == []
    assert accepted(susd.load, "seed", run="q") == []
    assert accepted(susd.report, "paths") == []
    (tmp_path / "results").mkdir()
    assert accepted(susd.report, "out", paths="results") == []


def test_evaluate_with_wrong_agents() -> None:
    for value in WEIRD[1:]:
        with pytest.raises(susd.UserError, match="agents is "):
            susd.evaluate("q", "control", agents=value)


@pytest.mark.parametrize("name", ["task", *(spec.name for spec in dataclasses.fields(DownstreamConfig))])
def test_downstream(name: str) -> None:
    if name not in FROM_RUN:
        rest = {"run": None, "task": "gunner-lim", "interface": "flat"}
        accepted(configure_downstream, name, **{key: value for key, value in rest.items() if key != name})


def test_environments() -> None:
    assert accepted(susd.make, "name") == []
    assert accepted(susd.make, "num_envs", name="gymnasium:Pendulum-v1") == [None, 5]
    for option in ("horizon", "parallel", "factors", "positions", "landmarks"):
        accepted(susd.make, option, name="gymnasium:Pendulum-v1", num_envs=1)
    for option in ("start", "factors"):
        accepted(susd.make, option, name="gunner")
    assert accepted(susd.check, "env") == []
    assert accepted(susd.check, "steps", env="gunner") == []


def test_factorization() -> None:
    good = {"names": ("a", "b"), "indices": ((0,), (1,)), "size": 2}
    for name in good:
        assert accepted(susd.Factorization, name, **{key: value for key, value in good.items() if key != name}) == []
    assert accepted(susd.Factorization.from_mapping, "factors", size=2) == []
    assert accepted(susd.Factorization.from_mapping, "size", factors={"a": [0, 1]}) == []
    assert accepted(susd.Factorization.from_boundaries, "boundaries", names=("a",)) == []
    assert accepted(susd.Factorization.from_boundaries, "names", boundaries=(0, 2)) == []
    assert accepted(susd.Factorization.parse, "text", size=2) == []
    assert accepted(susd.Factorization.parse, "size", text="a=0:2") == []


def test_skill_space() -> None:
    good = {"prior": "sphere", "parts": 2, "dim": 2}
    assert [accepted(susd.SkillSpace, name, **{k: v for k, v in good.items() if k != name}) for name in good] == [
        [],
        [5],
        [5],
    ]
    accepted(susd.SkillSpace, "names", **good)
    assert accepted(susd.SkillSpace(**good).sample, "count", key=jax.random.key(0)) == [5]  # type: ignore[arg-type]


def test_agent(agent: Agent) -> None:
    obs, skill = np.zeros(18), agent.sample_skill()
    assert accepted(agent.act, "obs", skill=skill) == []
    assert accepted(agent.act, "skill", obs=obs) == []
    assert accepted(agent.act, "seed", obs=obs, skill=skill) == [None, 5]
    assert accepted(agent.encode, "obs") == []
    assert accepted(agent.sample_skill, "seed") == [5]
    assert accepted(agent.sample_skill, "count") == [None, 5]
    for name, rest in (("obs", {"goal": obs}), ("goal", {"obs": obs})):
        assert accepted(agent.act_towards, name, **rest) == []


def test_sentences_of_the_agent(agent: Agent) -> None:
    skill, obs = agent.sample_skill(), np.zeros(18)
    for call, sentence in (
        (lambda: agent.act("x", skill), "the observation is 'x'; it must be 18 numbers"),
        (lambda: agent.act(obs, skill, seed="q"), "seed is 'q'; it must be an integer from 0 to 2147483647"),  # type: ignore[arg-type]
        (lambda: agent.sample_skill(count=-2), "count is -2; it must be an integer from 1 to 1000000"),
        (lambda: agent.act(np.full(18, np.nan), skill), "the observation has nan at index 0; it must be finite"),
        (lambda: agent.act(obs, np.full(6, np.inf)), "the skill has inf at index 0; it must be finite"),
        (lambda: agent.act(np.zeros((3, 18)), np.zeros((2, 6))), "3 observations and 2 skills do not fit together"),
    ):
        with pytest.raises(susd.UserError) as caught:
            call()
        assert str(caught.value) == sentence
    assert agent.act(obs, agent.sample_skill(count=3)).shape == (3, 6)
    assert agent.act(obs.tolist(), skill, seed=np.int64(3)).shape == (6,)  # type: ignore[arg-type]
