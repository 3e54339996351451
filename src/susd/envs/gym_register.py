"""Makes the environments known to Gymnasium without importing JAX."""

from __future__ import annotations


def register() -> None:
    """Register `susd/Gunner-v0` and `susd/MultiParticle-v0`; calling it again changes nothing."""
    from gymnasium.envs.registration import register as enter
    from gymnasium.envs.registration import registry

    for identifier, source in (("susd/Gunner-v0", "GunnerEnv"), ("susd/MultiParticle-v0", "MultiParticleEnv")):
        if identifier not in registry:
            enter(identifier, entry_point=f"susd.envs.gym_api:{source}", max_episode_steps=50)
