"""Numbered notes of rank 0 to the other ranks, by the store they met at.

A note stays until every other rank has read it and asks for the next: ranks may be several notes
behind, since not each of rank 0's instructions waits for all of them.
"""

from datetime import timedelta
from typing import Any

import torch.distributed as dist

LISTEN_S = 10.0
"""A reader looks so often whether rank 0 is still there."""
_ALIVE = "alive"
_CALLED = "called"
_FAILED = "failed"


class Notes:
    """One rank's view of the notes: rank 0 writes, and each of the others reads all in order."""

    def __init__(self, store: Any, num_readers: int) -> None:
        self._store = store
        self._num_readers = num_readers
        self._number = 0

    def call(self) -> None:
        """Rank 0: let readers see that it begins to join."""
        self._store.set(_CALLED, b"1")

    def await_call(self) -> None:
        """A reader: wait until rank 0 has a job and begins to join, while the store lives.

        Raises torch's own error when the store is gone, as torchrun's is with its agent.
        """
        while not self._has_come(_CALLED):
            self._store.add("looked", 1)

    def begin(self) -> None:
        """Rank 0: let readers see that it is there."""
        self._store.set(_ALIVE, b"1")

    def write(self, note: bytes) -> None:
        """Rank 0: the next note."""
        self._store.set(f"told/{self._number}", note)
        self._number += 1

    def read(self) -> bytes:
        """A reader: wait for the next note while rank 0 lives.

        Raises:
            ConnectionError: rank 0 is gone.
        """
        key = f"told/{self._number}"
        try:
            self._forget_last()
            while not self._has_come(key):
                self._store.get(_ALIVE)
            note: bytes = self._store.get(key)
        except (dist.DistError, RuntimeError) as error:
            raise ConnectionError(f"rank 0 is gone: {error}") from error
        self._number += 1
        return note

    def fail(self, rank: int, reason: str) -> None:
        """A reader: let rank 0 see why this rank alone can't go on."""
        self._store.set(f"{_FAILED}/{rank}", reason.encode())

    def failure(self, num_ranks: int) -> str | None:
        """Rank 0: what a reader could not go on with. From any thread, and it waits for nobody."""
        for rank in range(1, num_ranks):
            if self._store.check([key := f"{_FAILED}/{rank}"]):
                reason: bytes = self._store.get(key)
                return reason.decode()
        return None

    def _forget_last(self) -> None:
        """Count this rank as a reader of the note before: the last one deletes it.

        Only when the next is asked for, since after the very last note rank 0 and its store end.
        """
        if not (last := self._number):
            return
        if self._store.add(f"read/{last - 1}", 1) == self._num_readers:
            self._store.delete_key(f"told/{last - 1}")
            self._store.delete_key(f"read/{last - 1}")

    def _has_come(self, key: str) -> bool:
        try:
            self._store.wait([key], timedelta(seconds=LISTEN_S))
        except dist.DistStoreError:
            return False
        return True
