"""HTTPRoutes and ExternalSecrets: what they say, and what is refused before they are made."""

import pytest
from chart_world import Refuse, Render

KEYS = ('router.keysSecret.name="api-keys"', 'helmTest.keySecret.name="test-key"')
FROM = 'networkPolicy.restFrom=[{"namespaceSelector":{"matchLabels":{"a":"b"}}}]'
PARENTS = 'gateway.parentRefs=[{"name":"public","namespace":"gateways","sectionName":"https"}]'
GATEWAY = ("gateway.enabled=true", 'gateway.host="troupe.example.com"', PARENTS)
SECRETS = (
    "externalSecrets.enabled=true",
    'externalSecrets.store={"name":"vault","kind":"ClusterSecretStore"}',
    'externalSecrets.secrets=[{"name":"troupe-redis","keys":{"password":'
    '{"key":"team/troupe","property":"redis"}}},{"name":"api-keys","keys":{"keys.json":{"key":"k"}}}]',
)


def test_route_when_enabled_then_leads_the_host_to_the_routers_rest_port(render: Render) -> None:
    manifests = render([], *GATEWAY, *KEYS, FROM)
    route = manifests.one("HTTPRoute", "t-troupe-router")
    assert route["apiVersion"] == "gateway.networking.k8s.io/v1"
    assert route["spec"] == {
        "parentRefs": [{"name": "public", "namespace": "gateways", "sectionName": "https"}],
        "hostnames": ["troupe.example.com"],
        "rules": [
            {
                "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                "backendRefs": [{"name": "t-troupe-router", "port": 8480}],
            }
        ],
    }
    service = manifests.one("Service", "t-troupe-router")
    assert 8480 in [port["port"] for port in service["spec"]["ports"]]
    assert not manifests.of("Ingress")


def test_secrets_when_external_then_each_is_made_under_the_name_that_values_use(
    render: Render,
) -> None:
    manifests = render(
        [], *SECRETS, *KEYS, 'redis.passwordSecret={"name":"troupe-redis","key":"password"}'
    )
    made = {found["metadata"]["name"]: found for found in manifests.of("ExternalSecret")}
    assert set(made) == {"troupe-redis", "api-keys"}
    assert made["troupe-redis"]["apiVersion"] == "external-secrets.io/v1"
    assert made["troupe-redis"]["spec"] == {
        "refreshInterval": "1h",
        "secretStoreRef": {"name": "vault", "kind": "ClusterSecretStore"},
        "target": {"name": "troupe-redis", "creationPolicy": "Owner"},
        "data": [
            {"secretKey": "password", "remoteRef": {"key": "team/troupe", "property": "redis"}}
        ],
    }
    assert made["api-keys"]["spec"]["data"] == [
        {"secretKey": "keys.json", "remoteRef": {"key": "k"}}
    ]


def test_route_and_secrets_when_off_then_no_object_of_another_project_is_made(
    render: Render,
) -> None:
    assert not render().of("HTTPRoute", "ExternalSecret")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("gateway.enabled=true",), "gateway.host or gateway.parentRefs is empty"),
        (GATEWAY, "nobody is asked for a key"),
        ((*GATEWAY, *KEYS), "networkPolicy.restFrom is empty"),
        (('gateway.parentRefs=[{"nam":"x"}]',), "additional properties 'nam' not allowed"),
        (("externalSecrets.enabled=true",), "externalSecrets.store.name"),
        (('externalSecrets.store.kind="Vault"',), "'/externalSecrets/store/kind'"),
        (('externalSecrets.secrets=[{"name":"a","keys":{}}]',), "minProperties"),
        (('externalSecrets.refreshInterval="often"',), "'/externalSecrets/refreshInterval'"),
    ],
)
def test_values_when_wrong_then_refused_in_words(
    refuse: Refuse, given: tuple[str, ...], words: str
) -> None:
    assert words in refuse(*given)
