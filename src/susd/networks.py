"""Networks as pytrees of arrays: MLP (also batched ensembles), factored MLP, tanh-Gaussian actor, density model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh}
CACHE = 700_000  # bytes of a layer of phi that are computed at once: a core's cache holds two or three such layers
LOG_2PI = math.log(2 * math.pi)


def _dot(x: jax.Array, weight: jax.Array, precision: str) -> jax.Array:
    if precision == "bfloat16":  # bf16 operands, float32 accumulation
        return jnp.matmul(x.astype(jnp.bfloat16), weight.astype(jnp.bfloat16), preferred_element_type=jnp.float32)
    # The default of recent GPUs and TPUs is less than float32, which differences of neighbouring embeddings do not survive.
    return jnp.matmul(x, weight, precision="highest" if precision == "float32" else "default")


def _transposed(x: jax.Array) -> jax.Array:
    return jnp.swapaxes(x, -1, -2)


@jax.custom_vjp
def _columns_dot(weight: jax.Array, x: jax.Array) -> jax.Array:
    """weight^T x for batches in columns: [in, out] and [in, B] to [out, B]; weight, or both, may be an ensemble's.

    On CPUs a product is slow where it contracts the first axis of its left side, as the gradient of a weight does in rows.
    In columns only weights are transposed, which are smaller, and they stay transposed behind the barrier.
    """
    return jnp.matmul(jax.lax.optimization_barrier(_transposed(weight)), x, precision="highest")


def _columns_forward(weight: jax.Array, x: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _columns_dot(weight, x), (weight, x)


def _columns_backward(saved: tuple[jax.Array, jax.Array], grad: jax.Array) -> tuple[jax.Array, jax.Array]:
    weight, x = saved
    if x.ndim < weight.ndim:  # an ensemble of networks with one input
        wide, narrow = "ib,eob->eio", "eio,eob->ib"
    else:
        wide, narrow = "...ib,...ob->...io", "...io,...ob->...ib"
    return jnp.einsum(wide, x, grad, precision="highest"), jnp.einsum(narrow, weight, grad, precision="highest")


_columns_dot.defvjp(_columns_forward, _columns_backward)


def xavier(key: jax.Array, shapes: Sequence[tuple[int, ...]], kind: str) -> tuple[jax.Array, ...]:
    """Xavier initialisation, `uniform` or `normal`, of weights [.., in, out]: one draw for all, which compiles fast."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    if kind == "normal":
        drawn = jax.random.normal(key, (ends[-1],))
    else:
        drawn = jax.random.uniform(key, (ends[-1],), minval=-math.sqrt(3.0), maxval=math.sqrt(3.0))
    stds = [math.sqrt(2.0 / (shape[-2] + shape[-1])) for shape in shapes]
    parts = jnp.split(drawn, ends[:-1])
    return tuple(std * part.reshape(shape) for std, part, shape in zip(stds, parts, shapes, strict=True))


class MLP(eqx.Module):
    """A multilayer perceptron; weights are [in, out], or [E, in, out] for an ensemble of E networks."""

    weights: tuple[jax.Array, ...]
    biases: tuple[jax.Array, ...]
    activation: str = eqx.field(static=True)
    precision: str = eqx.field(static=True)
    norm: str = eqx.field(static=True, default="none")  # none | layer: LayerNorm before every activation

    @classmethod
    def init(
        cls,
        key: jax.Array,
        sizes: Sequence[int],
        *,
        ensemble: tuple[int, ...] = (),
        activation: str = "relu",
        kind: str = "uniform",
        precision: str = "float32",
        norm: str = "none",
    ) -> MLP:
        """Layers of the given sizes; biases are zero."""
        weights = xavier(key, [(*ensemble, *pair) for pair in pairwise(sizes)], kind)
        return cls(weights, tuple(jnp.zeros((*ensemble, size)) for size in sizes[1:]), activation, precision, norm)

    def __call__(self, *inputs: jax.Array) -> jax.Array:
        """[.., B, in] to [.., B, out]; an ensemble gives [E, B, out] and takes [B, in] or [E, B, in].

        The input may be given in pieces, such as state and action: then each has its own product with the first weight, so
        that no gradient is computed for pieces that need none. A piece with fewer rows than the first is repeated, each row
        so many times in succession, after its product.
        """
        if inputs[0].ndim > self.weights[0].ndim == 2:  # several batch axes
            flat = self(*(x.reshape(-1, x.shape[-1]) for x in inputs))
            return flat.reshape(*inputs[0].shape[:-1], -1)
        if self.in_columns(inputs[0].shape[-2]):
            # Behind the barrier the input stays transposed; otherwise it would be folded into products that are then slow.
            return _transposed(self.columns(*(jax.lax.optimization_barrier(_transposed(x)) for x in inputs)))
        return self._layers(inputs, lambda weight, x: _dot(x, weight, self.precision), axis=-1)

    def columns(self, *inputs: jax.Array) -> jax.Array:
        """The same for a batch in columns, in float32: [in, B] to [out, B]."""
        return self._layers(inputs, _columns_dot, axis=-2)

    def in_columns(self, batch: int) -> bool:
        """Whether a batch is computed in columns: on CPUs, if it is longer than the layers are wide."""
        long = batch > max(bias.shape[-1] for bias in self.biases)
        return long and self.precision == "float32" and jax.default_backend() == "cpu"

    def _layers(
        self, inputs: Sequence[jax.Array], product: Callable[[jax.Array, jax.Array], jax.Array], axis: int
    ) -> jax.Array:
        """All layers; `axis` is that of the units, and the other of the last two axes that of the batch."""
        ends = np.cumsum([x.shape[axis] for x in inputs])[:-1]
        first, *more = map(product, jnp.split(self.weights[0], ends, axis=-2), inputs)
        rows = -3 - axis
        x = sum((jnp.repeat(piece, first.shape[rows] // piece.shape[rows], axis=rows) for piece in more), start=first)
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = product(weight, x) if layer else x
            x = self._activated(x + jnp.expand_dims(bias, rows), layer, axis)
        return x

    def _activated(self, x: jax.Array, layer: int, axis: int) -> jax.Array:
        """The output of a layer; `axis` is that of its units."""
        if layer == len(self.weights) - 1:
            return x
        return ACTIVATIONS[self.activation](layer_norm(x, axis) if self.norm == "layer" else x)


def layer_norm(x: jax.Array, axis: int) -> jax.Array:
    """Zero mean and unit variance over the units of a layer. Scale and offset are left to the layers around it."""
    return (x - x.mean(axis, keepdims=True)) * jax.lax.rsqrt(x.var(axis, keepdims=True) + 1e-6)


def padded(indices: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Index sets as one array [N, widest], filled up with index 0, and ones [N, widest] where an entry is real."""
    gather = np.zeros((len(indices), max(map(len, indices))), np.int32)
    real = np.zeros(gather.shape, np.float32)
    for row, of in enumerate(indices):
        gather[row, : len(of)], real[row, : len(of)] = of, 1.0
    return gather, real


class FactoredMLP(eqx.Module):
    """phi = (phi_1 .. phi_N): one small network per factor, whose input is that factor only."""

    mlp: MLP
    indices: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @classmethod
    def init(cls, key: jax.Array, indices: tuple[tuple[int, ...], ...], hidden: int, layers: int, dim: int) -> FactoredMLP:
        """N networks |F_i| -> hidden -> .. -> dim; smaller factors are padded with inputs that are always zero."""
        widest = max(len(i) for i in indices)
        mlp = MLP.init(key, [widest, *[hidden] * layers, dim], ensemble=(len(indices),))
        # The scale of the first layer follows from the factor's own inputs.
        scale = np.array([math.sqrt((widest + hidden) / (len(i) + hidden)) for i in indices], np.float32)
        return cls(eqx.tree_at(lambda m: m.weights[0], mlp, scale[:, None, None] * mlp.weights[0]), indices)

    def __call__(self, obs: jax.Array) -> jax.Array:
        """[B, S] to [B, N, D]."""
        gather, real = padded(self.indices)
        if self.mlp.in_columns(len(obs)):
            parts = obs.T[gather] * real[:, :, None]
            return jnp.transpose(jnp.concatenate([net.columns(x) for net, x in self._groups(parts)]), (2, 0, 1))
        return jnp.swapaxes(self.mlp(jnp.swapaxes(obs[:, gather] * real, 0, 1)), 0, 1)

    def _groups(self, parts: jax.Array) -> list[tuple[MLP, jax.Array]]:
        """Networks and their inputs [N, in, B] in groups whose layers fit into the cache of a core."""
        count, _, batch = parts.shape
        widest = max(bias.shape[-1] for bias in self.mlp.biases)
        number = min(count, -(-count * widest * batch * 4 // CACHE))
        leaves, treedef = jax.tree.flatten((self.mlp, parts))
        ends = [count * (i + 1) // number for i in range(number - 1)]
        return [jax.tree.unflatten(treedef, group) for group in zip(*(jnp.split(x, ends) for x in leaves), strict=True)]


class Actor(eqx.Module):
    """pi(a | s, z): a tanh-squashed Gaussian with a shared trunk and two linear heads."""

    trunk: MLP
    heads: MLP
    min_log_std: float = eqx.field(static=True)
    max_log_std: float = eqx.field(static=True)

    @classmethod
    def init(
        cls,
        key: jax.Array,
        inputs: int,
        actions: int,
        hidden: int,
        layers: int,
        activation: str,
        precision: str,
        head_scale: float = 0.1,
    ) -> Actor:
        """The heads have a fraction of Xavier's scale, so that the initial policy has mean about 0 and std about 1."""
        k_trunk, k_heads = jax.random.split(key)
        trunk = MLP.init(k_trunk, [inputs, *[hidden] * layers], activation=activation, precision=precision)
        (mean_std,) = xavier(k_heads, [(2, hidden, actions)], "normal")  # each head is initialised as a separate layer
        both = head_scale * jnp.concatenate([*mean_std], axis=-1)
        heads = MLP((both,), (jnp.zeros(2 * actions),), "relu", precision)
        return cls(trunk, heads, math.log(1e-6), 2.0)

    def __call__(self, x: jax.Array, *more: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean and log-std of the Gaussian before the tanh; the input may be given in pieces, as for `MLP`."""
        hidden = ACTIVATIONS[self.trunk.activation](self.trunk(x, *more))
        mean, log_std = jnp.split(self.heads(hidden), 2, axis=-1)
        return mean, jnp.clip(log_std, self.min_log_std, self.max_log_std)

    def sample(self, x: jax.Array, key: jax.Array, *more: jax.Array) -> jax.Array:
        """A random action."""
        return self.reparametrised(x, jax.random.normal(key, (*x.shape[:-1], self.actions)), *more)[0]

    def reparametrised(self, x: jax.Array, noise: jax.Array, *more: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The action as a function of standard normal noise, and its log-density per dimension."""
        mean, log_std = self(x, *more)
        before = mean + jnp.exp(log_std) * noise
        return jnp.tanh(before), tanh_normal_log_prob(before, noise, log_std)

    @property
    def actions(self) -> int:
        """Dimensions of an action."""
        return self.heads.biases[0].shape[-1] // 2

    def mode(self, x: jax.Array, *more: jax.Array) -> jax.Array:
        """The mean action, tanh(mu)."""
        return jnp.tanh(self(x, *more)[0])


def normal_log_prob(x: jax.Array, mean: jax.Array, log_std: jax.Array) -> jax.Array:
    """Log-density of a diagonal Gaussian, per dimension."""
    return -0.5 * ((x - mean) * jnp.exp(-log_std)) ** 2 - log_std - 0.5 * LOG_2PI


def tanh_normal_log_prob(before: jax.Array, noise: jax.Array, log_std: jax.Array) -> jax.Array:
    """Log-density of a = tanh(before), before = mean + std noise, per dimension: log N(before) - log(1 - tanh^2).

    log(1 - tanh(u)^2) = 2 (log 2 - |u| - log(1 + exp(-2 |u|))) never overflows. log(1 + x) has an absolute error of 1e-7
    and is several times faster than log1p.
    """
    size = jnp.abs(before)
    log_jacobian = 2.0 * (math.log(2.0) - size - jnp.log(1.0 + jnp.exp(-2.0 * size)))
    return -0.5 * noise**2 - log_std - 0.5 * LOG_2PI - log_jacobian


def spectral_vectors(mlp: MLP) -> tuple[jax.Array, ...]:
    """The right singular vector of the largest singular value of every layer, by a long power iteration."""
    start = tuple(jnp.ones(weight.shape[-1]) / math.sqrt(weight.shape[-1]) for weight in mlp.weights)
    return spectral_normalise(mlp, start, iterations=50)[1]


def spectral_normalise(mlp: MLP, vectors: tuple[jax.Array, ...], iterations: int = 1) -> tuple[MLP, tuple[jax.Array, ...]]:
    """The network with every weight matrix divided by its largest singular value, and the updated singular vectors.

    The singular vectors come from a power iteration and are constant in the gradient; with ReLU the result is 1-Lipschitz.
    """
    weights, found = [], []
    for weight, vector in zip(mlp.weights, vectors, strict=True):
        left, right = _singular_vectors(jax.lax.stop_gradient(weight), vector, iterations)
        weights.append(weight / _times(_times(left, weight), right))
        found.append(right)
    return MLP(tuple(weights), mlp.biases, mlp.activation, mlp.precision), tuple(found)


def _times(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision="highest")


def _singular_vectors(weight: jax.Array, right: jax.Array, iterations: int) -> tuple[jax.Array, jax.Array]:
    """Left and right singular vector of the largest singular value, by power iterations from `right`."""

    def one(_: jax.Array, pair: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        left = _times(weight, pair[1])
        left = left / jnp.maximum(jnp.linalg.norm(left), 1e-12)
        right = _times(left, weight)
        return left, right / jnp.maximum(jnp.linalg.norm(right), 1e-12)

    return jax.lax.fori_loop(0, iterations, one, (jnp.zeros(weight.shape[0]), right))


class Density(eqx.Module):
    """q(y | x): a diagonal Gaussian with separate mean and log-std networks."""

    nets: MLP
    min_log_std: float = eqx.field(static=True)
    max_log_std: float = eqx.field(static=True)
    bound: str = eqx.field(static=True, default="clip")  # clip: no gradient below the floor | soft: always some

    @classmethod
    def init(
        cls,
        key: jax.Array,
        inputs: int,
        outputs: int,
        hidden: int,
        layers: int,
        min_std: float,
        precision: str,
        bound: str = "clip",
    ) -> Density:
        """Xavier weights and zero biases, so that the initial log-std is about 0."""
        nets = MLP.init(key, [inputs, *[hidden] * layers, outputs], ensemble=(2,), precision=precision)
        return cls(nets, math.log(min_std), math.log(1e6), bound)

    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean and log-std of y, each [B, outputs]."""
        mean, log_std = self.nets(x)
        if self.bound == "soft":
            log_std = self.min_log_std + jax.nn.softplus(log_std - self.min_log_std)
        return mean, jnp.clip(log_std, self.min_log_std, self.max_log_std)
