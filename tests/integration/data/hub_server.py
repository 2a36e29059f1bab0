"""A Hugging Face hub on loopback that holds one data set: the calls that a download makes, no more.

Records every path asked for, so that a test can say what was and was not fetched.
"""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

SHA = "0123456789abcdef0123456789abcdef01234567"


class HubServer(ThreadingHTTPServer):
    """``files`` maps a path in the repository to its bytes."""

    daemon_threads = True

    def __init__(self, repo_id: str, files: Mapping[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repo_id = repo_id
        self.files = files
        self.asked: list[str] = []
        self.revisions = {"main", "v1", SHA}

    @property
    def url(self) -> str:
        """What HF_ENDPOINT is set to."""
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def serving(repo_id: str, files: Mapping[str, bytes]) -> Iterator[HubServer]:
    """A hub that answers until the end of the ``with``."""
    server = HubServer(repo_id, files)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def _answer(self, *, has_body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(f"{self.command} {path}")
        repo = self.server.repo_id
        api, resolve = f"/api/datasets/{repo}/revision/", f"/datasets/{repo}/resolve/"
        if path.startswith(api) and path.removeprefix(api) in self.server.revisions:
            siblings = [{"rfilename": name} for name in self.server.files]
            info = {"id": repo, "sha": SHA, "siblings": siblings, "tags": [], "private": False}
            self._send(200, json.dumps(info).encode(), {"Content-Type": "application/json"})
            return
        if path == f"/api/datasets/{repo}/tree/{SHA}":
            self._send(200, self._tree(), {"Content-Type": "application/json"})
            return
        _, _, name = path.removeprefix(resolve).partition("/")
        if path.startswith(resolve) and name in self.server.files:
            content = self.server.files[name]
            headers = {"ETag": f'"{_etag(content)}"', "X-Repo-Commit": SHA}
            self._send(200, content, headers, has_body=has_body)
            return
        code = "RevisionNotFound" if path.startswith(api) else "EntryNotFound"
        self._send(404, b"", {"X-Error-Code": code, "X-Error-Message": "not here"})

    def _tree(self) -> bytes:
        entries = [
            {"type": "file", "path": name, "size": len(content), "oid": _etag(content)}
            for name, content in self.server.files.items()
        ]
        return json.dumps(entries).encode()

    def _send(
        self, status: int, content: bytes, headers: Mapping[str, str], *, has_body: bool = True
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if has_body:
            self.wfile.write(content)


def _etag(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()
