"""Tasks of the user: the environment's own reward, classes and factories in files, and the contracts that are checked."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import susd
from conftest import TINY, call, refused
from susd.downstream.config import configure_downstream, folder_of
from susd.downstream.controller import Controller
from susd.downstream.interface import FlatActions
from susd.downstream.returns import returns
from susd.downstream.vector import run_script, vectorize_task
from susd.envs import make
from susd.envs.base import EnvSpec, HostStep
from susd.errors import UserError
from susd.factors import Factorization
from susd.sac import Sac
from susd.tasks import make_task, task_entry
from susd.tasks.base import HostTask, Task, TaskState
from susd.tasks.own import check_task

FACTORS = Factorization.from_mapping({"x": [0], "y": [1]}, 2)
ENVS = '''
import gymnasium
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from susd.extend import EnvSpec, Factorization, HostStep, HostTask, Task

class Corridor(gymnasium.Env):
    """A point on a line. The reward of a step is its number; an episode terminates after `steps` of them."""

    def __init__(self, steps=7, reward=None):
        self.steps, self.reward = steps, reward
        self.observation_space = spaces.Dict({"x": spaces.Box(-50, 50, (1,)), "y": spaces.Box(-50, 50, (1,))})
        self.action_space = spaces.Box(-2.0, 2.0, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count, self.place = 0, self.np_random.uniform(-0.1, 0.1, 2)
        return self.seen(), {}

    def seen(self):
        return {"x": self.place[:1].astype(np.float32), "y": self.place[1:].astype(np.float32)}

    def step(self, action):
        self.count, self.place = self.count + 1, self.place + action
        reward = self.count if self.reward is None else {"none": None, "array": np.array([0.5]), "nan": np.nan}[self.reward]
        return self.seen(), reward, self.count == self.steps, False, {}

class Slider:
    """A functional environment with a reward of its own."""

    spec = EnvSpec("slider", 2, 2, 10, Factorization.from_mapping({"x": [0], "y": [1]}, 2), (), {})

    def reset(self, key):
        return jnp.zeros(2)

    def step(self, state, action, key):
        return state + action

    def observe(self, state):
        return state

    def render(self, state, size=400):
        return np.zeros((size, size, 3), np.uint8)

class Rewarded(Slider):
    def reward(self, state, action, next_state):
        return next_state[0] - 0.1 * (action**2).sum()

class Right(HostTask):
    """A point for x above zero."""
    horizon = 20

    def reward(self, step):
        return (step.next_obs[:, 0] > 0).astype(np.float32)

    def success(self, step):
        return step.next_obs[:, 0] > 0

class Far(Task):
    horizon = 10
    part_of = (0, 1)

    def reward(self, env_state):
        return jnp.abs(env_state).sum()

    def parts(self, state, env_state):
        return jnp.abs(env_state)

def both(env):
    return Right("right", env) if hasattr(env, "num_envs") else Far("far", env)

def nothing(env):
    return None

NUMBER = 3
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the file of a user."""
    (tmp_path / "mine.py").write_text(ENVS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


# --- the environment's own reward -------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallel", ["none", "threads", pytest.param("processes", marks=pytest.mark.slow)])
def test_rewards_of_gymnasium_environments(folder: Path, parallel: str) -> None:
    env: Any = make("mine.py:Corridor", num_envs=3, parallel=parallel, steps=3)
    env.reset(0)
    for expected in (1, 2, 3, 1):  # the fourth step is the first of a new episode
        step = env.step(np.zeros((3, 2), np.float32))
        assert step.reward.dtype == np.float32
        assert step.reward.tolist() == [expected] * 3
        assert step.terminated.tolist() == [expected == 3] * 3
    env.close()


def test_task_of_gymnasium_environments(folder: Path) -> None:
    env: Any = make("mine.py:Corridor", num_envs=2, horizon=30)
    task = make_task("reward", env)
    assert isinstance(task, HostTask)
    assert (task.horizon, task.terminal, task.best, task.bound, task.expert) == (30, False, None, None, None)
    check_task(task)
    for reward, message in (("none", "is nan"), ("nan", "is nan")):  # discovery does not need it, the task does
        env = make("mine.py:Corridor", num_envs=2, reward=reward)
        env.reset(0)
        env.step(np.zeros((2, 2), np.float32))
        with pytest.raises(UserError, match=f"the reward of mine.py:Corridor {message}; it must be a finite number"):
            check_task(make_task("reward", env))
    check_task(make_task("reward", make("mine.py:Corridor", reward="array")))


def test_task_of_functional_environments(folder: Path) -> None:
    task = make_task("reward", make("mine.py:Rewarded"))
    assert isinstance(task, Task)
    check_task(task)
    assert (task.horizon, task.terminal, task.bound) == (10, False, None)
    state = task.reset(jax.random.key(0))
    for number in (1, 2):
        state, reward = task.step(state, jnp.array([0.5, -1.0]), jax.random.key(0))
        assert float(reward) == pytest.approx(0.5 * number - 0.125)
    assert int(state.steps) == 2
    with pytest.raises(UserError, match=r"slider has no reward of its own: that needs a method reward\(state, action"):
        make_task("reward", make("mine.py:Slider"))


def test_environments_without_a_reward() -> None:
    for name in ("ant", "half_cheetah", "kitchen", "gunner", "multi_particle"):
        with pytest.raises(UserError, match=f"{name} has no reward of its own, so it has no task 'reward'; choose one of"):
            task_entry("reward", name)
    with pytest.raises(UserError, match="task 'reward' names no environment; give one"):
        make_task("reward")
    with pytest.raises(UserError, match="has no reward of its own: that needs steps that return a reward"):
        check_task(make_task("reward", Points()))


@pytest.mark.slow
def test_only_the_first_episode_counts(folder: Path) -> None:
    """The rewards 1 + .. + 7, then termination; the horizon is 20. The rest is for training, not for the score."""
    task = make_task("reward", make("mine.py:Corridor", num_envs=2, horizon=20))
    sac = Sac(2, 2, 8, 1, "relu", "float32", 1e-3, 0.9, 0.05, 0.1, True, -0.5)
    controller = Controller(task, FlatActions(2), sac, 1, 8, capacity=4, warmup=4, num_envs=2)
    vector, keys = vectorize_task(task, 2), jax.random.split(jax.random.key(0), 3)
    state = controller.init(jnp.int32(0))
    rewards = controller.evaluate(vector, state.policy, None, keys).rewards
    np.testing.assert_array_equal(rewards, np.tile([*range(1, 8), *[0] * 13], (3, 1)))
    assert returns(rewards)["undiscounted"].tolist() == pytest.approx([28 / 5] * 3)
    idle = run_script(vector, lambda: np.zeros((2, 2), np.float32), keys)
    np.testing.assert_array_equal(idle, rewards)
    state, info = controller.train(state, None, None, 0, 2)
    assert float(info["training_return"]) == pytest.approx(28 / 5)
    rows = jax.tree.map(lambda x: np.asarray(x[:20]), state.replay.data)  # of the first environment, all episodes
    assert rows.done.tolist() == [float(n in (6, 13)) for n in range(20)]  # the time limit is not terminal
    np.testing.assert_allclose(rows.skill[:, 0], [(n % 7 + 1) / 5 for n in range(20)])
    np.testing.assert_allclose(np.abs(rows.obs[[0, 7, 14]]).max(), 0.05, atol=0.06)  # each starts near zero
    np.testing.assert_allclose(rows.next_obs - rows.obs, 2 * rows.action, atol=1e-4)  # also in the last step of an episode


# --- classes and factories --------------------------------------------------------------------------------------------


def test_class_and_factory_of_a_file(folder: Path) -> None:
    corridor, slider = make("mine.py:Corridor", num_envs=2), make("mine.py:Slider")
    for name, env, kind in (("Right", corridor, HostTask), ("Far", slider, Task), ("both", corridor, HostTask)):
        task = make_task(f"mine.py:{name}", env)
        assert isinstance(task, kind)
        check_task(task)
    assert make_task("mine.py:Far", slider).name == "Far"
    entry = task_entry("mine.py:Right", "mine.py:Corridor")
    assert (entry.name, entry.short, entry.env, entry.layouts.default) == ("Right", "Right", "mine.py:Corridor", "random")
    for name, env, message in (
        ("NUMBER", slider, "mine.py:NUMBER is a int; it must be a susd.extend.TaskEntry, a subclass of Task or HostTask"),
        ("Slider", slider, "mine.py:Slider is a class, but not a subclass of susd.extend.Task or susd.extend.HostTask"),
        ("nothing", slider, "nothing makes a NoneType; it must make a susd.extend.Task"),
    ):
        with pytest.raises(UserError, match=message):
            make_task(f"mine.py:{name}", env)
    with pytest.raises(UserError, match="task 'Right' is a HostTask, but slider is a functional environment; make it"):
        check_task(make_task("mine.py:Right", slider))
    with pytest.raises(
        UserError, match=r"task 'Far' is a Task, but mine\.py:Corridor is a host environment; make it a sub"
    ):
        check_task(make_task("mine.py:Far", corridor))


def test_environment_of_the_run(folder: Path) -> None:
    """A class has none of its own: that of the run is used, with skills and without."""
    config = susd.config("gunner").to_json() | {"env": "mine.py:Corridor", "horizon": 20}
    (folder / "run").mkdir()
    (folder / "run" / "config.json").write_text(json.dumps(config))
    (folder / "run" / "meta.json").write_text("{}")
    made = configure_downstream("run", "mine.py:Right", interface="goal", policy="entity")
    assert (made.env, made.entry.name, made.horizon, made.skill_steps) == ("mine.py:Corridor", "Right", 0, 5)
    assert str(folder_of(made)) == "run/downstream/Right-random-goal-entity-s0"
    flat = configure_downstream("run", "reward", interface="flat", horizon=40)
    assert str(folder_of(flat)) == "runs/flat-mine.py-Corridor-reward-random-s0"
    assert DownstreamConfigs.same(flat)
    with pytest.raises(UserError, match="task 'Right' names no environment: name a run, whose environment is used"):
        configure_downstream(None, "mine.py:Right", interface="flat")
    with pytest.raises(UserError, match="--horizon is 12; it must be a multiple of --skill-steps, which is 5"):
        configure_downstream("run", "reward", horizon=12)


class DownstreamConfigs:
    """A config survives its JSON, as in `config.json`."""

    @staticmethod
    def same(config: Any) -> bool:
        return bool(type(config)(**json.loads(json.dumps(config.to_json()))) == config)


# --- contracts --------------------------------------------------------------------------------------------------------


class Points:
    """Two points in the plane, which never end."""

    num_envs = 2
    spec = EnvSpec("points", 2, 2, 10, FACTORS, (), {})

    def reset(self, seed: int) -> np.ndarray:
        self.position = np.zeros((2, 2), np.float32)
        return self.position

    def step(self, actions: np.ndarray) -> HostStep:
        self.position = self.position + actions
        never = np.zeros(2, bool)
        return HostStep(self.position, self.position, never, never)

    def render(self, index: int = 0, size: int = 400) -> np.ndarray:
        return np.zeros((size, size, 3), np.uint8)


class Plane:
    """A functional environment."""

    spec = EnvSpec("plane", 2, 2, 10, FACTORS, (), {})

    def reset(self, key: jax.Array) -> jax.Array:
        return jnp.zeros(2)

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> jax.Array:
        return state + action

    def observe(self, state: jax.Array) -> jax.Array:
        return state

    def render(self, state: jax.Array, size: int = 400) -> np.ndarray:
        return np.zeros((size, size, 3), np.uint8)


class Clock(NamedTuple):
    """A state without the environment's."""

    steps: Any


def fail(*arguments: Any) -> Any:
    raise KeyError("door")


FUNCTIONAL: dict[str, Any] = {"horizon": 10, "reward": lambda self, state: state[0]}
HOST: dict[str, Any] = {"horizon": 10, "reward": lambda self, step: step.obs[:, 0]}
PARTS: dict[str, Any] = {"part_of": (0, 1), "parts": lambda self, state, reached: reached}
BAD: list[tuple[type, dict[str, Any], str]] = [  # base, members, what the error must contain
    (Task, {"reward": FUNCTIONAL["reward"]}, "`horizon` is None; it must be an integer above zero"),
    (Task, {"horizon": 10}, "lacks the member 'reward'; a task needs `horizon` and `reward(env_state)`"),
    (Task, FUNCTIONAL | {"horizon": 0}, "`horizon` is 0"),
    (Task, FUNCTIONAL | {"reward": lambda self, state: state}, "`reward` gives an array of shape (2,); it must be ()"),
    (Task, FUNCTIONAL | {"reward": lambda self, state: state[0] * jnp.nan}, "`reward` gives nan; it must be finite"),
    (Task, FUNCTIONAL | {"reward": fail}, "`reward` failed: KeyError: 'door'"),
    (Task, FUNCTIONAL | {"reward": lambda self, state: 1.0 if state[0] > 0 else 0.0}, "`reward` failed: TracerBool"),
    (Task, FUNCTIONAL | {"extra_size": 2}, "`extra` gives an array of shape (0,); it must be (2,)"),
    (Task, FUNCTIONAL | {"extra_size": -1}, "`extra_size` is -1"),
    (Task, FUNCTIONAL | PARTS | {"part_of": ()}, "`part_of` is missing; a task that has `parts` needs it"),
    (Task, FUNCTIONAL | {"part_of": (0,)}, "`parts` is missing; a task that has `part_of` needs it"),
    (Task, FUNCTIONAL | PARTS | {"part_of": (0, 2)}, "`part_of` has 2; allowed are integers from 0 to 1"),
    (Task, FUNCTIONAL | PARTS | {"part_of": (0,)}, "`parts` gives an array of shape (2,); it must be (1,)"),
    (Task, FUNCTIONAL | {"extra_of": (0,)}, "`extra_of` has 1 entries; it must have extra_size, which is 0"),
    (Task, FUNCTIONAL | {"best": np.ones(2)}, "`best` gives an array of shape (2,); it must be (10,)"),
    (
        Task,
        FUNCTIONAL | {"expert": lambda self, state: jnp.zeros(3)},
        "`expert` gives an array of shape (3,)",
    ),
    (
        Task,
        FUNCTIONAL | {"success": lambda self, state: state.env_state > 0},
        "`success` gives an array of shape (2,); it must be ()",
    ),
    (Task, FUNCTIONAL | {"success": fail}, "`success` failed: KeyError: 'door'"),
    (
        Task,
        FUNCTIONAL | {"begin": lambda self, state, key: Clock(0)},
        "`begin` gives a Clock; the state of a task has",
    ),
    (
        Task,
        {"horizon": 10, "score": lambda self, state, reached, key: (TaskState(reached, 1.0 + state.steps), reached[0])},
        "`score` gives a state with other fields, shapes or types than `begin`",
    ),
    (Task, {"horizon": 10, "score": lambda self, state, reached, key: reached[0]}, "`score` gives a"),
    (HostTask, {"reward": HOST["reward"]}, "`horizon` is None"),
    (HostTask, HOST | {"reward": lambda self, step: 0.0}, "`reward` gives an array of shape (); it must be (2,)"),
    (HostTask, HOST | {"reward": lambda self, step: None}, "`reward` gives"),
    (HostTask, HOST | {"reward": lambda self, step: np.array([np.inf, 0])}, "`reward` gives inf; it must be finite"),
    (HostTask, HOST | {"begin": fail}, "`begin` failed: KeyError"),
    (HostTask, HOST | {"extra_size": 1, "extra": lambda self: np.zeros(2)}, "`extra` gives an array of shape (2,)"),
    (HostTask, HOST | {"part_of": (0,), "parts": lambda self, step: np.zeros(2)}, "`parts` gives an array of shape (2,)"),
    (HostTask, HOST | {"success": lambda self, step: True}, "`success` gives an array of shape (); it must be (2,)"),
    (HostTask, HOST | {"expert": lambda self: np.zeros(2)}, "`expert` gives an array of shape (2,); it must be (2, 2)"),
]


@pytest.mark.parametrize(("base", "members", "message"), BAD, ids=[f"{kind.__name__}-{text[:40]}" for kind, _, text in BAD])
def test_broken_contracts(base: type, members: dict[str, Any], message: str) -> None:
    kind: Callable[..., Any] = type("Broken", (base,), members)
    with pytest.raises(UserError) as refusal:
        check_task(kind("broken", Plane() if base is Task else Points()))
    assert message in str(refusal.value)
    assert "broken" in str(refusal.value).lower()


@pytest.mark.parametrize("base", [Task, HostTask])
def test_two_members_are_enough(base: type) -> None:
    kind: Callable[..., Any] = type("Small", (base,), FUNCTIONAL if base is Task else HOST)
    check_task(kind("small", Plane() if base is Task else Points()))


# --- from end to end --------------------------------------------------------------------------------------------------

SMALL = (
    *("--episodes", 4, "--num-envs", 2, "--eval-every", 2, "--eval-episodes", 2, "--gradient-steps", 1),
    *("--hidden", 8, "--batch-size", 8, "--horizon", 20, "--skill-steps", 10),
)


@pytest.mark.slow
def test_own_reward_over_skills(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call("train", "mine.py:Corridor", "--run", "run", *TINY, "--epochs", 2, "--no-eval", "--quiet")
    capsys.readouterr()
    call("downstream", "run", "--task", "reward", *SMALL, "--json")
    result = json.loads(capsys.readouterr().out)
    assert (result["task"], result["env"], result["env_steps"]) == ("reward", "mine.py:Corridor", 80)
    assert "bound" not in result
    assert "expert" not in result
    assert result["do_nothing"]["undiscounted"] == pytest.approx(28 / 5)  # the first episode of seven steps
    assert result["final"]["undiscounted"] == [pytest.approx(28 / 5)]
    call("downstream", "run", "--task", "mine.py:Right", "--interface", "flat", *SMALL[:-2], "--json")
    flat = json.loads(capsys.readouterr().out)
    assert (flat["method"], flat["interface"], flat["env"], flat["skills"]) == ("flat", "flat", "mine.py:Corridor", None)
    assert flat["final"]["success"][0] in (0.0, 0.5, 1.0)
    assert "success" not in result["final"]
    sentence = refused(capsys, "downstream", "run", "--task", "mine.py:Far", *SMALL)
    assert "task 'Far' is a Task, but mine.py:Corridor is a host environment" in sentence
    call("report", "run", "runs/flat-mine.py-Corridor-Right-random-s0", "--out", "page")
    page = (folder / "page" / "report.html").read_text()
    for part in ("reward", "Right", "no skills", "neither a scripted expert nor a bound"):
        assert part in page
