"""Every environment as data: its title, where its class is, its presets. Nothing here imports JAX or an environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

from susd import plugins


@dataclass(frozen=True)
class EnvEntry:
    """What the rest of the package knows about an environment before it is made.

    `source` names a class or factory as module:name; it may give a functional, a host or a Gymnasium environment.
    """

    name: str
    title: str
    source: str
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # preset -> options of a run that it changes
    functional: bool | None = None  # pure JAX or not; None: known only when it is made
    paper_steps: int = 0  # environment steps of pretraining in the paper; 0: the paper does not have it
    decoder_sizes: tuple[int, ...] = ()  # hidden units that the decoding evaluation selects from; (): its default


# Skills that a task uses for five steps must act at once, in every layout: not the soft target entropy of 2D-Gunner.
_PARTICLES = {"env_options": {"layout": "random"}, "target_entropy": -0.5}
_KITCHEN = {
    "env_options": {"layout": "semantic", "quaternions": "continuous", "scaled": True},
    "phi_input": "own",
    "reward_scope": "factor",
    "episodes": 16,
    "gradient_steps": 50,
    "epochs": 1250,
    "buffer_size": 400_000,
    "warmup": 10_000,
    "discount": 0.97,
    "target_entropy": -0.5,
}
_LOCOMOTION = {
    "episodes": 16,
    "gradient_steps": 150,
    "epochs": 600,
    "buffer_size": 1_000_000,
    "warmup": 10_000,
    "discount": 0.99,
    "target_entropy": -0.5,
}
BUILT_IN: Mapping[str, EnvEntry] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            EnvEntry(
                name="gunner",
                title="2D-Gunner",
                source="susd.envs.gunner:Gunner",
                functional=True,
                presets={"quick": {"epochs": 600, "discount": 0.5}},
                paper_steps=4_000_000,
                decoder_sizes=(10, 12, 14, 16),
            ),
            EnvEntry(
                name="multi_particle",
                title="Multi-Particle",
                source="susd.envs.multi_particle:MultiParticle",
                functional=True,
                presets={"quick": _PARTICLES, "paper": {"env_options": {"actions": "five"}}},
                paper_steps=4_000_000,
                decoder_sizes=(30, 35, 40, 45, 50, 55, 60, 65),
            ),
            EnvEntry(
                name="kitchen",
                title="Kitchen",
                source="susd.envs.kitchen:Kitchen",
                functional=False,
                presets={"quick": _KITCHEN, "paper": {"share_agent": "all"}},  # the released model of the paper's tables
                paper_steps=4_000_000,
                decoder_sizes=(20, 30, 40, 50, 60, 70, 80, 90),
            ),
            EnvEntry(
                name="ant",
                title="Ant",
                source="susd.envs.mujoco.bodies:Ant",
                functional=False,
                presets={"quick": _LOCOMOTION},
                paper_steps=16_000_000,
            ),
            EnvEntry(
                name="half_cheetah",
                title="HalfCheetah",
                source="susd.envs.mujoco.bodies:HalfCheetah",
                functional=False,
                presets={"quick": _LOCOMOTION},
                paper_steps=16_000_000,
            ),
        )
    }
)


def env_names() -> tuple[str, ...]:
    """The names of built-in and registered environments; imports nothing."""
    return tuple(dict.fromkeys((*BUILT_IN, *plugins.registered("environments"))))


@cache
def env_entry(name: str) -> EnvEntry | None:
    """The entry of that name, of which only the package that registered it is imported; None for other names."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name not in (registered := plugins.registered("environments")):
        return None
    found = plugins.load("environments", name)
    if isinstance(found, EnvEntry):
        return dataclasses.replace(found, name=name)
    return EnvEntry(name, title=name, source=f"{registered[name].module}:{registered[name].attr}")


def environments() -> dict[str, EnvEntry]:
    """All environments by name: the built-in ones, then those of entry points in the group `susd.environments`."""
    entries = {name: env_entry(name) for name in env_names()}
    return {name: entry for name, entry in entries.items() if entry is not None}
