"""A policy and its embedding as ONNX graphs, built from the weights. Needs the package `onnx`."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from susd.errors import UserError
from susd.runs.atomic import replace_file

if TYPE_CHECKING:
    from susd.share.export import Exported, Layers

OPSET, IR_VERSION = 17, 8  # old enough for the runtimes in use
OPERATORS = {"relu": "Relu", "tanh": "Tanh"}


def check() -> None:
    """Refuse if the package is missing."""
    if importlib.util.find_spec("onnx") is None:
        raise UserError("--format onnx needs a package that is missing: pip install 'susd[export]'")


def write(exported: Exported, folder: Path) -> list[Path]:
    """Write policy.onnx and, where the method has a network to export, phi.onnx."""
    models = {"policy": _policy(exported)}
    if exported.phi is not None:
        models["phi"] = _phi(exported, exported.phi)
    paths = []
    for name, model in models.items():
        path = folder / f"{name}.onnx"
        with replace_file(path) as temporary:
            temporary.write_bytes(model.SerializeToString())
        paths.append(path)
    return paths


class _Graph:
    """Nodes and constants in the order in which they are added; every node has one output, which is named after it."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, value: np.ndarray) -> str:
        import onnx

        self.constants.append(onnx.numpy_helper.from_array(value, name))
        return name

    def add(self, operator: str, name: str, *inputs: str, **attributes: Any) -> str:
        import onnx

        self.nodes.append(onnx.helper.make_node(operator, list(inputs), [name], name, **attributes))
        return name

    def layers(self, x: str, layers: Layers) -> str:
        """A multilayer perceptron."""
        last = len(layers.weights) - 1
        for layer, (weight, bias) in enumerate(zip(layers.weights, layers.biases, strict=True)):
            product = self.add("MatMul", f"product{layer}", x, self.constant(f"weight{layer}", weight))
            x = self.add("Add", f"sum{layer}", product, self.constant(f"bias{layer}", bias))
            x = x if layer == last else self.add(OPERATORS[layers.activation], f"hidden{layer}", x)
        return x

    def model(self, name: str, inputs: dict[str, int], outputs: dict[str, int], info: dict[str, Any]) -> Any:
        """The checked model, whose inputs and outputs are [batch, size] arrays of 32-bit floats."""
        import onnx

        def values(sizes: dict[str, int]) -> list[Any]:
            kind = onnx.TensorProto.FLOAT
            return [onnx.helper.make_tensor_value_info(name, kind, ["batch", size]) for name, size in sizes.items()]

        graph = onnx.helper.make_graph(self.nodes, name, values(inputs), values(outputs), self.constants)
        opset = onnx.helper.make_opsetid("", OPSET)
        model = onnx.helper.make_model(graph, producer_name="susd", opset_imports=[opset], ir_version=IR_VERSION)
        onnx.helper.set_model_props(model, {"susd": json.dumps(info)})
        onnx.checker.check_model(model, full_check=True)
        return model


def _policy(exported: Exported) -> Any:
    graph, info = _Graph(), exported.info
    actions, skill = info["action_size"], len(info["skill"]["parts"]) * info["skill"]["dim"]
    heads = graph.layers(graph.add("Concat", "input", "obs", "skill", axis=-1), exported.policy)
    sizes = graph.constant("sizes", np.array([actions, actions]))
    import onnx

    graph.nodes.append(onnx.helper.make_node("Split", [heads, sizes], ["mean", "raw_log_std"], "split", axis=-1))
    low, high = (graph.constant(f"log_std_{i}", np.array(x, np.float32)) for i, x in enumerate(info["log_std"]))
    graph.add("Clip", "log_std", "raw_log_std", low, high)
    graph.add("Tanh", "action", "mean")
    outputs = dict.fromkeys(("action", "mean", "log_std"), actions)
    return graph.model("policy", {"obs": info["obs_size"], "skill": skill}, outputs, info)


def _phi(exported: Exported, phi: Layers) -> Any:
    graph, (parts, widest) = _Graph(), exported.inputs.shape
    gathered = graph.add("Gather", "gathered", "obs", graph.constant("indices", exported.inputs.reshape(-1)), axis=1)
    shape = graph.constant("shape", np.array([-1, parts, widest]))
    inputs = graph.add("Transpose", "inputs", graph.add("Reshape", "split", gathered, shape), perm=[1, 0, 2])
    outputs = graph.add("Transpose", "outputs", graph.layers(inputs, phi), perm=[1, 0, 2])
    size = parts * phi.biases[-1].shape[-1]
    graph.add("Reshape", "phi", outputs, graph.constant("flat", np.array([-1, size])))
    return graph.model("phi", {"obs": exported.info["obs_size"]}, {"phi": size}, exported.info)
