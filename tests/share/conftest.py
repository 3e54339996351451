"""Skills of a tiny run, pushed once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from susd.share.push import push


@pytest.fixture(scope="session")
def pushed(trained: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A skill folder, to be read and copied, never changed."""
    return push(trained("gunner", "--epochs", 3), tmp_path_factory.mktemp("pushed") / "tiny")
