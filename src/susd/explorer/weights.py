"""The actor and phi of an agent as flat float32 values, with a description that other programs can rebuild them from."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np

from susd.downstream.interface import GoalActions, SkillActions
from susd.downstream.policy import Restored
from susd.methods.base import HasNetwork
from susd.networks import MLP, Actor
from susd.training.agent import Agent


@dataclass(frozen=True)
class Network:
    """A multilayer perceptron: sizes of its layers, weights [in, out] and biases in turn, and the inputs it takes."""

    sizes: tuple[int, ...]
    values: np.ndarray
    activation: str
    precision: str
    inputs: tuple[int, ...]

    @classmethod
    def of(cls, layers: Sequence[tuple[Any, Any]], activation: str, precision: str, inputs: Sequence[int]) -> Network:
        """From pairs of weights and biases."""
        pairs = [(np.asarray(weight, np.float32), np.asarray(bias, np.float32)) for weight, bias in layers]
        sizes = (len(inputs), *(len(bias) for _, bias in pairs))
        values = np.concatenate([array.ravel() for pair in pairs for array in pair])
        return cls(sizes, values, activation, precision, tuple(inputs))

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """[B, S] to [B, out], in numpy."""
        x = np.asarray(obs, np.float32)[:, list(self.inputs)]
        for number, (weight, bias) in enumerate(self.layers):
            if number:
                x = np.tanh(x) if self.activation == "tanh" else np.maximum(x, 0.0)
            x = (_rounded(x) @ weight if self.precision == "bfloat16" else x @ weight) + bias
        return x

    @cached_property
    def layers(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Weights and biases of every layer; weights are rounded as the precision demands."""
        found, at = [], 0
        for fan_in, fan_out in pairwise(self.sizes):
            weight = self.values[at : at + fan_in * fan_out].reshape(fan_in, fan_out)
            at += fan_in * fan_out
            found.append((_rounded(weight) if self.precision == "bfloat16" else weight, self.values[at : at + fan_out]))
            at += fan_out
        return found

    def to_json(self) -> dict[str, Any]:
        """Everything but the values."""
        shape = {"sizes": list(self.sizes), "activation": self.activation, "precision": self.precision}
        return {**shape, "inputs": list(self.inputs)}


def _rounded(values: np.ndarray) -> np.ndarray:
    """To bfloat16 and back."""
    return values.astype(ml_dtypes.bfloat16).astype(np.float32)


def encode_floats(values: np.ndarray) -> str:
    """Float32 values as base64, little-endian."""
    return base64.b64encode(np.asarray(values, "<f4").tobytes()).decode()


def actor_network(actor: Actor) -> Network:
    """From the input of an actor to mean and log-std of the action before the tanh."""
    layers = [*zip(actor.trunk.weights, actor.trunk.biases, strict=True)]
    layers += zip(actor.heads.weights, actor.heads.biases, strict=True)
    return Network.of(layers, actor.trunk.activation, actor.trunk.precision, range(actor.trunk.weights[0].shape[0]))


def actor_to_json(actor: Actor) -> dict[str, Any]:
    """An actor: its network, the limits of its log-std, and its weights."""
    return {"minLogStd": actor.min_log_std, "maxLogStd": actor.max_log_std, **_network_to_json(actor_network(actor))}


def policy_to_json(policy: Restored) -> dict[str, Any]:
    """A high-level policy: what its actions mean, how long they last, and its networks."""
    interface, goals, (actor, views) = policy.interface, policy.goals, (policy.actor.actor, policy.actor.views)
    kind = "skill" if isinstance(interface, SkillActions) else "goal" if isinstance(interface, GoalActions) else "flat"
    scale = None if views is None else {name: np.asarray(getattr(views, name)).tolist() for name in ("mean", "std")}
    box = goals.to_json() if goals else None
    found = {"interface": kind, "duration": interface.duration, "goals": box, "views": scale}
    if isinstance(actor, Actor):
        return found | {"actor": actor_to_json(actor), "tokens": None, "embed": None}
    tokens, embed = {name: getattr(actor.tokens, name) for name in ("own", "shared", "counts")}, None
    if actor.embed is not None:
        layers = list(zip(actor.embed.weights, actor.embed.biases, strict=True))
        inputs = range(actor.embed.weights[0].shape[0])
        embed = _network_to_json(Network.of(layers, actor.embed.activation, actor.embed.precision, inputs))
    return found | {"actor": actor_to_json(actor.body), "tokens": tokens, "embed": embed}


def _network_to_json(network: Network) -> dict[str, Any]:
    """A network of all its inputs."""
    shape = {name: value for name, value in network.to_json().items() if name != "inputs"}
    return {"network": shape, "values": encode_floats(network.values)}


def phi_to_json(agent: Agent) -> dict[str, Any] | None:
    """phi as one network per part of the skill; None where the method has no `network`."""
    method = agent.trainer.learner.method
    if not isinstance(method, HasNetwork):
        return None
    found = method.network(agent.params)
    networks = [_member(found.mlp, number, inputs) for number, inputs in enumerate(found.indices)]
    values = np.concatenate([network.values for network in networks])
    return {"networks": [network.to_json() for network in networks], "values": encode_floats(values)}


def _member(ensemble: MLP, index: int, inputs: Sequence[int]) -> Network:
    """One network of an ensemble, without the inputs that fill it up."""
    layers = [(weight[index], bias[index]) for weight, bias in zip(ensemble.weights, ensemble.biases, strict=True)]
    layers[0] = (layers[0][0][: len(inputs)], layers[0][1])
    return Network.of(layers, ensemble.activation, ensemble.precision, inputs)
