"""A hub on loopback, as far as its own client asks it to publish and to fetch a model.

Strict: a request that the hub does not know, or with other fields than the client sends, is an
error that ``violations`` keeps. Speaks the upload by Git LFS, not by Xet.
Source: https://huggingface.co/docs/hub/api and the LFS batch API of git-lfs.
"""

import base64
import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

TOKEN = "hf_" + "t" * 34
_LFS = (".safetensors", ".png")
_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass
class HubRepo:
    """A repository: one tree for each commit."""

    is_private: bool
    commits: list[tuple[str, dict[str, bytes]]] = field(default_factory=list)

    @property
    def files(self) -> dict[str, bytes]:
        """The newest tree."""
        return self.commits[-1][1] if self.commits else {}


@dataclass
class Hub:
    """The hub's state; ``failures`` are answers that replace the next ones of an operation."""

    url: str = ""
    repos: dict[str, HubRepo] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    failures: dict[str, int] = field(default_factory=dict)

    def tree(self, repo: str, revision: str) -> tuple[str, dict[str, bytes]]:
        commits = self.repos[repo].commits
        if revision == "main":
            return commits[-1] if commits else ("0" * 40, {})
        return next(c for c in commits if c[0] == revision)


class HubError(Exception):
    def __init__(self, status: int, message: str, code: str = "", url: str = "") -> None:
        super().__init__(message)
        self.status, self.code = status, code
        self.document = {"error": message} | ({"url": url} if url else {})


@contextmanager
def running_hub() -> Generator[Hub]:
    """A hub that serves until the end."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    do_HEAD = do_POST = do_PUT = do_GET

    def _serve(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        if self.headers.get("transfer-encoding") == "chunked":
            body = self._chunked()
        parts = urlsplit(self.path)
        try:
            answer = self._answer(unquote(parts.path), parse_qs(parts.query), body)
        except HubError as error:
            headers = {"X-Error-Code": error.code, "X-Error-Message": str(error)}
            self._send(error.status, json.dumps(error.document).encode(), headers)
        except (AssertionError, KeyError, ValueError, StopIteration) as error:
            words = f"{self.command} {self.path}: {error!r}"
            self.hub.violations.append(words)
            self._send(418, json.dumps({"error": words}).encode(), {})
        else:
            content, headers = answer
            self._send(200, content, headers)

    def _chunked(self) -> bytes:
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _answer(
        self, path: str, query: dict[str, list[str]], body: bytes
    ) -> tuple[bytes, dict[str, str]]:
        if path.startswith("/lfs/"):
            return self._lfs(path, body), {}
        if (self.command, path) == ("POST", "/api/validate-yaml"):
            return _json(self._validate(json.loads(body))), {}
        self._authorize()
        if (self.command, path) == ("POST", "/api/repos/create"):
            return _json(self._create(json.loads(body))), {}
        if match := re.fullmatch(r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", path):
            return _json(self._batch(match[1], json.loads(body))), {}
        if match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            return self._resolve(*match.groups())
        match = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(\w+)/([^/]+))?(?:/(.+))?", path)
        assert match, "no such address"
        repo, what, revision = match[1], match[2] or "", match[3] or "main"
        self._known(repo)
        if self.command == "POST" and what == "preupload":
            return _json(self._preupload(repo, json.loads(body))), {}
        if self.command == "POST" and what == "commit":
            assert revision == "main"
            return _json(self._commit(repo, body)), {}
        assert self.command == "GET"
        assert what in ("", "revision", "tree")
        commit, files = self.hub.tree(repo, revision)
        if match[4]:
            assert what == "tree"
            raise HubError(404, "Entry not found", "EntryNotFound")  # no team has such folders
        if what == "tree":
            assert query.get("recursive") == ["True"] or query.get("recursive") == ["true"]
            return _json([_entry(name, data) for name, data in files.items()]), {}
        state = self.hub.repos[repo]
        siblings = [{"rfilename": name} for name in files]
        document = {"id": repo, "modelId": repo, "sha": commit, "private": state.is_private}
        return _json(document | {"siblings": siblings, "tags": [], "downloads": 0}), {}

    def _authorize(self) -> None:
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            raise HubError(401, "Invalid username or password.")

    def _known(self, repo: str) -> None:
        if repo not in self.hub.repos:
            raise HubError(404, "Repository not found", "RepoNotFound")

    def _fail(self, operation: str) -> None:
        self.hub.counts[operation] += 1
        if self.hub.failures.get(operation, 0) > 0:
            self.hub.failures[operation] -= 1
            raise HubError(400, f"{operation} is out of order")

    def _create(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert set(asked) <= {"name", "organization", "visibility", "private", "type"}, asked
        repo = f"{asked['organization']}/{asked['name']}"
        assert _ID.fullmatch(repo)
        if repo in self.hub.repos:
            raise HubError(409, "You already created this model repo", url=f"{self.hub.url}/{repo}")
        visibility = asked.get("visibility") or ("private" if asked.get("private") else "public")
        self.hub.repos[repo] = HubRepo(visibility == "private")
        return {"url": f"{self.hub.url}/{repo}", "name": repo, "id": "0"}

    def _validate(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What the hub's own check refuses, as far as a team's card could break it."""
        assert asked["repoType"] == "model"
        _, front, _ = asked["content"].split("---\n", 2)
        metadata = yaml.safe_load(front)
        bases = metadata.get("base_model", [])
        for hub_id in [
            *([bases] if isinstance(bases, str) else bases),
            *metadata.get("datasets", []),
        ]:
            assert _ID.fullmatch(hub_id), hub_id
        assert metadata["library_name"] in ("peft", "transformers")
        assert all(isinstance(tag, str) for tag in metadata["tags"])
        assert metadata.get("license", "apache-2.0") in ("apache-2.0", "mit", "other")
        relation = metadata.get("base_model_relation", "adapter")
        assert relation in ("adapter", "finetune", "merge", "quantized")
        return {"errors": [], "warnings": []}

    def _preupload(self, repo: str, asked: dict[str, Any]) -> dict[str, Any]:
        known = self.hub.repos[repo].files
        answers = []
        for file in asked["files"]:
            assert set(file) <= {"path", "sample", "size"}, file
            base64.b64decode(file["sample"], validate=True)
            mode = "lfs" if file["path"].endswith(_LFS) else "regular"
            answer = {"path": file["path"], "uploadMode": mode, "shouldIgnore": False}
            if file["path"] in known:
                answer["oid"] = _oid(file["path"], known[file["path"]])
            answers.append(answer)
        return {"files": answers}

    def _batch(self, repo: str, asked: dict[str, Any]) -> dict[str, Any]:
        self._known(repo)
        assert asked["operation"] == "upload"
        assert asked["hash_algo"] == "sha256"
        assert "basic" in asked["transfers"]
        objects = []
        for item in asked["objects"]:
            assert re.fullmatch("[0-9a-f]{64}", item["oid"])
            answer: dict[str, Any] = {"oid": item["oid"], "size": item["size"]}
            if item["oid"] not in self.hub.blobs:
                href = f"{self.hub.url}/lfs/{item['oid']}/{item['size']}"
                answer["actions"] = {"upload": {"href": href}}
            objects.append(answer)
        return {"transfer": "basic", "objects": objects}

    def _lfs(self, path: str, body: bytes) -> bytes:
        assert self.command == "PUT"
        assert "authorization" not in self.headers, "storage gets no token"
        self._fail("upload")
        _, _, oid, size = path.split("/")
        assert hashlib.sha256(body).hexdigest() == oid
        assert len(body) == int(size)
        self.hub.blobs[oid] = body
        return b""

    def _commit(self, repo: str, body: bytes) -> dict[str, Any]:
        self._fail("commit")
        assert self.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(line) for line in body.splitlines()]
        assert lines[0]["key"] == "header"
        assert lines[0]["value"]["summary"]
        tree = dict(self.hub.repos[repo].files)
        for line in lines[1:]:
            value = line["value"]
            path = value["path"]
            assert ".." not in path.split("/")
            if line["key"] == "file":
                assert value["encoding"] == "base64"
                tree[path] = base64.b64decode(value["content"], validate=True)
            elif line["key"] == "lfsFile":
                assert value["algo"] == "sha256"
                tree[path] = self.hub.blobs[value["oid"]]
            else:
                assert line["key"] == "deletedFile"
                del tree[path]
        commit = hashlib.sha1(body, usedforsecurity=False).hexdigest()
        self.hub.repos[repo].commits.append((commit, tree))
        url = f"{self.hub.url}/{repo}/commit/{commit}"
        return {"success": True, "commitOid": commit, "commitUrl": url, "hookOutput": ""}

    def _resolve(self, repo: str, revision: str, name: str) -> tuple[bytes, dict[str, str]]:
        self._known(repo)
        commit, files = self.hub.tree(repo, revision)
        headers = {"X-Repo-Commit": commit}
        if name not in files:
            raise HubError(404, "Entry not found", "EntryNotFound")
        data = files[name]
        headers["ETag"] = f'"{_oid(name, data)}"'
        if name.endswith(_LFS):
            headers |= {"X-Linked-ETag": headers["ETag"], "X-Linked-Size": str(len(data))}
        return data, headers | {"content-type": "application/octet-stream"}


def _json(document: Any) -> bytes:
    return json.dumps(document).encode()


def _oid(name: str, data: bytes) -> str:
    if name.endswith(_LFS):
        return hashlib.sha256(data).hexdigest()
    head = f"blob {len(data)}\0".encode()
    return hashlib.sha1(head + data, usedforsecurity=False).hexdigest()


def _entry(name: str, data: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "type": "file",
        "path": name,
        "size": len(data),
        "oid": _oid(name, data)[:40],
    }
    if name.endswith(_LFS):
        entry["lfs"] = {"oid": _oid(name, data), "size": len(data), "pointerSize": 130}
    return entry
