"""Exported policies act as the agent does, for every kind of method, prior and network, without JAX."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from conftest import call, refused
from reference import random_like
from susd.config import configure
from susd.envs.base import own_dimensions
from susd.learner import Learner
from susd.methods.base import HasNetwork
from susd.methods.registry import methods
from susd.share import export as exporter
from susd.share import onnx_graph
from susd.share.export import exported_of, write_numpy
from susd.share.policy import Policy
from susd.training.agent import Agent, load
from susd.training.trainer import Trainer, build_env

TINY = {"hidden": 16, "phi_hidden": 12, "buffer_size": 400, "warmup": 1}
CASES: dict[str, dict[str, Any]] = {
    "susd": {},
    "own": {"env": "multi_particle", "phi_input": "own"},
    "metra-own": {"method": "metra", "phi_input": "own"},
    "paper": {"preset": "paper", "share_agent": "all"},  # tanh, skills that are not scaled
    "susd-wf": {"method": "susd-wf"},
    "one_hot": {"method": "susd-discrete", "skill_dim": 3},
    "factor_ball": {"method": "susd-paced"},
    "gaussian": {"prior": "gaussian", "factors": "4", "layers": 3},
    "metra": {"method": "metra", "skill_dim": 5},
    "lsd": {"method": "lsd"},
    "csd": {"method": "csd"},
    "diayn": {"method": "diayn"},
    "diayn-discrete": {"method": "diayn-discrete", "skill_dim": 4},
    "dusdi": {"method": "dusdi"},
}


def agent_of(case: dict[str, Any]) -> Agent:
    """An agent with random weights."""
    options = {"env": "gunner", **TINY, **case}
    config = configure(options.pop("env"), options.pop("preset", "quick"), **options)
    env = build_env(config)
    own = own_dimensions(env.spec.factorization, range(2, env.spec.obs_size, 3))
    learner = Learner.from_config(config, dataclasses.replace(env.spec, own=own))
    weights = random_like(learner.init, scale=0.3)
    return Agent(Trainer(config, env, learner), weights.sac.actor, weights.params, seed=0, epoch=0)


def inputs_of(agent: Agent, count: int = 7) -> tuple[np.ndarray, np.ndarray]:
    obs = np.random.default_rng(1).normal(size=(count, agent.trainer.env.spec.obs_size)).astype(np.float32)
    return obs, agent.sample_skill(seed=2, count=count)


@pytest.mark.parametrize("case", CASES)
def test_exported_policies_act_alike(case: str, tmp_path: Path) -> None:
    agent = agent_of(CASES[case])
    obs, skill = inputs_of(agent)
    action, phi = agent.act(obs, skill), agent.encode(obs)
    exported = exported_of(agent)

    write_numpy(exported, tmp_path)
    policy = Policy(str(tmp_path / "policy.npz"))
    np.testing.assert_allclose(policy.act(obs, skill), action, atol=1e-5)
    np.testing.assert_allclose(policy.encode(obs), phi, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(policy.act(obs[0], skill[0]), action[0], atol=1e-5)  # a single one
    np.testing.assert_allclose(policy.act(obs, skill[0])[0], action[0], atol=1e-5)  # one skill for all
    np.testing.assert_allclose(policy.encode(obs[0]), phi[0], rtol=1e-5, atol=1e-5)

    onnx_graph.write(exported, tmp_path)
    run = {name: ReferenceEvaluator(str(tmp_path / f"{name}.onnx")) for name in ("policy", "phi")}
    np.testing.assert_allclose(run["policy"].run(["action"], {"obs": obs, "skill": skill})[0], action, atol=1e-5)
    np.testing.assert_allclose(run["phi"].run(None, {"obs": obs})[0], phi, rtol=1e-5, atol=1e-5)
    info = {prop.key: prop.value for prop in onnx.load(tmp_path / "policy.onnx").metadata_props}
    assert json.loads(info["susd"]) == policy.info
    assert len(policy.info["skill"]["parts"]) * policy.info["skill"]["dim"] == skill.shape[1]


def test_every_method_is_covered() -> None:
    methods_here = {case.get("method", "susd") for case in CASES.values()}
    built_in = {card.code for card in methods().values() if str(card.implementation).startswith("susd.")}
    assert built_in <= methods_here


def test_sampled_actions(tmp_path: Path) -> None:
    agent = agent_of({})
    obs, skill = (np.repeat(x, 4000, axis=0) for x in inputs_of(agent, 1))
    write_numpy(exported_of(agent), tmp_path)
    actions = Policy(str(tmp_path / "policy.npz")).act(obs, skill, np.random.default_rng(0))
    ours = np.arctanh(np.clip(actions, -0.999999, 0.999999))
    mean, log_std = agent.actor(agent.trainer.learner.policy_input(obs[:1], skill[:1]))
    np.testing.assert_allclose(np.median(ours, axis=0), mean[0], atol=0.1 * np.exp(log_std[0]).max())
    onnx_graph.write(exported_of(agent), tmp_path)
    found = ReferenceEvaluator(str(tmp_path / "policy.onnx")).run(["mean", "log_std"], {"obs": obs[:1], "skill": skill[:1]})
    np.testing.assert_allclose(found, [mean, log_std], atol=1e-5)


def test_log_std_is_clipped(tmp_path: Path) -> None:
    agent = agent_of({})
    heads = jax.tree.map(lambda x: 100 * x, agent.actor.heads)
    agent = Agent(agent.trainer, type(agent.actor)(agent.actor.trunk, heads, -1.0, 2.0), agent.params, 0, 0)
    onnx_graph.write(exported_of(agent), tmp_path)
    obs, skill = inputs_of(agent)
    (found,) = ReferenceEvaluator(str(tmp_path / "policy.onnx")).run(["log_std"], {"obs": obs, "skill": skill})
    assert (found.min(), found.max()) == (-1.0, 2.0)


def test_bfloat16_is_exported_with_32_bits(tmp_path: Path) -> None:
    agent = agent_of({"precision": "bfloat16"})
    obs, skill = inputs_of(agent)
    write_numpy(exported_of(agent), tmp_path)
    policy = Policy(str(tmp_path / "policy.npz"))
    np.testing.assert_allclose(policy.act(obs, skill), agent.act(obs, skill), atol=0.05)  # within the rounding of bfloat16


def test_method_without_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A method of a user need not have one: then the policy is exported alone."""
    agent = agent_of({})
    monkeypatch.setattr(exporter, "HasNetwork", type("Never", (), {}))
    assert isinstance(agent.trainer.learner.method, HasNetwork)
    exported = exported_of(agent)
    obs, skill = inputs_of(agent)
    write_numpy(exported, tmp_path)
    np.testing.assert_allclose(Policy(str(tmp_path / "policy.npz")).act(obs, skill), agent.act(obs, skill), atol=1e-5)
    assert [path.name for path in onnx_graph.write(exported, tmp_path)] == ["policy.onnx"]


def test_command(trained: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained("gunner", "--epochs", 3)
    call("export", run, "--out", tmp_path, "--seed", 0)
    assert capsys.readouterr().out == f"{tmp_path}/policy.npz\n{tmp_path}/policy.py\n"
    agent = load(run)
    obs, skill = inputs_of(agent)
    np.savez(tmp_path / "in.npz", obs=obs, skill=skill)
    code = (
        "import sys, numpy as np; from policy import Policy; inputs = np.load('in.npz'); policy = Policy(); "
        "np.save('out.npy', policy.act(inputs['obs'], inputs['skill'])); sys.exit('jax' in sys.modules)"
    )
    child = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={"PATH": ""}, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), agent.act(obs, skill), atol=1e-5)
    call("export", run, "--out", tmp_path / "new", "--format", "onnx")
    assert capsys.readouterr().out == f"{tmp_path}/new/policy.onnx\n{tmp_path}/new/phi.onnx\n"
    assert "--format is 'torch'; choose one of numpy, onnx" in refused(capsys, "export", run, "--format", "torch")
    assert "has no seed 7" in refused(capsys, "export", run, "--seed", "7")


def test_missing_package(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    sentence = refused(capsys, "export", "nowhere", "--format", "onnx")
    assert sentence == "--format onnx needs a package that is missing: pip install 'susd[export]'"


def test_loader_is_short() -> None:
    text = exporter.LOADER.read_text()
    assert len(text.splitlines()) <= 40
    assert "susd." not in text.replace("`susd export`", "")
