"""The router as a process: TLS, keys that change under it, and the door that it will not open."""

import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from troupe.cli.doctor import examine
from troupe.cli.settings import CliSettings
from troupe.clients.rest import RestClient
from troupe.clients.rest.keys import add_key, remove_key
from troupe.errors import InvalidArgumentError, TroupeError, UnavailableError
from troupe_router.rest.access.certificate import RestCertificate

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate of its own for localhost, and its key."""
    return pair(tmp_path)


def pair(folder: Path) -> tuple[Path, Path]:
    files = folder / "tls.pem", folder / "tls.key"
    folder.mkdir(exist_ok=True)
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


def run_router(variables: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """A router that ends by itself."""
    argv = [sys.executable, "-m", "troupe_router"]
    return subprocess.run(
        argv, env=variables, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def admin(free_port: Callable[[], int]) -> str:
    """host:port of the guarded router's admin port."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def guarded(
    tmp_path: Path,
    certificate: tuple[Path, Path],
    free_port: Callable[[], int],
    admin: str,
    own_valkey_server: Any,
) -> Iterator[tuple[str, Path]]:
    """URL and key file of a router that speaks https on every interface."""
    keys, port = tmp_path / "keys.yaml", free_port()
    add_key(keys, "reader", ("read",))
    settings = environment(
        tmp_path,
        REST_ADDRESS=f"0.0.0.0:{port}",
        ADMIN_ADDRESS=admin,
        REDIS_URL=own_valkey_server.url,
        API_KEYS=keys,
        TLS_CERTIFICATE=certificate[0],
        TLS_KEY=certificate[1],
    )
    process = subprocess.Popen([sys.executable, "-m", "troupe_router"], env=settings)
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
    [found] = [each for each in examine(CliSettings(rest_url=url)) if each.name == "router"]
    assert (found.verdict, "TROUPE_REST_CA" in found.detail) == ("error", True)
    with RestClient(url, api_key=key, retry_for_s=600) as stranger:
        with pytest.raises(UnavailableError, match="TROUPE_REST_CA"):
            stranger.jobs()
        with pytest.raises(UnavailableError, match="TROUPE_REST_CA"):
            stranger.is_up()
    with (
        RestClient(url.replace("https", "http")) as plain,
        pytest.raises(UnavailableError, match="give https://"),
    ):
        plain.jobs()


@pytest.mark.timeout(180)
def test_targets_when_rest_asks_for_keys_then_the_admin_port_shows_them_without(
    guarded: tuple[str, Path], certificate: tuple[Path, Path], admin: str
) -> None:
    url, _ = guarded
    with RestClient(url, tls_ca=certificate[0]) as client:
        assert within(client.is_up, 90)
    trusted = ssl.create_default_context(cafile=str(certificate[0]))
    assert httpx.get(f"{url}/metrics/targets", verify=trusted).status_code == 401
    assert httpx.get(f"http://{admin}/metrics/targets").json() == []


@pytest.mark.timeout(180)
def test_router_when_its_certificate_is_replaced_then_new_connections_get_the_new_one(
    guarded: tuple[str, Path], certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    port = int(guarded[0].rpartition(":")[2])

    def shown() -> str:
        return ssl.get_server_certificate(("127.0.0.1", port), timeout=10)

    with RestClient(guarded[0], tls_ca=certificate[0]) as client:
        assert within(client.is_up, 90)
    assert shown() == certificate[0].read_text()
    for old, new in zip(certificate, pair(tmp_path / "next"), strict=True):
        new.replace(old)
    assert within(lambda: shown() == certificate[0].read_text(), 30)
    with RestClient(guarded[0], tls_ca=certificate[0]) as client:
        assert client.is_up()


def test_certificate_when_half_replaced_then_the_old_pair_stays(
    certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    given: list[str] = []

    class Context(ssl.SSLContext):
        def load_cert_chain(self, *args: Any, **kwargs: Any) -> None:
            super().load_cert_chain(*args, **kwargs)
            given.append(certificate[0].read_text())

    context = Context(ssl.PROTOCOL_TLS_SERVER)
    followed = RestCertificate(*certificate)
    new = pair(tmp_path / "next")
    followed.look(context)
    new[0].replace(certificate[0])
    followed.look(context)
    certificate[1].rename(tmp_path / "away")
    followed.look(context)
    assert given == []
    new[1].replace(certificate[1])
    followed.look(context)
    followed.look(context)
    assert given == [certificate[0].read_text()]


def test_certificate_when_missing_or_no_pair_then_refused(
    certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    other = pair(tmp_path / "other")
    for files in ((certificate[0], tmp_path / "none"), (certificate[0], other[1])):
        with pytest.raises(InvalidArgumentError, match="TROUPE_ROUTER_TLS_KEY"):
            RestCertificate(*files)


def test_client_when_https_is_spoken_to_a_plain_port_then_says_so() -> None:
    def refuse(connection: socket.socket) -> None:
        with connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        ThreadPoolExecutor(1) as pool,
        RestClient(f"https://127.0.0.1:{server.getsockname()[1]}") as client,
    ):
        answered = pool.submit(lambda: refuse(server.accept()[0]))
        with pytest.raises(UnavailableError, match="may not speak https"):
            client.jobs()
        answered.result(30)


def test_router_when_a_variable_is_misspelt_then_names_the_right_one(
    tmp_path: Path, redis_url: str
) -> None:
    done = run_router(environment(tmp_path, REDIS_URL=redis_url, API_KEY="keys.yaml"))
    assert (done.returncode, "TROUPE_ROUTER_API_KEYS?" in done.stderr) == (3, True), done.stderr
    links = {"TROUPE_ROUTER_SERVICE_HOST": "10.0.0.1", "TROUPE_ROUTER_PORT_8480_TCP": "tcp://x"}
    done = run_router(environment(tmp_path, REDIS_URL=redis_url, GRPC_ADDRESS="nowhere") | links)
    assert "grpc_address" in done.stderr


def test_router_will_not_open_a_public_address_without_keys(tmp_path: Path, redis_url: str) -> None:
    done = run_router(environment(tmp_path, REST_ADDRESS="0.0.0.0:0", REDIS_URL=redis_url))
    assert (done.returncode, "TROUPE_ROUTER_API_KEYS" in done.stderr) == (3, True), done.stderr
    assert "Traceback" not in done.stderr
