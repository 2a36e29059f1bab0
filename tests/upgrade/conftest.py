"""Two versions of Troupe on one Redis. Run by `make test-upgrade`; elsewhere these are skipped."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "upgrade: services of two versions (make test-upgrade)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = "upgrade" in str(config.getoption("-m"))
    why = "services of two versions take minutes; run `make test-upgrade`"
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.upgrade)
            item.add_marker(pytest.mark.timeout(900))
            if not wanted:
                item.add_marker(pytest.mark.skip(reason=why))
