"""Finds the module of an environment package by its name, and no other module.

A name in a spec imports a module here, so it must be one that was installed as an environment: of
a distribution that requires verifiers, or whose files import it.
"""

import importlib
import re
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    distribution,
    packages_distributions,
)
from pathlib import Path
from types import ModuleType

from serve import RefusedError

PACKAGE = "verifiers"
MAX_FILES = 100
_IMPORTS = re.compile(r"^\s*(?:import|from) verifiers\b", re.MULTILINE)


def environment_module(name: str) -> ModuleType:
    """The module of the environment ``name`` (``wordle``, ``owner/wordle``, ``math-group``)."""
    module = name.rpartition("/")[2].replace("-", "_")
    providers = packages_distributions().get(module, [])
    if not any(is_environment(distribution(provider)) for provider in providers):
        raise RefusedError(
            f"no installed package that uses {PACKAGE} provides '{module}'; install the "
            f"environment for this interpreter (its version of verifiers: {version()})"
        )
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RefusedError(f"'{name}' cannot be imported: {error}") from None


def is_environment(package: Distribution) -> bool:
    """Whether a distribution requires verifiers, or its own files import it."""
    names = [re.split(r"[^\w.-]", line)[0].lower() for line in package.requires or []]
    sources = [file for file in package.files or [] if file.suffix == ".py"][:MAX_FILES]
    return PACKAGE in names or any(
        _IMPORTS.search(Path(str(file.locate())).read_text("utf-8", "replace")) for file in sources
    )


def version() -> str:
    """The installed version of verifiers, or ``none``."""
    try:
        return distribution(PACKAGE).version
    except PackageNotFoundError:
        return "none"
