"""From a Config to the objects it describes: environment, method, learner."""

from __future__ import annotations

from susd.config import Config
from susd.envs import make
from susd.envs.base import Environment, EnvSpec
from susd.errors import UserError
from susd.factors import Factorization
from susd.learner import Learner
from susd.methods.base import Method
from susd.methods.susd import Susd
from susd.sac import Sac
from susd.skills import SkillSpace


def build_env(config: Config) -> Environment:
    """The environment with its factorization."""
    options = dict(config.env_options)
    if config.factors:
        options["factors"] = int(config.factors) if config.factors.isdecimal() else config.factors
    return make(config.env, **options)


def build_method(config: Config, spec: EnvSpec) -> Method:
    """The method, sized for the environment."""
    if config.method != "susd":
        raise UserError(f"method {config.method!r} is unknown; choose one of susd")
    return Susd(
        factorization=spec.factorization,
        skills=SkillSpace(config.prior, len(spec.factorization), config.skill_dim),
        constraint=config.constraint,
        weight=config.weight,
        share_agent=_sharing(config.share_agent, spec.factorization),
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


def _sharing(text: str, factorization: Factorization) -> tuple[str, ...]:
    others = factorization.names[1:]
    names = others if text == "all" else tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in others:
            choices = f"choose among {', '.join(others)}, or all" if others else "there is only one factor"
            raise UserError(f"--share-agent names {name!r}; {choices}")
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
    )
    scale = method.skills.input_scale if config.scale_skill else 1.0
    return Learner(method, sac, config.batch_size, config.reward_scale, config.normalise_reward, scale)
