"""Fixtures of the explorer: a browser, servers of runs, and skills that steer perfectly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from explorer.agents import steering_agent
from explorer.browser import Page, launched
from susd.explorer.atlas import WEB
from susd.explorer.bundle import bundle
from susd.explorer.model import Model
from susd.explorer.server import Server
from susd.explorer.session import Session


@pytest.fixture(scope="session")
def gunner(trained: Callable[..., Path]) -> Path:
    return trained("gunner", "--epochs", "1")


@pytest.fixture(scope="session")
def model() -> Model:
    """2D-Gunner with skills that steer perfectly; it has no folder."""
    return Model(steering_agent())


@contextlib.contextmanager
def serving(*models: Model) -> Iterator[Server]:
    """A server in a thread of this process."""
    loop = asyncio.new_event_loop()
    server = Server([partial(Session, model) for model in models], [model.spec.name for model in models])
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@pytest.fixture(scope="session")
def server(model: Model) -> Iterator[Server]:
    with serving(model) as found:
        yield found


@pytest.fixture(scope="session")
def browser() -> Iterator[str]:
    """The address of a browser's DevTools; tests are skipped where none is installed."""
    with launched() as address:
        yield address


@pytest.fixture
def page(browser: str) -> Iterator[Callable[..., Page]]:
    """Opens tabs, which must not have logged an error when they are closed."""
    opened: list[Page] = []

    def open_page(url: str, **options: object) -> Page:
        found = Page(browser, **options)  # type: ignore[arg-type]
        opened.append(found)
        found.open(url)
        return found

    yield open_page
    for found in opened:
        found.eval("1")  # collects what is left of the log
        errors = found.errors
        found.close()
        assert not errors


@pytest.fixture(scope="session")
def js(browser: str) -> Iterator[Callable[..., Any]]:
    """Runs statements that return a value in a browser; they see `data`, and the exports of some modules as `local`."""
    modules = sorted(path for path in (WEB / "local").glob("*.js") if path.stem != "main")
    modules += [WEB / f"{name}.js" for name in ("bodies", "camera", "gif", "solids")]
    names = ", ".join(f"...${path.parent.name}_{path.stem}" for path in modules)
    found = Page(browser)
    found.eval(f"(() => {{ {bundle(*modules)}\nwindow.local = {{ {names} }}; }})()")
    yield lambda code, data=None: found.eval(f"(async (data) => {{ {code} }})({json.dumps(data)})")
    found.close()
