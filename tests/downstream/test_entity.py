"""The entity-wise high-level policy: what each factor sees, whose reward trains it, what the joint policy learns slowly."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from reference import fast
from susd.downstream.controller import Controller
from susd.downstream.entity import EntitySac, Tokens
from susd.downstream.interface import SkillActions
from susd.downstream.returns import returns
from susd.downstream.vector import JaxVectorTask
from susd.envs.base import EnvSpec
from susd.errors import UserError
from susd.factors import Factorization
from susd.sac import Sac, SacBatch
from susd.skills import SkillSpace
from susd.tasks import make_task
from susd.tasks.base import Task

COUNT = 6
FACTORS = Factorization.from_boundaries(range(COUNT + 1), [f"dot_{i}" for i in range(COUNT)])


class Dots(NamedTuple):
    position: jax.Array


class Lines:
    """Six dots, each on its own line."""

    spec = EnvSpec("lines", COUNT, COUNT, 20, FACTORS, (), {})

    def reset(self, key: jax.Array) -> Dots:
        return Dots(jax.random.uniform(key, (COUNT,), minval=-0.5, maxval=0.5))

    def step(self, state: Dots, action: jax.Array, key: jax.Array) -> Dots:
        return Dots(jnp.clip(state.position + 0.2 * action, -1, 1))

    def observe(self, state: Dots) -> jax.Array:
        return state.position

    def render(self, state: Dots, size: int = 400) -> np.ndarray:
        return np.zeros((size, size, 3), np.uint8)


class SideState(NamedTuple):
    env_state: Dots
    steps: jax.Array
    side: jax.Array


@dataclass(frozen=True)
class Sides(Task):
    """A side for each dot, drawn for the episode; dots on their sides give reward, and `named` says whether as parts."""

    named: bool = True

    horizon = 10
    extra_size = COUNT + 1
    random_episodes = True
    extra_of = (*range(COUNT), -1)

    @property
    def part_of(self) -> tuple[int, ...]:
        return tuple(range(COUNT)) if self.named else ()

    def begin(self, env_state: Dots, key: jax.Array) -> SideState:
        return SideState(env_state, jnp.zeros((), jnp.int32), jax.random.rademacher(key, (COUNT,)).astype(jnp.float32))

    def score(self, state: SideState, env_state: Dots, key: jax.Array) -> tuple[SideState, jax.Array]:
        return SideState(env_state, state.steps + 1, state.side), self._each(state, env_state).sum()

    def parts(self, state: SideState, env_state: Dots) -> jax.Array:
        return self._each(state, env_state)[: len(self.part_of)]

    def _each(self, state: SideState, env_state: Dots) -> jax.Array:
        return jnp.sign(state.side * env_state.position)

    def extra(self, state: SideState) -> jax.Array:
        return jnp.append(state.side, state.steps / self.horizon)


SKILLS = SkillActions(SkillSpace("factor_sphere", COUNT, 1), lambda weights: lambda obs, skill, key: weights * skill)
CONFIG = SimpleNamespace(
    context="none", hidden=32, layers=2, actor_activation="relu", precision="float32", learning_rate=3e-3, tau=0.02,
    alpha_init=0.1, target_entropy=-0.5,
)  # fmt: skip


def score(task: Task, sac: Any, episodes: int = 200) -> float:
    """The return of a learned policy in test episodes, as a share of the best possible."""
    controller = Controller(task, SKILLS, sac, gradient_steps=2, batch_size=64, capacity=400, warmup=20, num_envs=10)
    state, info = fast(controller.rounds)(fast(controller.init)(0), jnp.ones(COUNT), None, 0, episodes)
    assert all(np.isfinite(float(value)) for value in info.values())
    keys = jax.random.split(jax.random.key(1), 64)
    rewards = controller.evaluate(JaxVectorTask(task, 64), state.policy, jnp.ones(COUNT), keys).rewards
    return float(returns(rewards)["undiscounted"].mean()) / (COUNT * task.horizon / 5)


@pytest.mark.slow
def test_parts_give_credit() -> None:
    task = Sides("sides", Lines())
    entity = EntitySac.from_config(CONFIG, task, FACTORS.names, 1, 0.9)
    joint = Sac(2 * COUNT + 1, COUNT, 32, 2, "relu", "float32", 3e-3, 0.9, 0.02, 0.1, True, -0.5)
    learned = score(task, entity)
    assert learned > 0.8
    assert score(task, joint) < 0.9 * learned  # the same episodes and gradient steps


@pytest.mark.slow
def test_values_decompose_without_parts() -> None:
    task = Sides("sides", Lines(), named=False)
    entity = EntitySac.from_config(CONFIG, task, FACTORS.names, 1, 0.9)
    assert entity.rewards == 1
    assert score(task, entity, 400) > 0.7


def test_tokens_of_a_shipped_task() -> None:
    task = make_task("multi_particle-fp-easy")
    tokens = Tokens.of_task(task, task.environment.spec.factorization.names)
    assert tokens.own[3] == (*range(21, 28), 73)  # its seven observations and its indicator
    assert tokens.shared == (80,)  # the clock
    assert [i for i, counts in enumerate(tokens.counts) if counts] == [1, 6]
    view = jnp.arange(81.0)[None]
    token = np.asarray(tokens(view))[0, 3]
    np.testing.assert_array_equal(token, [*range(21, 28), 73, 80, *np.eye(10)[3], 0])
    assert token.size == tokens.size


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("multi_particle-fp-easy", {}, ("agent_1", "agent_6")),
        ("multi_particle-seq-easy", {}, tuple(f"agent_{i}" for i in range(10))),
        ("multi_particle-fp-easy", {"factors": 20}, ("agent_1", "agent_6")),
        ("gunner-lim", {}, ("agent", "target")),
        ("gunner-unlim", {"factors": 4}, ("agent", "target")),
    ],
)
def test_parts_belong_to_their_factors(name: str, options: dict[str, Any], expected: tuple[str, ...]) -> None:
    task = make_task(name, **options)
    names = task.environment.spec.factorization.names
    sac = EntitySac.from_config(CONFIG, task, names, 2, 0.9)
    assert tuple(names[index] for index in sac.part_factors) == expected


def test_factors_without_a_skill_are_seen_by_all() -> None:
    task = Sides("sides", Lines())
    tokens = Tokens.of_task(task, FACTORS.names[:2])
    assert tokens.own == ((0, COUNT), (1, COUNT + 1))
    assert set(tokens.shared) == {*range(2, COUNT), *range(COUNT + 2, 2 * COUNT + 1)}


@pytest.mark.parametrize("context", ["none", "mean"])
def test_targets_follow_the_formula(context: str) -> None:
    task = Sides("sides", Lines())
    config = SimpleNamespace(**{**vars(CONFIG), "context": context})
    sac = EntitySac.from_config(config, task, FACTORS.names, 1, 0.9)
    state, rng = fast(sac.init)(jax.random.key(0)), np.random.default_rng(0)
    x, next_x = rng.normal(size=(2, 5, 2 * COUNT + 1)).astype(np.float32)
    rewards = rng.normal(size=(5, 1 + COUNT)).astype(np.float32)
    batch = SacBatch(x, rng.uniform(-1, 1, (5, COUNT)).astype(np.float32), rewards, next_x, np.array([0, 1, 0, 0, 1.0]))
    noise = rng.normal(size=(5, COUNT)).astype(np.float32)
    y = np.asarray(sac.targets(state, batch, noise))
    action, log_prob = state.actor.reparametrised(next_x, noise)
    q = np.asarray(state.target(next_x, action)).min(axis=0)
    keep = 0.9 * (1 - batch.done)[:, None]
    np.testing.assert_allclose(y[:, :COUNT], rewards[:, 1:] + keep * (q[:, :COUNT] - 0.1 * np.asarray(log_prob)), atol=1e-5)
    rest = rewards[:, 0] - rewards[:, 1:].sum(axis=1)
    np.testing.assert_allclose(y[:, COUNT], rest + keep[:, 0] * q[:, COUNT], atol=1e-5)
    others = np.asarray(state.critic(x, batch.action.copy()))
    changed = batch.action.copy()
    changed[:, 0] += 0.5
    moved = np.abs(np.asarray(state.critic(x, changed)) - others).max(axis=(0, 1)) > 1e-7
    assert moved[0]
    assert moved[1:COUNT].any() == (context == "mean")  # without context a value depends on its own part alone
    assert moved[COUNT]  # the rest depends on all factors


def test_one_factor_is_refused() -> None:
    with pytest.raises(UserError, match="'entity', but the skills of this run have one part"):
        EntitySac.from_config(CONFIG, Sides("sides", Lines()), ("all",), COUNT, 0.9)
