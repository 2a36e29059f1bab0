"""How service processes end when they can't start: 3 for configuration, 1 for what may pass."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SERVICES = ("router", "play", "env", "rollout", "trainer")
MODULES = {"play": "troupe_router.play"}
ADDRESSES = ("GRPC_ADDRESS", "ADMIN_ADDRESS")


@pytest.fixture
def taken() -> Iterator[str]:
    """host:port that somebody else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def ended(service: str, tmp_path: Path, settings: dict[str, str]) -> tuple[int, str]:
    """Exit status and stderr of the service, started on free ports with ``settings``."""
    prefix = f"TROUPE_{service.upper()}_"
    own = {"GRPC_ADDRESS": "127.0.0.1:0", "REST_ADDRESS": "127.0.0.1:0", "ROUTER": "127.0.0.1:1"}
    if service != "router":
        del own["REST_ADDRESS"]
    else:
        own["RUNS_DIR"] = str(tmp_path)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_")}
    environment = {prefix + name: value for name, value in {**own, **settings}.items()}
    done = subprocess.run(
        [sys.executable, "-m", MODULES.get(service, f"troupe_{service}")],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("service", SERVICES)
def test_service_when_a_setting_is_wrong_then_3_and_its_name(service: str, tmp_path: Path) -> None:
    status, said = ended(service, tmp_path, {"GRACE_S": "soon"})
    assert (status, f"TROUPE_{service.upper()}_GRACE_S" in said) == (3, True), said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("service", "address"),
    [("router", "REST_ADDRESS"), *((s, a) for s in SERVICES for a in ADDRESSES)],
)
def test_service_when_a_port_is_in_use_then_3_and_the_address(
    service: str, address: str, tmp_path: Path, taken: str, redis_url: str
) -> None:
    redis = {"REDIS_URL": redis_url} if service in ("router", "play", "trainer") else {}
    status, said = ended(service, tmp_path, {address: taken, **redis})
    assert (status, taken in said) == (3, True), said
    assert "Traceback" not in said


@pytest.mark.parametrize("service", ["router", "trainer"])
def test_service_when_redis_does_not_answer_then_1_so_that_it_is_started_again(
    service: str, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    status, said = ended(service, tmp_path, {"REDIS_URL": url})
    assert (status, f"No Redis answers at {url}" in said) == (1, True), said


@pytest.mark.parametrize("service", ["router", "trainer"])
def test_service_when_the_redis_url_is_none_then_3(service: str, tmp_path: Path) -> None:
    status, said = ended(service, tmp_path, {"REDIS_URL": "nonsense"})
    assert (status, "nonsense" in said) == (3, True), said
