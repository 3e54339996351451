"""Episodes in Minari's folder of datasets. Needs the packages `minari` and `h5py`."""

from __future__ import annotations

import importlib.util
import json
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from susd.errors import UserError, shown
from susd.methods.registry import method

if TYPE_CHECKING:
    from susd.share.dataset import Episode
    from susd.training.agent import Agent

GYMNASIUM = {"gunner": "susd/Gunner-v0", "multi_particle": "susd/MultiParticle-v0"}  # which Minari can make again


def check(name: str, force: bool) -> None:
    """Refuse if the packages are missing, or the id of the dataset is invalid or taken."""
    if any(importlib.util.find_spec(module) is None for module in ("minari", "h5py")):
        raise UserError("--format minari needs packages that are missing: pip install 'susd[data]'")
    from minari.dataset.minari_dataset import DATASET_ID_RE
    from minari.storage.datasets_root_dir import get_dataset_path

    found = DATASET_ID_RE.fullmatch(name)
    if not found or found["version"] is None:
        raise UserError(f"--out is {shown(name)}; the id of a Minari dataset has the form NAME-v0 or GROUP/NAME-v0")
    if get_dataset_path(name).exists() and not force:
        raise UserError(f"Minari has a dataset {name} already; replace it with --force")


def write(name: str, episodes: list[Episode], about: dict[str, Any], agent: Agent) -> str:
    """Write a dataset, in place of one with the same id; all rewards are zero. Returns the id."""
    import gymnasium
    import minari
    from minari.storage.datasets_root_dir import get_dataset_path

    spec, config = agent.trainer.env.spec, agent.trainer.config
    env = gymnasium.make(GYMNASIUM[config.env], **config.env_options) if config.env in GYMNASIUM else None
    if get_dataset_path(name).exists():
        minari.delete_dataset(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari asks for an author and a link
        dataset = minari.create_dataset_from_buffers(
            name,
            [_buffer(number, episode) for number, episode in enumerate(episodes)],
            env=env,
            algorithm_name=method(config.method).title,
            description=f"Random skills of {about['run']}: susd {config.method} on {config.env}, without rewards.",
            observation_space=gymnasium.spaces.Box(-np.inf, np.inf, (spec.obs_size,), np.float32),
            action_space=gymnasium.spaces.Box(-1.0, 1.0, (spec.action_size,), np.float32),
        )
        dataset.storage.update_metadata({"susd": json.dumps(about)})
    return name


def _buffer(number: int, episode: Episode) -> Any:
    from minari.data_collector import EpisodeBuffer

    length = len(episode.actions)
    end = np.arange(length) == length - 1
    values: dict[str, Any] = {
        "observations": episode.observations,
        "actions": episode.actions,
        "rewards": np.zeros(length, np.float32),
        "terminations": end & episode.terminated,
        "truncations": end & (not episode.terminated),
        "infos": {"skill": np.repeat(episode.skill[None], length + 1, axis=0)},
    }
    return EpisodeBuffer(id=number, seed=episode.seed, options={"index": episode.index}, **values)
