"""The recorded results: complete, and the tables of README and docs made from them."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "results" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLES = script("tables")


@pytest.mark.parametrize("page", TABLES.PAGES)
def test_tables_are_what_the_files_say(page: str) -> None:
    text = (ROOT / page).read_text()
    assert "<!-- table " in text
    assert TABLES.fill(text) == text, f"{page} is out of date: run python results/tables.py"


def test_a_changed_number_is_noticed() -> None:
    text = (ROOT / "README.md").read_text()
    start = text.index("<!-- table quick -->")
    digit = next(i for i in range(start, len(text)) if text[i].isdigit())
    changed = text[:digit] + str((int(text[digit]) + 1) % 10) + text[digit + 1 :]
    assert TABLES.fill(changed) == text != changed


def test_the_report_is_made_of_the_recorded_facts(tmp_path: Path) -> None:
    from susd.report import build as report

    folders = sorted(path.parent for path in (ROOT / "results").glob("*/facts.jsonl"))
    assert [folder.name for folder in folders] == ["2d-quick"]
    assert report.build(folders, tmp_path).stat().st_size > 100_000
    assert (tmp_path / "parity.csv").read_text() == (ROOT / "results" / "parity.csv").read_text()


@pytest.mark.parametrize("env", TABLES.WORLDS)
def test_quick_meets_its_learning_targets(env: str) -> None:
    runs = json.loads((ROOT / "results" / f"quick-{env}.json").read_text())["runs"]
    assert sorted(run["config"]["seed"] for run in runs) == [0, 1, 2]
    for run in runs:
        assert run["config"]["preset"] == "quick"
        assert run["train_seconds"] < 600
        assert run["meta"]["commit"]
        measured = run["coverage"][0]
        trained, untrained = (measured[f"{who}, mean actions"] for who in ("trained", "untrained"))
        times = {"gunner": 4, "multi_particle": 2}[env]
        assert trained["cells"]["worst"] >= times * untrained["cells"]["worst"]
        if env == "gunner":
            assert trained["cells"]["worst"] >= 0.4 * trained["cells"]["of"]
            assert all(share > 0 for share in trained["landmarks"].values())
        assert run["control"][0]["ratio"] >= 3.0
