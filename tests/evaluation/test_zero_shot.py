"""Goals follow their rules, the skill points at them, and the evaluation measures a run."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from conftest import call, refused
from evaluation.two_points import TwoPoints
from susd.envs.base import EnvSpec, HostStep, Scaling
from susd.errors import UserError
from susd.evaluation import state_goals
from susd.evaluation.zero_shot import (
    QUANTILE,
    SEEDS,
    Trajectory,
    at_random,
    draw,
    facts,
    interval,
    play,
    summarise,
    tables,
    towards,
    undefined,
)
from susd.factors import Factorization
from susd.methods.registry import method as method_card
from susd.skills import SkillSpace
from susd.tasks.goals import RULES, GoalTask
from susd.training.agent import Agent

ANT, CHEETAH = RULES["ant"], RULES["half_cheetah"]
ALL = np.arange(2)


def task(rules: Any, num_envs: int = 2) -> GoalTask:
    made = GoalTask(rules, [np.random.default_rng(index) for index in range(num_envs)])
    made.begin(np.arange(num_envs), np.zeros((num_envs, rules.axes)))
    return made


def test_rules_of_the_paper() -> None:
    assert (ANT.axes, ANT.width, ANT.around, ANT.radius, ANT.reward, ANT.patience, ANT.goals) == (
        2,
        7.5,
        True,
        3,
        2.5,
        50,
        4,
    )
    assert (CHEETAH.axes, CHEETAH.width, CHEETAH.around, CHEETAH.radius, CHEETAH.reward) == (1, 10, False, 3, 10)
    assert (CHEETAH.patience, CHEETAH.goals, ANT.horizon, CHEETAH.horizon) == (0, 0, 200, 200)


def test_goal_is_rewarded_once_and_replaced() -> None:
    made = task(ANT)
    first = made.goals.copy()
    places = np.stack([first[0] + [2.9, 0.0], first[1] + [3.1, 0.0]])
    rewards, over = made.score(places)
    assert rewards.tolist() == [2.5, 0.0]
    assert not over.any()
    assert made.offered.tolist() == [2, 1]
    assert made.reached.tolist() == [1, 0]
    np.testing.assert_array_equal(made.goals[1], first[1])
    away = np.abs(made.goals[0] - places[0])
    assert away.max() <= 7.5
    assert np.linalg.norm(away) > 3
    assert made.score(places)[0].tolist() == [0.0, 0.0]


def test_goal_is_given_up_after_50_steps() -> None:
    made = task(ANT)
    far = made.goals + 100.0
    for step in range(1, 51):
        rewards, over = made.score(far)
        assert not rewards.any()
        assert not over.any()
        assert made.offered.tolist() == ([1, 1] if step < 50 else [2, 2])
    assert np.abs(made.goals - far).max() <= 7.5  # around the position of the body
    for step in range(51, 201):
        over = made.score(made.goals + 100.0)[1]
        assert over.tolist() == [step == 200] * 2
    assert made.offered.tolist() == [4, 4]


def test_four_goals_end_an_episode() -> None:
    made = task(ANT)
    total = np.zeros(2)
    for goal in range(1, 5):
        rewards, over = made.score(np.stack([made.goals[0], made.goals[1] + 50.0]))
        total += rewards
        assert over.tolist() == [goal == 4, False]
    assert total.tolist() == [10.0, 0.0]
    assert made.offered.tolist() == [4, 1]
    made.begin(np.array([0]), np.array([[20.0, -20.0]]))
    assert np.abs(made.goals[0] - [20, -20]).max() <= 7.5
    assert made.offered.tolist() == [5, 1]
    for step in range(5, 201):  # environment 1 ends after 200 steps, 0 has just been reset
        far = made.goals + 100.0
        over = made.score(far)[1]
        assert over.tolist() == [False, step == 200]


def test_cheetah_goals_stay_until_reached() -> None:
    made = task(CHEETAH)
    first = made.goals.copy()
    for _ in range(199):
        rewards, over = made.score(first + 3.5)
        assert not rewards.any()
        assert not over.any()
    np.testing.assert_array_equal(made.goals, first)
    rewards, over = made.score(first - 2.5)
    assert rewards.tolist() == [10.0, 10.0]
    assert over.all()
    assert made.offered.tolist() == [1, 1]  # the next one is of the next episode
    made.begin(ALL, np.zeros((2, 1)))
    made.score(made.goals)
    assert made.offered.tolist() == [3, 3]


def test_goals_are_uniform() -> None:
    cheetah, ant = task(CHEETAH, 2000), task(ANT, 2000)
    assert abs(cheetah.goals.mean()) < 0.5
    assert abs(np.abs(cheetah.goals).mean() - 5) < 0.3
    assert np.abs(cheetah.goals).max() <= 10
    assert np.linalg.norm(ant.goals, axis=1).min() > 3
    assert (np.abs(ant.goals).max(axis=0) > 7).all()
    assert np.abs(ant.goals).max() <= 7.5


def method(space: SkillSpace, matrix: np.ndarray) -> Any:
    return SimpleNamespace(skills=space, encode=lambda params, obs: obs @ jnp.asarray(matrix, jnp.float32))


def test_skill_points_at_the_goal() -> None:
    matrix = np.zeros((5, 2))
    matrix[0, 0] = matrix[1, 1] = 2.0
    matrix[3, 0] = 7.0  # what does not change between s and g does not matter
    obs, goal = jnp.asarray(np.random.default_rng(0).normal(size=(4, 5)), jnp.float32), jnp.array([[1.0, 2.0]] * 4)
    direction = goal - obs[:, :2]
    unit = direction / jnp.linalg.norm(direction, axis=1, keepdims=True)
    for prior, length in (("sphere", 1.0), ("factor_sphere", 1.0), ("gaussian", 2**0.5)):
        z = towards(method(SkillSpace(prior, 1, 2), matrix), (0, 1))(None, obs, goal, None, None, None)
        np.testing.assert_allclose(z, length * unit, atol=1e-5)
    discrete = towards(method(SkillSpace("one_hot", 1, 2), matrix), (0, 1))(None, obs, goal, None, None, None)
    np.testing.assert_array_equal(discrete.argmax(axis=1), direction.argmax(axis=1))


class Points:
    """Points that their actions move, with the interface of a body; the third observation is constant."""

    axes, num_envs = (0, 1), 4
    spec = SimpleNamespace(scaling=Scaling((1.0, -1.0, 0.0), (0.5, 0.5, 1.0)))

    def __init__(self) -> None:
        self.positions = np.zeros((4, 2))
        self.starts: list[tuple[int, int]] = []

    def observe(self) -> np.ndarray:
        raw = np.concatenate([self.positions, np.zeros((4, 1))], axis=1)
        return np.asarray(self.spec.scaling.normalise(raw), np.float32)

    def restart(self, ids: np.ndarray, seeds: list[int]) -> np.ndarray:
        self.starts += zip(ids.tolist(), seeds, strict=True)
        self.positions[ids] = 0.0
        return self.observe()[ids]

    def step(self, actions: np.ndarray) -> HostStep:
        self.positions = self.positions + 0.4 * actions
        never = np.zeros(4, bool)
        return HostStep(self.observe(), self.observe(), never, never)


def pointing() -> Any:
    """An agent whose skill is its action, and whose phi is the position."""
    space = SkillSpace("sphere", 1, 2)
    trainer = SimpleNamespace(
        learner=SimpleNamespace(method=method(space, np.eye(3)[:, :2])),
        policy=lambda actor: lambda obs, skill, key: skill,
    )
    return SimpleNamespace(trainer=trainer, actor=jnp.zeros(()), params=jnp.zeros(()))


def test_skills_lead_to_the_goals() -> None:
    agent: Any = pointing()
    select, env = towards(agent.trainer.learner.method, (0, 1)), Points()
    trajectories = {
        "goal": play(agent, env, ANT, select, True, seed=0, steps=600),  # type: ignore[arg-type]
        "released": play(agent, Points(), ANT, select, False, seed=0, steps=600),  # type: ignore[arg-type]
        "random": play(agent, Points(), ANT, at_random(agent.trainer.learner.method), seed=0, steps=600),  # type: ignore[arg-type]
    }
    goal = trajectories["goal"]
    assert (goal.offered - goal.reached).max() <= 1  # all but the current one
    np.testing.assert_allclose(goal.rewards.sum(axis=0), 2.5 * goal.reached)
    assert len(env.starts) >= (goal.reached // 4).sum()  # every fourth goal ended an episode
    assert len(set(env.starts)) == len(env.starts)
    assert len({index for index, _ in env.starts}) == 4
    for other in ("released", "random"):
        assert trajectories[other].reached.sum() < 0.7 * goal.reached.sum()
    again = play(agent, Points(), ANT, select, True, seed=0, steps=600)  # type: ignore[arg-type]
    np.testing.assert_array_equal(again.rewards, goal.rewards)
    other_seed = play(agent, Points(), ANT, select, True, seed=1, steps=600)  # type: ignore[arg-type]
    np.testing.assert_array_equal(other_seed.offered.shape, goal.offered.shape)
    assert (other_seed.rewards != goal.rewards).any()


def test_random_skill_lasts_as_long_as_a_goal() -> None:
    select = at_random(method(SkillSpace("sphere", 1, 2), np.eye(2)))
    old, fresh = jnp.ones((3, 2)), jnp.array([True, False, True])
    new = select(None, jnp.zeros((3, 2)), None, fresh, old, jax.random.key(0))
    assert (new != old).all(axis=1).tolist() == [True, False, True]


def test_summary_and_interval() -> None:
    rewards = np.zeros((1000, SEEDS))
    rewards[499] = np.arange(SEEDS)
    summary = summarise(Trajectory(rewards, np.full(SEEDS, 2), np.ones(SEEDS, int)))
    curves = summary["curves"]
    assert curves["steps"] == list(range(5, 1001, 5))
    assert [seed[98] for seed in curves["seeds"]] == [0.0] * SEEDS
    assert [seed[99] for seed in curves["seeds"]] == summary["totals"] == [float(seed) for seed in range(SEEDS)]
    mean, low, high = (float(x) for x in interval(np.arange(SEEDS, dtype=float)))
    expected = stats.t.interval(0.95, SEEDS - 1, loc=mean, scale=stats.sem(np.arange(SEEDS)))
    np.testing.assert_allclose((low, high), expected, rtol=1e-5)
    np.testing.assert_allclose(QUANTILE, stats.t.ppf(0.975, SEEDS - 1), rtol=1e-6)
    assert summary["interval"] == [low, high]
    assert summary["mean"] == 3.5


@pytest.mark.slow
@pytest.mark.parametrize(("env", "more"), [("ant", {"as_released"}), ("half_cheetah", set())])
def test_evaluation_of_a_run(
    env: str, more: set[str], trained: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained(env, "--epochs", "4"), run)
    arguments = ("evaluate", run, "zero-shot", "--seed", 3, "--steps", 60)
    call(*arguments)
    printed = capsys.readouterr().out
    call(*arguments, "--json")
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((run / "evaluation" / "zero-shot.json").read_text())
    assert (report["evaluation_seed"], report["options"]) == (3, {"steps": 60, "goal": "", "goals": 100, "tolerance": 0.1})
    assert report["config"]["env"] == env
    assert report["meta"]["versions"]
    (result,) = report["results"]
    selections = {"goal", "random_skill"} | more
    assert set(result) - {"seed", "epoch"} == selections
    assert result["epoch"] == 4
    for name in selections:
        values = result[name]
        assert len(values["totals"]) == len(values["goals_offered"]) == len(values["curves"]["seeds"]) == SEEDS
        assert all(offered >= 1 for offered in values["goals_offered"])
        np.testing.assert_allclose(values["totals"], [RULES[env].reward * reached for reached in values["goals_reached"]])
        assert len(values["curves"]["steps"]) == len(values["curves"]["mean"]) == 60
    *curve, low, high = (fact[1:] for fact in facts({name: result[name] for name in selections}) if fact[0] == "goal")
    assert curve[-1] == (60, "reward", result["goal"]["mean"])
    assert len(curve) == 12
    interval_of_goal = result["goal"]["interval"]
    assert (low, high) == ((60, "reward_low", interval_of_goal[0]), (60, "reward_high", interval_of_goal[1]))
    assert (run / "figures" / "zero-shot.png").stat().st_size > 5000
    for part in (RULES[env].name, "60 steps", "random skill", str(run / "evaluation" / "zero-shot.json")):
        assert part in printed


def test_undefined() -> None:
    for name in ("diayn", "diayn-discrete", "dusdi"):
        assert undefined("ant", method_card(name)).endswith(f"unlike that of {name}")
    for name in ("susd", "metra", "lsd", "csd"):
        assert undefined("half_cheetah", method_card(name)) == undefined("gunner", method_card(name)) == ""


# --- goals that are states, in any environment ----------------------------------------------------------------------------


class Tokens:
    """Host environments with a token that moves and a wall that does not; token 0 ends its episode beyond 0.5."""

    num_envs = 3
    factors = Factorization.from_mapping({"token": [0, 1], "wall": [2]}, 3)
    spec = EnvSpec("tokens", 3, 2, 6, factors, (), {}, scaling=Scaling((0.0, 0.0, 0.0), (1.0, 0.5, 1.0)))

    def reset(self, seed: int) -> np.ndarray:
        wall = np.random.default_rng(seed).uniform(size=(3, 1))
        self.state = np.concatenate([np.zeros((3, 2)), wall], axis=1)
        return self.observe()

    def observe(self) -> np.ndarray:
        return np.asarray(self.spec.scaling.normalise(self.state), np.float32)  # type: ignore[union-attr]

    def step(self, actions: np.ndarray) -> HostStep:
        self.state[:, :2] += 0.2 * actions
        reached, ended = self.observe(), np.array([self.state[0, 0] > 0.5, False, False])
        self.state[ended, :2] = 0.0
        return HostStep(self.observe(), reached, ended, np.zeros(3, bool))

    def render(self, index: int = 0, size: int = 400) -> np.ndarray:
        raise NotImplementedError


def able(env: Any, space: SkillSpace, encode: Any, action: Any = lambda skill: skill) -> Any:
    """An agent whose skill is its action, unless `action` changes it."""
    trainer: Any = SimpleNamespace(
        env=env,
        horizon=env.spec.horizon,
        config=SimpleNamespace(method="susd"),
        learner=SimpleNamespace(method=SimpleNamespace(skills=space, encode=encode)),
        policy=lambda actor, sampled=True: lambda obs, skill, key: action(jnp.asarray(skill)),
    )
    return Agent(trainer, jnp.zeros(()), jnp.zeros(()), 0, 1)  # type: ignore[arg-type]


def two_points(prior: str = "factor_sphere", action: Any = lambda skill: skill) -> Any:
    return able(TwoPoints(), SkillSpace(prior, 2, 2), lambda params, obs: 3.0 * obs[:, 1:], action)


@pytest.fixture(scope="module")
def found() -> Any:
    return state_goals.measure(two_points("factor_ball"), 0, "", 0, 40, 0.1)


def test_goals_that_random_skills_visited_are_reached(found: Any) -> None:
    assert (found["goals"], found["steps"], found["tolerance"], list(found["spread"])) == (40, 8, 0.1, ["a", "b"])
    kinds = found["kinds"]
    assert set(kinds["single"]) == {"a", "b"}
    assert set(kinds["whole"]) == {"a", "b", "all"}
    for by_name in kinds.values():
        for ways in by_name.values():
            assert ways["goal"]["reached"] == 1.0
            assert max(ways["random_skill"]["reached"], ways["do_nothing"]["reached"]) < 0.5
            assert ways["goal"]["interval"] == [pytest.approx(40 / (40 + 1.96**2), abs=1e-3), 1.0]
    assert kinds["single"]["a"]["goal"]["distance"] < 0.01 < kinds["single"]["a"]["random_skill"]["distance"]
    both = [kinds["whole"][name]["random_skill"]["reached"] for name in ("all", "a", "b")]
    assert both[0] <= min(both[1:])


def test_a_given_goal() -> None:
    agent, text = two_points(), "b=0.45:0.52,a[1]=0.5"
    found = state_goals.measure(agent, 0, text, 10, 12, 0.2)
    assert (found["steps"], set(found["spread"])) == (10, {"a", "b"})
    assert list(found["kinds"]) == [text]
    for ways in found["kinds"][text].values():
        assert ways["goal"]["reached"] == 1.0
    assert found["kinds"][text]["b"]["do_nothing"]["reached"] == 0.0
    assert found["kinds"][text]["a"]["do_nothing"]["reached"] == 1.0
    with pytest.raises(UserError, match="the goal names 'c'; factors are a, b"):
        state_goals.measure(agent, 0, "c=1", 10, 12, 0.2)


def test_skills_that_ignore_their_goal_are_no_better_than_random() -> None:
    turned = two_points(action=lambda skill: -skill)
    whole = state_goals.measure(turned, 0, "", 0, 40, 0.1)["kinds"]["whole"]
    assert whole["all"]["goal"]["reached"] <= 0.1


def test_nothing_moves() -> None:
    still = two_points(action=lambda skill: 0 * skill)
    with pytest.raises(UserError, match="random skills move nothing in two_points within 8 steps"):
        state_goals.measure(still, 0, "", 0, 4, 0.1)


def test_host_environment() -> None:
    """Batches of three make five episodes; an episode that ends early counts where it ended; the wall is no goal."""
    agent = able(Tokens(), SkillSpace("sphere", 1, 2), lambda params, obs: obs[:, :2] * jnp.array([1.0, 0.5]))
    episodes = state_goals.Episodes(agent, 5, 6, 0)
    states = episodes.run(lambda obs, rows: np.full((3, 2), 1.0))
    assert states.shape == (6, 5, 3)
    raw = np.asarray(Tokens.spec.raw(states))
    np.testing.assert_allclose(raw[-1, :, 0], [0.6, 1.2, 1.2, 0.6, 1.2], atol=1e-5)
    np.testing.assert_array_equal(episodes.run(lambda obs, rows: np.zeros((3, 2)))[0, :, 2], states[0, :, 2])  # same starts
    found = state_goals.measure(agent, 0, "", 0, 5, 0.1)
    assert found["spread"]["wall"] == 0.0
    assert set(found["kinds"]) == {"whole"}
    assert found["kinds"]["whole"]["token"]["goal"]["reached"] >= 0.6


def test_wilson_interval() -> None:
    for reached, count in ((0, 10), (3, 10), (100, 100), (41, 100)):
        found = state_goals.share(np.arange(count) < reached)
        expected = stats.binomtest(reached, count).proportion_ci(0.95, "wilson")
        np.testing.assert_allclose(found["interval"], [expected.low, expected.high], atol=1e-6)
        assert found["reached"] == reached / count


def test_facts_tables_and_figure(found: Any, tmp_path: Path) -> None:
    given = found | {"kinds": {"a[1]=0": {"a": found["kinds"]["whole"]["a"], "all": found["kinds"]["whole"]["all"]}}}
    result = {"states": found, "--goal a[1]=0": given}
    recorded = {(subject, metric): (step, value) for subject, step, metric, value in facts(result)}
    assert recorded["goal>single>a", "reached"] == (8, 1.0)
    assert recorded["whole", "tolerance"] == (8, 0.1)
    assert recorded["goal>a[1]=0>a", "reached_high"] == (8, 1.0)
    assert ("random_skill>whole>all", "reached") in recorded
    assert ("goal>whole>all", "distance") not in recorded
    assert ("goal>a[1]=0>all", "reached") not in recorded  # it names one factor only
    first, second = tables({"results": [{"seed": 0, "epoch": 1, **result}]})
    assert "share of 40 episodes that end within 0.1 of a factor's spread after 8 steps" in first.title
    assert [row[0] for row in first.rows][-1] == "all factors of a whole state"
    assert first.rows[0][1] == "100% (91 to 100)"
    assert second.rows[0][0] == "a of a[1]=0"
    for name, one in result.items():
        draw(tmp_path / "zero-shot.png", TwoPoints().spec, {name: one}, {})
    assert {path.name for path in tmp_path.iterdir()} == {"zero-shot.png", "zero-shot-goal.png"}


@pytest.mark.slow
def test_options_are_checked_before_any_work(
    trained: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from susd.evaluation import evaluate

    run = trained("gunner", "--epochs", 3)
    monkeypatch.setattr(state_goals.Episodes, "run", lambda *_: pytest.fail("an episode was run"))
    assert "the goal names 'door'" in refused(capsys, "evaluate", run, "zero-shot", "--goal", "door=1")
    monkeypatch.setattr(evaluate, "load_all", lambda *_: pytest.fail("the run was loaded"))
    for option, value in (("--goal", "agent"), ("--goals", 0), ("--tolerance", 0), ("--steps", -1)):
        sentence = refused(capsys, "evaluate", run, "zero-shot", option, value)
        assert str(value) in sentence
    assert not (run / "evaluation").exists()


@pytest.mark.slow
def test_evaluation_of_any_run(trained: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A report keeps what an earlier call over the same weights found."""
    run = Path(shutil.copytree(trained("gunner", "--epochs", 3), tmp_path / "run"))
    call("evaluate", run, "zero-shot", "--goals", 6, "--json")
    first = json.loads(capsys.readouterr().out)
    call("evaluate", run, "zero-shot", "--goals", 5, "--goal", "target[4]=0.5")
    assert "target of target[4]=0.5" in capsys.readouterr().out
    report = json.loads((run / "evaluation" / "zero-shot.json").read_text())
    assert set(report["results"][0]) == {"seed", "epoch", "states", "--goal target[4]=0.5"}
    assert report["results"][0]["states"] == first["results"][0]["states"]
    assert {path.name for path in (run / "figures").glob("zero-shot*")} == {"zero-shot.png", "zero-shot-goal.png"}
