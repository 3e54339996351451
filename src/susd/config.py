"""Config: every option of a run, the layers that decide its value, and the checks before any long work.

Importing this module imports nothing heavy; a Config needs the cards of the methods, and these import JAX.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from susd.callable import make_callable
from susd.envs.registry import env_entry
from susd.errors import UserError, shown
from susd.methods.registry import Card, method, method_options, methods, methods_with

KINDS = {int: "an integer", float: "a finite number", bool: "true or false", str: "text", dict: "a mapping"}
MAX_SEED = 2**31 - 1
MOST = {int: 2**31 - 1, float: 1e9}  # of a number with no other limit: what compiled programs can count and compute with
MOST_TEXT = 10_000  # characters
LAYERS = ("default", "preset", "method", "environment", "you")
GROUPS = {  # the first option of a group -> heading of the group
    "env": "What is run",
    "epochs": "Training loop",
    "skill_dim": "Method",
    "hidden": "Networks",
    "learning_rate": "Optimisation and SAC",
    "eval_every": "Evaluation and checkpoints",
}


def option(
    default: Any, text: str, choices: tuple[str, ...] = (), low: float | None = None, high: float | None = None
) -> Any:
    """A field with its help text and the values it may have; `low` and `high` are the inclusive limits of a number."""
    low = -MOST[float] if low is None and type(default) is float else low
    high = MOST.get(type(default)) if high is None else high
    return field(default=default, metadata={"help": text, "choices": choices, "low": low, "high": high})


SAC_OPTIONS: dict[str, dict[str, Any]] = {  # of skill policies and of high-level policies
    "batch_size": {"text": "transitions per gradient step", "low": 1},
    "hidden": {"text": "units per hidden layer of actor and critics", "low": 1, "high": 65536},
    "layers": {"text": "hidden layers of every network", "low": 1, "high": 16},
    "critic_norm": {"text": "LayerNorm before the activations of the critics, or none", "choices": ("none", "layer")},
    "actor_activation": {"text": "activation function of the actor", "choices": ("tanh", "relu")},
    "head_scale": {"text": "initial scale of the actor's output layers, relative to Xavier initialisation", "low": 0.0},
    "precision": {
        "text": "precision of matrix multiplications: float32, what the device takes by default (TF32 on recent GPUs), or "
        "bfloat16; phi always has float32",
        "choices": ("float32", "default", "bfloat16"),
    },
    "learning_rate": {"text": "Adam learning rate of all networks and the temperature", "low": 0.0},
    "discount": {"text": "discount factor per action of the policy", "low": 0.0, "high": 1.0},
    "tau": {"text": "soft update rate of the target critics", "low": 0.0, "high": 1.0},
    "alpha_init": {"text": "initial temperature (entropy coefficient)", "low": 1e-12},
    "adaptive_alpha": {"text": "adapt the temperature to the target entropy"},
    "target_entropy": {"text": "target entropy per action dimension; uniform actions have 0.69", "high": 0.69},
}


def sac_option(name: str, default: Any) -> Any:
    """A field for an option of SAC, with the same meaning and limits in every config that has it."""
    return option(default, **SAC_OPTIONS[name])


def check_option(spec: dataclasses.Field[Any], value: Any) -> None:
    """Refuse a value of the wrong type or outside its limits; the error names the flag of the command line."""
    flag, rule = _flag(spec.name), spec.metadata
    kind = dict if spec.default is dataclasses.MISSING else type(spec.default)
    if kind is float:
        whole = isinstance(value, int) and not isinstance(value, bool)
        fits = whole or (isinstance(value, float) and math.isfinite(value))
    else:
        fits = isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
    if not fits:
        raise UserError(f"{flag} is {shown(value)}; it must be {KINDS[kind]}")
    if rule.get("choices") and value not in rule["choices"]:
        raise UserError(f"{flag} is {shown(value)}; choose one of {', '.join(rule['choices'])}")
    for limit, word, sign in ((rule.get("low"), "least", 1), (rule.get("high"), "most", -1)):
        if limit is not None and sign * value < sign * limit:
            raise UserError(f"{flag} is {shown(value)}; it must be at {word} {limit if kind is int else f'{limit:g}'}")
    if kind is str and (len(value) > MOST_TEXT or not value.isprintable()):
        raise UserError(f"{flag} is {shown(value)}; it must be at most {MOST_TEXT} characters that can be printed")
    if kind is dict:
        _check_mapping(flag, value)


def _check_mapping(flag: str, values: Mapping[Any, Any]) -> None:
    """Refuse a mapping that JSON cannot hold: it is written to the run folder."""
    for name, value in values.items():
        if not isinstance(name, str) or not name.isprintable() or len(name) > MOST_TEXT:
            raise UserError(f"{flag} has the name {shown(name)}; names are text")
        try:
            size = len(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError, RecursionError):
            size = MOST_TEXT + 1
        if size > MOST_TEXT:
            allowed = f"it must be what JSON can hold, in at most {MOST_TEXT} characters"
            raise UserError(f"{flag} {name} is {shown(value)}; {allowed}")


@dataclass(frozen=True)
class Config:
    """One run. The defaults are the `paper` preset; `quick`, the method and the environment change some of them."""

    env: str = option("gunner", "environment: a built-in one, gymnasium:ID or FILE.py:NAME")
    env_options: dict[str, Any] = field(default_factory=dict, metadata={"help": "options of the environment"})
    factors: str = option(
        "",
        "factorization: one that the environment names (gunner: 3, 4, 2, 1), or NAME=0:6,NAME=6:13,..; empty: its default",
    )
    positions: str = option(
        "",
        "positions whose coverage is measured, in a Gymnasium environment: NAME=0:2,NAME=2:4, or with a box NAME=0:2@-1:1",
    )
    landmarks: str = option("", "observations above zero while something is on, in a Gymnasium environment: NAME=7,NAME=9")
    method: str = option("susd", "method or variant: one of `susd methods`, or FILE.py:NAME")
    preset: str = option("quick", "preset that the other options start from", ("quick", "paper"))
    seed: int = option(0, "random seed", low=0, high=MAX_SEED)
    seeds: int = option(1, "agents trained in one program, with the seeds seed, seed+1, ..", low=1, high=1024)

    epochs: int = option(10_000, "training epochs", low=1)
    episodes: int = option(8, "episodes per epoch", low=1)
    horizon: int = option(0, "steps per episode; 0: as the environment defines it", low=0)
    gradient_steps: int = option(50, "gradient steps per epoch", low=1, high=1_000_000)
    batch_size: int = sac_option("batch_size", 256)
    buffer_size: int = option(1_000_000, "capacity of the replay buffer in transitions", low=1)
    warmup: int = option(10_000, "transitions in the replay buffer before the first gradient step", low=1)
    time_limit: str = option(
        "terminal", "at the time limit the value is zero (terminal), or it is bootstrapped", ("terminal", "bootstrap")
    )
    overlap: bool = option(
        False,
        "collect the next epoch's episodes while learning, with the policy of one epoch ago; for environments outside JAX",
    )

    skill_dim: int = option(
        2, "skill dimensions (or discrete skills) per factor; in total for methods without factors", low=1, high=1024
    )
    prior: str = option(
        "sphere",
        "skill prior: on one unit sphere, on a unit sphere per factor, in a unit ball per factor, standard normal, or one "
        "discrete skill per factor",
        ("sphere", "factor_sphere", "factor_ball", "gaussian", "one_hot"),
    )
    scale_skill: bool = option(False, "scale the skill input of actor and critics to unit variance per dimension")
    embedding: str = option("factored", "one embedding phi per factor, or one of the whole state", ("factored", "state"))
    phi_input: str = option(
        "factor", "phi and curiosity weight see whole factors, or own dimensions of their entities only", ("factor", "own")
    )
    skill_factors: str = option(
        "", "factors that have a part of the skill and that phi sees, joined by commas; empty: all of them"
    )
    constraint: str = option("joint", "one constraint and lambda for all factors, or one each", ("joint", "per_factor"))
    weight: str = option("raw", "curiosity weight: divided by its running mean, raw, or none", ("mean", "raw", "none"))
    weight_scope: str = option("factor", "one curiosity weight per factor, or one of the whole state", ("factor", "state"))
    weight_cap: float = option(0.0, "largest curiosity weight, in multiples of its running mean; 0: no limit", low=0.0)
    share_agent: str = option("", "factors whose phi also receives the first factor: names joined by commas, or all")
    distance: str = option("raw", "CSD's squared distance: raw, or divided by its running mean", ("mean", "raw"))
    disentangle: float = option(0.0, "weight of DUSDi's penalty on skills recognised in other factors; 0: none", low=0.0)
    features: str = option(
        "full", "DUSDi's view of a factor: all dimensions, or those of the original", ("full", "filtered")
    )
    relabel: bool = option(False, "replace the skills of replayed transitions by the directions in which phi moved")
    lambda_init: float = option(3000.0, "initial Lagrange multiplier lambda", low=1e-6)
    slack: float = option(1e-6, "slack epsilon of the constraint", low=0.0)
    min_std: float = option(1e-6, "smallest standard deviation of density model or discriminator", low=1e-8, high=1.0)
    std_bound: str = option(
        "clip", "how log-std stays above it: clipped, or by a softplus with a gradient", ("clip", "soft")
    )

    hidden: int = sac_option("hidden", 1024)
    phi_hidden: int = option(1024, "units per hidden layer of each phi or discriminator", low=1, high=65536)
    density_hidden: int = option(1024, "units per hidden layer of the density model", low=1, high=65536)
    critic: str = option("single", "one value head, or one per factor and one for the entropy", ("single", "decomposed"))
    critic_norm: str = sac_option("critic_norm", "none")
    layers: int = sac_option("layers", 2)
    actor_activation: str = sac_option("actor_activation", "tanh")
    head_scale: float = sac_option("head_scale", 0.1)
    precision: str = sac_option("precision", "float32")

    learning_rate: float = sac_option("learning_rate", 1e-4)
    dual_learning_rate: float = option(1e-4, "Adam learning rate of log lambda", low=0.0)
    discount: float = sac_option("discount", 0.99)
    tau: float = sac_option("tau", 0.005)
    alpha_init: float = sac_option("alpha_init", 0.1)
    actor_every: int = option(1, "updates of the critics per update of actor and temperature", low=1)
    adaptive_alpha: bool = sac_option("adaptive_alpha", True)
    target_entropy: float = sac_option("target_entropy", -0.5)
    reward_scale: float = option(1.0, "factor on the intrinsic reward", low=0.0)
    normalise_reward: bool = option(False, "divide the intrinsic reward by its running root mean square")
    reward_phi: str = option(
        "after", "the reward uses phi after its gradient step, or before it, which is faster", ("after", "before")
    )
    reward_scope: str = option(
        "total",
        "normalise the sum over factors, the reward of each factor, or that by its mean size, which favours rare changes",
        ("total", "factor", "rare"),
    )

    eval_every: int = option(100, "epochs between two coverage measurements", low=1)
    checkpoint_every: int = option(200, "epochs between two checkpoints", low=1)
    keep_checkpoints: int = option(2, "number of checkpoints to keep", low=1)

    def __post_init__(self) -> None:
        for spec in dataclasses.fields(self):
            check_option(spec, getattr(self, spec.name))
        if self.seed + self.seeds - 1 > MAX_SEED:
            raise UserError(f"--seed is {self.seed} and --seeds {self.seeds}; the last seed must be at most {MAX_SEED}")
        check_method(vars(self), self.changes())

    def to_json(self) -> dict[str, Any]:
        """The options that the run uses, as a plain mapping."""
        return {name: value for name, value in dataclasses.asdict(self).items() if self.has(name)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Config:
        """The inverse of `to_json`; options that the run does not use have their defaults."""
        unknown = sorted(set(values) - {spec.name for spec in dataclasses.fields(cls)})
        if unknown:
            raise UserError(
                f"this run has options that this version of susd does not know: {', '.join(unknown)}; "
                "runs of earlier versions cannot be loaded and must be trained again"
            )
        return cls(**values)

    def has(self, name: str) -> bool:
        """Whether this run uses an option: it belongs to the shared learner, or has an effect in the method."""
        return name not in _unused(method(self.method), vars(self))

    def changes(self) -> dict[str, Any]:
        """The options that are not at their default, which identify a run also where later versions add options."""
        return {s.name: getattr(self, s.name) for s in dataclasses.fields(self) if getattr(self, s.name) != _default(s)}


def _unused(card: Card, values: Mapping[str, Any]) -> frozenset[str]:
    """The options without an effect in a run: those of other methods, and those that are left to the environment or off."""
    return (method_options() - card.active(values)) | {name for name, off in OFF.items() if values[name] == off}


# Options that are not part of a config where they are off, so that runs have the configs they had before these existed.
OFF: dict[str, Any] = {
    **{"positions": "", "landmarks": "", "overlap": False},
    **{"critic_norm": "none", "actor_every": 1, "reward_phi": "after", "skill_factors": ""},
}


def _default(spec: dataclasses.Field[Any]) -> Any:
    return {} if spec.default is dataclasses.MISSING else spec.default


def check_method(values: Mapping[str, Any], given: Iterable[str]) -> None:
    """Refuse options that have no effect in the method or contradict it, and say what is possible."""
    card, prior = method(values["method"]), values["prior"]
    for name, value in card.fixed.items():
        if values[name] != value:
            raise UserError(f"{_flag(name)} is {values[name]!r}, but {card.name} is {card.base} with {value!r}")
    inactive = method_options() - card.active(values)
    for name in sorted(set(given) & inactive):
        where = f"methods with it: {methods_with(name)}" if name not in card.options else _reason(card, name, values)
        raise UserError(f"{_flag(name)} is {values[name]!r}, but it has no effect in {card.name}; {where}")
    for name in sorted(set(card.fixed) & inactive):
        raise UserError(f"{card.name} is {card.base} with {_flag(name)} {values[name]}, but {_reason(card, name, values)}")
    if prior not in card.priors:
        others = ", ".join(other.name for other in methods().values() if prior in other.priors)
        raise UserError(f"--prior is {prior!r}, but {card.name} has {' or '.join(card.priors)}; methods with it: {others}")
    for rule in card.rules(values):
        if rule.priors and prior not in rule.priors:
            choices = " or ".join(rule.priors)
            raise UserError(f"--prior is {prior!r}; with {_flag(rule.option)} {rule.value} choose {choices}")
    if prior == "one_hot" and values["skill_dim"] < 2:
        raise UserError(f"--skill-dim is {values['skill_dim']}; one_hot needs at least 2 discrete skills")


def _reason(card: Card, name: str, values: Mapping[str, Any]) -> str:
    """Why an option of the method has no effect with the values of the others."""
    return next(rule.reason for rule in card.rules(values) if name in rule.without)


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
PRESETS: dict[str, dict[str, Any]] = {"paper": {}, "quick": QUICK}


@dataclass(frozen=True)
class Setting:
    """The value of an option in a run, the layer (one of LAYERS) that decides it, and whether the run uses it."""

    value: Any
    layer: str
    help: str
    used: bool


def configure(env: str, preset: str = "quick", **changes: Any) -> Config:
    """The config of a run: the preset for this environment and method, with the given options changed."""
    return Config(**{name: setting.value for name, setting in resolve(env, preset, **changes).items()})


def resolve(env: str, preset: str = "quick", **changes: Any) -> dict[str, Setting]:
    """Every option of a run with its value and the layer that decides it."""
    specs = {spec.name: spec for spec in dataclasses.fields(Config)}
    check_option(specs["env"], env)
    if not isinstance(preset, str) or preset not in PRESETS:
        raise UserError(f"preset {shown(preset)} is unknown; choose one of {', '.join(PRESETS)}")
    for name, value in changes.items():
        if name not in specs:
            raise UserError(f"option {shown(name)} is unknown; options are {', '.join(sorted(specs))}")
        check_option(specs[name], value)
    values, layers = {name: _default(spec) for name, spec in specs.items()}, dict.fromkeys(specs, "default")
    card = method(changes.get("method", values["method"]))
    for layer, given in _layers(card, env, preset, changes):
        if "env_options" in given:  # an environment's options are joined, all others replaced
            given = {**given, "env_options": {**values["env_options"], **given["env_options"]}}
        values |= given
        layers |= dict.fromkeys(given, layer)
    check_method(values, changes)
    # Unused options stay at their default, so that equal runs have equal configs.
    unused = _unused(card, values)
    values |= {name: _default(specs[name]) for name in unused}
    layers |= dict.fromkeys(unused, "default")
    return {
        name: Setting(values[name], layers[name], spec.metadata["help"], name not in unused) for name, spec in specs.items()
    }


def _layers(card: Card, env: str, preset: str, changes: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The layers in the order in which they are applied; the values of `paper` are below those of every preset."""
    entry = env_entry(env)
    yield "method", card.paper
    yield "method", card.own.get(env, {})
    yield "preset", PRESETS[preset]
    if preset == "quick":
        yield "method", card.quick
    if entry is not None:
        yield "environment", entry.presets.get(preset, {})
    if preset == "quick":
        yield "method", card.quick_own.get(env, {})
    yield "method", card.fixed
    yield "you", {**changes, "env": env}
    if preset != Config.preset:
        yield "you", {"preset": preset}


make_callable(__name__, f"{__name__}:configure")
