"""A real Docker Engine. Run by `make test-compose`; anywhere else these tests are skipped."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compose_engine import PROJECT, Engine, find_engine

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
    with made.up():
        yield made


@pytest.fixture(scope="module")
def engine_with_tls(
    tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> Iterator[Engine]:
    """A second system, whose containers speak over mutual TLS."""
    variables = find_engine()
    assert variables is not None
    keys = tmp_path_factory.mktemp("tls")
    argv = [
        sys.executable,
        "-m",
        "troupe.runtime.tls.certificates",
        "--into",
        str(keys),
        "--shared-keys",
    ]
    subprocess.run(argv, check=True, capture_output=True, timeout=120)
    # The containers run as another user, who must get as far as the files.
    for folder in (keys, *keys.parents[:2]):
        folder.chmod(0o755)
    made = Engine(
        variables,
        tmp_path_factory.mktemp("compose-tls"),
        free_port(),
        project=f"{PROJECT}-tls",
        more=("docker-compose.tls.yml",),
        settings={"TROUPE_TLS_DIR": str(keys)},
    )
    with made.up():
        yield made
