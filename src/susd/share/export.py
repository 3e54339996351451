"""`susd export RUN`: the policy and the embedding phi without JAX, as arrays with a short loader or as ONNX graphs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from susd.envs.base import close
from susd.errors import UserError, shown
from susd.methods.base import HasNetwork
from susd.networks import FactoredMLP, padded
from susd.paths import user_path
from susd.plugins import Trust
from susd.runs.atomic import replace_file, write_text
from susd.runs.find import writable_run
from susd.training.agent import Agent, load, part_names

FORMATS = ("numpy", "onnx")
LOADER = Path(__file__).with_name("policy.py")


@dataclass(frozen=True)
class Layers:
    """A multilayer perceptron as arrays: weights [.., in, out], biases [.., 1, out] or [out]."""

    weights: list[np.ndarray]
    biases: list[np.ndarray]
    activation: str

    def arrays(self, name: str) -> dict[str, Any]:
        """By name, for a file."""
        pairs = (("weight", self.weights), ("bias", self.biases))
        return {f"{name}_{kind}{layer}": array for kind, arrays in pairs for layer, array in enumerate(arrays)}


@dataclass(frozen=True)
class Exported:
    """What a policy consists of: the networks, the inputs [N, widest] of each part of phi, and what they mean."""

    policy: Layers
    phi: Layers | None
    inputs: np.ndarray
    info: dict[str, Any]


def export(
    run: str | Path,
    format: str = "numpy",
    out: str | Path | None = None,
    seed: int | None = None,
    trust: Trust = False,
) -> list[Path]:
    """Write the policy of a run, and phi, as files that need no JAX to RUN/export, or to `out`; returns their paths.

    `numpy`: policy.npz and policy.py, which loads it; `onnx`: policy.onnx and phi.onnx. `seed` is one of the run's,
    `trust` that of `susd.load`.
    """
    if format not in FORMATS:
        raise UserError(f"--format is {shown(format)}; choose one of {', '.join(FORMATS)}")
    if format == "onnx":
        from susd.share import onnx_graph

        onnx_graph.check()
    agent = load(run, seed, trust=trust)
    close(agent.trainer.env)
    exported = exported_of(agent)
    folder = user_path("--out", out) if out is not None else writable_run(run) / "export"
    return onnx_graph.write(exported, folder) if format == "onnx" else write_numpy(exported, folder)


def exported_of(agent: Agent) -> Exported:
    """The networks of an agent. The scale of the skill is in the weights, and all arrays have 32 bits."""
    trainer, learner = agent.trainer, agent.trainer.learner
    spec, space = trainer.env.spec, learner.method.skills
    trunk, heads = agent.actor.trunk, agent.actor.heads
    weights = [np.array(weight, np.float32) for weight in (*trunk.weights, *heads.weights)]
    weights[0][spec.obs_size :] *= learner.skill_input_scale
    biases = [np.array(bias, np.float32) for bias in (*trunk.biases, *heads.biases)]
    policy = Layers(weights, biases, trunk.activation)
    phi, inputs = None, np.zeros((0, 0), np.int64)
    if isinstance(learner.method, HasNetwork):
        phi, inputs = _phi(learner.method.network(agent.params))
    info = {
        "env": trainer.config.env,
        "method": trainer.config.method,
        "seed": agent.seed,
        "epoch": agent.epoch,
        "obs_size": spec.obs_size,
        "action_size": spec.action_size,
        "factors": spec.factorization.to_json(),
        "skill": {"prior": space.prior, "parts": list(part_names(trainer)), "dim": space.dim},
        "log_std": [agent.actor.min_log_std, agent.actor.max_log_std],
        "layers": {"policy": len(policy.weights)} | ({"phi": len(phi.weights)} if phi else {}),
        "activation": {"policy": policy.activation} | ({"phi": phi.activation} if phi else {}),
    }
    return Exported(policy, phi, inputs, info)


def _phi(network: FactoredMLP) -> tuple[Layers, np.ndarray]:
    """The networks of all parts, and their inputs; where a part has fewer inputs than others, their weights are zero."""
    gather, real = padded(network.indices)
    weights = [np.array(weight, np.float32) for weight in network.mlp.weights]
    weights[0] *= real[:, :, None]
    biases = [np.array(bias, np.float32)[:, None, :] for bias in network.mlp.biases]
    return Layers(weights, biases, network.mlp.activation), gather.astype(np.int64)


def write_numpy(exported: Exported, folder: Path) -> list[Path]:
    """Write policy.npz, and the loader beside it."""
    arrays: dict[str, Any] = exported.policy.arrays("policy")
    if exported.phi is not None:
        arrays |= exported.phi.arrays("phi") | {"phi_inputs": exported.inputs}
    path, loader = folder / "policy.npz", folder / "policy.py"
    with replace_file(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, info=np.array(json.dumps(exported.info)), **arrays)
    write_text(loader, LOADER.read_text(encoding="utf-8"))
    return [path, loader]
