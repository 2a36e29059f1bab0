"""A Kubernetes API server in this process, for what the launcher asks of one.

Real HTTP, real JSON, and the rules that clients trip over: resourceVersions that grow, 409 for a
name that is taken and for a stale write, 410 for a watch from too long ago, graceful deletion of
pods, label and field selectors, watches with bookmarks. `make test-k8s` runs the same tests against
the real server, which keeps this one honest. It has no controllers: see kube_world.
"""

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from aiohttp import web

Object = dict[str, Any]
Key = tuple[str, str, str]
"""Group path, namespace and plural."""

KINDS = {
    "configmaps": "ConfigMap",
    "pods": "Pod",
    "events": "Event",
    "jobs": "Job",
    "statefulsets": "StatefulSet",
    "leases": "Lease",
    "resourcequotas": "ResourceQuota",
    "secrets": "Secret",
}


class Refuse(Exception):
    """An answer that is a Status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


class FakeCluster:
    """``url`` answers while the context is open; hooks let a test be the trouble."""

    def __init__(self) -> None:
        self.url = ""
        self.is_away = False
        """Answer everything with 503."""
        self.before: Callable[[str, str, Object], None] = lambda method, plural, body: None
        """Called with method, plural and body before a write; may raise Refuse."""
        self.requests: list[str] = []
        self._objects: dict[Key, dict[str, Object]] = {}
        self._events: list[tuple[int, Key, str, Object]] = []
        self._forgotten = 0
        self._version = 100
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> "FakeCluster":
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def forget_history(self) -> None:
        """Compaction: a watch from before now is too old."""
        self._forgotten = self._version
        self._events.clear()

    async def drop_watches(self) -> None:
        """Cut every open watch, as a load balancer does."""
        self._cut = time.monotonic()
        async with self._changed:
            self._changed.notify_all()

    _cut = 0.0

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.path}")
        try:
            if self.is_away:
                raise Refuse(503, "ServiceUnavailable", "the server is shutting down")
            return await self._route(request)
        except Refuse as error:
            status = {
                "kind": "Status",
                "status": "Failure",
                "code": error.code,
                "reason": error.reason,
                "message": str(error),
            }
            return web.json_response(status, status=error.code)

    async def _route(self, request: web.Request) -> web.StreamResponse:
        group, _, rest = request.path.strip("/").partition("/namespaces/")
        namespace, plural, name, part, *_ = [*rest.split("/"), "", "", ""]
        if plural not in KINDS:
            raise Refuse(404, "NotFound", f"the server could not find {request.path}")
        key = (group, namespace, plural)
        if request.method == "GET" and not name:
            if request.query.get("watch"):
                return await self._watch(request, key)
            return web.json_response(self._list(request, key))
        if request.method == "GET":
            return web.json_response(self._get(key, name))
        body: Object = json.loads(await request.text() or "{}")
        self.before(request.method, plural, body)
        if request.method == "POST":
            found = self._create(key, body)
        elif request.method == "PUT":
            found = self._replace(key, name, body)
        elif request.method == "PATCH":
            found = self._patch(key, name, body, is_status=part == "status")
        else:
            found = self._delete(key, name, body)
        async with self._changed:
            self._changed.notify_all()
        return web.json_response(found, status=201 if request.method == "POST" else 200)

    def _get(self, key: Key, name: str) -> Object:
        found = self._objects.get(key, {}).get(name)
        if found is None:
            raise Refuse(404, "NotFound", f'{key[2]} "{name}" not found')
        return found

    def _list(self, request: web.Request, key: Key) -> Object:
        found = [
            {k: v for k, v in o.items() if k not in ("kind", "apiVersion")}
            for o in self._objects.get(key, {}).values()
            if _selected(o, request)
        ]
        return {"metadata": {"resourceVersion": str(self._version)}, "items": found}

    def _create(self, key: Key, body: Object) -> Object:
        if body.get("kind") != KINDS[key[2]] or not body.get("apiVersion"):
            raise Refuse(400, "BadRequest", "Object 'Kind' is missing or another than the path's")
        name = body["metadata"].get("name", "")
        if not name:
            name = body["metadata"]["generateName"] + uuid.uuid4().hex[:5]
        if name in self._objects.get(key, {}):
            raise Refuse(409, "AlreadyExists", f'{key[2]} "{name}" already exists')
        if not all(c.isalnum() or c in "-." for c in name) or name != name.lower():
            raise Refuse(422, "Invalid", f'{KINDS[key[2]]} "{name}" is invalid: metadata.name')
        metadata = {
            **body["metadata"],
            "name": name,
            "namespace": key[1],
            "uid": str(uuid.uuid4()),
            "creationTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "generation": 1,
        }
        return self._store(key, {**body, "metadata": metadata}, "ADDED")

    def _replace(self, key: Key, name: str, body: Object) -> Object:
        known = self._get(key, name)
        version = body["metadata"].get("resourceVersion")
        if version and version != known["metadata"]["resourceVersion"]:
            raise Refuse(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {key[2]} "{name}": the object has been '
                "modified; please apply your changes to the latest version and try again",
            )
        if key[2] == "jobs" and known["spec"]["template"] != body["spec"]["template"]:
            raise Refuse(422, "Invalid", "spec.template: field is immutable")
        kept = {
            k: known["metadata"][k] for k in ("uid", "namespace", "creationTimestamp", "generation")
        }
        metadata = {**body["metadata"], **kept}
        changed = {**body, "metadata": metadata, "status": known.get("status", {})}
        return self._store(key, changed, "MODIFIED")

    def _patch(self, key: Key, name: str, body: Object, *, is_status: bool) -> Object:
        known = self._get(key, name)
        if is_status:
            body = {"status": body.get("status", {})}
        return self._store(key, _merge(known, body), "MODIFIED")

    def _delete(self, key: Key, name: str, options: Object) -> Object:
        known = self._get(key, name)
        uid = options.get("preconditions", {}).get("uid")
        if uid and uid != known["metadata"]["uid"]:
            raise Refuse(409, "Conflict", "the UID in the precondition does not match")
        if key[2] == "pods" and options.get("gracePeriodSeconds") != 0:
            # A pod goes when its kubelet has ended it.
            if known["metadata"].get("deletionTimestamp"):
                return known
            mark = {"metadata": {"deletionTimestamp": "now"}}
            return self._store(key, _merge(known, mark), "MODIFIED")
        del self._objects[key][name]
        return self._store(key, known, "DELETED")

    def _store(self, key: Key, found: Object, event: str) -> Object:
        self._version += 1
        found = {**found, "metadata": {**found["metadata"], "resourceVersion": str(self._version)}}
        if event != "DELETED":
            self._objects.setdefault(key, {})[found["metadata"]["name"]] = found
        self._events.append((self._version, key, event, found))
        return found

    async def _watch(self, request: web.Request, key: Key) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        if since < self._forgotten:
            raise Refuse(410, "Expired", f"too old resource version: {since}")
        opened = time.monotonic()
        until = opened + float(request.query["timeoutSeconds"])
        response = web.StreamResponse()
        await response.prepare(request)
        while (left_s := until - time.monotonic()) > 0 and self._cut < opened and not self.is_away:
            for event, found in list(self._news(key, since)):
                since = int(found["metadata"]["resourceVersion"])
                if _selected(found, request):
                    await response.write(_line(event, found))
            async with self._changed:
                if self._version == since or not list(self._news(key, since)):
                    try:
                        async with asyncio.timeout(min(left_s, 0.5)):
                            await self._changed.wait()
                    except TimeoutError:
                        mark = {"metadata": {"resourceVersion": str(since)}}
                        await response.write(_line("BOOKMARK", mark))
        return response

    def _news(self, key: Key, since: int) -> Iterator[tuple[str, Object]]:
        for version, of, event, found in self._events:
            if version > since and of == key:
                yield event, found


def _line(event: str, found: Object) -> bytes:
    return json.dumps({"type": event, "object": found}).encode() + b"\n"


def _merge(known: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(known) if isinstance(known, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged


def _selected(found: Object, request: web.Request) -> bool:
    labels = found["metadata"].get("labels", {})
    for term in filter(None, request.query.get("labelSelector", "").split(",")):
        key, _, value = term.partition("=")
        if labels.get(key) != value:
            return False
    for term in filter(None, request.query.get("fieldSelector", "").split(",")):
        path, _, value = term.partition("=")
        place: Any = found
        for step in path.split("."):
            place = place.get(step, {}) if isinstance(place, dict) else {}
        if place != value:
            return False
    return True
