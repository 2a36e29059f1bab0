"""Incoming weights: received in order or fetched from the store, checked, removed after use.

Owns the staging folder. A file is there only while its upload is being received and staged;
a broken, slow or oversized one leaves nothing behind.
"""

import asyncio
import shutil
import tempfile
import uuid
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from google.protobuf import json_format

from troupe.api.records.v1.records_pb2 import WeightsManifest
from troupe.api.rollout.v1.rollout_pb2 import BroadcastWeights, UpdateWeightsRequest
from troupe.errors import (
    DeadlineError,
    InvalidArgumentError,
    OverloadedError,
    UnavailableError,
    WeightsRejectedError,
)
from troupe.runtime.weights import check_declared, verify_file, verify_layout
from troupe.runtime.weights.store import WeightStore, wait_for
from troupe_rollout.held_folder import HeldFolder

MAX_CHUNK_BYTES = 16 * 1024 * 1024
_PREFIX = "troupe-staging-"

Requests = AsyncIterator[UpdateWeightsRequest]

Admit = Callable[[str, int], None]
"""Raises for an upload that must not begin, by its policy and its trainer's epoch."""


@dataclass(frozen=True, slots=True)
class Upload:
    """Weights to stage: a local file, or a broadcast that is about to begin."""

    manifest: WeightsManifest
    path: Path | None
    broadcast: BroadcastWeights | None = None
    epoch: int = 0


class StagingArea:
    """Receives at most ``max_uploads`` files at once, each of at most ``max_bytes``."""

    def __init__(
        self,
        parent: str,
        *,
        max_bytes: int,
        max_uploads: int,
        chunk_timeout_s: float,
        store: Callable[[], WeightStore] | None = None,
    ) -> None:
        self._parent = Path(parent or tempfile.gettempdir())
        self._max_bytes = max_bytes
        self._max_uploads = max_uploads
        self._chunk_timeout_s = chunk_timeout_s
        self._store = store
        self._num_uploads = 0
        self._folder: HeldFolder | None = None

    def open(self) -> None:
        """Make the folder, and remove the leftovers of killed lives of this service."""
        try:
            self._folder = HeldFolder(self._parent, _PREFIX)
        except OSError as error:
            raise InvalidArgumentError(
                f"The staging folder {self._parent} can't be written ({error}). Set "
                "TROUPE_ROLLOUT_STAGING_DIR to a folder that can."
            ) from error

    def close(self) -> None:
        """Remove the folder."""
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    @asynccontextmanager
    async def receive(self, requests: Requests, admit: Admit) -> AsyncGenerator[Upload]:
        """An upload that ``admit`` accepts; its file is deleted when the block ends.

        An adapter's whole file is verified. Full weights are not read here: the engine that stages
        them computes each tensor's digest over what it then holds.

        Raises:
            InvalidArgumentError: the stream does not begin with a manifest.
            OverloadedError: too many uploads at once.
            DeadlineError: the sender went silent.
            WeightsRejectedError: the content does not match the manifest.
        """
        if self._folder is None:
            raise UnavailableError("The rollout service is not up yet; send the weights again.")
        if self._num_uploads >= self._max_uploads:
            raise OverloadedError(
                f"{self._num_uploads} uploads are being received, which is the limit "
                "(TROUPE_ROLLOUT_MAX_UPLOADS). Send the weights again later."
            )
        self._num_uploads += 1
        folder = self._folder.path / uuid.uuid4().hex
        try:
            yield await self._take(requests, folder, admit)
        finally:
            self._num_uploads -= 1
            shutil.rmtree(folder, ignore_errors=True)

    async def _take(self, requests: Requests, folder: Path, admit: Admit) -> Upload:
        manifest, epoch = await self._manifest(requests)
        admit(manifest.policy, epoch)
        first = await self._next(requests, "byte 0")
        if first is not None and first.WhichOneof("part") == "broadcast":
            return Upload(manifest, None, first.broadcast, epoch)
        path = folder / "weights.safetensors"
        try:
            # A cleaner of temporary folders may have removed a long job's parent folder.
            await asyncio.to_thread(folder.mkdir, parents=True)
            self._check_room(manifest)
            if first is not None and first.WhichOneof("part") == "stored":
                await self._fetch(first.stored.key, manifest, path)
            else:
                await self._write(first, requests, manifest, path)
            verify = verify_file if manifest.kind == "lora" else verify_layout
            await asyncio.to_thread(verify, path, manifest)
        except OSError as error:
            raise UnavailableError(
                f"New weights can't be written to {self._parent} ({error}). Free space there, or "
                "set TROUPE_ROLLOUT_STAGING_DIR; the old version serves on."
            ) from error
        return Upload(manifest, path, epoch=epoch)

    async def _manifest(self, requests: Requests) -> tuple[WeightsManifest, int]:
        first = await self._next(requests, "the manifest")
        if first is None or first.WhichOneof("part") != "manifest":
            raise InvalidArgumentError("The first message of UpdateWeights must be the manifest.")
        check_declared(first.manifest, max_bytes=self._max_bytes)
        return first.manifest, first.epoch

    def _check_room(self, manifest: WeightsManifest) -> None:
        free = shutil.disk_usage(self._parent).free
        if manifest.size_bytes > free:
            raise UnavailableError(
                f"{manifest.size_bytes} bytes of weights do not fit the {free} free bytes of "
                f"{self._parent}. Free space there, or set TROUPE_ROLLOUT_STAGING_DIR."
            )

    async def _write(
        self,
        first: UpdateWeightsRequest | None,
        requests: Requests,
        manifest: WeightsManifest,
        path: Path,
    ) -> None:
        with _created(path) as file:
            written, request = 0, first
            while request is not None:
                _check(request, manifest, written)
                written += await asyncio.to_thread(file.write, request.chunk.data)
                request = await self._next(requests, f"byte {written}")

    async def _fetch(self, key: str, manifest: WeightsManifest, path: Path) -> None:
        """Fetch the file and its manifest from the store; the two manifests must agree."""
        if self._store is None:
            raise InvalidArgumentError(
                "The weights are in a store and this replica has none. Set "
                "TROUPE_ROLLOUT_WEIGHTS_URL to the store of TROUPE_TRAINER_WEIGHTS_URL."
            )
        store = await asyncio.to_thread(self._store)
        beside = await asyncio.to_thread(
            wait_for, store, f"{key}.manifest.json", self._chunk_timeout_s
        )
        try:
            stored = json_format.Parse(beside, WeightsManifest())
        except json_format.ParseError as error:
            raise WeightsRejectedError(
                f"The manifest beside {key} can't be read: {error}"
            ) from error
        if stored != manifest:
            raise WeightsRejectedError(
                f"The store has other weights at {key} (version {stored.policy_version}, tensor "
                f"digest {stored.tensor_digest[:16]}) than the {manifest.tensor_digest[:16]} that "
                "were announced. Publish them again."
            )
        await asyncio.to_thread(store.fetch, key, path)

    async def _next(self, requests: Requests, what: str) -> UpdateWeightsRequest | None:
        try:
            async with asyncio.timeout(self._chunk_timeout_s):
                return await anext(requests, None)
        except TimeoutError as error:
            raise DeadlineError(
                f"Nothing arrived for {self._chunk_timeout_s:g} s while waiting for {what} of the "
                "weights. Send them again."
            ) from error


def _check(request: UpdateWeightsRequest, manifest: WeightsManifest, written: int) -> None:
    where = f"Weights of policy '{manifest.policy}' version {manifest.policy_version}"
    if request.WhichOneof("part") != "chunk":
        raise InvalidArgumentError(f"{where}: after the manifest only chunks may follow.")
    chunk = request.chunk
    if chunk.offset_bytes != written:
        raise WeightsRejectedError(
            f"{where}: a chunk at byte {chunk.offset_bytes} arrived where byte {written} was next. "
            "Send them again, in order."
        )
    if not 0 < len(chunk.data) <= MAX_CHUNK_BYTES:
        raise WeightsRejectedError(
            f"{where}: the chunk at byte {written} has {len(chunk.data)} bytes; 1 to "
            f"{MAX_CHUNK_BYTES} are allowed."
        )
    if written + len(chunk.data) > manifest.size_bytes:
        raise WeightsRejectedError(
            f"{where}: more than the announced {manifest.size_bytes} bytes arrived. Send again."
        )
    if chunk.crc32 and zlib.crc32(chunk.data) != chunk.crc32:
        raise WeightsRejectedError(
            f"{where}: the CRC-32 of the chunk at byte {written} is wrong. Send them again."
        )


def _created(path: Path) -> BinaryIO:
    """Open synchronously: a file opened on a thread would leak when an upload is cancelled."""
    return path.open("wb")
