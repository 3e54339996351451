"""Every method by its name: its options do something or are refused, its runs repeat bit for bit, its card is true."""

import dataclasses
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import susd
import susd.training.train
from susd.cli.main import main
from susd.config import PRESETS, Config, configure
from susd.errors import UserError
from susd.learner import Learner
from susd.methods.describe import TEXTS, difference
from susd.methods.registry import METHOD_OPTIONS, METHODS, Card, options_of
from susd.runs import checkpoint
from susd.runs.folder import RunFolder
from susd.training.build import build_env, build_learner
from susd.training.train import identity, resumed_config
from susd.training.trainer import Trainer, TrainState

SPECS = {spec.name: spec for spec in dataclasses.fields(Config)}
CARDS = list(METHODS.values())


def name_of(card: Card) -> str:
    return card.name


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def built(config: Config) -> tuple[Any, Learner]:
    """All that a config becomes, as values that can be compared."""
    spec = build_env(config).spec
    return spec, build_learner(config, spec)


# --- options ----------------------------------------------------------------------------------------------------------

TEXT_VALUES = {"factors": ("4", "1"), "share_agent": ("all", "ammo")}


def values_of(option: str) -> tuple[Any, ...]:
    """Some values that the option may have, whatever the method."""
    spec = SPECS[option]
    numbers: tuple[Any, ...] = (3, 5) if type(spec.default) is int else (0.25, 0.75)
    return TEXT_VALUES.get(option) or spec.metadata["choices"] or numbers


@pytest.mark.parametrize("option", sorted(METHOD_OPTIONS))
@pytest.mark.parametrize("card", CARDS, ids=name_of)
def test_an_option_does_something_or_is_refused(card: Card, option: str) -> None:
    start = configure("gunner", "paper", method=card.name)
    other = [value for value in values_of(option) if value != getattr(start, option)]
    assert other
    if option in card.fixed:
        for value in other:
            with pytest.raises(UserError) as caught:
                configure("gunner", "paper", **{"method": card.name, option: value})
            wanted = f"{flag(option)} is {value!r}, but {card.name} is {card.base} with {card.fixed[option]!r}"
            assert str(caught.value) == wanted
    elif option in options_of(start.to_json()):
        changed = configure("gunner", "paper", **{"method": card.name, option: other[0]})
        assert built(changed) != built(start)
        assert start.has(option)
    else:
        assert not start.has(option)
        assert getattr(start, option) == SPECS[option].default
        for value in (getattr(start, option), *other):
            with pytest.raises(UserError) as caught:
                configure("gunner", "paper", **{"method": card.name, option: value})
            check_refusal(str(caught.value), card, option, value)


def check_refusal(sentence: str, card: Card, option: str, value: Any) -> None:
    """It names option, value and method, and what it says to work does."""
    start = f"{flag(option)} is {value!r}, but it does nothing in {card.name}; "
    assert sentence.startswith(start)
    if "methods with it: " in sentence:
        able = sentence.partition("methods with it: ")[2].split(", ")
        assert card.name not in able
        assert set(able) == {c.name for c in CARDS if configure("gunner", "paper", method=c.name).has(option)} - {
            c.name for c in CARDS if option in c.fixed
        }
    else:
        assert any(f"{flag(name)} {fixed}" in sentence for name, fixed in card.fixed.items())


def test_equal_runs_have_equal_configs() -> None:
    """What a method does not have stays at its default, whatever the preset says."""
    config = configure("gunner", "quick", method="metra")
    assert PRESETS["quick"]["*"]["weight"] != SPECS["weight"].default
    assert config.weight == SPECS["weight"].default
    assert identity(config) == identity(configure("gunner", "quick", method="metra", prior="sphere"))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("env", ["gunner", "multi_particle"])
@pytest.mark.parametrize("card", CARDS, ids=name_of)
def test_presets_are_those_of_the_card(card: Card, env: str, preset: str) -> None:
    config = configure(env, preset, method=card.name)
    own, of_env = (card.quick, card.quick_own.get(env, {})) if preset == "quick" else ({}, {})
    expected = {**card.paper, **card.own.get(env, {}), **PRESETS[preset]["*"], **own, **PRESETS[preset].get(env, {})}
    expected |= {**of_env, **card.fixed}
    assert set(expected) <= set(SPECS)
    got = {name: getattr(config, name) for name in expected if config.has(name)}
    assert got == {name: value for name, value in expected.items() if name in got}
    its = set(card.fixed) if card.base else set(card.paper) | set(card.quick)  # a variant may drop what its method has
    assert all(config.has(name) for name in its)
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config
    method = built(config)[1].method
    assert type(method).__name__.lower() == card.code
    assert method.skills.prior in card.priors


# --- mistakes ---------------------------------------------------------------------------------------------------------

# What is typed after `susd train`, and what the answer must contain. These need no environment to be known ..
MISTAKES: dict[str, tuple[str, ...]] = {
    "gunner --method metro": ("--method", "'metro'", "susd, ", "metra, ", "dusdi"),
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
    "gunner --method dusdi --skill-dim 1": ("--skill-dim", "1", "at least 2 choices"),
    "gunner --method diayn-discrete --skill-dim 1": ("--skill-dim", "1", "at least 2 choices"),
    "gunner --prior one_hot --skill-dim 1": ("--skill-dim", "1", "at least 2 choices"),
    "gunner --method susd-w --weight mean": ("--weight", "'mean'", "susd-w is susd with 'none'"),
    "gunner --method susd-wf --embedding factored": ("--embedding", "'factored'", "susd-wf is susd with 'state'"),
    "gunner --method susd-shared --weight-scope factor": ("--weight-scope", "'factor'", "susd-shared is susd with 'state'"),
    "gunner --method susd-discrete --prior sphere": ("--prior", "'sphere'", "susd-discrete is susd with 'one_hot'"),
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
}
# .. and these do.
LATE_MISTAKES: dict[str, tuple[str, ...]] = {
    "gunner --method dusdi --factors 4 --features filtered": ("--features", "'filtered'", "gunner", "'agent'", "full"),
    "multi_particle --method dusdi --factors 20 --features filtered": ("--features", "'filtered'", "station", "full"),
    "gunner --method dusdi --factors 1": ("--disentangle", "0.1", "only one factor", "--disentangle 0"),
    "gunner --factors 1 --share-agent all": ("--share-agent", "'all'", "only one factor"),
    "gunner --method susd-w --factors 5": ("'factors'", "5", "3, 4, 2, 1"),
}
HEAVY = ("jax", "numpy", "equinox", "optax", "matplotlib", "gymnasium")
CHILD = """
import contextlib, io, json, sys
from susd.cli.main import main

answers = {}
for typed in json.load(sys.stdin):
    errors, code = io.StringIO(), 0
    try:
        with contextlib.redirect_stderr(errors):
            main(["train", *typed.split()])
    except SystemExit as exited:
        code = exited.code
    answers[typed] = [code, errors.getvalue(), [name for name in sys.argv[1:] if name in sys.modules]]
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process that has not loaded anything yet says to each of the mistakes."""
    child = subprocess.run(
        [sys.executable, "-c", CHILD, *HEAVY],
        input=json.dumps(list(MISTAKES)),
        cwd=(folder := tmp_path_factory.mktemp("mistakes")),
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert list(folder.iterdir()) == []
    result: dict[str, Any] = json.loads(child.stdout)
    return result


def check_answer(code: Any, errors: str, parts: tuple[str, ...]) -> None:
    assert code == 2, errors
    assert errors.startswith("susd: error: ")
    assert errors.count("\n") == 1
    assert len(errors) < 250
    for part in parts:
        assert part in errors


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_combination_without_sense_is_refused_at_once(answers: dict[str, Any], typed: str) -> None:
    code, errors, loaded = answers[typed]
    check_answer(code, errors, MISTAKES[typed])
    assert loaded == []


@pytest.mark.parametrize("typed", LATE_MISTAKES)
def test_a_combination_without_sense_in_this_world_is_refused_before_the_run(
    typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def began(*_: object) -> None:
        raise AssertionError("the run was begun")

    monkeypatch.setattr(susd.training.train, "_loop", began)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exited:
        main(["train", *typed.split()])
    check_answer(exited.value.code, capsys.readouterr().err, LATE_MISTAKES[typed])
    assert list(tmp_path.iterdir()) == []


# --- training ---------------------------------------------------------------------------------------------------------

TINY: dict[str, Any] = {"hidden": 8, "phi_hidden": 8, "layers": 1, "gradient_steps": 2, "batch_size": 8}
TINY |= {
    "episodes": 2,
    "horizon": 4,
    "buffer_size": 200,
    "warmup": 16,
    "seed": 3,
}  # the second epoch is the first that learns
SIZES = {"susd": 6, "susd-w": 6, "susd-wf": 6, "susd-shared": 6, "susd-discrete": 15, "susd-q": 6, "metra": 2, "lsd": 2}
SIZES |= {"csd": 2, "diayn": 2, "diayn-discrete": 16, "dusdi": 15}  # of skills in gunner, which has three factors
TOGETHER = ("lsd", "csd", "dusdi")  # one of each kind of state that a method carries along
KINDS = [
    *(("gunner", name, 1) for name in METHODS),
    *(("gunner", name, 2) for name in TOGETHER),
    *(("multi_particle", name, 1) for name in METHODS),
]
# These programs run for milliseconds, so that compiling them is all that costs.
COMPILER = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
Compiled = Callable[[str, str, int], Trainer]


def build(env: str, name: str, seeds: int) -> Trainer:
    """A compiled program; of two seeds the second is the seed of those with one."""
    density = {"density_hidden": 8} if configure(env, method=name).has("density_hidden") else {}
    changes = {**TINY, **density, "seeds": seeds, "seed": TINY["seed"] + 1 - seeds}
    trainer = Trainer.build(configure(env, method=name, **changes))
    trainer.start()
    trainer.compile()
    return trainer


@pytest.fixture(scope="module")
def compiled() -> Iterator[Compiled]:
    """The programs of this file, hardly optimised and compiled two at a time."""
    compile_ = jax.stages.Lowered.compile
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setattr(jax.stages.Lowered, "compile", lambda lowered: compile_(lowered, COMPILER))
        jax.config.update("jax_disable_most_optimizations", True)
        programs = {kind: pool.submit(build, *kind) for kind in KINDS}
        yield lambda *kind: programs[kind].result()
        pool.shutdown(cancel_futures=True)
        jax.config.update("jax_disable_most_optimizations", False)


def host(tree: Any) -> Any:
    """A copy outside JAX: the state itself is donated to the next epoch."""
    return jax.tree.map(lambda x: np.array(x), tree)


def run(trainer: Trainer, state: TrainState, epochs: range) -> tuple[TrainState, list[dict[str, bytes]]]:
    """The state after these epochs, and the bits of all that they logged."""
    rows = []
    for epoch in epochs:
        state, info = trainer.run_epoch(state, epoch)
        assert all(np.isfinite(value).all() for value in info.values())
        rows.append({name: np.asarray(value).tobytes() for name, value in info.items()})
    return state, rows


def assert_all_learned(trainer: Trainer, state: TrainState) -> None:
    """No number is lost, and all weights and multipliers have moved. Biases start at zero and may cancel in differences."""
    fresh = host(trainer.start().learner)
    learned = host(state.learner)
    for part in (lambda s: s.params, lambda s: s.sac.actor, lambda s: s.sac.critic, lambda s: s.sac.target):
        for before, after in zip(jax.tree.leaves(part(fresh)), jax.tree.leaves(part(learned)), strict=True):
            assert np.isfinite(after).all()
            assert (after != before).any() or not before.any()


def test_every_method_is_run() -> None:
    assert SIZES.keys() == METHODS.keys()
    assert {"susd", "metra", "lsd", "csd", "diayn", "dusdi"} == {card.code for card in CARDS}


@pytest.mark.parametrize("name", METHODS)
def test_a_run_repeats_and_in_pieces_equals_the_run_at_once(name: str, compiled: Compiled, tmp_path: Path) -> None:
    trainer = compiled("gunner", name, 1)
    config = trainer.config
    whole, rows = run(trainer, trainer.start(), range(4))
    checksum = checkpoint.digest(whole)
    again, rows_again = run(trainer, trainer.start(), range(4))
    assert (checkpoint.digest(again), rows_again) == (checksum, rows)
    assert_all_learned(trainer, again)

    folder = RunFolder.create(tmp_path / "run", config.to_json(), "a test")
    first, rows_first = run(trainer, trainer.start(), range(2))
    checkpoint.save(folder.checkpoints, 2, first, {"epoch": 2}, config=identity(config), rows={".replay.data": (1, 16)})
    like = jax.eval_shape(trainer.start)
    restored, _, _ = checkpoint.restore_latest(folder.checkpoints, like, identity(Config.from_json(folder.config)))
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
    assert agent.act(obs, skills).shape == agent.act(obs, skills, seed=1).shape == (5, 6)
    assert agent.act(obs[0], skills[0]).shape == (6,)
    assert agent.encode(obs).shape == (5, SIZES[name])
    assert agent.encode(obs[0]).shape == (SIZES[name],)
    assert np.isfinite(agent.encode(obs)).all()
    assert not np.allclose(agent.encode(obs[0]), agent.encode(obs[1]))


@pytest.mark.parametrize("name", METHODS)
def test_every_method_learns_in_the_other_world_too(name: str, compiled: Compiled) -> None:
    trainer = compiled("multi_particle", name, 1)
    state, _ = run(trainer, trainer.start(), range(2))
    assert_all_learned(trainer, state)
    card = METHODS[name]
    parts = 1 if "factors" not in card.options or card.fixed.get("embedding") == "state" else 10
    assert trainer.learner.method.skills.parts == parts


@pytest.mark.parametrize("name", TOGETHER)
def test_agents_trained_together_are_agents_trained_alone(name: str, compiled: Compiled) -> None:
    pair, single = compiled("gunner", name, 2), compiled("gunner", name, 1)
    assert (pair.config.seed, single.config.seed) == (2, 3)
    both, one = pair.start(), single.start()
    for epoch in range(3):
        (both, _), (one, _) = pair.run_epoch(both, epoch), single.run_epoch(one, epoch)
        first, second = (jax.tree.leaves(jax.tree.map(lambda x, i=i: np.asarray(x[i]), both.learner)) for i in range(2))
        alone = jax.tree.leaves(jax.tree.map(lambda x: np.asarray(x[0]), one.learner))
        a, b, c = (np.concatenate([leaf.ravel() for leaf in leaves]) for leaves in (second, alone, first))
        assert np.isfinite(a).all()
        near = np.isclose(a, b, rtol=1e-4, atol=1e-6)  # Adam makes whole steps of gradients that are zero but for rounding
        assert near.mean() > 0.95
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=5e-3)
        assert np.isclose(a, c, rtol=1e-4, atol=1e-6).mean() < 0.7  # seeds have nothing in common but what starts at zero


# --- what is said of them ---------------------------------------------------------------------------------------------


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as exited:
        main(["methods", *arguments])
    result = capsys.readouterr()
    assert (exited.value.code, result.err) == (0, "")
    return result.out


def test_the_list_is_that_of_the_cards(capsys: pytest.CaptureFixture[str]) -> None:
    table = printed(capsys)
    lines = [line for line in table.splitlines() if line and not line.startswith(" ")]
    assert [line.split()[0] for line in lines[:-1]] == list(METHODS)
    for card in CARDS:
        beside = ", ".join(f"{flag(name)} {value}" for name, value in card.fixed.items()) if card.base else card.source
        assert f"{card.name:15} {card.summary}\n{'':15} {beside}\n" in table
    rows = json.loads(printed(capsys, "--json"))
    assert [row["name"] for row in rows] == list(METHODS)
    for row, card in zip(rows, CARDS, strict=True):
        assert {text: row[text] for text in TEXTS} == {text: getattr(card, text) for text in TEXTS}
        assert (row["variant_of"], row["fixed"], tuple(row["priors"])) == (card.base or None, card.fixed, card.priors)
        assert (row["summary"], row["source"]) == (card.summary, card.source)
        config = configure("gunner", "paper", method=card.name)
        assert {name for name in METHOD_OPTIONS if config.has(name)} - set(card.fixed) <= set(row["options"])


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(METHODS, 2)))
def test_every_two_methods_differ_and_the_difference_is_told(first: str, second: str) -> None:
    told = difference(first, second)
    assert told["methods"] == [first, second]
    assert told["texts"] or told["paper"]
    for preset in PRESETS:
        configs = [configure("gunner", preset, method=name) for name in (first, second)]
        assert built(configs[0])[1] != built(configs[1])[1]
        for name in set(SPECS) - {"method"}:
            has = [config.has(name) for config in configs]
            pair = [getattr(config, name) if known else None for config, known in zip(configs, has, strict=True)]
            assert told[preset].get(name, [pair[0]] * 2) == pair


def test_the_difference_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "diff", "metra", "susd")
    assert max(map(len, text.splitlines())) <= 100
    words = " ".join(text.split())
    for name in ("metra", "susd"):
        for told in (METHODS[name].objective, METHODS[name].constraint, METHODS[name].reward, METHODS[name].prior):
            assert f"{name} {told}" in words
    assert "--lambda-init 30 3000" in words
    assert "--constraint - joint" in words
    told = json.loads(printed(capsys, "diff", "csd", "metra", "--env", "multi_particle", "--json"))
    assert told == difference("csd", "metra", "multi_particle")
    assert told["quick"]["distance"] == ["mean", None]
    assert "no difference" in printed(capsys, "diff", "lsd", "lsd")


def test_a_difference_to_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, part in (
        (("diff", "metra", "metro"), "'metro' is unknown; choose among susd, "),
        (("diff", "metra"), "'diff metra'"),
        (("metra",), "not 'metra'"),
    ):
        with pytest.raises(SystemExit) as exited:
            main(["methods", *arguments])
        check_answer(exited.value.code, capsys.readouterr().err, (part,))


# --- runs of other versions -------------------------------------------------------------------------------------------

YOUNGER = ("embedding", "weight_scope", "distance", "disentangle", "features", "critic")


def test_a_run_from_before_these_options_is_the_same_run(tmp_path: Path) -> None:
    config = configure("gunner", **TINY)
    old = {name: value for name, value in config.to_json().items() if name not in YOUNGER}
    folder = RunFolder.create(tmp_path / "run", old, "a test")
    assert Config.from_json(folder.config) == config
    assert identity(Config.from_json(folder.config)) == identity(config)
    assert built(Config.from_json(old)) == built(config)
    assert resumed_config(folder, config, {}) == config
    assert resumed_config(folder, None, {"weight_scope": "factor", "epochs": 7}) == dataclasses.replace(config, epochs=7)
    with pytest.raises(UserError, match="was started with weight_scope = 'factor'; it cannot be resumed with 'state'"):
        resumed_config(folder, None, {"weight_scope": "state"})


def test_a_run_with_an_option_of_the_future_is_refused(tmp_path: Path) -> None:
    config = configure("gunner", **TINY).to_json() | {"telepathy": True}
    folder = RunFolder.create(tmp_path / "run", config, "a test")
    with pytest.raises(UserError, match="not of this version of susd: it does not know telepathy"):
        susd.load(folder.path)
    with pytest.raises(UserError, match="not of this version of susd: it does not know telepathy"):
        resumed_config(folder, None, {})
