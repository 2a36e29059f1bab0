"""A platform with the fault seam on, and the run that nothing happened to.

The quick share runs with all tests; the matrix takes an hour and a half: `make chaos`.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chaos_world import ChaosWorld
from platform_world import Platform, make_tiny_base, run_platform, tiny_spec
from pressed_world import PressedWorld
from process_tree import adopting, descendants
from wired_world import Valkey, WiredWorld, run_wired

HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chaos-results", type=Path, help="folder to which chaos.jsonl is appended")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "chaos" in str(config.getoption("-m")):
        return
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("chaos"):
            item.add_marker(
                pytest.mark.skip(reason="the matrix takes an hour and a half; run `make chaos`")
            )


@pytest.fixture(scope="session")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TROUPE_FAULTS_DIR of the platform."""
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="session")
def chaos_spec(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A job of seconds: the real algorithm on 4x4 grids."""
    return tiny_spec(make_tiny_base(tmp_path_factory.getbasetemp() / "tiny-base"))


@pytest.fixture(scope="session")
def elders() -> frozenset[int]:
    """Processes that other tests started and that live on."""
    return frozenset(descendants(os.getpid()))


@pytest.fixture(scope="session")
def platform(
    tmp_path_factory: pytest.TempPathFactory,
    free_port: Callable[[], int],
    faults: Path,
    elders: frozenset[int],
) -> Iterator[Platform]:
    """Redis and the router by ``troupe up``, for all cases."""
    _ = elders
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    more = {"TROUPE_FAULTS_DIR": str(faults), "PYTHONPATH": path}
    folder = tmp_path_factory.mktemp("platform")
    with adopting(), run_platform(folder, free_port, more) as found:
        yield found


@pytest.fixture(scope="session")
def results(pytestconfig: pytest.Config) -> Path | None:
    """Where outcomes are recorded, if they are wanted."""
    folder: Path | None = pytestconfig.getoption("--chaos-results")
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def world(
    platform: Platform, faults: Path, elders: frozenset[int], results: Path | None
) -> ChaosWorld:
    return ChaosWorld(platform, faults, results, elders)


@pytest.fixture(scope="session")
def pressed(
    platform: Platform,
    faults: Path,
    elders: frozenset[int],
    results: Path | None,
    free_port: Callable[[], int],
) -> PressedWorld:
    """The same platform, for what is done to streams, Redis and limits."""
    found = PressedWorld(platform, faults, results, elders)
    found.free_port = free_port
    return found


@pytest.fixture(scope="module")
def valkey(
    tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int], undisturbed: Path
) -> Iterator[Valkey]:
    """A server behind the proxy; the undisturbed run has passed by then."""
    _ = undisturbed
    server = Valkey(free_port(), tmp_path_factory.mktemp("valkey-behind-proxy"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def wired_faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TROUPE_FAULTS_DIR of the platform whose rooms talk through a proxy."""
    return tmp_path_factory.mktemp("wired-faults")


@pytest.fixture(scope="module")
def wired(
    tmp_path_factory: pytest.TempPathFactory,
    free_port: Callable[[], int],
    valkey: Valkey,
    wired_faults: Path,
    results: Path | None,
) -> Iterator[WiredWorld]:
    """A platform whose rooms talk through a proxy."""
    elders = frozenset(descendants(os.getpid()))
    more = {"TROUPE_FAULTS_DIR": str(wired_faults)}
    folder = tmp_path_factory.mktemp("wired")
    with run_wired(folder, free_port, valkey, more) as (platform, wire):
        yield WiredWorld(platform, wired_faults, results, elders, wire)


@pytest.fixture(scope="session")
def undisturbed(world: ChaosWorld, chaos_spec: dict[str, Any]) -> Path:
    """The run folder of the same job, left alone."""
    return world.run_alone(chaos_spec)
