"""Reads the facts of a bundle's task on the user's machine, in a process that has only the bundle.

Owns the check before a submission: what was forgotten in ``--with`` is missing here as it would be
on the env worker. Runs the user's code, so no service calls it: only whoever wrote the code.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from troupe.bundles.archive import Bundle, unpack
from troupe.bundles.planned import is_bundled
from troupe.spec.bundle import BundleSpec, TaskFacts
from troupe.spec.issues import Issue, SpecInvalidError
from troupe.spec.job import JobSpec
from troupe.tasks.program_ends import PROGRAM_TASK

TIMEOUT_S = 120.0
"""Longest time for loading a task and counting its instances."""


def with_bundle(
    spec: JobSpec, bundle: Bundle, *, root: Path | None = None, timeout_s: float = TIMEOUT_S
) -> JobSpec:
    """``spec`` with its bundle and the facts of its task; what it names is loaded and checked.

    Paths in ``task.name`` and ``reward.kind`` become those inside of the bundle, which was built
    from the same ``root`` (the working directory). The code runs in a new process whose folder
    holds the bundle alone.

    Raises:
        SpecInvalidError: the bundle lacks what the spec names; the code can't be loaded, or does
            not fit the spec; the task is an agent program.
    """
    base = (root or Path.cwd()).resolve()
    task = spec.task.model_copy(update={"name": _inside(spec.task.name, base)})
    reward = spec.reward.model_copy(update={"kind": _inside(spec.reward.kind, base)})
    if reward.strict is not None:
        judge = reward.strict.model_copy(update={"kind": _inside(reward.strict.kind, base)})
        reward = reward.model_copy(update={"strict": judge})
    part = BundleSpec(digest=bundle.digest)
    named = spec.model_copy(update={"task": task, "reward": reward, "bundle": part})
    if issues := bundle_issues(named, bundle):
        raise SpecInvalidError(issues)
    facts = _described(named, bundle, timeout_s)
    facts = facts if is_bundled(named, task.name) else None
    return named.model_copy(update={"bundle": BundleSpec(digest=bundle.digest, task=facts)})


def bundle_issues(spec: JobSpec, bundle: Bundle) -> list[Issue]:
    """What ``bundle`` can't bring to ``spec``: code that it lacks, and agent programs."""
    if spec.task.name == PROGRAM_TASK:
        text = (
            "agent programs don't come in a bundle, whose process may start nothing and open no "
            "socket; have the operator install the program, its judge, score and reward beside the "
            "env services, and submit without --with (docs/programs.md)"
        )
        return [Issue("/task/name", text)]
    strict = spec.reward.strict
    names = {
        "/task/name": spec.task.name,
        "/reward/kind": spec.reward.kind,
        "/reward/strict/kind": strict.kind if strict else "",
    }
    issues: list[Issue] = []
    for pointer, name in names.items():
        module = name.rpartition(":")[0]
        if module and not bundle.holds_module(module):
            shown = ", ".join(sorted(bundle.files)[:10])
            text = (
                f"the bundle has no '{module}' (it has {shown}); with a bundle, 'file.py:attr' and "
                "'module:attr' name its code: add the file with --with"
            )
            issues.append(Issue(pointer, text))
    return issues


def _inside(name: str, base: Path) -> str:
    """``name`` as the bundle has it: an absolute path, or one with '..', becomes relative."""
    path, _, attribute = name.rpartition(":")
    if not path.endswith(".py"):
        return name
    real = (base / Path(path).expanduser()).resolve()
    inside = real.relative_to(base).as_posix() if real.is_relative_to(base) else real.name
    return f"{inside}:{attribute}"


def _described(spec: JobSpec, bundle: Bundle, timeout_s: float) -> TaskFacts:
    request = {
        "task": spec.task.model_dump(mode="json"),
        "reward": spec.reward.model_dump(mode="json"),
    }
    with tempfile.TemporaryDirectory(prefix="troupe-bundle-") as folder:
        place = Path(folder, "bundle")
        unpack(bundle, place)
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "troupe.bundles.facts_process"],
                input=json.dumps(request).encode(),
                stdout=subprocess.PIPE,
                cwd=place,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            text = f"its code was not loaded within {timeout_s:g} s; does importing it end?"
            raise SpecInvalidError([Issue("/task/name", text)]) from error
        finally:
            _make_removable(place)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        text = f"loading its code ended the process (exit status {done.returncode})"
        raise SpecInvalidError([Issue("/task/name", text)]) from error
    if issues := answer.get("issues"):
        raise SpecInvalidError([Issue(pointer, message) for pointer, message in issues])
    return TaskFacts.model_validate(answer["facts"])


def _make_removable(folder: Path) -> None:
    folder.chmod(0o700)
    for inner in folder.rglob("*/"):
        inner.chmod(0o700)
