"""The report: complete, clear about what is missing, safe for any label, and the same bytes for the same facts."""

import csv
import itertools
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import susd
from experiments.run_folders import make_run
from susd.config import configure
from susd.downstream.config import preset_options
from susd.errors import UserError
from susd.experiments import metrics_store
from susd.experiments.extract import RANDOM
from susd.experiments.metrics_store import SECONDS, Fact
from susd.report import parity, tables
from susd.report.aggregate import Score, Setting, by_way, improvements, interquartile_means, mean_of
from susd.report.build import build, found_in, report
from susd.report.claims import claims, not_run
from susd.report.labels import base
from susd.report.load import load_results
from susd.report.parity import Line
from susd.report.protocol import canonical, run_reasons, task_reasons
from susd.report.sections.tasks import score_table
from susd.tasks.registry import task_entry

BOUNDS = {"seq-easy": 56.2, "seq-medium": 37.1, "seq-hard": 18.4, "fp-easy": 19.1, "fp-medium": 47.8, "fp-hard": 76.5,
          "fp-difficult": 95.6, "lim": 173.2, "unlim": 173.2}  # fmt: skip
SKILL = {"susd": 0.7, "metra": 0.45, "lsd": 0.3, "csd": 0.4, "diayn": 0.35, "dusdi": 0.6, "flat": 0.15, "susd-w": 0.68,
         "susd-wf": 0.42, "metra-same-size": 0.55, "csd-same-size": 0.5}  # fmt: skip
SOME = ["susd", "metra", "flat", "susd-w", "metra-same-size"]
FACTORS = {"gunner": ["agent", "ammo", "target"], "multi_particle": [f"agent_{i}" for i in range(6)]}
Numbers = Iterator[tuple[str, int, str, float]]


def job(path: Path, env: str, label: str, seed: int, name: str, phase: str, numbers: Numbers, config: str = "0") -> None:
    """Add one finished job to a store."""
    run = f"{env}/{label}-s{seed}"
    shared = {"job": f"{run}/{name}", "run": run, "label": label, "method": label.split("-")[0], "environment": env}
    shared |= {"versions": "susd 0.1.0, jax 0.10.0", "commit": "0123abc", "config_hash": config}
    rows = [*numbers, ("", 0, SECONDS, 90.0)]
    metrics_store.append(
        path, [Fact(**shared, seed=seed, phase=phase, subject=s, step=i, metric=m, value=v) for s, i, m, v in rows]
    )


def task_numbers(rng: np.random.Generator, task: str, layout: str, skill: float, episodes: int = 1000) -> Numbers:
    """A learning curve with references."""
    bound, subject = BOUNDS[task], f"{task}@{layout}"
    level = bound * np.clip(skill + 0.12 * rng.normal() - (0.1 if layout == "random" else 0.0), 0.0, 0.97)
    steps = np.arange(0, episodes + 1, episodes // 20)
    curve = -1 + (level + 1) * (1 - np.exp(-5 * steps / episodes)) + 0.03 * bound * rng.normal(size=len(steps))
    for kind, scale in (("discounted", 1.0), ("undiscounted", 1.05)):
        yield from ((subject, int(e), kind, scale * float(v)) for e, v in zip(steps, curve, strict=True))
        yield subject, episodes, f"last_quarter_{kind}", scale * float(curve[-5:].mean())
        for name, value in (("bound", bound), ("expert", 0.95 * bound), ("do_nothing", -1.0)):
            yield subject, episodes, f"{name}_{kind}", scale * value


def coverage_numbers(rng: np.random.Generator, env: str, skill: float) -> Numbers:
    levels = {"trained, mean actions": 0.7 * skill, "trained, sampled actions": 0.8, "untrained, mean actions": 0.02}
    levels |= {"untrained, sampled actions": 0.92, "random actions": 0.93}
    for policy, level in levels.items():
        for step, gain in ((20_000, 1.0), (100_000, 1.2))[: 2 if env == "gunner" else 1]:
            average = float(np.clip(gain * level * (1 + 0.1 * rng.normal()), 0.0, 1.0))
            for plane, share in (("average", average), ("worst", average * (0.6 if env == "multi_particle" else 1.0))):
                yield policy, step, f"cells_{plane}", share
                yield policy, step, f"unique_{plane}", float(round(share * 12_000))


def control_numbers(rng: np.random.Generator, env: str, label: str) -> Numbers:
    names = FACTORS[env]
    factored = label.split("-")[0] in ("susd", "dusdi") and "wf" not in label
    for row in range(len(names)) if factored else range(1):
        own = names[row] if factored else "part 1"
        for column, factor in enumerate(names):
            yield (
                f"{own}>{factor}",
                0,
                "change",
                float((1 if not factored or row == column else 0.25) * rng.uniform(0.7, 1)),
            )
    if factored:
        yield from (("", 0, name, value) for name, value in (("diagonal", 0.85), ("off_diagonal", 0.21), ("ratio", 4.0)))
    yield from ((name, 0, "spread", float(rng.uniform(0.5, 2))) for name in names)


def decoding_numbers(rng: np.random.Generator, env: str, label: str) -> Numbers:
    size = 2 if label.split("-")[0] in ("metra", "csd", "lsd", "diayn") and "same" not in label else 2 * len(FACTORS[env])
    for code, error in (("phi", 0.5 / size**0.7), ("random projection to 2", 0.25))[: 1 + (size > 2)]:
        errors = {name: float(error * rng.uniform(0.8, 1.2)) for name in FACTORS[env]}
        yield from ((f"{code}>{name}", 100_000, "factor_error", value) for name, value in errors.items())
        numbers = {"error": float(np.mean(list(errors.values()))), "error_of_the_mean": 0.45, "inputs": size, "hidden": 40}
        yield from ((code, 100_000, name, value) for name, value in numbers.items())


def write_facts(folder: Path, tasks: dict[str, list[str]], labels: list[str], layouts: dict[str, list[str]]) -> Path:
    """Facts of three seeds as a suite leaves them."""
    rng, path = np.random.default_rng(0), folder / "facts.jsonl"
    for env, label, seed in itertools.product(tasks, labels, range(3)):
        skill = SKILL[base(label)]
        if label != "flat" and not label.endswith(RANDOM):
            steps = [("", 400_000 * i, "coverage_worst", 5.0 * i) for i in range(3)]
            done = [(f"{env}-{t}", 10_000, m, float(rng.integers(0, 300))) for t in tasks[env] for m in ("mean", "std")]
            job(path, env, label, seed, "train", "train", iter(steps))
            job(path, env, label, seed, "coverage", "coverage", coverage_numbers(rng, env, skill))
            job(path, env, label, seed, "control", "control", control_numbers(rng, env, label))
            job(path, env, label, seed, "decoding", "decoding", decoding_numbers(rng, env, label))
            job(path, env, label, seed, "completions", "completions", iter(done))
        for task, layout in itertools.product(tasks[env], layouts[env]):
            numbers = task_numbers(rng, task, layout.replace("S", str(seed + 1)), skill)
            job(path, env, label, seed, f"{task}@{layout.replace('S', str(seed + 1))}", "downstream", numbers)
    return folder


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several methods in two environments; one task each is learned, in Multi-Particle in a layout per seed."""
    folder = tmp_path_factory.mktemp("results") / "small"
    write_facts(folder, {"gunner": ["lim"]}, ["susd", "diayn"], {"gunner": ["0", "1", "3"]})
    write_facts(folder, {"multi_particle": ["seq-easy"]}, SOME, {"multi_particle": ["S"]})
    write_facts(folder, {"multi_particle": ["seq-easy"]}, ["susd-random"], {"multi_particle": ["S", "random"]})
    (folder / "suite.toml").write_text("seeds = [0, 1, 2] # <three>\n[methods.susd]\n")
    (folder / "trajectories").mkdir()
    Image.new("RGB", (40, 30), "white").save(folder / "trajectories" / "multi_particle-metra-same-size.png")
    (folder / "trajectories" / "gunner-susd.png").write_text("no image")
    return folder


@pytest.fixture(scope="module")
def built(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report") / "out"
    assert build([results], out) == out / "report.html"
    return out


class Checker(HTMLParser):
    """Every element is closed in order; what the page shows and what it would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        if tag not in ("meta", "img", "link", "br", "line", "circle"):
            self.open.append(tag)
        if tag == "img":
            self.images.append(known)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        self.ids += [known["id"] or ""] if "id" in known else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    assert not checker.open
    return checker


def text_of(page: str) -> str:
    """The page without images, styles and markup."""
    return re.sub(r"<[^>]+>", "", re.sub(r"<style>.*?</style>|<img[^>]+>", "", page, flags=re.DOTALL))


@pytest.mark.slow
def test_page_is_one_file(built: Path) -> None:
    page = (built / "report.html").read_text()
    checker = parsed(page)
    assert len(set(checker.ids)) == len(checker.ids)
    for link in checker.links:
        assert link.startswith("data:image/png;base64,") or link.removeprefix("#") in checker.ids
    assert "url(" not in page
    assert page.count("<script>") == page.count("<script") == 1  # its own, which loads nothing
    assert "fetch" not in page
    assert "import(" not in page
    assert all(image["alt"] for image in checker.images)
    drawn = sorted((built / "figures").glob("*.png"))
    assert len(checker.images) == len(drawn) + 1  # and one figure of trajectories
    names = {path.name for path in drawn}
    assert {"task-multi-particle-fixed-fixed-seq-easy.png", "coverage-gunner-fixed-average-20000.png"} <= names
    assert page.count("<caption>") == page.count("<table")


def test_page_says_what_was_run(built: Path) -> None:
    text = text_of((built / "report.html").read_text())
    assert "Not run: Kitchen, Ant and HalfCheetah." in text
    assert "Not run in 2D-Gunner: METRA, LSD, CSD, DUSDi, no skills" in text
    assert "task unlim" in text
    assert "commit 0123abc" in text
    assert "800,000" in text
    assert "seeds = [0, 1, 2] # &lt;three&gt;" in text
    assert "Multi-Particle, pretrained on random layouts" in text
    assert "Multi-Particle, METRA (same size)" in text
    assert "gunner-susd.png is not a PNG file and was left out." in text
    for section in (
        "Summary",
        "Training",
        "Tasks",
        "Coverage",
        "Decoding",
        "Control",
        "Completions",
        "Ablations",
        "Comparison with",
    ):
        assert section in text


def test_same_facts_same_bytes(results: Path, tmp_path: Path) -> None:
    lines = (results / "facts.jsonl").read_text().splitlines(keepends=True)
    few = [line for line in lines if "gunner" in line and "lim@" in line]
    for name, order in (("one", few), ("other", few[::-1])):  # jobs end in any order
        (tmp_path / name).mkdir()
        (tmp_path / name / "facts.jsonl").write_text("".join(order))
    first, second = (build([tmp_path / name], tmp_path / f"{name}-out") for name in ("one", "other"))
    assert first.read_bytes() == second.read_bytes()
    assert (first.parent / "parity.csv").read_bytes() == (second.parent / "parity.csv").read_bytes()


def test_zero_shot_section(tmp_path: Path) -> None:
    for (label, reward), seed in itertools.product({"susd": 60, "metra": 80, "csd": 20}.items(), range(2)):
        numbers = [
            (way, step, "reward", share * (reward + seed) * step / 20_000)
            for way, share in (("goal", 1.0), ("random_skill", 0.5))
            for step in (10_000, 20_000)
        ]
        job(tmp_path / "facts.jsonl", "ant", label, seed, "zero-shot", "zero-shot", iter(numbers))
    text = text_of(build([tmp_path], tmp_path / "out").read_text())
    assert "Ant: reward of 20,000 steps" in text
    assert (tmp_path / "out" / "figures" / "zero-shot-ant-fixed.png").is_file()
    with open(tmp_path / "out" / "parity.csv", newline="") as file:
        rows = {row["environment"]: row for row in csv.DictReader(file) if row["quantity"] == "zero_shot"}
    assert (rows["ant"]["ours"], rows["ant"]["scores"], rows["ant"]["result"]) == ("60.5", "2", "METRA highest")
    assert rows["half_cheetah"]["result"] == "not run"


def test_any_label(tmp_path: Path) -> None:
    """A single score of a strange method: no interval, no crash, no markup from the label."""
    label, path = '<b a="1">&', tmp_path / "facts.jsonl"
    job(path, "moon", label, 0, "hop@1", "downstream", iter([("hop@1", 10, "last_quarter_discounted", 2.0)]))
    (tmp_path / "suite.toml").write_text("not toml [")
    page = build([tmp_path], tmp_path / "out").read_text()
    parsed(page)
    assert "<b a=" not in page
    assert "&lt;b a=" in page
    assert "Scores cannot be normalised" in page
    assert "Where SUSD is ahead" not in page
    assert "None of the paper&#x27;s 193 values was measured here" in page
    assert "<h2>Coverage</h2>" not in page


def test_generic_section(tmp_path: Path) -> None:
    """An evaluation without a section of its own has all its facts in a table."""
    for label, seed in itertools.product(("susd", "mine"), range(2)):
        values = [("walls", 100, "hits", 3.0 + seed), ("", 0, "speed", 0.5)]
        job(tmp_path / "facts.jsonl", "gunner", label, seed, "bumps", "bumps", iter(values))
    page = build([tmp_path], tmp_path / "out").read_text()
    assert "<h2>bumps</h2>" in page
    text = text_of(page)
    assert "walls, hits, 100 steps" in text
    assert "3.500[3.000, 4.000]" in text


def test_scores_are_normalised(results: Path, tmp_path: Path) -> None:
    scores = load_results([results], tmp_path).scores
    assert list(scores) == [
        Setting("gunner", "fixed", "fixed"),
        Setting("multi_particle", "fixed", "fixed"),
        Setting("multi_particle", "random", "fixed"),
        Setting("multi_particle", "random", "random"),
    ]
    fixed, random = (
        scores[Setting("multi_particle", "fixed", "fixed")],
        scores[Setting("multi_particle", "random", "fixed")],
    )
    assert list(fixed["seq-easy"]) == SOME
    assert list(random["seq-easy"]) == ["susd", "flat"]  # without skills nothing is pretrained, so it is in both
    assert random["seq-easy"]["flat"] == fixed["seq-easy"]["flat"]
    found = fixed["seq-easy"]["susd"]
    assert [(score.seed, score.layout) for score in found] == [(0, "1"), (1, "2"), (2, "3")]
    assert found[0].normalised == pytest.approx((found[0].value + 1) / (0.95 * 56.2 + 1))
    assert len(scores[Setting("gunner", "fixed", "fixed")]["lim"]["susd"]) == 9
    assert interquartile_means(fixed)["susd"].count == 3
    assert improvements(fixed, "susd")["flat"].value == 1.0


def scored(*values: float) -> list[Score]:
    return [Score(seed, "1", value, {"do_nothing": 0.0, "expert": 10.0}, {0: 0.0}) for seed, value in enumerate(values)]


def test_claims_name_the_winning_rivals() -> None:
    tasks = {
        "a": {"susd": scored(5.0, 5.2), "metra": scored(6.0, 6.4), "csd": scored(9.0, 8.0)},
        "b": {"susd": scored(5.0, 5.2), "metra": scored(4.0, 4.4), "csd": scored(5.1, 4.9)},
    }
    ((topic, text),) = claims([], {Setting("ant", "fixed", "fixed"): tasks}, "ant", "fixed")
    assert topic == "Tasks"
    assert "SUSD has the highest mean in 1 of 2: b, intervals overlap." in text
    assert "It is behind in a (CSD 8.5 [8.0, 9.0] against 5.1 [5.0, 5.2], also behind METRA)." in text
    assert "the best rival, CSD," in text
    assert "It cannot be distinguished from METRA" in text
    alone = {task: {label: found[:1] for label, found in by_label.items()} for task, by_label in tasks.items()}
    ((_, text),) = claims([], {Setting("ant", "fixed", "fixed"): alone}, "ant", "fixed")
    assert "One seed is too few for a comparison with METRA and CSD." in text
    assert "likely" not in text


def lines_of(results: Path, tmp_path: Path) -> list[Line]:
    data = load_results([results], tmp_path)
    return parity.compare(data.facts, data.scores, data.protocols)


def test_claims_compare_like_with_like() -> None:
    """Goal actions with goal actions, and each way with learning without skills."""
    tasks = {
        "a": {"susd": scored(5.0, 5.2), "susd-goal": scored(9.0, 9.2), "metra": scored(6.0, 6.4), "flat": scored(1.0, 2.0)},
        "b": {"susd": scored(5.0, 5.2), "susd-goal": scored(9.0, 9.2), "metra-goal": scored(6.0, 6.4)},
    }
    assert {way: {t: list(of) for t, of in found.items()} for way, found in by_way(tasks).items()} == {
        (): {"a": ["susd", "metra", "flat"], "b": ["susd"]},
        ("goal",): {"a": ["susd", "flat"], "b": ["susd", "metra"]},
    }
    found = dict(claims([], {Setting("gunner", "fixed", "fixed"): tasks}, "gunner", "fixed"))
    assert list(found) == ["Tasks", "Tasks, goal actions"]
    assert found["Tasks"].startswith("SUSD has the highest mean in 0 of 1. It is behind in a (METRA")
    assert found["Tasks, goal actions"].startswith("SUSD has the highest mean in 2 of 2: a; b.")


def test_tasks_without_references(tmp_path: Path) -> None:
    """A task of the user may have neither a bound nor an expert; ways to use the skills have columns of their own."""
    rng, path = np.random.default_rng(0), tmp_path / "facts.jsonl"
    for label, skill in (("susd", 0.4), ("susd-goal", 0.8), ("susd-goal-entity", 0.9), ("flat", 0.1)):
        numbers = [row for row in task_numbers(rng, "lim", "random", skill) if not row[2].startswith(("bound", "expert"))]
        job(path, "make", label, 0, "Tidy@random", "downstream", (("Tidy@random", *row[1:]) for row in numbers))
    text = report(tmp_path).read_text()
    for part in (
        "Tidy",
        "SUSD, goal actions, entity-wise",
        "no skills",
        "do nothing -1.0",
        "neither a scripted expert",
    ):
        assert part in text
    assert "expert 1" not in text
    assert "“Goal actions”: the high-level policy chooses a point" in text


def test_parity_has_all_values_of_the_paper(built: Path, results: Path, tmp_path: Path) -> None:
    rows = list(csv.DictReader((built / "parity.csv").read_text().splitlines()))
    assert len(rows) == len(parity.paper()) == 193
    known = {(row["environment"], row["subject"], row["method"], row["episode"]): row for row in rows}
    main = known["multi_particle", "seq-easy", "susd", ""]
    assert (main["paper"], main["scores"], main["same_protocol"]) == ("55.6", "3", "no")
    assert "1,000 of 10,000 episodes" in main["note"]
    assert "800,000 of 4,000,000 steps" in main["note"]
    assert "preset quick" in main["note"]
    assert known["multi_particle", "seq-easy", "susd", "1000"]["ours"]
    assert known["multi_particle", "seq-easy", "susd", "3000"]["result"] == "not run"
    assert known["kitchen", "bip", "susd", ""]["result"] == "not run"
    assert known["gunner", "lim", "diayn", ""]["in_paper"] == "no"
    assert "another order" in known["gunner", "lim", "susd", ""]["note"]
    assert "wrongly" in known["multi_particle", "seq-easy", "dusdi", ""]["note"]
    assert known["multi_particle", "unique_worst", "susd", ""]["result"].endswith("highest")
    (line,) = [line for line in lines_of(results, tmp_path) if (line.row.subject, line.row.label) == ("lim", "susd")]
    assert line.ours is not None
    assert line.ours.count == 9


def test_protocol_of_the_paper(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for layout in ("1", "2", "3", "7"):
        job(tmp_path / "facts.jsonl", "multi_particle", "susd", 0, f"fp-easy@{layout}", "downstream",
            task_numbers(rng, "fp-easy", layout, 0.8, 10_000))  # fmt: skip
    job(tmp_path / "facts.jsonl", "multi_particle", "susd", 0, "train", "train", iter([("", 4_000_000, "accuracy", 0.0)]))
    (tmp_path / "suite.toml").write_text('train = { preset = "paper" }\ndownstream = { preset = "paper" }\n')
    found = [line for line in lines_of(tmp_path, tmp_path) if (line.row.subject, line.row.label) == ("fp-easy", "susd")]
    assert [line.same for line in found] == ["yes"] * 4  # the end and three points during training
    assert [line.ours.count for line in found if line.ours] == [3] * 4  # layout 7 is none of the paper's


def test_random_layouts_replace_a_missing_one(tmp_path: Path) -> None:
    """Only where the fixed layout was not run; the note says so."""
    rng = np.random.default_rng(0)
    for label, level in (("susd-random", 0.9), ("susd", 0.2), ("metra-random", 0.5)):
        job(tmp_path / "facts.jsonl", "multi_particle", label, 0, "fp-easy@1", "downstream",
            task_numbers(rng, "fp-easy", "1", level, 10_000))  # fmt: skip
        job(
            tmp_path / "facts.jsonl", "multi_particle", label, 0, "decoding", "decoding", iter([("phi", 1, "error", level)])
        )
    here = [line for line in lines_of(tmp_path, tmp_path) if line.row.environment == "multi_particle"]
    lines = {(line.row.subject, line.row.label): line for line in here if not line.row.episode}
    scores = metrics_store.load(tmp_path / "facts.jsonl")
    for label, used in (("susd", "susd"), ("metra", "metra-random")):
        (score,) = metrics_store.select(scores, label=used, metric="last_quarter_discounted")
        line = lines["fp-easy", label]
        assert line.ours is not None
        assert line.ours.value == score.value
        assert ("pretrained on random layouts" in " ".join(line.notes)) == (used != label)
        (error,) = metrics_store.select(scores, label=used, metric="error")
        assert lines["phi", label].ours.value == error.value  # type: ignore[union-attr]


def test_smoothing_of_the_paper() -> None:
    curve = {episode: float(episode) for episode in range(0, 5001, 250)}
    smooth = Score(0, "1", 0.0, {}, curve)
    assert parity._at(smooth, 5000) == np.mean(range(2750, 5001, 250))  # ten evaluations
    assert parity._at(smooth, 1000) == 500.0
    assert parity._at(smooth, 6000) is None


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least one run folder or folder of results"):
        report([])
    with pytest.raises(UserError, match=r"there is no folder .*nowhere"):
        report(tmp_path / "nowhere")
    with pytest.raises(UserError, match="is neither a run folder nor a folder of results"):
        report(tmp_path)
    (tmp_path / "facts.jsonl").write_text("")
    with pytest.raises(UserError, match="no finished job"):
        report(tmp_path)
    (tmp_path / "facts.jsonl").write_text('{"job": 1}\n')
    with pytest.raises(UserError, match="does not hold results"):
        report(tmp_path)


def test_folders_that_disagree(tmp_path: Path) -> None:
    """The first one has the cell, all seeds of it, and the page says so; a job that two folders have counts once."""
    rows = [("", 10, "coverage_worst", 1.0)]
    for folder, config in (("a", "1"), ("b", "2"), ("c", "1")):
        for seed in (0, 1) if folder == "b" else (0,):
            job(tmp_path / folder / "facts.jsonl", "gunner", "susd", seed, "train", "train", iter(rows), config)
    data = load_results([tmp_path / "a", tmp_path / "b"], tmp_path)
    assert [(fact.config_hash, fact.seed) for fact in data.facts] == [("1", 0)]
    assert data.left_out == ["2 jobs of b are left out: a has them with other options."]
    same = load_results([tmp_path / "a", tmp_path / "c"], tmp_path)
    assert len(same.facts) == 1
    assert same.left_out == []
    assert same.seconds == {"gunner": 90.0}


def test_kitchen_tasks_are_compared_with_the_paper(tmp_path: Path) -> None:
    """They have no fixed layouts; the paper prints means of the whole training."""
    curve = [("bip@random", e, "discounted", float(e)) for e in (0, 100, 200)]
    job(tmp_path / "facts.jsonl", "kitchen", "susd", 0, "bip@random", "downstream",
        iter([*curve, ("bip@random", 200, "last_quarter_discounted", 200.0)]))  # fmt: skip
    rows = [line for line in lines_of(tmp_path, tmp_path) if (line.row.subject, line.row.label) == ("bip", "susd")]
    (line,) = [line for line in rows if line.row.source == "Tasks (main figure)"]
    assert line.ours is not None
    assert line.ours.value == 100.0
    assert "200 of 10,000 episodes" in line.notes[0]
    assert line.result == "ours is higher, one seed"


def test_recorded_environments_are_not_called_missing() -> None:
    folders = [tables.ROOT / "results" / name for name in ("kitchen", "ant", "half_cheetah")]
    lines = not_run([fact for folder in folders for fact in metrics_store.load(folder / "facts.jsonl")])
    assert lines[0] == "Not run: 2D-Gunner and Multi-Particle."
    known = {(line.row.environment, line.row.quantity) for line in recorded_lines() if line.ours is not None}
    assert known >= {
        ("kitchen", "downstream"),
        ("kitchen", "completions"),
        ("ant", "zero_shot"),
        ("half_cheetah", "zero_shot"),
    }


def recorded_lines() -> list[Line]:
    folders = list(found_in(tables.ROOT / "results"))
    data = load_results(folders, folders[0])
    return parity.compare(data.facts, data.scores, data.protocols)


def test_one_seed_has_no_interval_and_is_grey(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for seed, label in ((0, "susd"), (0, "metra"), (1, "metra")):
        for task, layout in itertools.product(("fp-easy", "seq-easy"), ("1", "2")):
            job(tmp_path / "facts.jsonl", "multi_particle", label, seed, f"{task}@{layout}", "downstream",
                task_numbers(rng, task, layout, 0.9 if label == "susd" else 0.4))  # fmt: skip
    data = load_results([tmp_path], tmp_path)
    (by_task,) = data.scores.values()
    assert not mean_of(by_task["fp-easy"]["susd"]).known  # two layouts, one set of skills
    assert not interquartile_means(by_task)["susd"].known
    assert mean_of(by_task["fp-easy"]["metra"]).known
    table = score_table("", by_task, ["susd", "metra"])
    assert table.count('class="value single"') == 2
    assert table.count("n = 1") == 2
    assert "best" not in table.partition("METRA")[0]
    assert "One seed on a side allows no comparison in seq-easy and fp-easy." in str(
        claims([], data.scores, "multi_particle", "fixed")
    )


def test_labels_say_what_was_trained(tmp_path: Path) -> None:
    """Not what a suite calls it: `metra` with as many dimensions as SUSD, and runs on random layouts."""
    assert canonical("metra", "gunner", {"method": "metra", "skill_dim": 6}) == "metra-same-size"
    assert canonical("metra-2", "gunner", {"method": "metra"}) == "metra"
    assert canonical("metra-goal", "gunner", {"method": "metra", "skill_dim": 6}) == "metra-same-size-goal"
    random = {"method": "susd-paced", "env_options": {"layout": "random"}}
    assert canonical("susd-paced-goal-entity", "multi_particle", random) == "susd-paced-goal-entity-random"
    assert canonical("susd-one-layout", "multi_particle", {"method": "susd", "env_options": {"layout": "0"}}) == "susd"
    data = load_results([tables.ROOT / "results" / "use"], tmp_path)
    assert all(
        fact.label.endswith(RANDOM) or fact.label == "flat" for fact in data.facts if fact.environment == "multi_particle"
    )
    assert {fact.job.partition("/")[0] for fact in data.facts} <= {"gunner", "multi_particle"}


def test_what_distinguishes_a_run_from_the_paper() -> None:
    assert run_reasons("gunner", {"method": "metra"}) == ("preset quick",)
    small = configure("gunner", "paper", method="metra", hidden=256).changes()
    assert run_reasons("gunner", small) == ("hidden 256 instead of 1024",)
    assert run_reasons("gunner", configure("gunner", "paper", method="metra").to_json()) == ()
    task = {"task": "gunner-lim", "preset": "paper"} | preset_options("paper", task_entry("gunner-lim"))
    assert task_reasons(task) == ()
    assert task_reasons(task | {"hidden": 256}) == ("hidden 256 instead of 1024",)


def test_report_of_one_run(tmp_path: Path) -> None:
    """Its page is in its folder, and useful by itself."""
    run = make_run(tmp_path / "run")
    shutil.rmtree(run / "downstream")
    assert report(run) == run / "report" / "report.html"
    text = (run / "report" / "report.html").read_text()
    assert "own factor moved 3.5 [3.0, 4.0] times as much as others" in text
    assert "<h2>Training</h2>" in text
    assert "None of the paper&#x27;s 193 values was measured here" in text
    assert "quick" in (run / "report" / "configs.json").read_text()


def test_report_of_several_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of runs is recorded in results/; folders of results are read where they are."""
    monkeypatch.chdir(tmp_path)
    for name in ("metra", "susd"):
        make_run(Path("runs") / name, method=name)
    given: list[tuple[list[Path], Path]] = []
    monkeypatch.setattr("susd.report.build.build", lambda folders, out: given.append((list(folders), out)))
    report("runs")
    together = Path("results/metra+susd")
    assert {fact.label for fact in metrics_store.load(together / "facts.jsonl")} == {"susd", "metra"}
    report([together, "runs/susd"], "out")
    report("results")
    assert given == [([together], together), ([together, Path("out")], Path("out")), ([together], together)]


def test_susd_report_is_the_function(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no folder"):
        susd.report(tmp_path / "nowhere")
