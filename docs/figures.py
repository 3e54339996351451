"""Draw the figures of the docs from the skills that come with the package: `python docs/figures.py [NAME ..]`.

Kitchen, Ant and HalfCheetah are rendered for their videos, which needs a GL, see docs/kitchen.md.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import imageio.v3 as iio
import numpy as np
from PIL import Image

from susd.evaluation.evaluate import draw_figures, evaluate_default
from susd.experiments.job import copy_figure

IMAGES = Path(__file__).parent / "images"
FIGURES = {  # skills of the package -> the figure of a run and its name in the docs
    "gunner": {"trajectories": "skills", "control": "control", "coverage": "coverage"},
    "multi_particle": {"trajectories": "skills", "control": "control", "coverage": "coverage"},
    "kitchen": {"trajectories": "trajectories"},
    "ant": {"trajectories": "skills"},
    "half_cheetah": {"trajectories": "skills"},
}
LAST_FRAME = {"kitchen": "skills"}  # where the end of the video says more than trajectories


def main() -> None:
    """Draw in a temporary folder, to which skills of the package are copied, and keep what the docs show."""
    with tempfile.TemporaryDirectory() as temporary:
        os.chdir(temporary)
        for name in sys.argv[1:] or FIGURES:
            wanted = FIGURES[name]
            if "control" in wanted.values():
                evaluate_default(name)
            draw_figures(name)
            run = Path("runs") / name
            for figure, ending in wanted.items():
                copy_figure(run / "figures" / f"{figure}.png", IMAGES / f"{name}-{ending}.png")
            if name in LAST_FRAME:
                frame = np.asarray(list(iio.imiter(run / "videos" / "skills.mp4"))[-1])
                Image.fromarray(frame).quantize(256).save(IMAGES / f"{name}-{LAST_FRAME[name]}.png", optimize=True)
            print(f"drawn: {name}", flush=True)


if __name__ == "__main__":
    main()
