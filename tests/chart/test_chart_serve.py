"""A served team: off by default, confined as every other pod, asked by whom the values name."""

from pathlib import Path
from typing import Any

import pytest
from chart_world import ROOT, Manifests, Refuse, Render, edges, selects

from troupe_rollout.engines.sglang.settings import SglangSettings
from troupe_router.serve.settings import ServeSettings

ON = ("serve.enabled=true", 'serve.team="runs/demo-1"')
KEYS = ('router.keysSecret.name="k"', "helmTest.enabled=false")
PUBLIC = (*ON, 'serve.keysSecret.name="k"', 'serve.service.type="LoadBalancer"')
CLIENTS = 'serve.from=[{"ipBlock": {"cidr": "203.0.113.0/24"}}]'


def _container(manifests: Manifests) -> dict[str, Any]:
    spec = manifests.one("Deployment", "t-troupe-serve")["spec"]["template"]["spec"]
    [container] = spec["containers"]
    return container


def _environment(container: dict[str, Any]) -> dict[str, str]:
    return {v["name"]: v["value"] for v in container["env"] if "value" in v}


def test_serve_when_off_then_nothing_of_it_is_there(render: Render) -> None:
    names = [o["metadata"]["name"] for o in render()]
    assert [name for name in names if name.endswith("-serve")] == []


def test_serve_when_on_then_runs_the_endpoint_on_volumes_that_it_cannot_write(
    render: Render,
) -> None:
    manifests = render([], *ON)
    container = _container(manifests)
    assert (ROOT / "services" / "router" / Path(*container["args"][0].split("."))).is_dir()
    assert container["image"].partition(":")[0].endswith("troupe/serve")
    environment = _environment(container)
    assert environment["TROUPE_SERVE_TEAM"] == "/srv/runs/demo-1"
    assert environment["TROUPE_SERVE_ALLOW_ANONYMOUS"] == "true"
    mounts = {m["name"]: m.get("readOnly") for m in container["volumeMounts"]}
    assert mounts == {"tmp": None, "runs": True, "models": True}
    [router] = manifests.one("Deployment", "t-troupe-router")["spec"]["template"]["spec"][
        "containers"
    ]
    assert container["securityContext"] == router["securityContext"]
    [port] = manifests.one("Service", "t-troupe-serve")["spec"]["ports"]
    assert port == {"name": "rest", "port": 8490, "targetPort": "rest"}


def test_serve_when_on_then_has_budget_account_and_monitor_and_asks_nobody(
    render: Render,
) -> None:
    manifests = render([], *ON, "monitoring.podMonitor.enabled=true")
    [labels] = [x for name, x, _ in manifests.pods() if name == "t-troupe-serve"]
    budget = manifests.one("PodDisruptionBudget", "t-troupe-serve")["spec"]["selector"]
    [monitor] = manifests.of("PodMonitor")
    assert selects(budget, labels) and selects(monitor["spec"]["selector"], labels)
    account = manifests.one("ServiceAccount", "t-troupe-serve")
    assert account["automountServiceAccountToken"] is False
    policy = manifests.one("NetworkPolicy", "t-troupe-serve")["spec"]
    assert "egress" not in policy
    [metrics] = policy["ingress"]
    assert metrics["ports"] == [{"protocol": "TCP", "port": 9090}]
    assert not [edge for edge in edges(manifests) if "serve" in edge]


def test_serve_when_peers_are_named_then_they_alone_reach_its_port(render: Render) -> None:
    peer = 'serve.from=[{"podSelector":{"matchLabels":{"app":"assistant"}}}]'
    policy = render([], *ON, peer).one("NetworkPolicy", "t-troupe-serve")["spec"]
    [door] = policy["ingress"]
    assert door == {
        "from": [{"podSelector": {"matchLabels": {"app": "assistant"}}}],
        "ports": [{"protocol": "TCP", "port": 8490}],
    }


def test_serve_when_it_has_keys_and_a_certificate_then_both_are_mounted_folders(
    render: Render,
) -> None:
    container = _container(render([], *ON, 'serve.keysSecret.name="k"', 'serve.tlsSecret="c"'))
    environment = _environment(container)
    assert environment["TROUPE_SERVE_API_KEYS"] == "/etc/troupe/keys/keys.json"
    assert environment["TROUPE_SERVE_TLS_CERTIFICATE"] == "/etc/troupe/https/tls.crt"
    assert "TROUPE_SERVE_ALLOW_ANONYMOUS" not in environment
    mounts = {m["mountPath"] for m in container["volumeMounts"]}
    assert {"/etc/troupe/keys", "/etc/troupe/https"} <= mounts


def test_serve_when_the_engine_is_sglang_then_has_its_image_and_gpus(render: Render) -> None:
    manifests = render([], *ON, 'serve.engine="sglang"', "serve.gpus=2")
    container = _container(manifests)
    assert container["image"].partition(":")[0].endswith("troupe/serve-sglang")
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    environment = _environment(container)
    assert environment["TROUPE_SERVE_ENGINE"] == "sglang"
    assert environment["TROUPE_ROLLOUT_SGLANG_DEVICE"] == "cuda"
    assert environment["TROUPE_ROLLOUT_SGLANG_TP_SIZE"] == "2"
    assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]
    pod = manifests.one("Deployment", "t-troupe-serve")["spec"]["template"]["spec"]
    [shm] = [v["emptyDir"] for v in pod["volumes"] if v["name"] == "shm"]
    assert shm == {"medium": "Memory", "sizeLimit": "1Gi"}


def test_serve_when_sglang_has_settings_then_its_engine_reads_them_and_its_endpoint_the_others(
    render: Render, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = 'serve.settings={"sglang_mem_fraction":0.75,"max_running":64}'
    sglang = (*ON, 'serve.engine="sglang"', "serve.startupSeconds=3600", settings)
    for name, value in _environment(_container(render([], *sglang))).items():
        monkeypatch.setenv(name, value)
    assert ServeSettings().max_running == 64  # type: ignore[call-arg]
    assert SglangSettings().mem_fraction == 0.75
    # Not less than the pod has.
    assert SglangSettings().start_timeout_s == 3600
    own = 'serve.settings={"sglang_start_timeout_s":900}'
    environment = _environment(_container(render([], *sglang[:-1], own)))
    assert environment["TROUPE_ROLLOUT_SGLANG_START_TIMEOUT_S"] == "900"


def test_serve_when_it_loads_for_long_then_its_rollout_is_not_called_failed(render: Render) -> None:
    spec = render([], *ON).one("Deployment", "t-troupe-serve")["spec"]
    [container] = spec["template"]["spec"]["containers"]
    probe = container["startupProbe"]
    assert spec["progressDeadlineSeconds"] > probe["periodSeconds"] * probe["failureThreshold"]


def test_serve_when_upgraded_with_gpus_then_needs_none_beside_those_that_it_has(
    render: Render,
) -> None:
    def update(*more: str) -> dict[str, int]:
        deployment = render([], *ON, *more).one("Deployment", "t-troupe-serve")
        return deployment["spec"]["strategy"]["rollingUpdate"]

    with_gpus = update('serve.engine="sglang"', "serve.gpus=2")
    assert with_gpus == {"maxUnavailable": 1, "maxSurge": 0}
    assert update() == {"maxUnavailable": 0, "maxSurge": 1}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("serve.enabled=true",), "serve.team"),
        (("serve.enabled=true", 'serve.team="../secrets"'), "serve.team"),
        ((*ON, "serve.gpus=1"), "serve.gpus"),
        ((*ON, 'serve.service.type="LoadBalancer"'), "serve.keysSecret"),
        ((*ON, *KEYS, "networkPolicy.enabled=false"), "serve.keysSecret"),
        ((*PUBLIC, CLIENTS), "serve.tlsSecret is empty"),
        ((*PUBLIC, "serve.service.allowPlainHttp=true"), "serve.from is empty"),
        ((*PUBLIC, 'serve.tlsSecret="https"'), "serve.from is empty"),
    ],
)
def test_serve_when_values_contradict_then_the_message_names_them(
    refuse: Refuse, more: tuple[str, ...], words: str
) -> None:
    assert words in refuse(*more)


def test_serve_when_published_with_tls_or_behind_it_then_its_clients_get_in(render: Render) -> None:
    for over in ('serve.tlsSecret="https"', "serve.service.allowPlainHttp=true"):
        manifests = render([], *PUBLIC, CLIENTS, over)
        assert manifests.one("Service", "t-troupe-serve")["spec"]["type"] == "LoadBalancer"
        policy = manifests.one("NetworkPolicy", "t-troupe-serve")["spec"]
        assert "203.0.113.0/24" in str(policy["ingress"])
