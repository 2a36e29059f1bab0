"""Observability against real tools. What takes minutes runs with `make test-observability`."""

import pytest

from tests.e2e.conftest import platform, spec, tiny_base

__all__ = ["platform", "spec", "tiny_base"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "observability" in str(config.getoption("-m")):
        return
    skip = pytest.mark.skip(reason="a real run takes a minute; run `make test-observability`")
    for item in items:
        if item.get_closest_marker("observability"):
            item.add_marker(skip)
