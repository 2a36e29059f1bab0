"""docker-compose.tls.yml: the same system over mutual TLS, up to the end of a tiny job."""

from pathlib import Path

import pytest
from compose_engine import DONE, SERVICES, Engine, await_job, submit
from platform_world import tiny_spec

DIAL = """
import socket, ssl, sys
made = ssl.create_default_context(cafile="/etc/troupe/tls/ca.crt")
made.set_alpn_protocols(["h2"])
if sys.argv[1] == "known":
    made.load_cert_chain("/etc/troupe/tls/tls.crt", "/etc/troupe/tls/tls.key")
plain = socket.create_connection(("router", 8481), 10)
with made.wrap_socket(plain, server_hostname="router.troupe.internal") as secured:
    secured.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n")
    secured.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    print("answered" if secured.recv(9) else "closed")
"""
"""Begins HTTP/2 with the router's gRPC port, with this container's certificate or without."""


def test_services_when_up_with_tls_then_all_are_healthy(engine_with_tls: Engine) -> None:
    for service in SERVICES:
        assert engine_with_tls.health(service) == "healthy/0", service


@pytest.mark.parametrize(("who", "is_let_in"), [("known", True), ("unknown", False)])
def test_router_when_dialled_then_lets_in_only_who_has_a_certificate(
    engine_with_tls: Engine, who: str, is_let_in: bool
) -> None:
    argv = ["exec", "-T", "env", "python", "-c", DIAL, who]
    said = engine_with_tls.compose(*argv, check=False)
    assert (said.stdout.strip() == "answered") is is_let_in, said.stdout + said.stderr
    if not is_let_in:
        assert "closed" in said.stdout or "ssl.SSL" in said.stderr, said.stderr


def test_job_when_submitted_with_tls_then_reaches_its_end(engine_with_tls: Engine) -> None:
    spec = {
        **tiny_spec(Path("models/plan_path_6x6")),
        "name": "over-tls",
        "steps": 2,
        "task": {"name": "plan_path", "params": {"size": 6, "max_actions": 4}},
        "limits": {"startup_timeout_s": 1200},
    }
    job_id = submit(engine_with_tls, spec)
    job = await_job(engine_with_tls, job_id, lambda found: found["state"] in DONE)
    assert (job["state"], job["step"]) == ("succeeded", 2), job["reason"]
