"""An agent in the user's own environment: nested observations as they come, actions in the environment's bounds."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import susd
from susd.envs.gymnasium.spaces import Actions, Observations
from susd.training.agent import Agent
from susd.training.trainer import Trainer

FILE = """
import gymnasium
import numpy as np
from gymnasium import spaces


class Robot(gymnasium.Env):
    observation_space = spaces.Dict({
        "arm": spaces.Dict({"hand": spaces.Box(-1, 1, (2,)), "elbow": spaces.Box(-3, 3, (1, 2))}),
        "mode": spaces.Discrete(3, start=1),
        "lamp": spaces.MultiBinary(2),
    })
    low, high = np.array([[0.0, -5.0], [2.0, 10.0]], np.float32), np.array([[1.0, 5.0], [6.0, 30.0]], np.float32)
    action_space = spaces.Box(low, high)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        return self.observation_space.sample(), 0.0, False, False, {}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Agent, Any]:
    path = tmp_path_factory.mktemp("native") / "robot.py"
    path.write_text(FILE)
    sizes = {"hidden": 8, "phi_hidden": 8, "density_hidden": 8, "episodes": 1, "buffer_size": 200, "warmup": 200}
    trainer = Trainer.build(susd.config(f"{path}:Robot", **sizes))
    learner = jax.jit(trainer.learner.init)(jax.random.key(0))
    scope: dict[str, Any] = {}
    exec(FILE, scope)
    scope["Robot"].observation_space.seed(0)
    return Agent(trainer, learner.sac.actor, learner.params, 0, 0), scope["Robot"]


def flat(obs: dict[str, Any]) -> np.ndarray:
    """The entries in the order of the space: keys are sorted, the mode is one-hot."""
    mode = np.arange(1, 4) == obs["mode"]
    return np.concatenate([obs["arm"]["elbow"].ravel(), obs["arm"]["hand"], obs["lamp"], mode]).astype(np.float32)


def test_one_observation(made: tuple[Agent, Any]) -> None:
    agent, robot = made
    env, skill = robot(), agent.sample_skill()
    obs, _ = env.reset(seed=0)
    action = agent.act(obs, skill)
    assert action.shape == (4,)
    assert np.array_equal(action, agent.act(flat(obs), skill))
    assert np.array_equal(agent.encode(obs), agent.encode(flat(obs)))
    raw = agent.act(obs, skill, raw=True)
    low, high = env.action_space.low, env.action_space.high
    np.testing.assert_allclose(raw, low + (high - low) * (action.reshape(2, 2) + 1) / 2, rtol=1e-5)
    env.step(raw)  # asserts that the space contains it
    for seed in range(20):
        env.step(agent.act(obs, skill, seed=seed, raw=True))


def test_batches(made: tuple[Agent, Any]) -> None:
    agent, robot = made
    many = gymnasium.vector.SyncVectorEnv([robot] * 3)
    obs, _ = many.reset(seed=0)
    skills = agent.sample_skill(count=3)
    raw = agent.act(obs, skills, raw=True)
    assert raw.shape == many.action_space.shape == (3, 2, 2)
    many.step(raw)
    rows = np.stack([flat(jax.tree.map(lambda x: x[i], obs)) for i in range(3)])  # noqa: B023
    np.testing.assert_allclose(agent.act(obs, skills), agent.act(rows, skills), rtol=1e-6)
    np.testing.assert_allclose(agent.act(obs, skills[0], raw=True)[1], agent.act(rows[1], skills[0], raw=True), rtol=1e-5)
    assert agent.encode(obs).shape == (3, agent.encode(rows[0]).size)


def test_towards_a_goal_in_raw_actions(made: tuple[Agent, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    agent, robot = made
    obs, _ = robot().reset(seed=0)
    monkeypatch.setattr(Agent, "goals", None)  # not measured here
    monkeypatch.setattr(Agent, "_skill_between", lambda *_: np.zeros((1, agent.sample_skill().size)))
    action = agent.act_towards(obs, {"lamp": [1.0, 0.0]}, raw=True)
    assert robot.action_space.contains(action)


def test_observations_that_do_not_fit(made: tuple[Agent, Any]) -> None:
    agent, robot = made
    obs, _ = robot().reset(seed=0)
    wrong = {
        "entry 'arm/hand' is missing": obs | {"arm": {"elbow": np.zeros((1, 2))}},
        "entry 'lamp' has the shape (3,), but its space says (2,)": obs | {"lamp": np.zeros(3, np.int8)},
        "entry 'mode' is 7, but its space is": obs | {"mode": 7},
        "(position 1 of entry 'arm/hand') is nan": obs | {"arm": obs["arm"] | {"hand": np.array([0, np.nan])}},
        "entry 'arm/elbow' is missing": {},
    }
    for part, one in wrong.items():
        with pytest.raises(susd.UserError) as caught:
            agent.act(one, agent.sample_skill())
        assert part in str(caught.value), caught.value
        assert "the environment's space" in str(caught.value)
    with pytest.raises(susd.UserError, match=r"the observation has the shape \(4,\); its last axis must have the length 9"):
        agent.act(np.zeros(4), agent.sample_skill())


@pytest.mark.parametrize(
    ("space", "native", "vector"),
    [
        (spaces.Box(-1, 1, (2, 3)), np.ones((2, 3)), np.ones(6)),
        (spaces.Box(-1, 1, (2, 3)), np.ones((4, 2, 3)), np.ones((4, 6))),
        (spaces.Discrete(3), 2, np.array([0, 0, 1])),
        (spaces.Discrete(3), np.array([2, 0]), np.array([[0, 0, 1], [1, 0, 0]])),
        (spaces.Box(-1, 1, (2,)), [0.5, 0.5], np.array([0.5, 0.5])),
        (spaces.Box(-1, 1, ()), 0.5, np.array([0.5])),
    ],
    ids=str,
)
def test_spaces_without_names(space: spaces.Space[Any], native: Any, vector: np.ndarray) -> None:
    observations = Observations(space, "mine")
    assert observations.is_native(native)
    assert np.array_equal(observations.flatten(native), vector)


def test_vectors_are_not_native() -> None:
    assert not Observations(spaces.Box(-1, 1, (2, 3)), "mine").is_native(np.ones((5, 6)))
    assert not Observations(spaces.Discrete(3), "mine").is_native(np.array([0.0, 0.0, 1.0]))
    assert not Observations(spaces.Dict({"a": spaces.Box(-1, 1, (2,))}), "mine").is_native(np.ones(2))


def test_actions_of_any_batch() -> None:
    actions = Actions(spaces.Box(np.array([0.0, -4.0]), np.array([1.0, 8.0]), dtype=np.float64), "mine")
    batch = np.linspace(-1.2, 1.2, 24).reshape(3, 4, 2)
    written = actions.write(batch)
    assert (written.shape, written.dtype) == ((3, 4, 2), np.float64)
    for index in np.ndindex(3, 4):
        assert np.array_equal(written[index], actions.write(batch[index]))
    assert written.min(axis=(0, 1)).tolist() == [0.0, -4.0]
