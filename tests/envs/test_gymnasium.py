"""Gymnasium environments as host environments: spaces, scaling, resets, workers and failures."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import TINY, refused
from susd.cli.main import main
from susd.envs import make
from susd.envs.base import Environment, HostEnvironment
from susd.envs.gymnasium.adapter import GymnasiumVector
from susd.envs.gymnasium.processes import SubprocessEnvs
from susd.envs.gymnasium.workers import EnvError
from susd.errors import UserError

NUM_ENVS = 5
MODES = ("none", "threads", "processes")
FILE = '''
import os
import sys
import time

import gymnasium
import numpy as np
from gymnasium import spaces


class Ship(gymnasium.Env):
    """A ship with a rudder and a flag. It terminates after `life` steps; `trouble` names what fails in its third step."""

    metadata = {"render_modes": ["rgb_array"]}
    positions = {"ship": (6, 7, -5.0, 5.0)}
    landmarks = {"up": 3}

    def __init__(self, life=0, trouble="", render_mode=None):
        assert "jax" not in sys.modules or trouble != "no jax"
        self.life, self.trouble, self.render_mode = life, trouble, render_mode
        self.observation_space = spaces.Dict(
            [("crew", spaces.Dict(bits=spaces.MultiBinary(2))), ("flag", spaces.Discrete(3, start=1)), ("ship", spaces.Dict(
                [("clock", spaces.Box(0, 99, ())), ("position", spaces.Box(-9, 9, (1, 2), np.float64))]
            ))]
        )
        self.action_space = spaces.Box(np.array([-1.0, 0.0]), np.array([3.0, 10.0]), dtype=np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.clock, self.action = self.np_random.uniform(-1, 1, (1, 2)), 0, np.zeros(2)
        return self.observation(), {}

    def observation(self):
        position = {"shape": self.position[0], "text": np.full((1, 2), "x"), "nan": self.position * np.nan}
        broken = self.clock == 3 and self.unlucky
        return {
            "flag": 1 + self.clock % 3,
            "crew": {"bits": np.array([1, self.clock % 2], np.int8)},
            "ship": {
                "position": position.get(self.trouble, self.position) if broken else self.position,
                "clock": float(self.clock),
            },
        }

    @property
    def unlucky(self):
        return self.position[0, 0] > 0

    def step(self, action):
        assert self.action_space.contains(action)
        self.clock += 1
        self.position = np.clip(self.position + 0.01 * (action - 1), -9, 9)
        if self.clock == 3 and self.unlucky and self.trouble == "raise":
            raise RuntimeError("the mast broke")
        if self.clock == 3 and self.unlucky and self.trouble == "exit":
            sys.exit(0)
        if self.clock == 3 and self.unlucky and self.trouble == "four":
            return self.observation(), 0.0, False, {}
        if self.clock == 3 and self.unlucky and self.trouble in ("die", "fork"):
            if self.trouble == "fork" and os.fork() == 0:
                time.sleep(60)
            os._exit(7)
        return self.observation(), 0.0, self.clock == self.life, False, {}

    def render(self):
        image = np.full((20, 40, 3), self.clock, np.uint8) if self.render_mode else None
        return {"gray": np.zeros((20, 40, 1), np.uint8), "float": np.zeros((20, 40, 3))}.get(self.trouble, image)


def make(life=0, **options):
    return gymnasium.wrappers.TimeLimit(Ship(life, **options), 4)


class Flat(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (4,))
    action_space = spaces.Box(-1, 1, (1,))
    factors = {"odd": [1, 3], "even": [0, 2]}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        return np.zeros(4, np.float32), 0.0, False, False, {}


def spaced(observations=None, actions=None):
    env = Flat()
    kinds = {"tuple": spaces.Tuple([spaces.Discrete(2)]), "infinite": spaces.Box(-1, np.inf, (2,))}
    kinds["discrete"] = spaces.Discrete(4)
    env.observation_space = kinds.get(observations, env.observation_space)
    env.action_space = kinds.get(actions, env.action_space)
    return env


class Named(gymnasium.Wrapper):
    factors = {"all": [0, 1, 2, 3]}


def wrapped():
    return Named(Flat())


class Bare(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"]}  # and no parameter of that name

    def close(self):
        raise OSError("cannot close")


class Bald(Flat):
    factors = {"odd": [1, 3], "even": 0}


def several():
    return gymnasium.make_vec("Pendulum-v1", 2)


def nothing():
    pass


def number():
    return 3


def raising():
    raise KeyError("what")
'''


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "ships.py"
    path.write_text(FILE)
    return path


@pytest.fixture
def ships(file: Path) -> Iterator[Any]:
    """Make environments of the file; they are closed at the end."""
    made: list[GymnasiumVector] = []

    def ship(name: str = "Ship", **options: Any) -> GymnasiumVector:
        env = make(f"{file}:{name}", **{"num_envs": NUM_ENVS, **options})
        assert isinstance(env, GymnasiumVector)
        made.append(env)
        return env

    yield ship
    for env in made:
        env.close()


@pytest.fixture(scope="module")
def workers(file: Path) -> Iterator[GymnasiumVector]:
    """Environments in worker processes, shared by the tests that leave them running."""
    env = make(f"{file}:Ship", num_envs=NUM_ENVS, life=4, parallel="processes")
    assert isinstance(env, GymnasiumVector)
    yield env
    env.close()


def test_dict_observations(ships: Any) -> None:
    env = ships()
    assert isinstance(env, HostEnvironment)
    assert not isinstance(env, Environment)
    spec = env.spec
    names = {"crew/bits": [0, 1], "flag": [2, 3, 4], "ship/clock": [5], "ship/position": [6, 7]}
    assert spec.factorization.to_json() == names
    assert (spec.obs_size, spec.action_size, spec.horizon) == (8, 2, 200)
    assert [(p.name, p.x, p.y, p.low, p.high) for p in spec.planes] == [("ship", 6, 7, -5.0, 5.0)]
    assert spec.landmarks == {"up": 3}
    obs = env.reset(0)
    assert obs.shape == (NUM_ENVS, 8)
    assert obs.dtype == np.float32
    np.testing.assert_array_equal(obs[:, :6], np.tile([1, 0, 1, 0, 0, 0], (NUM_ENVS, 1)))
    stepped = env.step(np.zeros((NUM_ENVS, 2))).obs
    np.testing.assert_array_equal(stepped[:, :6], np.tile([1, 1, 0, 1, 0, 1], (NUM_ENVS, 1)))


def test_actions_are_scaled_and_clipped(ships: Any) -> None:
    env = ships(num_envs=4)
    before = env.reset(3)[:, 6:]
    moved = env.step(np.array([[-1, -1], [1, 1], [0, 0], [5, -5]], np.float32)).obs[:, 6:] - before
    expected = 0.01 * (np.array([[-1, 0], [3, 10], [1, 5], [3, 0]]) - 1)
    np.testing.assert_allclose(moved, expected, atol=1e-6)
    with pytest.raises(UserError, match=r"shape \(4, 3\).*needs \(4, 2\)"):
        env.step(np.zeros((4, 3)))


def test_factors_of_flat_observations(ships: Any) -> None:
    assert ships("Flat").spec.factorization.to_json() == {"odd": [1, 3], "even": [0, 2]}
    assert ships("Flat", factors=1).spec.factorization.to_json() == {"state": [0, 1, 2, 3]}
    assert ships("Flat", factors="a=0:3,b=3").spec.factorization.sizes == (3, 1)
    with pytest.raises(UserError, match="index 3 belongs to no factor"):
        ships("Flat", factors="a=0:3")
    reacher = make("gymnasium:Reacher-v5", factors="arm=0:6,target=6:10")
    assert reacher.spec.factorization.names == ("arm", "target")
    assert reacher.spec.horizon == 50
    assert make("gymnasium:Reacher-v5", horizon=7).spec.horizon == 7
    assert make("gymnasium:Reacher-v5").spec.factorization.names == ("state",)


def test_automatic_reset(ships: Any) -> None:
    env = ships(life=2)
    env.reset(5)
    first = env.step(np.zeros((NUM_ENVS, 2)))
    assert not first.terminated.any()
    np.testing.assert_array_equal(first.obs, first.next_obs)
    second = env.step(np.zeros((NUM_ENVS, 2)))
    assert second.terminated.all()
    assert not second.truncated.any()
    np.testing.assert_array_equal(second.next_obs[:, 5], 2)
    np.testing.assert_array_equal(second.obs[:, 5], 0)
    assert len(np.unique(second.obs[:, 6])) == NUM_ENVS
    assert not np.isin(second.obs[:, 6], env.reset(5)[:, 6]).any()


def test_own_time_limit_truncates(ships: Any) -> None:
    env = ships("make")
    assert env.spec.horizon == 200  # a wrapper without registration has no time limit to read
    env.reset(0)
    cut = [env.step(np.zeros((NUM_ENVS, 2))).truncated.all() for _ in range(8)]
    assert cut == [False, False, False, True] * 2


def run(env: GymnasiumVector, seed: int = 1, steps: int = 9) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    found = [env.reset(seed)]
    for _ in range(steps):
        found += env.step(random.uniform(-1, 1, (env.num_envs, 2)).astype(np.float32))
    return found


def test_all_modes_give_equal_results(ships: Any, workers: GymnasiumVector) -> None:
    reference = run(ships(life=4, parallel="none"))
    for env in (ships(life=4, parallel="threads"), workers):
        run(env, seed=2)  # earlier episodes do not matter
        for one, other in zip(reference, run(env), strict=True):
            np.testing.assert_array_equal(one, other)


def test_reset_depends_on_seed_and_index(ships: Any) -> None:
    np.testing.assert_array_equal(ships(num_envs=2).reset(9), ships(num_envs=5).reset(9)[:2])
    assert (ships().reset(9) != ships().reset(10)).any(axis=1).all()


FAILURES = {
    "raise": "RuntimeError: the mast broke",
    "exit": "SystemExit: 0",
    "four": "step returned a tuple of 4; Gymnasium's interface is (observation, reward, terminated, truncated, info)",
    "nan": "its index 6 (position 0 of entry 'ship/position') is nan",
    "shape": "entry 'ship/position' has the shape (2,), but its space says (1, 2)",
    "text": "entry 'ship/position' has the type <U1; it must be numeric",
}


@pytest.mark.parametrize(
    ("mode", "trouble"),
    [(mode, trouble) for mode in MODES for trouble in FAILURES if mode == "threads" or trouble in ("raise", "exit")],
)
def test_failing_environment_is_named(mode: str, trouble: str, ships: Any) -> None:
    env = ships(trouble=trouble, parallel=mode)
    unlucky = np.flatnonzero(env.reset(1)[:, 6] > 0)
    with pytest.raises(EnvError) as caught:
        run(env)
    text = str(caught.value)
    assert FAILURES[trouble] in text
    assert any(f"environment {index} of " in text for index in unlucky)
    assert "in step 3 (seed 1; its episode starts with env.reset(seed=" in text
    assert ("Traceback" in text) == (trouble in ("raise", "exit"))  # of the environment's code
    env.reset(1)  # new workers


def test_dead_worker_is_reported(ships: Any) -> None:
    env = ships(trouble="die", parallel="processes")
    with pytest.raises(EnvError, match=r"process \d+ with environments \d to \d of .*ships.py:Ship exited with code 7"):
        run(env)
    env.reset(1)
    worker = env._batch._workers[-1]
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(
        EnvError, match=rf"process {worker.pid} with environments . to 4 of .* was killed by signal SIGKILL"
    ):
        env.step(np.zeros((NUM_ENVS, 2)))


@pytest.mark.slow
def test_child_of_dead_worker_does_not_block(ships: Any) -> None:
    began = time.monotonic()
    with pytest.raises(EnvError, match="exited with code 7"):
        run(ships(trouble="fork", parallel="processes"))
    assert time.monotonic() - began < 30  # the child sleeps for a minute and holds the pipe of its dead parent


def test_workers_ignore_stop_signals(ships: Any, workers: GymnasiumVector) -> None:
    """`timeout` and Slurm send SIGTERM to all processes of a run, a terminal sends SIGINT."""
    env, reference = workers, run(ships(life=4, parallel="none"))
    env.reset(0)
    assert isinstance(env._batch, SubprocessEnvs)
    for worker in env._batch._workers:
        os.kill(worker.pid, signal.SIGTERM)
        os.kill(worker.pid, signal.SIGINT)
    for one, other in zip(reference, run(env), strict=True):
        np.testing.assert_array_equal(one, other)


def test_wrapper_declares_factors(ships: Any) -> None:
    assert ships("wrapped").spec.factorization.names == ("all",)


def test_module_in_gymnasium_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "harbour.py").write_text(FILE + "\ngymnasium.register('Flat-v0', Flat, max_episode_steps=9)\n")
    env = make("gymnasium:harbour:Flat-v0", num_envs=2)
    assert env.spec.horizon == 9
    assert env.reset(0).shape == (2, 4)
    with pytest.raises(UserError, match=r"module 'pier' of gymnasium:pier:Flat-v0 cannot be imported: ModuleNotFoundError"):
        make("gymnasium:pier:Flat-v0")
    with pytest.raises(UserError, match="Gymnasium has no environment 'Flut-v0'"):
        make("gymnasium:harbour:Flut-v0")


def test_horizon_reaches_factory_and_spec(tmp_path: Path) -> None:
    path = tmp_path / "timed.py"
    path.write_text(FILE + "\ndef timed(horizon=5):\n    return gymnasium.wrappers.TimeLimit(Flat(), horizon)\n")
    env = make(f"{path}:timed", num_envs=1, horizon=7)
    assert env.spec.horizon == 7
    env.reset(0)
    assert [bool(env.step(np.zeros((1, 1))).truncated[0]) for _ in range(7)] == [False] * 6 + [True]


def test_workers_end_with_the_program(file: Path) -> None:
    code = f"""
        import multiprocessing
        from susd.envs import make
        if __name__ == "__main__":
            env = make({str(file) + ":Ship"!r}, num_envs=2, parallel="processes", life=3)
            assert not multiprocessing.active_children()
            env._source.arguments["trouble"] = "no jax"
            env.reset(0)
            workers = multiprocessing.active_children()
            assert workers
            print(*(worker.pid for worker in workers))
            raise SystemExit(3)
    """
    script = file.with_name("script.py")
    script.write_text(textwrap.dedent(code))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 3, done.stderr
    assert done.stderr == ""
    for pid in map(int, done.stdout.split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_rendering(ships: Any, workers: GymnasiumVector) -> None:
    for env in (ships(parallel="none"), ships(parallel="threads"), workers):
        env.reset(0)
        env.step(np.zeros((NUM_ENVS, 2)))
        image = env.render(3, size=40)
        assert image.shape == (40, 40, 3)
        assert image.dtype == np.uint8
        np.testing.assert_array_equal(image[20, 20], 1)  # 20 x 40 pixels in the middle ..
        assert image[2, 20].min() > 200  # .. of a square
    with pytest.raises(UserError, match="cannot render"):
        ships("Flat").render()
    for trouble, given in (("gray", r"uint8 \[20, 40, 1\]"), ("float", r"float64 \[20, 40, 3\]")):
        with pytest.raises(UserError, match=f"render returned {given}; it must return uint8"):
            ships(trouble=trouble).render()
    with pytest.raises(UserError, match="environment 5 does not exist; allowed: 0 to 4"):
        ships().render(5)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        (
            "Shop",
            {},
            r"has no object named 'Shop'; it defines: Ship, make, Flat, spaced, Named, wrapped, Bare, Bald, several",
        ),
        ("np", {}, "is a module; it must be a class or function that makes one"),
        ("nothing", {}, "makes None, which is not an environment; does the factory return it"),
        (
            "number",
            {},
            "makes a int, which is not an environment: it is no gymnasium.Env, for a functional environment it lacks spec",
        ),
        ("raising", {}, r"cannot be made: KeyError: 'what' \(.*ships.py:\d+\)"),
        (
            "Flat",
            {"colour": 1},
            "has no option 'colour'; its options are: factors, horizon, landmarks, parallel, positions",
        ),
        ("Flat", {"parallel": "yes"}, "'parallel' cannot be 'yes'; allowed: threads, processes, none"),
        ("Flat", {"horizon": 0}, "'horizon' cannot be 0; allowed: an integer from 1 to 1000000000"),
        ("Flat", {"horizon": 10**20}, "'horizon' cannot be 100000000000000000000"),
        ("Bare", {}, r"has no observation_space; set it in __init__"),
        ("Bald", {}, r"factor 'even' is 0; it must be a list of indices, such as \[0, 1\]"),
        ("several", {}, "makes a SyncVectorEnv; make a single environment"),
        ("spaced", {"observations": "tuple"}, "observations of type Tuple; allowed are"),
        ("spaced", {"observations": "infinite"}, "factor 'odd': index 3 is outside the observation"),
        (
            "spaced",
            {"actions": "infinite"},
            "an action space without finite bounds: index 0 is from -1.0 to inf;",
        ),
        ("spaced", {"actions": "discrete"}, "has 4 discrete actions; susd needs continuous actions"),
    ],
)
def test_invalid_environments(name: str, options: dict[str, Any], sentence: str, file: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        make(f"{file}:{name}", **options)


def test_names_that_cannot_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"looked for {tmp_path / 'no.py'} from folder {tmp_path}" in refused(capsys, "train", "no.py:make")
    assert "write FILE.py:NAME" in refused(capsys, "train", "no.py")
    assert "gymnasium:ID, FILE.py:NAME" in refused(capsys, "train", "runner")
    assert "did you mean Reacher-v5" in refused(capsys, "train", "gymnasium:Reachr-v5")
    assert "names no environment" in refused(capsys, "train", "gymnasium:")
    (tmp_path / "bad.py").write_text("import numpy\n\nimport no_such_package\n")
    message = refused(capsys, "train", "bad.py:make")
    assert "bad.py cannot be imported: ModuleNotFoundError: No module named 'no_such_package'" in message
    assert message.endswith("bad.py:3)")
    (tmp_path / "worse.py").write_text("def make(:\n")
    assert refused(capsys, "train", "worse.py:make").endswith("worse.py:1)")


@pytest.mark.slow
def test_run_of_environment_in_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ships.py").write_text(FILE)
    before = set(multiprocessing.active_children())
    options = [*TINY, "--epochs", "2", "--no-eval", "--env-option", "life=6", "--env-option", "parallel=processes"]
    with pytest.raises(SystemExit) as exited:
        main(["train", "ships.py:Ship", *options])
    assert not exited.value.code
    assert set(multiprocessing.active_children()) <= before  # no worker outlives the training
    run = tmp_path / "runs" / "ships-Ship-susd-s0"
    assert (run / "config.json").is_file()
    with pytest.raises(SystemExit) as exited:
        main(["train", "ships.py:Ship", *options, "--env-option", "trouble=raise"])
    assert exited.value.code == 2
    assert "RuntimeError: the mast broke" in capsys.readouterr().err
    (tmp_path / "ships.py").rename(tmp_path / "boats.py")
    message = refused(capsys, "train", "--resume", "--run", run, "--epochs", 3)
    assert f"file 'ships.py' does not exist: looked for {tmp_path / 'ships.py'}" in message


def test_env_option_types() -> None:
    from susd.cli.common import given
    from susd.cli.main import parser

    typed = ("life=3", "speed=0.5", "low=-2", "wet=true", "dry=false", "name=x", "text=null", "far=Infinity", "many=[1]")
    words = [word for text in typed for word in ("--env-option", text)]
    values = given(parser().parse_args(["train", "gunner", *words]))["env_options"]
    assert values == {
        **{"life": 3, "speed": 0.5, "low": -2, "wet": True, "dry": False},
        **{"name": "x", "text": "null", "far": "Infinity", "many": "[1]"},
    }


def test_run_folder_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from susd.config import configure
    from susd.training.train import free_folder

    monkeypatch.chdir(tmp_path)
    names = [free_folder(configure(env)).name for env in ("gymnasium:Reacher-v5", "a/b/my env.py:make", "gunner")]
    assert names == ["Reacher-v5-susd-s0", "my_env-make-susd-s0", "gunner-susd-s0"]
