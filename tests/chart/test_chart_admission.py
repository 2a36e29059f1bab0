"""The admission policy: what it refuses to the router's account, and what it lets through."""

import subprocess
from pathlib import Path

import pytest
import yaml
from chart_world import CHART, EVERYTHING, ROOT, VALUES, Manifests, Render
from kube_attacks import CHANGES, OTHER, launched, other_attacks, workload_attacks
from kube_policy import Policy

from troupe.spec import JobSpec, load_spec

ROUTER = "system:serviceaccount:here:t-troupe-router"
KIND = "ValidatingAdmissionPolicy"
NAME = "here.t-troupe-launcher"
SETS = (
    "trainer.nodes=2",
    'imagePullSecrets=[{"name":"pull"}]',
    'image.registry="localhost:5000/team"',
    'image.tag="1.2.3"',
    'env.sandbox={"level":"namespaces","seccompProfile":"profiles/troupe.json"}',
    'commonLabels={"team":"research"}',
    'redis={"enabled":false,"external":{"urlSecret":{"name":"redis-url"},"caSecret":{"name":"redis-ca"},"egressTo":[{"podSelector":{}}]}}',
    "tls.enabled=false",
    'trainer={"extraEnv":{"HF_TOKEN":{"valueFrom":{"secretKeyRef":{"name":"hub","key":"token"}}}}}',
)


def _spec(values: str) -> JobSpec:
    spec = load_spec(ROOT / "examples" / "demo.yaml")
    if values != "values-multi-node":
        return spec
    policies = {
        name: policy.model_copy(update={"model": "Qwen/Qwen3-8B"})
        for name, policy in spec.policies.items()
    }
    return spec.model_copy(update={"policies": policies})


def _workloads(manifests: Manifests) -> str:
    return str(manifests.one("ConfigMap", "t-troupe-launcher")["data"]["workloads.yaml"])


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_launcher_when_it_makes_a_job_then_the_policy_lets_each_request_through(
    render: Render, values: Path
) -> None:
    manifests = render([values])
    policy = Policy(manifests.one(KIND, NAME))
    own = launched(_workloads(manifests), _spec(values.stem))
    assert len(own) == 11
    for request in own:
        assert policy.refusals(request, ROUTER) == [], request.name


@pytest.mark.parametrize("one", SETS, ids=lambda item: item.partition("=")[0])
def test_launcher_when_a_value_changes_its_workloads_then_the_policy_changes_with_them(
    render: Render, one: str
) -> None:
    manifests = render([], one)
    policy = Policy(manifests.one(KIND, NAME))
    own = launched(_workloads(manifests), _spec(""))
    for request in own:
        assert policy.refusals(request, ROUTER) == [], request.name
    for attack in workload_attacks(own)[:4]:
        assert policy.refusals(attack, ROUTER), attack.name


def test_router_when_it_reaches_for_another_secret_then_each_way_is_refused_in_words(
    render: Render,
) -> None:
    manifests = render()
    policy = Policy(manifests.one(KIND, NAME))
    own = launched(_workloads(manifests), _spec(""))
    attacks = [*workload_attacks(own), *other_attacks()]
    assert len(attacks) > 2 * len(CHANGES)
    refusals = {attack.name: policy.refusals(attack, ROUTER) for attack in attacks}
    assert len(refusals) == len(attacks)
    assert [name for name, words in refusals.items() if not words] == []
    # By a rule that means it, not by an expression that broke.
    assert not [words for found in refusals.values() for words in found if "failed: " in words]
    # No rule stands for nothing: without it, one of the attacks passes.
    alone = {words[0] for words in refusals.values() if len(words) == 1}
    assert alone == set(policy.messages)
    # The policy is the router's alone: it is in nobody else's way.
    assert policy.refusals(attacks[0], f"system:serviceaccount:here:{OTHER}") == []


def test_binding_when_rendered_then_denies(render: Render) -> None:
    binding = render().one("ValidatingAdmissionPolicyBinding", NAME)
    assert binding["spec"] == {"policyName": NAME, "validationActions": ["Deny"]}


def test_policy_when_names_of_two_releases_join_to_one_text_then_each_has_its_own(
    helm: str,
) -> None:
    names: list[str] = []
    for release, namespace in (("dev-troupe", "ml"), ("troupe", "ml-dev")):
        argv = [helm, "template", release, str(CHART), "--namespace", namespace]
        argv += ["--kube-version", "1.31.0", "--show-only", "templates/admission-policy.yaml"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
        names += [found["metadata"]["name"] for found in yaml.safe_load_all(done.stdout)]
    assert names == ["ml.dev-troupe-launcher"] * 2 + ["ml-dev.troupe-launcher"] * 2


def test_policy_when_nothing_is_launched_or_it_is_turned_off_then_is_absent(
    render: Render,
) -> None:
    assert not render([], 'launcher.admissionPolicy="none"').of(KIND)
    assert not render([], 'launcher.kind="none"').of(KIND)
    assert not render([EVERYTHING]).of(KIND)


def test_policy_when_the_cluster_is_old_then_is_absent_or_refused_as_asked(helm: str) -> None:
    argv = [helm, "template", "t", str(CHART), "--kube-version", "1.29.9"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert KIND not in done.stdout
    argv += ["--set", "launcher.admissionPolicy=required"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "this cluster is v1.29.9, which has no ValidatingAdmissionPolicy" in done.stderr
