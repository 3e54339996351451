"""`susd atlas RUN`: the explorer's page with all its data as one file, which opens from disk and calls nobody."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from susd.envs.base import close
from susd.errors import UserError
from susd.explorer.bundle import bundle
from susd.explorer.embedded import embed, runs_in_browser
from susd.explorer.explore import find_run
from susd.explorer.recorded import record
from susd.plugins import Trust
from susd.runs.atomic import write_text
from susd.training.agent import Agent, load
from susd.training.compiler import use_compilation_cache

WEB = Path(__file__).with_name("web")
EMBEDDED_BYTES, RECORDED_BYTES = 1_000_000, 3_000_000  # of the whole file
MOST_RUNS = 2


def atlas(
    runs: str | Path | Sequence[str | Path],
    out: str | Path,
    seed: int | None = None,
    quiet: bool = True,
    trust: Trust = False,
) -> Path:
    """Write the page of one run, or of two side by side, and return its path; unless `quiet`, with a progress bar."""
    given = [runs] if isinstance(runs, (str, Path)) else list(runs)
    if not 1 <= len(given) <= MOST_RUNS:
        raise UserError(f"an atlas has one run or two side by side, not {len(given)}")
    path, folders = check_out(Path(out)), [find_run(run) for run in given]
    use_compilation_cache()
    agents = [load(folder, seed, trust=trust) for folder in folders]
    try:
        text = build(list(zip(agents, folders, strict=True)), [_shown(Path(run)) for run in given], quiet)
    finally:
        for agent in agents:
            close(agent.trainer.env)
    write_text(path, text)
    return path


def _shown(run: Path) -> str:
    """How a page names a run that others may load, too: without the folders of this machine."""
    return run.name if run.is_absolute() else str(run)


def check_out(path: Path) -> Path:
    """Where the page is written: a file NAME.html in a folder that exists."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--out is {str(path)!r}; it must be a file that ends in .html")
    if path.is_dir() or not path.parent.is_dir():
        raise UserError(f"--out is {str(path)!r}; it must be a file in a folder that exists")
    return path


def build(runs: Sequence[tuple[Agent, Path | None]], names: Sequence[str], quiet: bool = True) -> str:
    """The text of the page: networks and environment where they run in the browser and fit, recordings elsewhere."""
    if all(runs_in_browser(agent.trainer.env) for agent, _ in runs):
        page = _page([embed(agent, folder) for agent, folder in runs], names)
        if len(page.encode()) <= EMBEDDED_BYTES:
            return page
    room = (RECORDED_BYTES - len(_page([], []).encode())) // len(runs)
    return _page([record(agent, folder, room, quiet) for agent, folder in runs], names)


def _page(runs: list[dict[str, Any]], names: Sequence[str]) -> str:
    """The page of the explorer with everything inside, and a policy that allows nothing else."""
    for run, name in zip(runs, names, strict=True):
        run["hello"]["run"]["path"] = name
    script, style = bundle(WEB / "local" / "main.js"), (WEB / "style.css").read_text(encoding="utf-8")
    data = json.dumps({"runs": runs}, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    icon = base64.b64encode((WEB / "icon.svg").read_bytes()).decode()
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "img-src data: blob:; media-src blob:; base-uri 'none'; form-action 'none'"
    )
    title = " and ".join(dict.fromkeys(run["hello"]["run"]["title"] for run in runs)) or "susd"
    parts = {
        r"<meta charset=.*?>": f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">',
        r"<title>.*?</title>": f"<title>{html.escape(title)}</title>",
        r'<link rel="icon".*?>': f'<link rel="icon" href="data:image/svg+xml;base64,{icon}">',
        r'<link rel="stylesheet".*?>': f"<style>{style}</style>",
        r"<script .*?</script>\n": "",
        r' data-runs=".*?"': "",
        r"</body>": f'<script type="application/json" id="atlas">{data}</script>\n<script>{script}</script>\n</body>',
    }
    page = (WEB / "index.html").read_text(encoding="utf-8")
    for pattern, text in parts.items():
        page, count = re.subn(pattern, lambda _, text=text: text, page, count=1)  # type: ignore[misc]
        assert count == 1, pattern
    return page


def _hash(text: str) -> str:
    """The source expression of an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
