"""Sends weights by a store: the trainer writes a file and manifest once, every replica reads them.

Owns the keys. The manifest is written last: where it exists, the file is complete.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from google.protobuf import json_format

from troupe.api.rollout.v1 import rollout_pb2 as pb
from troupe.clients.rollout import WeightsReceipt
from troupe.errors import TroupeError
from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.weights.store import WeightStore
from troupe_trainer.checkpoint.export import Export
from troupe_trainer.publish.transport import Send, Target

_log = get_logger(__name__)
_STORED = re.compile(r"v(\d+)-[0-9a-f]+\.safetensors(?:\.manifest\.json)?")


class StoredTransport:
    """One upload for all replicas; good where they share a volume, or are many."""

    name = "store"
    takes_live = False

    def __init__(self, store: WeightStore, job_id: str) -> None:
        self._store = store
        self._job_id = job_id
        self._stored_keys: set[str] = set()

    @asynccontextmanager
    async def session(
        self, export: Export, targets: Sequence[Target], *, timeout_s: float
    ) -> AsyncGenerator[Send]:
        key = self._key(export)
        if key not in self._stored_keys:
            await asyncio.to_thread(self._put, export, key)
            self._stored_keys.add(key)

        async def send(target: Target) -> WeightsReceipt:
            source = pb.StoredWeights(key=key)
            return await target.client.send_weights(export.manifest, source, timeout_s)

        yield send

    async def begin(self, targets: Sequence[Target]) -> None:
        """Every replica takes files."""

    async def forget(self, export: Export) -> None:
        """Delete it, and older versions, which a predecessor of this trainer left behind.

        What can't be deleted is left behind and named in the log.
        """
        key = self._key(export)
        self._stored_keys.discard(key)
        try:
            await asyncio.to_thread(self._delete, key)
        except TroupeError as error:
            _log.warning("publisher.forget_failed", key=key, error=error.message)

    async def close(self) -> None:
        """Nothing is kept."""

    def _delete(self, key: str) -> None:
        kept = {entry for held in self._stored_keys for entry in _entries(held)}
        stored = self._store.keys(key.rpartition("/")[0])
        newest = _version(key)
        older = [e for e in stored if e not in kept and 0 <= _version(e) <= newest]
        for entry in dict.fromkeys([*_entries(key), *older]):
            self._store.delete(entry)

    def _put(self, export: Export, key: str) -> None:
        self._store.put(export.file, key)
        manifest = json_format.MessageToJson(export.manifest, indent=None)
        self._store.put_bytes(manifest.encode(), _entries(key)[0])

    def _key(self, export: Export) -> str:
        manifest = export.manifest
        name = f"v{manifest.policy_version:05d}-{manifest.tensor_digest[:12]}.safetensors"
        return f"{self._job_id}/{manifest.policy}/{name}"


def _version(key: str) -> int:
    """Of a weights file or its manifest; -1 for what others put there."""
    name = _STORED.fullmatch(key.rpartition("/")[2])
    return int(name[1]) if name else -1


def _entries(key: str) -> tuple[str, str]:
    """The manifest, which goes first, and the file."""
    return f"{key}.manifest.json", key
