"""API keys: their format, their digests, and the file that a router reads them from.

Owns the file's format. A key is 256 random bits, so a plain SHA-256 of it can't be reversed by
guessing; the key itself is shown once and never written.
"""

import hashlib
import os
import secrets
import stat
from datetime import UTC, datetime
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from troupe.clients.rest.models.session import Scope
from troupe.durable import make_folder, replacing, sole_writer
from troupe.errors import InvalidArgumentError, NotFoundError

_PREFIX = "troupe_"
_TIMEOUT_S = 10.0


class ApiKey(BaseModel):
    """One key, as the file stores it.

    Example: ``ApiKey(name="ci", sha256=digest_of(key), scopes=("submit",))``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")
    """Who uses it; jobs show it as their owner."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Digest of the key."""
    scopes: tuple[Scope, ...] = Field(min_length=1)
    """read; submit (and cancel, pause, resume); admin (and delete). Each holds those before it.
    code: submit, with code that env services run (docs/bundles.md); no other holds it."""
    expires_at: datetime | None = None
    """The key ends then."""
    rate_per_s: float | None = Field(default=None, gt=0.0)
    """Requests a second; the router's own limit when left out."""
    max_replicas: int | None = Field(default=None, ge=1)
    """Rollout replicas that its jobs may hold together."""

    @field_validator("expires_at")
    @classmethod
    def _in_utc(cls, value: datetime | None) -> datetime | None:
        return value.replace(tzinfo=UTC) if value is not None and value.tzinfo is None else value

    @property
    def all_scopes(self) -> tuple[Scope, ...]:
        """The scopes with those that they include; only a key that names `code` has it."""
        order: tuple[Scope, ...] = ("read", "submit", "admin")
        named = ["submit" if scope == "code" else scope for scope in self.scopes]
        held = order[: max(order.index(scope) for scope in named) + 1]
        return (*held, "code") if "code" in self.scopes else held

    def is_valid(self, now: datetime | None = None) -> bool:
        """Whether the key has not ended."""
        return self.expires_at is None or (now or datetime.now(UTC)) < self.expires_at


class KeyFile(BaseModel):
    """All keys of a platform."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: tuple[ApiKey, ...] = ()


def new_key() -> str:
    """A fresh key."""
    return _PREFIX + secrets.token_urlsafe(32)


def digest_of(key: str) -> str:
    """The digest of a key, which is all that is stored of it."""
    return hashlib.sha256(key.encode()).hexdigest()


def read_keys(path: Path) -> KeyFile:
    """The keys in ``path``; raises InvalidArgumentError when it is not a file of keys."""
    try:
        return KeyFile.model_validate(yaml.safe_load(path.read_text("utf-8")) or {})
    except OSError as error:
        raise InvalidArgumentError(
            f"the file of API keys {path} cannot be read ({error.strerror}); make one with "
            f"`troupe keys add NAME --file {path}`"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError, ValidationError) as error:
        raise InvalidArgumentError(f"{path} is not a file of API keys: {error}") from error


def add_key(path: Path, name: str, scopes: tuple[Scope, ...], **more: object) -> str:
    """Add a key called ``name`` to ``path`` and return it; an older one of that name ends."""
    key = new_key()
    try:
        document = {"name": name, "sha256": digest_of(key), "scopes": scopes, **more}
        entry = ApiKey.model_validate(document)
    except ValidationError as error:
        fault = error.errors()[0]
        raise InvalidArgumentError(f"the key's {fault['loc'][0]}: {fault['msg']}") from error
    make_folder(path.parent)
    with sole_writer(path, _TIMEOUT_S):
        key_file = read_keys(path) if path.exists() else KeyFile()
        _write(path, KeyFile(keys=(*(k for k in key_file.keys if k.name != name), entry)))
    return key


def remove_key(path: Path, name: str) -> None:
    """End the key called ``name``; raises NotFoundError."""
    read_keys(path)  # before the lock makes a file beside one that is not there
    with sole_writer(path, _TIMEOUT_S):
        key_file = read_keys(path)
        remaining = tuple(k for k in key_file.keys if k.name != name)
        if len(remaining) == len(key_file.keys):
            names = ", ".join(k.name for k in key_file.keys) or "none"
            raise NotFoundError(f"{path} has no key '{name}'; it has: {names}")
        _write(path, KeyFile(keys=remaining))


def _write(path: Path, file: KeyFile) -> None:
    """Replace the file atomically; it keeps its mode, a new one is readable by its owner only."""
    text = yaml.safe_dump(file.model_dump(mode="json", exclude_none=True), sort_keys=False)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
    with replacing(path, mode=0o600) as draft:
        os.fchmod(draft.fileno(), mode)  # the umask does not take from it
        draft.write(text.encode())
