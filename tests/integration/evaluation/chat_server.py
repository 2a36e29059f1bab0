"""A small OpenAI-compatible server over real HTTP that finds its way by a rule."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class ChatServer:
    """``failures``: statuses given to the next completions, before it answers."""

    model: str = "rule"
    key: str = ""
    failures: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    finish_reason: str = "stop"
    url: str = ""

    def answer(self, messages: list[dict[str, str]]) -> str:
        """The first open direction, in the words that the prompt's last one asks for."""
        words = messages[-1]["content"].split()
        keyword = {"tool": "simulate", "planner": "plan"}[words[-1]]
        return f"{keyword} {words[words.index('open') + 1]}"


@contextmanager
def serving(server: ChatServer) -> Iterator[ChatServer]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            if self._admitted():
                self._send(200, {"data": [{"id": server.model}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not self._admitted():
                return
            server.bodies.append(body)
            if server.failures:
                status, headers = server.failures.pop(0)
                self._send(status, {"error": {"message": "not now"}}, headers)
                return
            if body["model"] != server.model:
                self._send(404, {"error": {"message": f"no {body['model']}"}})
                return
            text = server.answer(body["messages"])
            message = {"role": "assistant", "content": text}
            choice = {"message": message, "finish_reason": server.finish_reason}
            usage = {"prompt_tokens": 30, "completion_tokens": len(text.split())}
            self._send(200, {"choices": [choice] * body["n"], "usage": usage})

        def _admitted(self) -> bool:
            if server.key and self.headers.get("Authorization") != f"Bearer {server.key}":
                self._send(401, {"error": {"message": "who are you"}})
                return False
            return True

        def _send(self, status: int, document: Any, headers: dict[str, str] | None = None) -> None:
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            with suppress(ConnectionError):  # the caller gave up: another of its calls was refused
                self.end_headers()
                self.wfile.write(data)

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    server.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
