"""`susd methods` lists the methods from their cards and shows how two of them differ."""

import dataclasses
import itertools
import json

import pytest

from conftest import refused
from susd.cli.main import main
from susd.cli.methods import TEXTS, compare
from susd.config import PRESETS, Config, configure
from susd.methods.registry import method, method_options, methods

OPTIONS = [spec.name for spec in dataclasses.fields(Config) if spec.name != "method"]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as exited:
        main(["methods", *arguments])
    result = capsys.readouterr()
    assert (exited.value.code, result.err) == (0, "")
    return result.out


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys)
    lines = [line for line in text.splitlines() if line and not line.startswith(" ")]
    assert [line.split()[0] for line in lines[:-1]] == list(methods())
    for card in methods().values():
        fixed = ", ".join(f"--{name.replace('_', '-')} {value}" for name, value in card.fixed.items())
        assert f"{card.name:15} {card.summary}\n{'':15} {fixed or card.source}\n" in text
    rows = json.loads(printed(capsys, "--json"))
    assert [row["name"] for row in rows] == list(methods())
    for row, card in zip(rows, methods().values(), strict=True):
        assert {text: row[text] for text in TEXTS} == {text: getattr(card, text) for text in TEXTS}
        assert (row["variant_of"], row["fixed"], tuple(row["priors"])) == (card.base or None, card.fixed, card.priors)
        assert (row["title"], row["summary"], row["source"]) == (card.title, card.summary, card.source)
        config = configure("gunner", "paper", method=card.name)
        assert {name for name in method_options() if config.has(name)} - set(card.fixed) <= set(row["options"])


def test_all_pairs_differ() -> None:
    configs = {(name, preset): configure("gunner", preset, method=name) for name in methods() for preset in PRESETS}
    used = {key: {name: config.has(name) for name in OPTIONS} for key, config in configs.items()}
    for first, second in itertools.combinations(methods(), 2):
        result = compare(first, second)
        assert result["methods"] == [first, second]
        assert result["texts"] or result["paper"]
        for preset in PRESETS:
            for name in OPTIONS:
                keys = (first, preset), (second, preset)
                pair = [getattr(configs[key], name) if used[key][name] else None for key in keys]
                assert result[preset].get(name, [pair[0]] * 2) == pair


def test_difference(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "diff", "metra", "susd")
    assert max(map(len, text.splitlines())) <= 100
    words = " ".join(text.split())
    for name in ("metra", "susd"):
        card = method(name)
        for part in (card.objective, card.constraint, card.reward, card.prior):
            assert f"{name} {part}" in words
    assert "--lambda-init 30 3000" in words
    assert "--constraint - joint" in words
    result = json.loads(printed(capsys, "diff", "csd", "metra", "--env", "multi_particle", "--json"))
    assert result == compare("csd", "metra", "multi_particle")
    assert result["quick"]["distance"] == ["mean", None]
    assert "no difference" in printed(capsys, "diff", "lsd", "lsd")


def test_refusals(capsys: pytest.CaptureFixture[str]) -> None:
    assert "'metro' is unknown; choose one of susd, " in refused(capsys, "methods", "diff", "metra", "metro")
    assert "'diff metra'" in refused(capsys, "methods", "diff", "metra")
    assert "not 'metra'" in refused(capsys, "methods", "metra")
    assert "'maze'" in refused(capsys, "methods", "diff", "metra", "susd", "--env", "maze")
    assert "--env is 'gunner'" in refused(capsys, "methods", "--env", "gunner")
