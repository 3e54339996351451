"""Every option of a run is checked before any long work; errors name the option, its value and its limit."""

import dataclasses
import json
import math
import re
from typing import Any

import pytest

import susd
from susd.config import GROUPS, LAYERS, OFF, PRESETS, SAC_OPTIONS, Config, check_option, configure, resolve, sac_option
from susd.envs import make
from susd.envs.registry import BUILT_IN as ENVIRONMENTS
from susd.errors import UserError
from susd.learner import Learner
from susd.methods.registry import method_options, methods
from susd.methods.susd import Susd
from susd.sac import Sac

FIELDS = dataclasses.fields(Config)
NUMBERS = [spec for spec in FIELDS if type(spec.default) in (int, float)]
LOWS = [spec for spec in NUMBERS if spec.metadata["low"] is not None]
HIGHS = [spec for spec in NUMBERS if spec.metadata["high"] is not None]
CHOICES = [spec for spec in FIELDS if spec.metadata.get("choices")]


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def name_of(spec: Any) -> str:
    return spec.name


def refusal(**changes: Any) -> str:
    with pytest.raises(UserError) as caught:
        Config(**changes)
    return str(caught.value)


def test_every_number_has_a_limit() -> None:
    assert len(NUMBERS) > 20
    assert {spec.name for spec in NUMBERS} == {spec.name for spec in LOWS} | {spec.name for spec in HIGHS}


@pytest.mark.parametrize("spec", LOWS, ids=name_of)
def test_low_limits(spec: Any) -> None:
    low = spec.metadata["low"]
    assert getattr(Config(**{spec.name: low}), spec.name) == low
    below = low - 1 if isinstance(spec.default, int) else math.nextafter(low, -math.inf)
    for value in (below, low - 1000):
        message = refusal(**{spec.name: value})
        assert message.startswith(f"{flag(spec.name)} is {value}; it must be at least ")
        assert float(message.rsplit(" ", 1)[1]) == low


@pytest.mark.parametrize("spec", HIGHS, ids=name_of)
def test_high_limits(spec: Any) -> None:
    high = spec.metadata["high"]
    check_option(spec, high)
    above = high + 1 if isinstance(spec.default, int) else math.nextafter(high, math.inf)
    for value in (above, high + 1000):
        message = refusal(**{spec.name: value})
        assert message.startswith(f"{flag(spec.name)} is {value}; it must be at most ")
        assert float(message.rsplit(" ", 1)[1]) == high


@pytest.mark.parametrize("spec", NUMBERS, ids=name_of)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "1", None, True, [1]], ids=repr)
def test_not_a_number(spec: Any, value: Any) -> None:
    kind = "a finite number" if isinstance(spec.default, float) else "an integer"
    assert refusal(**{spec.name: value}) == f"{flag(spec.name)} is {value!r}; it must be {kind}"


def test_integers() -> None:
    assert refusal(epochs=2.5) == "--epochs is 2.5; it must be an integer"
    assert Config(reward_scale=2).reward_scale == 2  # an integer is a finite number


@pytest.mark.parametrize("spec", CHOICES, ids=name_of)
def test_choices(spec: Any) -> None:
    for choice in spec.metadata["choices"]:
        method = {"distance": "csd", "features": "dusdi"}.get(spec.name, "susd")
        options = {"method": method, "preset": "paper", "normalise_reward": True, spec.name: choice}
        assert getattr(configure("gunner", **options), spec.name) == choice
    message = refusal(**{spec.name: "other"})
    assert message == f"{flag(spec.name)} is 'other'; choose one of {', '.join(spec.metadata['choices'])}"


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("adaptive_alpha", "no", "true or false"),
        ("adaptive_alpha", 1, "true or false"),
        ("env", 3, "text"),
        ("env_options", "a=1", "a mapping"),
    ],
)
def test_other_types(name: str, value: Any, kind: str) -> None:
    assert refusal(**{name: value}) == f"{flag(name)} is {value!r}; it must be {kind}"


def test_limit_of_the_last_seed() -> None:
    top = 2**31 - 1
    assert Config(seed=top, seeds=1).seed == top
    assert Config(seed=top - 3, seeds=4).seeds == 4
    assert refusal(seed=top - 3, seeds=5) == f"--seed is {top - 3} and --seeds 5; the last seed must be at most {top}"


# --- presets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env", [*ENVIRONMENTS, "another"])
def test_paper_preset_follows_the_specification(env: str) -> None:
    config = configure(env, "paper")
    assert (config.env, config.preset, config.method) == (env, "paper", "susd")
    expected = {
        "epochs": 10_000,
        "episodes": 8,
        "gradient_steps": 50,
        "batch_size": 256,
        "buffer_size": 1_000_000,
        "warmup": 10_000,
        "time_limit": "terminal",
        "skill_dim": 2,
        "prior": "sphere",
        "scale_skill": False,
        "constraint": "joint",
        "weight": "raw",
        "share_agent": "all" if env == "kitchen" else "",
        "phi_input": "factor",
        "skill_factors": "",
        "weight_cap": 0.0,
        "std_bound": "clip",
        "reward_scope": "total",
        "reward_phi": "after",
        "relabel": False,
        "critic_norm": "none",
        "actor_every": 1,
        "lambda_init": 3000.0,
        "slack": 1e-6,
        "min_std": 1e-6,
        "hidden": 1024,
        "phi_hidden": 1024,
        "density_hidden": 1024,
        "layers": 2,
        "actor_activation": "tanh",
        "head_scale": 0.1,
        "learning_rate": 1e-4,
        "dual_learning_rate": 1e-4,
        "discount": 0.99,
        "tau": 0.005,
        "alpha_init": 0.1,
        "adaptive_alpha": True,
        "target_entropy": -0.5,
        "reward_scale": 1.0,
        "normalise_reward": False,
    }
    assert {name: getattr(config, name) for name in expected} == expected


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_changed_options(env: str, preset: str) -> None:
    start = configure(env, preset)
    changed = configure(env, preset, tau=0.25, seed=9)
    assert changed == dataclasses.replace(start, tau=0.25, seed=9)
    assert start.preset == preset


def test_quick_is_the_default() -> None:
    assert configure("gunner") == configure("gunner", "quick")
    quick, paper = configure("gunner", "quick"), configure("gunner", "paper")
    assert quick.epochs < paper.epochs
    assert quick.hidden < paper.hidden


def test_env_options_are_joined() -> None:
    before = configure("multi_particle", "paper").env_options
    assert before
    assert configure("multi_particle", "paper", env_options={"layout_seed": 3}).env_options == {**before, "layout_seed": 3}
    assert configure("multi_particle", "paper").env_options == before  # the preset is unchanged


def test_unknown_names() -> None:
    with pytest.raises(UserError, match=re.escape("preset 'slow' is unknown; choose one of paper, quick")):
        configure("gunner", "slow")
    with pytest.raises(UserError, match=r"option 'hiden' is unknown; options are .*hidden"):
        configure("gunner", hiden=3)
    with pytest.raises(UserError, match=r"method .metro. is unknown; choose one of susd, .*dusdi, or FILE.py:NAME"):
        configure("gunner", method="metro")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_json_round_trip(env: str, preset: str) -> None:
    config = configure(env, preset, seed=4, env_options={"x": 1})
    assert Config.from_json(json.loads(json.dumps(config.to_json(), allow_nan=False))) == config


@pytest.mark.parametrize("name", methods())
def test_json_has_used_options_only(name: str) -> None:
    config = configure("gunner", method=name)
    values = config.to_json()
    assert set(values) == {spec.name for spec in FIELDS if config.has(spec.name)}
    assert set(values) >= {spec.name for spec in FIELDS} - method_options() - set(OFF)
    assert Config.from_json(values) == config
    assert ("weight" in values) == name.startswith("susd")


def test_json_of_another_version() -> None:
    values = configure("gunner", "paper").to_json()
    with pytest.raises(UserError) as caught:
        Config.from_json({**values, "replay": 1, "keep": 1})
    assert str(caught.value) == (
        "this run has options that this version of susd does not know: keep, replay; "
        "runs of earlier versions cannot be loaded and must be trained again"
    )
    added = ("embedding", "weight_scope", "distance", "disentangle", "features", "critic")
    old = {name: value for name, value in values.items() if name not in added}
    assert Config.from_json(old) == configure("gunner", "paper")  # an option added after the run has its default
    with pytest.raises(UserError, match="--epochs is 0"):
        Config.from_json({**Config().to_json(), "epochs": 0})


# --- layers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("env", ENVIRONMENTS)
@pytest.mark.parametrize("name", methods())
def test_settings_are_those_of_the_config(name: str, env: str, preset: str) -> None:
    settings, config = resolve(env, preset, method=name, tau=0.25), configure(env, preset, method=name, tau=0.25)
    assert list(settings) == [spec.name for spec in FIELDS]
    for spec in FIELDS:
        setting = settings[spec.name]
        assert (setting.value, setting.used) == (getattr(config, spec.name), config.has(spec.name))
        assert setting.help == spec.metadata["help"]
        assert setting.layer in LAYERS
        if setting.layer == "default" and spec.name not in ("env", "env_options"):
            assert setting.value == spec.default
        if not setting.used:
            assert setting.layer == "default"


def test_layer_of_a_value() -> None:
    def layer(option: str, env: str = "gunner", preset: str = "quick", **changes: Any) -> tuple[Any, str]:
        setting = resolve(env, preset, **changes)[option]
        return setting.value, setting.layer

    assert layer("tau") == (0.005, "default")
    assert layer("hidden") == (128, "preset")
    assert layer("hidden", preset="paper") == (1024, "default")
    assert layer("discount") == (0.5, "environment")
    assert layer("discount", method="metra") == (0.85, "method")  # the method's value in this environment
    assert layer("discount", "kitchen", method="metra") == (0.97, "environment")
    assert layer("discount", method="metra", discount=0.5) == (0.5, "you")
    assert layer("lambda_init", method="metra", preset="paper") == (30.0, "method")
    assert layer("lambda_init", method="metra") == (30.0, "preset")
    assert layer("prior", method="metra") == ("sphere", "method")
    assert layer("weight", method="susd-w") == ("none", "method")
    assert layer("weight", method="metra") == ("raw", "default")  # not used
    assert layer("alpha_init", "multi_particle", method="dusdi") == (0.3, "method")
    assert layer("env_options", "kitchen")[1] == "environment"
    assert layer("env_options", "kitchen", env_options={"layout": "released"})[1] == "you"
    assert layer("env") == ("gunner", "you")
    assert layer("preset") == ("quick", "default")
    assert layer("preset", preset="paper") == ("paper", "you")
    assert layer("method") == ("susd", "default")
    assert layer("method", method="lsd") == ("lsd", "you")


def test_groups_begin_at_options() -> None:
    names = [spec.name for spec in FIELDS]
    assert names[0] in GROUPS
    assert [name for name in names if name in GROUPS] == list(GROUPS)


def test_module_is_the_function() -> None:
    assert susd.config("gunner", seed=2) == configure("gunner", seed=2)


# --- what is built from it --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAC_OPTIONS)
def test_sac_options_are_defined_once(name: str) -> None:
    spec = next(spec for spec in FIELDS if spec.name == name)
    assert sac_option(name, spec.default).metadata == spec.metadata


def test_sac_of_a_config() -> None:
    config = configure("gunner", hidden=19, tau=0.25)
    sac = Sac.from_config(config, 7, 2, parts=3, discount=0.5)
    assert (sac.inputs, sac.actions, sac.parts, sac.hidden, sac.tau, sac.discount) == (7, 2, 3, 19, 0.25, 0.5)
    assert sac.activation == config.actor_activation


@pytest.mark.parametrize("weight", ["mean", "none"])
def test_options_reach_the_learner(weight: str) -> None:
    """All values differ, so that two swapped options are detected."""
    density: dict[str, Any] = {"min_std": 0.017, "density_hidden": 29, "weight_scope": "state", "std_bound": "soft"}
    density |= {"weight_cap": 7.5}
    config = configure(
        "gunner",
        skill_dim=3,
        prior="gaussian",
        constraint="joint",
        weight=weight,
        share_agent="all",
        critic="decomposed",
        **(density if weight != "none" else {}),
        lambda_init=11.0,
        slack=0.013,
        hidden=19,
        phi_hidden=23,
        layers=3,
        actor_activation="tanh",
        head_scale=0.67,
        precision="bfloat16",
        learning_rate=0.031,
        dual_learning_rate=0.037,
        discount=0.41,
        tau=0.43,
        alpha_init=0.47,
        adaptive_alpha=False,
        target_entropy=-0.53,
        reward_scale=0.59,
        normalise_reward=False,
        batch_size=61,
    )
    spec = make("gunner").spec
    learner = Learner.from_config(config, spec)
    method, sac = learner.method, learner.sac
    assert isinstance(method, Susd)
    assert method.factorization == spec.factorization
    assert (method.skills.prior, method.skills.parts, method.skills.dim) == ("gaussian", 3, 3)
    assert method.share_agent == spec.factorization.names[1:]
    same = ("constraint", "weight", "weight_scope", "phi_hidden", "density_hidden", "layers", "min_std", "precision")
    same += ("lambda_init", "slack", "learning_rate", "dual_learning_rate", "std_bound", "weight_cap")
    assert {name: getattr(method, name) for name in same} == {name: getattr(config, name) for name in same}
    same = ("hidden", "layers", "precision", "head_scale", "learning_rate", "discount", "tau", "alpha_init")
    same += ("adaptive_alpha", "target_entropy")
    assert {name: getattr(sac, name) for name in same} == {name: getattr(config, name) for name in same}
    assert (sac.activation, sac.inputs, sac.actions, sac.parts) == ("tanh", 18 + 9, 6, 3)
    assert (learner.batch_size, learner.reward_scale, learner.normalise_reward) == (61, 0.59, False)


@pytest.mark.parametrize(
    ("prior", "scale"),
    [("sphere", math.sqrt(3 * 2)), ("factor_sphere", math.sqrt(2)), ("gaussian", 1.0), ("one_hot", 1.0)],
)
def test_scale_of_the_skill_input(prior: str, scale: float) -> None:
    spec = make("gunner").spec
    for scaled, expected in ((True, scale), (False, 1.0)):
        learner = Learner.from_config(configure("gunner", prior=prior, scale_skill=scaled), spec)
        assert learner.skill_input_scale == pytest.approx(expected)


def test_share_agent() -> None:
    spec = make("gunner").spec
    first, second, third = spec.factorization.names

    def sharing(text: str) -> tuple[str, ...]:
        method = Learner.from_config(configure("gunner", share_agent=text), spec).method
        assert isinstance(method, Susd)
        return method.share_agent

    assert sharing("") == ()
    assert sharing("all") == (second, third)
    assert sharing(f" {third} , {second}") == (third, second)
    for wrong in (first, "gun"):
        with pytest.raises(UserError, match=f"--share-agent names '{wrong}'; choose among {second}, {third}, or all"):
            sharing(f"{second},{wrong}")
