"""Elects one leader among the routers of a release: a Lease object that its holder renews.

Each router measures time itself: one that has seen the lease unchanged for its whole duration may
take it, so clocks need not agree. Owns the Lease. Never decides what a leader does.
"""

import time
from datetime import UTC, datetime

from troupe.errors import ConflictError, NotFoundError
from troupe_router.cluster.api import LEASE, ClusterApi, Object


class Leader:
    """The right of ``holder`` to act for all; call ``lead`` more often than ``duration_s``."""

    def __init__(
        self, api: ClusterApi, name: str, holder: str, *, duration_s: float = 15.0
    ) -> None:
        self._api = api
        self._name = name
        self._holder = holder
        self._duration_s = duration_s
        self._seen: tuple[str, float] = ("", 0.0)

    async def lead(self) -> bool:
        """Take or renew the lease; False while somebody else has it."""
        try:
            lease = await self._api.get(LEASE, self._name)
        except NotFoundError:
            return await self._create()
        version = lease["metadata"]["resourceVersion"]
        if self._seen[0] != version:
            self._seen = (version, time.monotonic())
        spec: Object = lease.get("spec", {})
        holder = spec.get("holderIdentity") or ""
        is_fresh = time.monotonic() - self._seen[1] < self._duration_s
        if holder not in ("", self._holder) and is_fresh:
            return False
        return await self._take(lease, changes=holder != self._holder)

    async def release(self) -> None:
        """Give the lease back if it is held."""
        try:
            lease = await self._api.get(LEASE, self._name)
            if lease.get("spec", {}).get("holderIdentity") == self._holder:
                spec = {**lease["spec"], "holderIdentity": ""}
                await self._api.replace(LEASE, {**lease, "spec": spec})
        except (NotFoundError, ConflictError):
            return

    async def _create(self) -> bool:
        spec = {**self._spec(), "acquireTime": _now(), "leaseTransitions": 0}
        try:
            await self._api.create(LEASE, {"metadata": {"name": self._name}, "spec": spec})
        except ConflictError:
            return False
        return True

    async def _take(self, lease: Object, *, changes: bool) -> bool:
        spec = {**lease.get("spec", {}), **self._spec()}
        if changes:
            spec["acquireTime"] = _now()
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
        try:
            lease = await self._api.replace(LEASE, {**lease, "spec": spec})
        except (ConflictError, NotFoundError):
            return False
        self._seen = (lease["metadata"]["resourceVersion"], time.monotonic())
        return True

    def _spec(self) -> Object:
        return {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": max(1, round(self._duration_s)),
            "renewTime": _now(),
        }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
