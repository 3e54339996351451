"""Goals that are states: how they are read, and an agent whose skills lead there."""

from functools import cache
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.two_points import STEP, TwoPoints
from susd.envs.base import EnvSpec, Scaling
from susd.errors import UserError
from susd.factors import Factorization
from susd.skills import SkillSpace
from susd.training.agent import Agent
from susd.training.goals import Goal, read_goal

FACTORS = Factorization.from_mapping({"cart": [0, 1], "door": [2], "lamp": [3, 4, 5]}, 6)
SCALING = Scaling((1.0, 0, 0, 0, 0, 0), (2.0, 1, 1, 1, 1, 1))
SPEC = EnvSpec("room", 6, 2, 8, FACTORS, (), {}, scaling=SCALING, own={"cart": (0, 1), "lamp": (4,)})


def test_goals_in_raw_units() -> None:
    as_text = read_goal(SPEC, "door=1.5, cart=3:-0.5")
    assert as_text == Goal((2, 0, 1), (1.5, 1.0, -0.5))  # the first dimension is normalised
    assert read_goal(SPEC, {"door": 1.5, "cart": [3, -0.5]}) == as_text
    assert read_goal(SPEC, {"door": np.float32(1.5), "cart": np.array([3, -0.5])}) == as_text
    assert read_goal(SPEC, "lamp=0.25") == read_goal(SPEC, "lamp[1]=0.25") == Goal((4,), (0.25,))  # its own dimension
    assert read_goal(SPEC, {"lamp[2]": 7}) == Goal((5,), (7.0,))
    np.testing.assert_array_equal(as_text.replace(jnp.arange(6.0)), [1, -0.5, 1.5, 3, 4, 5])


def test_whole_observation() -> None:
    goal = read_goal(SPEC, np.arange(6.0))
    assert goal == Goal(tuple(range(6)), (0.0, 1.0, 2.0, 3.0, 4.0, 5.0))
    assert goal.parts(SPEC, ("cart", "lamp")).all()  # nothing moves the door, which is no mistake of the observation


def test_which_parts_lead_there() -> None:
    goal = read_goal(SPEC, "lamp=1")
    assert goal.factors(SPEC) == {"lamp": (4,)}
    assert goal.parts(SPEC, ("cart", "lamp")).tolist() == [False, True]
    assert goal.parts(SPEC, ("all",)).tolist() == [True]
    with pytest.raises(UserError, match="names 'door', which no part of the skill moves; parts are cart, lamp"):
        read_goal(SPEC, "door=1").parts(SPEC, ("cart", "lamp"))


MISTAKES = {
    "": "cannot read '' of the goal; write NAME=VALUE",
    "door": "cannot read 'door'",
    "door=1,,cart=1:2": "cannot read ''",
    "door=": "cannot read 'door='",
    "window=1": "names 'window'; factors are cart, door, lamp",
    "window[0]=1": "names 'window[0]'; factors are cart, door, lamp",
    "lamp[3]=1": "names 'lamp[3]'; dimensions of 'lamp' are 0 to 2",
    "lamp[-1]=1": "names 'lamp[-1]'",
    "cart=1": "gives 'cart' 1 value; it has 2 dimensions",
    "door=1:2": "gives 'door' 2 values; it has 1 dimension",
    "door=far": "gives 'door' the value 'far'; values are finite numbers",
    "door=nan": "the value 'nan'",
    "cart=1:inf": "the value '1:inf'",
    "door=1,door=2": "names 'door' twice",
    "cart=1:2,cart[1]=3": "names one dimension twice: by 'cart' and by 'cart[1]'",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_in_text(text: str) -> None:
    with pytest.raises(UserError) as error:
        read_goal(SPEC, text)
    assert MISTAKES[text] in str(error.value)


@pytest.mark.parametrize(
    "goal", [{}, {"door": "open"}, {"door": None}, {"cart": [[1, 2]]}, [1.0] * 5, [np.nan] * 6, None, 3]
)
def test_mistakes_in_python(goal: Any) -> None:
    with pytest.raises(UserError, match="goal"):
        read_goal(SPEC, goal)


@cache
def points(prior: str = "factor_sphere", method: str = "susd", parts: int = 2) -> Agent:
    """An agent whose skill is its action, and whose phi is the positions of both points, in an arbitrary scale."""

    def encode(params: jax.Array, obs: jax.Array) -> jax.Array:
        return params * obs[:, 1:]

    trainer: Any = SimpleNamespace(
        env=TwoPoints(),
        horizon=8,
        config=SimpleNamespace(method=method),
        learner=SimpleNamespace(method=SimpleNamespace(skills=SkillSpace(prior, parts, 4 // parts), encode=encode)),
        policy=lambda actor, sampled=True: lambda obs, skill, key: skill,
    )
    return Agent(trainer, jnp.zeros(()), jnp.float32(7.0), 0, 1)  # type: ignore[arg-type]


def test_action_leads_to_the_goal_and_holds() -> None:
    agent, env = points(), TwoPoints()
    step, observe = jax.jit(env.step), jax.jit(env.observe)
    state, goal = env.reset(jax.random.key(0)), {"a": [0.0, 0.5 + 3 * STEP, 0.5], "b[0]": 0.5 - 0.5 * STEP}
    for _ in range(8):
        state = step(state, agent.act_towards(observe(state), goal), jax.random.key(0))
    np.testing.assert_allclose(state, [0.5 + 3 * STEP, 0.5, 0.5 - 0.5 * STEP, 0.5], atol=1e-4)
    np.testing.assert_allclose(agent.act_towards(observe(state), goal), 0.0, atol=1e-2)


def test_parts_that_are_not_named() -> None:
    obs, goal = np.array([0, 0.5, 0.5, 0.5, 0.5]), {"b": [0.5, 0.9]}
    fixed = points()
    action = fixed.act_towards(obs, goal)
    np.testing.assert_allclose(action[2:], [0, 1], atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(action[:2]), 1.0, rtol=1e-5)  # a skill of the prior, always the same
    np.testing.assert_array_equal(fixed.act_towards(obs, goal), action)
    given = fixed.act_towards(obs, goal, skill=[0.6, 0.8, 1.0, 0.0])
    np.testing.assert_allclose(given, [0.6, 0.8, 0, 1], atol=1e-5)
    np.testing.assert_allclose(points("factor_ball").act_towards(obs, goal)[:2], 0.0)  # paced skills rest
    batch = fixed.act_towards(np.stack([obs, obs + 0.25]), goal)
    assert batch.shape == (2, 4)
    np.testing.assert_allclose(batch[0], action, atol=1e-5)
    whole = fixed.act_towards(obs, [0, 0.5, 0.4, 0.6, 0.5])
    np.testing.assert_allclose(whole, [0, -1, 1, 0], atol=1e-5)


def test_one_part_for_all_factors() -> None:
    action = points("sphere", "metra", parts=1).act_towards(np.array([0, 0.5, 0.5, 0.5, 0.5]), {"b": [0.5, 0.9]})
    np.testing.assert_allclose(action, [0, 0, 0, 1], atol=1e-5)


def test_refused() -> None:
    obs = np.zeros(5)
    with pytest.raises(UserError, match=r"goals need an embedding .* unlike that of dusdi"):
        points(method="dusdi").act_towards(obs, {"b": [0, 0]})
    with pytest.raises(UserError, match="the goal names 'c'"):
        points().act_towards(obs, {"c": 1})
    with pytest.raises(UserError, match="the observation has the shape"):
        points().act_towards(obs[:3], {"b": [0, 0]})
    with pytest.raises(UserError, match="the skill has the shape"):
        points().act_towards(obs, {"b": [0, 0]}, skill=[1.0])
