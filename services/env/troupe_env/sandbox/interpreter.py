"""Which interpreter runs programs, and which folders of the host they see for it."""

import site
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from troupe.errors import InvalidArgumentError
from troupe_env.sandbox.settings import SandboxSettings

_DISTRIBUTION = ("/usr/lib/python3/dist-packages",)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """How a worker is started."""

    argv: tuple[str, ...]
    shown: tuple[str, ...]
    masked: tuple[str, ...]


def find(settings: SandboxSettings) -> Interpreter:
    """The configured interpreter, or this one without its packages.

    Installed packages are hidden by default: among them are the judge and its hidden tests.
    """
    for path in settings.shown_paths:
        if not Path(path).is_absolute() or not Path(path).exists():
            raise InvalidArgumentError(
                f"TROUPE_ENV_SANDBOX_SHOWN_PATHS names {path!r}, which is not an absolute path "
                "that exists; correct or remove it."
            )
    flags = ("-s", "-P", "-B", "-X", "utf8", "-X", "frozen_modules=on")
    if not settings.python:
        executable = str(Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}"))
        if not Path(executable).exists():
            executable = sys.executable
        masked = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        masked |= {*site.getsitepackages(), *site.getsitepackages([sys.base_prefix])}
        masked |= {*_DISTRIBUTION, *_local_packages()}
        shown = (sys.base_prefix, *settings.shown_paths)
        return Interpreter((executable, "-S", *flags), shown, tuple(sorted(masked)))
    executable = Path(settings.python)
    if not executable.is_absolute() or not executable.exists():
        raise InvalidArgumentError(
            f"TROUPE_ENV_SANDBOX_PYTHON is {settings.python!r}, which is not the absolute path of "
            "an interpreter; correct it or leave it out."
        )
    prefixes = (str(executable.parent.parent), str(executable.resolve().parent.parent))
    return Interpreter((settings.python, *flags), (*prefixes, *settings.shown_paths), ())


def _local_packages() -> list[str]:
    folders = Path("/usr/local/lib").glob("python3*/*-packages")
    return [str(folder) for folder in folders]
