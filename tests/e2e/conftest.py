"""The whole system as processes: a made-here base model and a platform of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from platform_world import Platform, make_tiny_base, run_platform, tiny_spec


@pytest.fixture(scope="session")
def tiny_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model of a few thousand parameters that has seen a few demonstrations."""
    return make_tiny_base(tmp_path_factory.getbasetemp() / "tiny-base")


@pytest.fixture(scope="module")
def platform(
    tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> Iterator[Platform]:
    """Redis and the router by ``troupe up``, ended by ``troupe down``."""
    with run_platform(tmp_path_factory.mktemp("platform"), free_port, {}) as found:
        yield found


@pytest.fixture(scope="session")
def spec(tiny_base: Path) -> dict[str, Any]:
    """A job of seconds: the real algorithm on 4x4 grids."""
    return tiny_spec(tiny_base)
