"""Renders a job's objects from the chart's templates. Pure.

A template is a Job or StatefulSet as the chart would have installed it: images, resources, volumes
and confinement are the chart's, and a variable that it sets is never overridden. The launcher adds
names, labels, the owner, the number of replicas and the variables that identify the job.
"""

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import yaml

from troupe.errors import InvalidArgumentError
from troupe_router.cluster import names
from troupe_router.cluster.workloads import ORDINAL, Workload

TEMPLATES_KEY = "workloads.yaml"
"""Key of the ConfigMap with a YAML list of templates."""
Object = dict[str, Any]


def parse(text: str, *, source: str) -> list[Object]:
    """The templates in ``text``; raises InvalidArgumentError that names ``source``."""
    try:
        templates: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidArgumentError(f"{source} is not YAML: {error}") from error
    if not isinstance(templates, list) or not templates:
        raise InvalidArgumentError(f"{source} is not a list of templates; install the chart again")
    for number, template in enumerate(templates):
        _check(template, f"{source}[{number}]")
    return templates


def _check(template: Any, at: str) -> None:
    kind = template.get("kind") if isinstance(template, dict) else None
    if kind not in ("Job", "StatefulSet"):
        raise InvalidArgumentError(f"{at} is a {kind}; a template is a Job or a StatefulSet")
    try:
        labels = template["metadata"]["labels"]
        containers = template["spec"]["template"]["spec"]["containers"]
    except (KeyError, TypeError) as error:
        raise InvalidArgumentError(f"{at} has no {error}; install the chart again") from error
    if names.COMPONENT not in labels or not containers:
        raise InvalidArgumentError(f"{at} needs the label {names.COMPONENT} and a container")


def choose(templates: Sequence[Object], workload: Workload) -> Object:
    """The first template for the workload's service that accepts its model.

    Raises InvalidArgumentError, which names the models that the templates accept.
    """
    candidates = [
        t for t in templates if t["metadata"]["labels"][names.COMPONENT] == workload.service
    ]
    model = workload.traits.get("model", "")
    for template in candidates:
        if any(fnmatchcase(model, pattern) for pattern in _models(template)):
            return template
    if not candidates:
        raise InvalidArgumentError(
            f"the chart has no template for '{workload.service}'; install it with "
            "launcher.kind: kubernetes"
        )
    taken = "; ".join(", ".join(_models(template)) for template in candidates)
    raise InvalidArgumentError(
        f"no rollout pool takes the model '{model}': the pools take {taken}; "
        "add a pool, or add the model to rollout.pools[].models"
    )


def as_pod_group(
    templates: Sequence[Object], workloads: Sequence[Workload], *, name: str
) -> list[Object]:
    """The templates whose pods name a queue, as members of one group of all the job's pods.

    Kueue admits a group whole or not at all, so two jobs never each hold half of what they need.
    Envs alone are a dry run's: they take no device, and no queue holds them back.
    """
    if not any(map(_is_queued, templates)):
        return list(templates)
    if all(workload.service == "env" for workload in workloads):
        return [_unqueued(template) for template in templates]
    chosen = [choose(templates, workload) for workload in workloads]
    size = sum(
        workload.count * int(template["spec"].get("completions", 1))
        for workload, template in zip(workloads, chosen, strict=True)
        if _is_queued(template)
    )
    grouped: list[Object] = []
    for template in copy.deepcopy(list(templates)):
        if _is_queued(template):
            metadata = template["spec"]["template"]["metadata"]
            metadata["labels"][names.POD_GROUP] = name
            annotations = metadata.get("annotations") or {}
            metadata["annotations"] = {**annotations, names.POD_GROUP_SIZE: str(size)}
        grouped.append(template)
    return grouped


def _is_queued(template: Object) -> bool:
    metadata = template["spec"]["template"].get("metadata") or {}
    return names.QUEUE in (metadata.get("labels") or {})


def _unqueued(template: Object) -> Object:
    free = copy.deepcopy(template)
    metadata = free["spec"]["template"].get("metadata") or {}
    for key in ("labels", "annotations"):
        entries = metadata.get(key) or {}
        metadata[key] = {k: v for k, v in entries.items() if not k.startswith(names.KUEUE)}
    return free


def _models(template: Object) -> list[str]:
    patterns = template["metadata"].get("annotations", {}).get(names.MODELS, "*")
    return [pattern.strip() for pattern in patterns.split(",") if pattern.strip()]


def render(
    template: Object, workload: Workload, *, release: str, owner: str, anchor: Mapping[str, str]
) -> Object:
    """The object that runs ``workload`` for ``owner``; ``anchor`` is its ownerReference."""
    rendered = copy.deepcopy(template)
    labels = names.labels(release, owner, workload.name)
    metadata = rendered["metadata"]
    metadata["name"] = names.object_name(release, owner, workload.name)
    metadata["labels"] = {**metadata.get("labels", {}), **labels}
    metadata["ownerReferences"] = [dict(anchor)]
    spec = rendered["spec"]
    pod = spec["template"]
    pod_metadata = pod.setdefault("metadata", {})
    pod_metadata["labels"] = {**pod_metadata.get("labels", {}), **labels}
    for constraint in pod["spec"].get("topologySpreadConstraints", []):
        constraint["labelSelector"] = {"matchLabels": labels}
    if rendered["kind"] == "StatefulSet":
        spec["replicas"] = workload.count
        spec["selector"] = {"matchLabels": labels}
        spec.setdefault("serviceName", metadata["name"])
        spec.setdefault("podManagementPolicy", "Parallel")
    elif workload.count != 1:
        raise InvalidArgumentError(
            f"'{workload.name}' has {workload.count} replicas and its template is a Job, which "
            "runs one; make it a StatefulSet"
        )
    if gpus := workload.traits.get("gpus"):
        _give_gpus(rendered, gpus)
    if workload.service == "env":
        _place_program(rendered, workload.traits)
    _fill(pod["spec"]["containers"][0], workload, is_indexed=rendered["kind"] == "StatefulSet")
    metadata["annotations"] = {**metadata.get("annotations", {}), names.DIGEST: digest(rendered)}
    return rendered


def _give_gpus(rendered: Object, gpus: str) -> None:
    """As many GPUs as the job asks for, where the chart gives the pod any."""
    resource = rendered["metadata"].get("annotations", {}).get(names.GPU_RESOURCE)
    if resource is None:
        return
    nodes = int(rendered["spec"].get("completions", 1))
    limits = rendered["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    if nodes == 1:
        limits[resource] = gpus
    elif nodes * int(limits[resource]) != int(gpus):
        raise InvalidArgumentError(
            f"a trainer has {nodes} nodes of {limits[resource]} GPUs here (trainer.nodes), which "
            f"can't be {gpus}; leave trainer.gpus out of the spec"
        )


def _place_program(rendered: Object, traits: Mapping[str, str]) -> None:
    """The job's image in the container for agent programs; without one, no such container."""
    spec = rendered["spec"]["template"]["spec"]
    image = traits.get("program_image")
    if image is None:
        for kind in ("initContainers", "containers"):
            kept = [c for c in spec.get(kind, []) if c["name"] not in names.PROGRAM_CONTAINERS]
            spec.pop(kind, None)
            spec |= {kind: kept} if kept else {}
        return
    allowed = rendered["metadata"].get("annotations", {}).get(names.PROGRAM_REPOSITORIES, "")
    repositories = [name for name in allowed.split(",") if name]
    if _repository(image) not in repositories:
        raise InvalidArgumentError(
            f"task.params.image is {image}; this installation runs programs in images of "
            f"{', '.join(repositories) or 'no repository'}. Name one of them, or ask its operator "
            "to add it to env.program.repositories"
        )
    [container] = [c for c in spec["containers"] if c["name"] == names.PROGRAM_CONTAINERS[0]]
    container["image"] = image
    container["command"] = [traits["program_python"], *container["command"][1:]]


def _repository(image: str) -> str:
    """An image's name without tag and digest."""
    name = image.partition("@")[0]
    head, _, last = name.rpartition("/")
    return f"{head}/{last.partition(':')[0]}" if head else last.partition(":")[0]


def _fill(container: Object, workload: Workload, *, is_indexed: bool) -> None:
    # A running job keeps its templates across upgrades, and they name the module of their image.
    container["args"] = [*container.get("args", [f"troupe_{workload.service}"]), *workload.args]
    variables: list[Object] = list(container.get("env", []))
    known = {variable["name"] for variable in variables}
    ordinal: Object = {"name": ORDINAL, "value": "0"}
    if is_indexed:
        path = f"metadata.labels['{names.POD_INDEX}']"
        ordinal = {"name": ORDINAL, "valueFrom": {"fieldRef": {"fieldPath": path}}}
    added = [{"name": k, "value": v} for k, v in workload.env.items() if k not in known]
    # A variable may refer only to variables before it.
    container["env"] = [ordinal, *variables, *added]


def digest(document: Object) -> str:
    """Short hash of an object's content."""
    text = json.dumps(document, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
