"""The chart is clean for helm, and what it renders is valid for each supported Kubernetes."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from chart_world import CHART, EVERYTHING, ROOT, VALUES, Render

from troupe.spec import load_spec
from troupe_router.cluster import templates
from troupe_router.cluster.workloads import group
from troupe_router.jobs.processes import components
from troupe_router.settings import RouterSettings

VERSIONS = ["1.29.0", "1.30.0", "1.31.0", "1.32.0", "1.33.0", "1.34.0"]
ALL = [*VALUES, EVERYTHING]


def _name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("values", ALL, ids=_name)
def test_lint_when_strict_then_finds_nothing(helm: str, values: Path) -> None:
    argv = [helm, "lint", "--strict", str(CHART), "--values", str(values)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    assert "WARN" not in done.stdout


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", ALL, ids=_name)
def test_manifests_when_validated_strictly_then_each_has_a_schema_and_fits_it(
    render: Render, values: Path, version: str
) -> None:
    kubernetes_validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed: pip install it"
    )
    manifests = render([values])
    assert len(manifests) > 20
    for found in manifests:
        if version == "1.29.0" and found["kind"].startswith("ValidatingAdmissionPolicy"):
            continue  # rendered from 1.30 on (test_chart_admission.py)
        # Raises SchemaNotFoundError where the command line only warns.
        used = kubernetes_validate.validate(found, version, strict=True)
        assert version.startswith(used)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", VALUES, ids=_name)
def test_templates_when_the_launcher_fills_them_then_fit_the_strict_schemas(
    render: Render, values: Path, version: str
) -> None:
    kubernetes_validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed: pip install it"
    )
    given = templates.parse(
        render([values]).one("ConfigMap", "t-troupe-launcher")["data"]["workloads.yaml"],
        source="rendered",
    )
    settings = RouterSettings(launcher="kubernetes", env_replicas=2)
    spec = load_spec(ROOT / "examples" / "demo.yaml")
    anchor = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"}
    workloads = group(components("demo-1", spec, settings, router="10.0.0.9:8481"))
    assert [workload.name for workload in workloads] == ["trainer", "rollout-shared", "env"]
    for workload in workloads:
        if workload.service == "rollout" and values.stem == "values-multi-node":
            workload = replace(workload, traits={"model": "Qwen/Qwen3-8B"})
        template = templates.choose(given, workload)
        made = templates.render(template, workload, release="t", owner="demo-1", anchor=anchor)
        kubernetes_validate.validate(made, version, strict=True)
        text = yaml.safe_dump(made)
        # The address is the chart's Service, and the password stays in its Secret.
        assert "10.0.0.9" not in text
        assert "redis://127.0.0.1" not in text


def test_validation_when_a_field_is_misspelt_then_refuses(render: Render) -> None:
    kubernetes_validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed: pip install it"
    )
    [*_, router] = [o for o in render().of("Deployment") if "router" in o["metadata"]["name"]]
    spoilt = {**router, "spec": {**router["spec"], "replica": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(spoilt, "1.31.0", strict=True)


@pytest.mark.parametrize("values", ALL, ids=_name)
def test_manifests_when_rendered_twice_then_are_the_same(helm: str, values: Path) -> None:
    argv = [helm, "template", "t", str(CHART), "--values", str(values)]
    texts = [
        subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout
        for _ in range(2)
    ]
    # Without a cluster there is nothing to keep generated certificates and passwords in.
    one, two = ([o for o in yaml.safe_load_all(t) if o and o["kind"] != "Secret"] for t in texts)
    assert one == two


@pytest.mark.parametrize("values", ALL, ids=_name)
def test_names_when_rendered_then_are_unique_and_short_enough(render: Render, values: Path) -> None:
    manifests = render([values])
    names = [(found["kind"], found["metadata"]["name"]) for found in manifests]
    assert len(set(names)) == len(names)
    # A StatefulSet's pods carry "-<ordinal>" and a hash of 10 as label values of at most 63.
    assert max(len(name) for _, name in names) <= 63
    assert max(len(o["metadata"]["name"]) for o in manifests.of("StatefulSet")) <= 52


def test_names_when_the_release_is_long_then_are_cut(helm: str) -> None:
    release = "a-release-name-of-exactly-fifty-three-characters-long"
    argv = [helm, "template", release, str(CHART), "--values", str(EVERYTHING)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    names = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("  name: ")]
    assert max(len(name) for name in names) <= 63


def test_notes_when_rendered_then_say_the_next_command_and_what_was_never_run(
    helm: str, tmp_path: Path
) -> None:
    # `helm template` leaves NOTES.txt out and `helm install` asks for a cluster, even when dry.
    copy = tmp_path / "troupe"
    shutil.copytree(CHART, copy)
    notes = (copy / "templates" / "NOTES.txt").read_text("utf-8")
    (copy / "templates" / "notes.yaml").write_text(
        '{{- define "notes" -}}\n' + notes + "\n{{- end -}}\n"
        'kind: Notes\ntext: |\n  {{- include "notes" . | nindent 2 }}\n',
        encoding="utf-8",
    )
    argv = [helm, "template", "t", str(copy), "--namespace", "here"]
    argv += ["--show-only", "templates/notes.yaml"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    shown = " ".join(yaml.safe_load(done.stdout)["text"].split())
    assert "helm test t -n here" in shown
    # A running job's trainer is a Job of the release too.
    models = "app.kubernetes.io/component in (model,download)"
    assert f"job -l 'app.kubernetes.io/instance=t,{models}'" in shown
    assert "port-forward service/t-troupe-router 8480:8480" in shown
    assert "run it on more nodes" in shown
