"""The page of `susd explore` in a headless Chromium: how soon it is up, frames per second, latency, CPU time at rest.

`python benchmarks/explorer.py gunner kitchen` writes benchmarks/results/explorer.json. Chromium must be installed,
and the package `websockets` (of the extra `dev`). A frame is a drawing of the environment, between two steps where it is
drawn from states; the latency is from the movement of a mouse on a pad to the end of the first drawing that shows a
step with the new skill. CPU times mean something on a busy machine, too; the rest does not, nor where a host takes
cycles from a virtual machine (`stolen_percent`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "explorer"))
from browser import Page, launched

RESULTS = Path(__file__).parent / "results"
WAIT = 300.0  # seconds for the first compilations
PAD = ".part:nth-of-type(1) .pad"

# Notes the drawings of steps, and the drawing that follows a movement of the mouse.
WATCH = """(() => {
  const [stage] = susd.stages, draw = stage.draw, seen = { frames: 0, steps: 0, latency: null, wanted: null };
  let last = null;
  stage.draw = function (...given) {
    const share = draw.apply(this, given);
    if (share < 1 || this.frame !== last) seen.frames += 1;
    if (this.frame !== last) seen.steps += 1;
    last = this.frame;
    const acted = JSON.stringify(stage.segments.at(-1)?.control.skill);
    if (seen.wanted && acted === seen.wanted && share > 0.1) {
      seen.latency = performance.now() - seen.began;
      seen.wanted = null;
    }
    return share;
  };
  document.querySelector(".pad").addEventListener("pointermove", (event) => {
    const before = JSON.stringify(susd.skill);
    queueMicrotask(() => setTimeout(() => {
      const after = JSON.stringify(susd.skill);
      if (after !== before) Object.assign(seen, { wanted: after, began: event.timeStamp });
    }));
  }, { capture: true });
  window.seen = seen;
})()"""


def stolen() -> tuple[int, int]:
    """Ticks that a host took from this virtual machine, and all ticks, since boot."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return ticks[7], sum(ticks[:8])


def cpu_seconds(process: int) -> float:
    """User and system time of a process, so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


def rates(page: Page, seconds: float) -> dict[str, float]:
    """Drawings and steps per second while the page plays at its own rate."""
    page.eval("susd.play(true)")
    script = "[seen.frames, seen.steps, performance.now()]"
    before = page.eval(script)
    time.sleep(seconds)
    frames, steps, passed = (b - a for a, b in zip(before, page.eval(script), strict=True))
    return {"frames_per_second": round(1000 * frames / passed, 1), "steps_per_second": round(1000 * steps / passed, 1)}


def latencies(page: Page, drags: int) -> list[float]:
    """Milliseconds from movements of the mouse to drawings, each after a pause of another length."""
    found = []
    for number in range(drags):
        page.eval("susd.play(true); seen.latency = seen.wanted = null")
        x, y, width, height = page.box(PAD)
        angle = 2.4 * number  # far from the one before
        at = [
            (x + width / 2 + r * width * math.cos(angle), y + height / 2 + r * height * math.sin(angle))
            for r in (0.0, 0.42)
        ]
        page.mouse("mousePressed", *at[0])
        time.sleep(0.1 + 0.013 * (number % 7))
        page.mouse("mouseMoved", *at[1])
        found.append(float(page.wait("seen.latency")))
        page.mouse("mouseReleased", *at[1])
        time.sleep(0.1)
    return found


def resting_cpu(page: Page, process: int, seconds: float) -> float:
    """The share of a core that the server uses for a paused page, in per cent."""
    page.eval("susd.play(false)")
    page.wait("!susd.busy && !susd.awake && !susd.asking")
    time.sleep(1.0)
    before, began = cpu_seconds(process), time.perf_counter()
    time.sleep(seconds)
    return 100 * (cpu_seconds(process) - before) / (time.perf_counter() - began)


def measure(address: str, run: str, seconds: float, drags: int) -> dict[str, Any]:
    """Start a server for one run, use its page, end it."""
    load, before, began = os.getloadavg()[0], stolen(), time.perf_counter()
    command = [sys.executable, "-m", "susd.cli", "explore", run, "--no-browser"]
    record: dict[str, Any] = {"load_before": round(load, 2)}

    def passed() -> float:
        return round(time.perf_counter() - began, 2)

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            url = server.stdout.readline().strip()
            record["listens_seconds"] = passed()
            page = Page(address)
            page.call("Page.navigate", url=url)
            page.wait("!!document.querySelector('#app p, #app main')", WAIT)
            record["page_seconds"] = passed()
            page.wait("window.susd?.stages[0]?.frame?.time > 0", WAIT)
            record |= {"first_step_seconds": passed(), "first_step_cpu_seconds": round(cpu_seconds(server.pid), 2)}
            page.wait("!susd.hello.can.gallery || !!susd.gallery.data", WAIT)
            page.wait("!susd.hello.can.maps || !!susd.cards[0].map.measured", WAIT)
            page.wait("!susd.asking", WAIT)
            record["all_seconds"] = passed()
            page.eval(WATCH)
            record |= rates(page, seconds)
            times = latencies(page, drags)
            record["latency_ms"] = {
                "median": round(statistics.median(times), 1),
                "90 %": round(sorted(times)[math.ceil(0.9 * len(times)) - 1], 1),
            }
            record["resting_cpu_percent"] = round(resting_cpu(page, server.pid, seconds), 2)
            page.close()
        finally:
            ended = time.perf_counter()
            server.send_signal(signal.SIGINT)
            server.wait(60)
        record["end_seconds"] = round(time.perf_counter() - ended, 2)
    taken, ticks = (b - a for a, b in zip(before, stolen(), strict=True))
    record["stolen_percent"] = round(100 * taken / ticks, 1)
    return record


def main() -> None:
    """Measure all runs, one after another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="names of `susd skills`, or run folders")
    parser.add_argument("--seconds", type=float, default=10.0, help="of frames, and of rest")
    parser.add_argument("--drags", type=int, default=30)
    parser.add_argument("--out", type=Path, default=RESULTS / "explorer.json")
    options = parser.parse_args()
    from susd.runs.atomic import write_json
    from susd.runs.folder import describe_machine

    config = {"seconds": options.seconds, "drags": options.drags}
    record: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}  # others stay
    record |= {"benchmark": "explorer", "config": config}
    meta = {key: value for key, value in describe_machine(config, "").items() if key != "command"}
    with launched() as address:
        for run in options.runs:
            record[Path(run).name] = measure(address, run, options.seconds, options.drags)
            print(run, record[Path(run).name], flush=True)
            write_json(options.out, record | {"meta": meta})


if __name__ == "__main__":
    main()
