"""What the chart makes of other projects' kinds fits their schemas, strictly.

The schemas are those of ``crds/`` (scripts/get_crds.py). Rules in CEL are not carried out.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from chart_world import CHART, Manifests, Object, Render
from test_chart_gateway import FROM, GATEWAY, KEYS, SECRETS

SCHEMAS = {
    path.stem: json.loads(path.read_text("utf-8"))
    for path in sorted(Path(__file__).with_name("crds").glob("*.json"))
}
MONITORS = tuple(
    f"monitoring.{kind}.enabled=true" for kind in ("serviceMonitor", "podMonitor", "prometheusRule")
)
TLS = ('tls.source="certManager"', 'tls.issuerRef={"name":"ours","kind":"ClusterIssuer"}')


@pytest.fixture
def manifests(render: Render) -> Manifests:
    """The chart with all that needs another project's kinds."""
    return render([], *GATEWAY, *KEYS, FROM, *SECRETS, *MONITORS, *TLS)


@pytest.mark.parametrize("kind", SCHEMAS)
def test_object_when_of_another_projects_kind_then_fits_its_schema(
    manifests: Manifests, kind: str
) -> None:
    found = manifests.of(kind)
    assert found
    for each in found:
        assert each["apiVersion"] == SCHEMAS[kind]["apiVersion"]
        validate(each)


def test_objects_when_not_of_kubernetes_itself_then_each_kind_has_a_schema(
    manifests: Manifests,
) -> None:
    own = ("apps", "batch", "autoscaling", "policy")
    others = {
        found["kind"]
        for found in manifests
        for group in [found["apiVersion"].rpartition("/")[0]]
        if group not in ("", *own) and not group.endswith(".k8s.io")
    }
    assert others | {"HTTPRoute"} == set(SCHEMAS)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("HTTPRoute", "hostname", ["a.example.com"]),
        ("HTTPRoute", "parentRefs", [{"name": "public", "port": "https"}]),
        ("ExternalSecret", "secretStoreRef", {"name": "vault", "sort": "SecretStore"}),
        ("ExternalSecret", "refreshInterval", 3600),
        ("Certificate", "usages", ["anything"]),
        ("PodMonitor", "podMetricsEndpoints", [{"port": "admin", "every": "15s"}]),
        ("ServiceMonitor", "selector", None),
        ("PrometheusRule", "groups", [{"rules": []}]),
    ],
)
def test_object_when_a_field_is_wrong_then_is_refused(
    manifests: Manifests, kind: str, name: str, value: Any
) -> None:
    good = manifests.of(kind)[0]
    with pytest.raises(jsonschema.ValidationError):
        validate({**good, "spec": {**good["spec"], name: value}})


def test_monitors_when_their_labels_are_common_ones_too_then_have_each_once(helm: str) -> None:
    argv = [helm, "template", "t", str(CHART), "--show-only", "templates/monitors.yaml"]
    for one in (*MONITORS, "commonLabels.team=research", "monitoring.labels.team=alerts"):
        argv += ["--set", one]
    text = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout
    kinds = ("ServiceMonitor", "PodMonitor", "PrometheusRule")
    monitors = [
        one for one in text.split("\n---\n") if re.search(f"^kind: ({'|'.join(kinds)})$", one, re.M)
    ]
    assert len(monitors) == len(kinds)
    for each in monitors:
        assert re.findall(r"^    team: (.*)$", each, re.MULTILINE) == ["alerts"]


def validate(found: Object) -> None:
    """Raise where the object does not fit the schema of its kind."""
    jsonschema.Draft202012Validator(strict(SCHEMAS[found["kind"]]["schema"])).validate(found)


def strict(schema: Any) -> Any:
    """The schema with unknown fields refused, as ``kubectl apply --validate=strict`` does."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        key: {name: strict(one) for name, one in value.items()}
        if key == "properties"
        else strict(value)
        for key, value in schema.items()
    }
    is_open = schema.get("x-kubernetes-preserve-unknown-fields", False)
    # An object's metadata is Kubernetes' own, and CRDs leave its fields out.
    if schema.get("type") == "object" and schema.get("properties") and not is_open:
        made.setdefault("additionalProperties", False)
    return made
