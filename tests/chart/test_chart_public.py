"""A router that is reached from outside: what is published, who gets in, and over what."""

import json

import kubernetes_validate
import pytest
from chart_world import Object, Refuse, Render, edges

KEYS = ('router.keysSecret.name="api-keys"', "helmTest.enabled=false")
CLIENTS = {"ipBlock": {"cidr": "203.0.113.0/24"}}
FROM = f"networkPolicy.restFrom={json.dumps([CLIENTS])}"
TLS = 'router.tlsSecret="router-https"'
KINDS = ("LoadBalancer", "NodePort")


def _ports(service: Object) -> dict[str, int]:
    return {port["name"]: port["port"] for port in service["spec"]["ports"]}


@pytest.mark.parametrize("kind", KINDS)
def test_router_when_it_has_a_public_service_then_that_has_the_rest_port_alone(
    render: Render, kind: str
) -> None:
    local = 'router.service.externalTrafficPolicy="Local"'
    manifests = render([], f'router.service.type="{kind}"', local, *KEYS, FROM, TLS)
    public = manifests.one("Service", "t-troupe-router-public")
    kubernetes_validate.validate(public, "1.34", strict=True)
    assert (public["spec"]["type"], _ports(public)) == (kind, {"rest": 8480})
    assert public["spec"]["externalTrafficPolicy"] == "Local"
    inside = manifests.one("Service", "t-troupe-router")
    assert inside["spec"]["type"] == "ClusterIP"
    assert _ports(inside) == {"rest": 8480, "grpc": 8481}
    assert public["spec"]["selector"] == inside["spec"]["selector"]


def test_clients_when_named_then_their_addresses_reach_rest_and_not_grpc(render: Render) -> None:
    manifests = render([], 'router.service.type="LoadBalancer"', *KEYS, FROM, TLS)
    policy = manifests.one("NetworkPolicy", "t-troupe-router")["spec"]
    [rule] = [rule for rule in policy["ingress"] if CLIENTS in rule["from"]]
    assert rule["ports"] == [{"protocol": "TCP", "port": 8480}]
    assert ("env", "router", 8481) in edges(manifests)


def test_router_when_it_has_a_certificate_then_rest_serves_https_from_a_mounted_folder(
    render: Render,
) -> None:
    pod = render([], TLS, "helmTest.enabled=false").one("Deployment", "t-troupe-router")
    spec = pod["spec"]["template"]["spec"]
    [container] = spec["containers"]
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert variables["TROUPE_ROUTER_TLS_CERTIFICATE"] == "/etc/troupe/https/tls.crt"
    assert variables["TROUPE_ROUTER_TLS_KEY"] == "/etc/troupe/https/tls.key"
    [mount] = [m for m in container["volumeMounts"] if m["mountPath"] == "/etc/troupe/https"]
    [volume] = [v for v in spec["volumes"] if v["name"] == mount["name"]]
    assert volume["secret"]["secretName"] == "router-https"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("helmTest.enabled=true", TLS), "Set helmTest.enabled: false"),
        (
            (*KEYS, TLS, FROM, 'gateway={"enabled":true,"host":"a.b","parentRefs":[{"name":"p"}]}'),
            "Empty router.tlsSecret",
        ),
        (
            (*KEYS, 'router.service.type="LoadBalancer"', FROM),
            "router.service.type is LoadBalancer and router.tlsSecret is empty",
        ),
        (
            (*KEYS, 'router.service.type="NodePort"', TLS),
            "router.service.type is NodePort and networkPolicy.restFrom is empty",
        ),
    ],
)
def test_router_when_strangers_would_listen_or_nobody_gets_in_then_is_refused(
    refuse: Refuse, given: tuple[str, ...], words: str
) -> None:
    assert words in refuse(*given)


def test_plain_http_when_accepted_then_is_published(render: Render) -> None:
    plain = "router.service.allowPlainHttp=true"
    manifests = render([], 'router.service.type="LoadBalancer"', *KEYS, FROM, plain)
    assert manifests.one("Service", "t-troupe-router-public")
