"""Values that are wrong are refused in words; the schema knows every setting and nothing else."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from chart_world import CHART, Object, Refuse

from troupe.runtime.serving import ServingSettings
from troupe_env.sandbox.settings import SandboxSettings
from troupe_env.settings import EnvSettings
from troupe_rollout.engines.sglang.settings import SglangSettings
from troupe_rollout.settings import RolloutSettings
from troupe_router.play.settings import PlaySettings
from troupe_router.serve.settings import ServeSettings
from troupe_router.settings import RouterSettings
from troupe_trainer.settings import TrainerSettings

SCHEMA: Object = json.loads((CHART / "values.schema.json").read_text("utf-8"))
POOL = (
    '{"name":"a","engine":"cpu","replicas":1,"tmpSize":"1Gi","resources":{'
    '"requests":{"cpu":1,"memory":"1Gi"},"limits":{"cpu":1,"memory":"1Gi"}}'
)
OWN_TO_CHART = {
    "router": {
        "bundles",
        *{"rest_address", "redis_url", "runs_dir", "launcher", "release", "namespace"},
        *{"kubeconfig", "env_replicas", "trainer_gpus", "api_keys", "allow_anonymous", "players"},
        "hub_copies",  # models.download
        "models_of_runs",  # rollout.mountRuns
        *{"tls_certificate", "tls_key"},  # router.tlsSecret
    },
    "play": {"redis_url"},
    "serve": {
        "prints_json",
        *{"team", "engine", "rest_address", "api_keys", "allow_anonymous"},
        *{"tls_certificate", "tls_key", "sglang_device", "sglang_tp_size"},
    },
    "rollout": {"engine", "sglang_device", "sglang_tp_size"},
    "env": {"sandbox_level"},
    "trainer": {"redis_url", "device", "run_dir"},
}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ('router.replicas="two"', "'/router/replicas': got string, want integer"),
        ("router.replicas=0", "'/router/replicas': minimum: got 0, want 1"),
        ("router.replica=2", "additional properties 'replica' not allowed"),
        ("nonsense=1", "additional properties 'nonsense' not allowed"),
        ("env.settings.thread=3", "invalid propertyName 'thread'"),
        ('env.extraEnv.TROUPE_ENV_ROUTER="x"', "invalid propertyName 'TROUPE_ENV_ROUTER'"),
        ('env.extraEnv.TROUPE_TLS_CA="x"', "invalid propertyName 'TROUPE_TLS_CA'"),
        (
            'env.extraEnv.KEY={"secretKeyRef":{"name":"a","key":"b"}}',
            "'/env/extraEnv/KEY': missing property 'valueFrom'",
        ),
        ('env.sandbox.level="auto"', "value must be one of 'none', 'namespaces', 'gvisor-pod'"),
        ('image.tag="latest"', "'/image/tag'"),
        ("router.resources.limits.memory=null", "missing property 'memory'"),
        ('redis.external.url="redis://:secret@host:6379"', "'/redis/external/url'"),
        ('persistence.runs.size="much"', "'/persistence/runs/size'"),
        ("rollout.pools=[]", "'/rollout/pools': minItems"),
        ('nameOverride="My Team"', "'/nameOverride'"),
        (
            'commonLabels={"app.kubernetes.io/component":"ml"}',
            "invalid propertyName 'app.kubernetes.io/component'",
        ),
        (
            'commonLabels={"troupe.dev/pool":"a"}',
            "invalid propertyName 'troupe.dev/pool'",
        ),
        (
            'monitoring.labels={"helm.sh/chart":"a"}',
            "invalid propertyName 'helm.sh/chart'",
        ),
        ("singleNode=false", "ReadWriteOnce and singleNode is false"),
        (f"rollout.pools=[{POOL}}},{POOL}}}]", 'two pools named "a"'),
        (
            'models.download=[{"repo":"a/x","name":"x"},{"repo":"b/x","name":"x"}]',
            'models.download has b/x as "x", and so has a/x',
        ),
        (
            'models.download=[{"repo":"a/x","name":"plan_path_6x6"}]',
            'models.download has a/x as "plan_path_6x6", and so has models.demo',
        ),
        (f'rollout.pools=[{POOL},"gpus":1}}]', "engine cpu and gpus: 1"),
        ('env.sandbox.level="gvisor-pod"', "env.runtimeClassName is empty"),
        ('env.sandbox.level="namespaces"', "env.sandbox.seccompProfile is empty"),
        ('env.sandbox.level="process"', "env.sandbox.acceptNoIsolation: true"),
        ("redis.enabled=false", "redis.external names no server"),
        ('redis.external.url="redis://h:1/0"', "choose one"),
        ("ingress.enabled=true", "ingress.host is empty"),
        ('ingress={"enabled":true,"host":"a.b"}', "ingress.tlsSecret is empty"),
        (
            'ingress={"enabled":true,"host":"a.b","tlsSecret":"t","annotations":{"a/b":"c"}}',
            "set router.keysSecret.name, or ingress.acceptAnonymous: true",
        ),
        (
            'ingress={"enabled":true,"host":"a.b","tlsSecret":"t","acceptAnonymous":true}',
            "networkPolicy.restFrom is empty",
        ),
        ('router.keysSecret.name="keys"', "helmTest.keySecret has none"),
        (
            'clusterUserIds=true,env.program.repositories=["ghcr.io/acme/team"]',
            "clusterUserIds is true: a program's container needs another user",
        ),
        ("networkPolicy.dnsPorts=[70000]", "'/networkPolicy/dnsPorts/0': maximum"),
        ("networkPolicy.apiServerPorts=[]", "'/networkPolicy/apiServerPorts': minItems"),
        ("networkPolicy.enabled=false", "router.keysSecret.name is empty, and no NetworkPolicy"),
        ('router.service.type="LoadBalancer"', "router.keysSecret.name is empty"),
        ('router.service.type="NodePort"', "router.keysSecret.name is empty"),
        ('tls.source="files"', "'/tls/source': value must be one of 'generated'"),
        ('tls.source="certManager"', "tls.issuerRef.name is empty"),
        ('tls.source="existing"', "tls.secrets.router is empty"),
        ('launcher.kind="local"', "'/launcher/kind': value must be one of 'kubernetes', 'none'"),
        ("env.autoscaling.enabled=true", "env.autoscaling.enabled is true and launcher.kind"),
        (f'rollout.pools=[{POOL},"jobId":"j"}}]', "remove jobId"),
        (
            'router.autoscaling={"enabled":true,"minReplicas":9,"maxReplicas":2}',
            "router.autoscaling.minReplicas (9) is above maxReplicas (2)",
        ),
    ],
)
def test_values_when_wrong_then_helm_says_what_and_where(
    refuse: Refuse, given: str, words: str
) -> None:
    assert words in refuse(given)


@pytest.mark.parametrize("release", ["4gpu", "team.a"])
def test_release_when_its_name_begins_no_services_then_is_refused_and_may_be_overridden(
    helm: str, release: str
) -> None:
    argv = [helm, "template", release, str(CHART)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert f'"{release}-troupe", of the release\'s name' in done.stderr
    assert "set fullnameOverride" in done.stderr
    argv += ["--set", "fullnameOverride=team"]
    subprocess.run(argv, capture_output=True, timeout=60, check=True)


def _objects(schema: Any, at: str = "") -> Iterator[tuple[str, Object]]:
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield at, schema
        for key, value in schema.items():
            yield from _objects(value, f"{at}/{key}")


def test_schema_when_read_then_every_object_with_properties_is_closed() -> None:
    open_ones = [
        at
        for at, o in _objects(SCHEMA)
        if "properties" in o and o.get("additionalProperties") is not False
    ]
    assert open_ones == []


def test_schema_when_read_then_values_yaml_has_every_top_level_key() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    assert set(SCHEMA["properties"]) - {"global"} == set(values)


def _fields() -> dict[str, set[str]]:
    sglang = {f"sglang_{name}" for name in SglangSettings.model_fields}
    sandbox = {f"sandbox_{name}" for name in SandboxSettings.model_fields}
    return {
        "router": set(RouterSettings.model_fields),
        "play": set(PlaySettings.model_fields),
        "serve": set(ServeSettings.model_fields) | sglang,
        "rollout": set(RolloutSettings.model_fields) | sglang,
        "env": set(EnvSettings.model_fields) | sandbox,
        "trainer": set(TrainerSettings.model_fields),
    }


@pytest.mark.parametrize("service", ["router", "play", "serve", "rollout", "env", "trainer"])
def test_schema_when_read_then_its_settings_are_the_services(service: str) -> None:
    places = SCHEMA["properties"] | {"rollout": SCHEMA["definitions"]["pool"]}
    known = set(places[service]["properties"]["settings"]["propertyNames"]["enum"])
    by_chart = (set(ServingSettings.model_fields) - {"log_level", "max_calls"}) | OWN_TO_CHART[
        service
    ]
    assert known == _fields()[service] - by_chart
