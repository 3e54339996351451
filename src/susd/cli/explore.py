"""`susd explore RUN`: steer the skills of a run in the browser."""

from __future__ import annotations

import argparse

from susd.cli.common import RUN_HELP, Commands, add_trust, integer, path


def add(commands: Commands) -> None:
    """The command and its options."""
    command = commands.add_parser(
        "explore",
        help="steer the skills of a run in the browser",
        epilog="Ctrl-C ends it with exit code 0.",
    )
    command.add_argument("run", type=path, metavar="RUN", help=RUN_HELP)
    command.add_argument(
        "--beside", type=path, metavar="RUN", help="a second run, shown beside the first with the same skills"
    )
    command.add_argument("--seed", type=integer, metavar="N", help="which of the run's seeds; default: the first")
    command.add_argument(
        "--task", action="append", default=[], metavar="FILE.py:NAME", help="a task of yours to offer; may be repeated"
    )
    command.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="default: this machine only")
    command.add_argument("--port", type=integer, default=0, metavar="N", help="port to listen on; default: a free one")
    command.add_argument("--no-browser", action="store_true", help="print the address without opening the browser")
    add_trust(command)
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    from susd.errors import UserError

    if not 0 <= options.port < 2**16:
        raise UserError(f"--port is {options.port}; it must be from 0 to {2**16 - 1}")
    from susd.explorer.explore import explore
    from susd.explorer.workers import end_promptly, share_promptly

    runs = [options.run] if options.beside is None else [options.run, options.beside]
    where = {"host": options.host, "port": options.port, "browser": not options.no_browser}
    share_promptly()
    explore(runs, seed=options.seed, trust=options.trust, tasks=options.task, **where)
    end_promptly()
    return 0
