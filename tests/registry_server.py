"""Registries on loopback: Docker's own where its program is installed, and a small one with tokens.

The small one asks for a bearer token, as public registries do, and serves blobs from another
address. Source: OCI distribution spec 1.1 and Docker's token authentication.
"""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx

USER, PASSWORD = "ci", "s3cret-" + "p" * 20
_TOKEN = "token-" + "k" * 20


@dataclass
class TokenRegistry:
    """The small registry's state; ``storage`` is its second address."""

    host: str = ""
    storage: str = ""
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    is_broken: bool = False
    token_answer: bytes = json.dumps({"token": _TOKEN}).encode()


@contextmanager
def token_registry() -> Generator[TokenRegistry]:
    """A registry that serves until the end."""
    registry = TokenRegistry()
    handler = type("Handler", (_Handler,), {"registry": registry})
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), handler) for _ in range(2)]
    registry.host, registry.storage = (f"127.0.0.1:{s.server_address[1]}" for s in servers)
    threads = [threading.Thread(target=s.serve_forever, args=(0.05,)) for s in servers]
    for thread in threads:
        thread.start()
    try:
        yield registry
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join()


@contextmanager
def docker_registry(folder: Path, port: int) -> Generator[str]:
    """Docker's registry with a password; its host. None of its files outlive ``folder``."""
    program = shutil.which("docker-registry")
    assert program is not None
    config = f"""
version: 0.1
storage: {{filesystem: {{rootdirectory: {folder / "blobs"}}}}}
http: {{addr: 127.0.0.1:{port}, secret: test}}
log: {{level: error}}
"""
    (folder / "config.yml").write_text(config)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, "serve", str(folder / "config.yml")], stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + 30
        while not _answers(port):
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, "the registry does not answer"
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/v2/", timeout=1).status_code in (200, 401)
    except httpx.TransportError:
        return False


class _Handler(BaseHTTPRequestHandler):
    registry: TokenRegistry
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        state, path = self.registry, urlsplit(self.path).path
        host = self.headers["host"]
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if path == "/token":
            self._token()
        elif host == state.storage:
            if "authorization" in self.headers:
                state.violations.append(f"storage got a login: {self.path}")
            self._send(200, state.blobs[path.removeprefix("/blobs/")])
        elif self.headers.get("authorization") != f"Bearer {_TOKEN}":
            realm = f'realm="http://{host}/token",service="registry",scope="repository:team"'
            self._send(401, headers={"www-authenticate": f"Bearer {realm}"})
        elif state.is_broken and self.command == "PUT" and "/manifests/" in path:
            self._send(503)
        else:
            self._serve(path, body)

    do_HEAD = do_POST = do_PUT = do_GET

    def _token(self) -> None:
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        query = parse_qs(urlsplit(self.path).query)
        if query != {"service": ["registry"], "scope": ["repository:team"]}:
            self.registry.violations.append(f"token asked with {query}")
        is_right = self.headers.get("authorization") == f"Basic {login}"
        self._send(200 if is_right else 401, self.registry.token_answer)

    def _serve(self, path: str, body: bytes) -> None:
        state = self.registry
        match = re.fullmatch(r"/v2/team/pair/(blobs|manifests)/(.+)", path)
        if match is None:
            state.violations.append(f"{self.command} {self.path}")
            self._send(404)
            return
        kind, name = match.groups()
        if kind == "blobs" and self.command == "POST" and name == "uploads/":
            self._send(202, headers={"location": "/v2/team/pair/blobs/uploads/1?state=x"})
        elif kind == "blobs" and self.command == "PUT":
            digest = parse_qs(urlsplit(self.path).query)["digest"][0]
            if f"sha256:{hashlib.sha256(body).hexdigest()}" != digest:
                state.violations.append(f"blob {digest} came with other bytes")
            state.counts["blob"] += 1
            state.blobs[digest] = body
            self._send(201)
        elif kind == "blobs":
            if name not in state.blobs:
                self._send(404)
            elif self.command == "HEAD":
                self._send(200)
            else:
                self._send(307, headers={"location": f"http://{state.storage}/blobs/{name}"})
        elif self.command == "PUT":
            layers = json.loads(body)["layers"]
            if missing := [x["digest"] for x in layers if x["digest"] not in state.blobs]:
                state.violations.append(f"manifest before its blobs: {missing}")
            digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
            state.manifests |= {name: body, digest: body}
            self._send(201)
        else:
            self._send(200 if name in state.manifests else 404, state.manifests.get(name, b""))

    def _send(
        self, status: int, content: bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
