"""The command line: `susd COMMAND ..`. Each command has a module here, which calls the public API and prints."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from susd.cli import (
    atlas,
    bench,
    check,
    config,
    doctor,
    downstream,
    evaluate,
    explore,
    export,
    methods,
    pull,
    push,
    record,
    report,
    show,
    skills,
    suite,
    train,
    verify,
)
from susd.cli.common import INTERRUPTED, USER_ERROR, Parser
from susd.errors import UserError

RUNS = (train, explore, atlas, config, check, methods, skills, evaluate, downstream, suite, report, show)
COMMANDS = (*RUNS, push, pull, export, record, verify, bench, doctor)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; bad input prints one sentence and exits with 2."""
    top = parser()
    options, rest = top.parse_known_args(arguments)
    if rest and not hasattr(options, "rest"):  # only some commands parse the rest themselves
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    options.rest = rest
    try:
        with _sigterm_interrupts():
            sys.exit(options.command(options))
    except UserError as error:
        print(f"susd: error: {error}", file=sys.stderr)
        sys.exit(USER_ERROR)
    except KeyboardInterrupt:
        print("susd: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader, `head` for instance, has closed the pipe
        sys.stderr.close()
        sys.exit(1)


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does: what it has started is stopped, and the exit code is the same."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread can handle signals
        yield
        return
    old = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, old)


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = Parser(prog="susd", description="Factored unsupervised skill discovery.")
    top.add_argument("--version", action="store_true", help="print the version and exit")
    top.set_defaults(command=_version_or_help(top))
    commands = top.add_subparsers(title="commands", metavar="COMMAND")
    for module in COMMANDS:
        module.add(commands)
    return top


def _version_or_help(top: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    def run(options: argparse.Namespace) -> int:
        if options.version:
            from susd import __version__

            print(__version__)
            return 0
        top.print_help()
        return USER_ERROR

    return run


if __name__ == "__main__":
    main()
