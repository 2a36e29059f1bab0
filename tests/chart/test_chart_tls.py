"""Each pod holds the certificate of its own role; Redis speaks only TLS and asks for a password."""

import base64
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from chart_world import EVERYTHING, VALUES, Manifests, Object, Render
from redis import AuthenticationError, ConnectionError, Redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from troupe.runtime.tls import TlsFiles
from troupe.runtime.tls.certificates import Authority

ROLES = ("router", "rollout", "env", "trainer", "redis")


def _secret_data(manifests: Manifests, name: str) -> dict[str, bytes]:
    data = manifests.one("Secret", name)["data"]
    return {key: base64.b64decode(value) for key, value in data.items()}


@pytest.mark.parametrize("values", [*VALUES, EVERYTHING], ids=lambda path: path.stem)
def test_pods_when_tls_is_on_then_each_holds_its_own_roles_certificate_alone(
    render: Render, values: Path
) -> None:
    seen = set()
    roles = {*ROLES, "play"} if values == EVERYTHING else set(ROLES)
    for name, labels, spec in render([values]).pods():
        role = labels["app.kubernetes.io/component"]
        mounted = [
            v["secret"]["secretName"]
            for v in spec.get("volumes", [])
            if "tls" in v.get("secret", {}).get("secretName", "")
        ]
        if role not in roles:
            assert mounted == [], name
            continue
        assert mounted == [f"t-troupe-tls-{role}"], name
        seen.add(role)
        [container] = spec["containers"]
        assert {"name": "tls", "mountPath": "/etc/troupe/tls", "readOnly": True} in container[
            "volumeMounts"
        ]
        if role != "redis":
            variables = {v["name"]: v.get("value") for v in container["env"]}
            files = {"CA": "ca.crt", "CERT": "tls.crt", "KEY": "tls.key"}
            for short, file in files.items():
                assert variables[f"TROUPE_TLS_{short}"] == f"/etc/troupe/tls/{file}"
            url = next((u for n, u in variables.items() if n.endswith("REDIS_URL")), None)
            assert url is None or url.startswith("rediss://:$(REDIS_PASSWORD)@t-troupe-redis:6379")
    assert seen == roles


def test_certificates_when_generated_then_fit_and_name_their_role(
    render: Render, tmp_path: Path
) -> None:
    x509 = pytest.importorskip("cryptography.x509", reason="cryptography is not installed")
    manifests = render()
    for role in ROLES:
        folder = tmp_path / role
        folder.mkdir()
        for file, content in _secret_data(manifests, f"t-troupe-tls-{role}").items():
            (folder / file).write_bytes(content)
        files = TlsFiles(folder / "ca.crt", folder / "tls.crt", folder / "tls.key")
        certificate = x509.load_pem_x509_certificate(files.identity().cert)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        hosts = names.get_values_for_type(x509.DNSName)
        assert hosts[0] == f"{role}.troupe.internal"
        if role == "redis":
            assert "t-troupe-redis" in hosts
        else:
            assert len(hosts) == 1
        authority = x509.load_pem_x509_certificate(files.identity().ca)
        certificate.verify_directly_issued_by(authority)


def test_authority_when_generated_then_no_pod_mounts_its_key(render: Render) -> None:
    manifests = render()
    assert "tls.key" in _secret_data(manifests, "t-troupe-tls-authority")
    for _, _, spec in manifests.pods():
        assert "tls-authority" not in str(spec)
    for role in ROLES:
        assert set(_secret_data(manifests, f"t-troupe-tls-{role}")) == {
            *("ca.crt", "tls.crt", "tls.key")
        }


def test_tls_when_off_then_nothing_of_it_is_left_but_the_password(render: Render) -> None:
    manifests = render([], "tls.enabled=false")
    assert [o["metadata"]["name"] for o in manifests.of("Secret")] == ["t-troupe-redis-password"]
    text = str([*manifests.pods()])
    assert "TROUPE_TLS_" not in text and "rediss://" not in text and "--tls" not in text


def test_redis_when_no_password_is_wanted_then_none_is_made(render: Render) -> None:
    manifests = render([], "redis.generatePassword=false", "tls.enabled=false")
    assert manifests.of("Secret") == []
    assert "REDIS_PASSWORD" not in str([*manifests.pods()])
    assert "redis://t-troupe-redis:6379/0" in str([*manifests.pods()])


def test_tls_when_by_cert_manager_then_a_certificate_of_each_role_is_asked_for(
    render: Render,
) -> None:
    manifests = render([], 'tls.source="certManager"', 'tls.issuerRef.name="ours"')
    wanted = {o["spec"]["secretName"]: o["spec"] for o in manifests.of("Certificate")}
    assert set(wanted) == {f"t-troupe-tls-{role}" for role in ROLES}
    for role in ROLES:
        spec = wanted[f"t-troupe-tls-{role}"]
        assert spec["dnsNames"][0] == f"{role}.troupe.internal"
        assert set(spec["usages"]) >= {"server auth", "client auth"}
        assert spec["issuerRef"]["name"] == "ours"
    assert [o["metadata"]["name"] for o in manifests.of("Secret")] == ["t-troupe-redis-password"]


def test_tls_when_of_existing_secrets_then_they_are_mounted(render: Render) -> None:
    names = ",".join(f'"{role}":"my-tls-{role}"' for role in ROLES)
    manifests = render([], f'tls={{"source":"existing","secrets":{{{names}}}}}')
    assert manifests.of("Certificate") == []
    for _, labels, spec in manifests.pods():
        role = labels["app.kubernetes.io/component"]
        if role in ROLES:
            assert {"secretName": f"my-tls-{role}", "defaultMode": 0o440} in [
                v.get("secret") for v in spec["volumes"]
            ]


def _redis_with_tls() -> tuple[str, str]:
    """Server and client from PATH; skips where there are none that know TLS."""
    for names in (("valkey-server", "valkey-cli"), ("redis-server", "redis-cli")):
        server, client = map(shutil.which, names)
        if server and client:
            linked = subprocess.run(["ldd", server], capture_output=True, text=True, check=False)
            if "libssl" in linked.stdout:
                return server, client
    pytest.skip(
        "no valkey-server or redis-server with TLS on PATH (the pip-installed one has none)"
    )


@contextmanager
def _running(container: Object, folder: Path, port: int) -> "Iterator[subprocess.Popen[bytes]]":
    """The container's own command line, with this machine's paths and a port of its own."""
    (folder / "bin").mkdir()
    for name, program in zip(("valkey-server", "valkey-cli"), _redis_with_tls(), strict=True):
        (folder / "bin" / name).symlink_to(program)

    places = {"/etc/troupe/tls": "tls", "/tmp": "t", "/data": "data"}

    def here(text: str) -> str:
        text = re.sub("|".join(places), lambda m: str(folder / places[m[0]]), text)
        return text.replace("6379", str(port))

    for name in ("t", "data"):
        (folder / name).mkdir()
    process = subprocess.Popen(
        [here(text) for text in [*container["command"], *container["args"]]],
        env={"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "REDISCLI_AUTH": "right"},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=30)


def test_redis_when_run_by_the_charts_line_then_speaks_tls_and_takes_new_certificates(
    render: Render, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    _redis_with_tls()
    manifests = render([], "redis.certificateCheckSeconds=1")
    pod = manifests.one("StatefulSet", "t-troupe-redis")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    old, new = Authority.create("old"), Authority.create("new")
    old.issue(["redis"], tmp_path / "tls", hosts=["127.0.0.1"])
    old.issue(["router"], tmp_path / "before")
    port = free_port()

    def client(who: str, password: str | None = "right", **more: Any) -> Redis:
        folder = tmp_path / who
        files = {"ssl_certfile": str(folder / "tls.crt"), "ssl_keyfile": str(folder / "tls.key")}
        return Redis(
            port=port,
            host="127.0.0.1",
            password=password,
            ssl=True,
            ssl_ca_certs=str(folder / "ca.crt"),
            **(files | more),
        )

    with _running(container, tmp_path, port) as process:
        with client("before", retry=Retry(ConstantBackoff(0.1), 600)) as known:
            assert known.ping()
            assert known.config_get("appendonly") == {"appendonly": "yes"}
        # The shell has become the server, so that the kubelet's SIGTERM reaches it.
        assert b"-server" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert b"right" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        with client("before", password=None) as stranger, pytest.raises(AuthenticationError):
            stranger.ping()
        with (
            client("before", ssl_certfile=None, ssl_keyfile=None) as nobody,
            pytest.raises(ConnectionError),
        ):
            nobody.ping()

        new.issue(["redis"], tmp_path / "tls", hosts=["127.0.0.1"])
        new.issue(["router"], tmp_path / "after")
        deadline = time.monotonic() + 60
        while True:
            try:
                with client("after") as later:
                    assert later.ping()
                break
            except ConnectionError:
                assert time.monotonic() < deadline, "the new certificate was never taken"
                time.sleep(0.1)
        with client("before") as late, pytest.raises(ConnectionError):
            late.ping()
