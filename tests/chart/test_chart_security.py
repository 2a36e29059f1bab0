"""What a security reviewer asks of rendered manifests, for every values file."""

from pathlib import Path

import pytest
from chart_world import EVERYTHING, VALUES, Manifests, Render

ALL = [*VALUES, EVERYTHING]


@pytest.fixture(params=ALL, ids=lambda path: path.stem)
def manifests(request: pytest.FixtureRequest, render: Render) -> Manifests:
    values: Path = request.param
    return render([values])


def _is_on_gvisor(spec: dict[str, object]) -> bool:
    return spec.get("runtimeClassName") == "gvisor"


def test_containers_when_rendered_then_none_is_root_but_in_gvisors_own_kernel(
    manifests: Manifests,
) -> None:
    for name, _, spec in manifests.containers():
        context = spec["securityContext"]
        if _is_on_gvisor(spec):
            assert name == "t-troupe-env/env"
            continue
        assert context["runAsNonRoot"] is True, name
        assert context["runAsUser"] > 0 and context["runAsGroup"] > 0, name


@pytest.mark.parametrize("values", [[], [EVERYTHING]], ids=["launcher", "everything"])
def test_pods_when_the_cluster_assigns_users_then_name_none_and_still_refuse_root(
    render: Render, values: list[Path]
) -> None:
    """OpenShift's restricted-v2 refuses every id that is not of the namespace's range."""
    for name, container, spec in render(values, "clusterUserIds=true").containers():
        context = spec["securityContext"] | container["securityContext"]
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & context.keys(), name
        assert context["runAsNonRoot"] is True, name


def test_containers_when_rendered_then_gain_no_privilege(manifests: Manifests) -> None:
    for name, container, spec in manifests.containers():
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False, name
        assert context["capabilities"]["drop"] == ["ALL"], name
        added = set(context["capabilities"].get("add", []))
        assert added <= ({"CHOWN", "KILL", "SETGID", "SETUID"} if _is_on_gvisor(spec) else set())
        assert not context.get("privileged"), name


def test_containers_when_rendered_then_have_a_read_only_root(manifests: Manifests) -> None:
    for name, container, _ in manifests.containers():
        assert container["securityContext"]["readOnlyRootFilesystem"] is True, name


def test_containers_when_rendered_then_have_a_seccomp_profile(manifests: Manifests) -> None:
    for name, container, spec in manifests.containers():
        of_pod = spec["securityContext"]["seccompProfile"]
        kind = container["securityContext"].get("seccompProfile", of_pod)["type"]
        assert kind in ("RuntimeDefault", "Localhost"), name


def test_pods_when_rendered_then_share_nothing_with_the_node(manifests: Manifests) -> None:
    for name, _, spec in manifests.pods():
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        assert (
            all("hostPath" not in volume for volume in spec["volumes"])
            if ("volumes" in spec)
            else True
        ), name
        for container in spec["containers"]:
            assert all("hostPort" not in port for port in container.get("ports", [])), name


def test_procmount_when_unmasked_then_only_in_a_user_namespace(manifests: Manifests) -> None:
    for name, container, spec in manifests.containers():
        if container["securityContext"].get("procMount") == "Unmasked":
            assert spec["hostUsers"] is False, name


def test_containers_when_rendered_then_have_requests_and_limits(manifests: Manifests) -> None:
    for name, container, _ in manifests.containers():
        for part in ("requests", "limits"):
            assert {"cpu", "memory"} <= set(container["resources"][part]), name


def test_containers_when_long_lived_then_have_three_probes(manifests: Manifests) -> None:
    kinds = ("Deployment", "StatefulSet")
    long_lived = [*manifests.of(*kinds), *manifests.templates()]
    for found in long_lived:
        for container in found["spec"]["template"]["spec"]["containers"]:
            name = found["metadata"]["name"]
            assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container), name
            # Liveness never asks what others are doing.
            liveness = container["livenessProbe"]
            path = liveness.get("httpGet", {}).get("path", "")
            assert path == "/livez" or "tcpSocket" in liveness, name


def test_containers_when_not_long_lived_then_have_a_deadline(manifests: Manifests) -> None:
    for found in manifests.of("Job", "Pod"):
        assert found["spec"]["activeDeadlineSeconds"] > 0


def test_images_when_rendered_then_are_pinned(manifests: Manifests) -> None:
    for name, container, _ in manifests.containers():
        image = container["image"].rsplit("/", 1)[-1]
        assert ":" in image, name
        assert not image.endswith(":latest"), name


def test_pods_when_rendered_then_have_an_account_of_their_own_and_no_token(
    manifests: Manifests,
) -> None:
    accounts = {found["metadata"]["name"]: found for found in manifests.of("ServiceAccount")}
    launches = bool(manifests.templates())
    for name, _, spec in manifests.pods():
        talks_to_api = launches and name == "t-troupe-router"
        assert spec["automountServiceAccountToken"] is talks_to_api, name
        assert accounts[spec["serviceAccountName"]]["automountServiceAccountToken"] is False
        assert all("projected" not in volume for volume in spec.get("volumes", [])), name


def test_rbac_when_rendered_then_only_a_launching_router_has_a_role_in_its_namespace(
    manifests: Manifests,
) -> None:
    assert manifests.of("ClusterRole", "ClusterRoleBinding") == []
    names = ["t-troupe-launcher"] if manifests.templates() else []
    assert [found["metadata"]["name"] for found in manifests.of("Role")] == names
    for binding in manifests.of("RoleBinding"):
        [subject] = binding["subjects"]
        assert subject == {"kind": "ServiceAccount", "name": "t-troupe-router", "namespace": "here"}


def test_role_when_rendered_then_reads_no_secret_and_has_no_wildcard(manifests: Manifests) -> None:
    for role in manifests.of("Role"):
        for rule in role["rules"]:
            assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
            assert {"secrets", "roles", "rolebindings", "pods/exec"}.isdisjoint(rule["resources"])
            # Whoever may change a pod in place may run anything in it.
            assert {"patch", "deletecollection"}.isdisjoint(rule["verbs"])


def test_role_when_rendered_then_reads_and_changes_no_lease_but_the_routers(
    manifests: Manifests,
) -> None:
    for role in manifests.of("Role"):
        rules = [rule for rule in role["rules"] if "leases" in rule["resources"]]
        named = {verb: rule.get("resourceNames", []) for rule in rules for verb in rule["verbs"]}
        own = ["t-troupe-router"]
        # A rule with names grants no `create`, whose name is not known when it is judged.
        assert named == {"create": [], "get": own, "update": own}


def test_pods_when_rendered_then_get_no_service_links(manifests: Manifests) -> None:
    for name, _, spec in manifests.pods():
        assert spec["enableServiceLinks"] is False, name


def test_secrets_when_rendered_then_are_only_referred_to(manifests: Manifests) -> None:
    generated = {found["metadata"]["name"] for found in manifests.of("Secret")}
    roles = ["authority", "router", "rollout", "env", "trainer", "redis"]
    if "t-troupe-play" in {found["metadata"]["name"] for found in manifests.of("Deployment")}:
        roles.append("play")
    assert generated - {"t-troupe-redis-password"} == {f"t-troupe-tls-{role}" for role in roles}
    for name, container, _ in manifests.containers():
        for variable in container.get("env", []):
            is_secret = any(word in variable["name"] for word in ("TOKEN", "PASSWORD", "AUTH"))
            # max_total_tokens is a size.
            if is_secret and not variable["name"].endswith("TOKENS"):
                assert "secretKeyRef" in variable["valueFrom"], name


def test_volumes_when_writable_then_are_bounded(manifests: Manifests) -> None:
    for name, _, spec in manifests.pods():
        for volume in spec.get("volumes", []):
            if "emptyDir" in volume:
                assert volume["emptyDir"]["sizeLimit"], name


def test_services_when_rendered_then_none_leaves_the_cluster_and_engines_have_no_port(
    manifests: Manifests,
) -> None:
    for found in manifests.of("Service"):
        assert found["spec"].get("type", "ClusterIP") == "ClusterIP"
        assert {port["port"] for port in found["spec"]["ports"]} <= {
            6379,
            8480,
            8481,
            8490,
            9000,
            9090,
        }


def test_env_pods_when_rendered_then_hold_no_volume_of_others(manifests: Manifests) -> None:
    for _, labels, spec in manifests.pods():
        if labels["app.kubernetes.io/component"] == "env":
            tmp, tls = spec["volumes"]
            assert list(tmp) == ["name", "emptyDir"]
            assert tls["secret"]["secretName"] == "t-troupe-tls-env"
