"""Derives the status of a workload's components from its object and its pods. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from troupe.runtime.launch.launcher import PULLING, QUEUED, ComponentStatus
from troupe_router.cluster import names
from troupe_router.cluster.api import Object
from troupe_router.cluster.pod_status import HELD, PodStatus, classify, status_of, with_advice
from troupe_router.cluster.workloads import Workload


@dataclass(frozen=True, slots=True)
class Observed:
    """A component's status, the pod that it comes from ("" when there is none) and the
    restarts of the container in that pod.
    """

    status: ComponentStatus
    pod_uid: str = ""
    pod_restarts: int = 0


class WorkloadStatus:
    """One observation of a workload: its ``workload_object`` and its ``pods``."""

    def __init__(self, workload: Workload, workload_object: Object, pods: Sequence[Object]) -> None:
        self._workload = workload
        self._object = workload_object
        self._is_job = workload_object["kind"] == "Job"
        self._pods = dict(zip(workload.components, self._assign(pods), strict=True))

    def unclear(self) -> list[str]:
        """Uids of the objects whose warnings tell more: a waiting pod, or its owner."""
        uids: list[str] = []
        for pod in self._pods.values():
            if pod is None:
                uids.append(self._object["metadata"]["uid"])
            elif status_of(pod).condition in ("Starting", PULLING):
                uids.append(pod["metadata"]["uid"])
        return list(dict.fromkeys(uids))

    def statuses(self, warnings: Mapping[str, Sequence[str]]) -> list[Observed]:
        """The components' states; ``warnings`` are messages by the uid of their object."""
        observed: list[Observed] = []
        for name, pod in self._pods.items():
            uid = pod["metadata"]["uid"] if pod else ""
            if pod is None or self._object["metadata"].get("deletionTimestamp"):
                # A pod of an object that is being removed does not count.
                verdict = self._without_pod(warnings.get(self._object["metadata"]["uid"], ()))
            else:
                verdict = status_of(pod, events=warnings.get(uid, ()))
            observed.append(Observed(self._status(name, verdict), uid, verdict.restarts))
        return observed

    def _assign(self, pods: Sequence[Object]) -> list[Object | None]:
        """Each replica's pod: a StatefulSet's by name, a Job's newest that still counts."""
        if self._is_job:
            return [self._of_job([pod for pod in pods if self._owns(pod)])]
        by_name = {pod["metadata"]["name"]: pod for pod in pods}
        name = self._object["metadata"]["name"]
        return [by_name.get(f"{name}-{ordinal}") for ordinal in range(self._workload.count)]

    def _of_job(self, pods: Sequence[Object]) -> Object | None:
        """The pod that represents a Job; of an indexed Job, the first that does not run.

        The pods of a multi-node trainer are one replica: each waits for all.
        """
        # Final, though servers without podFailurePolicy make another pod, which would fail again.
        if misconfigured := [pod for pod in pods if status_of(pod).condition == "Misconfigured"]:
            return _newest(misconfigured)
        if self._object["spec"].get("completionMode") != "Indexed":
            return _newest(pods)
        by_index: list[list[Object]] = [[] for _ in range(self._object["spec"]["completions"])]
        for pod in pods:
            by_index[int(pod["metadata"]["labels"][names.COMPLETION_INDEX])].append(pod)
        newest = [_newest(replicas) for replicas in by_index]
        halting = (pod for pod in newest if pod is None or status_of(pod).state != "running")
        return next(halting, newest[0])

    def _owns(self, pod: Object) -> bool:
        uid = self._object["metadata"]["uid"]
        return any(o["uid"] == uid for o in pod["metadata"].get("ownerReferences", []))

    def _without_pod(self, warnings: Sequence[str]) -> PodStatus:
        if self._object["metadata"].get("deletionTimestamp"):
            return PodStatus("absent", "Terminating", "its earlier object is being removed")
        if self._object["spec"].get("suspend"):
            return PodStatus("waiting", QUEUED, HELD)
        for message in warnings:
            condition = classify(message, "")
            if condition:
                return PodStatus("waiting", condition, with_advice(condition, message))
        return PodStatus("waiting", "Starting", "its pod is not made yet")

    def _status(self, name: str, verdict: PodStatus) -> ComponentStatus:
        """The pod's verdict, completed from the workload's object."""
        restarts, state = verdict.restarts, verdict.state
        condition, detail = verdict.condition, verdict.detail
        if self._is_job:
            annotations = self._object["metadata"].get("annotations") or {}
            restarts += int(annotations.get(names.RESTARTS, "0"))
            restarts += int(self._object.get("status", {}).get("failed", 0))
            if verdict.state == "restarting" and restarts > 0 and _is_counted(verdict):
                restarts -= 1
            if failure := is_finished(self._object, "Failed"):
                state = "failed"
                condition = condition or "JobFailed"
                detail = f"{failure}\n{detail}".strip()
        if state == "exited" and self._workload.restarts:
            state = "restarting"
        if state == "running":
            condition = ""
        return ComponentStatus(name, state, None, restarts, verdict.exit_code, detail, condition)


def _newest(pods: Sequence[Object]) -> Object | None:
    by_age = sorted(pods, key=_age)
    living = [pod for pod in by_age if is_living(pod)]
    return living[-1] if living else by_age[-1] if by_age else None


def is_living(pod: Object) -> bool:
    """Whether a pod's containers run or may still run."""
    return pod.get("status", {}).get("phase", "Pending") not in ("Succeeded", "Failed")


def is_finished(job: Object, how: str) -> str:
    """Why a Job has the condition ``how`` ("Complete", "Failed"), or "" when it does not."""
    for condition in job.get("status", {}).get("conditions") or []:
        if condition.get("type") == how and condition.get("status") == "True":
            return str(condition.get("message") or condition.get("reason") or how)
    return ""


def _is_counted(verdict: PodStatus) -> bool:
    """Whether the Job's failure count already includes this pod's death."""
    return verdict.exit_code not in (None, 0)


def _age(pod: Object) -> tuple[str, str]:
    return pod["metadata"].get("creationTimestamp", ""), pod["metadata"]["name"]
