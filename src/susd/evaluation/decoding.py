"""Decoding: how much of every factor can be read from phi(s). A small network learns phi(s) -> s; its error per factor."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from susd.evaluation import DEFAULT_STEPS
from susd.factors import Factorization
from susd.networks import MLP
from susd.sac import descend

STEPS = DEFAULT_STEPS["decoding"]
EPOCHS = 100
BATCH = 1024
LEARNING_RATE = 1e-3
HIDDEN = {"gunner": (10, 12, 14, 16), "multi_particle": tuple(range(30, 70, 5)), "kitchen": tuple(range(20, 100, 10))}
OTHER_HIDDEN = (16, 32, 64)  # for environments that the paper does not have


class Split(NamedTuple):
    """Codes and states of one share of the data."""

    code: jax.Array
    obs: jax.Array


def split(code: np.ndarray, obs: np.ndarray, seed: int) -> tuple[Split, Split, Split]:
    """80 % to learn from, 10 % to choose the size of the decoder on, 10 % to report, by worlds: [W, T, ..] arrays.

    Whole courses go to one share, because neighbouring states are almost equal. Codes are standardised by the first share,
    since the scale of an embedding is arbitrary.
    """
    num_envs = np.random.default_rng(seed).permutation(len(code))
    first, second = int(0.8 * len(num_envs)), int(0.9 * len(num_envs))
    flat = [x.reshape(-1, x.shape[-1]) for x in (code[num_envs[:first]], obs[num_envs[:first]])]
    mean, std = flat[0].mean(axis=0), flat[0].std(axis=0)
    shares = np.split(num_envs, [first, second])
    return tuple(  # type: ignore[return-value]
        Split(
            jnp.asarray((code[share].reshape(-1, code.shape[-1]) - mean) / np.maximum(std, 1e-6), jnp.float32),
            jnp.asarray(obs[share].reshape(-1, obs.shape[-1]), jnp.float32),
        )
        for share in shares
    )


class Decoders(NamedTuple):
    """One network phi(s) -> s for each number of hidden units, trained as one; `mask` cuts each to its own width."""

    nets: MLP
    mask: jax.Array

    def __call__(self, code: jax.Array) -> jax.Array:
        """[B, Z] to [E, B, S]: one hidden layer of ReLUs."""
        first, last = self.nets.weights
        hidden = jax.nn.relu(code @ first + self.nets.biases[0][:, None, :]) * self.mask[:, None, :]
        return hidden @ last + self.nets.biases[1][:, None, :]


def init_decoders(key: jax.Array, inputs: int, outputs: int, sizes: tuple[int, ...]) -> Decoders:
    """Each network starts as one of its own width would, and is padded to the widest."""
    widest = max(sizes)
    nets = [MLP.init(jax.random.fold_in(key, size), [inputs, size, outputs]) for size in sizes]

    def pad(net: MLP, size: int) -> MLP:
        more = widest - size
        weights = (jnp.pad(net.weights[0], ((0, 0), (0, more))), jnp.pad(net.weights[1], ((0, more), (0, 0))))
        return MLP(weights, (jnp.pad(net.biases[0], (0, more)), net.biases[1]), net.activation, net.precision)

    padded = [pad(net, size) for net, size in zip(nets, sizes, strict=True)]
    mask = jnp.asarray([[float(unit < size) for unit in range(widest)] for size in sizes])
    return Decoders(jax.tree.map(lambda *leaves: jnp.stack(leaves), *padded), mask)


def train_decoders(train: Split, sizes: tuple[int, ...], key: jax.Array, epochs: int, batch: int = BATCH) -> Decoders:
    """Least squares by Adam, every width on the same batches."""
    k_init, k_order = jax.random.split(key)
    count, batch = len(train.code), min(batch, len(train.code))
    optimizer = optax.adam(LEARNING_RATE)
    start = init_decoders(k_init, train.code.shape[1], train.obs.shape[1], sizes)

    def loss(nets: MLP, rows: jax.Array) -> jax.Array:
        error = Decoders(nets, start.mask)(train.code[rows]) - train.obs[rows]
        return jnp.mean(error**2, axis=(1, 2)).sum()  # a sum over networks: each has its own gradient

    def step(carry: Any, rows: jax.Array) -> tuple[Any, None]:
        nets, opt = carry
        return descend(optimizer, jax.grad(loss)(nets, rows), opt, nets), None

    def epoch(carry: Any, key: jax.Array) -> tuple[Any, None]:
        order = jax.random.permutation(key, count)[: count // batch * batch].reshape(-1, batch)
        return jax.lax.scan(step, carry, order)[0], None

    carry = (start.nets, optimizer.init(start.nets))
    (nets, _), _ = jax.lax.scan(epoch, carry, jax.random.split(k_order, epochs))
    return Decoders(nets, start.mask)


def factor_errors(error: jax.Array, factors: Factorization) -> jax.Array:
    """Mean squared error of every factor, [E, N], of differences [E, B, S]: over its dimensions and over states."""
    square = jnp.mean(error**2, axis=1)
    return square @ factors.membership.T / jnp.asarray(factors.sizes, jnp.float32)


def decode(
    code: np.ndarray, obs: np.ndarray, factors: Factorization, sizes: tuple[int, ...], seed: int, epochs: int = EPOCHS
) -> dict[str, Any]:
    """Errors on the test share of the decoder that is best on the validation share; code [W, T, Z], obs [W, T, S]."""

    def run(train: Split, validation: Split, test: Split) -> tuple[jax.Array, ...]:
        decoders = train_decoders(train, sizes, jax.random.key(seed), epochs)
        errors = [factor_errors(decoders(share.code) - share.obs, factors) for share in (validation, test)]
        blind = factor_errors((test.obs - train.obs.mean(axis=0))[None], factors)[0]
        return errors[0].mean(axis=1), errors[1], blind

    validation, test, blind = map(np.asarray, jax.jit(run)(*split(code, obs, seed)))
    best = int(validation.argmin())
    return {
        "error": float(test[best].mean()),
        "per_factor": dict(zip(factors.names, test[best].tolist(), strict=True)),
        "error_of_the_mean": float(blind.mean()),  # what a decoder that knows nothing of the state would score
        "inputs": int(code.shape[-1]),
        "hidden": sizes[best],
        "validation": {str(size): float(error) for size, error in zip(sizes, validation, strict=True)},
        "states": int(obs.shape[0] * obs.shape[1]),
    }
