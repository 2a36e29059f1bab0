"""Agent programs in an image that a job names: a container beside env, confined as it is."""

from typing import Any

import pytest
from chart_world import ROOT, Manifests, Object, Refuse, Render

from troupe.errors import InvalidArgumentError
from troupe.spec import load_spec
from troupe_router.cluster import templates
from troupe_router.cluster.workloads import Workload, group
from troupe_router.jobs.processes import components
from troupe_router.settings import RouterSettings

ALLOWED = 'env.program.repositories=["ghcr.io/acme/team","registry.example:5000/b/c"]'
IMAGE = "ghcr.io/acme/team:2@sha256:" + "0" * 64


def _env(manifests: Manifests, **params: Any) -> Object:
    """The env object that the launcher makes of a job with the program."""
    text = manifests.one("ConfigMap", "t-troupe-launcher")["data"]["workloads.yaml"]
    spec = load_spec(ROOT / "examples" / "demo.yaml")
    task = spec.task.model_copy(update={"name": "program", "params": params})
    spec = spec.model_copy(update={"task": task})
    settings = RouterSettings(launcher="kubernetes", env_replicas=2)
    workloads = group(components("demo-1", spec, settings, router="10.0.0.9:8481"))
    [workload] = [w for w in workloads if w.service == "env"]
    return _rendered(templates.parse(text, source="rendered"), workload)


def _rendered(known: list[Object], workload: Workload) -> Object:
    anchor = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"}
    template = templates.choose(known, workload)
    return templates.render(template, workload, release="t", owner="demo-1", anchor=anchor)


def _containers(found: Object) -> dict[str, Object]:
    spec = found["spec"]["template"]["spec"]
    return {c["name"]: c for c in [*spec.get("initContainers", []), *spec["containers"]]}


def test_job_when_it_names_an_image_then_each_env_pod_has_a_container_of_it(render: Render) -> None:
    env = _env(render([], ALLOWED), image=IMAGE, python="/opt/venv/bin/python")
    assert env["spec"]["replicas"] == 2
    containers = _containers(env)
    assert list(containers) == ["program-host", "env", "program"]
    program = containers["program"]
    assert program["image"] == IMAGE
    socket = "/srv/program/host.sock"
    assert program["command"] == ["/opt/venv/bin/python", "/srv/program/image_host.py", socket]
    variables = {v["name"]: v.get("value") for v in containers["env"]["env"]}
    assert variables["TROUPE_PROGRAM_SOCKET"] == socket
    shared = {"name": "program", "mountPath": "/srv/program"}
    assert all(shared in container["volumeMounts"] for container in containers.values())
    assert containers["program-host"]["image"] == containers["env"]["image"]


def test_program_when_in_an_image_then_it_is_held_by_the_env_pods_rules(render: Render) -> None:
    manifests = render([], ALLOWED)
    env = _env(manifests, image=IMAGE)
    pod, containers = env["spec"]["template"]["spec"], _containers(env)
    program, service = containers["program"], containers["env"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["serviceAccountName"] == "t-troupe-env"
    assert "shareProcessNamespace" not in pod  # it sees no process of the service
    security = program["securityContext"]
    assert security["runAsUser"] not in (0, pod["securityContext"]["runAsUser"])
    assert security["runAsNonRoot"] is True
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert "env" not in program  # no variable, no Secret
    assert program["resources"]["limits"].keys() >= {"cpu", "memory", "ephemeral-storage"}
    assert {m["name"] for m in program["volumeMounts"]} == {"program", "program-tmp"}
    assert "tls" in {m["name"] for m in service["volumeMounts"]}
    # One network for the pod: out to the router's door alone (and its name), in from the router.
    policy = manifests.one("NetworkPolicy", "t-troupe-env")["spec"]
    ports = [port["port"] for rule in policy["egress"] for port in rule["ports"]]
    assert sorted(ports) == [53, 53, 8481]
    assert [port["port"] for rule in policy["ingress"] for port in rule["ports"]] == [9000]


@pytest.mark.parametrize("level", ["none", "gvisor-pod"])
def test_env_when_beside_a_program_then_is_of_the_group_that_its_socket_lets_in(
    render: Render, level: str
) -> None:
    sandbox = (f'env.sandbox.level="{level}"', 'env.runtimeClassName="gvisor"')
    env = _env(render([], ALLOWED, *sandbox), image=IMAGE)
    pod = env["spec"]["template"]["spec"]["securityContext"]
    group = _containers(env)["program"]["securityContext"]["runAsGroup"]
    assert group in {pod["runAsGroup"], *pod.get("supplementalGroups", [])}


def test_job_when_it_names_none_then_its_env_pods_have_no_such_container(render: Render) -> None:
    assert list(_containers(_env(render([], ALLOWED)))) == ["env"]
    assert list(_containers(_env(render([])))) == ["env"]


@pytest.mark.parametrize(
    "image",
    [
        "ghcr.io/acme/team2:1",
        "ghcr.io/acme",
        "ghcr.io/acme/team/x",
        "evil.example/ghcr.io/acme/team",
    ],
)
def test_image_when_of_another_repository_then_the_job_is_refused_and_the_list_is_named(
    render: Render, image: str
) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"ghcr\.io/acme/team, registry\.example:5000/b/c"
    ):
        _env(render([], ALLOWED), image=image)
    with pytest.raises(InvalidArgumentError, match=r"no repository.*env\.program\.repositories"):
        _env(render([]), image=image)


def test_image_when_of_a_registry_with_a_port_then_its_tag_is_no_part_of_the_name(
    render: Render,
) -> None:
    image = "registry.example:5000/b/c:7"
    assert _containers(_env(render([], ALLOWED), image=image))["program"]["image"] == image


def test_images_when_allowed_then_the_admission_policy_lets_them_through(render: Render) -> None:
    policy = render([], ALLOWED, 'launcher.admissionPolicy="required"')
    [found] = policy.of("ValidatingAdmissionPolicy")
    assert "ghcr.io/acme/team" in str(found)
    assert "registry.example:5000/b/c" in str(found)


def test_values_when_they_cannot_be_meant_then_the_chart_refuses(refuse: Refuse) -> None:
    assert "launcher.kind" in refuse('launcher.kind="none"', ALLOWED)
    assert "repositories" in refuse('env.program.repositories=["ghcr.io/acme/team:1"]')
    assert "repositories" in refuse('env.program.repositories=["team"]')
