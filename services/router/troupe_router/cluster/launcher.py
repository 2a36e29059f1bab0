"""Runs a job's components as objects of a Kubernetes cluster.

Level-triggered: each look compares what should be with a mirror of what is, and takes one step.
An anchor (a ConfigMap named after the job) is made first and owns the rest, so whatever is left
over goes with it. Owns the job's objects alone. Never touches an object that it did not label.
"""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Sequence

from troupe.errors import InvalidArgumentError, NotFoundError, TroupeError
from troupe.retry import STEADY, Backoff
from troupe.runtime.launch.launcher import Component, ComponentStatus
from troupe.runtime.telemetry.logging import get_logger
from troupe_router.cluster import names, templates
from troupe_router.cluster.api import (
    CONFIG_MAP,
    EVENT,
    JOB,
    POD,
    STATEFUL_SET,
    ClusterApi,
    Kind,
    Object,
)
from troupe_router.cluster.informer import Informer
from troupe_router.cluster.restarts import RestartHistory
from troupe_router.cluster.workload_status import WorkloadStatus, is_finished, is_living
from troupe_router.cluster.workloads import Workload, group
from troupe_router.cluster.writer import Blocked, Writer

_log = get_logger(__name__)
_KINDS = {"Job": JOB, "StatefulSet": STATEFUL_SET}
_POLL_S = 0.05
_BACKOFF = Backoff(1.0, 30.0, STEADY)
_SNAPSHOT = "templates.json"


class KubernetesLauncher:
    """A Launcher of the release whose templates are in the ConfigMap ``templates_name``.

    Example: ``KubernetesLauncher(ClusterApi(configuration, "rl"), release="troupe")``.
    """

    outlives_caller = True

    def __init__(
        self,
        api: ClusterApi,
        *,
        release: str,
        templates_name: str = "",
        history: RestartHistory | None = None,
        resync_s: float = 300.0,
        events_every_s: float = 2.0,
    ) -> None:
        self._api = api
        self._release = release
        self._templates_name = templates_name or f"{release}-launcher"
        self._history = history or RestartHistory()
        self._events_every_s = events_every_s
        kinds = (CONFIG_MAP, JOB, STATEFUL_SET, POD)
        self._mirror = Informer(api, kinds, labels=names.selector(release), resync_s=resync_s)
        self._writer = Writer(api, self._mirror)
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._pauses: dict[tuple[str, str], tuple[float, int, Blocked]] = {}
        self._events: dict[str, tuple[float, list[str]]] = {}

    async def close(self) -> None:
        """End the watches; what runs in the cluster goes on."""
        await self._mirror.close()
        await self._api.close()

    async def reconcile(self, owner: str, desired: Sequence[Component]) -> list[ComponentStatus]:
        """Start what is missing, adopt what runs, restart what died, stop the rest.

        Raises UnavailableError while the API server is away.
        """
        async with self._locks[owner]:
            await self._mirror.start(timeout_s=10.0)
            self._mirror.check_fresh()
            try:
                workloads = group(desired)
                anchor = await self._anchor(owner)
                known = templates.parse(anchor["data"][_SNAPSHOT], source=f"templates of {owner}")
            except InvalidArgumentError as error:
                why = Blocked("InvalidTemplate", error.message, is_final=True)
                return [_blocked(component.name, why) for component in desired]
            except Blocked as why:
                return [_blocked(component.name, why) for component in desired]
            await self._prune(owner, workloads)
            found: dict[str, ComponentStatus] = {}
            for workload in workloads:
                for status in await self._step(owner, workload, anchor, known):
                    found[status.name] = status
            return [found[component.name] for component in desired]

    async def owners(self) -> list[str]:
        """Whoever has objects in the cluster, by name."""
        found = (await self._api.list(CONFIG_MAP, labels=names.selector(self._release)))[0]
        return sorted(each.get("data", {}).get("job", "") for each in found)

    async def stop(self, owner: str, *, grace_s: float) -> None:
        """End every component of the owner: SIGTERM, then SIGKILL after ``grace_s``.

        Returns when the pods are gone, or ``grace_s`` and a while later: a node that is lost
        reports no end, and the cluster goes on removing what is marked for it.
        """
        async with self._locks[owner]:
            mine = f"{names.selector(self._release)},{names.OWNER}={names.label(owner)}"
            for kind in (JOB, STATEFUL_SET):
                for found in (await self._api.list(kind, labels=mine))[0]:
                    await self._writer.delete(kind, found)
            await self._end_pods(mine, grace_s)
            for found in (await self._api.list(CONFIG_MAP, labels=mine))[0]:
                await self._writer.delete(CONFIG_MAP, found)
            self._history.forget(owner)
            for key in [key for key in self._pauses if key[0] == owner]:
                del self._pauses[key]

    async def _end_pods(self, mine: str, grace_s: float) -> None:
        """Delete pods until there are none: a controller may have made one more meanwhile."""
        deadline = time.monotonic() + grace_s + 10.0
        asked: set[str] = set()
        while True:
            pods = (await self._api.list(POD, labels=mine))[0]
            if not pods:
                return
            for pod in pods:
                if pod["metadata"]["uid"] not in asked:
                    asked.add(pod["metadata"]["uid"])
                    await self._writer.delete(POD, pod, grace_s=grace_s)
            if time.monotonic() > deadline:
                left = [pod["metadata"]["name"] for pod in pods]
                _log.warning("launcher.pods_still_end", pods=left)
                return
            await asyncio.sleep(_POLL_S)

    async def _anchor(self, owner: str) -> Object:
        """The ConfigMap that owns the job's objects, with the templates it began with.

        A job keeps its templates for its life: an upgrade of the chart restarts no running job.
        """
        name = names.object_name(self._release, owner)
        found = self._mirror.find(CONFIG_MAP, name)
        if found is None:
            found = await self._make_anchor(owner, name)
        if found["metadata"].get("deletionTimestamp"):
            raise Blocked("Terminating", f"the objects of an earlier life of {owner} are removed")
        if found["metadata"].get("labels", {}).get(names.OWNER) != names.label(owner):
            raise Blocked(
                "NameTaken",
                f"ConfigMap {name} is not of this job; delete it or rename the release",
                is_final=True,
            )
        return found

    async def _make_anchor(self, owner: str, name: str) -> Object:
        try:
            source = await self._api.get(CONFIG_MAP, self._templates_name)
        except NotFoundError as error:
            raise Blocked(
                "TemplatesMissing",
                f"ConfigMap {self._templates_name} is not in namespace {self._api.namespace}; "
                "install the chart with launcher.kind: kubernetes",
                is_final=True,
            ) from error
        text = source.get("data", {}).get(templates.TEMPLATES_KEY, "")
        known = templates.parse(text, source=f"ConfigMap {self._templates_name}")
        body = {
            "metadata": {
                "name": name,
                "labels": names.labels(self._release, owner),
                "ownerReferences": [_reference(source, CONFIG_MAP)],
            },
            "data": {"job": owner, _SNAPSHOT: json.dumps(known)},
        }
        return await self._writer.create(CONFIG_MAP, body)

    async def _prune(self, owner: str, workloads: Sequence[Workload]) -> None:
        """Delete the objects of workloads that are not wanted any more."""
        wanted = {names.label(workload.name) for workload in workloads}
        for kind in (JOB, STATEFUL_SET):
            for found in self._mirror.all(kind, **{names.OWNER: names.label(owner)}):
                is_leaving = found["metadata"].get("deletionTimestamp")
                if found["metadata"]["labels"].get(names.WORKLOAD) in wanted or is_leaving:
                    continue
                await self._writer.delete(kind, found)
                self._mirror.drop(kind, found["metadata"]["name"])

    async def _step(
        self, owner: str, workload: Workload, anchor: Object, known: Sequence[Object]
    ) -> list[ComponentStatus]:
        """Bring one workload one step closer to what it should be; what it is then."""
        key = (owner, workload.name)
        paused = self._pauses.get(key)
        if paused and time.monotonic() < paused[0]:
            return [_blocked(name, paused[2]) for name in workload.components]
        try:
            found = await self._bring(owner, workload, anchor, known)
        except Blocked as why:
            times = paused[1] + 1 if paused else 1
            self._pauses[key] = (time.monotonic() + _BACKOFF.pause_s(times), times, why)
            return [_blocked(name, why) for name in workload.components]
        self._pauses.pop(key, None)
        reading = WorkloadStatus(workload, found, self._pods(owner, workload))
        warnings = {uid: await self._warnings(uid) for uid in reading.unclear()}
        return [self._history.note(owner, status) for status in reading.statuses(warnings)]

    def _pods(self, owner: str, workload: Workload) -> list[Object]:
        own = {names.OWNER: names.label(owner), names.WORKLOAD: names.label(workload.name)}
        return self._mirror.all(POD, **own)

    async def _bring(
        self, owner: str, workload: Workload, anchor: Object, known: Sequence[Object]
    ) -> Object:
        """The workload's object, made, replaced or deleted as it needs."""
        try:
            template = templates.choose(known, workload)
            wanted = templates.render(
                template,
                workload,
                release=self._release,
                owner=owner,
                anchor=_reference(anchor, CONFIG_MAP),
            )
        except InvalidArgumentError as error:
            raise Blocked("InvalidTemplate", error.message, is_final=True) from error
        kind = _KINDS[wanted["kind"]]
        found = self._mirror.find(kind, wanted["metadata"]["name"])
        if found is None:
            if kind is JOB and any(map(is_living, self._pods(owner, workload))):
                raise Blocked("Terminating", f"the pod of an earlier {workload.name} still ends")
            return await self._writer.create(kind, wanted)
        if found["metadata"].get("deletionTimestamp"):
            return found
        if kind is JOB:
            return await self._renew_job(found, wanted, workload)
        if _annotation(found, names.DIGEST) != _annotation(wanted, names.DIGEST):
            return await self._writer.replace(kind, wanted)
        return found

    async def _renew_job(self, found: Object, wanted: Object, workload: Workload) -> Object:
        """A Job is never changed: another one takes its place when it is out of date or over."""
        is_same = _annotation(found, names.DIGEST) == _annotation(wanted, names.DIGEST)
        is_over = is_finished(found, "Complete") and workload.restarts
        if is_same and not is_over:
            return found
        await self._writer.delete(JOB, found)
        if not is_same:
            return {**found, "metadata": {**found["metadata"], "deletionTimestamp": "now"}}
        carried = int(_annotation(found, names.RESTARTS) or "0") + 1
        wanted["metadata"]["annotations"][names.RESTARTS] = str(carried)
        self._mirror.drop(JOB, found["metadata"]["name"])
        return await self._writer.create(JOB, wanted)

    async def _warnings(self, uid: str) -> list[str]:
        """Messages of the latest warnings about an object, newest first; asked for now and then."""
        asked_at, known = self._events.get(uid, (0.0, []))
        if time.monotonic() - asked_at < self._events_every_s:
            return known
        fields = f"involvedObject.uid={uid},type=Warning"
        try:
            events = (await self._api.list(EVENT, fields=fields))[0]
        except TroupeError as error:
            _log.warning("launcher.no_events", error=error.message)
            events = []
        events.sort(key=lambda event: event.get("lastTimestamp") or "", reverse=True)
        messages = [f"{event.get('reason')}: {event.get('message')}" for event in events]
        while len(self._events) > 1000:
            self._events.pop(next(iter(self._events)))
        self._events[uid] = (time.monotonic(), messages)
        return messages


def _blocked(name: str, why: Blocked) -> ComponentStatus:
    state = "failed" if why.is_final else "absent"
    return ComponentStatus(name, state, None, 0, None, why.detail, why.condition)


def _reference(found: Object, kind: Kind) -> dict[str, str]:
    metadata = found["metadata"]
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def _annotation(found: Object, name: str) -> str:
    return (found["metadata"].get("annotations") or {}).get(name, "")
