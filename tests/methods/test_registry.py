"""Every method by name: its options have an effect or are refused, its runs repeat bit for bit, its card is correct."""

import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import susd
from conftest import refused
from reference import fast, random_like, random_transitions
from susd import plugins
from susd.config import PRESETS, Config, configure
from susd.envs import make
from susd.envs.base import EnvSpec, own_dimensions
from susd.envs.registry import env_entry
from susd.errors import UserError
from susd.learner import Learner, LearnerState
from susd.methods.lsd import Lsd
from susd.methods.metra import Metra
from susd.methods.registry import Card, build_method, method, method_options, methods, methods_with
from susd.runs import checkpoint
from susd.runs.folder import RunFolder
from susd.training.train import resumed_config
from susd.training.trainer import Trainer, TrainState, learning_hash

SPECS = {spec.name: spec for spec in dataclasses.fields(Config)}
CARDS = [card for card in methods().values() if card.code in ("susd", "metra", "lsd", "csd", "diayn", "dusdi")]
NAMES = [card.name for card in CARDS]
every_card = pytest.mark.parametrize("card", CARDS, ids=NAMES)
every_name = pytest.mark.parametrize("name", NAMES)

TIMES = {"train_seconds": 1.0, "compile_seconds": 1.0}  # of the meta data of every checkpoint


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


@cache
def spec_of(env: str, factors: str = "") -> EnvSpec:
    """The facts of an environment; the first half of its observation belongs to the entities themselves."""
    spec = make(env, **({"factors": int(factors)} if factors else {})).spec
    return dataclasses.replace(spec, own=own_dimensions(spec.factorization, range(spec.obs_size // 2)))


def built(config: Config) -> tuple[EnvSpec, Learner]:
    """Everything that a config describes, as values that can be compared."""
    spec = spec_of(config.env, config.factors)
    return spec, Learner.from_config(config, spec)


# --- cards ------------------------------------------------------------------------------------------------------------


def test_built_in_methods_in_order() -> None:
    variants = ["susd-w", "susd-wf", "susd-shared", "susd-discrete", "susd-paced", "susd-q"]
    assert ["susd", *variants, "metra", "lsd", "csd", "diayn", "diayn-discrete", "dusdi"] == NAMES
    assert list(methods())[: len(NAMES)] == NAMES
    assert [method(name) for name in NAMES] == CARDS


def test_texts_of_the_cards() -> None:
    assert [card.title for card in CARDS if not card.base] == ["SUSD", "METRA", "LSD", "CSD", "DIAYN", "DUSDi"]
    assert len({card.title for card in CARDS}) == len({card.summary for card in CARDS}) == len(CARDS)
    assert [card.code for card in CARDS if not card.directions] == ["diayn", "diayn", "dusdi"]
    for card in CARDS:
        assert all((card.summary, card.source, card.objective, card.constraint, card.weight, card.reward, card.metrics))
        assert bool(card.base) == bool(card.fixed)
        assert not card.base or card.source == method(card.base).source


def lab(colour: str) -> np.ndarray:
    """CIELAB, in which distances are about as large as they look."""
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    matrix = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(matrix @ linear / [0.9505, 1.0, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_colours_are_distinct() -> None:
    for card in CARDS:
        assert re.fullmatch("#[0-9A-F]{6}", card.colour)
        assert lab(card.colour)[0] < 80  # dark enough for white paper
    for one, other in itertools.combinations(CARDS, 2):
        assert np.linalg.norm(lab(one.colour) - lab(other.colour)) > 20, (one.name, other.name)


# --- methods from outside the package ---------------------------------------------------------------------------------

TOY = Card(
    name="toy",
    title="Toy",
    summary="METRA in your own file",
    implementation="susd.methods.metra:Metra",
    options=method("metra").options,
    paper={"slack": 0.5},
    quick={"prior": "sphere"},
)
FILE = """
from susd.methods.lsd import Lsd
from susd.methods.registry import Card

class Mine(Lsd):
    pass

MINE = Card(name="mine", title="Mine", summary="LSD again", implementation=Mine, quick={"prior": "sphere"})
WRONG = Card(name="wrong", title="Wrong", summary="", implementation=Mine, options=frozenset({"lamda"}))
"""


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Pretend that a package with these entry points is installed."""

    def install(entries: dict[str, Any]) -> None:
        monkeypatch.setattr(plugins, "registered", lambda kind: entries if kind == "methods" else {})
        monkeypatch.setattr(plugins, "load", lambda kind, name: entries[name])
        methods.cache_clear()

    yield install
    monkeypatch.undo()
    methods.cache_clear()


def test_entry_points_add_methods(installed: Callable[[dict[str, Any]], None]) -> None:
    other = TOY.variant("toy-w", "Toy-w", "a variant", {"slack": 0.1}, colour=method("susd").colour)
    installed({"toys": (TOY, other)})
    assert list(methods()) == [*NAMES, "toy", "toy-w"]
    assert len({card.colour for card in methods().values()}) == len(NAMES) + 2  # none at first, and one that was taken
    config = configure("gunner", method="toy", phi_hidden=4)
    assert isinstance(build_method(config, spec_of("gunner")), Metra)
    assert (config.slack, configure("gunner", "paper", method="toy").slack) == (1e-3, 0.5)
    assert method("toy-w").code == "toy"
    assert "toy" in methods_with("lambda_init").split(", ")
    with pytest.raises(UserError, match=r"--slack is 0\.5, but toy-w is toy with 0\.1"):
        configure("gunner", method="toy-w", slack=0.5)
    with pytest.raises(UserError, match="--weight is 'none', but it has no effect in toy"):
        configure("gunner", method="toy", weight="none")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (3, "entry point 'toys' of susd.methods has the type int; it must be a susd.extend.Card"),
        (dataclasses.replace(TOY, name="lsd"), "method 'lsd' of an installed package has the name of another method"),
        (dataclasses.replace(TOY, quick={"speed": 1}), "method 'toy' names the option 'speed', which does not exist"),
        (dataclasses.replace(TOY, priors=("cube",)), "method 'toy' names the prior 'cube'; choose among sphere, "),
    ],
)
def test_invalid_entry_points(entry: Any, message: str, installed: Callable[[dict[str, Any]], None]) -> None:
    installed({"toys": entry})
    assert method("susd").name == "susd"  # the built-in methods still work
    with pytest.raises(UserError, match=re.escape(message)):
        methods()


def test_method_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_method.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    config = configure("gunner", method="my_method.py:MINE", phi_hidden=4)
    found = build_method(config, spec_of("gunner"))
    assert isinstance(found, Lsd)
    assert type(found).__name__ == "Mine"
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert method("my_method.py:MINE").colour not in {card.colour for card in CARDS}
    for name, message in {
        "my_method.py:Mine": "my_method.py:Mine has the type type; it must be a susd.extend.Card",
        "my_method.py:OTHER": "'OTHER'",
        "my_method.py:WRONG": "names the option 'lamda', which does not exist",
        "missing.py:MINE": "'missing.py'",
        "mine": "method 'mine' is unknown; choose one of susd, ",
    }.items():
        with pytest.raises(UserError, match=re.escape(message)):
            configure("gunner", method=name)


# --- options ----------------------------------------------------------------------------------------------------------

VALUES = {"factors": ("4", "1"), "share_agent": ("all", "ammo"), "relabel": (False, True)}
VALUES["skill_factors"] = ("agent,ammo", "target")
NEEDS = {"reward_scope": {"normalise_reward": True}}  # what an option has an effect with


def values_of(option: str) -> tuple[Any, ...]:
    """Some valid values of an option."""
    spec = SPECS[option]
    numbers: tuple[Any, ...] = (3, 5) if type(spec.default) is int else (0.25, 0.75)
    return VALUES.get(option) or spec.metadata["choices"] or numbers


@pytest.mark.parametrize("option", sorted(method_options()))
@every_card
def test_options_have_an_effect_or_are_refused(card: Card, option: str) -> None:
    given = {"method": card.name, **NEEDS.get(option, {})}
    if (card.name, option) == ("dusdi", "factors"):
        given["features"] = "full"  # filtered ones are those of the original factors
    start = configure("gunner", "paper", **given)
    other = [value for value in values_of(option) if value != getattr(start, option)]
    assert other
    if option in card.fixed:
        for value in other:
            with pytest.raises(UserError) as caught:
                configure("gunner", "paper", **{**given, option: value})
            wanted = f"{flag(option)} is {value!r}, but {card.name} is {card.base} with {card.fixed[option]!r}"
            assert str(caught.value) == wanted
    elif option in card.active(vars(start)):
        changed = configure("gunner", "paper", **{**given, option: other[0]})
        assert built(changed) != built(start)
        assert changed.has(option)
    else:
        assert not start.has(option)
        assert getattr(start, option) == SPECS[option].default
        for value in (getattr(start, option), *other):
            with pytest.raises(UserError) as caught:
                configure("gunner", "paper", **{**given, option: value})
            check_refusal(str(caught.value), card, option, value)


def check_refusal(sentence: str, card: Card, option: str, value: Any) -> None:
    """It names option, value and method, and what it recommends is possible."""
    assert sentence.startswith(f"{flag(option)} is {value!r}, but it has no effect in {card.name}; ")
    if "methods with it: " in sentence:
        able = sentence.partition("methods with it: ")[2].split(", ")
        assert card.name not in able
        configs = {c.name: configure("gunner", "paper", method=c.name, **NEEDS.get(option, {})) for c in CARDS}
        assert set(able) == {c.name for c in CARDS if option in c.active(vars(configs[c.name])) - set(c.fixed)}
    else:
        assert any(f"{flag(name)} {fixed}" in sentence for name, fixed in card.fixed.items())


def test_equal_runs_have_equal_configs() -> None:
    """An option that a method does not have stays at its default in every preset."""
    config = configure("gunner", "quick", method="metra")
    assert PRESETS["quick"]["weight"] != SPECS["weight"].default
    assert config.weight == SPECS["weight"].default
    assert learning_hash(config) == learning_hash(configure("gunner", "quick", method="metra", prior="sphere"))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("env", ["gunner", "multi_particle"])
@every_card
def test_presets_of_the_cards(card: Card, env: str, preset: str) -> None:
    config = configure(env, preset, method=card.name)
    entry = env_entry(env)
    assert entry is not None
    own, of_env = (card.quick, card.quick_own.get(env, {})) if preset == "quick" else ({}, {})
    expected = {**card.paper, **card.own.get(env, {}), **PRESETS[preset], **own, **entry.presets.get(preset, {})}
    expected |= {**of_env, **card.fixed}
    assert set(expected) <= set(SPECS)
    got = {name: getattr(config, name) for name in expected if config.has(name)}
    assert got == {name: value for name, value in expected.items() if name in got}
    its = set(card.fixed) if card.base else set(card.paper) | set(card.quick)  # a variant may lack options of its method
    assert all(config.has(name) for name in its)
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config
    found = build_method(config, spec_of(env))
    assert type(found).__name__.lower() == card.code
    assert found.skills.prior in card.priors


@cache
def learner_of(name: str, preset: str) -> Learner:
    return built(configure("gunner", preset, method=name))[1]


def test_all_methods_differ() -> None:
    for preset in PRESETS:
        for first, second in itertools.combinations(NAMES, 2):
            assert learner_of(first, preset) != learner_of(second, preset)


# --- mistakes ---------------------------------------------------------------------------------------------------------

# The arguments of `susd train`, and what the error must contain: first those that need no environment ..
MISTAKES: dict[str, tuple[str, ...]] = {
    "gunner --method metro": ("method", "'metro'", "susd, ", "metra, ", "dusdi"),
    "gunner --method metra --prior one_hot": ("--prior", "'one_hot'", "metra has sphere or gaussian", "susd-discrete"),
    "gunner --method lsd --prior one_hot": ("--prior", "'one_hot'", "lsd has sphere or gaussian", "dusdi"),
    "gunner --method csd --prior one_hot": ("--prior", "'one_hot'", "csd has sphere or gaussian", "diayn-discrete"),
    "gunner --method metra --prior factor_sphere": ("--prior", "'factor_sphere'", "metra", "methods with it: susd"),
    "gunner --method diayn --prior sphere": ("--prior", "'sphere'", "diayn has gaussian or one_hot"),
    "gunner --method dusdi --prior sphere": ("--prior", "'sphere'", "dusdi has one_hot", "methods with it: susd"),
    "gunner --method dusdi --prior gaussian": ("--prior", "'gaussian'", "dusdi has one_hot"),
    "gunner --method metra --factors 4": ("--factors", "'4'", "metra", "susd", "dusdi"),
    "gunner --method csd --factors 1": ("--factors", "'1'", "csd"),
    "gunner --method diayn --constraint per_factor": ("--constraint", "'per_factor'", "diayn", "susd"),
    "gunner --method lsd --critic decomposed": ("--critic", "'decomposed'", "lsd", "susd", "dusdi"),
    "gunner --method metra --share-agent all": ("--share-agent", "'all'", "metra", "susd"),
    "gunner --method dusdi --share-agent all": ("--share-agent", "'all'", "dusdi", "susd"),
    "gunner --method metra --embedding state": ("--embedding", "'state'", "metra", "susd, susd-w"),
    "gunner --method lsd --lambda-init 30": ("--lambda-init", "30.0", "lsd", "metra", "csd"),
    "gunner --method lsd --slack 0.1": ("--slack", "0.1", "lsd", "metra"),
    "gunner --method metra --min-std 0.1": ("--min-std", "0.1", "metra", "diayn"),
    "gunner --method metra --weight none": ("--weight", "'none'", "metra", "susd"),
    "gunner --method csd --weight mean": ("--weight", "'mean'", "csd", "susd"),
    "gunner --distance mean": ("--distance", "'mean'", "susd", "csd"),
    "gunner --features filtered": ("--features", "'filtered'", "susd", "dusdi"),
    "gunner --method diayn --disentangle 0.1": ("--disentangle", "0.1", "diayn", "dusdi"),
    "gunner --method dusdi --disentangle -1": ("--disentangle", "-1", "at least 0"),
    "gunner --method metra --skill-dim 0": ("--skill-dim", "0", "at least 1"),
    "gunner --method dusdi --skill-dim 1": ("--skill-dim", "1", "at least 2 discrete skills"),
    "gunner --method diayn-discrete --skill-dim 1": ("--skill-dim", "1", "at least 2 discrete skills"),
    "gunner --prior one_hot --skill-dim 1": ("--skill-dim", "1", "at least 2 discrete skills"),
    "gunner --method susd-w --weight mean": ("--weight", "'mean'", "susd-w is susd with 'none'"),
    "gunner --method susd-wf --embedding factored": ("--embedding", "'factored'", "susd-wf is susd with 'state'"),
    "gunner --method susd-shared --weight-scope factor": ("--weight-scope", "'factor'", "susd-shared is susd with 'state'"),
    "gunner --method susd-discrete --prior sphere": ("--prior", "'sphere'", "susd-discrete is susd with 'one_hot'"),
    "gunner --method susd-paced --prior sphere": ("--prior", "'sphere'", "susd-paced is susd with 'factor_ball'"),
    "gunner --method metra --prior factor_ball": ("--prior", "'factor_ball'", "metra", "methods with it: susd, susd-w"),
    "gunner --weight none --weight-cap 5": ("--weight-cap", "5", "no density model with --weight none"),
    "gunner --weight-cap -1": ("--weight-cap", "-1", "at least 0"),
    "gunner --method metra --std-bound soft": ("--std-bound", "'soft'", "metra", "csd"),
    "gunner --no-normalise-reward --reward-scope factor": ("--reward-scope", "'factor'", "--no-normalise-reward"),
    "gunner --method lsd --reward-scope factor": ("--reward-scope", "'factor'", "lsd", "susd", "dusdi"),
    "gunner --phi-input all": ("--phi-input", "'all'", "factor, own"),
    "gunner --method dusdi --phi-input own --features filtered": ("--features", "'filtered'", "--phi-input own"),
    "gunner --method susd-q --critic single": ("--critic", "'single'", "susd-q is susd with 'decomposed'"),
    "gunner --method diayn-discrete --prior gaussian": ("--prior", "'gaussian'", "diayn-discrete is diayn with 'one_hot'"),
    "gunner --method susd-shared --weight none": ("susd-shared", "--weight-scope state", "no density", "--weight none"),
    "gunner --method susd-q --embedding state": ("--embedding", "'state'", "susd-q", "susd, susd-w"),
    "gunner --weight none --density-hidden 9": ("--density-hidden", "9", "no density model with --weight none"),
    "gunner --weight none --min-std 0.1": ("--min-std", "0.1", "no density model with --weight none"),
    "gunner --weight none --weight-scope state": ("--weight-scope", "'state'", "no density model with --weight none"),
    "gunner --method susd-w --min-std 0.1": ("--min-std", "0.1", "susd-w", "--weight none"),
    "gunner --embedding state --prior one_hot": ("--prior", "'one_hot'", "--embedding state", "sphere or gaussian"),
    "gunner --embedding state --prior sphere --critic decomposed": ("--critic", "'decomposed'", "--embedding state"),
    "gunner --method susd-wf --constraint joint": ("--constraint", "'joint'", "susd-wf", "--embedding state"),
    "gunner --method diayn --prior one_hot --min-std 0.2": ("--min-std", "0.2", "--prior one_hot"),
    "gunner --method diayn-discrete --min-std 0.2": ("--min-std", "0.2", "--prior one_hot"),
    # .. then those that do.
    "gunner --method dusdi --factors 4 --features filtered": ("--features", "'filtered'", "gunner", "'agent'", "full"),
    "multi_particle --method dusdi --factors 20 --features filtered": ("--features", "'filtered'", "station", "full"),
    "gunner --method dusdi --factors 1": ("--disentangle", "0.1", "only one factor", "--disentangle 0"),
    "gunner --factors 1 --share-agent all": ("--share-agent", "'all'", "only one factor"),
    "gunner --skill-factors agent,gun": ("--skill-factors", "'agent,gun'", "agent, ammo, target"),
    "gunner --skill-factors agent,agent": ("--skill-factors", "'agent,agent'", "each once"),
    "gunner --phi-input own": ("--phi-input", "'own'", "gunner declares no own dimensions", "choose factor"),
    "gunner --method susd-w --factors 5": ("'factors'", "5", "3, 4, 2, 1"),
}


@pytest.mark.parametrize("typed", MISTAKES)
def test_contradictions_are_refused_before_the_run(
    typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def created(*_: object) -> None:
        raise AssertionError("the run was started")

    monkeypatch.setattr(RunFolder, "create", created)
    monkeypatch.chdir(tmp_path)
    sentence = refused(capsys, "train", *typed.split())
    assert len(sentence) < 240
    for part in MISTAKES[typed]:
        assert part in sentence
    assert list(tmp_path.iterdir()) == []


# --- training ---------------------------------------------------------------------------------------------------------

TINY: dict[str, Any] = {"hidden": 8, "phi_hidden": 8, "layers": 1, "gradient_steps": 2, "batch_size": 8}
TINY |= {"episodes": 2, "horizon": 4, "buffer_size": 200, "warmup": 16, "seed": 3}  # the second epoch is the first to learn
LATER = {"susd-paced": {"reward_scope": "factor", "std_bound": "soft", "weight_cap": 5.0}}  # options without a variant
SIZES = {"susd": 6, "susd-w": 6, "susd-wf": 6, "susd-shared": 6, "susd-discrete": 15, "susd-q": 6, "metra": 2, "lsd": 2}
SIZES |= {
    "susd-paced": 6,
    "csd": 2,
    "diayn": 2,
    "diayn-discrete": 16,
    "dusdi": 15,
}  # of skills in gunner, which has three factors
PAIRS = ("lsd", *(pytest.param(name, marks=pytest.mark.slow) for name in ("csd", "dusdi")))  # all kinds of carried state
Compiled = Callable[[str, str, int], Trainer]


def tiny(env: str, name: str, **changes: Any) -> Config:
    density = {"density_hidden": 8} if configure(env, method=name).has("density_hidden") else {}
    return configure(env, method=name, **{**TINY, **density, **LATER.get(name, {}), **changes})


def build(env: str, name: str, seeds: int) -> Trainer:
    """A compiled program; of two seeds the second is the seed of those with one."""
    trainer = Trainer.build(tiny(env, name, seeds=seeds, seed=TINY["seed"] + 1 - seeds))
    trainer.start()
    trainer.compile()
    return trainer


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    """The programs of this file, each compiled by the first test that needs it."""
    return cache(build)


def host(tree: Any) -> Any:
    """A copy outside JAX: the state itself is donated to the next epoch."""
    return jax.tree.map(lambda x: np.array(x), tree)


def run(trainer: Trainer, state: TrainState, epochs: range) -> tuple[TrainState, list[dict[str, bytes]]]:
    """The state after these epochs, and the bits of everything that they logged."""
    rows = []
    for epoch in epochs:
        state, info = trainer.run_epoch(state, epoch)
        assert all(np.isfinite(value).all() for value in info.values())
        rows.append({name: np.asarray(value).tobytes() for name, value in info.items()})
    return state, rows


def assert_all_learned(before: LearnerState, after: LearnerState) -> None:
    """All weights and multipliers are finite and have changed. Biases start at zero and may cancel in differences."""
    for part in (lambda s: s.params, lambda s: s.sac.actor, lambda s: s.sac.critic, lambda s: s.sac.target):
        for old, new in zip(jax.tree.leaves(part(host(before))), jax.tree.leaves(part(host(after))), strict=True):
            assert np.isfinite(new).all()
            assert (new != old).any() or not old.any()


@pytest.mark.slow
@every_name
def test_runs_repeat_and_resume(name: str, compiled: Compiled, tmp_path: Path) -> None:
    trainer = compiled("gunner", name, 1)
    config = trainer.config
    whole, rows = run(trainer, trainer.start(), range(4))
    checksum = checkpoint.digest(whole)
    again, rows_again = run(trainer, trainer.start(), range(4))
    assert (checkpoint.digest(again), rows_again) == (checksum, rows)
    assert_all_learned(trainer.start().learner, again.learner)
    assert set(method(name).metrics) >= {"phi_reward", "discriminator_loss"} & set(rows[-1])
    optional = {"accuracy"} if name == "diayn" else set()  # logged with --prior one_hot
    assert set(method(name).metrics) - optional <= set(rows[-1])

    folder = RunFolder.create(tmp_path / "run", config.to_json(), "a test")
    first, rows_first = run(trainer, trainer.start(), range(2))
    saved = {"config": learning_hash(config), "rows": {".replay.data": (1, 16)}}
    checkpoint.save(folder.checkpoints, 2, first, {"epoch": 2, **TIMES}, **saved)
    like = trainer.shapes
    restored, _, _ = checkpoint.restore_latest(folder.checkpoints, like, learning_hash(Config.from_json(folder.config)))
    assert checkpoint.digest(restored) == checkpoint.digest(first) != checksum
    resumed, rows_second = run(trainer, restored, range(2, 4))
    assert checkpoint.digest(resumed) == checksum
    assert rows_first + rows_second == rows

    agent = susd.load(folder.path)
    space = trainer.learner.method.skills
    assert agent.epoch == 2
    assert space.size == SIZES[name]
    skills, obs = agent.sample_skill(count=5), np.random.default_rng(0).uniform(size=(5, 18))
    assert skills.shape == (5, SIZES[name])
    assert agent.sample_skill().shape == (SIZES[name],)
    np.testing.assert_allclose(space.project(skills), skills, atol=1e-6)
    assert agent.act(obs, skills).shape == (5, 6)
    encoded = agent.encode(obs)
    assert encoded.shape == (5, SIZES[name])
    assert np.isfinite(encoded).all()
    assert not np.allclose(encoded[0], encoded[1])


@pytest.mark.slow
def test_agent_acts_and_encodes_single_states(compiled: Compiled, tmp_path: Path) -> None:
    """The same as a batch of one."""
    trainer = compiled("gunner", "susd", 1)
    folder = RunFolder.create(tmp_path / "run", trainer.config.to_json(), "a test")
    checkpoint.save(folder.checkpoints, 0, trainer.start(), {"epoch": 0, **TIMES}, config=learning_hash(trainer.config))
    agent = susd.load(folder.path)
    obs, skill = np.random.default_rng(0).uniform(size=(1, 18)), agent.sample_skill()
    for found, batch in (
        (agent.act(obs[0], skill), agent.act(obs, skill[None])),
        (agent.act(obs[0], skill, seed=1), agent.act(obs, skill[None], seed=1)),
        (agent.encode(obs[0]), agent.encode(obs)),
    ):
        np.testing.assert_array_equal(found, batch[0])
    assert agent.act(obs[0], skill).shape == (6,)
    assert agent.encode(obs[0]).shape == (6,)


def random_start(learner: Learner) -> LearnerState:
    """Random weights and zeros everywhere else, without compiling the learner's own initialisation."""

    def pick(path: Any, leaf: jax.ShapeDtypeStruct, random: np.ndarray) -> np.ndarray:
        name = jax.tree_util.keystr(path)
        weights = any(part in name for part in (".weights", ".log_lambda", ".right")) and "opt" not in name
        return random if weights else np.zeros(leaf.shape, leaf.dtype)

    return jax.tree_util.tree_map_with_path(
        pick, jax.eval_shape(learner.init, jax.random.key(0)), random_like(learner.init)
    )


@every_name
def test_parts_with_ten_factors(name: str) -> None:
    card = method(name)
    parts = 1 if "factors" not in card.options or card.fixed.get("embedding") == "state" else 10
    assert Learner.from_config(tiny("multi_particle", name), spec_of("multi_particle")).method.skills.parts == parts


@pytest.mark.slow
@pytest.mark.parametrize("name", ["susd", "susd-wf", "susd-shared", "susd-discrete", "susd-q", "metra", "dusdi"])
def test_learning_with_ten_factors(name: str) -> None:
    """One update for the observations of Multi-Particle, from random networks on random transitions.

    Other methods without factors are like METRA here, and other variants of SUSD like SUSD.
    """
    spec = spec_of("multi_particle")
    learner = Learner.from_config(tiny("multi_particle", name), spec)
    start = random_start(learner)
    batch = random_transitions(learner.method.skills, spec.obs_size)._replace(action=np.zeros((14, spec.action_size)))
    new, info = fast(learner.update)(start, batch, jax.random.key(0))
    assert_all_learned(start, new)
    assert all(np.isfinite(value).all() for value in info.values())


@pytest.mark.slow
def test_run_in_multi_particle(compiled: Compiled) -> None:
    trainer = compiled("multi_particle", "dusdi", 1)
    state, _ = run(trainer, trainer.start(), range(2))
    assert_all_learned(trainer.start().learner, state.learner)


@pytest.mark.parametrize("name", PAIRS)
def test_seeds_in_one_program_are_separate_runs(name: str, compiled: Compiled) -> None:
    pair, single = compiled("gunner", name, 2), compiled("gunner", name, 1)
    assert (pair.config.seed, single.config.seed) == (2, 3)
    both, one = pair.start(), single.start()
    for epoch in range(3):
        (both, _), (one, _) = pair.run_epoch(both, epoch), single.run_epoch(one, epoch)
        first, second = (jax.tree.leaves(jax.tree.map(lambda x, i=i: np.asarray(x[i]), both.learner)) for i in range(2))
        alone = jax.tree.leaves(jax.tree.map(lambda x: np.asarray(x[0]), one.learner))
        a, b, c = (np.concatenate([leaf.ravel() for leaf in leaves]) for leaves in (second, alone, first))
        assert np.isfinite(a).all()
        near = np.isclose(a, b, rtol=1e-4, atol=1e-6)  # Adam makes full steps for gradients that are rounding errors
        assert near.mean() > 0.95
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=5e-3)
        assert np.isclose(a, c, rtol=1e-4, atol=1e-6).mean() < 0.7  # two seeds share only what starts at zero


# --- runs of other versions -------------------------------------------------------------------------------------------

ADDED = ("embedding", "weight_scope", "distance", "disentangle", "features", "critic")


def test_run_from_before_an_option_existed(tmp_path: Path) -> None:
    config = configure("gunner", **TINY)
    old = {name: value for name, value in config.to_json().items() if name not in ADDED}
    folder = RunFolder.create(tmp_path / "run", old, "a test")
    assert Config.from_json(folder.config) == config
    assert learning_hash(Config.from_json(folder.config)) == learning_hash(config)
    assert built(Config.from_json(old)) == built(config)
    assert resumed_config(folder, config, {}) == config
    assert resumed_config(folder, None, {"weight_scope": "factor", "epochs": 7}) == dataclasses.replace(config, epochs=7)
    with pytest.raises(UserError, match="was started with weight_scope = 'factor'; it cannot be resumed with 'state'"):
        resumed_config(folder, None, {"weight_scope": "state"})


def test_run_with_unknown_options(tmp_path: Path) -> None:
    config = configure("gunner", **TINY).to_json() | {"telepathy": True}
    folder = RunFolder.create(tmp_path / "run", config, "a test")
    for load in (susd.load, lambda path: resumed_config(folder, None, {})):
        with pytest.raises(UserError, match="does not know: telepathy; runs of earlier versions cannot be loaded"):
            load(folder.path)
