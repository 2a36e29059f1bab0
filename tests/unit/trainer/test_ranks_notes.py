"""Notes of rank 0, by a store of this process."""

from typing import Any

import pytest
import torch.distributed as dist

from troupe_trainer.model.ranks import notes
from troupe_trainer.model.ranks.notes import Notes


def test_notes_when_one_reader_is_many_behind_then_it_reads_each_and_all_but_the_last_go() -> None:
    store = dist.HashStore()
    writer, quick, slow = (Notes(store, 2) for _ in range(3))
    writer.begin()
    empty = store.num_keys()
    sent = [f"note {number}".encode() for number in range(5)]
    for note in sent:
        writer.write(note)
    assert [quick.read() for _ in sent] == sent
    assert [slow.read() for _ in sent] == sent
    assert store.num_keys() == empty + 1  # the last, after which nobody asked for another


def test_notes_when_rank_0_never_came_then_the_reader_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notes, "LISTEN_S", 0.05)
    store = dist.HashStore()
    store.set_timeout(notes.timedelta(seconds=0.05))
    with pytest.raises(ConnectionError, match="rank 0 is gone"):
        Notes(store, 1).read()


class _Store:
    """A store in which rank 0 calls at a reader's third look, or which is gone by then."""

    def __init__(self, *, is_gone: bool) -> None:
        self._store = dist.HashStore()
        self._is_gone = is_gone
        self.looks = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def add(self, key: str, number: int) -> int:
        self.looks += 1
        if self.looks == 3:
            if self._is_gone:
                raise dist.DistNetworkError("connection reset")
            Notes(self._store, 1).call()
        return self._store.add(key, number)


@pytest.mark.parametrize("is_gone", [False, True])
def test_reader_when_rank_0_has_no_job_yet_then_waits_while_the_store_lives(
    monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    monkeypatch.setattr(notes, "LISTEN_S", 0.02)
    store = _Store(is_gone=is_gone)
    reader = Notes(store, 1)
    if is_gone:
        with pytest.raises(dist.DistNetworkError):
            reader.await_call()
    else:
        reader.await_call()
    assert store.looks == 3
