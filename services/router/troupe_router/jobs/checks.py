"""Checks of a job before anything starts: names, models, folders."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from troupe import plugins
from troupe.bundles.planned import is_bundled
from troupe.durable import make_folder
from troupe.episodes.build import JobParts, layout_of, load_parts, refuse_what_cannot_spread
from troupe.errors import InvalidArgumentError
from troupe.ids import is_hub_id
from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.tracking.options import tracker_issues
from troupe.spec import Issue, JobSpec, SpecInvalidError
from troupe.spec.architecture import architecture_issues
from troupe.spec.checks import submission_issues
from troupe.spec.context import context_issues
from troupe.spec.dtypes import with_dtypes
from troupe.spec.layout import with_layout
from troupe.spec.policy import PolicySpec
from troupe.spec.vision import vision_issues
from troupe.tasks.family import TaskFamily
from troupe_router.jobs.allowlist import Allowlist
from troupe_router.jobs.secrets import secret_issues
from troupe_router.settings import RouterSettings

_log = get_logger(__name__)
_LONGEST_PATH, _LONGEST_NAME = 4000, 255
"""Of Linux, in bytes: asking for a longer one is an error of its own."""
_OWN_FOLDERS = frozenset({"models", "runs", "checkpoints"})


def resolve(spec: JobSpec, allowed: Allowlist) -> tuple[JobSpec, JobParts]:
    """The spec with absolute model folders, and everything that it names, loaded.

    A hub id that was downloaded here becomes its folder. Raises SpecInvalidError with every fault
    that was found.
    """
    spec = with_copies(spec, allowed.copies)
    faults = model_issues(spec, allowed)
    if not faults:  # so these folders may be read
        policies = {name: _resolved(policy) for name, policy in spec.policies.items()}
        spec = spec.model_copy(update={"policies": policies})
        faults = [*context_issues(spec), *vision_issues(spec), *architecture_issues(spec)]
    return spec, _parts(spec, allowed, [*submission_issues(spec), *faults])


def resolve_here(spec: JobSpec, settings: RouterSettings) -> tuple[JobSpec, JobParts]:
    """``resolve`` as this router allows; where no ``dtype`` is set, its platform's."""
    if settings.gpus or settings.trainer_gpus:
        spec = with_dtypes(spec)
    return resolve(spec, Allowlist.from_settings(settings))


def with_copies(spec: JobSpec, copies: Mapping[str, str]) -> JobSpec:
    """The spec with folders in the place of the hub ids that ``copies`` has."""
    if not copies:
        return spec

    def placed(models: Mapping[str, str | None]) -> dict[str, str]:
        return {
            field: copies[model] for field, model in models.items() if model and model in copies
        }

    policies = {
        name: policy.model_copy(update=placed(policy.models()))
        for name, policy in spec.policies.items()
    }
    algorithm = spec.algorithm
    if (critic := algorithm.critic) is not None:
        critic = critic.model_copy(update=placed({"model": critic.model}))
        algorithm = algorithm.model_copy(update={"critic": critic})
    return spec.model_copy(update={"policies": policies, "algorithm": algorithm})


def check_playable(spec: JobSpec, allowed: Allowlist) -> None:
    """Raise SpecInvalidError with every fault of the spec but those of its models."""
    _parts(spec, allowed, [])


def parts_to_show(spec: JobSpec, allowed: Allowlist) -> JobParts | None:
    """What the spec of a recorded job names, loaded; None where this router does not load it.

    The spec may come from a run folder that was never checked, and the job's own code may have been
    changed or removed since.
    """
    with plugins.only_modules(allowed.modules):
        try:
            return None if _data_issues(spec, allowed) else load_parts(spec)
        except Exception as error:  # a file of a job can raise anything
            _log.info("job.not_loaded", job=spec.name, error=f"{type(error).__name__}: {error}")
            return None


def model_issues(spec: JobSpec, allowed: Allowlist) -> list[Issue]:
    """The models of the spec that are neither folders, which may be read, nor hub ids."""
    return [
        Issue(pointer, fault)
        for pointer, model in with_copies(spec, allowed.copies).models().items()
        if (fault := _model_fault(model, allowed))
    ]


def _resolved(policy: PolicySpec) -> PolicySpec:
    folders = {field: Path(model) for field, model in policy.models().items()}
    resolved = {field: str(path.resolve()) for field, path in folders.items() if path.is_dir()}
    return policy.model_copy(update=resolved)


def _parts(spec: JobSpec, allowed: Allowlist, faults: Sequence[Issue]) -> JobParts:
    """Everything that the spec names, loaded; ``faults`` are reported with the others."""
    with plugins.only_modules(allowed.modules), plugins.refuse_changed():
        return _loaded(spec, allowed, faults)


def _loaded(spec: JobSpec, allowed: Allowlist, faults: Sequence[Issue]) -> JobParts:
    issues = [*secret_issues(spec), *faults, *_tracker_issues(spec, allowed)]
    if strange := _data_issues(spec, allowed):
        # Making the task would read them.
        raise SpecInvalidError([*issues, *strange])
    parts: JobParts | None = None
    try:
        parts = load_parts(spec)
    except SpecInvalidError as error:
        issues += error.issues
    except InvalidArgumentError as error:
        issues.append(Issue(error.pointer or "", error.message))
    except OSError as error:
        why = error.strerror or type(error).__name__
        issues.append(Issue("/task/params", f"a file of the task can't be opened ({why})"))
    if parts is None or issues:
        raise SpecInvalidError(issues)
    return parts


def check_trainer_gpus(parts: JobParts, most: int) -> None:
    """Raise SpecInvalidError for a job whose trainers can't have their ranks here.

    ``most`` are the GPUs of a trainer of this installation; 0: not known.
    """
    asked = parts.spec.trainer.gpus
    if most and asked and asked > most:
        message = f"a trainer has {most} GPUs here (TROUPE_ROUTER_TRAINER_GPUS); give at most those"
        raise SpecInvalidError([Issue("/trainer/gpus", message)])
    refuse_what_cannot_spread(parts.spec, parts.algorithm, asked or most or 1)


def laid_out(
    parts: JobParts, settings: RouterSettings, *, max_replicas: int | None = None
) -> JobParts:
    """The job with the replicas and ranks that the GPUs of this installation give it.

    ``max_replicas`` are those of the quota. Unchanged where no GPUs are set. Raises
    InvalidArgumentError for a job that does not fit them.
    """
    if not settings.gpus:
        return parts
    layout = layout_of(
        parts,
        settings.gpus,
        settings.gpu_gb,
        max_replicas=max_replicas,
        max_ranks=settings.trainer_gpus or None,
    )
    return replace(parts, spec=with_layout(parts.spec, layout))


def check_runs_dir(runs_dir: Path) -> None:
    """Raise InvalidArgumentError unless run folders can be made in ``runs_dir``."""
    try:
        make_folder(runs_dir)
    except OSError as error:
        raise InvalidArgumentError(
            f"the run folder {runs_dir} cannot be made ({error.strerror}); "
            "set TROUPE_ROUTER_RUNS_DIR to a folder that the router may write"
        ) from error
    if not os.access(runs_dir, os.W_OK | os.X_OK):
        raise InvalidArgumentError(
            f"the run folder {runs_dir} is not writable; "
            "give the router write access or set TROUPE_ROUTER_RUNS_DIR to another folder"
        )


def _tracker_issues(spec: JobSpec, allowed: Allowlist) -> list[Issue]:
    """Trackers and options that are unknown, and addresses that they may not talk to."""
    issues = tracker_issues(spec)
    for index, tracker in enumerate(spec.trackers):
        for option, value in tracker.options.items():
            if isinstance(value, str) and "://" in value and (why := allowed.tracker_fault(value)):
                issues.append(Issue(f"/trackers/{index}/options/{option}", why))
    return issues


def _data_issues(spec: JobSpec, allowed: Allowlist) -> list[Issue]:
    """Paths among the task's parameters that it may not read; other faults are found later.

    A bundle's task reads in its own process alone, and its parameters are not known here.
    """
    if is_bundled(spec, spec.task.name):
        return []
    try:
        family: type[TaskFamily] = plugins.load(plugins.TASKS, spec.task.name)
        params = family.Params.model_validate(spec.task.params).model_dump()
    except (InvalidArgumentError, ValidationError):
        return []
    return [
        Issue(pointer, fault)
        for pointer, path in _paths("/task/params", params)
        if (fault := allowed.data_fault(path))
    ]


def _paths(pointer: str, value: Any) -> Iterator[tuple[str, Path]]:
    """The paths in a parameter's value, with their pointers."""
    if isinstance(value, Path):
        yield pointer, value
    elif isinstance(value, Mapping):
        for name, inner in cast("Mapping[Any, Any]", value).items():
            yield from _paths(f"{pointer}/{name}", inner)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(cast("Sequence[Any]", value)):
            yield from _paths(f"{pointer}/{index}", inner)


def _model_fault(model: str, allowed: Allowlist) -> str | None:
    """Why ``model`` can be neither a local model folder nor a hub id, or None.

    A folder that is not allowed is not read: the answer would reveal its content.
    """
    if "\0" in model or not _may_be_path(model):
        return (
            f"'{model[:80]}...' is too long for a folder or a hub id, or holds a zero byte; check "
            "the model's name"
        )
    folder = Path(model)
    is_path = model.startswith((".", "/", "~")) or (len(folder.parts) > 1 and _is_local(folder))
    if (is_path or folder.exists()) and (fault := allowed.folder_fault(folder)):
        return fault
    if folder.is_dir():
        if (folder / "config.json").is_file():
            return None
        return f"'{model}' is a folder without config.json, so it is not a transformers model"
    if folder.exists():
        return f"'{model}' is a file; give the model's folder"
    if model in allowed.copies.values():
        return (
            f"'{model}' is not there yet: it is still downloaded (the chart's models.download), or "
            "that failed; look at the download's Job, and submit again"
        )
    if is_path:
        return f"no folder '{model}' (looked from {Path.cwd()}); check the path"
    if not is_hub_id(model):
        return f"'{model}' is neither an existing folder nor a hub id such as 'Qwen/Qwen3-0.6B'"
    return allowed.hub_fault(model)


def _may_be_path(model: str) -> bool:
    text = os.fsencode(model)
    longest = max(len(part) for part in text.split(b"/"))
    return len(text) <= _LONGEST_PATH and longest <= _LONGEST_NAME


def _is_local(folder: Path) -> bool:
    """Whether a name is meant as a relative path: its first part is a folder, or a usual name."""
    return folder.parts[0] in _OWN_FOLDERS or Path(folder.parts[0]).is_dir()
