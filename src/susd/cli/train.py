"""`susd train ENV`: discover skills."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from susd.cli.common import (
    INTERRUPTED,
    NON_FINITE,
    Commands,
    add_config_options,
    add_devices,
    add_trust,
    given,
    integer,
    path,
)
from susd.envs import check_name, choices
from susd.errors import UserError
from susd.runs.progress import optional


def add(commands: Commands) -> None:
    """The command and its options."""
    command = commands.add_parser("train", help="discover skills in an environment", usage="susd train ENV [options]")
    command.add_argument("env", nargs="?", metavar="ENV", help=f"one of {choices()}")
    command.add_argument("--run", type=path, help="run folder; default: a new one below runs/")
    command.add_argument("--resume", action="store_true", help="resume the run in --run from its last good checkpoint")
    add_trust(command)
    command.add_argument("--quiet", action="store_true", help="no progress bar and no table")
    command.add_argument("--no-eval", action="store_true", help="no evaluation, figures and video at the end")
    command.add_argument("--tensorboard", action="store_true", help="also log for TensorBoard")
    command.add_argument("--wandb", action="store_true", help="also log to Weights & Biases")
    add_devices(command)
    command.add_argument("--coordinator", metavar="HOST:PORT", help="train with other processes: the address of the first")
    command.add_argument("--num-processes", type=integer, metavar="N", help="how many processes there are")
    command.add_argument("--process-id", type=integer, metavar="I", help="which of them this one is, from 0 on")
    add_config_options(command)
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Train, then evaluate and draw."""
    if options.env is None and not options.resume:
        raise UserError(f"name an environment: {choices()}")
    if options.env is not None:
        check_name(options.env)  # before JAX is imported, so that a mistake is reported at once
    from susd.training.devices import disconnect
    from susd.training.train import Interrupted, NonFiniteError, train

    try:
        folder = train(
            options.env,
            run=options.run,
            resume=options.resume,
            quiet=options.quiet,
            tensorboard=options.tensorboard,
            wandb=options.wandb,
            trust=options.trust,
            devices=options.devices,
            coordinator=options.coordinator,
            num_processes=options.num_processes,
            process_id=options.process_id,
            **given(options),
        )
    except NonFiniteError as error:
        print(f"susd: {error}", file=sys.stderr)
        return NON_FINITE
    except Interrupted as error:
        print(f"susd: {error}", file=sys.stderr)
        return INTERRUPTED
    if options.coordinator and not disconnect():
        return 0  # only the first process has the run folder
    if not options.no_eval:
        with optional("evaluation"):
            _evaluate(folder, options.quiet)
    print(folder)
    return 0


def _evaluate(folder: Path, quiet: bool) -> None:
    """The default evaluations and figures, with one loaded run; tables and paths unless quiet."""
    from susd.cli.tables import print_evaluation
    from susd.evaluation.evaluate import draw_figures, evaluate_default, loaded

    if not quiet:
        print("evaluating and drawing ..", file=sys.stderr, flush=True)
    with loaded(folder, trust=True) as agents:  # the code was trusted, and has run, in this command
        reports = evaluate_default(folder, agents, quiet)
        paths = draw_figures(folder, agents=agents, quiet=quiet)
    if quiet:
        return
    for report in reports:
        print_evaluation(folder, report)
        print()
    evaluated = [folder / "figures" / f"{report['evaluation']}.png" for report in reports]
    for drawn in [*evaluated, *paths]:
        print(f"  {drawn}")
