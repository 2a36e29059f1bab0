"""A copy of the launcher's objects, kept current by list and watch and listed anew periodically.

Owns the copy and the watches. Readers never wait for the API server, and a lost event costs at
most ``resync_s``. Never writes to the cluster.
"""

import asyncio
import time
from collections.abc import Sequence

from troupe.errors import TroupeError, UnavailableError
from troupe.retry import Backoff
from troupe.runtime.telemetry.logging import get_logger
from troupe_router.cluster.api import ClusterApi, Kind, Object, TooOldError

_log = get_logger(__name__)
_BACKOFF = Backoff(0.1, 10.0, (0.5, 1.0))


class Informer:
    """The API server's objects of ``kinds`` that match a label selector."""

    def __init__(
        self,
        api: ClusterApi,
        kinds: Sequence[Kind],
        *,
        labels: str,
        resync_s: float = 300.0,
        stale_s: float = 60.0,
    ) -> None:
        self._api = api
        self._labels = labels
        self._resync_s = resync_s
        self._stale_s = stale_s
        self._objects: dict[Kind, dict[str, Object]] = {kind: {} for kind in kinds}
        self._synced = {kind: asyncio.Event() for kind in kinds}
        self._heard_at = dict.fromkeys(kinds, 0.0)
        self._tasks: list[asyncio.Task[None]] = []
        self._last_error = ""

    async def start(self, *, timeout_s: float) -> None:
        """Fill the copy on the first call; raises UnavailableError without an API server."""
        if not self._tasks:
            names = {kind: f"mirror:{kind.plural}" for kind in self._objects}
            self._tasks = [
                asyncio.create_task(self._follow(k), name=name) for k, name in names.items()
            ]
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*(event.wait() for event in self._synced.values()))
        except TimeoutError as error:
            raise UnavailableError(
                f"the cluster's objects could not be read within {timeout_s:g} s: "
                f"{self._last_error or 'the API server did not answer'}"
            ) from error

    async def close(self) -> None:
        """End the watches."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def check_fresh(self) -> None:
        """Raise UnavailableError when a watch has been silent for too long to trust the copy."""
        oldest = min(self._heard_at.values())
        if time.monotonic() - oldest > self._stale_s:
            raise UnavailableError(
                f"the copy of the cluster's objects is older than {self._stale_s:g} s: "
                f"{self._last_error or 'the API server is silent'}"
            )

    def all(self, kind: Kind, **labels: str) -> list[Object]:
        """Objects whose labels have these values (pass keys as ``**{key: value}``)."""
        return [o for o in self._objects[kind].values() if _matches(o, labels)]

    def find(self, kind: Kind, name: str) -> Object | None:
        """The object, or None."""
        return self._objects[kind].get(name)

    def put(self, kind: Kind, body: Object) -> None:
        """Store what a write returned, so that readers see it before the watch reports it."""
        known = self._objects[kind].get(body["metadata"]["name"])
        if known is None or _version(body) >= _version(known):
            self._objects[kind][body["metadata"]["name"]] = body

    def drop(self, kind: Kind, name: str) -> None:
        """Forget an object that was deleted and is gone."""
        self._objects[kind].pop(name, None)

    async def _follow(self, kind: Kind) -> None:
        num_failures = 0
        while True:
            try:
                await self._list_and_watch(kind)
                num_failures = 0
            except TooOldError:
                _log.info("mirror.too_old", kind=kind.name)
            except TroupeError as error:
                self._last_error = error.message
                _log.warning("mirror.away", kind=kind.name, error=error.message)
                num_failures += 1
                await asyncio.sleep(_BACKOFF.pause_s(num_failures))

    async def _list_and_watch(self, kind: Kind) -> None:
        """One list, then watches from there until it is time to list again."""
        items, since = await self._api.list(kind, labels=self._labels)
        self._objects[kind] = {item["metadata"]["name"]: item for item in items}
        self._heard_at[kind] = time.monotonic()
        self._synced[kind].set()
        until = time.monotonic() + self._resync_s
        while (left_s := until - time.monotonic()) > 0:
            watching_s = min(left_s, self._stale_s / 2)
            events = self._api.watch(kind, labels=self._labels, since=since, timeout_s=watching_s)
            async for event, body in events:
                since = body["metadata"]["resourceVersion"]
                self._heard_at[kind] = time.monotonic()
                self._apply(kind, event, body)
            self._heard_at[kind] = time.monotonic()

    def _apply(self, kind: Kind, event: str, body: Object) -> None:
        if event == "DELETED":
            self._objects[kind].pop(body["metadata"]["name"], None)
        elif event in ("ADDED", "MODIFIED"):
            self._objects[kind][body["metadata"]["name"]] = body


def _matches(body: Object, labels: dict[str, str]) -> bool:
    object_labels: dict[str, str] = body["metadata"].get("labels", {})
    return all(object_labels.get(key) == value for key, value in labels.items())


def _version(body: Object) -> int:
    """Officially opaque, but a number on every server that stores its objects in etcd."""
    version = body["metadata"].get("resourceVersion", "0")
    return int(version) if version.isdecimal() else 0
