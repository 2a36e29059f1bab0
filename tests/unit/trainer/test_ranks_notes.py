"""Notes of rank 0, by a store of this process."""

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
