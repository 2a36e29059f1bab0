"""The file of API keys while several write it, and while a router reads it."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from troupe.clients.rest.errors import UnauthenticatedError
from troupe.clients.rest.keys import KeyFile, add_key, read_keys, remove_key
from troupe_router.rest.access import api_keys


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.yaml"


@pytest.fixture
def strict_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("strict_umask")
def test_key_file_when_its_mode_was_set_then_a_change_keeps_it(file: Path) -> None:
    add_key(file, "a", ("read",))
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    add_key(file, "b", ("read",))
    remove_key(file, "a")
    assert file.stat().st_mode & 0o777 == 0o644


def test_key_file_when_many_change_it_at_once_then_no_change_is_lost(file: Path) -> None:
    names = [f"k{number}" for number in range(8)]
    start = Barrier(len(names))

    def add(name: str) -> None:
        start.wait(10)
        add_key(file, name, ("read",))

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(add, names))
    assert {key.name for key in read_keys(file).keys} == set(names)


def test_key_when_removed_while_the_router_reads_the_file_then_is_refused_at_the_next_look(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_keys, "_LOOK_S", 0.0)
    stolen = add_key(file, "stolen", ("admin",))
    changes = [lambda: remove_key(file, "stolen")]

    def read_and_then_change(path: Path) -> KeyFile:
        held = read_keys(path)
        while changes:
            changes.pop()()
        return held

    monkeypatch.setattr(api_keys, "read_keys", read_and_then_change)
    store = api_keys.KeyStore(file)
    with pytest.raises(UnauthenticatedError):
        store.caller(stolen)
