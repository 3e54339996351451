"""A suite file for tests, as small as it can be."""

from pathlib import Path

TINY = """
about = "for a test"
seeds = [0, 1]
[train]
epochs = 2
episodes = 2
horizon = 10
warmup = 20
gradient_steps = 1
batch_size = 8
hidden = 8
phi_hidden = 8
density_hidden = 8
buffer_size = 2000
[environments.gunner]
[methods.susd]
"""
SMALL_TASK = (
    "{ episodes = 4, num_envs = 2, eval_every = 2, gradient_steps = 1, batch_size = 8, hidden = 8, eval_episodes = 2, "
    "horizon = 50 }"
)


def declare(folder: Path, text: str) -> str:
    """The path of a suite file with this text."""
    path = folder / "mine.toml"
    path.write_text(text)
    return str(path)
