"""`susd explore RUN`: load one run or two, serve the page, open the browser."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import webbrowser
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from susd.explorer.model import Model
from susd.explorer.own_tasks import find_tasks
from susd.explorer.server import Server, serve
from susd.explorer.session import Session
from susd.plugins import Trust
from susd.runs.folder import RunFolder
from susd.training.agent import load
from susd.training.compiler import use_compilation_cache


def explore(
    runs: Sequence[str | Path],
    *,
    seed: int | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    browser: bool = True,
    trust: Trust = False,
    tasks: Sequence[str] = (),
) -> None:
    """Serve the page of one run, or of two side by side, until Ctrl-C.

    `trust` is that of `susd.load`; `tasks` are further ones to offer, FILE.py:NAME.
    """
    began = time.perf_counter()
    models = load_models(runs, seed, trust, tasks)
    server = Server(
        [partial(Session, model) for model in models], [model.path.name for model in models if model.path], host
    )

    def ready(url: str) -> None:
        print(url, flush=True)
        print(f"ready after {time.perf_counter() - began:.1f} s; Ctrl-C ends it", file=sys.stderr, flush=True)
        if browser:
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    try:
        asyncio.run(serve(server, port, ready))
    finally:
        for model in models:
            model.stopped = True
    print("closed", file=sys.stderr)


def load_models(
    runs: Sequence[str | Path], seed: int | None = None, trust: Trust = False, tasks: Sequence[str] = ()
) -> list[Model]:
    """The runs with their weights; all are checked before the first is loaded."""
    use_compilation_cache()
    models = []
    for path in [find_run(run) for run in runs]:
        agent = load(path, seed, trust=trust)
        own = find_tasks(agent.trainer.config, agent.trainer.env, path, tasks, trust)
        models.append(Model(agent, path, own))
    return models


def find_run(run: str | Path) -> Path:
    """The folder of a run."""
    return RunFolder.open(Path(run)).path.resolve()
