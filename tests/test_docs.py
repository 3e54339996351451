"""The documentation: examples run, links resolve, lists are complete, generated parts are up to date."""

import ast
import importlib.util
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from susd.experiments import metrics_store
from susd.experiments.suite import load as load_suite
from susd.experiments.suite import names

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
TINY = "epochs=2, episodes=2, gradient_steps=2, warmup=1, buffer_size=400, batch_size=8, hidden=8, phi_hidden=8"
# The field has other words for these.
FORBIDDEN = r"\b(courses?|told|mend|is paid|goes on|going on|begins anew|anew|worlds?|picture|film)\b"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def example(page: str, marker: str) -> str:
    """The Python block after a marker."""
    found = re.findall(rf"<!-- {marker} -->\n```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert len(found) == 1, f"{page} has {len(found)} blocks marked {marker!r}"
    return str(found[0])


def programs(page: str) -> list[str]:
    """The complete examples of a page; a continued one belongs to the one before it."""
    pattern = r"<!-- complete example(, continued)? -->\n```python\n(.*?)```"
    found: list[str] = []
    for continued, code in re.findall(pattern, (ROOT / page).read_text(), re.DOTALL):
        found = [*found[:-1], found[-1] + "\n" + code] if continued else [*found, code]
    return found


def execute(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run a program in a folder; its variables."""
    (folder / "example.py").write_text(code)
    monkeypatch.chdir(folder)
    return runpy.run_path(str(folder / "example.py"))


@cache
def generator() -> Any:
    """docs/generate.py as a module."""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_readme_example(tmp_path: Path, child_environment: dict[str, str]) -> None:
    (code,) = programs("README.md")
    small = code.replace('susd.train("gunner")', f'susd.train("gunner", {TINY}, density_hidden=8)')
    assert small != code
    steer = example("docs/python.md", "example with the agent of the README")
    checks = [
        "assert agent.epoch == 2",
        "assert obs.shape == (18,)",
        "assert skill.shape == (6,)",
        "assert (skill[-2:] == [1, 0]).all()",  # the target's part, set by the second example
        "assert action.shape == (6,)",
    ]
    (tmp_path / "example.py").write_text("\n".join([small, steer, *checks]))
    command = [sys.executable, "-W", "error", "example.py"]  # as a reader would, in a new process
    child = subprocess.run(command, cwd=tmp_path, env=child_environment, capture_output=True, text=True, timeout=600)
    assert child.returncode == 0, child.stderr
    assert (tmp_path / "runs" / "gunner-susd-s0" / "config.json").exists()


def test_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 100
    order = [text.index(part) for part in ("![", "pip install", "```python", "## Results")]
    assert order == sorted(order)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The variables of the first example in docs/python.md after it has run, and its folder."""
    folder = tmp_path_factory.mktemp("workshop")
    with pytest.MonkeyPatch.context() as patch:
        return {**execute(programs("docs/python.md")[0], folder, patch), "folder": folder}


@pytest.mark.slow
def test_functional_environment(workshop: dict[str, Any]) -> None:
    from susd.envs.base import Environment

    env = workshop["Workshop"]()
    assert isinstance(env, Environment)
    assert env.render(env.reset(None), size=50).shape == (50, 50, 3)
    assert workshop["trajectories"].next_obs.shape == (20, 8, 3)


@pytest.mark.slow
def test_host_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, host = programs("docs/python.md")
    execute(host, tmp_path, monkeypatch)
    run = tmp_path / "runs" / "host_workshop-susd-s0"
    assert json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["gradient_steps"] > 0
    online = {"coverage_average", "coverage_worst", "control_ratio"}  # it has no positions
    assert explained("index", "Metrics of all methods") | explained("susd", "Logged metrics") == written(run) | online


def written(run: Path) -> set[str]:
    """The keys of a run's metrics."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {re.sub(r"^factor/[^/]+/", "factor/NAME/", name) for row in rows for name in row}


def explained(page: str, heading: str) -> set[str]:
    """The keys in the tables of a section."""
    section = (ROOT / f"docs/methods/{page}.md").read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))


@pytest.mark.slow
def test_metrics_of_a_run_are_explained(workshop: dict[str, Any]) -> None:
    found = written(workshop["folder"] / workshop["run"])
    assert {"phi_reward", "alpha", "coverage_worst", "control_ratio", "factor/NAME/weight"} <= found
    only_outside_jax = {"env_seconds"}
    assert explained("index", "Metrics of all methods") | explained("susd", "Logged metrics") == found | only_outside_jax


@pytest.mark.parametrize("env", ["gunner", pytest.param("gymnasium:Pendulum-v1", marks=pytest.mark.slow)])
def test_no_metric_is_unexplained(env: str, trained: Callable[..., Path]) -> None:
    """Also of environments outside JAX."""
    found = written(trained(env, "--epochs", 3))
    assert ("env_seconds" in found) == (env != "gunner")
    assert found <= explained("index", "Metrics of all methods") | explained("susd", "Logged metrics")


@pytest.mark.slow
def test_metrics_of_tasks_are_explained(trained: Callable[..., Path], tmp_path: Path) -> None:
    import susd

    sizes = {"episodes": 4, "num_envs": 2, "eval_every": 2, "gradient_steps": 1, "batch_size": 8, "hidden": 8, "warmup": 1}
    susd.downstream(trained("gunner", "--epochs", 3), "lim", out=tmp_path / "task", horizon=50, **sizes)
    page = (ROOT / "docs/downstream.md").read_text()
    (line,) = (line for line in page.splitlines() if line.startswith("| `metrics.jsonl` |"))
    assert written(tmp_path / "task") <= set(re.findall(r"`([a-z_]+)`", line))


def logged(method: str) -> set[str]:
    """The metrics of an update, found without running it."""
    import jax
    import jax.numpy as jnp

    from susd.config import configure
    from susd.learner import Learner
    from susd.training.trainer import build_env
    from susd.types import Transition

    config = configure("gunner", hidden=8, phi_hidden=8, method=method)
    spec = build_env(config).spec
    learner = Learner.from_config(config, spec)
    sizes = spec.obs_size, spec.action_size, learner.method.skills.size, spec.obs_size
    obs, action, skill, next_obs = (jnp.zeros((4, size)) for size in sizes)
    batch = Transition(obs=obs, action=action, next_obs=next_obs, done=jnp.zeros(4), skill=skill)
    key = jax.random.key(0)
    info = jax.eval_shape(lambda: learner.update(learner.init(key), batch, key)[1])
    return {re.sub(r"^factor/[^/]+/", "factor/NAME/", name) for name in info}


def built_in() -> dict[str, Any]:
    from susd.methods.registry import methods

    return {name: card for name, card in methods().items() if str(card.implementation).startswith("susd.")}


@pytest.mark.slow
@pytest.mark.parametrize("page", [path.stem for path in sorted((ROOT / "docs/methods").glob("[!i]*.md"))])
def test_metrics_of_methods_are_explained(page: str) -> None:
    """The shared metrics once; the others on the page of the method, together with those of its variants."""
    found = [logged(card.name) for card in built_in().values() if card.code == page]
    own = explained(page, "Logged metrics")
    shared = {"reward", "reward_rms", "critic_loss", "q", "target_q", "actor_loss", "entropy", "alpha"}
    assert shared < explained("index", "Metrics of all methods")
    assert all(shared < names for names in found)
    assert own
    assert set().union(*found) == own | shared
    assert not own & shared


def test_every_method_has_a_page() -> None:
    listed = (ROOT / "docs/methods/index.md").read_text()
    options = (ROOT / "docs/presets.md").read_text()  # to which susd.md refers
    cards = built_in()
    for card in cards.values():
        page = (ROOT / f"docs/methods/{card.code}.md").read_text()
        for option in card.options:
            assert f"`--{option.replace('_', '-')}`" in page + options * (card.code == "susd"), f"{card.code}.md: {option}"
        assert not card.base or f"| `{card.name}` |" in listed
        for heading in ("Overview", "Equations", "Usage", "Logged metrics", "Implementation details"):
            assert f"\n## {heading}\n" in page
    pages = {path.stem for path in (ROOT / "docs/methods").glob("*.md")}
    assert pages == {card.code for card in cards.values()} | {"index"}


def test_navigation_lists_every_page() -> None:
    """The pages of the methods have their titles and the order of the registry."""
    config = (ROOT / "mkdocs.yml").read_text()
    sections = {name: pages for section in yaml.safe_load(config)["nav"] for name, pages in section.items()}
    methods = [(card.title, f"methods/{card.name}.md") for card in built_in().values() if not card.base]
    assert [item for entry in sections["Methods"] for item in entry.items()][1:] == methods
    named = [page for pages in sections.values() for entry in pages for page in entry.values()]
    assert sorted(named) == sorted(str(page.relative_to(ROOT / "docs")) for page in PAGES[1:])


def test_pages_are_up_to_date() -> None:
    stale = [name_of(page) for page in generator().stale()]
    assert not stale, f"run make docs: {', '.join(stale)}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_part_is_empty(page: Path) -> None:
    """Every marker of a generated part has an end and something before it."""
    text = page.read_text()
    names = "|".join((*generator().BLOCKS, "table"))
    starts = re.findall(rf"<!-- (?:{names})\b[^>]* -->\n+(.*)", text)
    assert text.count("<!-- end -->") == len(starts)
    assert not any(first.startswith("<!--") for first in starts)


def test_defaults_of_methods() -> None:
    page = (ROOT / "docs/methods/index.md").read_text().partition("\n## Defaults\n")[2]
    rows = dict(re.findall(r"^\| \[([\w-]+)\]\([a-z]+\.md\) \| (.*) \|$", page, re.MULTILINE))
    assert list(rows) == [name for name in built_in() if name != "susd"]
    assert rows["susd-w"] == "`weight` none | `weight` none"
    assert rows["lsd"].startswith("as SUSD | `prior` sphere, ")
    assert rows["metra"].startswith("`lambda_init` 30, `slack` 0.001 |")
    assert "`alpha_init` 0.3 (multi_particle), `adaptive_alpha` no |" in rows["dusdi"]
    assert rows["csd"].count("`distance`") == 2


def test_options_have_both_presets() -> None:
    import susd
    from susd.config import GROUPS

    page = (ROOT / "docs/presets.md").read_text()
    assert re.search(rf"^\| `--epochs` \| `{susd.config('gunner', 'paper').epochs}` \|", page, re.MULTILINE)
    assert all(f"\n### {heading}\n" in page for heading in GROUPS.values())


def test_deviations_of_quick_have_reasons() -> None:
    _, _, reasons = (ROOT / "docs/presets.md").read_text().partition("## Why `quick` differs")
    assert reasons
    missing = {name for name in generator().deviations() if f"`{name}`" not in reasons}
    assert not missing


def test_every_command_has_a_section() -> None:
    listed = re.findall(r"^    ([\w-]+)(?:  |$)", generator().help_text("").partition("commands:")[2], re.MULTILINE)
    assert {"train", "config", "report"} <= set(listed)
    page = (ROOT / "docs/commands.md").read_text()
    assert re.findall(r"^## susd ([\w-]+)$", page, re.MULTILINE) == listed
    assert re.findall(r"<!-- help ([\w-]+) -->", page) == listed


def shell_lines() -> list[str]:
    """The commands of all pages, without comments."""
    lines = (line for page in PAGES for block in blocks(page, "sh") for line in block.splitlines())
    found = (line.partition("#")[0].strip().removeprefix("run=$(").removesuffix(")") for line in lines)
    return [line for line in dict.fromkeys(found) if line.startswith("susd ")]


@pytest.mark.slow
def test_commands_are_valid() -> None:
    from susd.cli.common import given
    from susd.cli.evaluate import _parser as evaluate_parser
    from susd.cli.main import parser
    from susd.cli.train import run as train
    from susd.config import configure
    from susd.evaluation.registry import evaluation
    from susd.learner import Learner
    from susd.training.trainer import build_env

    assert len(shell_lines()) > 100
    for line in shell_lines():
        options, rest = parser().parse_known_args(line.split()[1:])  # a mistake raises SystemExit
        if rest:  # the options of an evaluation
            declared = evaluation(options.name)
            declared.check_options(vars(evaluate_parser(declared).parse_args(rest)))
        if options.command is train and not options.resume and not re.search(r"\.py:|workshop|penalty", line):
            config = configure(options.env, **given(options))  # those of files and packages run in test_extend.py
            Learner.from_config(config, build_env(config).spec)


def test_recorded_runs_are_reproducible() -> None:
    """The page Reproduce has the folder of every recorded result, and every table of the pages comes from one of them."""
    page = (ROOT / "docs/reproduce.md").read_text()
    recorded = {str(path.parent.relative_to(ROOT)) for path in (ROOT / "results").rglob("facts.jsonl")}
    assert len(recorded) > 5
    for folder in recorded:
        suite = (ROOT / folder / "suite.toml").is_file()
        name = Path(folder).name
        source = (
            name if name in names() else f"{folder}/suite.toml --runs runs/{name} --results {folder}"
        )  # no longer shipped
        command = f"susd suite run {source}\n" if suite else f"--out {folder}\n"
        assert command in page, folder


def test_commands_give_the_recorded_configs() -> None:
    """A preset that has changed since would make the commands of the page Reproduce train other runs."""
    from susd.cli.common import given
    from susd.cli.main import parser
    from susd.config import configure

    page = (ROOT / "docs/reproduce.md").read_text()
    for path in sorted((ROOT / "results").rglob("configs.json")):
        if (path.parent / "suite.toml").is_file():  # its jobs are those of the suite of that name
            continue
        folder = path.parent.relative_to(ROOT / "results")
        recorded = [
            entry["config"]["config"] for entry in json.loads(path.read_text()).values() if "epoch" in entry["config"]
        ]
        lines = [line for line in page.splitlines() if line.startswith("susd train ") and f"--run runs/{folder}/" in line]
        assert len(lines) == len(recorded) > 0, folder
        for line in lines:
            options = parser().parse_args(line.split()[1:])
            config = configure(options.env, **given(options)).to_json()
            assert any(_same_run(config, other) for other in recorded), line


def test_recorded_suites_count_as_finished() -> None:
    """A preset that has changed since would make the suites run all of their jobs again."""
    facts = metrics_store.load(ROOT / "results/use/facts.jsonl")
    jobs = {(job.name, job.hash) for name in ("2d", "ways") for job in load_suite(name).jobs}
    assert not metrics_store.finished(facts) - jobs


def _same_run(config: dict[str, Any], recorded: dict[str, Any]) -> bool:
    """Whether the options that both have are equal, apart from those that do not decide what is learned."""
    ignored = {"env_options", "epochs", "eval_every", "checkpoint_every", "keep_checkpoints"}

    def env_options(of: dict[str, Any]) -> dict[str, Any]:
        """Those that are not at their defaults."""
        usual = {**generator().env_defaults(of["env"]), "threads": of["env_options"].get("threads")}
        return {name: value for name, value in of["env_options"].items() if value != usual[name]}

    both = (config.keys() & recorded.keys()) - ignored
    return env_options(config) == env_options(recorded) and all(config[name] == recorded[name] for name in both)


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pages = [*PAGES, ROOT / "CONTRIBUTING.md"]
    named = {name for page in pages for name in re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.MULTILINE)}
    assert {"demo", "test", "test-fast", "docs", "dist", "bench"} <= named | targets
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_resolve(page: Path) -> None:
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
    """The anchors of a page's headings."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=name_of)
def test_words_of_the_field(page: Path) -> None:
    assert not re.findall(FORBIDDEN, page.read_text(), re.IGNORECASE)


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=name_of)
def test_only_public_names_are_imported(page: Path) -> None:
    """From `susd` and `susd.extend`, and attributes that the package declares as public."""
    import susd

    for code in [page.read_text()] if page.suffix == ".py" else blocks(page, "python"):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "susd":
                assert node.module in ("susd", "susd.extend"), node.module
            if isinstance(node, ast.Import):
                assert not [alias.name for alias in node.names if alias.name.startswith("susd.")]
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "susd":
                assert node.attr in susd.__all__, node.attr


def test_api_is_listed() -> None:
    import susd

    page = (ROOT / "docs/python.md").read_text()
    for name in susd.__all__:
        assert re.search(rf"^\| `susd\.{name}\b", page, re.MULTILINE), name
        first, second = getattr(susd, name), getattr(susd, name)
        assert callable(first), name
        assert second is first, name


def test_extension_api_is_complete() -> None:
    from susd import extend

    assert sorted(extend.__all__, key=str) == sorted(set(extend.__all__))
    assert all(getattr(extend, name) is not None for name in extend.__all__)
