"""Every option of a run is checked before anything long begins, and a bad one is named with its value and its limit."""

import dataclasses
import json
import math
import re
from typing import Any

import pytest

from susd.config import PRESETS, Config, configure
from susd.envs import ENVIRONMENTS, make
from susd.errors import UserError
from susd.methods.susd import Susd
from susd.training.build import build_learner

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
    assert getattr(Config(**{spec.name: high}), spec.name) == high
    above = high + 1 if isinstance(spec.default, int) else math.nextafter(high, math.inf)
    for value in (above, high + 1000):
        message = refusal(**{spec.name: value})
        assert message.startswith(f"{flag(spec.name)} is {value}; it must be at most ")
        assert float(message.rsplit(" ", 1)[1]) == high


@pytest.mark.parametrize("spec", NUMBERS, ids=name_of)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "1", None, True, [1]], ids=repr)
def test_not_a_number(spec: Any, value: Any) -> None:
    kind = "a finite number" if isinstance(spec.default, float) else "a whole number"
    assert refusal(**{spec.name: value}) == f"{flag(spec.name)} is {value!r}; it must be {kind}"


def test_whole_numbers_are_whole() -> None:
    assert refusal(epochs=2.5) == "--epochs is 2.5; it must be a whole number"
    assert Config(reward_scale=2).reward_scale == 2  # but a whole number is a number


@pytest.mark.parametrize("spec", CHOICES, ids=name_of)
def test_choices(spec: Any) -> None:
    for choice in spec.metadata["choices"]:
        method = {"distance": "csd", "features": "dusdi"}.get(spec.name, "susd")
        options = {"method": method, "preset": "paper", spec.name: choice}
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


def test_the_last_seed_is_a_seed_too() -> None:
    top = 2**31 - 1
    assert Config(seed=top, seeds=1).seed == top
    assert Config(seed=top - 3, seeds=4).seeds == 4
    assert refusal(seed=top - 3, seeds=5) == f"--seed is {top - 3} and --seeds 5; the last seed must be at most {top}"


# --- presets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env", [*ENVIRONMENTS, "another"])
def test_the_paper_preset_is_the_specification(env: str) -> None:
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
def test_presets_can_be_changed_option_by_option(env: str, preset: str) -> None:
    start = configure(env, preset)
    changed = configure(env, preset, tau=0.25, seed=9)
    assert changed == dataclasses.replace(start, tau=0.25, seed=9)
    assert start.preset == preset


def test_quick_is_the_default_and_another_preset() -> None:
    assert configure("gunner") == configure("gunner", "quick")
    quick, paper = configure("gunner", "quick"), configure("gunner", "paper")
    assert quick.epochs < paper.epochs
    assert quick.hidden < paper.hidden


def test_environment_options_join_those_of_the_preset() -> None:
    before = configure("multi_particle", "paper").env_options
    assert before
    assert configure("multi_particle", "paper", env_options={"layout_seed": 3}).env_options == {**before, "layout_seed": 3}
    assert configure("multi_particle", "paper").env_options == before  # the preset itself is not touched


def test_unknown_names() -> None:
    with pytest.raises(UserError, match=re.escape("preset 'slow' is unknown; choose one of paper, quick")):
        configure("gunner", "slow")
    with pytest.raises(UserError, match=r"option 'hiden' is unknown; options are .*hidden"):
        configure("gunner", hiden=3)
    with pytest.raises(UserError, match=r"--method is 'metro'; choose one of susd, .*metra, .*dusdi"):
        configure("gunner", method="metro")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_json_round_trip(env: str, preset: str) -> None:
    config = configure(env, preset, seed=4, env_options={"x": 1})
    assert Config.from_json(json.loads(json.dumps(config.to_json(), allow_nan=False))) == config


def test_json_of_another_version() -> None:
    values = configure("gunner", "paper").to_json()
    with pytest.raises(UserError, match=r"not of this version of susd: it does not know warmth, width$"):
        Config.from_json({**values, "width": 1, "warmth": 1})
    younger = ("embedding", "weight_scope", "distance", "disentangle", "features", "critic")
    old = {name: value for name, value in values.items() if name not in younger}
    assert Config.from_json(old) == configure("gunner", "paper")  # what is younger than the run has its default
    with pytest.raises(UserError, match="--epochs is 0"):
        Config.from_json({**Config().to_json(), "epochs": 0})


# --- what is built from it --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", ["mean", "none"])
def test_options_reach_the_learner(weight: str) -> None:
    """Numbers that occur nowhere else, so that two swapped options are seen."""
    density: dict[str, Any] = {"min_std": 0.017, "density_hidden": 29, "weight_scope": "state"}
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
    learner = build_learner(config, spec)
    method, sac = learner.method, learner.sac
    assert isinstance(method, Susd)
    assert method.factorization == spec.factorization
    assert (method.skills.prior, method.skills.parts, method.skills.dim) == ("gaussian", 3, 3)
    assert method.share_agent == spec.factorization.names[1:]
    same = ("constraint", "weight", "weight_scope", "phi_hidden", "density_hidden", "layers", "min_std", "precision")
    same += ("lambda_init", "slack", "learning_rate", "dual_learning_rate")
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
def test_skills_are_scaled_to_unit_variance_on_request(prior: str, scale: float) -> None:
    spec = make("gunner").spec
    assert build_learner(configure("gunner", prior=prior, scale_skill=True), spec).skill_input_scale == pytest.approx(scale)
    assert build_learner(configure("gunner", prior=prior, scale_skill=False), spec).skill_input_scale == 1.0


def test_who_sees_the_agent() -> None:
    spec = make("gunner").spec
    first, second, third = spec.factorization.names

    def sharing(text: str) -> tuple[str, ...]:
        method = build_learner(configure("gunner", share_agent=text), spec).method
        assert isinstance(method, Susd)
        return method.share_agent

    assert sharing("") == ()
    assert sharing("all") == (second, third)
    assert sharing(f" {third} , {second}") == (third, second)
    for wrong in (first, "gun"):
        with pytest.raises(UserError, match=f"--share-agent names '{wrong}'; choose among {second}, {third}, or all"):
            sharing(f"{second},{wrong}")
