"""Decoding: how much of every factor can be read from phi(s). A small network learns phi(s) -> s; its error per factor."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from susd.collect import rollout_skills
from susd.envs.base import EnvSpec
from susd.envs.registry import environments
from susd.errors import UserError
from susd.evaluation import coverage
from susd.evaluation.registry import OF_SEED, Artifacts, Evaluation, Fact, Option, Result
from susd.factors import Factorization
from susd.networks import MLP
from susd.paths import user_path
from susd.runs.folder import RunFolder
from susd.runs.tables import Row, Table, seed_table
from susd.sac import descend
from susd.viz import figures

if TYPE_CHECKING:
    from susd.training.agent import Agent

EPOCHS = 100
BATCH = 1024
LEARNING_RATE = 1e-3
SIZES = (16, 32, 64)  # hidden units, for environments without `decoder_sizes` of their own
COMMON_STATES, COMMON_EPOCHS, COMMON_HIDDEN, COMMON_SEED = 10_000, 60, 64, 2026
CONSTANT = 1e-4  # a dimension with a smaller standard deviation does not vary
PROJECTED, CONTROL = "random projection to 2", "random projection of the state"  # to as many dimensions as phi
EXPLAINED = "explained"
MIN_STEPS = 10 * coverage.PERIOD


class Split(NamedTuple):
    """Codes and states of one share of the data."""

    code: jax.Array
    obs: jax.Array


def split(code: np.ndarray, obs: np.ndarray, seed: int) -> tuple[Split, Split, Split]:
    """80 % to train on, 10 % to select the size of the decoder, 10 % to test: [W, T, ..] arrays, split by trajectory.

    A trajectory is in one share, because successive states are almost equal. Codes are standardised by the first share,
    since the scale of an embedding is arbitrary.
    """
    order = np.random.default_rng(seed).permutation(len(code))
    first, second = int(0.8 * len(order)), int(0.9 * len(order))
    train = code[order[:first]].reshape(-1, code.shape[-1])
    mean, std = train.mean(axis=0), train.std(axis=0)
    shares = np.split(order, [first, second])
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
        "error_of_the_mean": float(blind.mean()),  # of a decoder that always answers with the mean state
        "inputs": int(code.shape[-1]),
        "hidden": sizes[best],
        "validation": {str(size): float(error) for size, error in zip(sizes, validation, strict=True)},
        "states": int(obs.shape[0] * obs.shape[1]),
    }


def explained(code: np.ndarray, obs: np.ndarray, factors: Factorization, seed: int, epochs: int = COMMON_EPOCHS) -> Result:
    """The share of the variance of every factor that a decoder explains on the test share; code [W, T, Z], obs [W, T, S].

    A mean over the dimensions of a factor that vary, each with unit variance: 0 is guessing the mean state, 1 is exact. A
    factor that never varies is left out. On one set of states this compares methods; an error on a method's own states does
    not, because it is small where a policy moves little.
    """
    flat = obs.reshape(-1, obs.shape[-1])
    scale = flat.std(axis=0)
    varies = scale > CONSTANT
    scaled = (obs - flat.mean(axis=0)) / np.where(varies, scale, 1.0)

    def run(train: Split, test: Split) -> tuple[jax.Array, jax.Array]:
        decoders = train_decoders(train, (COMMON_HIDDEN,), jax.random.key(seed), epochs)
        return jnp.mean((decoders(test.code)[0] - test.obs) ** 2, axis=0), jnp.var(test.obs, axis=0)

    train, _, test = split(code, scaled, seed)
    error, variance = map(np.asarray, jax.jit(run)(train, test))
    share = 1 - error / np.maximum(variance, CONSTANT)
    per_factor = {
        name: float(np.mean(share[list(own)][varies[list(own)]]))
        for name, own in zip(factors.names, factors.indices, strict=True)
        if varies[list(own)].any()
    }
    return {"mean": float(np.mean(list(per_factor.values()))), "per_factor": per_factor, "states": len(flat)}


def uniform_states(env: Any, count: int = COMMON_STATES) -> np.ndarray | None:
    """[W, 1, S] states from the whole range of an environment that has `uniform`; None for others. The same in all runs."""
    if not hasattr(env, "uniform"):
        return None
    draw = jax.jit(jax.vmap(lambda key: env.observe(env.uniform(key))))
    return np.asarray(draw(jax.random.split(jax.random.key(COMMON_SEED), count)))[:, None]


def reference_states(env: Any, count: int = COMMON_STATES) -> np.ndarray:
    """[W, T, S] states of noisy actions with a random mean for each episode, which go far; the same in all runs."""
    steps = min(env.spec.horizon, coverage.PERIOD)
    episodes = max(10, count // steps)
    means = np.random.default_rng(COMMON_SEED).uniform(-1.0, 1.0, (episodes, env.spec.action_size)).astype(np.float32)

    def noisy(obs: jax.Array, mean: jax.Array, key: jax.Array) -> jax.Array:
        return jnp.clip(mean + jax.random.uniform(key, mean.shape, minval=-1.0, maxval=1.0), -1.0, 1.0)

    found = rollout_skills(env, jax.jit(noisy), means, steps, jax.random.key(COMMON_SEED))
    return np.swapaxes(np.asarray(found.next_obs), 0, 1)


def check_pool(pool: str) -> None:
    """Refuse what is not a list of run folders."""
    for run in pool.split(",") if pool else ():
        RunFolder.open(user_path("--pool", run.strip()))


def pooled_states(agent: Agent, pool: str, count: int = COMMON_STATES) -> np.ndarray:
    """[W, T, S] states that the skills of several runs visit, equally many of each; the same for all of these runs."""
    from susd.training.agent import load_all

    env, found = agent.trainer.env, []
    runs = [run.strip() for run in pool.split(",")]
    steps = max(1, count // len(runs) // coverage.PERIOD) * coverage.PERIOD
    for run in runs:
        other = load_all(run)[0]
        if other.trainer.env.spec.name != env.spec.name or other.trainer.env.spec.obs_size != env.spec.obs_size:
            raise UserError(f"--pool has {run}, whose environment is {other.trainer.env.spec.name}, not {env.spec.name}")
        skills, policy = other.trainer.learner.method.skills, other.trainer.policy(other.actor)
        found.append(np.swapaxes(coverage.trajectories(env, policy, skills, jax.random.key(COMMON_SEED), steps), 0, 1))
    return np.concatenate(found)


def common_states(agent: Agent, pool: str) -> dict[str, np.ndarray]:
    """Sets of states that do not depend on the run, by name."""
    env = agent.trainer.env
    found = {"uniform": uniform_states(env), "reference": reference_states(env)}
    return {
        name: obs
        for name, obs in (found | ({"pooled": pooled_states(agent, pool)} if pool else {})).items()
        if obs is not None
    }


def measure_common(agent: Agent, seed: int, pool: str = "") -> Result:
    """Explained variance on common states, of phi and of two controls: two dimensions of it, and as many of the state."""
    method, factors = agent.trainer.learner.method, agent.trainer.env.spec.factorization
    result: Result = {}
    for name, obs in common_states(agent, pool).items():
        flat = obs.reshape(-1, obs.shape[-1])
        phi = np.asarray(jax.jit(method.encode)(agent.params, flat)).reshape(*obs.shape[:2], -1)
        scaled = (obs - flat.mean(axis=0)) / np.maximum(flat.std(axis=0), CONSTANT)
        codes = {"phi": phi}
        if phi.shape[-1] > 2:
            codes[PROJECTED] = _projected(phi, 2, seed)
        codes[CONTROL] = _projected(scaled, phi.shape[-1], seed)
        result[name] = {label: explained(code, obs, factors, seed) for label, code in codes.items()}
    return result


def _projected(code: np.ndarray, size: int, seed: int) -> np.ndarray:
    """A random linear projection to so many dimensions."""
    inputs = code.shape[-1]
    return code @ np.random.default_rng(seed).normal(size=(inputs, size)) / inputs**0.5


def check_steps(steps: int) -> None:
    """As for coverage, and enough trajectories to split."""
    coverage.check_steps(steps)
    if steps < MIN_STEPS:
        raise UserError(f"--steps is {steps}; decoding needs at least {MIN_STEPS}, ten trajectories to split")


def measure(agent: Agent, seed: int = 0, steps: int = 100_000, pool: str = "", epochs: int = EPOCHS) -> Result:
    """Error of reading every factor from phi(s), and from a random projection of phi(s) to two dimensions as a control.

    These are on the states that the run's own skills visit, as in the paper; `explained` is on states common to all runs.
    DIAYN and DUSDi have no phi; the outputs of their discriminators take its place.
    """
    env, trainer = agent.trainer.env, agent.trainer
    method, policy = trainer.learner.method, trainer.policy(agent.actor)
    trajectories = coverage.trajectories(env, policy, method.skills, jax.random.key(seed), steps)
    obs = np.swapaxes(trajectories, 0, 1)
    flat = trajectories.reshape(-1, trajectories.shape[-1])
    code = np.asarray(jax.jit(method.encode)(agent.params, flat)).reshape(*trajectories.shape[:2], -1)
    code, name = np.swapaxes(code, 0, 1), env.spec.name
    sizes = (environments()[name].decoder_sizes if name in environments() else ()) or SIZES
    run = partial(decode, obs=obs, factors=env.spec.factorization, sizes=sizes, seed=seed, epochs=epochs)
    result: Result = {"phi": run(code)}
    if code.shape[-1] > 2:
        result[PROJECTED] = run(_projected(code, 2, seed))
    return result | {EXPLAINED: measure_common(agent, seed, pool)}


def codes_of(result: Result) -> dict[str, Any]:
    """The codes that were decoded on the run's own states."""
    return {label: values for label, values in result.items() if label not in (*OF_SEED, EXPLAINED)}


def draw(path: Path, spec: EnvSpec, result: Result, artifacts: Artifacts) -> None:
    """Bars of the error of every factor, one colour and hatch per code."""
    result = codes_of(result)
    labels = list(result)
    names = list(result[labels[0]]["per_factor"])
    with figures.drawing(path, figures.WIDTH, 3.2) as figure:
        axes = figure.add_subplot()
        width = 0.8 / len(labels)
        for index, (label, colour) in enumerate(zip(labels, figures.line_colours(len(labels)), strict=True)):
            at = np.arange(len(names)) + (index - (len(labels) - 1) / 2) * width
            errors = [result[label]["per_factor"][name] for name in names]
            bars = axes.bar(at, errors, width, color=colour, hatch=("", "//", "..")[index % 3], edgecolor="white")
            bars.set_label(f"{label.replace('phi', 'embedding')}, {result[label]['inputs']} dimensions")
        axes.set_xticks(range(len(names)), [figures.words(name) for name in names], rotation=0 if len(names) <= 5 else 45)
        axes.set_ylabel("mean squared error")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend()
        figure.suptitle("What can be read of every factor (lower is better)")


def facts(result: Result) -> Iterator[Fact]:
    """For each code the errors and the size of the selected decoder; `step` is the number of states."""
    for code, values in codes_of(result).items():
        for name in ("error", "error_of_the_mean", "inputs", "hidden"):
            yield code, values["states"], name, values[name]
        for factor, error in values["per_factor"].items():
            yield f"{code}>{factor}", values["states"], "factor_error", error
    for name, codes in result.get(EXPLAINED, {}).items():
        for code, values in codes.items():
            yield f"{name}>{code}", values["states"], "explained", values["mean"]
            for factor, share in values["per_factor"].items():
                yield f"{name}>{code}>{factor}", values["states"], "factor_explained", share


def tables(report: Result) -> list[Table]:
    """One row per code, one column per factor."""
    rows: list[tuple[int, Row]] = []
    for one in report["results"]:
        for label, values in codes_of(one).items():
            errors = (values["error"], values["error_of_the_mean"], *values["per_factor"].values())
            row = (label, str(values["inputs"]), str(values["hidden"]), *(f"{error:.4f}" for error in errors))
            rows.append((one["seed"], row))
    columns = ("read from", "dimensions", "hidden", "error", "of the mean", *report["results"][0]["phi"]["per_factor"])
    title = "Decoding: mean squared error of every factor, read from the embedding, on unseen trajectories"
    return [seed_table(title, columns, rows), *_explained_tables(report)]


def _explained_tables(report: Result) -> list[Table]:
    """One row per set of states and code."""
    rows: list[tuple[int, Row]] = []
    factors: dict[str, None] = {}
    for one in report["results"]:
        for codes in one.get(EXPLAINED, {}).values():
            factors |= dict.fromkeys(name for values in codes.values() for name in values["per_factor"])
    for one in report["results"]:
        for states, codes in one.get(EXPLAINED, {}).items():
            for code, values in codes.items():
                shares = (values["mean"], *(values["per_factor"].get(name) for name in factors))
                row = (states, code, *("-" if share is None else f"{100 * share:.0f}%" for share in shares))
                rows.append((one["seed"], row))
    title = "Explained variance on states that are the same for all runs (0 %: the mean state, 100 %: exact)"
    return [seed_table(title, ("states", "read from", "mean", *factors), rows)] if rows else []


EVALUATION = Evaluation(
    name="decoding",
    title="Decoding",
    summary="how much of every factor can be read from the embedding",
    measure=measure,
    draw=draw,
    tables=tables,
    facts=facts,
    options=(
        Option("steps", 100_000, f"states to collect; a multiple of {coverage.PERIOD}", check_steps),
        Option(
            "pool",
            "",
            "run folders, joined by commas, whose states are pooled for one more set of common states",
            check=check_pool,
        ),
    ),
    seconds=120.0,
    section="susd.report.sections.skills:decoding",
)
