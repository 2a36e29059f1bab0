"""Finds the bundle of a job for an env service: the uploaded one, or the copy with the run."""

import asyncio

from troupe.errors import NotFoundError
from troupe_router.jobs.bundles import BundleStore, kept_archive
from troupe_router.jobs.store import JobStore


class JobBundles:
    """Bundles of unfinished jobs, and of uploads."""

    def __init__(self, bundles: BundleStore, store: JobStore) -> None:
        self._bundles = bundles
        self._store = store

    async def archive(self, digest: str) -> bytes:
        """The archive; raises NotFoundError."""
        try:
            return await asyncio.to_thread(self._bundles.archive, digest)
        except NotFoundError:
            for record in await self._store.unfinished():
                bundle = record.spec.bundle
                if bundle is None or bundle.digest != digest:
                    continue
                kept = await asyncio.to_thread(kept_archive, record.run_dir, digest)
                if kept is not None:
                    return kept
            raise
