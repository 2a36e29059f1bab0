"""Finds the interpreter that runs programs, and the host folders that they see for it."""

import importlib.util
import json
import site
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import troupe
from troupe.errors import InvalidArgumentError
from troupe_env.sandbox.settings import SandboxSettings

_FLAGS = ("-s", "-P", "-B", "-X", "utf8", "-X", "frozen_modules=on")
_SYSTEM_PREFIXES = ("/usr", "/usr/local")
_PACKAGES = ("lib*/python*/*-packages", "lib*/pypy*/*-packages")
"""Below a prefix: ``site-packages``, and Debian's ``dist-packages`` of each Python or of all."""
_ASK = "import json, sys; print(json.dumps([sys.executable, *sys.path]))"
_ASK_S = 20.0


@dataclass(frozen=True, slots=True)
class Interpreter:
    """How a worker is started."""

    argv: tuple[str, ...]
    shown: tuple[str, ...]
    masked: tuple[str, ...]
    packages: dict[str, str]
    """Folder of each further package that programs may see."""


def find(settings: SandboxSettings) -> Interpreter:
    """The configured interpreter with its packages, or this one without any.

    All other installed packages are hidden: among them are the judge and its hidden tests.
    """
    for path in settings.shown_paths:
        if not Path(path).is_absolute() or not Path(path).exists():
            raise InvalidArgumentError(
                f"TROUPE_ENV_SANDBOX_SHOWN_PATHS names {path!r}, which is not an absolute path "
                "that exists; correct or remove it."
            )
    argv, prefixes = _configured(settings.python) if settings.python else _of_this_process()
    masked = _masked(prefixes, _imported_from(argv), settings.shown_paths)
    packages = {name: folder for name in settings.packages if (folder := _folder_of(name))}
    return Interpreter(argv, (*prefixes, *settings.shown_paths), masked, packages)


def _folder_of(package: str) -> str:
    """Where the installed package lies; empty when it is not installed."""
    if not package.isidentifier() or package.startswith("troupe"):
        raise InvalidArgumentError(
            f"TROUPE_ENV_SANDBOX_PACKAGES names {package!r}; name packages that are not Troupe's, "
            "without dots."
        )
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return ""
    return str(Path(spec.submodule_search_locations[0]).resolve())


def _of_this_process() -> tuple[tuple[str, ...], tuple[str, ...]]:
    executable = str(Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}"))
    if not Path(executable).exists():
        executable = sys.executable
    return (executable, "-S", *_FLAGS), (sys.base_prefix,)


def _configured(python: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    executable = Path(python)
    if not executable.is_absolute() or not executable.exists():
        raise InvalidArgumentError(
            f"TROUPE_ENV_SANDBOX_PYTHON is {python!r}, which is not the absolute path of "
            "an interpreter; correct it or leave it out."
        )
    prefixes = (str(executable.parent.parent), str(executable.resolve().parent.parent))
    return (python, *_FLAGS), prefixes


def _imported_from(argv: tuple[str, ...]) -> list[Path]:
    """The interpreter itself and every folder that it imports from."""
    try:
        answer = subprocess.run(
            [*argv, "-c", _ASK],
            env={},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ASK_S,
            check=True,
        )
        return _resolved(json.loads(answer.stdout))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise InvalidArgumentError(
            f"The sandbox's interpreter {argv[0]!r} does not report its import path "
            f"({type(error).__name__}: {error}); set TROUPE_ENV_SANDBOX_PYTHON to one that runs."
        ) from error


def _masked(
    prefixes: tuple[str, ...], imported_from: list[Path], shown_paths: list[str]
) -> tuple[str, ...]:
    """Folders of packages, and all that this service imports from, that programs must not see.

    What the interpreter needs stays. A folder that the operator shows stays too, unless a folder
    of installed packages holds it. The paths are free of links: a link would lead out of the tree
    that is built, and would lead to the packages in the finished one.
    """
    installed = _installed(prefixes)
    shown = _resolved(shown_paths)
    masked = {folder for folder in installed if not _holds(folder, imported_from)}
    masked |= {f for f in _service_folders() if not _holds(f, [*imported_from, *shown])}
    return tuple(sorted(map(str, masked)))


def _installed(prefixes: tuple[str, ...]) -> set[Path]:
    """Folders of installed packages below every prefix that programs see, and of this process."""
    folders: list[str] = [
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        *site.getsitepackages(),
        *site.getsitepackages([sys.base_prefix]),
        site.getusersitepackages(),
        *(str(folder) for prefix in {*_SYSTEM_PREFIXES, *prefixes} for folder in _below(prefix)),
    ]
    return set(_resolved(folders))


def _below(prefix: str) -> Iterable[Path]:
    return (folder for pattern in _PACKAGES for folder in Path(prefix).glob(pattern))


def _service_folders() -> set[Path]:
    """Where this service imports from: PYTHONPATH, lines of .pth files, a checkout of Troupe.

    Without the standard library, which programs of other languages may need.
    """
    library = Path(sysconfig.get_path("stdlib")).resolve()
    folders = _resolved([*sys.path, str(Path(troupe.__file__).parents[1])])
    return {
        folder
        for folder in folders
        if folder.is_dir() and not _holds(folder, [library]) and not _holds(library, [folder])
    }


def _holds(folder: Path, others: Iterable[Path]) -> bool:
    return any(other.is_relative_to(folder) for other in others)


def _resolved(paths: Iterable[str]) -> list[Path]:
    return [Path(path).resolve() for path in paths]
