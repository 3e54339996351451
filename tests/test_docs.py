"""The documentation says what the program does: its examples run, its links lead somewhere, its lists are complete."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TINY = "epochs=2, episodes=2, gradient_steps=2, warmup=1, buffer_size=400, batch_size=8, hidden=8, phi_hidden=8, density_hidden=8"
# Compiling tiny programs takes longer than running them.
XLA_FLAGS = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


def example(page: str, marker: str) -> str:
    """The Python block behind a marker."""
    found = re.findall(rf"<!-- {marker} -->\n```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert len(found) == 1, f"{page} has {len(found)} blocks marked {marker!r}"
    return str(found[0])


def programs(page: str) -> list[str]:
    """The complete examples of a page; what is marked as continued belongs to the one before it."""
    pattern = r"<!-- complete example(, continued)? -->\n```python\n(.*?)```"
    found: list[str] = []
    for continued, code in re.findall(pattern, (ROOT / page).read_text(), re.DOTALL):
        found = [*found[:-1], found[-1] + "\n" + code] if continued else [*found, code]
    return found


def execute(code: str, folder: Path) -> None:
    """Run a program as a reader would, in a folder of its own; warnings are errors there too."""
    (folder / "example.py").write_text(code)
    environment = os.environ | {"XLA_FLAGS": XLA_FLAGS}
    command = [sys.executable, "-W", "error", "example.py"]
    child = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert child.returncode == 0, child.stderr


def test_readme_example(tmp_path: Path) -> None:
    (code,) = programs("README.md")
    small = code.replace('susd.train("gunner")', f'susd.train("gunner", {TINY})')
    assert small != code
    steer = example("docs/python.md", "example with the agent of the README")
    checks = [
        "assert agent.epoch == 2",
        "assert obs.shape == (18,)",
        "assert skill.shape == (6,)",
        "assert (skill[-2:] == [1, 0]).all()",  # the target's part, set by the second example
        "assert action.shape == (6,)",
    ]
    execute("\n".join([small, steer, *checks]), tmp_path)
    assert (tmp_path / "runs" / "gunner-susd-s0" / "config.json").exists()


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of the environment in docs/python.md, trained and measured as it is printed there."""
    folder = tmp_path_factory.mktemp("workshop")
    check = """
from susd.envs.base import Environment

assert isinstance(Workshop(), Environment)
assert Workshop().render(Workshop().reset(None), size=50).shape == (50, 50, 3)
assert control["factors"] == ["cart", "lamp"] and matrix.shape == (2, 2)
"""
    execute(programs("docs/python.md")[0] + check, folder)
    return folder / "runs" / "workshop-susd-s0"


def test_every_metric_is_explained(workshop: Path) -> None:
    rows = [json.loads(line) for line in (workshop / "metrics.jsonl").read_text().splitlines()]
    written = {re.sub(r"^factor/[^/]+/", "factor/NAME/", name) for row in rows for name in row}
    assert {"phi_reward", "alpha", "coverage_worst", "control_ratio", "factor/NAME/weight"} <= written
    assert explained("index", "Metrics of all methods") | explained("susd", "Logged metrics") == written


def explained(page: str, heading: str) -> set[str]:
    """The keys in the tables of a section."""
    section = (ROOT / f"docs/methods/{page}.md").read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))


def logged(**options: Any) -> set[str]:
    """What an update of a method logs, found without running it."""
    import jax
    import jax.numpy as jnp

    from susd.config import configure
    from susd.training.build import build_env, build_learner
    from susd.types import Transition

    config = configure("gunner", hidden=8, phi_hidden=8, **options)
    spec = build_env(config).spec
    learner = build_learner(config, spec)
    sizes = spec.obs_size, spec.action_size, learner.method.skills.size, spec.obs_size
    obs, action, skill, next_obs = (jnp.zeros((4, size)) for size in sizes)
    batch = Transition(obs=obs, action=action, next_obs=next_obs, done=jnp.zeros(4), skill=skill)
    key = jax.random.key(0)
    info = jax.eval_shape(lambda: learner.update(learner.init(key), batch, key)[1])
    return {re.sub(r"^factor/[^/]+/", "factor/NAME/", name) for name in info}


@pytest.mark.parametrize("code", ["susd", "metra", "lsd", "csd", "diayn", "dusdi"])
def test_every_metric_of_every_method_is_explained(code: str) -> None:
    """Those of all methods once, the others on the page of the method, together with those of its variants."""
    from susd.methods.registry import METHODS

    runs = [logged(method=card.name) for card in METHODS.values() if card.code == code]
    own = explained(code, "Logged metrics")
    shared = {"reward", "reward_rms", "critic_loss", "q", "target_q", "actor_loss", "entropy", "alpha"}
    assert shared < explained("index", "Metrics of all methods")
    assert all(shared < names for names in runs)
    assert own
    assert set().union(*runs) == own | shared
    assert not own & shared


def test_every_method_has_a_page_that_names_its_options() -> None:
    from susd.methods.registry import METHODS

    listed = (ROOT / "docs/methods/index.md").read_text()
    options = generator().options()  # which susd.md leaves to the page on presets
    for card in METHODS.values():
        page = (ROOT / f"docs/methods/{card.code}.md").read_text()
        for option in card.options:
            assert f"`--{option.replace('_', '-')}`" in page + options * (card.code == "susd"), f"{card.code}.md: {option}"
        assert not card.base or f"| `{card.name}` |" in listed
        for heading in ("Overview", "Equations", "Usage", "Logged metrics", "Implementation details"):
            assert f"\n## {heading}\n" in page
    assert {path.stem for path in (ROOT / "docs/methods").glob("*.md")} == {c.code for c in METHODS.values()} | {"index"}


def test_the_tables_of_the_methods_are_filled_in() -> None:
    from susd.methods.registry import METHODS

    page = generator().on_page_markdown((ROOT / "docs/methods/index.md").read_text())
    assert "<!-- " not in page
    for card in METHODS.values():
        if not card.base:
            assert " | ".join([f"| [{card.name}]({card.name}.md)", card.objective.replace("|", "\\|"), ""]) in page
    rows = dict(
        re.findall(r"^\| \[([\w-]+)\]\([a-z]+\.md\) \| (.*) \|$", page.partition("\n## Defaults\n")[2], re.MULTILINE)
    )
    assert list(rows) == list(METHODS)[1:]
    assert rows["susd-w"] == "`weight` none | `weight` none"
    assert rows["lsd"].startswith("as SUSD | `prior` sphere, ")
    assert "`lambda_init` 30, `slack` 0.001 |" in rows["metra"]
    assert "`alpha_init` 0.3 (multi_particle), `adaptive_alpha` no |" in rows["dusdi"]
    assert rows["csd"].count("`distance`") == 2


def test_host_environment_example(tmp_path: Path) -> None:
    _, host = programs("docs/python.md")
    execute(host, tmp_path)
    rows = (tmp_path / "runs" / "host_workshop-susd-s0" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(rows[-1])["gradient_steps"] > 0


def test_the_api_is_the_same_whenever_it_is_asked_for() -> None:
    import susd

    for name in susd.__all__:
        first, second = getattr(susd, name), getattr(susd, name)
        assert callable(first), name
        assert second is first, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.is_file(), f"{page.name} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {link}, which has no such heading"


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, those that are made from the code included."""
    text = re.sub(r"```.*?```", "", generator().on_page_markdown(page.read_text()), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


@cache
def generator() -> Any:
    """docs/generate.py as a module."""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_make_targets_of_the_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(), re.MULTILINE)}
    assert {"demo", "test"} <= named
    assert named <= targets


def test_commands_of_the_pages_are_understood() -> None:
    from susd.cli.common import given
    from susd.cli.main import parser
    from susd.cli.train import run as run_train
    from susd.config import configure
    from susd.training.build import build_env, build_learner

    lines = [
        line.partition("#")[0].strip().removeprefix("run=$(").removesuffix(")")
        for page in PAGES
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
        for line in block.splitlines()
        if re.match(r"(run=\$\()?susd ", line) and "[" not in line
    ]
    assert len(lines) > 20
    for line in lines:
        options = parser().parse_args(line.split()[1:])  # a mistake raises SystemExit
        own = ".py:" in (getattr(options, "env", None) or "")  # a file that only the reader has, see test_own_env.py
        if options.command is run_train and not options.resume and not own:
            config = configure(options.env, **given(options))
            build_learner(config, build_env(config).spec)


def test_every_command_has_a_section() -> None:
    generate = generator()
    listed = re.findall(r"^    ([\w-]+)(?:  |$)", generate.help_text("").partition("commands:")[2], re.MULTILINE)
    assert "train" in listed
    page = (ROOT / "docs/commands.md").read_text()
    assert re.findall(r"^## susd ([\w-]+)$", page, re.MULTILINE) == listed
    assert re.findall(r"<!-- help ([\w-]+) -->", page) == listed


def test_the_options_are_filled_in() -> None:
    page = generator().on_page_markdown((ROOT / "docs/presets.md").read_text())
    assert "<!-- options -->" not in page
    import susd

    assert re.search(rf"^\| `--epochs` \| `{susd.configure('gunner', 'paper').epochs}` \|", page, re.MULTILINE)
    for heading in generator().HEADINGS.values():
        assert f"### {heading}\n" in page


def test_every_deviation_of_quick_has_a_reason() -> None:
    _, _, reasons = (ROOT / "docs/presets.md").read_text().partition("## Why `quick` differs")
    assert reasons
    missing = {name for name in generator().deviations() if f"`{name}`" not in reasons}
    assert not missing
