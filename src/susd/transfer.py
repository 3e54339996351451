"""`susd downstream RUN --task TASK`: learn a task over the skills of a run, or without skills, and write what came of it.

    config.json  metrics.jsonl  curve.png  result.json

`result.json` is written last, so a folder that has one holds a finished result. JAX is imported where it is needed.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from susd.config import MAX_SEED, Config, check_option, option
from susd.errors import UserError
from susd.runlog import Progress, RunFolder, config_hash, describe_machine, write_json
from susd.tasks import TASKS, full_name

if TYPE_CHECKING:
    import jax

    from susd.hierarchy import Hierarchy, HighState

Result = dict[str, Any]
KINDS = ("discounted", "undiscounted")  # of returns
MEMORY = 1_000_000  # transitions that the replay holds at most
SLICE = 10  # episodes between two updates of the progress bar
LAYOUTS = {"gunner": "centre, 0, 1, 2 or 3", "multi_particle": "the seed of a layout, such as 1, 2 or 3, or random"}
DEFAULT_LAYOUTS = {"gunner": "centre", "multi_particle": "1"}


@dataclass(frozen=True)
class DownstreamConfig:
    """One task learned over one skill policy, or flat. The defaults are the `quick` preset; PRESETS has the paper's."""

    task: str = option("", f"the task: {', '.join(TASKS)}; the environment's name may be left out")
    run: str = option("", "run folder of the skills")
    flat: bool = option(False, "learn without skills: a primitive action in every step, with the same budget")
    preset: str = option("quick", "preset the other options start from", ("quick", "paper"))
    layout: str = option("", "multi_particle: a layout's seed (default 1) or random; gunner: start at 0 to 3 or centre")
    skill_seed: int = option(0, "which seed of RUN acts; default: its first", low=0, high=MAX_SEED)
    seed: int = option(0, "seed of the high level", low=0, high=MAX_SEED)
    seeds: int = option(1, "learn this many times, with the seeds seed, seed+1, ..", low=1, high=1024)

    episodes: int = option(1000, "training episodes", low=1, high=10**9)
    gradient_steps: int = option(20, "gradient steps after every episode", low=1)
    batch_size: int = option(256, "transitions per gradient step", low=1)
    warmup: int = option(1000, "decisions before the first gradient step; at most a tenth of all", low=1)

    hidden: int = option(256, "units per hidden layer of actor and critics", low=1, high=65536)
    layers: int = option(2, "hidden layers", low=1, high=16)
    actor_activation: str = option("relu", "hidden units of the actor", ("tanh", "relu"))
    precision: str = option("float32", "matmuls of actor and critics", ("float32", "bfloat16"))
    learning_rate: float = option(3e-4, "Adam's rate for all networks and the temperature", low=0.0)
    discount: float = option(0.99, "discount per decision of 5 steps", low=0.0, high=1.0)
    tau: float = option(0.005, "target network rate", low=0.0, high=1.0)
    alpha_init: float = option(0.1, "initial entropy coefficient; it adapts", low=1e-12)
    target_entropy: float = option(-0.5, "target entropy per number of a decision", high=0.69)

    eval_every: int = option(50, "training episodes between two evaluations", low=1)
    eval_episodes: int = option(100, "test episodes; one where nothing is random", low=1, high=100_000)

    def __post_init__(self) -> None:
        for spec in dataclasses.fields(self):
            check_option(spec, getattr(self, spec.name))
        if self.seed + self.seeds - 1 > MAX_SEED:
            raise UserError(f"--seed is {self.seed} and --seeds {self.seeds}; the last seed must be at most {MAX_SEED}")
        if self.task not in TASKS:
            raise UserError(f"unknown task {self.task!r}; there are: {', '.join(TASKS)}")
        layout_options(self.env, self.layout)

    @property
    def env(self) -> str:
        """The environment of the task."""
        return TASKS[self.task].env

    def to_json(self) -> dict[str, Any]:
        """As a plain mapping."""
        return dataclasses.asdict(self)


PRESETS: dict[str, dict[str, Any]] = {
    "quick": {},
    "paper": {
        "episodes": 10_000,
        "gradient_steps": 50,
        "hidden": 1024,
        "actor_activation": "tanh",
        "learning_rate": 1e-4,
        "eval_every": 250,
    },
}


def layout_options(env: str, layout: str) -> dict[str, Any]:
    """The options of an environment that stand for a layout."""
    if env == "gunner" and layout in ("centre", "0", "1", "2", "3"):
        return {"start": layout}
    if env == "multi_particle" and layout == "random":
        return {"layout": "random"}
    if env == "multi_particle" and layout.isdecimal() and int(layout) <= MAX_SEED:
        return {"layout": "fixed", "layout_seed": int(layout)}
    raise UserError(f"--layout is {layout!r}; for {env} it is {LAYOUTS[env]}")


def configure_downstream(run: str | Path | None, task: str, **changes: Any) -> DownstreamConfig:
    """The preset with the given options changed; refuses a task of another environment than the run's."""
    name = full_name(task)
    preset = changes.get("preset", "quick")
    if preset not in PRESETS:
        raise UserError(f"--preset is {preset!r}; choose one of {', '.join(PRESETS)}")
    known = {spec.name for spec in dataclasses.fields(DownstreamConfig)}
    if unknown := sorted(set(changes) - known):
        raise UserError(f"option {unknown[0]!r} is unknown; options are {', '.join(sorted(known))}")
    values = {**PRESETS[preset], **changes, "task": name, "run": "" if run is None else str(run)}
    values["layout"] = str(values.get("layout", "")) or DEFAULT_LAYOUTS[TASKS[name].env]
    if run is None and not values.get("flat"):
        raise UserError("name the run whose skills are to be used, or learn without skills with --flat")
    if run is not None:
        trained = RunFolder.open(Path(run)).config
        if trained["env"] != TASKS[name].env:
            raise UserError(f"task {name!r} is one of {TASKS[name].env}, but {run} was trained on {trained['env']}")
        first, count = trained["seed"], trained["seeds"]
        if "skill_seed" in changes and (values.get("flat") or changes["skill_seed"] not in range(first, first + count)):
            have = "a flat policy has no skills" if values.get("flat") else f"{run} has {first} to {first + count - 1}"
            raise UserError(f"--skill-seed is {changes['skill_seed']}; {have}")
        values.setdefault("skill_seed", 0 if values.get("flat") else first)
    elif "skill_seed" in changes:
        raise UserError(f"--skill-seed is {changes['skill_seed']}; a flat policy has no skills")
    return DownstreamConfig(**values)


def folder_of(config: DownstreamConfig) -> Path:
    """Where a result goes: RUN/downstream/TASK-LAYOUT-sSEED, or below runs/ for a flat policy."""
    last = config.seed + config.seeds - 1
    seeds = f"s{config.seed}" + (f"-{last}" if config.seeds > 1 else "")
    if config.flat:
        return Path("runs") / f"flat-{config.task}-{config.layout}-{seeds}"
    first = RunFolder.open(Path(config.run)).config["seed"]
    other = f"-skills{config.skill_seed}" if config.skill_seed != first else ""
    return Path(config.run) / "downstream" / f"{config.task.partition('-')[2]}-{config.layout}-{seeds}{other}"


def downstream(
    run: str | Path | None,
    task: str,
    *,
    out: str | Path | None = None,
    force: bool = False,
    quiet: bool = True,
    **options: Any,
) -> Result:
    """Learn a task over the frozen skills of a run (None with flat=True) and return what `result.json` says.

    Options are those of `DownstreamConfig`; `out` replaces the folder below the run, `force` an existing result.
    """
    return run_downstream(configure_downstream(run, task, **options), out, force, quiet)


def run_downstream(
    config: DownstreamConfig, out: str | Path | None = None, force: bool = False, quiet: bool = True
) -> Result:
    """The whole of it, as a function of the config: learn with every seed, measure, draw, write the files."""
    place = folder_of(config) if out is None else Path(out)
    if (place / "result.json").exists() and not force:
        raise UserError(f"{place} already holds a finished result; look at it there or run anew with --force")
    trial = _Trial.build(config)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make folder {place}: {error.strerror}") from error
    meta = describe_machine(trial.identity, shlex.join(sys.argv))
    with RunFolder(place, config.to_json(), meta).lock():
        for name in ("result.json", "metrics.jsonl", "curve.png"):  # of a result that is replaced, or of a run cut short
            (place / name).unlink(missing_ok=True)
        write_json(place / "config.json", config.to_json())
        result = trial.learn(place, quiet) | {"meta": meta}
        _draw(place / "curve.png", result)
        write_json(place / "result.json", result)
    return result


@dataclass(frozen=True)
class _Trial:
    """A config with the objects it describes."""

    config: DownstreamConfig
    hierarchy: Hierarchy
    frozen: Any  # weights of the skill policy; None for a flat one
    start: Any  # the world in which every episode begins; None where one is drawn for each
    tests: jax.Array  # keys of the test episodes, the same for all seeds and methods
    skills: dict[str, Any] | None  # where the weights come from
    env_options: dict[str, Any]

    @classmethod
    def build(cls, config: DownstreamConfig) -> _Trial:
        """Load the skills, make the task, and refuse what does not fit into memory."""
        import jax

        from susd.agent import load
        from susd.build import build_env
        from susd.hierarchy import Flat, Hierarchy, Interface, Skills
        from susd.machine import use_compilation_cache
        from susd.program import subkey
        from susd.sac import Sac
        from susd.tasks import make_task
        from susd.tasks.base import DECISION
        from susd.tasks.particle import FoodPoison

        use_compilation_cache()
        base, frozen, skills = Config(env=config.env), None, None
        if config.run:
            folder = RunFolder.open(Path(config.run))
            base = Config.from_json(folder.config)
        env_options = base.env_options | layout_options(config.env, config.layout)
        env = build_env(dataclasses.replace(base, env_options=env_options))
        task = make_task(config.task, env)
        interface: Interface = Flat(env.spec.action_size)
        if not config.flat:
            agent = load(config.run, config.skill_seed)
            program, frozen = agent.program, agent.learner.sac.actor
            interface = Skills(program.learner.method.skills, lambda actor: program.policy(actor, sampled=False))
            skills = {
                "run": folder.path.name,
                "method": base.method,
                "seed": agent.seed,
                "epoch": agent.epoch,
                "config": folder.config,
                "config_hash": folder.hash,
            }
        sac = Sac(
            inputs=env.spec.obs_size + task.extra_size,
            actions=interface.size,
            hidden=config.hidden,
            layers=config.layers,
            activation=config.actor_activation,
            precision=config.precision,
            learning_rate=config.learning_rate,
            discount=config.discount ** (interface.span / DECISION),  # the same per unit of time
            tau=config.tau,
            alpha_init=config.alpha_init,
            adaptive_alpha=True,
            target_entropy=config.target_entropy,
        )
        decisions = task.horizon // DECISION  # per episode; the warm-up of a flat policy has as many steps
        warmup = max(1, min(config.warmup, config.episodes * decisions // 10))
        length = task.horizon // interface.span
        hierarchy = Hierarchy(
            task=task,
            interface=interface,
            sac=sac,
            gradient_steps=config.gradient_steps,
            batch_size=config.batch_size,
            capacity=min(config.episodes, max(1, MEMORY // length)),
            warmup=-(-warmup // decisions) - 1,
        )
        fixed = config.layout != "random"
        tests = config.eval_episodes if isinstance(task, FoodPoison) or not fixed else 1
        _check_memory(config, hierarchy)
        return cls(
            config=config,
            hierarchy=hierarchy,
            frozen=frozen,
            start=env.reset(jax.random.key(0)) if fixed else None,
            tests=jax.random.split(subkey(jax.random.key(0), "tests"), tests),
            skills=skills,
            env_options=env_options,
        )

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the result: the config, with the run's own config in the place of its path."""
        trained = None if self.skills is None else {name: self.skills[name] for name in ("config", "epoch")}
        return self.config.to_json() | {"run": trained, "env_options": self.env_options}

    def references(self) -> Result:
        """The bound and the scores of a scripted expert and of doing nothing, on the same test episodes."""
        import jax
        import jax.numpy as jnp
        import numpy as np

        from susd.hierarchy import play, returns
        from susd.tasks.base import DECISION
        from susd.tasks.experts import ceiling, do_nothing, expert

        task = self.hierarchy.task
        most = jnp.asarray(np.repeat(ceiling(task), DECISION), jnp.float32)
        scores: Result = {"bound": {kind: float(value) for kind, value in returns(most).items()}}
        for name, script in (("expert", expert), ("do_nothing", do_nothing)):
            run = jax.jit(partial(play, task, script(task)))
            scores[name] = {kind: float(value.mean()) for kind, value in returns(run(self.start, self.tests)).items()}
        return scores

    def learn(self, place: Path, quiet: bool) -> Result:
        """Train every seed, evaluating on the way; one line of metrics per evaluation and seed."""
        import jax
        import jax.numpy as jnp

        config = self.config
        if not quiet:
            print(f"{_describe(self)}\nfolder {place}; compiling ..", file=sys.stderr, flush=True)
        began = time.perf_counter()
        init, train, evaluate = self.hierarchy.compiled
        seeds = range(config.seed, config.seed + config.seeds)
        states: list[HighState] = [init(jnp.int32(seed)) for seed in seeds]
        # No episodes: that compiles and does nothing else. The bounds of the loop are arguments.
        states[0], _ = train(states[0], self.frozen, self.start, jnp.int32(0), jnp.int32(0))
        references = self.references()
        rows = [self._measure(evaluate, states, {}, 0, 0.0)]
        _append(place / "metrics.jsonl", rows[-1])
        compiled = time.perf_counter() - began

        done, seconds = 0, 0.0
        with Progress(config.episodes, quiet=quiet) as progress:
            while done < config.episodes:
                after = min(done + SLICE, (done // config.eval_every + 1) * config.eval_every, config.episodes)
                started, infos = time.perf_counter(), {}
                for index, seed in enumerate(seeds):  # one after another: their matmuls fill the cores already
                    bounds = jnp.int32(done), jnp.int32(after)
                    states[index], info = train(states[index], self.frozen, self.start, *bounds)
                    infos[seed] = {name: float(value) for name, value in info.items()}
                jax.block_until_ready(states)
                seconds += time.perf_counter() - started
                done = after
                _check_finite(infos, done)
                if done % config.eval_every == 0 or done == config.episodes:
                    rows.append(self._measure(evaluate, states, infos, done, seconds))
                    _append(place / "metrics.jsonl", rows[-1])
                score = sum(row["discounted"] for row in rows[-1]) / len(seeds)
                progress.update(done, {"episodes/s": len(seeds) * done / seconds, "return": score})
        return self._result(references, rows, seconds, compiled)

    def _measure(
        self, evaluate: Any, states: list[HighState], infos: Mapping[int, Mapping[str, float]], done: int, seconds: float
    ) -> list[dict[str, Any]]:
        """The rows of metrics of one evaluation, one for every seed."""
        from susd.hierarchy import returns

        rows = []
        learned = max(0, done - self.hierarchy.warmup)
        for index, state in enumerate(states):
            seed = self.config.seed + index
            scores = returns(evaluate(state.sac, self.frozen, self.start, self.tests))
            info = infos.get(seed, {})
            shown = info if learned else {name: info[name] for name in ("training_return",) if name in info}
            rows.append(
                {
                    "episode": done,
                    "seed": seed,
                    "env_steps": done * self.hierarchy.task.horizon,
                    "gradient_steps": learned * self.config.gradient_steps,
                    "seconds": round(seconds, 3),
                    **{kind: float(scores[kind].mean()) for kind in KINDS},
                    **shown,
                }
            )
        return rows

    def _result(self, references: Result, rows: list[list[dict[str, Any]]], seconds: float, compiled: float) -> Result:
        """What `result.json` holds, but for the meta data."""
        import numpy as np

        config = self.config
        curves = {kind: np.array([[row[kind] for row in at] for at in rows]) for kind in KINDS}  # [evaluations, seeds]
        episodes = [at[0]["episode"] for at in rows]
        late = np.array(episodes) > 0.75 * config.episodes
        last = rows[-1][0]
        return {
            "task": config.task,
            "env": config.env,
            "env_options": self.env_options,
            "layout": config.layout,
            "method": "flat" if self.skills is None else self.skills["method"],
            "seeds": [row["seed"] for row in rows[-1]],
            "final": {kind: curve[-1].tolist() for kind, curve in curves.items()},
            "last_quarter": {kind: curve[late].mean(axis=0).tolist() for kind, curve in curves.items()},
            **references,
            "curve": {"episode": episodes, **{kind: curve.T.tolist() for kind, curve in curves.items()}},
            "test_episodes": len(self.tests),
            "env_steps": last["env_steps"],
            "gradient_steps": last["gradient_steps"],
            "seconds": seconds,
            "compile_seconds": compiled,
            "config": config.to_json(),
            "config_hash": config_hash(self.identity),
            "skills": self.skills,
        }


def _check_memory(config: DownstreamConfig, hierarchy: Hierarchy) -> None:
    import jax
    import jax.numpy as jnp

    from susd.machine import available_memory

    shapes = jax.eval_shape(hierarchy.init, jax.ShapeDtypeStruct((), jnp.int32))
    state = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    width = 2 * hierarchy.sac.inputs + hierarchy.sac.actions + 3 * config.layers * config.hidden
    need = config.seeds * state + 4 * config.batch_size * width + 8 * config.gradient_steps
    have = available_memory()
    if jax.default_backend() == "cpu" and need > 0.9 * have:
        raise UserError(
            f"this needs {need / 2**30:.1f} GiB of memory, but only {have / 2**30:.1f} GiB are available; "
            "lower --episodes, --seeds, --batch-size, --gradient-steps or --hidden"
        )


def _check_finite(infos: Mapping[int, Mapping[str, float]], done: int) -> None:
    from susd.loop import NonFiniteError

    for seed, info in infos.items():
        if bad := next((name for name, value in info.items() if not math.isfinite(value)), None):
            advice = "a lower --learning-rate may help"
            raise NonFiniteError(f"{bad} of seed {seed} became non-finite by episode {done}; stopped, {advice}")


def _append(path: Path, rows: list[dict[str, Any]]) -> None:
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write("".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))
    except OSError as error:
        raise UserError(f"cannot write metrics to {path}: {error.strerror}") from error


def _describe(trial: _Trial) -> str:
    config, hierarchy = trial.config, trial.hierarchy
    skills = trial.skills
    who = (
        f"skills of {skills['run']} ({skills['method']}, seed {skills['seed']}, epoch {skills['epoch']})"
        if skills
        else "no skills"
    )
    last = config.seed + config.seeds - 1
    seeds = f"seeds {config.seed} to {last}" if config.seeds > 1 else f"seed {config.seed}"
    return (
        f"{config.task}, layout {config.layout}, {who}, {seeds}\n"
        f"{config.episodes} episodes of {hierarchy.decisions} decisions x {hierarchy.interface.span} steps and "
        f"{config.gradient_steps} gradient steps; {len(trial.tests)} test episodes every {config.eval_every}"
    )


def _draw(path: Path, result: Result) -> None:
    from susd import figures

    references = {name: result[name]["discounted"] for name in ("bound", "expert", "do_nothing")}
    curves = dict(zip(result["seeds"], result["curve"]["discounted"], strict=True))
    whose = "no skills" if result["method"] == "flat" else f"skills of {result['method']}"
    title = f"{result['task']}, layout {result['layout']}, {whose}"
    figures.task_curves(path, result["curve"]["episode"], curves, references, title)


def table(result: Result, place: Path) -> str:
    """A result for a person."""
    lines: list[tuple[str, ...]] = [("", *KINDS)]
    labels = {"bound": "bound", "expert": "scripted expert", "do_nothing": "do nothing"}
    scores: list[tuple[str, Mapping[str, float]]] = [(labels[name], result[name]) for name in ("bound", "expert")]
    many = len(result["seeds"]) > 1
    for index, seed in enumerate(result["seeds"]):
        for name, label in (("final", "learned"), ("last_quarter", "  mean of the last quarter")):
            numbers = {kind: result[name][kind][index] for kind in KINDS}
            scores.append((f"{label}, seed {seed}" if many else label, numbers))
    scores.append((labels["do_nothing"], result["do_nothing"]))
    lines += [(label, *(f"{numbers[kind]:.2f}" for kind in KINDS)) for label, numbers in scores]
    width = max(len(line[0]) for line in lines)
    rows = [f"  {label:{width}}  {one:>10}  {other:>12}" for label, one, other in lines]
    each = f"{result['env_steps']} steps, {result['gradient_steps']} gradient steps"
    title = f"Return of {result['task']}, layout {result['layout']}, over {result['test_episodes']} test episodes ({each})"
    files = [str(place / name) for name in ("result.json", "curve.png")]
    return "\n".join([title, *rows, *(f"  {file}" for file in files)])
