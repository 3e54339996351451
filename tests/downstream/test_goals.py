"""Goal actions: the skill that leads to a point in the space of phi and stays there, and a task that needs it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from reference import fast
from susd.downstream.controller import Controller
from susd.downstream.interface import ActionInterface, GoalActions, GoalWeights, SkillActions
from susd.downstream.returns import returns
from susd.downstream.vector import JaxVectorTask
from susd.envs.base import EnvSpec
from susd.factors import Factorization
from susd.sac import Sac
from susd.skills import SkillSpace
from susd.tasks.base import Task
from susd.training.goals import GoalSpace


class Spot(NamedTuple):
    position: jax.Array


class Floor:
    """A point that every action moves; its two coordinates are two factors."""

    spec = EnvSpec("floor", 2, 2, 40, Factorization(("x", "y"), ((0,), (1,)), 2), (), {})

    def reset(self, key: jax.Array) -> Spot:
        return Spot(jnp.zeros(2))

    def step(self, state: Spot, action: jax.Array, key: jax.Array) -> Spot:
        return Spot(jnp.clip(state.position + 0.1 * action, -1.0, 1.0))

    def observe(self, state: Spot) -> jax.Array:
        return state.position

    def render(self, state: Spot, size: int = 400) -> np.ndarray:
        return np.zeros((size, size, 3), np.uint8)


class StandStill(Task):
    """A point for standing in a small spot: within 0.08 of (0.55, -0.25). A step of a unit skill is longer than that."""

    horizon = 40

    @property
    def best(self) -> np.ndarray:
        return np.ones(40)

    def reward(self, env_state: Spot) -> jax.Array:
        return jnp.all(jnp.abs(env_state.position - jnp.array([0.55, -0.25])) < 0.08).astype(jnp.float32)


class Position:
    """A method whose embedding is the position, in steps: phi_i(s) = 10 s^i."""

    skills = SkillSpace("factor_sphere", 2, 1)

    def encode(self, params: Any, obs: jax.Array) -> jax.Array:
        return 10.0 * obs


def policy(weights: Any) -> Any:
    """A frozen policy, written by hand: the skill is the action."""
    return lambda obs, skill, key: weights * skill


BOX = GoalSpace(jnp.zeros((2, 1)), jnp.full((2, 1), 10.0), jnp.ones(2))
WEIGHTS = GoalWeights(jnp.ones(2), None, BOX)  # type: ignore[arg-type]
GOALS = GoalActions(Position(), policy)  # type: ignore[arg-type]
SKILLS = SkillActions(Position.skills, policy)


def learn(interface: ActionInterface, frozen: Any) -> float:
    """The return of a learned policy as a share of the bound."""
    task = StandStill("stand", Floor())
    sac = Sac(2, 2, 32, 2, "relu", "float32", 3e-3, 0.9, 0.02, 0.1, True, -0.5)
    controller = Controller(task, interface, sac, gradient_steps=10, batch_size=64, capacity=300, warmup=40, num_envs=10)
    state, _ = fast(controller.rounds)(fast(controller.init)(0), frozen, None, 0, 300)
    keys = jax.random.split(jax.random.key(1), 1)
    rewards = controller.evaluate(JaxVectorTask(task, 1), state.policy, frozen, keys).rewards
    assert task.bound is not None
    return float(returns(rewards)["undiscounted"].mean()) / task.bound


@pytest.mark.slow
def test_goals_hold_where_unit_skills_cannot() -> None:
    assert learn(GOALS, WEIGHTS) > 0.8
    assert learn(SKILLS, jnp.ones(2)) < 0.5  # every step of a unit skill moves by 0.1 along both axes


def test_goal_is_reached_and_kept() -> None:
    env, state = Floor(), Spot(jnp.zeros(2))
    for _ in range(30):
        state = env.step(state, GOALS.act(WEIGHTS, env.observe(state), jnp.array([0.55, -0.25])), jax.random.key(0))
    np.testing.assert_allclose(state.position, [0.55, -0.25], atol=1e-4)


@pytest.mark.parametrize(
    ("prior", "parts", "full"),
    [("factor_sphere", 2, 1.0), ("sphere", 2, 2**-0.5), ("sphere", 1, 1.0), ("gaussian", 1, 3**0.5)],
)
def test_skills_towards_a_goal_brake(prior: str, parts: int, full: float) -> None:
    space = SkillSpace(prior, parts, 3)
    far = np.full((parts, 3), 5.0, np.float32)
    skill = space.split(space.towards(jnp.asarray(far)))
    np.testing.assert_allclose(np.linalg.norm(skill, axis=-1), full, rtol=1e-5)  # a skill of the prior's length
    near = space.split(space.towards(jnp.asarray(far / np.linalg.norm(far[0]) * 0.25)))
    np.testing.assert_allclose(near, 0.25 * skill, rtol=1e-5)  # a quarter of a step away
    assert float(jnp.abs(space.towards(jnp.zeros((parts, 3)))).max()) == 0.0


def test_discrete_skills_point_to_the_goal() -> None:
    space = SkillSpace("one_hot", 2, 3)
    np.testing.assert_array_equal(space.towards(jnp.array([[0.1, -0.2, 0.3], [2.0, 1.0, 0.0]])), [0, 0, 1, 1, 0, 0])
