"""Translates a pod's status into a state, a named condition and a message for users. Pure.

Conditions are stable names that programs may compare. Details are for people: the cluster's message
and what to do about it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from troupe.runtime.launch.launcher import EXIT_CONFIGURATION, PULLING, QUEUED

Object = dict[str, Any]
State = Literal["running", "waiting", "restarting", "exited", "failed", "absent"]

HELD: Final = (
    "its queue has no room for the whole job yet, or there is no such LocalQueue "
    "(kubectl get localqueues,workloads)"
)


@dataclass(frozen=True, slots=True)
class PodStatus:
    """State and condition of a pod. ``restarts`` counts those of its container inside this pod."""

    state: State
    condition: str = ""
    detail: str = ""
    exit_code: int | None = None
    restarts: int = 0


_WAITING: Final = {
    "ErrImagePull": "ImagePullFailed",
    "ImagePullBackOff": "ImagePullFailed",
    "ErrImageNeverPull": "ImagePullFailed",
    "RegistryUnavailable": "ImagePullFailed",
    "CreateContainerError": "ContainerRefused",
    "RunContainerError": "ContainerRefused",
}
"""A container's waiting reason -> condition."""

_WORDS: Final = (
    (r"exceeded quota", "QuotaExceeded"),
    (
        r"runtimeclass\.\S+ \"|RuntimeClass .*not found|runtimeclass .*not found",
        "RuntimeClassMissing",
    ),
    (r"violates PodSecurity|PodSecurityPolicy", "PodSecurityRefused"),
    (r"serviceaccount .*not found", "ServiceAccountMissing"),
    (r"no PriorityClass", "PriorityClassMissing"),
    (r"forbidden", "Forbidden"),
    (r"persistentvolumeclaim \S+ not found", "VolumeMissing"),
    (r"unbound immediate PersistentVolumeClaims|didn't find available persistent", "VolumeUnbound"),
    (r"Insufficient ", "Unschedulable"),
    (r"[Ss]ecret \S+ not found|couldn't find key .* in Secret", "SecretMissing"),
    (r"[Cc]onfig ?[Mm]ap \S+ not found", "ConfigMapMissing"),
    (r"Multi-Attach|FailedAttachVolume|FailedMount|MountVolume", "VolumeNotMounted"),
    (r"No space left|no space left|Disk quota exceeded", "VolumeFull"),
    (
        r"invalid username-password pair|Authentication required|WRONGPASS|NOAUTH|DENIED Redis",
        "RedisRefused",
    ),
)
"""Pattern in a message of the cluster or of a process -> condition; the first match counts."""

_ADVICE: Final = {
    "QuotaExceeded": "raise the namespace's ResourceQuota, or let other jobs end",
    "RuntimeClassMissing": "install the RuntimeClass, or empty runtimeClassName in the values",
    "PodSecurityRefused": "the namespace's Pod Security level forbids this pod",
    "ServiceAccountMissing": "install the chart again: it makes the service account",
    "PriorityClassMissing": "make the PriorityClass, or empty priorityClassName in the values",
    "Forbidden": "see what the cluster's admission forbids",
    "VolumeMissing": "make the PersistentVolumeClaim, or correct persistence.* in the values",
    "VolumeUnbound": "set persistence.*.storageClassName to a class that can bind it",
    "VolumeNotMounted": "see whether another node still holds the volume",
    "VolumeFull": "enlarge the volume or delete old runs, then resume the job",
    "RedisRefused": "the password in the Secret, or in the URL, must be the one that Redis has",
    "Unschedulable": "ask for less (GPUs, memory, replicas) or add nodes",
    "SecretMissing": "make the Secret in the release's namespace",
    "ConfigMapMissing": "install the chart again",
    "ImagePullFailed": "correct image.registry, the tag or imagePullSecrets",
    "InvalidImageName": "correct image.registry, repository and tag",
    "ContainerRefused": "see `kubectl describe pod`",
    "OutOfMemory": "raise resources.limits.memory of this workload",
    "Evicted": "raise the requests and limits of what the node ran out of",
    "CrashLooping": "see its last words",
    "Misconfigured": "correct the settings that it names",
}
"""Condition -> what to do."""


def with_advice(condition: str, words: str) -> str:
    """``words`` followed by the advice for the condition."""
    advice = _ADVICE.get(condition)
    text = words.strip()
    return f"{text} ({advice})" if advice and text else text or advice or ""


def classify(words: str, default: str) -> str:
    """The condition that ``words`` of the cluster describe."""
    for pattern, condition in _WORDS:
        if re.search(pattern, words):
            return condition
    return default


def status_of(pod: Object, *, events: Sequence[str] = ()) -> PodStatus:
    """The status of one pod; ``events`` are the messages of its latest warnings."""
    status: Object = pod.get("status", {})
    phase = status.get("phase", "Pending")
    container = _first_in_trouble(status)
    restarts = int(container.get("restartCount", 0))
    if phase in ("Succeeded", "Failed"):
        return _ended(status, container, restarts)
    if pod["metadata"].get("deletionTimestamp"):
        return PodStatus("restarting", "Terminating", "its pod is being removed", restarts=restarts)
    state: Object = container.get("state", {})
    if "terminated" in state:
        return _died(state["terminated"], restarts)
    if "waiting" in state:
        found = _waits(state["waiting"], container, restarts, events)
        if found.condition == "Starting" and _is_pulling(status, state["waiting"]):
            words = f"its node pulls {container.get('image', 'an image')}"
            return PodStatus("waiting", PULLING, words, restarts=restarts)
        return found
    if "running" in state:
        last: Object = container.get("lastState", {}).get("terminated", {})
        return PodStatus("running", detail=str(last.get("message") or ""), restarts=restarts)
    return _unplaced(status, events)


def _is_pulling(status: Object, waiting: Object) -> bool:
    """Whether a pod has its network and volumes, so that a container lacks its image alone.

    Kubernetes says so from 1.29 on.
    """
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or []}
    if conditions.get("PodReadyToStartContainers") != "True":
        return False
    made: list[Object] = status.get("initContainerStatuses") or []
    is_made = all("terminated" in container.get("state", {}) for container in made)
    return waiting.get("reason") == "ContainerCreating" or (
        waiting.get("reason") == "PodInitializing" and is_made
    )


def _first_in_trouble(status: Object) -> Object:
    """A pod is as the first of its containers that does not run, and as its first if all do.

    One that makes the pod ready and has done so, or is about to, is no trouble.
    """
    made: list[Object] = status.get("initContainerStatuses") or []
    containers: list[Object] = status.get("containerStatuses") or []
    states = [(container, container.get("state", {})) for container in made]
    stuck = [
        container
        for container, state in states
        if "waiting" in state or state.get("terminated", {}).get("exitCode", 0)
    ]
    troubled = [c for c in containers if "running" not in c.get("state", {})]
    return next(iter([*stuck, *troubled, *containers]), {})


def _ended(status: Object, container: Object, restarts: int) -> PodStatus:
    """A pod whose containers will not run again."""
    ending: Object = container.get("state", {}).get("terminated", {})
    reason = str(status.get("reason", ""))
    if reason and not ending:
        condition = "Evicted" if reason in ("Evicted", "Preempting", "NodeShutdown") else reason
        words = str(status.get("message", reason))
        return PodStatus("restarting", condition, with_advice(condition, words), None, restarts)
    if status["phase"] == "Succeeded" or ending.get("exitCode") == 0:
        return PodStatus("exited", "Completed", str(ending.get("message", "")), 0, restarts)
    return _died(ending, restarts)


def _died(ending: Object, restarts: int) -> PodStatus:
    code = int(ending.get("exitCode", 1))
    words = str(ending.get("message") or "")
    if code == 0:
        return PodStatus("restarting", "Completed", words, 0, restarts)
    if ending.get("reason") == "OOMKilled":
        detail = with_advice("OutOfMemory", "the container was killed for its memory")
        return PodStatus("restarting", "OutOfMemory", detail, code, restarts)
    if code == EXIT_CONFIGURATION:
        return PodStatus("failed", "Misconfigured", words, code, restarts)
    condition = classify(words, "CrashLooping" if restarts else "Crashed")
    detail = with_advice(condition, words) if condition in ("VolumeFull", "RedisRefused") else words
    return PodStatus("restarting", condition, detail, code, restarts)


def _waits(waiting: Object, container: Object, restarts: int, events: Sequence[str]) -> PodStatus:
    """A container that is not running, or not yet."""
    reason, words = str(waiting.get("reason", "")), str(waiting.get("message") or "")
    if reason == "InvalidImageName":
        return PodStatus("failed", reason, with_advice(reason, words or reason))
    if reason == "CrashLoopBackOff":
        return _died(container.get("lastState", {}).get("terminated", {}), restarts)
    if reason == "CreateContainerConfigError":
        condition = classify(words, "ContainerRefused")
        return PodStatus("waiting", condition, with_advice(condition, words), restarts=restarts)
    if reason in _WAITING:
        condition = _WAITING[reason]
        words = words or f"image {container.get('image', '')}: {reason}"
        return PodStatus("waiting", condition, with_advice(condition, words), restarts=restarts)
    for message in events:
        condition = classify(message, "")
        if condition:
            return PodStatus(
                "waiting", condition, with_advice(condition, message), restarts=restarts
            )
    return PodStatus(
        "waiting", "Starting", words or "its container is being made", restarts=restarts
    )


def _unplaced(status: Object, events: Sequence[str]) -> PodStatus:
    """A pod without containers: not scheduled on a node, or only just."""
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            words = str(condition.get("message", "no node takes its pod"))
            if condition.get("reason") == "SchedulingGated":
                return PodStatus("waiting", QUEUED, f"{HELD}; {words}")
            name = classify(words, "Unschedulable")
            return PodStatus("waiting", name, with_advice(name, words))
    for message in events:
        name = classify(message, "")
        if name:
            return PodStatus("waiting", name, with_advice(name, message))
    return PodStatus("waiting", "Starting", "its pod waits for a node or starts on one")
