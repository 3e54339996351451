"""Write the tables of README and docs from the recorded files: `python results/tables.py` fills them in place.

A table stands between `<!-- table NAME -->` and `<!-- end -->`; a test checks that all of them are up to date.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from susd.experiments import metrics_store as store
from susd.report import aggregate as scores
from susd.report import parity
from susd.report.aggregate import Setting
from susd.report.sections.tasks import references

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/results.md", "docs/presets.md", "docs/speed.md")
WORLDS = {"gunner": "2D-Gunner", "multi_particle": "Multi-Particle"}

# What each ablation of `quick` changes back towards `paper`, and why `quick` differs.
REASONS = {
    "quick": ("nothing", ""),
    "discount": ("`discount` 0.99", "the reward is dense, so a short horizon learns cleaner skills sooner"),
    "target-entropy": ("`target_entropy` -0.5", "a soft policy moves in proportion to the skill instead of at full speed"),
    "learning-rate": ("`learning_rate` 1e-4", "a short run needs larger steps"),
    "weight-raw": ("`weight` raw", "the raw weight is tiny where dimensions never vary"),
    "weight-none": ("`weight` none (SUSD-w)", "not a deviation: what the curiosity weight itself does"),
    "constraint-joint": ("`constraint` joint", "one budget for all factors lets easy ones take it"),
    "prior-sphere": ("`prior` sphere", "every factor gets a skill of the same length"),
    "no-scale-skill": ("`scale_skill` off", "small networks like inputs of unit variance"),
    "head-scale": ("`head_scale` 0.1", "the first policy does not depend on the skill by chance"),
    "dual": ("`lambda_init` 3000, `slack` 1e-6, `dual_learning_rate` 1e-4", "lambda must move within a short run"),
    "no-normalise-reward": ("`normalise_reward` off", "the scale of the reward differs between worlds"),
    "tanh": ("`actor_activation` tanh", "ReLU does as well"),
    "min-std": ("`min_std` 1e-6", "dimensions that never vary make the likelihood spiky"),
    "five": ("five numbers per agent", "two numbers per agent reach the same accelerations"),
}


def load(name: str) -> list[dict[str, Any]]:
    """The runs of results/NAME.json."""
    runs: list[dict[str, Any]] = json.loads((ROOT / "results" / f"{name}.json").read_text())["runs"]
    return runs


def markdown(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (columns, ("---",) * len(columns), *rows))


def cells(run: dict[str, Any], policy: str, which: str) -> str:
    """Visited cells as a share."""
    counts = run["coverage"][0][policy]["cells"]
    return f"{100 * counts[which] / counts['of']:.0f} %"


def quick() -> str:
    """The learning targets: every seed of both worlds."""
    rows = []
    for env, world in WORLDS.items():
        for run in load(f"quick-{env}"):
            marks = run["coverage"][0]["trained, mean actions"]["landmarks"]
            control = run["control"][0]
            rows.append(
                (
                    f"{world}, seed {run['config']['seed']}",
                    f"{run['train_seconds'] / 60:.1f} min",
                    *(cells(run, f"{who}, mean actions", "worst") for who in ("trained", "untrained")),
                    f"{sum(share > 0 for share in marks.values())} of {len(marks)}" if marks else "-",
                    f"{control['ratio']:.2f}",
                    f"{control['balanced_ratio']:.2f}",
                )
            )
    columns = ("run", "training", "cells visited", "untrained", "landmarks", "control ratio", "balanced ratio")
    return markdown(columns, rows)


def coverage() -> str:
    """Both counts of coverage for every policy, as means over the seeds."""
    rows = []
    for env, world in WORLDS.items():
        runs = load(f"quick-{env}")
        for policy in (name for name in runs[0]["coverage"][0] if name not in ("seed", "epoch")):
            numbers = [run["coverage"][0][policy] for run in runs]

            def mean(kind: str, which: str, numbers: list[dict[str, Any]] = numbers) -> str:
                return f"{sum(n[kind][which] for n in numbers) / len(numbers):.0f}"

            counts = (mean(kind, which) for kind in ("cells", "unique") for which in ("worst", "average"))
            rows.append((world, policy, *counts))
    columns = ("world", "policy", "cells, worst", "cells, average", "unique, worst", "unique, average")
    return markdown(columns, rows)


def ablations() -> str:
    """Each deviation of `quick` taken back alone, at 100 epochs and one seed."""
    found = {env: {run["run"].removeprefix(f"{env}-"): run for run in load(f"ablations-{env}")} for env in WORLDS}
    rows = []
    for name, (change, reason) in REASONS.items():
        numbers: list[str] = []
        for env in WORLDS:
            run = found[env].get(name)
            control = run and f"{run['control'][0]['ratio']:.2f}"
            numbers += [cells(run, "trained, mean actions", "worst"), str(control)] if run else ["-", "-"]
        rows.append((change, reason, *numbers))
    columns = ("taken back", "thought behind `quick`", "Gunner cells", "control", "Multi-Particle worst cells", "control")
    return markdown(columns, rows)


def speed() -> str:
    """The recorded benchmarks."""
    rows = []
    for path in sorted((ROOT / "benchmarks" / "results").glob("[!m]*.json")):
        result = json.loads(path.read_text())
        names = {
            "env_steps_per_second": "environment steps/s",
            "gradient_steps_per_second": "gradient steps/s",
            "share_of_matmul_float32": "share of the matmul rate",
            "epoch_seconds": "seconds per epoch",
            "compile_seconds": "compile seconds",
            "task_seconds": "seconds in all, from the command to its end",
        }
        for key, label in names.items():
            if key in result:
                value = result[key]
                rows.append((f"`{path.stem}`", label, f"{value:,.0f}" if value >= 100 else f"{value:.3g}"))
    return markdown(("benchmark", "quantity", "value"), rows)


def simulators() -> str:
    """Control steps per second of the environments on MuJoCo, with 16 worlds, random actions and resets."""
    folder = ROOT / "benchmarks" / "results"
    bodies, kitchen = (json.loads((folder / f"{name}.json").read_text()) for name in ("bodies", "kitchen"))
    rows = []
    for env, world in (("ant", "Ant"), ("half_cheetah", "HalfCheetah")):
        for way, rate in bodies[env]["steps_per_second"].items():
            times = bodies[env]["times_gymnasium"].get(way)
            rows.append((world, way, f"{rate:,.0f}", f"{times:.1f}" if times else "-"))
    rows += [("Kitchen", way, f"{rate:,.0f}", "-") for way, rate in kitchen["steps_per_second"].items()]
    return markdown(("environment", "", "steps/s", "susd is faster by"), rows)


def methods(env: str) -> str:
    """Every method of one world with every seed, and gradient steps per second from the benchmark in turns."""
    rates = json.loads((ROOT / "benchmarks" / "results" / f"methods-{env}-quick.json").read_text())["methods"]
    found: dict[str, list[dict[str, Any]]] = {}
    for run in [*load(f"quick-{env}"), *load(f"methods-{env}")]:
        found.setdefault(run["config"]["method"] + _dimension(run["config"]), []).append(run)
    rows = []
    for name, runs in found.items():
        runs.sort(key=lambda run: run["config"]["seed"])
        spreads = [list(run["control"][0]["spread"].values()) for run in runs]
        means = [sum(of_factor) / len(runs) for of_factor in zip(*spreads, strict=True)]
        spread = " / ".join(f"{x:.2f}" for x in means) if len(means) < 5 else f"{min(means):.2f} to {max(means):.2f}"
        ratios = [f"{run['control'][0]['ratio']:.1f}" for run in runs if "ratio" in run["control"][0]]
        worst, average = (
            " / ".join(cells(run, "trained, mean actions", which).removesuffix(" %") for run in runs)
            for which in ("worst", "average")
        )
        coverage = (worst, average) if env == "multi_particle" else (worst,)
        speed = f"{rates[runs[0]['config']['method']]['gradient_steps_per_second']:.0f}" if "(" not in name else "-"
        rows.append((f"`{name}`", *coverage, " / ".join(ratios) or "one part", spread, speed))
    covered = ("cells % of the worst agent", "of the average agent") if env == "multi_particle" else ("cells %",)
    return markdown(("method", *covered, "control ratio", "spread", "gradient steps/s"), rows)


def _dimension(config: dict[str, Any]) -> str:
    """A remark where a run without factors has another skill dimension than the paper's 2."""
    return (
        f" (D = {config['skill_dim']})" if config["method"] in ("metra", "lsd", "csd") and config["skill_dim"] != 2 else ""
    )


def method_speed() -> str:
    """Time and FLOPs of a gradient step of every method beside SUSD's, measured in turns."""
    rows = []
    for env, world in WORLDS.items():
        path = ROOT / "benchmarks" / "results" / f"methods-{env}-quick.json"
        for name, numbers in json.loads(path.read_text())["methods"].items():
            ratios = (f"{numbers[key]:.2f}" for key in ("time_of_susd", "flops_of_susd"))
            rows.append((world, f"`{name}`", f"{numbers['gradient_steps_per_second']:.0f}", *ratios))
    return markdown(("world", "method", "gradient steps/s", "time of SUSD's step", "FLOPs of SUSD's step"), rows)


POLICIES = ("trained, mean actions", "trained, sampled actions", "untrained, mean actions", "random actions")


def moved() -> str:
    """What the skills of each method moved in the Kitchen, beside policies that learned nothing."""
    rows = []
    runs = load("kitchen")
    first = runs[0]["coverage"][0][POLICIES[0]]
    for run in runs:
        for policy in POLICIES:
            if policy == "random actions" and run is not runs[-1]:  # the same for all
                continue
            numbers = run["coverage"][0][policy]
            shares = [body["moved"] for body in numbers["per_plane"].values()] + list(numbers["landmarks"].values())
            whose = "-" if policy == "random actions" else scores.name_of(run["config"]["method"])
            rows.append((whose, policy, *(f"{100 * share:.0f} %" for share in shares)))
    names = [f"{name} moved" for name in first["per_plane"]] + [name.replace("_", " ") for name in first["landmarks"]]
    return markdown(("method", "policy", *names), rows)


def kitchen_control() -> str:
    """How far unrelated skills bring each factor of the Kitchen apart, and how much of that is the factor's own part."""
    runs = load("kitchen")
    names = runs[0]["control"][0]["factors"]
    rows = []
    for run in runs:
        control = run["control"][0]
        method, matrix = scores.name_of(run["config"]["method"]), control["matrix"]
        rows.append((method, "spread", *(f"{control['spread'][name]:.3f}" for name in names)))
        if len(matrix) == len(names):
            own = [matrix[i][i] for i in range(len(names))]
            others = [(sum(row[i] for row in matrix) - own[i]) / (len(names) - 1) for i in range(len(names))]
            rows.append((method, "share moved by its own part", *(f"{value:.2f}" for value in own)))
            rows.append((method, "by another part, on average", *(f"{value:.2f}" for value in others)))
    return markdown(("method", "", *names), rows)


def completions() -> str:
    """Accidental completions in the Kitchen beside the paper's: mean and standard deviation over 8 x 10,000 steps."""
    told = {(r.subject, r.label): r for r in parity.paper() if (r.environment, r.quantity) == ("kitchen", "completions")}
    rows = []
    for run in load("kitchen"):
        config, found = run["config"], run["completions"][0]
        names = [name for name in found if name not in ("seed", "epoch")]
        numbers = [f"{found[name]['mean']:.1f} ± {found[name]['std']:.1f}" for name in names]
        paper = [told.get((name.partition("-")[2], config["method"])) for name in names]
        rows.append((scores.name_of(config["method"]), "ours", *numbers))
        rows.append(
            (
                scores.name_of(config["method"]),
                "paper",
                *(f"{float(row.paper):.1f} ({row.spread})" if row else "-" for row in paper),
            )
        )
    return markdown(("method", "", *(f"`{name}`" for name in names)), rows)


def kitchen_tasks() -> str:
    """Tasks that were learned over the skills of each method in the Kitchen."""
    told = {
        (r.subject, r.label): r.paper for r in parity.paper() if (r.environment, r.quantity) == ("kitchen", "downstream")
    }
    rows = []
    for run in load("kitchen"):
        for task in run.get("downstream", []):
            curve = task["curve"]["discounted"][0]
            numbers = (task["last_quarter"]["discounted"][0], max(curve), task["bound"]["discounted"])
            method = scores.name_of(run["config"]["method"])
            theirs = told.get((task["task"].partition("-")[2], run["config"]["method"]), "-")
            steps = f"{task['env_steps']:,}"
            rows.append((method, f"`{task['task']}`", steps, *(f"{number:.1f}" for number in numbers), theirs))
    return markdown(("skills of", "task", "steps", "last quarter", "best evaluation", "bound", "paper, 2.5 M steps"), rows)


def body(env: str) -> str:
    """Ant or HalfCheetah: how far the skills go, cells of a metre, and the zero-shot rewards."""
    rows, ways = [], {"goal": "goal", "random_skill": "random skills", "as_released": "goal as released"}
    for run in load(env):
        covered, goals = run["coverage"][0], run["zero-shot"][0]
        far = [f"{covered[policy]['per_plane']['body']['reach']:.1f} m" for policy in POLICIES]
        count = [f"{covered[policy]['cells']['average']:.0f}" for policy in POLICIES]
        ways = {way: name for way, name in ways.items() if way in goals}
        paid = [
            f"{goals[way]['mean']:.0f} [{goals[way]['interval'][0]:.0f}, {goals[way]['interval'][1]:.0f}]" for way in ways
        ]
        steps = f"{run['epoch'] * run['config']['episodes'] * 200 / 1e6:.2f} M"
        moved = (" / ".join(pair) for pair in zip(far, count, strict=True))
        rows.append((scores.name_of(run["config"]["method"]), steps, *moved, *paid))
    return markdown(("method", "steps", *(f"{policy}: reach / cells" for policy in POLICIES), *ways.values()), rows)


def tasks(env: str, pretrained: str, tested: str = "fixed") -> str:
    """Every score of every method on the tasks of one world: mean discounted return in the last quarter of training."""
    facts = store.load(ROOT / "results" / "2d-quick" / "facts.jsonl")
    found = scores.downstream(facts).get(Setting(env, pretrained, tested), {})
    labels = [label for label in scores.labels_of(found) if label in scores.METHODS]
    told = {(r.subject, r.label): r.paper for r in parity.paper() if (r.environment, r.episode) == (env, "")}
    rows = []
    for task, by_label in found.items():
        known = references(by_label)
        bounds = [f"{known[name]:.1f}" for name in ("expert", "do_nothing")]
        numbers = [" / ".join(f"{score.value:.1f}" for score in by_label.get(label, [])) or "-" for label in labels]
        rows.append((f"`{task}`", told.get((task, "susd"), "-"), *bounds, *numbers))
    head = ("task", "paper's SUSD", "expert", "do nothing", *(scores.name_of(label) for label in labels))
    return markdown(head, rows) if rows else "Not run yet."


TABLES = {
    "kitchen_moved": moved,
    "kitchen_control": kitchen_control,
    "kitchen_completions": completions,
    "kitchen_tasks": kitchen_tasks,
    "ant": lambda: body("ant"),
    "half_cheetah": lambda: body("half_cheetah"),
    "quick": quick,
    "coverage": coverage,
    "ablations": ablations,
    "speed": speed,
    "simulators": simulators,
    "methods_gunner": lambda: methods("gunner"),
    "methods_multi_particle": lambda: methods("multi_particle"),
    "method_speed": method_speed,
    "tasks_gunner": lambda: tasks("gunner", "fixed"),
    "tasks_random": lambda: tasks("multi_particle", "random"),
    "tasks_random_random": lambda: tasks("multi_particle", "random", "random"),
    "tasks_fixed": lambda: tasks("multi_particle", "fixed"),
}


def fill(text: str) -> str:
    """The page with its tables made anew."""

    def table(found: re.Match[str]) -> str:
        return f"<!-- table {found[1]} -->\n\n{TABLES[found[1]]()}\n\n<!-- end -->"

    return re.sub(r"<!-- table (\w+) -->.*?<!-- end -->", table, text, flags=re.DOTALL)


if __name__ == "__main__":
    for page in PAGES:
        path = ROOT / page
        path.write_text(fill(path.read_text()))
        print(page)
