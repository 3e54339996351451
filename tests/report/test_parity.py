"""The comparison with the paper: which of our results is shown, and what distinguishes it from the paper's."""

from pathlib import Path

import numpy as np

from report.facts import job, line_of, lines_of, suite_job, task_numbers
from susd.config import configure
from susd.downstream.config import DownstreamConfig, preset_options
from susd.experiments import metrics_store
from susd.report import tables
from susd.report.aggregate import Score
from susd.report.candidates import RELEASED, at_episode
from susd.report.load import load_results
from susd.report.parity import compare, counts
from susd.report.protocol import run_reasons, task_reasons
from susd.report.sections.overview import parity_row
from susd.tasks.registry import task_entry


def test_protocol_of_the_paper(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for layout in ("1", "2", "3", "7"):
        job(tmp_path / "facts.jsonl", "multi_particle", "susd", 0, f"fp-easy@{layout}", "downstream",
            task_numbers(rng, "fp-easy", layout, 0.8, 10_000))  # fmt: skip
    job(tmp_path / "facts.jsonl", "multi_particle", "susd", 0, "train", "train", iter([("", 4_000_000, "accuracy", 0.0)]))
    (tmp_path / "suite.toml").write_text('train = { preset = "paper" }\ndownstream = { preset = "paper" }\n')
    found = [line for line in lines_of(tmp_path) if (line.row.subject, line.row.label) == ("fp-easy", "susd")]
    assert [line.same for line in found] == ["yes"] * 4  # the end and three points during training
    assert [line.ours.count for line in found if line.ours] == [3] * 4  # layout 7 is none of the paper's


def test_random_layouts_replace_a_missing_one(tmp_path: Path) -> None:
    """Where the fixed layout was not run, or has no more scores; the note says so."""
    rng = np.random.default_rng(0)
    for label, level in (("susd-random", 0.9), ("susd", 0.2), ("metra-random", 0.5)):
        job(tmp_path / "facts.jsonl", "multi_particle", label, 0, "fp-easy@1", "downstream",
            task_numbers(rng, "fp-easy", "1", level, 10_000))  # fmt: skip
        job(
            tmp_path / "facts.jsonl", "multi_particle", label, 0, "decoding", "decoding", iter([("phi", 1, "error", level)])
        )
    here = [line for line in lines_of(tmp_path) if line.row.environment == "multi_particle"]
    lines = {(line.row.subject, line.row.label): line for line in here if not line.row.episode}
    scores = metrics_store.load(tmp_path / "facts.jsonl")
    for label, used in (("susd", "susd"), ("metra", "metra-random")):
        (score,) = metrics_store.select(scores, label=used, metric="last_quarter_discounted")
        line = lines["fp-easy", label]
        assert line.ours is not None
        assert line.ours.value == score.value
        assert ("pretrained on random layouts" in line.notes[0]) == (used != label)
        (error,) = metrics_store.select(scores, label=used, metric="error")
        assert lines["phi", label].ours.value == error.value  # type: ignore[union-attr]


def test_smoothing_of_the_paper() -> None:
    curve = {episode: float(episode) for episode in range(0, 5001, 250)}
    smooth = Score(0, "1", 0.0, {}, curve)
    assert at_episode(smooth, 5000) == np.mean(range(2750, 5001, 250))  # ten evaluations
    assert at_episode(smooth, 1000) == 500.0
    assert at_episode(smooth, 6000) is None


def test_kitchen_tasks_are_compared_with_the_paper(tmp_path: Path) -> None:
    """They have no fixed layouts; the paper prints means of the whole training."""
    curve = [("bip@random", e, "discounted", float(e)) for e in (0, 100, 200)]
    job(tmp_path / "facts.jsonl", "kitchen", "susd", 0, "bip@random", "downstream",
        iter([*curve, ("bip@random", 200, "last_quarter_discounted", 200.0)]))  # fmt: skip
    rows = [line for line in lines_of(tmp_path) if (line.row.subject, line.row.label) == ("bip", "susd")]
    (line,) = [line for line in rows if line.row.source == "Tasks (main figure)"]
    assert line.ours is not None
    assert line.ours.value == 100.0
    assert "200 of 10,000 episodes" in line.notes[0]
    assert line.result == "ours is higher, one seed"


def test_what_distinguishes_a_run_from_the_paper() -> None:
    assert run_reasons("gunner", {"method": "metra"}) == ("preset quick",)
    small = configure("gunner", "paper", method="metra", hidden=256).changes()
    assert run_reasons("gunner", small) == ("hidden 256 instead of 1024",)
    asleep = configure("kitchen", "paper", env_options={"sleeping": True}).changes()
    assert run_reasons("kitchen", asleep) == ("sleeping True instead of its default",)
    anywhere = configure("multi_particle", "paper", env_options={"layout": "random"}).changes()
    assert run_reasons("multi_particle", anywhere) == ()  # the label says so
    assert run_reasons("gunner", configure("gunner", "paper", method="metra").to_json()) == ()
    task = {"task": "gunner-lim", "preset": "paper"} | preset_options("paper", task_entry("gunner-lim"))
    assert task_reasons(task) == ()
    assert task_reasons(task | {"hidden": 256}) == ("hidden 256 instead of 1024",)


def test_options_of_a_complete_config() -> None:
    """Options whose default is made anew, such as those of the environment, are no difference."""
    entry = task_entry("gunner-lim")
    config = DownstreamConfig(
        task=entry.name, preset="paper", env="gunner", layout="0", **preset_options("paper", entry)
    ).to_json()
    assert task_reasons(config) == ()


PAPER = configure("gunner", "paper", seed=0)
SMALL = configure("gunner", "paper", hidden=256, phi_hidden=256, density_hidden=256)
QUICK = configure("gunner", "quick")
TASK = {"task": "gunner-lim", "preset": "paper"} | preset_options("paper", task_entry("gunner-lim"))


def gunner(folder: Path, config: object, seeds: int = 1, level: float = 0.5, **task: object) -> Path:
    """Runs of SUSD with the paper's budget, and a task on the paper's layouts."""
    rng, trained = np.random.default_rng(0), config.changes()  # type: ignore[attr-defined]
    for seed in range(seeds):
        run = "gunner", "susd", seed
        suite_job(folder, run, "train", iter([("", 4_000_000, "accuracy", 0.0)]), trained)
        for layout in ("0", "1", "3"):
            numbers = task_numbers(rng, "lim", layout, level, 10_000)
            suite_job(folder, run, f"lim@{layout}", numbers, trained, layout=layout, **(TASK | task))
    return folder


def test_smaller_networks_have_the_same_protocol(tmp_path: Path) -> None:
    """And the size is said; any other difference is a reason."""
    cases = {
        "full": (PAPER, {}, "yes"),
        "small": (SMALL, {"hidden": 256}, "yes, 256 units"),
        "rate": (SMALL, {"learning_rate": 1e-3}, "no"),
        "quick": (QUICK, {}, "no"),
    }
    for name, (config, task, same) in cases.items():
        lines = lines_of(gunner(tmp_path / name, config, **task))
        line = line_of(lines, "gunner", "lim", "susd")
        assert line.same == same
        if same == "yes, 256 units":
            assert line.notes[0].startswith("Ours: hidden 256 instead of 1024, phi_hidden 256 instead of 1024")
            assert parity_row(line)[6] == "same, 256 units"
            assert list(counts(lines).values())[1:5] == [1, 0, 1, 1]


def test_the_papers_protocol_before_more_seeds(tmp_path: Path) -> None:
    """The label of its runs says so where there are others, which stay what all other tables compare."""
    folders = gunner(tmp_path / "use", QUICK, 3, 0.9), gunner(tmp_path / "protocol", SMALL, 1, 0.2, hidden=256)
    data = load_results(folders, tmp_path)
    (tasks,) = data.scores.values()
    assert {label: len(scores) for label, scores in tasks["lim"].items()} == {"susd": 9, "susd-paper": 3}
    line = line_of(compare(data), "gunner", "lim", "susd")
    assert (line.same, line.ours.seeds, line.ours.count) == ("yes, 256 units", 1, 3)  # type: ignore[union-attr]
    assert "(n = 3): 3 pretrained policies instead of one, preset quick" in " ".join(line.notes)
    alone = load_results(folders[1:], tmp_path)
    assert {fact.label for fact in alone.facts} == {"susd"}


def test_more_scores_where_budgets_are_comparable(tmp_path: Path) -> None:
    """Nine scores after pretraining on random layouts before a single one in layout 0, and the row says so."""
    rng, layout_0 = np.random.default_rng(0), {"env_options": {"layout": "fixed"}}
    one, many = configure("multi_particle", **layout_0), configure("multi_particle", epochs=600, **layout_0)
    for steps, config in ((4_000_000, one), (8_100_000, many)):
        folder = tmp_path / str(steps)
        suite_job(folder, ("multi_particle", "susd", 0), "train", iter([("", steps, "accuracy", 0.0)]), config.changes())
        suite_job(
            folder, ("multi_particle", "susd", 0), "fp-easy@1", task_numbers(rng, "fp-easy", "1", 0.1), config.changes()
        )
    random = configure("multi_particle").changes()
    for seed in range(3):
        run = "multi_particle", "susd", seed
        suite_job(tmp_path / "use", run, "train", iter([("", 4_000_000, "accuracy", 0.0)]), random)
        for layout in ("1", "2", "3"):
            suite_job(tmp_path / "use", run, f"fp-easy@{layout}", task_numbers(rng, "fp-easy", layout, 0.8), random)
    line = line_of(lines_of(tmp_path / "4000000", tmp_path / "use"), "multi_particle", "fp-easy", "susd")
    assert line.ours is not None
    assert (line.ours.count, line.ours.seeds) == (9, 3)
    assert line.notes[0].startswith("Ours: pretrained on random layouts")
    longer = line_of(lines_of(tmp_path / "8100000", tmp_path / "use"), "multi_particle", "fp-easy", "susd")
    assert longer.ours is not None
    assert longer.ours.count == 1  # twice as long
    assert "Pretrained in one layout, as in the paper." in longer.notes


def test_decoding_as_the_original_computes_it(tmp_path: Path) -> None:
    """The least validation error where it is recorded; the error on held-out trajectories is another measurement."""
    trained = PAPER.changes()
    for name, metrics, steps in (
        ("new", ("error", RELEASED), 100_000),
        ("old", ("error",), 100_000),
        ("short", ("error",), 20_000),
    ):
        numbers = [("phi", steps, metric, 0.1 * len(metric)) for metric in metrics]
        suite_job(tmp_path / name, ("gunner", "susd", 0), "train", iter([("", 4_000_000, "accuracy", 0.0)]), trained)
        suite_job(tmp_path / name, ("gunner", "susd", 0), "decoding", iter(numbers), trained)
    new, old, short = (
        line_of(lines_of(tmp_path / n), "gunner", "phi", "susd", "decoding") for n in ("new", "old", "short")
    )
    assert (new.same, old.same, short.same) == ("yes", "no", "no")
    assert new.ours is not None
    assert new.ours.value == 0.1 * len(RELEASED)
    assert old.notes[0] == "Ours: error on held-out trajectories instead of the least validation error."
    assert "20,000 of 100,000 states" in short.notes[0]


def test_protocol_of_claims(tmp_path: Path) -> None:
    """It is that of their runs: with all of the paper's rivals it may be the same."""
    rivals = ("susd", "metra", "lsd", "csd")
    for label in rivals:
        trained = configure("ant", "paper", method=label).changes()
        suite_job(tmp_path, ("ant", label, 0), "train", iter([("", 16_000_000, "accuracy", 0.0)]), trained)
        suite_job(tmp_path, ("ant", label, 0), "zero-shot", iter([("goal", 20_000, "reward", float(len(label)))]), trained)
        line = line_of(lines_of(tmp_path), "ant", "zero-shot goals", "susd", "zero_shot")
        assert line.same == {"susd": "", "csd": "yes"}.get(label, "no")
        if label == "metra":
            assert line.notes[0] == "Ours: without LSD, CSD."
    assert line.result == "one seed"


def test_budget_of_the_run_that_is_shown() -> None:
    """Of two recorded runs of one name, each value has its own steps."""
    lines = list(tables.parity_lines())
    decoding = line_of(lines, "kitchen", "phi", "susd", "decoding")
    assert "1,000,000 of 4,000,000 steps" in decoding.notes[0]
    tasks = [line for line in lines if (line.row.environment, line.row.label) == ("kitchen", "susd") and line.ours]
    tasks = [line for line in tasks if line.row.quantity == "downstream"]
    assert len(tasks) == 4
    assert all("2,000,000 of 4,000,000 steps" in line.notes[0] for line in tasks)
