"""Finds extensions by entry-point name, ``module:attr`` or ``file.py:attr``: one rule for all.

A task may also be ``prefix:name``: a registered importer makes the family of that name.

Loads code that a spec names, so it runs only in services and tools that the operator started,
never in a sandbox. A router that strangers can reach limits the modules.
"""

import importlib
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import sha256
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ValidationError, create_model

from troupe.code_places import raised_in
from troupe.errors import InvalidArgumentError
from troupe.plugin_files import module_of_file
from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.transient import is_of_code
from troupe.spec.issues import Issue, SpecInvalidError, issues_of, suggest

_log = get_logger(__name__)

TASKS = "troupe.tasks"
TASK_IMPORTERS = "troupe.task_importers"
ALGORITHMS = "troupe.algorithms"
WORKFLOWS = "troupe.workflows"
ENGINES = "troupe.engines"
SANDBOXES = "troupe.sandboxes"
TRACKERS = "troupe.trackers"
DATASETS = "troupe.datasets"
REWARDS = "troupe.rewards"

_PARTS = {
    TASKS: ("Params", "agents", "taskset"),
    ALGORITHMS: ("needs", "sampler"),
    WORKFLOWS: ("run",),
    TRACKERS: ("log", "close"),
    REWARDS: (),
}
"""Attributes that a plug-in of each kind must have."""

_BY_ROUTER = (
    "this router may not load from a spec (it may load {modules}); have the operator install it as "
    "an entry point, or name its module in TROUPE_ROUTER_PLUGIN_MODULES; or send a task's or "
    "reward's file along (--with)"
)


@dataclass(frozen=True)
class _Limit:
    modules: tuple[str, ...]
    refusal: str


_only: ContextVar[_Limit | None] = ContextVar("troupe_plugin_modules", default=None)
_digests: WeakKeyDictionary[ModuleType, str] = WeakKeyDictionary()
"""SHA-256 of the file of each module that a spec named, as this process first loaded it."""
_refuses_changed: ContextVar[bool] = ContextVar("troupe_plugin_changes", default=False)


@contextmanager
def only_modules(modules: Sequence[str] | None, refusal: str = _BY_ROUTER) -> Generator[None]:
    """Limit ``module:attr`` in the block to these modules and their submodules; None allows any.

    Registered names always load: installing a package is the operator's consent. ``refusal`` goes
    on after "'m:A' is code that" and may show ``{modules}``.
    """
    token = _only.set(None if modules is None else _Limit(tuple(modules), refusal))
    try:
        yield
    finally:
        _only.reset(token)


@contextmanager
def refuse_changed() -> Generator[None]:
    """Refuse in the block a ``module:attr`` whose file has changed: the old code would be used.

    For a new job. One that runs goes on with the code that it began with.
    """
    token = _refuses_changed.set(True)
    try:
        yield
    finally:
        _refuses_changed.reset(token)


def are_limited() -> bool:
    """Whether the block that runs now may not load any code that a spec names."""
    return _only.get() is not None


def registered(group: str) -> list[str]:
    """Names that installed packages offer for an extension point."""
    return sorted({entry.name for entry in _installed(group)})


def checked_params(
    plugin: Any, params: Mapping[str, Any], *, label: str, pointer: str
) -> BaseModel | None:
    """``params`` as the model ``plugin.Params``; None where the plug-in declares no parameters.

    An unknown parameter is refused unless the model says what becomes of it (its ``extra``).
    Raises SpecInvalidError whose pointers begin with ``pointer``; ``label`` names the plug-in.
    """
    model: type[BaseModel] | None = getattr(plugin, "Params", None)
    if model is None:
        if params:
            message = f"{label} has no parameters; remove them, or declare a model `Params` on it"
            raise SpecInvalidError([Issue(pointer, message)])
        return None
    try:
        return _strict(model).model_validate(dict(params))
    except ValidationError as error:
        issues = [Issue(pointer + i.pointer, i.message) for i in issues_of(error, model)]
        raise SpecInvalidError(issues, source=f"parameters of {label}") from error


def _strict(model: type[BaseModel]) -> type[BaseModel]:
    """``model``, which refuses unknown fields unless it says what becomes of them."""
    if "extra" in model.model_config:
        return model
    strict = {"extra": "forbid"}
    return create_model(
        model.__name__, __base__=model, __module__=model.__module__, __cls_kwargs__=strict
    )


def check(name: str, *, pointer: str | None = None) -> None:
    """Raise InvalidArgumentError for a ``module:attr`` that ``only_modules`` excludes.

    Imports nothing: for code that another process loads later.
    """
    if ":" in name and _importer(TASKS, name) is None:
        _check_allowed(name.rpartition(":")[0], name, pointer)


def absolute(name: str) -> str:
    """``name`` with an absolute path if it is ``file.py:attr`` and the file exists, else itself.

    For a spec that another process loads: a relative path counts from the working directory.
    """
    path, _, attribute = name.rpartition(":")
    is_file = path.endswith(".py") and Path(path).expanduser().is_file()
    return f"{Path(path).expanduser().resolve()}:{attribute}" if is_file else name


def load(group: str, name: str, *, pointer: str | None = None) -> Any:
    """The object behind ``name``; raises InvalidArgumentError that names the known ones."""
    importer = _importer(group, name)
    if importer is not None:
        family = _loaded(importer, name, pointer)(name.partition(":")[2])
        return _checked(group, name, family, pointer)
    if ":" in name:
        return _checked(group, name, _load_attribute(name, pointer), pointer)
    entry = next(iter(_installed(group).select(name=name)), None)
    if entry is None:
        raise InvalidArgumentError(
            f"no {group.removeprefix('troupe.').removesuffix('s')} is called '{name}'; "
            f"{suggest(name, registered(group))} (or give 'module:attr', or 'file.py:attr')",
            pointer=pointer,
        )
    return _loaded(entry, name, pointer)


def _importer(group: str, name: str) -> EntryPoint | None:
    """What makes a task of ``prefix:name``; a module of the same name as a prefix stands behind."""
    prefix, _, rest = name.partition(":")
    if group != TASKS or not rest:
        return None
    return next(iter(_installed(TASK_IMPORTERS).select(name=prefix)), None)


def _installed(group: str) -> EntryPoints:
    """Of all packages; read again where one came or went, since reading them takes some 40 ms."""
    return _read_at(group, tuple((folder, _changed_at(folder)) for folder in sys.path))


@lru_cache(maxsize=16)
def _read_at(group: str, _folders: tuple[tuple[str, int], ...]) -> EntryPoints:
    return entry_points(group=group)


def _changed_at(folder: str) -> int:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0


def constructed(plugin: Any, *arguments: Any, label: str, pointer: str) -> Any:
    """``plugin(*arguments)``; an argument that is None is left out.

    Raises InvalidArgumentError that names the line where the plug-in's own code raises; ``label``
    names the plug-in. What the machine lacks, such as memory, is raised as it is.
    """
    remedy = "correct its code, or the parameters that it was given"
    with _refusing(f"{label} cannot be made", pointer, lambda _: remedy):
        return plugin(*(argument for argument in arguments if argument is not None))


@contextmanager
def _refusing(
    what: str, pointer: str | None, remedy: Callable[[BaseException], str]
) -> Generator[None]:
    """Code of a plug-in runs: what it raises is told with ``what``, the line and ``remedy``."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if not is_of_code(error):
            raise
        if are_limited():
            _log.warning("plugin.refused", what=what, exc_info=error)
        message = f"{what}: {_told(error)}; {remedy(error)}"
        raise InvalidArgumentError(message, pointer=pointer) from error


def _told(error: BaseException) -> str:
    """``error`` in words, and where its author's code raised it.

    Strangers are told what can't be imported; what else the operator's code says is for its log.
    """
    is_plain = isinstance(error, ImportError | SyntaxError | OSError)
    words = str(error) if is_plain else f"{type(error).__name__}: {error}"
    if are_limited():
        kind = getattr(error, "strerror", None) or type(error).__name__
        is_told = is_plain and not isinstance(error, OSError)
        return words if is_told else f"{kind} (the service's log says where)"
    place = raised_in(error)
    return f"{words} (at {place})" if place else words


def _loaded(entry: EntryPoint, name: str, pointer: str | None) -> Any:
    def remedy(error: BaseException) -> str:
        is_missing = isinstance(error, ImportError | AttributeError)
        how = "reinstall" if is_missing else "correct"
        return f"{how} the package that provides it{', with its extras' if is_missing else ''}"

    with _refusing(f"'{name}' ({entry.value}) cannot be imported", pointer, remedy):
        return entry.load()


def _checked(group: str, name: str, plugin: Any, pointer: str | None) -> Any:
    missing = [part for part in _PARTS.get(group, ()) if not hasattr(plugin, part)]
    if not missing and (group not in _PARTS or callable(plugin)):
        return plugin
    kind = group.removeprefix("troupe.").removesuffix("s")
    raise InvalidArgumentError(
        f"'{name}' is no {kind}: it is a {type(plugin).__name__}"
        + (f" without {', '.join(missing)}" if missing else "")
        + f"; name a class that has what a {kind} has",
        pointer=pointer,
    )


def _load_attribute(name: str, pointer: str | None) -> Any:
    module_name, _, attribute = name.rpartition(":")
    _check_allowed(module_name, name, pointer)
    is_file = module_name.endswith(".py")
    remedy = partial(_remedy, module_name)
    with _refusing(f"'{name}' cannot be imported", pointer, remedy):
        module = (
            module_of_file(Path(module_name).expanduser())
            if is_file
            else importlib.import_module(module_name)
        )
        if not is_file and _has_changed(module) and _refuses_changed.get():
            raise InvalidArgumentError(
                f"the file of '{name}' has changed since this process imported it; restart the "
                "platform (`troupe down`, `troupe up`), or name the file, as in "
                f"'{module_name.rpartition('.')[2]}.py:{attribute}', which is loaded anew then",
                pointer=pointer,
            )
        if not hasattr(module, attribute):
            raise InvalidArgumentError(
                f"'{name}' cannot be imported: {module_name} defines no '{attribute}'; "
                f"{suggest(attribute, _defined_in(module))}",
                pointer=pointer,
            )
        plugin = getattr(module, attribute)
    if is_file:
        return plugin
    # An allowed module may import names that are not its own, such as os.system.
    _check_allowed(getattr(plugin, "__module__", None) or module_name, name, pointer)
    return plugin


def _has_changed(module: ModuleType) -> bool:
    """Whether the module's file is another one than when this was first asked, after its import."""
    try:
        digest = sha256(Path(getattr(module, "__file__", None) or "").read_bytes()).hexdigest()
    except OSError:  # built in, in an archive, or removed
        digest = ""
    return _digests.setdefault(module, digest) != digest


def _defined_in(module: ModuleType) -> list[str]:
    """The module's own public names that can be called."""
    return [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")
    ]


def _remedy(module: str, error: BaseException) -> str:
    if not module.endswith(".py"):
        is_missing = isinstance(error, ImportError | ValueError)
        return "check the module path and the attribute" if is_missing else "correct the module"
    if not isinstance(error, OSError) or raised_in(error):
        return "correct the file"
    # A platform reads the files of its own machine.
    return (
        "give the path of a file on this machine, or bring it along from yours: "
        f"troupe submit SPEC --with {Path(module).name}"
    )


def _check_allowed(module: str, name: str, pointer: str | None) -> None:
    limit = _only.get()
    if limit is None:
        return
    is_named = any(module == own or module.startswith(f"{own}.") for own in limit.modules)
    # A path is no module's name, whatever it begins with.
    if is_named and "/" not in module and not module.endswith(".py"):
        return
    may_load = ", ".join(limit.modules) or "registered names alone"
    raise InvalidArgumentError(
        f"'{name}' is code that {limit.refusal.format(modules=may_load)}", pointer=pointer
    )
