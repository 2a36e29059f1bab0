"""Which interpreters and folders a task may name: a program is code that the operator trusts."""

import sys
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic_settings import BaseSettings, SettingsConfigDict

from troupe import plugins
from troupe.errors import InvalidArgumentError

LOOPBACK = "127.0.0.1"
ANY_ADDRESS = ("0.0.0.0", "::", "")


class ProgramSettings(BaseSettings):
    """``TROUPE_PROGRAM_*``."""

    model_config = SettingsConfigDict(
        env_prefix="TROUPE_PROGRAM_", extra="ignore", use_attribute_docstrings=True
    )

    interpreters: str | None = None
    """Python interpreters that specs may name, comma-separated, with * for any part. Without it:
    any where specs may name any code, else only the interpreter of the process itself."""
    listen: str = LOOPBACK
    """Address that the programs' endpoint listens at; another than loopback only for harnesses in
    containers of their own, which need seats with ``key: true``."""
    address: str | None = None
    """Name or address by which those containers reach this process; without it ``listen``."""
    socket: str | None = None
    """Unix socket of the container that runs programs of an image (``task.params.image``); the
    chart sets it."""
    folders: str | None = None
    """Folders that specs may import programs from, in the same form. Without it: any where specs
    may name any code, else none."""


def reached_at(settings: ProgramSettings) -> str:
    """The host in the base URL that keyed clients are given.

    Raises InvalidArgumentError where the process listens everywhere and nobody said by which name.
    """
    address = settings.address or settings.listen
    if address in ANY_ADDRESS:
        raise InvalidArgumentError(
            f"TROUPE_PROGRAM_LISTEN is {settings.listen!r}, which no client can call; set "
            "TROUPE_PROGRAM_ADDRESS to the name or address of this host that harnesses reach"
        )
    return address


def in_url(host: str) -> str:
    """``host`` as a URL has it."""
    return f"[{host}]" if ":" in host else host


def interpreter_of(name: str | None) -> str:
    """The interpreter ``name`` as an absolute path, or this process's own.

    Raises:
        InvalidArgumentError: the setting leaves it out, or there is no such file.
    """
    if name is None:
        return sys.executable
    pointer = "/task/params/python"
    # Not resolved: python in a virtual environment is a link to the interpreter that made it.
    path = Path(name).absolute()
    _check(str(path), ProgramSettings().interpreters, "INTERPRETERS", pointer)
    if not path.is_file():
        raise InvalidArgumentError(
            f"there is no interpreter {path}; make the program's virtual environment first, or "
            "correct the path (a relative one starts at the working folder)",
            pointer=pointer,
        )
    return str(path)


def folder_of(name: str | None) -> str | None:
    """The folder ``name`` as an absolute path.

    Raises:
        InvalidArgumentError: the setting leaves it out, or there is no such folder.
    """
    if name is None:
        return None
    pointer = "/task/params/folder"
    path = Path(name).resolve()
    _check(str(path), ProgramSettings().folders, "FOLDERS", pointer)
    if not path.is_dir():
        raise InvalidArgumentError(
            f"there is no folder {path}; correct the path (a relative one starts at the working "
            "folder)",
            pointer=pointer,
        )
    return str(path)


def _check(path: str, patterns: str | None, setting: str, pointer: str) -> None:
    if patterns is None:
        is_allowed = not plugins.are_limited()
    else:
        parts = [part.strip() for part in patterns.split(",")]
        is_allowed = any(fnmatchcase(path, part) for part in parts if part)
    if not is_allowed:
        raise InvalidArgumentError(
            f"this installation runs no program from {path}; ask its operator to add it to "
            f"TROUPE_PROGRAM_{setting}",
            pointer=pointer,
        )
