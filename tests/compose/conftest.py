"""A real Docker Engine. Run by `make test-compose`; anywhere else these tests are skipped."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine import Engine, find_engine

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in item.path.parents]
    wanted = "compose" in str(config.getoption("-m"))
    why = "" if wanted else "a real Docker Engine takes minutes; run `make test-compose`"
    if wanted and ours and find_engine() is None:
        why = "no Docker Engine with compose here; `python scripts/docker_engine.py start` says why"
    for item in ours:
        item.add_marker(pytest.mark.compose)
        item.add_marker(pytest.mark.timeout(3000))
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session")
def engine(
    tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> Iterator[Engine]:
    """The whole system up, built and healthy; gone afterwards."""
    variables = find_engine()
    assert variables is not None
    made = Engine(variables, tmp_path_factory.mktemp("compose"), free_port())
    made.prepare()
    try:
        made.compose("up", "-d", "--build", "--wait", "--wait-timeout", "600", timeout_s=2700)
        yield made
    finally:
        made.compose("down", "-v", "--remove-orphans", "--timeout", "20", timeout_s=120)
        made.close()
