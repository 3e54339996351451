"""Train, evaluate and ship the skills that come with the package: `python benchmarks/ship_skills.py`, or `make skills`.

Names on the command line select some of them. What is done already is not repeated: an interrupted training is resumed.
Runs are in runs/skills/NAME; delete one to train it again, for example after its preset has changed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import susd
from susd.config import Config
from susd.envs.base import close
from susd.errors import UserError
from susd.evaluation.coverage import STEPS
from susd.runs.find import SHIPPED, shipped
from susd.runs.folder import RunFolder
from susd.share.manifest import read_manifest
from susd.training.agent import load_all

RUNS = Path("runs/skills")
SKILLS = {  # name -> environment, method
    **{env: (env, "susd") for env in ("gunner", "multi_particle", "kitchen", "ant", "half_cheetah")},
    **{f"{env}-{method}": (env, method) for env in ("gunner", "multi_particle") for method in ("metra", "dusdi")},
}
LIMIT, LIMIT_OF_ALL = 1_000_000, 5_000_000  # bytes


def trained(name: str) -> Path:
    """The finished run of these skills."""
    env, method = SKILLS[name]
    config, run = susd.config(env, method=method, seed=0), RUNS / name
    exists = (run / "config.json").is_file()
    if exists and Config.from_json(RunFolder.open(run).config) != config:
        raise UserError(f"{run} has another config than the preset has now: delete it to train these skills again")
    return susd.train(None if exists else config, run=run, resume=exists)


def evaluate(run: Path) -> None:
    """Coverage and control, unless they were measured."""
    agents = load_all(run)
    names = ("coverage", "control") if agents[0].trainer.env.spec.planes else ("control",)
    for name in names:
        if not (run / "evaluation" / f"{name}.json").is_file():
            susd.evaluate(run, name, agents=agents, **({"steps": STEPS} if name == "coverage" else {}))
    close(agents[0].trainer.env)


def main() -> None:
    """Ship the skills that are named, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SKILLS)}; default: all")
    names = parser.parse_args().names or list(SKILLS)
    if unknown := [name for name in names if name not in SKILLS]:
        parser.error(f"{unknown[0]!r} is unknown; choose of {', '.join(SKILLS)}")
    for name in names:
        run = trained(name)
        evaluate(run)
        size = read_manifest(susd.push(run, SHIPPED / name, force=True)).size
        print(f"{name}: {size / 1000:.1f} kB" + " TOO LARGE" * (size > LIMIT), flush=True)
    total = sum(read_manifest(folder).size for folder in shipped().values())
    print(f"all skills of the package: {total / 1000:.1f} kB" + " TOO LARGE" * (total > LIMIT_OF_ALL))


if __name__ == "__main__":
    main()
