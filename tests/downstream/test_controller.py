"""The high level: what it sees, decides and is paid, that it finds the right skill where that is known, and its command."""

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import susd as package
from conftest import TINY, Command, refused
from reference import fast
from susd.config import configure
from susd.downstream.config import configure_downstream, folder_of
from susd.downstream.controller import ActionInterface, Controller, ControllerState, Flat, Skills, begin, play, returns
from susd.downstream.train import TaskRun
from susd.envs import make
from susd.envs.base import EnvSpec
from susd.errors import UserError
from susd.factors import Factorization
from susd.sac import Sac
from susd.skills import SkillSpace
from susd.tasks.base import Task

Trained = Callable[..., Path]
KEY = jax.random.key(0)


# --- a world in which the right skill is known ------------------------------------------------------------------------


class Dots(NamedTuple):
    """Two dots on lines of their own, and the last action."""

    place: jax.Array
    action: jax.Array


class Lines:
    """An action moves both dots; it is part of the observation, so that one can see what was done."""

    spec = EnvSpec("lines", 4, 2, 20, Factorization(("a", "b"), ((0, 2), (1, 3)), 4), (), {})

    def reset(self, key: jax.Array) -> Dots:
        return Dots(0.1 * jax.random.normal(key, (2,)), jnp.zeros(2))

    def step(self, state: Dots, action: jax.Array, key: jax.Array) -> Dots:
        return Dots(jnp.clip(state.place + 0.2 * action, -1, 1), action)

    def observe(self, state: Dots) -> jax.Array:
        return jnp.concatenate([state.place, state.action])


class SidesState(NamedTuple):
    world: Dots
    steps: jax.Array
    side: jax.Array


@dataclass(frozen=True)
class Sides(Task):
    """Each dot has a side drawn for the episode; a step pays for every dot how far it is on it."""

    horizon = 20
    extra_size = 3

    @property
    def bound(self) -> float:
        return 2.0 * 4

    def begin(self, world: Dots, key: jax.Array) -> SidesState:
        return SidesState(world, jnp.zeros((), jnp.int32), jax.random.rademacher(key, (2,)).astype(jnp.float32))

    def score(self, state: SidesState, world: Dots, key: jax.Array) -> tuple[SidesState, jax.Array]:
        return SidesState(world, state.steps + 1, state.side), jnp.sum(state.side * world.place)

    def extra(self, state: SidesState) -> jax.Array:
        return jnp.append(state.side, state.steps / self.horizon)


TASK = Sides("sides", Lines())


def crossed(weights: jax.Array) -> Any:
    """A frozen policy, written by hand: the first part of the skill moves the second dot and the other way round."""
    return lambda obs, skill, key: weights * skill[:, ::-1]


SKILLS = Skills(SkillSpace("factor_sphere", 2, 1), crossed)


def controller(interface: ActionInterface = SKILLS, **changes: Any) -> Controller:
    sac = Sac(7, interface.size, 32, 2, "relu", "float32", 3e-3, 0.9, 0.02, 0.1, True, -0.5)
    sizes: dict[str, Any] = {"gradient_steps": 5, "batch_size": 64, "capacity": 200, "warmup": 5, **changes}
    return Controller(TASK, interface, sac, **sizes)


def started(high: Controller, seed: int = 0) -> ControllerState:
    state: ControllerState = fast(high.init)(seed)
    return state


def scored(high: Controller, state: ControllerState, frozen: Any) -> float:
    """The mean return as a share of what the best script gets in the same episodes."""
    tests = jax.random.split(jax.random.key(7), 64)
    runs = fast(high.evaluate)(state.sac, frozen, None, tests), fast(partial(play, TASK, lambda s: s.side))(None, tests)
    learned, best = (float(returns(rewards)["undiscounted"].mean()) for rewards in runs)
    assert best > 5.5
    return learned / best


def test_the_hierarchy_finds_the_right_skill() -> None:
    high = controller()
    before = started(high)
    state, info = fast(high.train)(before, jnp.ones(2), None, 0, 200)
    assert all(np.isfinite(float(value)) for value in info.values())
    assert scored(high, before, jnp.ones(2)) < 0.3
    assert scored(high, state, jnp.ones(2)) > 0.97
    sides = np.array([(1, 1), (1, -1), (-1, 1), (-1, -1)])
    x = np.zeros((4, 7), np.float32)
    x[:, 4:6] = sides
    skills = jax.vmap(SKILLS.skill)(state.sac.actor.mode(jnp.asarray(x)))
    np.testing.assert_array_equal(skills, sides[:, ::-1])


def test_the_flat_policy_learns_it_too() -> None:
    high = controller(Flat(2))
    assert high.decisions == 20
    state, _ = fast(high.train)(started(high), None, None, 0, 200)
    assert scored(high, state, None) > 0.9


# --- what is replayed -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def course() -> Callable[[int, int, int], list[ControllerState]]:
    """The states of seed, before and after pieces of so many episodes; three warm up, and the replay holds four."""
    high = controller(capacity=4, warmup=3)
    train, start = fast(high.train), fast(high.init)

    def run(seed: int, pieces: int, length: int) -> list[ControllerState]:
        states = [start(seed)]
        for number in range(pieces):
            states.append(train(states[-1], jnp.ones(2), None, number * length, (number + 1) * length)[0])
        assert train._cache_size() == 1  # type: ignore[attr-defined]  # nothing is compiled for other bounds
        return states

    return run


@pytest.fixture(scope="module")
def chunks(course: Callable[[int, int, int], list[ControllerState]]) -> list[ControllerState]:
    """Six episodes one by one."""
    return course(3, 6, 1)


def test_rows_are_decisions_with_the_mean_reward_of_their_steps(chunks: list[ControllerState]) -> None:
    rows = jax.tree.map(lambda x: np.asarray(x[:4]), chunks[1].replay.data)
    assert rows.obs.shape == rows.next_obs.shape == (4, 7)
    np.testing.assert_array_equal(rows.obs[1:], rows.next_obs[:-1])
    assert rows.done.tolist() == [0, 0, 0, 1]
    np.testing.assert_allclose(rows.obs[:, 6], [0, 0.25, 0.5, 0.75])  # the clock
    assert set(np.abs(rows.obs[:, 4:6]).ravel()) == {1.0}
    for x, action, reward, after in zip(rows.obs, rows.action, rows.skill, rows.next_obs, strict=True):
        skill = np.where(action >= 0, 1.0, -1.0)
        place, paid = x[:2].astype(np.float64), []
        for _ in range(5):
            place = np.clip(place + 0.2 * skill[::-1], -1, 1)
            paid.append(np.sum(x[4:6] * place))
        np.testing.assert_allclose(reward, [np.mean(paid)], atol=1e-6)
        np.testing.assert_allclose(after[:4], [*place, *skill[::-1]], atol=1e-6)
    assert np.all(np.abs(rows.action) < 1)  # as it was decided, not the skill it became
    assert np.any(np.abs(rows.action) < 0.9)


def test_a_flat_row_is_a_step_and_rewards_add_up_to_the_same_return() -> None:
    high = controller(Flat(2))
    course = fast(partial(high.episode, lambda x, k: 0.5 * x[4:6]))(None, None, KEY)
    assert course.rows.action.shape == (20, 2)
    np.testing.assert_allclose(course.rows.skill[:, 0], course.rewards / 5)
    assert course.rows.done.tolist() == [0] * 19 + [1]
    means = np.asarray(course.rewards, np.float64).reshape(4, 5).mean(1)
    both = returns(course.rewards)
    assert float(both["undiscounted"]) == pytest.approx(means.sum(), rel=1e-5)
    assert float(both["discounted"]) == pytest.approx(sum(0.99**t * m for t, m in enumerate(means)), rel=1e-5)


def test_the_warm_up_and_the_ring(chunks: list[ControllerState]) -> None:
    counts = [{int(x) for x in jax.tree.leaves(state.sac) if x.dtype == jnp.int32} for state in chunks]
    assert counts == [{0}, {0}, {0}, {0}, {5}, {10}, {15}]
    assert [int(state.replay.size) for state in chunks] == [0, 4, 8, 12, 16, 16, 16]
    assert [int(state.replay.position) for state in chunks] == [0, 4, 8, 12, 0, 4, 8]
    episodes = [np.asarray(state.replay.data.obs) for state in chunks]
    assert (episodes[5][:4] != episodes[4][:4]).any()
    np.testing.assert_array_equal(episodes[5][4:], episodes[4][4:])
    sides = {tuple(x[0]) for x in episodes[4].reshape(4, 4, 7)}
    assert len(sides) == 4  # every episode is another one


def test_episodes_depend_on_their_number_and_the_seed_alone(
    chunks: list[ControllerState], course: Callable[[int, int, int], list[ControllerState]]
) -> None:
    whole, again, other = course(3, 1, 6)[-1], course(3, 2, 3)[-1], course(4, 1, 6)[-1]
    for a, b, c in zip(*(jax.tree.leaves(state) for state in (whole, chunks[-1], again)), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    assert not np.array_equal(whole.replay.data.obs, other.replay.data.obs)
    assert not np.array_equal(whole.sac.actor.trunk.weights[0], other.sac.actor.trunk.weights[0])


def test_episodes_side_by_side_are_those_one_after_another() -> None:
    """While nothing is learned they are the same, in the same order; then as many gradient steps follow as before."""
    alone, abreast = controller(capacity=6, warmup=3), controller(capacity=6, warmup=3, num_envs=3)
    states = [fast(high.train)(started(high), jnp.ones(2), None, 0, 3)[0] for high in (alone, abreast)]
    for one, other in zip(*(jax.tree.leaves(state) for state in states), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    later = fast(abreast.train)(states[1], jnp.ones(2), None, 3, 6)[0]
    assert {int(x) for x in jax.tree.leaves(later.sac) if x.dtype == jnp.int32} == {15}
    assert int(later.replay.size) == 24


def test_a_given_start_begins_every_episode() -> None:
    start = Dots(jnp.asarray([0.5, -0.5]), jnp.zeros(2))
    high = controller()
    collect = jax.vmap(high.collect, in_axes=(None, None, None, 0))
    first = np.asarray(fast(collect)(started(high), jnp.ones(2), start, jnp.arange(8)).rows.obs[:, 0])
    np.testing.assert_array_equal(first[:, :4], np.tile([0.5, -0.5, 0, 0], (8, 1)))
    assert len(np.unique(first[:, 4:6], axis=0)) > 1  # the task's own draw stays


def test_test_episodes_have_mean_decisions() -> None:
    """Then nothing but the sides can tell two of them apart."""
    start = Dots(jnp.asarray([0.5, -0.5]), jnp.zeros(2))
    high = controller(Flat(2))
    tests = jax.random.split(KEY, 16)
    rewards = fast(high.evaluate)(started(high).sac, None, start, tests)
    assert rewards.shape == (16, 20)
    sides = fast(jax.vmap(lambda k: begin(TASK, start, jax.random.split(k)[0]).side))(tests)
    assert 1 < len(np.unique(sides, axis=0)) == len(np.unique(np.asarray(rewards).round(5), axis=0))


# --- what a decision means --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prior", "parts", "dim", "expected"),
    [
        ("sphere", 2, 2, [0.36, -0.48, 0.0, 0.8]),
        ("factor_sphere", 2, 2, [0.6, -0.8, 0.0, 1.0]),
        ("gaussian", 2, 2, [0.675, -0.9, 0.0, 1.5]),
        ("one_hot", 2, 2, [1.0, 0.0, 0.0, 1.0]),
        ("one_hot", 1, 4, [0.0, 0.0, 0.0, 1.0]),
    ],
)
def test_a_decision_is_projected_as_the_prior_demands(prior: str, parts: int, dim: int, expected: list[float]) -> None:
    skills = Skills(SkillSpace(prior, parts, dim), lambda _: lambda obs, skill, key: skill)
    decision = jnp.asarray([0.45, -0.6, 0.0, 1.0])
    np.testing.assert_allclose(skills.skill(decision), expected, atol=1e-6)
    np.testing.assert_allclose(skills.act(None, jnp.zeros(3), decision), expected, atol=1e-6)
    assert skills.size == 4
    assert skills.span == 5


def test_choices_are_never_none_and_never_two() -> None:
    """Where a threshold would give no choice or several, the largest number of each part decides."""
    skills = Skills(SkillSpace("one_hot", 2, 3), lambda _: lambda obs, skill, key: skill)
    low, high = skills.skill(jnp.asarray([-0.9, -0.8, -0.7, 0.8, 0.9, 0.7])).reshape(2, 3)
    assert low.tolist() == [0, 0, 1]
    assert high.tolist() == [0, 1, 0]


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders that look like runs, `gunner` (seeds 5 and 6) and `particles`, in a working directory."""
    monkeypatch.chdir(tmp_path)
    configs = {"gunner": configure("gunner", seed=5, seeds=2), "particles": configure("multi_particle", method="metra")}
    for name, config in configs.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config.to_json()))
        (tmp_path / name / "meta.json").write_text("{}")
    return tmp_path


MISTAKES: dict[str, tuple[str, ...]] = {  # what is typed after `susd downstream`, and what the answer must contain
    "gunner": ("--task",),
    "--task lim": ("name the run", "--flat"),
    "gunner --task seq-easy": ("'multi_particle-seq-easy'", "gunner was trained on gunner"),
    "particles --task gunner-lim": ("'gunner-lim'", "trained on multi_particle"),
    "particles --task easy": ("'easy'", "gunner-lim", "multi_particle-fp-difficult"),
    "missing --task lim": ("there is no run folder missing",),
    "gunner --task lim --layout 4": ("--layout", "'4'", "centre, 0, 1, 2 or 3"),
    "gunner --task lim --layout random": ("--layout", "'random'", "centre"),
    "particles --task fp-easy --layout centre": ("--layout", "'centre'", "random"),
    "particles --task fp-easy --layout -1": ("--layout", "'-1'", "random"),
    "particles --task fp-easy --layout 3000000000": ("--layout", "'3000000000'"),
    "gunner --task lim --skill-seed 7": ("--skill-seed", "7", "5 to 6"),
    "gunner --task lim --flat --skill-seed 5": ("--skill-seed", "5", "no skills"),
    "--task lim --flat --skill-seed 0": ("--skill-seed", "no skills"),
    "gunner --task lim --preset fast": ("'fast'", "quick, paper"),
    "gunner --task lim --episodes 50": ("--episodes", "50", "multiple of --num-envs", "20"),
    "gunner --task lim --episodes 0": ("--episodes", "0", "at least 1"),
    "gunner --task lim --hidden 8.5": ("--hidden", "'8.5'", "whole number"),
    "gunner --task lim --learning-rate nan": ("--learning-rate", "'nan'", "finite number"),
    "gunner --task lim --discount 2": ("--discount", "2", "at most 1"),
    "gunner --task lim --seed 2147483647 --seeds 2": ("--seed", "2147483647", "--seeds"),
    "gunner --task lim --eval-episodes 0": ("--eval-episodes", "at least 1"),
    "gunner --task lim --method metra": ("--method",),
    "--task lim --flat --batch-size 1000000000000": ("GiB of memory", "available", "--batch-size"),
    "--task lim --flat --hidden 65536 --layers 16": ("GiB of memory", "--hidden"),
}


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_is_answered_before_anything_is_done(runs: Path, capsys: pytest.CaptureFixture[str], typed: str) -> None:
    before = sorted(runs.rglob("*"))
    sentence = refused(capsys, "downstream", *typed.split())
    assert len(sentence) < 400
    for part in MISTAKES[typed]:
        assert part in sentence
    assert sorted(runs.rglob("*")) == before


def test_an_option_of_python_is_refused_by_name(runs: Path) -> None:
    with pytest.raises(UserError, match="option 'epochs' is unknown"):
        package.downstream("gunner", "lim", epochs=3)


def test_presets_and_defaults(runs: Path) -> None:
    quick, paper = (configure_downstream("particles", "fp-hard", preset=preset) for preset in ("quick", "paper"))
    assert (quick.episodes, quick.gradient_steps, quick.hidden, quick.learning_rate) == (10_000, 2, 128, 1e-3)
    assert (quick.num_envs, quick.batch_size, quick.warmup, quick.eval_every) == (20, 64, 10_000, 500)
    assert paper.num_envs == 1
    assert (paper.episodes, paper.gradient_steps, paper.hidden, paper.learning_rate) == (10_000, 50, 1024, 1e-4)
    assert (paper.eval_every, paper.actor_activation, paper.batch_size, paper.warmup) == (250, "tanh", 256, 1000)
    same = ("discount", "alpha_init", "target_entropy", "eval_episodes", "layout", "tau")
    assert all(getattr(quick, name) == getattr(paper, name) for name in same)
    assert (quick.task, quick.layout, quick.skill_seed) == ("multi_particle-fp-hard", "1", 0)
    gunner = configure_downstream("gunner", "lim", hidden=8)
    assert (gunner.layout, gunner.skill_seed, gunner.hidden) == ("centre", 5, 8)
    assert (gunner.episodes, gunner.gradient_steps, gunner.discount) == (2400, 10, 0.9)  # its episodes are longer
    assert configure_downstream("particles", "fp-hard", layout=22).layout == "22"


def test_every_result_has_a_folder_of_its_own(runs: Path) -> None:
    def folder(run: str | None, task: str, **options: Any) -> str:
        return str(folder_of(configure_downstream(run, task, **options)))

    assert folder("particles", "fp-hard", layout="random", seed=3) == "particles/downstream/fp-hard-random-s3"
    assert folder("particles", "seq-hard", layout=22, seeds=3) == "particles/downstream/seq-hard-22-s0-2"
    assert folder("gunner", "lim") == "gunner/downstream/lim-centre-s0"
    assert folder("gunner", "lim", skill_seed=6) == "gunner/downstream/lim-centre-s0-skills6"
    assert folder(None, "lim", flat=True) == "runs/flat-gunner-lim-centre-s0"


# --- from end to end --------------------------------------------------------------------------------------------------

SMALL = (
    *("--hidden", 8, "--batch-size", 8, "--gradient-steps", 2, "--eval-every", 4, "--eval-episodes", 3),
    *("--episodes", 10, "--num-envs", 1),
)
CASES = {  # name -> environment, task, method, layout, steps of an episode, bound, options besides
    "gunner": ("gunner", "gunner-lim", "susd", "centre", 1000, 173.2, ("--seeds", 2)),
    "particles": ("multi_particle", "multi_particle-seq-easy", "susd", "1", 50, 56.2, ("--seeds", 2)),
    "choices": ("gunner", "gunner-unlim", "dusdi", "3", 1000, 173.2, ("--seeds", 2, "--layout", 3)),
    "flat": ("multi_particle", "multi_particle-fp-easy", "flat", "random", 50, 19.1, ("--flat", "--layout", "random")),
}


@dataclass(frozen=True)
class Outcome:
    """What one command left and printed."""

    folder: Path
    printed: str
    shown: str


@pytest.fixture(scope="module")
def outcomes(
    tmp_path_factory: pytest.TempPathFactory, child_environment: dict[str, str], trained: Trained
) -> tuple[Command, dict[str, Outcome]]:
    """All cases, two at a time: most of it is compiling."""
    susd = Command(tmp_path_factory.mktemp("downstream"), child_environment)

    def run(name: str) -> Outcome:
        env, task, method, layout, _, _, options = CASES[name]
        source: tuple[str, ...] = (name,)
        if method == "flat":
            folder, source = susd.folder / "runs" / f"flat-{task}-{layout}-s0", ()
        else:
            folder = susd.folder / name / "downstream" / f"{task.partition('-')[2]}-{layout}-s0-1"
            if method == "susd":
                shutil.copytree(trained(env, "--epochs", 3), susd.folder / name)
            else:  # it refuses a size of the density model, which it does not have
                place = TINY.index("--density-hidden")
                tiny = (*TINY[:place], *TINY[place + 2 :])
                susd("train", env, "--method", method, "--run", name, *tiny, "--no-eval", "--epochs", 3)
        done = susd("downstream", *source, "--task", task, *SMALL, *options)
        return Outcome(folder, done.stdout, done.stderr)

    with ThreadPoolExecutor(2) as pool:
        return susd, dict(zip(CASES, pool.map(run, CASES), strict=True))


def read(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    written = {"config.json", "metrics.jsonl", "curve.png", "episode.mp4", "result.json", ".lock"}
    assert {path.name for path in folder.iterdir()} == written
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    result = json.loads((folder / "result.json").read_text())
    assert json.loads((folder / "config.json").read_text()) == result["config"]
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    return result, rows


def numbers(result: dict[str, Any]) -> dict[str, Any]:
    """What must be the same whenever it is computed."""
    scores, sizes = ("final", "last_quarter", "bound", "expert", "do_nothing", "curve"), ("env_steps", "gradient_steps")
    return {name: result[name] for name in (*scores, *sizes, "config_hash")}


@pytest.mark.parametrize("name", CASES)
def test_the_command(outcomes: tuple[Command, dict[str, Outcome]], name: str) -> None:
    _, task, method, layout, steps, bound, _ = CASES[name]
    susd, done = outcomes[0], outcomes[1][name]
    result, rows = read(done.folder)
    seeds = [0] if name == "flat" else [0, 1]
    assert [(row["episode"], row["seed"]) for row in rows] == [(e, s) for e in (0, 4, 8, 10) for s in seeds]
    assert rows[-1]["env_steps"] == result["env_steps"] == 10 * steps
    assert rows[-1]["gradient_steps"] == result["gradient_steps"] == 20  # a tenth of ten episodes warms up: the first
    assert {"critic_loss", "entropy", "alpha", "training_return"} <= set(rows[-1])
    assert "critic_loss" not in rows[0]
    assert result["curve"]["episode"] == [0, 4, 8, 10]
    for kind in ("discounted", "undiscounted"):
        curve = np.array(result["curve"][kind])
        assert curve.tolist() == [[row[kind] for row in rows if row["seed"] == seed] for seed in seeds]
        assert result["final"][kind] == curve[:, -1].tolist()
        np.testing.assert_allclose(result["last_quarter"][kind], curve[:, 2:].mean(1))
        assert np.all(curve <= result["bound"][kind])
        assert result["do_nothing"][kind] < result["expert"][kind] <= result["bound"][kind]
    assert result["bound"]["discounted"] == pytest.approx(bound, abs=0.05)
    assert result["expert"]["discounted"] > 0.8 * bound
    assert (result["task"], result["method"], result["layout"], result["seeds"]) == (task, method, layout, seeds)
    assert result["test_episodes"] == (3 if name == "flat" else 1)
    assert {"versions", "commit", "command", "config_hash"} <= set(result["meta"])
    assert result["meta"]["config_hash"] == result["config_hash"]
    who = "no skills, seed 0"
    if method == "flat":
        assert result["skills"] is None
    else:
        assert (result["skills"]["config"]["method"], result["skills"]["epoch"]) == (method, 3)
        assert (result["skills"]["config"]["prior"] == "one_hot") == (method == "dusdi")
        who = f"skills of {name} ({method}, seed 0, epoch 3), seeds 0 to 1"
    for part in ("bound", "scripted expert", "do nothing", "learned", f"{result['expert']['discounted']:.2f}"):
        assert part in done.printed
    assert str(done.folder.relative_to(susd.folder) / "curve.png") in done.printed
    for part in (f"{task}, layout {layout}, {who}", "10/10", "left", "episodes/s"):
        assert part in done.shown


def test_a_finished_result_is_kept_and_an_unfinished_one_begun_anew(outcomes: tuple[Command, dict[str, Outcome]]) -> None:
    """The same command gives the same numbers, and so does a seed that runs alone."""
    susd, folder = outcomes[0], outcomes[1]["particles"].folder
    result = read(folder)[0]
    command = ("downstream", "particles", "--task", "seq-easy", *SMALL)
    with pytest.raises(UserError, match=r"already holds a finished result; .* run anew with --force"):
        package.downstream(susd.folder / "particles", "seq-easy", seeds=2)
    (folder / "result.json").unlink()
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"episode": 4')
    again = susd(*command, "--seeds", 2, "--json")
    assert numbers(json.loads(again.stdout)) == numbers(read(folder)[0]) == numbers(result)
    assert susd(*command, "--seed", 1, "--quiet", "--out", "alone").stdout == "alone\n"
    assert read(susd.folder / "alone")[0]["curve"]["discounted"] == result["curve"]["discounted"][1:]


def test_the_skills_are_those_of_the_agent(trained: Trained) -> None:
    """Mean actions of the run's last checkpoint, under the projected decision."""
    run = trained("gunner", "--epochs", 3)
    trial = TaskRun.build(configure_downstream(run, "lim", layout=3))
    agent = package.load(run)
    obs, decision = np.linspace(0, 1, 18, dtype=np.float32), np.linspace(-0.9, 0.8, 6, dtype=np.float32)
    skill = agent.trainer.learner.method.skills.project(jnp.asarray(decision))
    assert agent.trainer.learner.method.skills.prior == "factor_sphere"
    action = trial.controller.interface.act(trial.frozen, jnp.asarray(obs), jnp.asarray(decision))
    np.testing.assert_allclose(action, agent.act(obs, skill), rtol=1e-5, atol=1e-6)
    assert np.abs(action).max() > 1e-4


def test_the_flat_learner_looks_as_far_ahead_as_the_hierarchy() -> None:
    flat = TaskRun.build(configure_downstream(None, "seq-easy", flat=True)).controller
    assert flat.sac.discount**5 == pytest.approx(0.99)
    assert (flat.sac.inputs, flat.sac.actions, flat.decisions) == (81, 20, 50)
    assert (flat.warmup, flat.capacity, flat.gradient_steps, flat.num_envs) == (999, 10_000, 2, 20)
    gunner = TaskRun.build(configure_downstream(None, "lim", flat=True, episodes=5000, layout="3"))
    assert gunner.controller.capacity == 1000  # a million steps
    assert gunner.controller.warmup == 99
    np.testing.assert_allclose(gunner.start.agent, 0.8 * 4.99, rtol=1e-6)
    np.testing.assert_array_equal(
        TaskRun.build(configure_downstream(None, "seq-easy", flat=True, layout="22")).start.position,
        make("multi_particle", layout_seed=22).reset(KEY).position,
    )
