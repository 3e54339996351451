"""Registers our environments with Gymnasium, without importing JAX, and Gymnasium only when user code does."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


def register() -> None:
    """Register `susd/Gunner-v0` and `susd/MultiParticle-v0`; a second call changes nothing."""
    from gymnasium.envs import registration

    for identifier, source in (("susd/Gunner-v0", "GunnerEnv"), ("susd/MultiParticle-v0", "MultiParticleEnv")):
        if identifier not in registration.registry:
            registration.register(identifier, entry_point=f"susd.envs.gymnasium.functional:{source}", max_episode_steps=50)


def register_when_imported() -> None:
    """Register now if Gymnasium is loaded, else as soon as it is: loading it here would slow down `susd --help`."""
    if "gymnasium" in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, _AfterGymnasium())


class _AfterGymnasium:
    """An import hook that acts once: it loads Gymnasium as usual and then registers."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                load(module)
                register()

            spec.loader.exec_module = load_and_register  # type: ignore[method-assign]
        return spec
