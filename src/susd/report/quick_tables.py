"""The tables of skills with the preset `quick` in the 2D environments: columns and rows from recorded facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from susd.experiments.metrics_store import Fact, select
from susd.report.aggregate import PerSeed, over_seeds, per_seed
from susd.report.body_tables import MEAN, Table, percent, under
from susd.report.claims import format_estimate
from susd.report.labels import OURS, base, environment_title, in_order, is_variant

UNTRAINED = "untrained, mean actions"
TWO_DIMENSIONAL = ("gunner", "multi_particle")
PLAIN = (OURS, "lsd", "csd", "diayn", "dusdi")  # labels of results/use that are names of methods
COVERED = 20_000  # steps of the paper's count of positions
Read = Callable[[str], Sequence[Fact]]  # the facts of results/NAME

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
    "no-normalise-reward": ("`normalise_reward` off", "the scale of the reward differs between environments"),
    "tanh": ("`actor_activation` tanh", "ReLU does as well"),
    "min-std": ("`min_std` 1e-6", "dimensions that never vary make the likelihood spiky"),
    "five": ("five action dimensions per agent", "two action dimensions reach the same accelerations"),
}


def headline(read: Read) -> Table:
    """SUSD with `quick` in both 2D environments: means over seeds with their intervals."""
    rows: list[tuple[str, ...]] = []
    for env in TWO_DIMENSIONAL:
        facts = read(f"quick/{env}")
        cells = {policy: _cells(facts, policy) for policy in (MEAN, UNTRAINED)}
        shares = (format_estimate(over_seeds(of), 0, 100, " %") for of in cells.values())
        ratio = over_seeds(per_seed(facts, phase="control", metric="ratio")[OURS])
        minutes = over_seeds(per_seed(facts, metric="train_seconds")[OURS])
        title = environment_title(env)
        rows.append((title, f"{minutes.value / 60:.1f} min", *shares, format_estimate(ratio, 2), str(ratio.seeds)))
    return ("environment", "training", "cells visited", "untrained", "control ratio", "seeds"), rows


def _cells(facts: Sequence[Fact], policy: str, label: str = OURS, body: str = "worst") -> PerSeed:
    """The share of cells from one start where it was measured: random starts visit cells by themselves."""
    names = (f"fixed_cells_{body}", f"cells_{body}")
    found = (per_seed(facts, subject=policy, metric=name, step=COVERED) for name in names)
    return next(by_label[label] for by_label in found if label in by_label)


def quick(read: Read) -> Table:
    """The learning targets: every seed in both 2D environments."""
    rows: list[tuple[str, ...]] = []
    for env in TWO_DIMENSIONAL:
        facts = read(f"quick/{env}")
        cells = {policy: _cells(facts, policy) for policy in (MEAN, UNTRAINED)}
        ratios, balanced = (per_seed(facts, phase="control", metric=name)[OURS] for name in ("ratio", "balanced_ratio"))
        for seed, seconds in per_seed(facts, metric="train_seconds")[OURS].items():
            marks = [of[seed] for of in under(facts, MEAN, "landmark").values() if seed in of]
            rows.append(
                (
                    f"{environment_title(env)}, seed {seed}",
                    f"{seconds / 60:.1f} min",
                    *(percent({seed: of_seed[seed]}) for of_seed in cells.values()),
                    f"{sum(share > 0 for share in marks)} of {len(marks)}" if marks else "-",
                    f"{ratios[seed]:.2f}",
                    f"{balanced[seed]:.2f}",
                )
            )
    columns = ("run", "training", "cells visited", "untrained", "landmarks", "control ratio", "balanced ratio")
    return columns, rows


def coverage(read: Read) -> Table:
    """Both counts of coverage for every policy, as means over the seeds."""
    rows: list[tuple[str, ...]] = []
    for env in TWO_DIMENSIONAL:
        facts = read(f"quick/{env}")
        policies = dict.fromkeys(fact.subject for fact in facts if fact.metric == "cells_worst")
        for policy in policies:
            counts = []
            for metric, scale in (
                ("cells_worst", 2500),
                ("cells_average", 2500),
                ("unique_worst", 1),
                ("unique_average", 1),
            ):
                values = per_seed(facts, subject=policy, metric=metric)[OURS].values()
                counts.append(f"{scale * sum(values) / len(values):.0f}")
            rows.append((environment_title(env), policy, *counts))
    columns = ("environment", "policy", "cells, worst", "cells, average", "unique, worst", "unique, average")
    return columns, rows


def ablations(read: Read) -> Table:
    """Each deviation of `quick` reverted alone, at 100 epochs and one seed."""
    rows: list[tuple[str, ...]] = []
    for name, (change, reason) in REASONS.items():
        values: list[str] = []
        for env in TWO_DIMENSIONAL:
            facts = select(read(f"ablations/{env}"), label=f"{OURS}-{name}")
            cells = [fact.value for fact in select(facts, subject=MEAN, metric="cells_worst")]
            ratios = [fact.value for fact in select(facts, phase="control", metric="ratio")]
            values += [percent({0: cells[0]}), f"{ratios[0]:.2f}"] if facts else ["-", "-"]
        rows.append((change, reason, *values))
    columns = ("reverted", "reason for the value of `quick`", "Gunner cells", "control", "Multi-Particle worst cells")
    return (*columns, "control"), rows


def methods(env: str, read: Read, rates: Mapping[str, float]) -> Table:
    """Every method in one environment with every seed, and the gradient steps per second of the benchmark."""
    facts = _of_methods(env, read)
    bodies = ("worst", "average") if env == "multi_particle" else ("worst",)
    rows: list[tuple[str, ...]] = []
    for label in in_order(base(fact.label) for fact in facts):
        mine = [fact for fact in facts if base(fact.label) == label]
        spreads = [list(by[label].values()) for by in _spreads(mine)]
        means = [sum(values) / len(values) for values in spreads]
        spread = " / ".join(f"{x:.2f}" for x in means) if len(means) < 5 else f"{min(means):.2f} to {max(means):.2f}"
        cells = [_cells(mine, MEAN, label, body).values() for body in bodies]
        covered = (format_estimate(over_seeds(dict(enumerate(shares))), 0, 100) for shares in cells)
        ratios = per_seed(mine, phase="control", metric="ratio").get(label)
        ratio = format_estimate(over_seeds(ratios)) if ratios else ""
        rate = f"{rates[label]:.0f}" if not is_variant(label) else "-"
        rows.append((f"`{label}`", *covered, ratio or "one part", spread, str(len(spreads[0])), rate))
    covered_columns = ("cells % of the worst agent", "of the average agent") if len(bodies) > 1 else ("cells %",)
    return ("method", *covered_columns, "control ratio", "spread", "seeds", "gradient steps/s"), rows


def _of_methods(env: str, read: Read) -> list[Fact]:
    """The facts of every method with the preset `quick`, used as it is: in Multi-Particle the runs of the tasks."""
    if env == "gunner":
        return [*read(f"quick/{env}"), *read(f"methods/{env}")]
    mine = [fact for fact in read("use") if fact.environment == env and fact.phase in ("coverage", "control")]
    named = {label: label for label in PLAIN} | {"metra-2": "metra"}  # there, `metra` has as many dimensions as SUSD
    return [replace(fact, label=named[fact.label]) for fact in mine if fact.label in named]


def _spreads(facts: Sequence[Fact]) -> list[dict[str, PerSeed]]:
    """The spread of every factor by label and seed."""
    factors = dict.fromkeys(fact.subject for fact in facts if fact.metric == "spread")
    return [per_seed(facts, subject=factor, metric="spread") for factor in factors]
