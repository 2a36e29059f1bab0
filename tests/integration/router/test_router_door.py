"""The router as a process: TLS, keys that change under it, and the door that it will not open."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from troupe.clients.rest import RestClient
from troupe.clients.rest.keys import add_key, remove_key
from troupe.errors import InvalidArgumentError, TroupeError, UnavailableError

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate of its own for localhost, and its key."""
    files = tmp_path / "tls.pem", tmp_path / "tls.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "1", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-out", str(files[0]), "-keyout", str(files[1])),
        ],
        check=True,
        capture_output=True,
    )
    return files


def environment(tmp_path: Path, **settings: object) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_")}
    own = {"GRPC_ADDRESS": "127.0.0.1:0", "RUNS_DIR": tmp_path / "runs", "LAUNCHER": "none"}
    named = {f"TROUPE_ROUTER_{k}": str(v) for k, v in {**own, **settings}.items()}
    return {**inherited, **named}


@pytest.fixture
def guarded(
    tmp_path: Path,
    certificate: tuple[Path, Path],
    free_port: Callable[[], int],
    own_valkey_server: Any,
) -> Iterator[tuple[str, Path]]:
    """URL and key file of a router that speaks https on every interface."""
    keys, port = tmp_path / "keys.yaml", free_port()
    add_key(keys, "reader", ("read",))
    settings = environment(
        tmp_path,
        REST_ADDRESS=f"0.0.0.0:{port}",
        REDIS_URL=own_valkey_server.url,
        API_KEYS=keys,
        TLS_CERTIFICATE=certificate[0],
        TLS_KEY=certificate[1],
    )
    process = subprocess.Popen([sys.executable, "-m", "services.router"], env=settings)
    try:
        yield f"https://127.0.0.1:{port}", keys
    finally:
        process.terminate()
        process.wait(30)


def within(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.timeout(180)
def test_router_speaks_https_and_knows_a_new_key_without_a_restart(
    guarded: tuple[str, Path], certificate: tuple[Path, Path]
) -> None:
    url, file = guarded
    key = add_key(file, "late", ("submit",))
    with RestClient(url, tls_ca=certificate[0]) as nobody:
        assert within(nobody.is_up, 90)
        with pytest.raises(InvalidArgumentError, match="TROUPE_API_KEY"):
            nobody.jobs()
    fresh = add_key(file, "fresh", ("admin",))
    with RestClient(url, api_key=fresh, tls_ca=certificate[0]) as client:

        def is_known() -> bool:
            try:
                return client.session().scopes == ["read", "submit", "admin"]
            except TroupeError:
                return False

        assert within(is_known, 10)
        assert client.jobs() == []
        with RestClient(url, api_key=key, tls_ca=certificate[0]) as other:
            assert other.session().name == "late"
        remove_key(file, "fresh")
        assert within(lambda: not client.session().scopes, 10)
    with RestClient(url, api_key=key) as stranger, pytest.raises(UnavailableError):
        stranger.jobs()


def test_router_will_not_open_a_public_address_without_keys(tmp_path: Path, redis_url: str) -> None:
    settings = environment(tmp_path, REST_ADDRESS="0.0.0.0:0", REDIS_URL=redis_url)
    done = subprocess.run(
        [sys.executable, "-m", "services.router"],
        env=settings,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, "TROUPE_ROUTER_API_KEYS" in done.stderr) == (3, True), done.stderr
    assert "Traceback" not in done.stderr
