"""The container health probe against a real HTTP server."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from troupe.cli.probe import probe


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/readyz" else 503)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


def test_probe_when_ready_then_finds_no_fault(server: str) -> None:
    assert probe(f"{server}/readyz") is None


def test_probe_when_not_ready_then_says_so(server: str) -> None:
    assert "503" in (probe(f"{server}/livez") or "")


def test_probe_when_nobody_listens_then_says_so(free_port) -> None:
    assert probe(f"http://127.0.0.1:{free_port()}/readyz") is not None


def test_probe_when_the_url_is_a_file_then_refuses() -> None:
    assert probe("file:///etc/passwd") == "file:///etc/passwd is not an http URL"
