"""The interface of a method, and what several methods share: dual descent, density distance, discriminators, running means.

At the end are the pieces of cards that several methods share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from susd.errors import UserError
from susd.factors import Factorization
from susd.methods.registry import Unless
from susd.networks import MLP, Density, FactoredMLP, normal_log_prob
from susd.sac import adam
from susd.skills import SkillSpace
from susd.types import Info, Transition

if TYPE_CHECKING:
    from susd.config import Config
    from susd.envs.base import EnvSpec


class Reward(NamedTuple):
    """The intrinsic reward of the policy, [B], and its parts, [B, N]: one per factor, or a single one."""

    total: jax.Array
    parts: jax.Array


class Method(Protocol):
    """The objective of a skill-discovery method. All functions are pure; SAC is shared and not part of it."""

    @classmethod
    def from_config(cls, config: Config, spec: EnvSpec) -> Method:
        """The method with the options of a run, sized for an environment."""
        ...

    @property
    def skills(self) -> SkillSpace:
        """The space of its skills."""
        ...

    def loss(self, params: Any, stats: Any, batch: Transition, key: jax.Array) -> tuple[jax.Array, tuple[Any, Any, Info]]:
        """The loss, and (new stats, what `reward` needs from before the step, values to log)."""
        ...

    def reward(self, params: Any, before: Any, batch: Transition) -> Reward:
        """The intrinsic reward under the updated parameters."""
        ...

    def encode(self, params: Any, obs: jax.Array) -> jax.Array:
        """phi(s), or the prediction of the method's discriminator for s, [B, N * D]."""
        ...

    def init(self, key: jax.Array) -> Any:
        """Initial parameters, all of them trained by gradient descent on `loss`."""
        ...

    def init_stats(self, params: Any) -> Any:
        """Initial running statistics, which have no gradient."""
        ...

    def optimizer(self) -> optax.GradientTransformation:
        """The optimiser of the parameters."""
        ...


@runtime_checkable
class HasNetwork(Protocol):
    """A method whose embedding is a plain network of the observation, so that it can be used without JAX."""

    def network(self, params: Any) -> FactoredMLP:
        """The network whose outputs [B, N, D] are those of `encode`."""
        ...


class RunningMean(eqx.Module):
    """An exponential moving average that is unbiased from the first sample on."""

    total: jax.Array
    weight: jax.Array

    @classmethod
    def init(cls, shape: tuple[int, ...] = ()) -> RunningMean:
        """An average of no values."""
        return cls(jnp.zeros(shape), jnp.zeros(()))

    def update(self, value: jax.Array, decay: float = 0.99) -> RunningMean:
        """The average with one more value."""
        return RunningMean(decay * self.total + (1 - decay) * value, decay * self.weight + (1 - decay))

    @property
    def value(self) -> jax.Array:
        """The average so far."""
        return self.total / jnp.maximum(self.weight, 1e-8)


class View(NamedTuple):
    """What a method sees of an observation to learn and to reward skills; actor and critics always see all of it."""

    indices: tuple[int, ...] = ()  # the dimensions that are seen; empty: all
    obs_size: int = 0  # of the whole observation, where only some of it is seen

    def __call__(self, obs: jax.Array) -> jax.Array:
        """The dimensions that are seen."""
        return obs[..., jnp.asarray(self.indices)] if self.indices else obs

    def of(self, batch: Transition) -> Transition:
        """Transitions between what is seen."""
        return batch._replace(obs=self(batch.obs), next_obs=self(batch.next_obs))

    def whole(self, indices: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
        """Index sets of what is seen as index sets of the whole observation."""
        return tuple(tuple(self.indices[i] if self.indices else i for i in of) for of in indices)


WHOLE = View()


def phi_input(config: Config, spec: EnvSpec) -> tuple[View, Factorization]:
    """By --phi-input all dimensions or those of the entities themselves, of the --skill-factors; and their factors."""
    if config.phi_input == "factor":
        seen = dict(zip(spec.factorization.names, spec.factorization.indices, strict=True))
    elif not spec.own:
        raise UserError(
            f"--phi-input is 'own', but {spec.name} declares no own dimensions; choose factor, or set `own` in its spec"
        )
    else:
        seen = {name: spec.own[name] for name in spec.factorization.names if name in spec.own}
    wanted = [name.strip() for name in config.skill_factors.split(",") if name.strip()]
    for name in wanted:
        if name not in seen or wanted.count(name) > 1:
            raise UserError(f"--skill-factors is {config.skill_factors!r}; choose among {', '.join(seen)}, each once")
    if config.phi_input == "factor" and not wanted:
        return WHOLE, spec.factorization
    chosen = {name: indices for name, indices in seen.items() if name in (wanted or seen)}
    ends = tuple(accumulate((len(indices) for indices in chosen.values()), initial=0))
    return View(sum(chosen.values(), ()), spec.obs_size), Factorization.from_boundaries(ends, tuple(chosen))


def network_of(mlp: MLP, view: View, size: int) -> FactoredMLP:
    """The network of a method with one embedding of the `size` dimensions that it sees."""
    weights, biases = (tuple(layer[None] for layer in layers) for layers in (mlp.weights, mlp.biases))
    return FactoredMLP(MLP(weights, biases, mlp.activation, mlp.precision), view.whole([range(size)]))


def difference(phi: Callable[[jax.Array], jax.Array], batch: Transition) -> jax.Array:
    """phi(s') - phi(s), in one forward pass over both; a pair is in adjacent rows, so that it stays on one device."""
    pairs = jnp.stack([batch.obs, batch.next_obs], axis=1)
    found = phi(pairs.reshape(-1, pairs.shape[-1]))
    return jnp.diff(found.reshape(-1, 2, *found.shape[1:]), axis=1)[:, 0]


def dual_losses(objective: jax.Array, slack: jax.Array, log_lambda: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Dual gradient descent on max J subject to slack >= 0.

    `objective` is [B], `slack` [B, C] holds min(eps, 1 - ||delta||^2) for C constraints, `log_lambda` is [C]. The first
    loss updates phi only (lambda is constant), the second one lambda only (slack is constant): satisfied constraints make
    lambda smaller.
    """
    penalty = jnp.sum(jnp.exp(jax.lax.stop_gradient(log_lambda)) * slack, axis=-1)
    phi_loss = -jnp.mean(objective + penalty)
    dual_loss = jnp.sum(log_lambda * jax.lax.stop_gradient(slack.mean(axis=0)))
    return phi_loss, dual_loss


def constrained_loss(
    reward: jax.Array, square: jax.Array, bound: jax.Array | float, eps: float, log_lambda: jax.Array
) -> tuple[jax.Array, Info]:
    """max E[reward] subject to square <= bound, by dual descent: the loss of phi and lambda, and values to log.

    `reward` is [B]; `square`, [B, C], holds the mean squares of phi(s') - phi(s) that C constraints bound.
    """
    slack = jnp.minimum(eps, bound - square)
    phi_loss, dual_loss = dual_losses(reward, slack, log_lambda)
    info = {
        "phi_loss": phi_loss,
        "phi_reward": reward.mean(),
        "constraint": square.mean(),
        "constraint_max": square.max(),
        "violations": (slack < 0).mean(),
        "lambda": jnp.exp(log_lambda).mean(),
    }
    return phi_loss + dual_loss, info


def dual_optimizer(labels: Any, learning_rate: float, dual_learning_rate: float) -> optax.GradientTransformation:
    """Adam for the parameters labelled `net`, and Adam with another learning rate for those labelled `dual`."""
    return optax.partition({"net": adam(learning_rate), "dual": adam(dual_learning_rate)}, labels)


def by_factor(names: Sequence[str], **values: jax.Array) -> Info:
    """Values to log of every factor, as factor/NAME/VALUE: the means over the batch of arrays [B, N]."""
    means = {value: array.mean(axis=0) for value, array in values.items()}
    return {f"factor/{name}/{value}": mean[i] for value, mean in means.items() for i, name in enumerate(names)}


def one_hot_log_prob(logits: jax.Array, skill: jax.Array) -> jax.Array:
    """log q of a one-hot skill under a softmax, over the last axis."""
    return jnp.sum(jax.nn.log_softmax(logits) * skill, axis=-1)


def accuracy(logits: jax.Array, skill: jax.Array) -> jax.Array:
    """Share of the batch in which the largest logit is that of the one-hot skill; [..] of [B, .., K]."""
    return jnp.mean(jnp.argmax(logits, axis=-1) == jnp.argmax(skill, axis=-1), axis=0)


def density_loss(density: Density, batch: Transition, view: View = WHOLE) -> tuple[jax.Array, jax.Array]:
    """Negative log-likelihood of delta s given s, and kappa [B, S], its squared distance per dimension.

    kappa_d = ((delta s_d - mu_d) / sigma_d)^2 gbar^2 with gbar the geometric mean of all sigma (the CSD form). delta s has
    the dimensions of the view; they are predicted from the whole state.
    """
    delta = view(batch.next_obs - batch.obs)
    mean, log_std = density(batch.obs)
    loss = -normal_log_prob(delta, mean, log_std).sum(axis=-1).mean()
    log_scale = log_std.mean(axis=-1, keepdims=True) - log_std
    kappa = ((delta - mean) * jnp.exp(log_scale)) ** 2
    return loss, jax.lax.stop_gradient(kappa)


# --- cards ------------------------------------------------------------------------------------------------------------

# Options that come together.
FACTORED = frozenset({"factors", "critic", "reward_scope"})
DUAL = frozenset({"lambda_init", "slack", "dual_learning_rate", "phi_input"})
DENSITY = frozenset({"density_hidden", "min_std", "std_bound"})
CONTINUOUS = ("sphere", "gaussian")  # priors without factors
RELABEL = frozenset({"relabel"})  # of methods with an embedding
UNIT_ONLY = tuple(
    Unless("prior", prior, RELABEL, f"relabelled skills have unit length, unlike those of --prior {prior}")
    for prior in ("factor_ball", "gaussian", "one_hot")
)
TOTAL_ONLY = Unless("normalise_reward", False, frozenset({"reward_scope"}), "it does not apply with --no-normalise-reward")

# Methods with one embedding of the whole state.
STATE_OBJECTIVE = "max E[<phi(s') - phi(s), z>], one phi of the whole state"
STATE_REWARD = "<phi(s') - phi(s), z>"
TEMPORAL = "mean_d (phi(s') - phi(s))_d^2 <= 1, by dual descent on lambda"
WIDE_PHI = {"prior": "sphere", "phi_hidden": 128}  # in `quick`: one network of the whole state is as wide as the actor

# Titles of learning curves.
PHI_METRICS = {"phi_reward": "Skill-embedding alignment"}
DUAL_METRICS = PHI_METRICS | {
    "constraint": "Squared embedding step",
    "violations": "Violated constraints (share)",
    "lambda": "Lagrange multiplier",
}
DENSITY_METRICS = {"density_nll": "Density model NLL"}
# A discriminator infers the skill from the state, which says less where episodes start anywhere.
ONE_START = {"env_options": {"layout": "fixed"}}
DISCRIMINATOR_METRICS = {"accuracy": "Discriminator accuracy", "discriminator_loss": "Discriminator loss"}
