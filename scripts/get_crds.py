#!/usr/bin/env python3
"""Writes tests/chart/crds/*.json: the schemas of other projects' objects that the chart makes.

    python3.11 scripts/get_crds.py FOLDER     # with a checkout of each project below FOLDER

What is kept is the OpenAPI schema of one version of each kind, without its descriptions, beside the
commit that it comes from. The projects are under the Apache licence 2.0, as this one.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

REPO = Path(__file__).resolve().parent.parent
INTO = REPO / "tests" / "chart" / "crds"
_OPERATOR = "example/prometheus-operator-crd/monitoring.coreos.com_"
KINDS = {
    "HTTPRoute": (
        "kubernetes-sigs/gateway-api",
        "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
    ),
    "ExternalSecret": (
        "external-secrets/external-secrets",
        "config/crds/bases/external-secrets.io_externalsecrets.yaml",
    ),
    "Certificate": ("cert-manager/cert-manager", "deploy/crds/cert-manager.io_certificates.yaml"),
    "PodMonitor": ("prometheus-operator/prometheus-operator", f"{_OPERATOR}podmonitors.yaml"),
    "ServiceMonitor": (
        "prometheus-operator/prometheus-operator",
        f"{_OPERATOR}servicemonitors.yaml",
    ),
    "PrometheusRule": (
        "prometheus-operator/prometheus-operator",
        f"{_OPERATOR}prometheusrules.yaml",
    ),
}
"""Kind to its project and the file there."""


def main() -> int:
    """Write every schema."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="holds gateway-api, external-secrets, ...")
    options = parser.parse_args()
    INTO.mkdir(parents=True, exist_ok=True)
    for kind, (project, path) in KINDS.items():
        checkout = options.folder / project.rpartition("/")[2]
        commit = git(checkout, "rev-parse", "HEAD").strip()
        crd = yaml.safe_load(git(checkout, "show", f"HEAD:{path}"))
        [version] = [v for v in crd["spec"]["versions"] if v["name"] == crd_version(crd)]
        document = {
            "source": f"https://github.com/{project}/blob/{commit}/{path}",
            "licence": "Apache-2.0",
            "apiVersion": f"{crd['spec']['group']}/{version['name']}",
            "kind": crd["spec"]["names"]["kind"],
            "schema": without_descriptions(version["schema"]["openAPIV3Schema"]),
        }
        text = json.dumps(document, separators=(",", ":"), sort_keys=True) + "\n"
        (INTO / f"{kind}.json").write_text(text, encoding="utf-8")
        print(f"{kind}: {document['apiVersion']}, {len(text)} bytes")
    return 0


def crd_version(crd: dict[str, Any]) -> str:
    """The version that clusters store."""
    [stored] = [v["name"] for v in crd["spec"]["versions"] if v["storage"]]
    return stored


def without_descriptions(schema: Any) -> Any:
    """The schema without prose; a property that is itself called description stays."""
    if isinstance(schema, list):
        return [without_descriptions(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: without_descriptions(entry) for name, entry in value.items()}
        if key == "properties"
        else without_descriptions(value)
        for key, value in schema.items()
        if key not in ("description", "x-kubernetes-validations")
    }


def git(checkout: Path, *arguments: str) -> str:
    """What git prints."""
    argv = ["git", "-C", str(checkout), *arguments]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
