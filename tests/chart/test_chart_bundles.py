"""Code that jobs bring along, in the chart: off unless asked for, and never without keys."""

from typing import Any

from chart_world import Manifests, Refuse, Render

KEYS = (
    'router.keysSecret={"name":"keys","key":"keys.yaml"}',
    "helmTest.enabled=false",
    "bundles.enabled=true",
)
PEER = {"ipBlock": {"cidr": "10.1.2.3/32"}}
INDEX = (
    *KEYS,
    'bundles.index="https://index.example/simple"',
    'bundles.indexTo=[{"ipBlock":{"cidr":"10.1.2.3/32"}}]',
)


def variables(manifests: Manifests, service: str) -> dict[str, Any]:
    return {
        variable["name"]: variable.get("value")
        for _, container, _ in manifests.containers()
        if container["name"] == service
        for variable in container["env"]
    }


def egress(manifests: Manifests, component: str = "env") -> list[Any]:
    return manifests.one("NetworkPolicy", f"t-troupe-{component}")["spec"]["egress"]


def test_bundles_when_not_asked_for_then_are_left_to_the_routers_default(render: Render) -> None:
    manifests = render([], 'launcher.kind="none"')
    assert "TROUPE_ROUTER_BUNDLES" not in variables(manifests, "router")
    assert "TROUPE_BUNDLE_INDEX" not in variables(manifests, "env")


def test_bundles_when_there_are_no_keys_then_the_chart_refuses(refuse: Refuse) -> None:
    assert "keysSecret" in refuse("bundles.enabled=true")


def test_index_when_its_place_is_not_said_then_the_chart_refuses(refuse: Refuse) -> None:
    assert "bundles.indexTo" in refuse(*KEYS, 'bundles.index="https://x"')


def test_index_when_set_then_router_and_env_know_it_and_env_pods_reach_it_alone(
    render: Render,
) -> None:
    manifests = render([], 'launcher.kind="none"', *INDEX)
    for service in ("router", "env"):
        known = variables(manifests, service)["TROUPE_BUNDLE_INDEX"]
        assert known == "https://index.example/simple"
    assert variables(manifests, "router")["TROUPE_ROUTER_BUNDLES"] == "true"
    to_index = {"to": [PEER], "ports": [{"protocol": "TCP", "port": 443}]}
    without = egress(render([], 'launcher.kind="none"', *KEYS))
    assert to_index in egress(manifests)
    assert len(egress(manifests)) == len(without) + 1


def test_index_when_a_team_is_served_then_its_pod_knows_it_and_reaches_dns_and_it_alone(
    render: Render,
) -> None:
    manifests = render([], *INDEX, "serve.enabled=true", 'serve.team="runs/a"')
    known = variables(manifests, "serve")["TROUPE_BUNDLE_INDEX"]
    assert known == "https://index.example/simple"
    to_dns, to_index = egress(manifests, "serve")
    assert {port["port"] for port in to_dns["ports"]} == {53}
    assert to_index == {"to": [PEER], "ports": [{"protocol": "TCP", "port": 443}]}
