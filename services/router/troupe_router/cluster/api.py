"""Client of one namespace of a Kubernetes API server: plain JSON objects and named errors.

Owns the connection, the deadlines and the mapping of HTTP statuses to errors. Never decides
anything and never retries; its callers do.
"""

import json
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from kubernetes.aio import client

from troupe.errors import ConflictError, NotFoundError, TroupeError, UnavailableError

Object = dict[str, Any]
_MERGE_PATCH = "application/merge-patch+json"
_LONGEST_S = 30.0


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of namespaced object and where the API serves it."""

    name: str
    group: str
    plural: str

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` field of an object."""
        return self.group.removeprefix("apis/").removeprefix("api/")


CONFIG_MAP = Kind("ConfigMap", "api/v1", "configmaps")
POD = Kind("Pod", "api/v1", "pods")
EVENT = Kind("Event", "api/v1", "events")
JOB = Kind("Job", "apis/batch/v1", "jobs")
STATEFUL_SET = Kind("StatefulSet", "apis/apps/v1", "statefulsets")
LEASE = Kind("Lease", "apis/coordination.k8s.io/v1", "leases")


class StaleError(ConflictError):
    """The object changed since it was read: read it and try again."""

    reason = "STALE"


class TooOldError(TroupeError):
    """The API server no longer has the changes since that version: list again."""

    reason = "RESOURCE_VERSION_TOO_OLD"


class RefusedError(TroupeError):
    """The API server refused the request; the message is the server's."""

    reason = "REFUSED_BY_CLUSTER"

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_quota(self) -> bool:
        """Whether a ResourceQuota refused it."""
        return self.status == 403 and "exceeded quota" in self.message


class ClusterApi:
    """The objects of ``namespace``. Close it."""

    def __init__(
        self, configuration: client.Configuration, namespace: str, *, timeout_s: float = 10.0
    ) -> None:
        self.namespace = namespace
        self._client = client.ApiClient(configuration)
        self._timeout_s = timeout_s

    async def close(self) -> None:
        """Close connections."""
        await self._client.close()

    async def get(self, kind: Kind, name: str) -> Object:
        """The object; raises NotFoundError."""
        return await self._call("GET", self._path(kind, name))

    async def list(
        self, kind: Kind, *, labels: str = "", fields: str = ""
    ) -> tuple[list[Object], str]:
        """The objects that match the selectors, and the resourceVersion to watch from."""
        query = {"labelSelector": labels, "fieldSelector": fields}
        answer = await self._call("GET", self._path(kind), query=query)
        # A list names its items' kind once, for all of them.
        objects = [self._typed(kind, item) for item in answer.get("items") or []]
        return objects, answer["metadata"]["resourceVersion"]

    async def create(self, kind: Kind, body: Mapping[str, Any]) -> Object:
        """Create; raises ConflictError when the name is taken."""
        return await self._call("POST", self._path(kind), body=self._typed(kind, body))

    async def replace(self, kind: Kind, body: Mapping[str, Any]) -> Object:
        """Replace the object of this name and resourceVersion; raises StaleError."""
        path = self._path(kind, body["metadata"]["name"])
        return await self._call("PUT", path, body=self._typed(kind, body))

    async def patch(
        self, kind: Kind, name: str, body: Mapping[str, Any], *, part: str = ""
    ) -> Object:
        """Merge ``body`` into the object (or its ``part``, such as status)."""
        path = self._path(kind, name) + (f"/{part}" if part else "")
        return await self._call("PATCH", path, body=body, content=_MERGE_PATCH)

    async def delete(
        self, kind: Kind, name: str, *, uid: str = "", grace_s: float | None = None
    ) -> bool:
        """Delete the object and what it owns; False when it is not there (with this uid)."""
        options: Object = {"propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_s is not None:
            options["gracePeriodSeconds"] = int(grace_s)
        try:
            await self._call("DELETE", self._path(kind, name), body=options)
        except (NotFoundError, ConflictError):
            return False
        return True

    async def watch(
        self, kind: Kind, *, labels: str, since: str, timeout_s: float
    ) -> AsyncIterator[tuple[str, Object]]:
        """("ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK", object) until ``timeout_s``.

        Raises TooOldError when ``since`` is too long ago.
        """
        query = {
            "labelSelector": labels,
            "watch": "true",
            "resourceVersion": since,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, round(timeout_s))),
        }
        answer = await self._send(
            "GET", self._path(kind), query=query, timeout_s=timeout_s + _LONGEST_S
        )
        with _connection_errors(f"watch of {kind.plural}"):
            try:
                await _raise_for(answer, f"watch {kind.plural}")
                async for line in answer.content:
                    event: Object = json.loads(line)
                    if event["type"] == "ERROR":
                        _raise(event["object"].get("code", 500), event["object"], "watch")
                    yield event["type"], event["object"]
            finally:
                answer.close()

    @staticmethod
    def _typed(kind: Kind, body: Mapping[str, Any]) -> Object:
        return {**body, "apiVersion": kind.api_version, "kind": kind.name}

    def _path(self, kind: Kind, name: str = "") -> str:
        path = f"/{kind.group}/namespaces/{self.namespace}/{kind.plural}"
        return f"{path}/{name}" if name else path

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content: str = "application/json",
    ) -> Object:
        what = f"{method} {path}"
        answer = await self._send(method, path, query=query, body=body, content=content)
        with _connection_errors(what):
            try:
                await _raise_for(answer, what)
                return await answer.json(content_type=None)
            finally:
                answer.close()

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content: str = "application/json",
        timeout_s: float | None = None,
    ) -> aiohttp.ClientResponse:
        parameters = [(k, v) for k, v in (query or {}).items() if v]
        request = await self._client.param_serialize(
            method,
            path,
            query_params=parameters,
            header_params={"Accept": "application/json", "Content-Type": content},
            body=body,
            auth_settings=["BearerToken"],
        )
        with _connection_errors(f"{method} {path}"):
            deadline = timeout_s or self._timeout_s
            answer = await self._client.call_api(*request, _request_timeout=deadline)
        return answer.response


@contextmanager
def _connection_errors(what: str) -> Generator[None]:
    """Turn a broken connection into UnavailableError."""
    try:
        yield
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise UnavailableError(
            f"the Kubernetes API server did not answer {what} "
            f"({type(error).__name__}: {error}); it is asked again"
        ) from error


async def _raise_for(answer: aiohttp.ClientResponse, what: str) -> None:
    if answer.status < 400:
        return
    text = await answer.text()
    try:
        status: Object = json.loads(text)
    except ValueError:
        status = {"message": text[:500]}
    _raise(answer.status, status, what)


def _raise(code: int, status: Object, what: str) -> None:
    message = f"{status.get('message') or status.get('reason') or code} ({what})"
    if code == 404:
        raise NotFoundError(message)
    if code == 410:
        raise TooOldError(message)
    if code == 409:
        taken = status.get("reason") == "AlreadyExists"
        raise (ConflictError if taken else StaleError)(message)
    if code == 429 or code >= 500:
        raise UnavailableError(f"the Kubernetes API server answered {code}: {message}")
    raise RefusedError(message, code)
