"""XLA's compiler: its options on CPUs, where compiling takes longer than on accelerators, and a cache of its programs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax

# LLVM's first level of optimisation compiles faster, and the programs are as fast as with the third one.
OFTEN = {"xla_backend_optimization_level": 1}
# Optimising a program that runs once takes longer than running it.
ONCE = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}


def compiler_options(once: bool = False) -> dict[str, Any] | None:
    """For programs that run often, or once; None where the compiler's own options are used."""
    if jax.default_backend() != "cpu":
        return None
    return dict(ONCE if once else OFTEN)


def cache_folder() -> Path:
    """Where things are kept that can be made again: SUSD_CACHE_DIR, or a folder in the user's cache."""
    given = os.environ.get("SUSD_CACHE_DIR")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "susd"


def use_compilation_cache() -> None:
    """Keep compiled programs on disk between runs."""
    jax.config.update("jax_compilation_cache_dir", str(cache_folder()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # the many small programs add up to a second
