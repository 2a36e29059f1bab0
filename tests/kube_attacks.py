"""Ways to reach a Secret that the router's rights in the cluster would open, as requests.

Each changes a workload that the launcher makes in one point, or is a request of another kind. The
policy of the chart must refuse each: tests/chart evaluates its CEL on them, tests/k8s sends them.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from troupe.spec import JobSpec
from troupe_router.cluster import names, templates
from troupe_router.cluster.workloads import group
from troupe_router.jobs.processes import components
from troupe_router.settings import RouterSettings

Object = dict[str, Any]
RELEASE = "t-troupe"
OTHER = "not-of-troupe"
"""Name of a Secret, ConfigMap, claim, account, pod and so on that the chart names for no job."""

_TRAINER, _ENV = "trainer", "env"
_SAFE = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_SELECTED = {"selector": {"matchLabels": {"app": "x"}}}
_PLAIN_POD = {"containers": [{"name": "x", "image": "troupe/env:1"}]}
_POD_OF_SECRET = {
    "containers": [
        {"name": "x", "image": "troupe/env:1", "envFrom": [{"secretRef": {"name": OTHER}}]}
    ]
}


@dataclass(frozen=True)
class Request:
    """What an API server is asked: an operation on a resource, and the object if there is one."""

    name: str
    operation: str
    group: str
    resource: str
    body: Object | None = None
    target: str = ""
    subresource: str = ""
    old: Object | None = field(default=None, repr=False)

    def path(self, namespace: str) -> str:
        """Where it goes."""
        base = f"/apis/{self.group}" if "/" in self.group else f"/api/{self.group}"
        parts = [self.resource, self.target, self.subresource]
        return "/".join([f"{base}/namespaces/{namespace}", *filter(None, parts)])


def launched(workloads: str, spec: JobSpec, release: str = RELEASE) -> list[Request]:
    """What the launcher itself sends for a job: the anchor, and its workloads."""
    settings = RouterSettings(launcher="kubernetes", env_replicas=2)
    given = templates.parse(workloads, source="rendered")
    anchor = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"}
    made: list[Request] = [_create(_anchor(release))]
    for workload in group(components("demo-1", spec, settings, router="10.0.0.9:8481")):
        template = templates.choose(given, workload)
        filled = templates.render(
            template, workload, release=release, owner="demo-1", anchor=anchor
        )
        made.append(_create(filled))
        if filled["kind"] == "StatefulSet":
            made.append(_replace(filled, filled))
        made.append(_delete(filled))
    pod = {"metadata": {"name": f"{release}-x", "labels": names.labels(release, "demo-1")}}
    made.append(Request("delete pod", "DELETE", "v1", "pods", None, f"{release}-x", "", pod))
    return [*made, _delete(_anchor(release))]


def workload_attacks(own: list[Request]) -> list[Request]:
    """Each change of CHANGES, in the Job and in a StatefulSet of ``own``."""
    made: list[Request] = []
    creates = {r.body["kind"]: r.body for r in own if r.operation == "CREATE" and r.body}
    for name, change in CHANGES.items():
        for kind in ("Job", "StatefulSet"):
            body = copy.deepcopy(creates[kind])
            change(body)
            if body == creates[kind]:
                continue  # this change is of the other kind
            body["metadata"]["name"] += "-x"
            made.append(_create(body, f"{kind}: {name}"))
    old = copy.deepcopy(creates["StatefulSet"])
    changed = copy.deepcopy(old)
    CHANGES["a volume of another Secret"](changed)
    return [*made, _replace(old, changed, "StatefulSet: a volume of another Secret, by an update")]


def other_attacks(release: str = RELEASE) -> list[Request]:
    """Requests beside workloads, some of which the chart's role refuses as well."""
    labels = names.labels(release, "demo-1")
    meta = {"name": f"{release}-demo-1-x", "labels": labels}
    template = {"metadata": {"labels": {"app": "x"}}, "spec": _POD_OF_SECRET}
    never = {**template, "spec": {**_POD_OF_SECRET, "restartPolicy": "Never"}}
    plain = {"metadata": {"labels": {"app": "x"}}, "spec": _PLAIN_POD}
    theirs = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": OTHER},
        "spec": {**_SELECTED, "serviceName": "x", "template": plain},
    }
    adopted = copy.deepcopy(theirs)
    adopted["metadata"]["labels"] = labels
    bodies: list[tuple[str, str, str, Object]] = [
        ("v1", "pods", "Pod", {"spec": _POD_OF_SECRET}),
        ("v1", "podtemplates", "PodTemplate", {"template": template}),
        (
            "v1",
            "replicationcontrollers",
            "ReplicationController",
            {"spec": {"selector": {"app": "x"}, "template": template}},
        ),
        ("apps/v1", "deployments", "Deployment", {"spec": {**_SELECTED, "template": template}}),
        ("apps/v1", "daemonsets", "DaemonSet", {"spec": {**_SELECTED, "template": template}}),
        ("apps/v1", "replicasets", "ReplicaSet", {"spec": {**_SELECTED, "template": template}}),
        (
            "batch/v1",
            "cronjobs",
            "CronJob",
            {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": never}}}},
        ),
        ("v1", "serviceaccounts", "ServiceAccount", {}),
        (
            "v1",
            "secrets",
            "Secret",
            {
                "type": "kubernetes.io/service-account-token",
                "metadata": {
                    **meta,
                    "annotations": {"kubernetes.io/service-account.name": OTHER},
                },
            },
        ),
        ("v1", "services", "Service", {"spec": {"selector": {"app": "x"}, "ports": [{"port": 1}]}}),
    ]
    created = [
        Request(
            f"create {kind}",
            "CREATE",
            version,
            resource,
            {"apiVersion": version, "kind": kind, "metadata": meta, **body},
        )
        for version, resource, kind, body in bodies
    ]
    unnamed = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": OTHER, "labels": labels},
    }
    unlabelled = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{release}-x"}}
    known = {"apiVersion": "v1", "metadata": {"name": OTHER}}
    token = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {"name": OTHER},
        "spec": {},
    }
    return [
        *created,
        Request("token of an account", "CREATE", "v1", "serviceaccounts", token, OTHER, "token"),
        Request("exec into a pod", "CONNECT", "v1", "pods", None, OTHER, "exec"),
        Request("attach to a pod", "CONNECT", "v1", "pods", None, OTHER, "attach"),
        Request("forward a pod's port", "CONNECT", "v1", "pods", None, OTHER, "portforward"),
        _create(unnamed, "ConfigMap that another application reads"),
        _create(unlabelled, "ConfigMap that is no anchor"),
        _replace(theirs, adopted, "make another's StatefulSet the launcher's"),
        Request("delete another's pod", "DELETE", "v1", "pods", None, OTHER, "", known),
        Request("delete another's ConfigMap", "DELETE", "v1", "configmaps", None, OTHER, "", known),
        Request(
            "delete another's StatefulSet",
            "DELETE",
            "apps/v1",
            "statefulsets",
            None,
            OTHER,
            "",
            theirs,
        ),
    ]


def _anchor(release: str) -> Object:
    name = names.object_name(release, "demo-1")
    metadata = {"name": name, "labels": names.labels(release, "demo-1")}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"job": "demo-1"},
    }


def _create(body: Object, name: str = "") -> Request:
    words = name or f"create {body['kind']} {body['metadata']['name']}"
    return Request(words, "CREATE", body["apiVersion"], f"{body['kind'].lower()}s", body)


def _replace(old: Object, body: Object, name: str = "") -> Request:
    target = old["metadata"]["name"]
    words = name or f"replace {body['kind']} {target}"
    kind = f"{body['kind'].lower()}s"
    return Request(words, "UPDATE", body["apiVersion"], kind, body, target, "", old)


def _delete(old: Object) -> Request:
    target = old["metadata"]["name"]
    kind = f"{old['kind'].lower()}s"
    words = f"delete {old['kind']} {target}"
    return Request(words, "DELETE", old["apiVersion"], kind, None, target, "", old)


def _pod(body: Object) -> Object:
    return body["spec"]["template"]["spec"]


def _volume(**source: Any) -> Callable[[Object], None]:
    def change(body: Object) -> None:
        _pod(body)["volumes"].append({"name": "stolen", **source})

    return change


def _of_pod(**fields: Any) -> Callable[[Object], None]:
    return lambda body: _pod(body).update(copy.deepcopy(fields))


def _of_container(**fields: Any) -> Callable[[Object], None]:
    return lambda body: _pod(body)["containers"][0].update(copy.deepcopy(fields))


def _security(**fields: Any) -> Callable[[Object], None]:
    def change(body: Object) -> None:
        _pod(body)["containers"][0]["securityContext"].update(copy.deepcopy(fields))

    return change


def _variable(**source: Any) -> Callable[[Object], None]:
    def change(body: Object) -> None:
        _pod(body)["containers"][0]["env"].append({"name": "STOLEN", "valueFrom": source})

    return change


def _another(where: str, **fields: Any) -> Callable[[Object], None]:
    """One container more, in ``where``, which is as confined as the chart's."""

    def change(body: Object) -> None:
        image = _pod(body)["containers"][0]["image"]
        added = {"name": "second", "image": image, "securityContext": _SAFE, **fields}
        kept = {key: value for key, value in added.items() if value is not None}
        _pod(body).setdefault(where, []).append(copy.deepcopy(kept))

    return change


def _label(key: str, value: str) -> Callable[[Object], None]:
    def change(body: Object) -> None:
        body["spec"]["template"]["metadata"]["labels"][key] = value
        if body["kind"] == "StatefulSet":
            body["spec"]["selector"]["matchLabels"].pop(key, None)

    return change


def _claims(body: Object) -> None:
    if body["kind"] == "StatefulSet":
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "dataSource": {"kind": "PersistentVolumeClaim", "name": OTHER},
        }
        body["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "stolen"}, "spec": spec}]


def _image(image: str) -> Callable[[Object], None]:
    def change(body: Object) -> None:
        container = _pod(body)["containers"][0]
        repository = container["image"].rpartition(":")[0]
        container["image"] = image.replace("OWN", repository)

    return change


_TOKEN = {"serviceAccountToken": {"path": "token"}}
_KEY = {"name": OTHER, "key": "k"}
CHANGES: Mapping[str, Callable[[Object], None]] = {
    "a volume of another Secret": _volume(secret={"secretName": OTHER}),
    "an optional volume of another Secret": _volume(secret={"secretName": OTHER, "optional": True}),
    "a projected volume of another Secret": _volume(
        projected={"sources": [{"secret": {"name": OTHER}}]}
    ),
    "a projected token": _volume(projected={"sources": [_TOKEN]}),
    "a volume of another ConfigMap": _volume(configMap={"name": OTHER}),
    "a CSI volume of a secrets store": _volume(
        csi={
            "driver": "secrets-store.csi.k8s.io",
            "volumeAttributes": {"secretProviderClass": "all"},
        }
    ),
    "a CSI volume with a Secret": _volume(
        csi={"driver": "d.example", "nodePublishSecretRef": {"name": OTHER}}
    ),
    "the kubelet's folder": _volume(hostPath={"path": "/var/lib/kubelet/pods"}),
    "another claim": _volume(persistentVolumeClaim={"claimName": OTHER}),
    "a claim that clones another": _volume(
        ephemeral={
            "volumeClaimTemplate": {
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                    "dataSource": {"kind": "PersistentVolumeClaim", "name": OTHER},
                }
            }
        }
    ),
    "claims that clone another": _claims,
    "a flexVolume with a Secret": _volume(
        flexVolume={"driver": "a/b", "secretRef": {"name": OTHER}}
    ),
    "an Azure file with a Secret": _volume(azureFile={"secretName": OTHER, "shareName": "s"}),
    "a CephFS with a Secret": _volume(cephfs={"monitors": ["m:1"], "secretRef": {"name": OTHER}}),
    "an NFS export": _volume(nfs={"server": "10.0.0.1", "path": "/"}),
    "a volume of an image": _volume(image={"reference": "evil.example/x:1"}),
    "a variable of another Secret": _variable(secretKeyRef=_KEY),
    "a variable of another ConfigMap": _variable(configMapKeyRef=_KEY),
    "all variables of another Secret": _of_container(envFrom=[{"secretRef": {"name": OTHER}}]),
    "all variables of another ConfigMap": _of_container(
        envFrom=[{"configMapRef": {"name": OTHER}}]
    ),
    "an init container's variable": _another(
        "initContainers", env=[{"name": "A", "valueFrom": {"secretKeyRef": _KEY}}]
    ),
    "an init container's variables": _another(
        "initContainers", envFrom=[{"secretRef": {"name": OTHER}}]
    ),
    "a sidecar's variables": _another(
        "initContainers", envFrom=[{"secretRef": {"name": OTHER}}], restartPolicy="Always"
    ),
    "a second container's variables": _another(
        "containers", envFrom=[{"secretRef": {"name": OTHER}}]
    ),
    "an init container with privileges": _another(
        "initContainers", securityContext={"privileged": True}
    ),
    "a container without a security context": _another("containers", securityContext=None),
    "another service account": _of_pod(serviceAccountName=OTHER),
    "another service account, in the old field": _of_pod(
        serviceAccountName="", serviceAccount=OTHER
    ),
    "the account of the router": _of_pod(serviceAccountName=f"{RELEASE}-router"),
    "the account's token": _of_pod(automountServiceAccountToken=True),
    "the account's token, by default": lambda body: (
        _pod(body).pop("automountServiceAccountToken") and None
    ),
    "another Secret to pull with": _of_pod(imagePullSecrets=[{"name": OTHER}]),
    "privileges": _security(privileged=True, allowPrivilegeEscalation=True),
    "an escalation": _security(allowPrivilegeEscalation=True),
    "a capability": _security(capabilities={"add": ["SYS_ADMIN"]}),
    "no seccomp": _security(seccompProfile={"type": "Unconfined"}),
    "no seccomp in the pod": _of_pod(securityContext={"seccompProfile": {"type": "Unconfined"}}),
    "SELinux options": _security(seLinuxOptions={"type": "spc_t"}),
    "a host process of Windows": _security(windowsOptions={"hostProcess": True}),
    "the node's network": _of_pod(hostNetwork=True),
    "the node's processes": _of_pod(hostPID=True),
    "the node's IPC": _of_pod(hostIPC=True),
    "a port of the node": _of_container(ports=[{"containerPort": 9000, "hostPort": 9000}]),
    "a node by its name": _of_pod(nodeName="control-plane"),
    "another image": _image("evil.example/x:1"),
    "an image whose name begins alike": _image("OWN-evil:1"),
    "an image that only ends alike": _image("evil.example/OWN:1"),
    "the label that Redis' Service selects": _label("app.kubernetes.io/component", "redis"),
    "the label that the router's Service selects": _label("app.kubernetes.io/component", "router"),
    "another release's label": _label("app.kubernetes.io/instance", OTHER),
    "a label of another application": _label("app", "payments"),
    "another release's object": lambda body: body["metadata"]["labels"].update(
        {names.RELEASE: OTHER}
    ),
    "another's name": lambda body: body["metadata"].update({"name": OTHER}),
    "a resource claim": _of_pod(resourceClaims=[{"name": "c", "resourceClaimName": OTHER}]),
}
