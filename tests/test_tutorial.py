"""The page on your own environment is a session that works: its files are written, its commands run, with tiny settings."""

import contextlib
import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import TINY, call
from inline import Inline
from susd import check

PAGE = (Path(__file__).parent.parent / "docs" / "extend" / "environment.md").read_text()
FILES = dict(re.findall(r"<!-- file (\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL))
COMMANDS = [
    line.removeprefix("susd ")
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("susd ")
]
SMALL = (*TINY, "--epochs", "3")  # at the end, where it overrules the options of the page
CHANGES = {  # of the suite
    "seeds = [0, 1]": "seeds = [0]",
    "train = { epochs = 300 }": "train = { epochs = 3, episodes = 2, buffer_size = 2000, warmup = 60, hidden = 8, "
    "phi_hidden = 8, density_hidden = 8, gradient_steps = 2, batch_size = 8 }",  # the program of `susd train` above
    "train = { horizon = 50 }": "train = { horizon = 10 }",
    "coverage = {}, control = {}": "coverage = { steps = 200 }",
    '[methods.metra]\nskill_dim = 6\nevaluations = ["coverage"]\n': "",  # loaded below; the jobs are those of SUSD
    "downstream = { episodes = 2000 }": "downstream = { episodes = 4, num_envs = 2, eval_every = 2, eval_episodes = 2, "
    "gradient_steps = 1, batch_size = 8, hidden = 8, horizon = 10 }",
}
TASK = (
    *("--episodes", "4", "--num-envs", "2", "--eval-every", "2", "--eval-episodes", "2", "--gradient-steps", "1"),
    *("--batch-size", "8", "--hidden", "8"),
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_figures")]


def shortened(command: str) -> list[str]:
    words = shlex.split(command)
    if words[0] == "downstream":
        return [*words, *TASK]
    if words[0] == "train":  # the default evaluation of an environment in Python takes too long
        return [*words, *SMALL, *(["--no-eval"] if "my_env.py:make" in words else [])]
    return [*words, "--steps", "200"] if "coverage" in words or words[0] == "check" else words


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The folder after the whole session, and the output of each command."""
    folder = tmp_path_factory.mktemp("workshop")
    printed: dict[str, str] = {}
    for name, text in FILES.items():
        if name == "my_suite.toml":
            for old, new in CHANGES.items():
                assert old in text
                text = text.replace(old, new)
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("susd.experiments.scheduler.Local", Inline)
        patch.setattr("susd.tools.isolated.check_isolated", check)  # tests/tools/test_check.py has it in its own process
        for command in COMMANDS:
            with contextlib.redirect_stdout(io.StringIO()) as output:
                call(*shortened(command))
            printed[command] = output.getvalue()
    return {"folder": folder, **printed}


def test_page_has_the_session() -> None:
    assert list(FILES) == ["my_env.py", "my_task.py", "my_suite.toml", "my_fast_env.py"]
    assert [command.split()[0] for command in COMMANDS] == [
        *("check", "train", "evaluate", "evaluate", "downstream", "downstream", "report"),
        *("suite", "report", "check", "check", "check", "train"),
    ]


def test_jobs_of_the_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is on the page."""
    from susd.experiments import suite

    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    jobs = {(job.label, job.seed, job.phase) for job in suite.load("my_suite.toml").jobs}
    of_susd = {("susd", seed, phase) for seed in (0, 1) for phase in ("train", "coverage", "control", "downstream")}
    of_metra = {("metra", seed, phase) for seed in (0, 1) for phase in ("train", "coverage", "downstream")}
    assert jobs == of_susd | of_metra | {("flat", seed, "downstream") for seed in (0, 1)}


def test_environments_satisfy_the_contract(workshop: dict[str, Any]) -> None:
    for command in (command for command in COMMANDS if command.startswith("check")):
        assert workshop[command].endswith("The contract holds.\n")
        assert "WARN" not in workshop[command]


def test_printed_check_is_real(workshop: dict[str, Any]) -> None:
    """The output of `susd check` on the page, apart from measured values."""
    printed = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert printed is not None
    numbers = re.compile(r"[\d.]+k?|-")
    assert numbers.sub("", printed[1]).split() == numbers.sub("", workshop[COMMANDS[0]]).split()


def test_runs_have_results(workshop: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from susd.evaluation.evaluate import draw_figures

    monkeypatch.chdir(workshop["folder"])
    draw_figures("runs/workshop")
    for run in ("workshop", "fast"):
        folder = workshop["folder"] / "runs" / run
        for name in ("trajectories.png", "coverage.png", "control.png", "learning_curves.png"):
            assert (folder / "figures" / name).is_file(), name
        assert (folder / "videos" / "skills.mp4").is_file()
        control = json.loads((folder / "evaluation" / "control.json").read_text())
        assert "box" in json.dumps(control)


def test_task_over_skills_and_without(workshop: dict[str, Any]) -> None:
    folder = workshop["folder"]
    result, flat = (
        json.loads((folder / path / "result.json").read_text())
        for path in ("runs/workshop/downstream/Tidy-random-s0", "runs/flat")
    )
    assert (result["task"], result["method"], flat["method"]) == ("Tidy", "susd", "flat")
    assert result["env_options"] == flat["env_options"] == {}
    assert result["do_nothing"] == flat["do_nothing"] == {"discounted": 0.0, "undiscounted": 0.0}
    assert result["env_steps"] == flat["env_steps"] == 200
    page = (folder / workshop["report runs/workshop runs/flat"].strip()).read_text()
    for part in ("Tidy", "SUSD", "no skills", "do nothing 0.0"):
        assert part in page


def test_report_has_the_environment(workshop: dict[str, Any]) -> None:
    page = workshop["folder"] / workshop["report results/my_suite"].strip()
    assert "workshop" in page.read_text()
    facts = (workshop["folder"] / "results" / "my_suite" / "facts.jsonl").read_text().splitlines()
    jobs = [json.loads(line) for line in facts]
    assert {job["environment"] for job in jobs} == {"workshop"}
    assert {job["label"] for job in jobs if job["phase"] == "downstream"} == {"susd", "flat"}


def test_both_environments_are_equal(workshop: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    from susd.envs import make
    from susd.envs.base import Environment, HostEnvironment

    monkeypatch.chdir(workshop["folder"])
    slow, fast = make("my_env.py:make", num_envs=3), make("my_fast_env.py:FastWorkshop")
    assert isinstance(slow, HostEnvironment)
    assert isinstance(fast, Environment)
    assert slow.spec.factorization == fast.spec.factorization
    assert slow.spec.planes == fast.spec.planes
    first = slow.reset(0)
    state = jax.vmap(fast.reset)(jax.random.split(jax.random.key(0), 3))._replace(cart=first[:, 2:4])
    step, observe, random = jax.jit(jax.vmap(fast.step)), jax.jit(jax.vmap(fast.observe)), np.random.default_rng(0)
    for _ in range(50):
        action = random.uniform(-1, 1, (3, 3)).astype(np.float32)
        state = step(state, action, jax.random.split(jax.random.key(0), 3))
        np.testing.assert_allclose(slow.step(action).obs, observe(state), atol=1e-4)
