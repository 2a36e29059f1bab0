"""Default deny, and only the edges that the rooms need."""

import json
from pathlib import Path

import pytest
from chart_world import EVERYTHING, VALUES, Manifests, Refuse, Render, edges, selects

EDGES = {
    # Workers register and send heartbeats.
    ("rollout", "router", 8481),
    ("env", "router", 8481),
    ("trainer", "router", 8481),
    # Generate and Step.
    ("router", "rollout", 9000),
    ("router", "env", 9000),
    # GetProgress.
    ("router", "trainer", 9000),
    # UpdateWeights.
    ("trainer", "rollout", 9000),
    # Streams.
    ("router", "redis", 6379),
    ("trainer", "redis", 6379),
    # `helm test`.
    ("test", "router", 8480),
}
PLAY_EDGES = {("play", "rollout", 9000), ("play", "env", 9000), ("play", "redis", 6379)}
"""Of processes that play beside the router."""


def _egress(manifests: Manifests, component: str) -> list[dict[str, object]]:
    found = manifests.one("NetworkPolicy", f"t-troupe-{component}")
    return found["spec"].get("egress", [])


@pytest.mark.parametrize("values", [*VALUES, EVERYTHING], ids=lambda path: path.stem)
def test_policies_when_added_up_then_let_through_the_designs_edges_alone(
    render: Render, values: Path
) -> None:
    more = PLAY_EDGES if values == EVERYTHING else set()
    assert edges(render([values])) == EDGES | more


@pytest.mark.parametrize("values", [*VALUES, EVERYTHING], ids=lambda path: path.stem)
def test_default_deny_when_rendered_then_takes_in_every_pod(render: Render, values: Path) -> None:
    manifests = render([values])
    spec = manifests.one("NetworkPolicy", "t-troupe-default-deny")["spec"]
    assert set(spec) == {"podSelector", "policyTypes"}
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert all(selects(spec["podSelector"], labels) for _, labels, _ in manifests.pods())


def test_edges_when_policies_are_off_then_all_are_open(render: Render) -> None:
    keys = ('router.keysSecret.name="k"', "helmTest.enabled=false")
    manifests = render([], "networkPolicy.enabled=false", *keys)
    assert ("env", "redis", 6379) in edges(manifests)
    assert manifests.of("NetworkPolicy") == []


def test_weights_when_broadcast_then_trainer_and_rollouts_reach_each_others_ephemeral_ports(
    render: Render,
) -> None:
    plain, by_file = "tls.enabled=false", 'trainer.settings.weights_via="grpc"'
    assert edges(render()) == edges(render([], plain, by_file)) == EDGES
    # Without TLS large weights go this way on CPUs too.
    assert edges(render([], plain)) > EDGES
    manifests = render([], 'trainer.settings.weights_via="distributed"')
    group = ("rollout", "trainer")
    more = {(one, to, port) for one in group for to in group for port in (32768, 60999)}
    assert edges(manifests) == EDGES | more


def test_env_when_the_router_has_no_fixed_address_then_asks_only_dns_and_router(
    render: Render,
) -> None:
    to_router, to_dns = _egress(render(), "env")
    assert to_router["ports"] == [{"protocol": "TCP", "port": 8481}]
    assert [port["port"] for port in to_dns["ports"]] == [53, 53]  # type: ignore[attr-defined]


def test_env_when_the_router_has_a_fixed_address_then_resolves_nothing(render: Render) -> None:
    manifests = render([], 'router.service.clusterIP="10.96.7.7"')
    assert len(_egress(manifests, "env")) == 1
    [spec] = [spec for name, _, spec in manifests.pods() if name == "t-troupe-env"]
    assert spec["dnsPolicy"] == "None"
    variables = {v["name"]: v.get("value") for v in spec["containers"][0]["env"]}
    assert variables["TROUPE_ENV_ROUTER"] == "10.96.7.7:8481"


def test_internet_when_nothing_is_downloaded_then_no_pod_reaches_it(render: Render) -> None:
    manifests = render()
    outward = [
        found["metadata"]["name"]
        for found in manifests.of("NetworkPolicy")
        if "ipBlock" in str(found["spec"].get("egress"))
    ]
    assert outward == ["t-troupe-download"]
    components = {labels["app.kubernetes.io/component"] for _, labels, _ in manifests.pods()}
    assert "download" not in components


def test_api_server_when_of_minikube_or_microk8s_then_its_port_is_open_to_the_router_alone(
    render: Render,
) -> None:
    """A policy sees the port behind the Service's 443: 8443 of minikube, 16443 of MicroK8s."""

    def holders(manifests: Manifests) -> dict[str, list[int]]:
        return {
            found["metadata"]["name"]: [port["port"] for port in rule["ports"]]
            for found in manifests.of("NetworkPolicy")
            for rule in found["spec"].get("egress", [])
            if "to" not in rule
        }

    assert holders(render()) == {"t-troupe-router": [443, 6443, 8443, 16443]}
    assert holders(render([], "networkPolicy.apiServerPorts=[7443]")) == {"t-troupe-router": [7443]}


def test_dns_when_it_listens_elsewhere_then_those_ports_are_open_and_no_others(
    render: Render,
) -> None:
    """OpenShift's listens on 5353, which is what a policy sees."""
    manifests = render([], "networkPolicy.dnsPorts=[53,5353]")
    *_, rule = _egress(manifests, "rollout")
    ports = [(port["protocol"], port["port"]) for port in rule["ports"]]  # type: ignore[attr-defined]
    assert ports == [("UDP", 53), ("TCP", 53), ("UDP", 5353), ("TCP", 5353)]


HUB = '[{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "ports": [{"protocol": "TCP", "port": 443}]}]'


@pytest.mark.parametrize("component", ["router", "play", "trainer", "rollout", "download"])
def test_egress_when_a_rule_is_added_then_that_components_pods_alone_have_it(
    render: Render, component: str
) -> None:
    plain = render([], "play.replicas=1")
    manifests = render([], "play.replicas=1", f"networkPolicy.egress.{component}={HUB}")
    [rule] = [r for r in _egress(manifests, component) if r not in _egress(plain, component)]
    assert rule == json.loads(HUB)[0]
    assert [r for r in _egress(manifests, component) if r != rule] == _egress(plain, component)
    policies = zip(manifests.of("NetworkPolicy"), plain.of("NetworkPolicy"), strict=True)
    changed = [one["metadata"]["name"] for one, other in policies if one != other]
    assert changed == [f"t-troupe-{component}"]


def test_egress_when_of_env_or_no_rule_then_is_refused(refuse: Refuse) -> None:
    assert "additional properties 'env'" in refuse(f"networkPolicy.egress.env={HUB}")
    words = refuse('networkPolicy.egress.router=[{"to": []}]')  # it would be everywhere
    assert "'/networkPolicy/egress/router/0/to'" in words
    words = refuse('networkPolicy.egress.router=[{"ipBlock": {"cidr": "1.2.3.4/32"}}]')
    assert "'/networkPolicy/egress/router/0'" in words


@pytest.mark.parametrize("by", ["scrape", "podMonitor"])
def test_metrics_when_monitored_then_open_to_the_named_namespace_alone(
    render: Render, by: str
) -> None:
    manifests = render([], f"monitoring.{by}.enabled=true")
    for component in ("router", "rollout", "env", "trainer"):
        rules = manifests.one("NetworkPolicy", f"t-troupe-{component}")["spec"]["ingress"]
        [rule] = [r for r in rules if r["ports"][0]["port"] == 9090]
        [peer] = rule["from"]
        labels = peer["namespaceSelector"]["matchLabels"]
        assert labels == {"kubernetes.io/metadata.name": "monitoring"}


def test_metrics_when_scraped_without_the_operator_then_nothing_needs_its_kinds(
    render: Render,
) -> None:
    kinds = {found["kind"] for found in render([], "monitoring.scrape.enabled=true")}
    assert kinds == {found["kind"] for found in render()}


def test_peers_when_the_list_is_empty_then_no_rule_is_made_and_nobody_is_let_through(
    render: Render,
) -> None:
    """An empty `from` or `to` matches everybody."""
    watched = "monitoring.podMonitor.enabled=true"
    manifests = render([], watched, "networkPolicy.metricsFrom=[]", "networkPolicy.dnsTo=[]")
    rules = [
        rule
        for found in manifests.of("NetworkPolicy")
        for way in ("ingress", "egress")
        for rule in found["spec"].get(way) or []
    ]
    assert all(rule.get("from", True) and rule.get("to", True) for rule in rules)
    assert not {9090, 53} & {port["port"] for rule in rules for port in rule["ports"]}
    assert edges(manifests) == EDGES


def test_redis_when_external_then_only_its_peers_are_reached(render: Render) -> None:
    manifests = render(
        [],
        "redis.enabled=false",
        'redis.external.url="redis://cache.example.com:6380/0"',
        "redis.external.port=6380",
        'redis.external.egressTo=[{"ipBlock": {"cidr": "10.9.0.7/32"}}]',
    )
    for component in ("router", "trainer"):
        [rule] = [
            r
            for r in _egress(manifests, component)
            if r["ports"] == [{"protocol": "TCP", "port": 6380}]
        ]
        assert rule["to"] == [{"ipBlock": {"cidr": "10.9.0.7/32"}}]
    assert [o for o in manifests if "redis" in o["metadata"]["name"]] == []
