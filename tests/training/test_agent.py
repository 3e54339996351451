"""A trained agent in Python: five lines from training to acting."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest

import susd as package
from conftest import Command, call_train, checksum, refused
from susd.runs import checkpoint
from susd.runs.status import status
from susd.training.agent import Agent, load_all

Trained = Callable[..., Path]
TWO = ("--seeds", 2, "--epochs", 30)


@pytest.fixture(scope="module")
def agent(trained: Trained) -> Agent:
    return package.load(trained("gunner", *TWO))


def observations(count: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(0, 1, (count, 18)).astype(np.float32)


FIVE_LINES = """
import susd
run = susd.train("gunner", run="five", epochs=3, hidden=8, phi_hidden=8, density_hidden=8, gradient_steps=2, batch_size=8,
                 episodes=2, horizon=10, buffer_size=2000, warmup=60, quiet=True)
agent = susd.load(run)
skill = agent.sample_skill(seed=1)
obs = [0.5] * 18
print(agent.act(obs, skill).shape, agent.encode(obs).shape, skill.shape, run)
"""


@pytest.mark.slow
def test_five_lines_of_python(susd: Command, trained: Trained, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FIVE_LINES], cwd=tmp_path, env=susd.environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "(6,) (6,) (6,) five\n"
    assert checksum(tmp_path / "five") == checksum(trained("gunner", "--epochs", 3))  # the same run as from the shell


@pytest.mark.slow
def test_attributes(agent: Agent) -> None:
    assert (agent.seed, agent.epoch) == (0, 30)
    assert agent.factorization.names == ("agent", "ammo", "target")


def test_skills_are_sampled_from_the_prior(agent: Agent) -> None:
    skills = agent.sample_skill(seed=4, count=5)
    assert skills.shape == (5, 6)
    np.testing.assert_allclose(np.linalg.norm(skills.reshape(5, 3, 2), axis=-1), 1.0, rtol=1e-5)  # quick: per-factor sphere
    assert np.array_equal(agent.sample_skill(seed=4, count=5), skills)
    assert not np.array_equal(agent.sample_skill(seed=5, count=5), skills)
    assert agent.sample_skill().shape == (6,)


def test_single_and_batch_agree(agent: Agent) -> None:
    obs, skills = observations(4), agent.sample_skill(count=4)
    batch = agent.act(obs, skills)
    assert batch.shape == (4, 6)
    for index in range(4):
        single = agent.act(obs[index], skills[index])
        assert single.shape == (6,)
        np.testing.assert_allclose(single, batch[index], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(agent.act(obs, skills[0])[2], agent.act(obs[2], skills[0]), rtol=1e-5, atol=1e-6)
    codes = agent.encode(obs)
    assert codes.shape == (4, 6)
    np.testing.assert_allclose(agent.encode(obs[1]), codes[1], rtol=1e-5, atol=1e-6)
    assert not np.allclose(codes[0], codes[1])


def test_mean_and_sampled_actions(agent: Agent) -> None:
    obs, skill = observations(1)[0], agent.sample_skill()
    mean = agent.act(obs, skill)
    assert np.array_equal(agent.act(obs, skill), mean)
    sampled = agent.act(obs, skill, seed=0)
    assert np.array_equal(agent.act(obs, skill, seed=0), sampled)
    assert not np.allclose(sampled, mean)
    assert not np.allclose(agent.act(obs, skill, seed=1), sampled)
    many = agent.act(np.tile(obs, (4000, 1)), skill, seed=2)
    assert np.all(np.abs(many) <= 1.0)
    # tanh is monotone, so that the median of the samples is the action at the mean of the normal
    np.testing.assert_allclose(np.median(many, axis=0), mean, atol=0.08)


def test_actions_depend_on_skill_and_state(agent: Agent) -> None:
    obs, skills = observations(2), agent.sample_skill(count=2)
    assert not np.allclose(agent.act(obs[0], skills[0]), agent.act(obs[0], skills[1]))
    assert not np.allclose(agent.act(obs[0], skills[0]), agent.act(obs[1], skills[0]))


def test_seeds_by_number(trained: Trained) -> None:
    run = trained("gunner", *TWO)
    first, second = package.load(run, seed=0), package.load(run, seed=1)
    assert (first.seed, second.seed) == (0, 1)
    assert [one.seed for one in load_all(run)] == [0, 1]
    obs, skill = observations(1)[0], first.sample_skill()
    assert not np.allclose(first.act(obs, skill), second.act(obs, skill))
    with pytest.raises(package.UserError, match=r"run has no seed 2; it has 0, 1"):
        package.load(run, seed=2)


@pytest.mark.parametrize("shape", [(17,), (4, 19), ()])
def test_observation_of_wrong_size(agent: Agent, shape: tuple[int, ...]) -> None:
    for use in (agent.encode, lambda obs: agent.act(obs, agent.sample_skill())):
        with pytest.raises(package.UserError, match=r"the observation has the shape .* must have the length 18"):
            use(np.zeros(shape))


def test_skill_of_wrong_size(agent: Agent) -> None:
    with pytest.raises(package.UserError, match=r"the skill has the shape \(5,\); its last axis must have the length 6"):
        agent.act(observations(1)[0], np.zeros(5))


def test_missing_run(tmp_path: Path) -> None:
    with pytest.raises(package.UserError, match="there is no run folder"):
        package.load(tmp_path / "nothing")


@pytest.mark.slow
def test_damaged_checkpoint_is_skipped(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = trained("gunner", "--epochs", 8, "--eval-every", 3, "--checkpoint-every", 2, "--keep-checkpoints", 4)
    run = shutil.copytree(whole, tmp_path / "run")
    newest = run / "checkpoints" / "step-00000008.ckpt"
    newest.write_bytes(newest.read_bytes()[:-1])
    assert package.load(run).epoch == 6
    assert capsys.readouterr().err.startswith(f"skipped: checkpoint {newest} is incomplete")


def test_replay_buffer_is_not_read(trained: Trained, tmp_path: Path) -> None:
    """Damage of the replay buffer is not detected by loading, unlike damage of a weight; resuming detects both."""
    run = Path(shutil.copytree(trained("gunner", "--epochs", 3), tmp_path / "run"))
    path, *older = checkpoint.checkpoints(run / "checkpoints")
    for other in older:
        other.unlink()
    content, leaves = path.read_bytes(), {leaf["path"]: leaf for leaf in checkpoint.inspect(path)["leaves"]}
    start = len(content) - max(leaf.end for leaf in checkpoint._table(checkpoint.inspect(path)))

    def damage(leaf: str) -> None:
        broken = bytearray(content)
        broken[start + leaves[leaf]["offset"]] ^= 1
        path.write_bytes(broken)

    damage(".replay.data.obs")
    assert package.load(run).epoch == 3
    with pytest.raises(checkpoint.DamagedCheckpointError, match=r"leaf \.replay\.data\.obs"):
        checkpoint.digest_of(path)
    damage(next(name for name in leaves if name.startswith(".learner.sac.actor")))
    with pytest.raises(package.UserError, match=r"checksum of leaf \.learner\.sac\.actor.* does not match"):
        package.load(run)


def test_other_config_is_refused(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(shutil.copytree(trained("gunner", "--epochs", 3), tmp_path / "run"))
    before = {path.name for path in run.iterdir()}
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"discount": 0.123}))
    message = r"config\.json is not the config that step-00000003\.ckpt was saved with: discount is 0\.123, but was 0\.5;"
    for read in (package.load, status, lambda path: package.report(path)):
        with pytest.raises(package.UserError, match=message):
            read(run)
    for command in (
        ("evaluate", run, "control"),
        ("downstream", run, "--task", "lim"),
        ("train", "--run", run, "--resume"),
    ):
        assert re.search(message, refused(capsys, *command))
    assert {path.name for path in run.iterdir()} == before


@pytest.mark.slow
def test_untrained_actor_is_that_of_the_first_checkpoint(tmp_path: Path) -> None:
    call_train("gunner", tmp_path / "run", "--epochs", 3, "--checkpoint-every", 1, "--keep-checkpoints", 9)
    agent = package.load(tmp_path / "run")
    for path in checkpoint.checkpoints(tmp_path / "run" / "checkpoints")[:-1]:
        path.unlink()
    first = package.load(tmp_path / "run")
    assert (agent.epoch, first.epoch) == (3, 0)
    for one, other in zip(jax.tree.leaves(agent.untrained_actor()), jax.tree.leaves(first.actor), strict=True):
        np.testing.assert_array_equal(one, other)
    assert any((a != b).any() for a, b in zip(jax.tree.leaves(agent.actor), jax.tree.leaves(first.actor), strict=True))
