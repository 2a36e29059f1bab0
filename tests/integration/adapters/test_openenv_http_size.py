"""How much an OpenEnv server may answer over HTTP, asked of a real one."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from troupe.errors import UnavailableError
from troupe_tasks.adapters.openenv_client import MAX_MESSAGE_BYTES, HttpSession


def answer(num_chars: int) -> bytes:
    shown = {"observation": {"screen": "A" * num_chars}, "reward": 0, "done": False}
    return json.dumps(shown).encode()


@contextmanager
def answering(body: bytes, encoding: str | None) -> Iterator[str]:
    """The address of a server that says ``body`` whatever it is asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.do_GET()

        def do_GET(self) -> None:
            self.send_response(200)
            if encoding is not None:
                self.send_header("content-encoding", encoding)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            try:
                self.wfile.write(body)
            except ConnectionError:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(timeout=10)


@pytest.mark.parametrize(
    ("body", "encoding", "why"),
    [
        (answer(MAX_MESSAGE_BYTES), None, "more than 16777216 bytes"),
        (gzip.compress(answer(100)), "gzip", "in a compressed form"),
    ],
    ids=["large", "compressed"],
)
def test_http_when_the_answer_may_be_of_any_size_then_is_not_taken(
    body: bytes, encoding: str | None, why: str
) -> None:
    with answering(body, encoding) as url:
        session = HttpSession.opener(url, 10.0, 1)()
        try:
            with pytest.raises(UnavailableError, match=why):
                session.reset({"seed": 1})
        finally:
            session.close()


def test_http_when_the_answer_is_just_within_the_bound_then_is_read() -> None:
    num_chars = MAX_MESSAGE_BYTES - len(answer(0))
    with answering(answer(num_chars), None) as url:
        session = HttpSession.opener(url, 10.0, 1)()
        try:
            assert len(session.reset({"seed": 1}).observation["screen"]) == num_chars
        finally:
            session.close()
