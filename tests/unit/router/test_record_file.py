"""A record and its digests: whatever is done to the files, it is noticed and never filled in."""

import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.durable import FileChangedError
from troupe_router.run import record_lines
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


def note(**changes: object) -> bytes:
    whole = {"name": "train-00001", "size": 10, "num_lines": 3, "digest": "ab", "loss": ""}
    return json.dumps({**whole, **changes}).encode() + b"\n"


GARBAGE = (
    *(note(size=value) for value in ("x", -5, None, 1.5, True)),
    *(note(num_lines=value) for value in ("3", -1, None)),
    *(note(name=value) for value in (7, None, "", "foo", "train-1", "train--0001", ["a"], "../x")),
    note(digest=None),
    note(loss=5),
    note(more=1),
    b"[]\n",
    b"nul",
    b"\xff\xfe\n",
    b"\0" * 99,
    b'{"name":"\\ud800","size":1,"num_lines":1,"digest":"x","loss":""}\n',
    b"[" * 200_000 + b"\n",
    note(name=f"train-{'9' * 4000}"),
)


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda garbage: repr(garbage[:40]))
@pytest.mark.parametrize("is_first", [True, False])
def test_restore_when_the_digests_hold_garbage_then_it_is_left_out(
    tmp_path: Path, garbage: bytes, is_first: bool
) -> None:
    record = written(tmp_path)
    noted = record.digests.read_bytes()
    record.digests.write_bytes(garbage + b"\n" + noted if is_first else noted + garbage)
    again = RecordFile(record.path)
    again.restore()
    again.append("train-00003", lines("train-00003"))
    assert list(again.parts) == [*NAMES, "train-00003"]
    assert not losses(again)
    assert record.digests.read_bytes().startswith(noted)


@pytest.mark.parametrize(
    "garbage",
    [
        b"[" * 200_000 + b"\n",
        b"\0" * 5000 + b"\n",
        b'{"kind":"train","step":true}\n',
        b'{"kind":"train","step":-3}\n',
        b'{"kind":"train","step":1e9}\n',
        b'{"kind":["train"],"step":1}\n',
        b'{"kind":"train","step":' + b"9" * 4000 + b"}\n",
    ],
    ids=lambda garbage: repr(garbage[:40]),
)
def test_restore_when_the_end_is_garbage_then_it_is_cut_off(tmp_path: Path, garbage: bytes) -> None:
    record = written(tmp_path)
    whole = record.path.read_bytes()
    record.path.write_bytes(whole + garbage)
    again = RecordFile(record.path)
    again.restore()
    assert not losses(again)
    assert again.path.read_bytes() == whole


def test_restore_when_a_line_has_no_bound_then_it_is_not_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_lines, "MAX_LINE_BYTES", 1000)
    record = written(tmp_path)
    whole = record.path.read_bytes()
    record.path.write_bytes(b"x" * 3000 + b"\n" + whole + b"\0" * 2500)
    again = RecordFile(record.path)
    again.restore()
    assert not losses(again)
    assert again.path.read_bytes() == whole


@pytest.mark.parametrize("name", ["episodes.jsonl", "episodes.digests.jsonl"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "folder"])
@pytest.mark.timeout(20)
def test_record_when_something_else_is_in_its_place_then_that_is_put_aside_unchanged(
    tmp_path: Path, name: str, kind: str
) -> None:
    (tmp_path / "run").mkdir()
    record = written(tmp_path / "run")
    victim, place = tmp_path / "victim", record.path.with_name(name)
    place.rename(victim)
    before = victim.read_bytes()
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to(victim if kind == "link" else tmp_path / "nowhere")
    again = RecordFile(record.path)
    again.restore()
    again.append("train-00003", lines("train-00003"))
    assert victim.read_bytes() == before
    assert not (tmp_path / "nowhere").exists()
    assert set(losses(again)) == (set(NAMES) if name == "episodes.jsonl" else set())
    assert len(list(place.parent.glob(f"{name}.aside-*"))) == 1


def test_append_when_threads_append_at_once_then_each_part_is_there_once(tmp_path: Path) -> None:
    record = RecordFile(tmp_path / "metrics.jsonl")
    errors: list[BaseException] = []

    def write(kind: str) -> None:
        for step in range(20):
            name = f"{kind}-{step:05d}"
            try:
                record.append(name, lines(name))
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=write, args=(kind,)) for kind in ("eval", "train")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    again = RecordFile(record.path)
    assert again.restore()
    assert not losses(again)
    assert len(again.parts) == 40
    assert len(again.lines()) == 120
