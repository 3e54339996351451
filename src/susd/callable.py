"""Modules that are also the function they are named after: `susd.report(..)` beside modules such as `susd.report.build`."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class CallableModule(ModuleType):
    """A module that can be called. The function is imported when that happens."""

    function: str  # module:name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
        module, _, name = self.function.partition(":")
        return getattr(import_module(module), name)(*args, **kwargs)


def make_callable(module: str, function: str) -> None:
    """Forward calls of an imported module to a function, named as module:name."""
    sys.modules[module].__class__ = CallableModule
    sys.modules[module].__dict__["function"] = function
