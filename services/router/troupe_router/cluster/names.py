"""Deterministic names and labels of a job's objects in the cluster. Pure."""

import hashlib
import re
from typing import Final

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LAUNCHER: Final = "troupe-launcher"
RELEASE: Final = "troupe.dev/release"
OWNER: Final = "troupe.dev/job"
WORKLOAD: Final = "troupe.dev/workload"
DIGEST: Final = "troupe.dev/digest"
RESTARTS: Final = "troupe.dev/restarts"
MODELS: Final = "troupe.dev/models"
GPU_RESOURCE: Final = "troupe.dev/gpu-resource"
PROGRAM_REPOSITORIES: Final = "troupe.dev/program-repositories"
PROGRAM_CONTAINERS: Final = ("program", "program-host")
KUEUE: Final = "kueue.x-k8s.io/"
QUEUE: Final = "kueue.x-k8s.io/queue-name"
POD_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
POD_GROUP_SIZE: Final = "kueue.x-k8s.io/pod-group-total-count"
COMPONENT: Final = "app.kubernetes.io/component"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"

_LONGEST = 48
"""A StatefulSet's name plus its revision hash must fit into a label's 63 characters."""
_HASH = 8


def object_name(release: str, owner: str, workload: str = "") -> str:
    """A DNS label for a job's object; two owners of one release never share one.

    Of two releases they may (``math-x-1`` of ``troupe``, ``x-1`` of ``troupe-math``). A running
    job's anchor is found by this name, so another scheme would lose it in an upgrade.

    Example: ``object_name("troupe", "demo-1", "trainer") == "troupe-demo-1-trainer"``.
    """
    wanted = "-".join(part for part in (release, owner, workload) if part)
    plain = re.sub(r"[^a-z0-9-]", "-", wanted.lower()).strip("-")
    if plain == wanted and len(plain) <= _LONGEST:
        return plain
    digest = hashlib.blake2b(wanted.encode(), digest_size=_HASH // 2).hexdigest()
    return f"{plain[: _LONGEST - _HASH - 1].rstrip('-')}-{digest}"


def label(value: str) -> str:
    """``value`` as a label's value: at most 63 characters of those that are allowed."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", value)
    if plain == value and len(plain) <= 63 and plain[:1].isalnum() and plain[-1:].isalnum():
        return plain
    digest = hashlib.blake2b(value.encode(), digest_size=_HASH // 2).hexdigest()
    return f"{plain[:50].strip('_.-') or 'x'}-{digest}"


def labels(release: str, owner: str, workload: str = "") -> dict[str, str]:
    """The labels by which the launcher finds its objects again."""
    owner_labels = {MANAGED_BY: LAUNCHER, RELEASE: label(release), OWNER: label(owner)}
    return {**owner_labels, WORKLOAD: label(workload)} if workload else owner_labels


def selector(release: str) -> str:
    """The label selector of everything that the launchers of one release created."""
    return f"{MANAGED_BY}={LAUNCHER},{RELEASE}={label(release)}"
