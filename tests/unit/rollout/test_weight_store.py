"""The weight store: a key is there whole or not at all, and never outside."""

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.errors import InvalidArgumentError, NotFoundError, UnavailableError
from troupe.runtime.weights.store import FolderStore, check_key, open_store, wait_for


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path):
    return open_store(str(tmp_path / "store") if request.param == "folder" else "memory:///")


def test_file_that_was_put_is_fetched_again(store: FolderStore, tmp_path: Path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"weights" * 1000)
    store.put(source, "job/p/v00001.safetensors")
    store.fetch("job/p/v00001.safetensors", target)
    assert target.read_bytes() == source.read_bytes()
    store.put_bytes(b"{}", "job/p/v00001.safetensors.manifest.json")
    assert store.get_bytes("job/p/v00001.safetensors.manifest.json") == b"{}"
    store.delete("job/p/v00001.safetensors")
    store.delete("job/p/v00001.safetensors")
    with pytest.raises(NotFoundError, match="There is no job/p/v00001"):
        store.fetch("job/p/v00001.safetensors", tmp_path / "again")


def test_file_that_is_put_twice_is_the_second(store: FolderStore, tmp_path: Path):
    for content in (b"one", b"two"):
        path = tmp_path / content.decode()
        path.write_bytes(content)
        store.put(path, "key")
    assert store.get_bytes("key") == b"two"


def test_put_that_fails_leaves_nothing(tmp_path: Path):
    store = FolderStore(tmp_path / "store")
    with pytest.raises(UnavailableError, match="can't be written"):
        store.put(tmp_path / "not there", "job/key")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_file_that_becomes_visible_late_is_waited_for(tmp_path: Path):
    store = FolderStore(tmp_path)
    writer = threading.Timer(0.1, store.put_bytes, (b"there", "key"))
    writer.start()
    assert wait_for(store, "key", 10.0) == b"there"
    writer.join()
    with pytest.raises(NotFoundError):
        wait_for(store, "other", 0.01)


@given(st.text(alphabet="ab./\\ \n~%@", max_size=12))
def test_key_that_is_taken_stays_below_the_store(key: str):
    try:
        check_key(key)
    except InvalidArgumentError:
        return
    parts = key.split("/")
    assert all(part and part.strip(".") and not part.startswith(".") for part in parts)
    assert "\n" not in key


@pytest.mark.parametrize(
    ("url", "words"),
    [("", "No weight store is set"), ("nonsense://bucket", "can't be opened")],
)
def test_store_that_makes_no_sense_says_so(url: str, words: str):
    with pytest.raises(InvalidArgumentError, match=words):
        open_store(url)


def test_keys_are_those_of_one_folder(store: FolderStore):
    for key in ("job/p/v00001", "job/p/v00002", "job/q/v00001"):
        store.put_bytes(b"", key)
    assert store.keys("job/p") == ["job/p/v00001", "job/p/v00002"]
    assert store.keys("job/none") == []


def test_file_that_is_put_again_leaves_no_second_name(tmp_path: Path):
    store = FolderStore(tmp_path / "store")
    source = tmp_path / "source"
    source.write_bytes(b"weights")
    store.put(source, "key")
    store.put(source, "key")  # both names are links to one file, and a rename does nothing
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["key"]
