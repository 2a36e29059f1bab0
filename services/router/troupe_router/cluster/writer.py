"""The launcher's writes: retried on conflict, with refusals turned into named conditions.

Owns creating, replacing and deleting one object so that a second call does no harm. Never decides
what should be there.
"""

from collections.abc import Generator
from contextlib import contextmanager

from troupe.errors import ConflictError, NotFoundError
from troupe.retry import Backoff, retry
from troupe.runtime.telemetry.logging import get_logger
from troupe_router.cluster.api import ClusterApi, Kind, Object, RefusedError, StaleError
from troupe_router.cluster.informer import Informer
from troupe_router.cluster.pod_status import classify, with_advice

_log = get_logger(__name__)
_TRIES, _BACKOFF = 5, Backoff(0.01, 0.1)


class Blocked(Exception):  # noqa: N818 (a state of the workload, not a failure of the code)
    """A workload cannot proceed; carries the reason for its status."""

    def __init__(self, condition: str, detail: str, *, is_final: bool = False) -> None:
        super().__init__(detail)
        self.condition, self.detail, self.is_final = condition, detail, is_final


class Writer:
    """Writes to the cluster and updates the mirror at once."""

    def __init__(self, api: ClusterApi, mirror: Informer) -> None:
        self._api = api
        self._mirror = mirror

    async def create(self, kind: Kind, body: Object) -> Object:
        """Create; an existing object of this name is taken as the intended one."""
        with _refusals():
            try:
                created = await self._api.create(kind, body)
                _log.info("launcher.created", kind=kind.name, name=body["metadata"]["name"])
            except ConflictError:
                created = await self._api.get(kind, body["metadata"]["name"])
        self._mirror.put(kind, created)
        return created

    async def replace(self, kind: Kind, wanted: Object) -> Object:
        """Replace the current version: another writer's change is read first."""
        name = wanted["metadata"]["name"]

        async def once() -> Object:
            current = await self._api.get(kind, name)
            version = current["metadata"]["resourceVersion"]
            metadata = {**wanted["metadata"], "resourceVersion": version}
            return await self._api.replace(kind, {**wanted, "metadata": metadata})

        with _refusals():
            try:
                replaced = await retry(once, _BACKOFF, max_attempts=_TRIES, may_pass=_is_stale)
            except StaleError as error:
                why = f"{kind.name} {name} keeps being changed by another process"
                raise Blocked("Contended", why) from error
        self._mirror.put(kind, replaced)
        _log.info("launcher.replaced", kind=kind.name, name=name)
        return replaced

    async def delete(self, kind: Kind, existing: Object, *, grace_s: float | None = None) -> None:
        """Delete exactly this object and everything that it owns."""
        metadata = existing["metadata"]
        uid, name = metadata["uid"], metadata["name"]
        if await self._api.delete(kind, name, uid=uid, grace_s=grace_s):
            _log.info("launcher.deleted", kind=kind.name, name=name)


def _is_stale(error: Exception) -> bool:
    return isinstance(error, StaleError)


@contextmanager
def _refusals() -> Generator[None]:
    """Turn a refusal of the API server into a named condition."""
    try:
        yield
    except RefusedError as error:
        is_final = error.status == 422
        name = "InvalidObject" if is_final else classify(error.message, "Forbidden")
        raise Blocked(name, with_advice(name, error.message), is_final=is_final) from error
    except NotFoundError as error:
        raise Blocked("NamespaceMissing", error.message) from error
