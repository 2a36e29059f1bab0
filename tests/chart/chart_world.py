"""The chart as tests see it: its files, its rendered objects, and who may talk to whom."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "troupe"
VALUES = sorted(CHART.glob("values*.yaml"))
EVERYTHING = Path(__file__).with_name("everything.yaml")
"""Values with every optional object that has a schema of its own."""
WORKLOADS = frozenset({"Deployment", "StatefulSet", "Job", "Pod"})
Object = dict[str, Any]


@dataclass(frozen=True)
class Refusal:
    """What helm wrote to stderr."""

    words: str


class Manifests(list[Object]):
    """Rendered objects, found by kind and name."""

    def of(self, *kinds: str) -> list[Object]:
        return [found for found in self if found["kind"] in kinds]

    def one(self, kind: str, name: str) -> Object:
        [found] = [o for o in self.of(kind) if o["metadata"]["name"] == name]
        return found

    def templates(self) -> list[Object]:
        """The launcher's templates, named as the workloads of a job of theirs would be."""
        found: list[Object] = []
        for each in self.of("ConfigMap"):
            for template in yaml.safe_load(each["data"].get("workloads.yaml", "[]")):
                labels = template["metadata"]["labels"]
                parts = [labels["app.kubernetes.io/component"], labels.get("troupe.dev/pool")]
                name = "-".join(["t-troupe", *filter(None, parts)])
                found.append({**template, "metadata": {**template["metadata"], "name": name}})
        return found

    def pods(self) -> Iterator[tuple[str, Object, Object]]:
        """Name, labels and spec of each pod or pod template, the launcher's too."""
        for found in [*self.of(*WORKLOADS), *self.templates()]:
            template = found if found["kind"] == "Pod" else found["spec"]["template"]
            labels = template["metadata"]["labels"]
            yield found["metadata"]["name"], labels, template["spec"]

    def containers(self) -> Iterator[tuple[str, Object, Object]]:
        """Name, container and the spec of its pod."""
        for name, _, spec in self.pods():
            for container in [*spec.get("initContainers", []), *spec["containers"]]:
                yield f"{name}/{container['name']}", container, spec


class Render(Protocol):
    """See conftest.render."""

    def __call__(self, values: Sequence[Path] = (), *sets: str) -> Manifests: ...


class Refuse(Protocol):
    """See conftest.refuse."""

    def __call__(self, *sets: str) -> str: ...


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector takes in ``labels``; matchLabels and In are all that is used."""
    assert set(selector) <= {"matchLabels", "matchExpressions"}
    for rule in selector.get("matchExpressions", []):
        assert rule["operator"] == "In"
        if labels.get(rule["key"]) not in rule["values"]:
            return False
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def edges(manifests: Manifests) -> set[tuple[str, str, int]]:
    """(from, to, port) of components that the policies let through: out of one, into the other."""
    pods = {labels["app.kubernetes.io/component"]: labels for _, labels, _ in manifests.pods()}
    ports = {443, 2379, 6379, 6443, 8480, 8481, 9000, 9090, 30000, 32768, 60999}
    return {
        (one, other, port)
        for one in pods
        for other in pods
        for port in ports
        if _passes(manifests, "egress", pods[one], pods[other], port)
        and _passes(manifests, "ingress", pods[other], pods[one], port)
    }


def _passes(
    manifests: Manifests,
    way: str,
    subject: Mapping[str, str],
    peer: Mapping[str, str],
    port: int,
) -> bool:
    """Policies add up; a pod that none selects is open."""
    policies = [
        found["spec"]
        for found in manifests.of("NetworkPolicy")
        if selects(found["spec"]["podSelector"], subject)
        and way.capitalize() in found["spec"]["policyTypes"]
    ]
    if not policies:
        return True
    rules = [rule for policy in policies for rule in policy.get(way, [])]
    key = "to" if way == "egress" else "from"
    return any(
        (key not in rule or any(_is_peer(found, peer) for found in rule[key]))
        and any(
            allowed["port"] <= port <= allowed.get("endPort", allowed["port"])
            for allowed in rule["ports"]
        )
        for rule in rules
    )


def _is_peer(found: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a peer is a pod of this namespace; other namespaces and addresses are not."""
    return set(found) == {"podSelector"} and selects(found["podSelector"], labels)
