"""Where an OpenEnv session connects when its server answers with another address."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from troupe.errors import UnavailableError
from troupe_tasks.adapters.openenv_client import HttpSession, SocketSession


@contextmanager
def serving(host: str, redirects_to: str | None = None) -> Iterator[tuple[str, list[str]]]:
    """host:port of a server, and the paths that it is asked for."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # websockets reads no answer of 1.0

        def do_GET(self) -> None:
            seen.append(self.path)
            self.send_response(302 if redirects_to else 403)
            self.send_header("connection", "close")
            if redirects_to:
                self.send_header("location", redirects_to)
            self.send_header("content-length", "0")
            self.end_headers()

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer((host, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"{host}:{server.server_address[1]}", seen
        finally:
            server.shutdown()
            thread.join(timeout=10)


def test_session_when_its_server_redirects_to_another_then_that_one_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("websockets")
    monkeypatch.setenv("TROUPE_OPENENV_HOSTS", "127.0.0.1")
    with (
        serving("127.0.0.2") as (inner, asked_inside),
        serving("127.0.0.1", f"ws://{inner}/latest") as (outer, asked),
    ):
        with pytest.raises(UnavailableError, match="cannot be reached"):
            SocketSession.opener(f"http://{outer}", 10.0, 1)()
        session = HttpSession.opener(f"http://{outer}", 10.0, 1)()
        try:
            with pytest.raises(UnavailableError, match="no JSON"):
                session.reset({"seed": 1})
        finally:
            session.close()
    assert asked == ["/ws", "/reset"]
    assert asked_inside == []
