"""The report: complete, clear about what is missing, safe for any label, and the same bytes for the same facts."""

import csv
import itertools
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import susd
from experiments.run_folders import make_run
from report.facts import SOME, job, lines_of, task_numbers, write_facts
from susd.errors import UserError
from susd.experiments import metrics_store
from susd.report import tables
from susd.report.aggregate import Score, Setting, by_way, improvements, interquartile_means, mean_of
from susd.report.build import build, report
from susd.report.claims import claims, not_run
from susd.report.load import load_results
from susd.report.paper import paper_values
from susd.report.sections.tasks import score_table


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
    assert "3.500[0.000, 8.084]" in text


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
    assert "It is behind in a (CSD 8.5 [3.9, 13.1] against 5.1 [4.2, 6.0], intervals overlap, also behind METRA)." in text
    assert "the best rival, CSD," in text
    assert "It cannot be distinguished from METRA" in text
    alone = {task: {label: found[:1] for label, found in by_label.items()} for task, by_label in tasks.items()}
    ((_, text),) = claims([], {Setting("ant", "fixed", "fixed"): alone}, "ant", "fixed")
    assert "One seed is too few for a comparison with METRA and CSD." in text
    assert "difference" not in text


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


def test_parity_has_all_values_of_the_paper(built: Path, results: Path) -> None:
    rows = list(csv.DictReader((built / "parity.csv").read_text().splitlines()))
    assert len(rows) == len(paper_values()) == 193
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
    (line,) = [line for line in lines_of(results) if (line.row.subject, line.row.label) == ("lim", "susd")]
    assert line.ours is not None
    assert line.ours.count == 9


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


def test_recorded_environments_are_not_called_missing() -> None:
    folders = [tables.ROOT / "results" / name for name in ("kitchen", "ant", "half_cheetah")]
    lines = not_run([fact for folder in folders for fact in metrics_store.load(folder / "facts.jsonl")])
    assert lines[0] == "Not run: 2D-Gunner and Multi-Particle."
    known = {(line.row.environment, line.row.quantity) for line in tables.parity_lines() if line.ours is not None}
    assert known >= {
        ("kitchen", "downstream"),
        ("kitchen", "completions"),
        ("ant", "zero_shot"),
        ("half_cheetah", "zero_shot"),
    }


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


def test_report_of_one_run(tmp_path: Path) -> None:
    """Its page is in its folder, and useful by itself."""
    run = make_run(tmp_path / "run")
    shutil.rmtree(run / "downstream")
    assert report(run) == run / "report" / "report.html"
    text = (run / "report" / "report.html").read_text()
    assert "own factor moved 3.5 [0.0, 8.1] times as much as others" in text
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
