"""A record and its digests: whatever is done to the files, it is noticed and never filled in."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.durable import FileChangedError
from troupe_router.run.record_file import RecordFile

NAMES = ("eval-00000", "train-00000", "train-00001", "train-00002")


def lines(name: str, count: int = 3) -> list[bytes]:
    kind, _, step = name.partition("-")
    documents = [{"kind": kind, "step": int(step), "id": f"{name}/{i}"} for i in range(count)]
    return [json.dumps(document).encode() + b"\n" for document in documents]


def written(folder: Path, names: Sequence[str] = NAMES) -> RecordFile:
    record = RecordFile(folder / "episodes.jsonl")
    for name in names:
        record.append(name, lines(name))
    return record


def ids(record: RecordFile) -> list[str]:
    return [str(line.get("id")) for _, line in record.lines()]


def losses(record: RecordFile) -> dict[str, str]:
    return {name: part.loss for name, part in record.parts.items() if part.loss}


def test_restore_when_nothing_happened_then_nothing_changes(tmp_path: Path) -> None:
    before = [path.read_bytes() for path in (written(tmp_path).path, written(tmp_path).digests)]
    again = RecordFile(tmp_path / "episodes.jsonl")
    assert again.restore()
    assert not losses(again)
    assert [again.path.read_bytes(), again.digests.read_bytes()] == before


def test_append_when_the_part_is_there_then_it_is_not_appended_again(tmp_path: Path) -> None:
    record = written(tmp_path)
    record.append("train-00001", lines("train-00001"))
    assert ids(record).count("train-00001/0") == 1


@pytest.mark.parametrize("change", [-7, 11])
def test_append_when_the_file_has_another_length_then_it_is_refused(
    tmp_path: Path, change: int
) -> None:
    record = written(tmp_path)
    data = record.path.read_bytes()
    found = data[:change] if change < 0 else data + b"x" * change
    record.path.write_bytes(found)
    with pytest.raises(FileChangedError, match="it was cut"):
        record.append("train-00003", lines("train-00003"))
    assert record.path.read_bytes() == found


def cut_a_step_earlier(data: bytes) -> bytes:
    return b"".join(data.splitlines(keepends=True)[:7])


def torn(data: bytes) -> bytes:
    return data[:-20]


def zeros_at_the_end(data: bytes) -> bytes:
    return data[:-40] + b"\0" * 40


def altered(data: bytes) -> bytes:
    return data.replace(b"train-00001/1", b"train-00001/9")


def without_the_middle(data: bytes) -> bytes:
    return b"".join(x for x in data.splitlines(keepends=True) if b"train-00001" not in x)


def gone(data: bytes) -> bytes:
    _ = data
    return b""


@pytest.mark.parametrize(
    ("change", "lost", "num_left"),
    [
        (cut_a_step_earlier, {"train-00001": "2 of 3", "train-00002": "3 of 3"}, 7),
        (torn, {"train-00002": "1 of 3"}, 11),
        (zeros_at_the_end, {"train-00002": "1 of 3"}, 11),
        (altered, {"train-00001": "not those"}, 12),
        (without_the_middle, {"train-00001": "3 of 3"}, 9),
        (gone, dict.fromkeys(NAMES, "3 of 3"), 0),
    ],
)
def test_restore_when_the_file_was_changed_then_each_part_that_lacks_something_is_named(
    tmp_path: Path, change: Callable[[bytes], bytes], lost: dict[str, str], num_left: int
) -> None:
    path = written(tmp_path).path
    path.write_bytes(change(path.read_bytes()))
    for _ in range(2):  # what was found once is known from then on
        record = RecordFile(path)
        record.restore()
        assert losses(record).keys() == lost.keys()
        assert all(words in losses(record)[name] for name, words in lost.items())
        assert len(ids(record)) == num_left
        assert b"\0" not in path.read_bytes()
    record.append("train-00003", lines("train-00003"))
    assert ids(record)[-1] == "train-00003/2"


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_restore_when_any_bytes_changed_then_no_loss_is_silent(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = written(tmp_path_factory.mktemp("record")).path
    whole = path.read_bytes()
    start = data.draw(st.integers(0, len(whole) - 1))
    end = data.draw(st.integers(start + 1, len(whole)))
    filler = data.draw(st.sampled_from([b"", b"\0" * (end - start), b"\n", b"{}\n", b"x"]))
    path.write_bytes(whole[:start] + filler + whole[end:])
    record = RecordFile(path)
    record.restore()
    intact = {name for name, part in record.parts.items() if not part.loss}
    for name in NAMES:
        wanted = [json.loads(line)["id"] for line in lines(name)]
        if name in intact:
            assert [i for i in ids(record) if i.startswith(name)] == wanted
        else:
            assert losses(record)[name]


def test_restore_when_lines_have_no_digest_then_they_stay_unless_they_are_to_come(
    tmp_path: Path,
) -> None:
    path = written(tmp_path).path
    (tmp_path / "episodes.digests.jsonl").unlink()
    record = RecordFile(path)
    assert not record.restore(is_pending=lambda name: name == "train-00002")
    assert list(record.parts) == list(NAMES[:3])
    assert len(ids(record)) == 9
    record.append("train-00002", lines("train-00002"))
    assert len(ids(RecordFile(path))) == 12


def test_restore_when_a_part_is_torn_and_to_come_then_it_is_written_once(tmp_path: Path) -> None:
    record = written(tmp_path, NAMES[:2])
    with record.path.open("ab") as file:  # the process died before the digest was written
        file.write(b"".join(lines("train-00001"))[:-9])
    again = RecordFile(record.path)
    again.restore(is_pending=lambda name: name == "train-00001")
    again.append("train-00001", lines("train-00001"))
    assert [i for i in ids(again) if i.startswith("train-00001")] == [
        f"train-00001/{i}" for i in range(3)
    ]


@pytest.mark.parametrize("tail", [b'{"name": "train-0', b"\0" * 30])
def test_restore_when_the_digests_are_torn_then_the_next_part_is_noted_whole(
    tmp_path: Path, tail: bytes
) -> None:
    record = written(tmp_path, NAMES[:2])
    with record.digests.open("ab") as file:
        file.write(tail)
    again = RecordFile(record.path)
    again.restore()
    again.append("train-00001", lines("train-00001"))
    last = RecordFile(record.path)
    assert last.restore()
    assert list(last.parts) == list(NAMES[:3])
    assert len(last.digests.read_bytes().splitlines()) == 3


@pytest.mark.parametrize("kept", [NAMES[:2], NAMES[:0], (NAMES[0], NAMES[2]), NAMES[1:]])
def test_restore_when_parts_are_of_another_life_then_they_go_and_are_no_loss(
    tmp_path: Path, kept: Sequence[str]
) -> None:
    path = written(tmp_path).path
    for _ in range(2):
        record = RecordFile(path)
        record.restore(lambda name: name in kept)
        assert list(record.parts) == list(kept)
        assert not losses(record)
        assert ids(record) == [f"{name}/{i}" for name in kept for i in range(3)]


def test_restore_when_the_process_dies_between_the_files_then_nothing_is_a_loss(
    tmp_path: Path,
) -> None:
    path = written(tmp_path).path
    random = Random(7)
    for _ in range(20):
        kept = [name for name in NAMES if random.random() < 0.6]
        record = written(tmp_path)
        digests = record.digests.read_bytes()
        record.restore(lambda name, kept=kept: name in kept)
        record.digests.write_bytes(digests)  # the digests are written last
        again = RecordFile(path)
        again.restore(lambda name, kept=kept: name in kept)
        assert not losses(again)
        assert list(again.parts) == kept
        path.unlink()
        record.digests.unlink()
