"""Config: every option of a run, its presets, and the checks that come before any long work. Imports nothing heavy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from susd.errors import UserError
from susd.methods.registry import METHOD_OPTIONS, METHODS, having, options_of

KINDS = {int: "a whole number", float: "a finite number", bool: "true or false", str: "text", dict: "a mapping"}
MAX_SEED = 2**31 - 1


def option(
    default: Any, text: str, choices: tuple[str, ...] = (), low: float | None = None, high: float | None = None
) -> Any:
    """A field with its help text and what it may be; `low` and `high` are the inclusive limits of a number."""
    return field(default=default, metadata={"help": text, "choices": choices, "low": low, "high": high})


def check_option(spec: dataclasses.Field[Any], value: Any) -> None:
    """Refuse a value of the wrong type or outside its limits, in the words of the command line."""
    flag, rule = _flag(spec.name), spec.metadata
    kind = dict if spec.default is dataclasses.MISSING else type(spec.default)
    if kind is float:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    else:
        fits = isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
    if not fits:
        raise UserError(f"{flag} is {value!r}; it must be {KINDS[kind]}")
    if rule.get("choices") and value not in rule["choices"]:
        raise UserError(f"{flag} is {value!r}; choose one of {', '.join(rule['choices'])}")
    for limit, word, sign in ((rule.get("low"), "least", 1), (rule.get("high"), "most", -1)):
        if limit is not None and sign * value < sign * limit:
            raise UserError(f"{flag} is {value}; it must be at {word} {limit if kind is int else f'{limit:g}'}")


@dataclass(frozen=True)
class Config:
    """One run. The defaults are the `paper` preset; `quick` and the environments change some of them (see PRESETS)."""

    env: str = option("gunner", "environment")
    env_options: dict[str, Any] = field(default_factory=dict, metadata={"help": "options of the environment"})
    factors: str = option(
        "", "factorization: a named one (3, 4, 2, 1 for gunner) or NAME=0:6,NAME=6:13,..; default: the environment's"
    )
    method: str = option("susd", "method or named variant; `susd methods` says what they are", tuple(METHODS))
    preset: str = option("quick", "preset the other options start from", ("quick", "paper"))
    seed: int = option(0, "seed of everything", low=0, high=MAX_SEED)
    seeds: int = option(1, "train this many agents (seeds seed, seed+1, ..) in one program", low=1, high=1024)

    epochs: int = option(10_000, "epochs in all", low=1)
    episodes: int = option(8, "episodes per epoch", low=1)
    horizon: int = option(0, "steps per episode; 0: the environment's", low=0)
    gradient_steps: int = option(50, "gradient steps per epoch", low=1)
    batch_size: int = option(256, "transitions per gradient step", low=1)
    buffer_size: int = option(1_000_000, "replay capacity in transitions", low=1)
    warmup: int = option(10_000, "transitions in the replay before the first gradient step", low=1)
    time_limit: str = option(
        "terminal", "the end of an episode ends the value, or the value is bootstrapped", ("terminal", "bootstrap")
    )

    skill_dim: int = option(
        2, "skill dimensions (or choices) per factor; in all where a method has no factors", low=1, high=1024
    )
    prior: str = option(
        "sphere",
        "skill prior: unit length as a whole, per factor, standard normal, or one choice per factor",
        ("sphere", "factor_sphere", "gaussian", "one_hot"),
    )
    scale_skill: bool = option(False, "scale the skill to unit variance per entry where it enters actor and critics")
    embedding: str = option("factored", "one phi per factor, or one of the state for all N * D", ("factored", "state"))
    constraint: str = option("joint", "one constraint and lambda for all factors, or one each", ("joint", "per_factor"))
    weight: str = option("raw", "curiosity weight: divided by its running mean, raw, or none", ("mean", "raw", "none"))
    weight_scope: str = option("factor", "one curiosity weight per factor, or one of the whole state", ("factor", "state"))
    share_agent: str = option("", "factors whose phi_i also sees the first factor: names joined by commas, or all")
    distance: str = option("raw", "CSD's squared distance: raw, or divided by its running mean", ("mean", "raw"))
    disentangle: float = option(0.0, "DUSDi's penalty on what other factors tell of a choice; 0 for none", low=0.0)
    features: str = option("full", "what DUSDi sees of a factor: all, or what the original kept", ("full", "filtered"))
    lambda_init: float = option(3000.0, "initial lambda", low=1e-6)
    slack: float = option(1e-6, "epsilon of the constraint", low=0.0)
    min_std: float = option(1e-6, "smallest standard deviation of density model or discriminator", low=1e-8, high=1.0)

    hidden: int = option(1024, "units per hidden layer of actor and critics", low=1, high=65536)
    phi_hidden: int = option(1024, "units per hidden layer of each phi or discriminator", low=1, high=65536)
    density_hidden: int = option(1024, "units per hidden layer of the density model", low=1, high=65536)
    critic: str = option("single", "one value, or one head per factor and one for entropy", ("single", "decomposed"))
    layers: int = option(2, "hidden layers of every network", low=1, high=16)
    actor_activation: str = option("tanh", "hidden units of the actor", ("tanh", "relu"))
    head_scale: float = option(0.1, "initial scale of the actor's output layers, relative to Xavier's", low=0.0)
    precision: str = option("float32", "matmuls of actor, critics and density", ("float32", "bfloat16"))

    learning_rate: float = option(1e-4, "Adam's rate for all networks and the temperature", low=0.0)
    dual_learning_rate: float = option(1e-4, "Adam's rate for log lambda", low=0.0)
    discount: float = option(0.99, "discount per step", low=0.0, high=1.0)
    tau: float = option(0.005, "target network rate", low=0.0, high=1.0)
    alpha_init: float = option(0.1, "initial entropy coefficient", low=1e-12)
    adaptive_alpha: bool = option(True, "adapt the entropy coefficient to the target entropy")
    target_entropy: float = option(-0.5, "target entropy per action dimension; uniform actions have 0.69", high=0.69)
    reward_scale: float = option(1.0, "factor on the policy's reward", low=0.0)
    normalise_reward: bool = option(False, "divide the policy's reward by its running root mean square")

    eval_every: int = option(100, "epochs between two coverage measurements", low=1)
    checkpoint_every: int = option(200, "epochs between two checkpoints", low=1)
    keep_checkpoints: int = option(2, "checkpoints kept", low=1)

    def __post_init__(self) -> None:
        for spec in dataclasses.fields(self):
            check_option(spec, getattr(self, spec.name))
        if self.seed + self.seeds - 1 > MAX_SEED:
            raise UserError(f"--seed is {self.seed} and --seeds {self.seeds}; the last seed must be at most {MAX_SEED}")
        values = self.to_json()
        other = {spec.name for spec in dataclasses.fields(self) if values[spec.name] != _default(spec)}
        check_method(values, other & METHOD_OPTIONS)

    def to_json(self) -> dict[str, Any]:
        """As a plain mapping."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Config:
        """The inverse of `to_json`. Options that are younger than a run have the default, which is what was done before."""
        unknown = sorted(set(values) - {spec.name for spec in dataclasses.fields(cls)})
        if unknown:
            raise UserError(f"this config is not of this version of susd: it does not know {', '.join(unknown)}")
        return cls(**values)

    def has(self, name: str) -> bool:
        """Whether an option does something in this run's method."""
        return name not in METHOD_OPTIONS - options_of(self.to_json())

    def changes(self) -> dict[str, Any]:
        """The options that are not at their default: what a run is known by, also when later versions have more options."""
        return {s.name: getattr(self, s.name) for s in dataclasses.fields(self) if getattr(self, s.name) != _default(s)}


def _default(spec: dataclasses.Field[Any]) -> Any:
    return {} if spec.default is dataclasses.MISSING else spec.default


def check_method(values: dict[str, Any], given: Iterable[str]) -> None:
    """Refuse options that the method does not have, or that contradict it, and say what works."""
    card = METHODS[values["method"]]
    for name, value in card.fixed.items():
        if values[name] != value:
            raise UserError(f"{_flag(name)} is {values[name]!r}, but {card.name} is {card.base} with {value!r}")
    for name in sorted(set(given) & METHOD_OPTIONS - options_of(values)):
        where = f"methods with it: {having(name)}" if name not in card.options else _missing(name, values)
        raise UserError(f"{_flag(name)} is {values[name]!r}, but it does nothing in {card.name}; {where}")
    for name in sorted(set(card.fixed) & METHOD_OPTIONS - options_of(values)):
        raise UserError(f"{card.name} is {card.base} with {_flag(name)} {values[name]}, but {_missing(name, values)}")
    if values["prior"] not in card.priors:
        others = ", ".join(c.name for c in METHODS.values() if values["prior"] in c.priors)
        raise UserError(
            f"--prior is {values['prior']!r}, but {card.name} has {' or '.join(card.priors)}; methods with it: {others}"
        )
    if values["embedding"] == "state" and values["prior"] not in ("sphere", "gaussian"):
        raise UserError(f"--prior is {values['prior']!r}; with --embedding state choose sphere or gaussian")
    if values["prior"] == "one_hot" and values["skill_dim"] < 2:
        raise UserError(f"--skill-dim is {values['skill_dim']}; one_hot skills need at least 2 choices")


def _missing(name: str, values: dict[str, Any]) -> str:
    """Why an option that the method has does nothing among the other choices."""
    if values["weight"] == "none" and name in ("density_hidden", "min_std", "weight_scope"):
        return "it has no density model with --weight none"
    if values["embedding"] == "state":
        return "it has no factors with --embedding state"
    return "it does not apply with --prior one_hot"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


# What learns best in minutes on two cores; docs/presets.md has one line and one measurement for each deviation.
QUICK: dict[str, Any] = {
    "buffer_size": 200_000,
    "warmup": 2_000,
    "prior": "factor_sphere",
    "scale_skill": True,
    "constraint": "per_factor",
    "weight": "mean",
    "lambda_init": 30.0,
    "slack": 1e-3,
    "min_std": 1e-3,
    "hidden": 128,
    "phi_hidden": 64,
    "density_hidden": 64,
    "actor_activation": "relu",
    "head_scale": 0.01,
    "learning_rate": 5e-4,
    "dual_learning_rate": 1e-3,
    "discount": 0.85,
    "target_entropy": 0.62,
    "normalise_reward": True,
    "epochs": 500,
    "eval_every": 25,
    "checkpoint_every": 100,
}
KITCHEN: dict[str, Any] = {
    "env_options": {"layout": "semantic", "quaternions": "continuous"},
    "episodes": 16,
    "gradient_steps": 50,
    "epochs": 1250,
    "buffer_size": 400_000,
    "warmup": 10_000,
    "discount": 0.95,
    "target_entropy": -0.5,
}
BODY: dict[str, Any] = {
    "episodes": 16,
    "gradient_steps": 150,
    "epochs": 600,
    "buffer_size": 1_000_000,
    "warmup": 10_000,
    "discount": 0.99,
    "target_entropy": -0.5,
}
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "paper": {
        "*": {},
        "multi_particle": {"env_options": {"actions": "five"}},
        "kitchen": {"share_agent": "all"},  # the released model of the paper's tables
    },
    "quick": {
        "*": QUICK,
        "gunner": {"epochs": 600, "discount": 0.5},
        "kitchen": KITCHEN,
        "ant": BODY,
        "half_cheetah": BODY,
    },
}


def configure(env: str, preset: str = "quick", **changes: Any) -> Config:
    """The preset for this environment and method, with the given options changed."""
    if preset not in PRESETS:
        raise UserError(f"preset {preset!r} is unknown; choose one of {', '.join(PRESETS)}")
    specs = {spec.name: spec for spec in dataclasses.fields(Config)}
    for name, value in changes.items():
        if name not in specs:
            raise UserError(f"option {name!r} is unknown; options are {', '.join(sorted(specs))}")
        check_option(specs[name], value)
    card = METHODS[changes.get("method", "susd")]
    values = {name: _default(spec) for name, spec in specs.items()} | dict(card.paper) | dict(card.own.get(env, {}))
    values |= PRESETS[preset]["*"] | (dict(card.quick) if preset == "quick" else {}) | PRESETS[preset].get(env, {})
    values |= dict(card.quick_own.get(env, {})) if preset == "quick" else {}
    env_options = {**values["env_options"], **changes.get("env_options", {})}
    values |= {**card.fixed, **changes, "env": env, "preset": preset, "env_options": env_options}
    check_method(values, changes)
    # What the method does not have stays at its default, so that equal runs have equal configs.
    unused = METHOD_OPTIONS - options_of(values)
    return Config(**{name: _default(specs[name]) if name in unused else value for name, value in values.items()})
