"""SUSD: one embedding per factor, learned by dual gradient descent and weighted by per-factor curiosity (Eqs. 3 to 10)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from susd.errors import UserError
from susd.factors import Factorization
from susd.methods.base import (
    CONTINUOUS,
    DENSITY,
    DENSITY_METRICS,
    DUAL,
    DUAL_METRICS,
    FACTORED,
    RELABEL,
    STATE_OBJECTIVE,
    STATE_REWARD,
    TEMPORAL,
    TOTAL_ONLY,
    UNIT_ONLY,
    WHOLE,
    WIDE_PHI,
    Reward,
    RunningMean,
    View,
    by_factor,
    constrained_loss,
    density_loss,
    difference,
    dual_optimizer,
    phi_input,
)
from susd.methods.registry import Card, Unless
from susd.networks import Density, FactoredMLP
from susd.skills import SkillSpace
from susd.types import Info, Transition

if TYPE_CHECKING:
    from susd.config import Config
    from susd.envs.base import EnvSpec


class Params(eqx.Module):
    """phi_1 .. phi_N, the density model q(delta s | s) if weights are used, and log lambda (one, or one per factor)."""

    phi: FactoredMLP
    density: Density | None
    log_lambda: jax.Array


class Before(eqx.Module):
    """What the reward needs from before the gradient step: the curiosity weights w, [B, N], if there are any."""

    weight: jax.Array | None


@dataclass(frozen=True)
class Susd:
    """The objective of SUSD. Without factors there is a single one, the whole state."""

    factorization: Factorization  # of what phi sees
    skills: SkillSpace
    constraint: str  # joint | per_factor
    weight: str  # mean (divided by its running mean) | raw | none
    weight_scope: str  # factor | state (one weight for all factors)
    share_agent: tuple[str, ...]  # the factors whose phi_i also receives the first factor
    phi_hidden: int
    density_hidden: int
    layers: int
    min_std: float
    precision: str
    lambda_init: float
    slack: float
    learning_rate: float
    dual_learning_rate: float
    view: View = WHOLE
    weight_cap: float = 0.0  # in multiples of the running mean; 0: none
    std_bound: str = "clip"  # clip | soft

    def loss(
        self, params: Params, stats: RunningMean, batch: Transition, key: jax.Array
    ) -> tuple[jax.Array, tuple[RunningMean, Before, Info]]:
        """Eq. 8 for phi, Eq. 9 for lambda, and the likelihood of the density model: one sum, with separate gradients."""
        del key
        # 1. Eq. 7: r_i = <delta_i, z^i> with delta_i = phi_i(s'^i) - phi_i(s^i)
        delta = difference(params.phi, self.view.of(batch))
        rewards = jnp.sum(delta * self.skills.direction(batch.skill), axis=-1)
        # 2. to 4. phi and lambda: the mean square of delta is at most 1, over all factors or in each of them
        square = jnp.mean(delta**2, axis=-1)
        bounded = square.mean(axis=1, keepdims=True) if self.constraint == "joint" else square
        loss, info = constrained_loss(rewards.sum(axis=1), bounded, 1.0, self.slack, params.log_lambda)
        info |= {"constraint_max": square.max()} | by_factor(self.factorization.names, phi_square=square, reward=rewards)
        if params.density is None:
            return loss, (stats, Before(None), info)
        # 5. the density model; the weights are those of the model before its step
        nll, kappa = density_loss(params.density, batch, self.view)
        weight, stats = self._weight(kappa, stats)
        info |= {"density_nll": nll, "weight_raw": stats.value, "weight_max": weight.max()}
        info |= by_factor(self.factorization.names, weight=weight)
        return loss + nll, (stats, Before(weight), info)

    def _weight(self, kappa: jax.Array, stats: RunningMean) -> tuple[jax.Array, RunningMean]:
        """Eq. 5: w_i = sqrt(1/S sum_{d in F_i} kappa_d), or one w over all S dimensions for every factor, as in CSD."""
        size = self.factorization.size
        weight = jnp.sqrt(jnp.matmul(kappa, self.factorization.membership.T, precision="highest") / size)
        if self.weight_scope == "state":
            weight = jnp.broadcast_to(jnp.sqrt(kappa.mean(axis=1, keepdims=True)), weight.shape)
        stats = stats.update(weight.mean())
        if self.weight_cap:
            weight = jnp.minimum(weight, self.weight_cap * stats.value)
        return (weight / jnp.maximum(stats.value, 1e-12) if self.weight == "mean" else weight), stats

    def reward(self, params: Params, before: Before, batch: Transition) -> Reward:
        """Eq. 10: R = sum_i w_i r_i, with the updated phi and the weights from before the step."""
        delta = difference(params.phi, self.view.of(batch))
        rewards = jnp.sum(delta * self.skills.direction(batch.skill), axis=-1)
        if self.skills.paced:  # not in the paper: highest where delta_i = sqrt(D) z^i, and moving at rest costs
            goal = math.sqrt(self.skills.dim) * self.skills.split(batch.skill)
            rewards = jnp.sum(delta * goal - 0.5 * delta**2, axis=-1)
        parts = rewards if before.weight is None else before.weight * rewards
        return Reward(parts.sum(axis=1), parts)

    def encode(self, params: Params, obs: jax.Array) -> jax.Array:
        """phi(s), the embeddings of all factors concatenated."""
        return params.phi(self.view(obs)).reshape(obs.shape[0], -1)

    def network(self, params: Params) -> FactoredMLP:
        """phi."""
        return FactoredMLP(params.phi.mlp, self.view.whole(params.phi.indices))

    def init(self, key: jax.Array) -> Params:
        """Initial networks; lambda starts high, so that phi starts within its constraint."""
        k_phi, k_density = jax.random.split(key)
        factors = self.factorization
        first = factors.indices[0]
        named = zip(factors.names, factors.indices, strict=True)
        inputs = tuple((*first, *own) if name in self.share_agent else own for name, own in named)
        constraints = len(inputs) if self.constraint == "per_factor" else 1
        return Params(
            FactoredMLP.init(k_phi, inputs, self.phi_hidden, self.layers, self.skills.dim),
            None if self.weight == "none" else self._init_density(k_density),
            jnp.full((constraints,), jnp.log(self.lambda_init)),
        )

    def _init_density(self, key: jax.Array) -> Density:
        size = self.factorization.size
        sizes = (self.view.obs_size or size, size, self.density_hidden, self.layers)
        return Density.init(key, *sizes, self.min_std, self.precision, self.std_bound)

    def init_stats(self, params: Params) -> RunningMean:
        """The running mean of the weight."""
        return RunningMean.init()

    def optimizer(self) -> optax.GradientTransformation:
        """Adam; lambda has its own learning rate."""
        density = None if self.weight == "none" else "net"
        labels = Params(phi="net", density=density, log_lambda="dual")  # type: ignore[arg-type]
        return dual_optimizer(labels, self.learning_rate, self.dual_learning_rate)

    @classmethod
    def from_config(cls, config: Config, spec: EnvSpec) -> Susd:
        """SUSD with the factors of an environment."""
        (view, factors), dim = phi_input(config, spec), config.skill_dim
        names = factors.names
        if config.embedding == "state":  # one factor, with the skill dimensions of all factors together
            names, dim = ("all",), dim * len(factors)
            factors = Factorization.from_boundaries((0, factors.size), ("state",))
        return cls(
            factorization=factors,
            skills=SkillSpace(config.prior, len(factors), dim, names),
            constraint=config.constraint,
            weight=config.weight,
            weight_scope=config.weight_scope,
            share_agent=_shared_with(config.share_agent, factors),
            phi_hidden=config.phi_hidden,
            density_hidden=config.density_hidden,
            layers=config.layers,
            min_std=config.min_std,
            precision=config.precision,
            lambda_init=config.lambda_init,
            slack=config.slack,
            learning_rate=config.learning_rate,
            dual_learning_rate=config.dual_learning_rate,
            view=view,
            weight_cap=config.weight_cap,
            std_bound=config.std_bound,
        )


def _shared_with(text: str, factorization: Factorization) -> tuple[str, ...]:
    """The factors that --share-agent names."""
    others = factorization.names[1:]
    if text and not others:
        raise UserError(f"--share-agent is {text!r}, but there is only one factor")
    names = others if text == "all" else tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in others:
            raise UserError(f"--share-agent names {name!r}; choose among {', '.join(others)}, or all")
    return names


PER_FACTOR = frozenset({"constraint", "share_agent", "weight_scope", "critic", "reward_scope", "skill_factors"})
OPTIONS = frozenset({"embedding", "weight", "weight_cap"}) | FACTORED | PER_FACTOR | DUAL | DENSITY | RELABEL
FACTORS_NEEDED = OPTIONS - {"embedding"}  # of variants that do not exist with one embedding of the state
SUSD = Card(
    name="susd",
    title="SUSD",
    summary="one embedding per factor, curiosity per factor",
    source="Hosseini and Soleymani Baghshah, ICLR 2026",
    implementation="susd.methods.susd:Susd",
    objective="max E[sum_i <phi_i(s'^i) - phi_i(s^i), z^i>], one phi_i per factor",
    constraint="mean square of phi_i(s'^i) - phi_i(s^i) <= 1, of all factors or of each, by dual descent on lambda",
    weight="w_i = sqrt(1/S sum_{d in factor i} kappa_d): the surprise of a density model q(delta s | s) about factor i",
    reward="sum_i w_i <phi_i(s'^i) - phi_i(s^i), z^i>",
    options=OPTIONS,
    priors=("sphere", "factor_sphere", "factor_ball", "gaussian", "one_hot"),
    unless=(
        TOTAL_ONLY,
        *UNIT_ONLY,
        Unless("weight", "none", DENSITY | {"weight_scope", "weight_cap"}, "it has no density model with --weight none"),
        Unless("embedding", "state", PER_FACTOR, "it has no factors with --embedding state", priors=CONTINUOUS),
    ),
    colour="#0072B2",
    metrics=DUAL_METRICS | DENSITY_METRICS,
    order=0,
)
CARDS = (
    SUSD,
    SUSD.variant(
        "susd-w",
        "SUSD-w",
        "SUSD without the curiosity weight",
        {"weight": "none"},
        weight="none",
        reward="sum_i <phi_i(s'^i) - phi_i(s^i), z^i>",
        colour="#4B0082",
        metrics=DUAL_METRICS,
    ),
    SUSD.variant(
        "susd-wf",
        "SUSD-wf",
        "SUSD with neither weight nor factors, skills of the same N * D dimensions: the clean ablation",
        {"weight": "none", "embedding": "state"},
        objective=STATE_OBJECTIVE,
        constraint=TEMPORAL,
        weight="none",
        reward=STATE_REWARD,
        priors=CONTINUOUS,
        quick=WIDE_PHI,
        quick_own={"gunner": {"discount": 0.85}},
        colour="#661100",
        metrics=DUAL_METRICS,
    ),
    SUSD.variant(
        "susd-shared",
        "SUSD (one weight)",
        "SUSD with one weight for all factors",
        {"weight_scope": "state"},
        weight="w = sqrt(1/S sum_d kappa_d) for every factor: the distance of CSD",
        options=FACTORS_NEEDED,
        colour="#7FBC41",
    ),
    SUSD.variant(
        "susd-discrete",
        "SUSD (discrete)",
        "SUSD with a discrete skill per factor",
        {"prior": "one_hot"},
        reward="sum_i w_i (delta_i[k] - 1/(D-1) sum_{j != k} delta_i[j]), delta_i = phi_i(s'^i) - phi_i(s^i)",
        options=FACTORS_NEEDED,
        priors=("one_hot",),
        paper={"skill_dim": 5},
        colour="#C51B7D",
    ),
    SUSD.variant(
        "susd-paced",
        "SUSD (paced)",
        "SUSD whose skill also says how fast each factor moves; zero is rest",
        {"prior": "factor_ball"},
        reward="sum_i w_i (sqrt(D) <delta_i, z^i> - |delta_i|^2 / 2), delta_i = phi_i(s'^i) - phi_i(s^i)",
        options=FACTORS_NEEDED,
        priors=("factor_ball",),
        colour="#00A5A5",
    ),
    SUSD.variant(
        "susd-q",
        "SUSD (decomposed critic)",
        "SUSD with one critic head per factor",
        {"critic": "decomposed"},
        options=FACTORS_NEEDED,
        colour="#004D40",
    ),
)
