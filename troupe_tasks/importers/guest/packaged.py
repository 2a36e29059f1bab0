"""Finds the module of an environment package by its name, and no other module.

A name in a spec imports a module here, so it must be one that was installed as an environment: a
distribution that requires verifiers, or verifiers itself.
"""

import importlib
import re
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from types import ModuleType

from serve import RefusedError

PACKAGE = "verifiers"


def environment_module(name: str) -> ModuleType:
    """The module of the environment ``name`` (``wordle``, ``owner/wordle``, ``math-group``)."""
    module = name.rpartition("/")[2].replace("-", "_")
    providers = packages_distributions().get(module, [])
    requires = [line for found in providers for line in distribution(found).requires or []]
    if not any(re.split(r"[^\w.-]", line)[0].lower() == PACKAGE for line in requires):
        raise RefusedError(
            f"no installed package requires {PACKAGE} and provides '{module}'; install the "
            f"environment for this interpreter (its version of verifiers: {version()})"
        )
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RefusedError(f"'{name}' cannot be imported: {error}") from None


def version() -> str:
    """The installed version of verifiers, or ``none``."""
    try:
        return distribution(PACKAGE).version
    except PackageNotFoundError:
        return "none"
