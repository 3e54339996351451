"""From a Config to the objects it describes: environment, method, learner."""

from __future__ import annotations

from collections.abc import Callable

from susd.config import Config
from susd.envs import make
from susd.envs.base import Environment, EnvSpec, HostEnvironment
from susd.errors import UserError
from susd.factors import Factorization
from susd.learner import Learner
from susd.methods.base import Method
from susd.methods.csd import Csd
from susd.methods.diayn import Diayn
from susd.methods.dusdi import Dusdi
from susd.methods.lsd import Lsd
from susd.methods.metra import Metra
from susd.methods.registry import METHODS
from susd.methods.susd import Susd
from susd.sac import Sac
from susd.skills import SkillSpace


def build_env(config: Config) -> Environment | HostEnvironment:
    """The environment with its factorization; a host one has a world for each episode of an epoch."""
    options = dict(config.env_options)
    if "num_envs" in options:
        raise UserError(f"the option 'num_envs' of a run is --episodes, one for each; it cannot be {options['num_envs']!r}")
    if config.factors:
        options["factors"] = int(config.factors) if config.factors.isdecimal() else config.factors
    return make(config.env, num_envs=config.episodes, **options)


def build_method(config: Config, spec: EnvSpec) -> Method:
    """The method, sized for the environment."""
    return BUILDERS[METHODS[config.method].code](config, spec)


def _susd(config: Config, spec: EnvSpec) -> Susd:
    factors, dim = spec.factorization, config.skill_dim
    if config.embedding == "state":  # one factor, with as many skill dimensions as all of them had
        factors, dim = Factorization(("state",), (tuple(range(spec.obs_size)),), spec.obs_size), dim * len(factors)
    return Susd(
        factorization=factors,
        skills=SkillSpace(config.prior, len(factors), dim),
        constraint=config.constraint,
        weight=config.weight,
        weight_scope=config.weight_scope,
        share_agent=_sharing(config.share_agent, factors),
        phi_hidden=config.phi_hidden,
        density_hidden=config.density_hidden,
        layers=config.layers,
        min_std=config.min_std,
        precision=config.precision,
        lambda_init=config.lambda_init,
        slack=config.slack,
        learning_rate=config.learning_rate,
        dual_learning_rate=config.dual_learning_rate,
    )


def _metra(config: Config, spec: EnvSpec) -> Metra:
    return Metra(
        obs_size=spec.obs_size,
        skills=SkillSpace(config.prior, 1, config.skill_dim),
        hidden=config.phi_hidden,
        layers=config.layers,
        lambda_init=config.lambda_init,
        slack=config.slack,
        learning_rate=config.learning_rate,
        dual_learning_rate=config.dual_learning_rate,
    )


def _lsd(config: Config, spec: EnvSpec) -> Lsd:
    skills = SkillSpace(config.prior, 1, config.skill_dim)
    return Lsd(spec.obs_size, skills, config.phi_hidden, config.layers, config.learning_rate)


def _csd(config: Config, spec: EnvSpec) -> Csd:
    return Csd(
        obs_size=spec.obs_size,
        skills=SkillSpace(config.prior, 1, config.skill_dim),
        distance=config.distance,
        hidden=config.phi_hidden,
        density_hidden=config.density_hidden,
        layers=config.layers,
        min_std=config.min_std,
        precision=config.precision,
        lambda_init=config.lambda_init,
        slack=config.slack,
        learning_rate=config.learning_rate,
        dual_learning_rate=config.dual_learning_rate,
    )


def _diayn(config: Config, spec: EnvSpec) -> Diayn:
    return Diayn(
        obs_size=spec.obs_size,
        skills=SkillSpace(config.prior, 1, config.skill_dim),
        hidden=config.phi_hidden,
        layers=config.layers,
        min_std=config.min_std,
        precision=config.precision,
        learning_rate=config.learning_rate,
    )


def _dusdi(config: Config, spec: EnvSpec) -> Dusdi:
    factors = spec.factorization
    if len(factors) == 1 and config.disentangle:
        raise UserError(f"--disentangle is {config.disentangle}, but there is only one factor; use --disentangle 0")
    return Dusdi(
        names=factors.names,
        features=_features(spec) if config.features == "filtered" else factors.indices,
        skills=SkillSpace(config.prior, len(factors), config.skill_dim),
        penalty=config.disentangle,
        hidden=config.phi_hidden,
        layers=config.layers,
        learning_rate=config.learning_rate,
    )


def _features(spec: EnvSpec) -> tuple[tuple[int, ...], ...]:
    """What the original DUSDi kept of every factor."""
    factors = spec.factorization
    kept = tuple(tuple(index for index in own if index in spec.filtered) for own in factors.indices)
    for name, own in zip(factors.names, kept, strict=True):
        if not own:
            raise UserError(f"--features is 'filtered', but {spec.name} keeps nothing of factor {name!r}; use full")
    return kept


BUILDERS: dict[str, Callable[[Config, EnvSpec], Method]] = {
    "susd": _susd,
    "metra": _metra,
    "lsd": _lsd,
    "csd": _csd,
    "diayn": _diayn,
    "dusdi": _dusdi,
}


def _sharing(text: str, factorization: Factorization) -> tuple[str, ...]:
    others = factorization.names[1:]
    if text and not others:
        raise UserError(f"--share-agent is {text!r}, but there is only one factor")
    names = others if text == "all" else tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in others:
            raise UserError(f"--share-agent names {name!r}; choose among {', '.join(others)}, or all")
    return names


def build_learner(config: Config, spec: EnvSpec) -> Learner:
    """The method joined with SAC."""
    method = build_method(config, spec)
    sac = Sac(
        inputs=spec.obs_size + method.skills.size,
        actions=spec.action_size,
        hidden=config.hidden,
        layers=config.layers,
        activation=config.actor_activation,
        precision=config.precision,
        learning_rate=config.learning_rate,
        discount=config.discount,
        tau=config.tau,
        alpha_init=config.alpha_init,
        adaptive_alpha=config.adaptive_alpha,
        head_scale=config.head_scale,
        target_entropy=config.target_entropy,
        parts=method.skills.parts if config.critic == "decomposed" else 1,
    )
    scale = method.skills.input_scale if config.scale_skill else 1.0
    return Learner(method, sac, config.batch_size, config.reward_scale, config.normalise_reward, scale)
