"""The store of published weights between trainer and replicas: a shared folder or object store.

Owns how a file is written completely and how it is fetched; the manifest describes its content. A
key is relative to the store, so each side reaches it by its configured URL and credentials. All
calls block: run them on a thread.
"""

import contextlib
import os
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from troupe.durable import make_folder, put
from troupe.errors import InvalidArgumentError, NotFoundError, UnavailableError

_KEY = re.compile(r"[A-Za-z0-9_@=+-][A-Za-z0-9_.@=+-]*(/[A-Za-z0-9_@=+-][A-Za-z0-9_.@=+-]*)*")
_POLL_S = 0.05


class WeightStore(Protocol):
    """Files by key. A key is stored completely or not at all."""

    def put(self, path: Path, key: str) -> None:
        """Store a file; replaces an earlier one of that key."""
        ...

    def put_bytes(self, data: bytes, key: str) -> None:
        """Store a few bytes; replaces an earlier value of that key."""
        ...

    def fetch(self, key: str, target: Path) -> None:
        """Write a key's file to ``target``; raises NotFoundError."""
        ...

    def get_bytes(self, key: str) -> bytes:
        """Read a small file; raises NotFoundError."""
        ...

    def delete(self, key: str) -> None:
        """Delete a key; a missing one is no error."""
        ...

    def keys(self, prefix: str) -> list[str]:
        """The keys below the folder ``prefix``, which is one itself."""
        ...


def open_store(url: str, options: Mapping[str, str] | None = None) -> WeightStore:
    """The store at ``url``: a folder, or ``s3://``, ``gs://``, ``az://`` and what obstore knows.

    Example: ``open_store("s3://bucket/weights", {"endpoint": "http://127.0.0.1:9000"})``.

    Raises:
        InvalidArgumentError: the URL or an option is wrong.
    """
    if not url:
        raise InvalidArgumentError(
            "No weight store is set. Give TROUPE_TRAINER_WEIGHTS_URL and "
            "TROUPE_ROLLOUT_WEIGHTS_URL the same folder or object store, as each reaches it."
        )
    if url.startswith("file://") or "://" not in url:
        return FolderStore(Path(url.removeprefix("file://")))
    return ObjectStore(url, options or {})


def check_key(key: str) -> None:
    """Raise InvalidArgumentError for a key that could leave the store."""
    if not _KEY.fullmatch(key):
        raise InvalidArgumentError(f"{key!r} is not a key of a weight store.")


def wait_for(store: WeightStore, key: str, timeout_s: float) -> bytes:
    """Read a small file that a network mount may show late; then raises NotFoundError."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return store.get_bytes(key)
        except NotFoundError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_POLL_S)


class FolderStore:
    """A folder that trainer and replicas share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, path: Path, key: str) -> None:
        def write(draft: Path) -> None:
            try:
                os.link(path, draft)  # one file system: no byte is copied
            except OSError:
                shutil.copyfile(path, draft)

        self._place(key, write)

    def put_bytes(self, data: bytes, key: str) -> None:
        self._place(key, lambda draft: draft.write_bytes(data) and None)

    def fetch(self, key: str, target: Path) -> None:
        source = self._path(key)
        try:
            os.link(source, target)
        except FileNotFoundError as error:
            raise _not_found(key, self._folder) from error
        except OSError:
            try:
                shutil.copyfile(source, target)
            except FileNotFoundError as error:
                raise _not_found(key, self._folder) from error

    def get_bytes(self, key: str) -> bytes:
        try:
            return self._path(key).read_bytes()
        except FileNotFoundError as error:
            raise _not_found(key, self._folder) from error

    def delete(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    def keys(self, prefix: str) -> list[str]:
        names = sorted(p.name for p in self._path(prefix).glob("*") if p.is_file())
        return [f"{prefix}/{name}" for name in names if not name.startswith(".")]

    def _path(self, key: str) -> Path:
        check_key(key)
        return self._folder / key

    def _place(self, key: str, write: Any) -> None:
        """Write under another name, sync, then rename: a reader sees all of it or nothing."""
        path = self._path(key)
        draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
        try:
            make_folder(path.parent)
            draft.unlink(missing_ok=True)
            write(draft)
            put(draft, path)
            draft.unlink(missing_ok=True)  # still there where both are links to one file
        except OSError as error:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise UnavailableError(
                f"{key} can't be written to the weight store {self._folder} ({error}). Free space "
                "there, or correct TROUPE_TRAINER_WEIGHTS_URL."
            ) from error


class ObjectStore:
    """A bucket, by obstore; an upload becomes visible when it is complete."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        try:
            import obstore
            from obstore.store import from_url
        except ImportError as error:
            raise InvalidArgumentError(
                f"The weight store {url} needs the package obstore: "
                "pip install 'troupe[objectstore]'."
            ) from error
        self._url = url
        self._api: Any = obstore
        config: Any = dict(options)
        is_plain_http = config.get("endpoint", "").startswith("http://")
        client: Any = {"allow_http": True} if is_plain_http else {}
        try:
            self._store: Any = from_url(url, config=config, client_options=client)
        except Exception as error:  # obstore raises a type for each kind of store
            raise InvalidArgumentError(
                f"The weight store {url} can't be opened ({_first_line(error)}). Correct "
                "TROUPE_TRAINER_WEIGHTS_URL or TROUPE_ROLLOUT_WEIGHTS_URL and _WEIGHTS_OPTIONS."
            ) from error

    def put(self, path: Path, key: str) -> None:
        self._do(key, lambda: self._api.put(self._store, key, path))

    def put_bytes(self, data: bytes, key: str) -> None:
        self._do(key, lambda: self._api.put(self._store, key, data))

    def fetch(self, key: str, target: Path) -> None:
        def copy() -> None:
            with target.open("wb") as file:
                for part in self._api.get(self._store, key).stream(min_chunk_size=1 << 22):
                    file.write(part)

        self._do(key, copy)

    def get_bytes(self, key: str) -> bytes:
        return self._do(key, lambda: bytes(self._api.get(self._store, key).bytes()))

    def delete(self, key: str) -> None:
        with contextlib.suppress(NotFoundError):
            self._do(key, lambda: self._api.delete(self._store, key))

    def keys(self, prefix: str) -> list[str]:
        def names() -> list[str]:
            parts = self._api.list(self._store, prefix=f"{prefix}/")
            return sorted(str(entry["path"]) for part in parts for entry in part)

        return self._do(prefix, names)

    def _do(self, key: str, call: Any) -> Any:
        check_key(key)
        try:
            return call()
        except FileNotFoundError as error:  # obstore's NotFoundError is one
            raise _not_found(key, self._url) from error
        except Exception as error:  # obstore raises a type for each kind of failure
            raise UnavailableError(
                f"The weight store {self._url} failed at {key} ({type(error).__name__}: "
                f"{_first_line(error)}). Try again; see that it is up and its "
                "credentials are right."
            ) from error


def _not_found(key: str, where: object) -> NotFoundError:
    return NotFoundError(
        f"There is no {key} in the weight store {where}. See that trainer and replica have the "
        "same store (TROUPE_TRAINER_WEIGHTS_URL, TROUPE_ROLLOUT_WEIGHTS_URL)."
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
