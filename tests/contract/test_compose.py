"""docker-compose.yml: valid for Compose, hardened, and in step with the services' settings."""

import importlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from troupe.runtime.serving import ServingSettings
from troupe_router.jobs.allowlist import Allowlist
from troupe_router.settings import RouterSettings

ROOT = Path(__file__).parents[2]
OURS = ("router", "play", "rollout", "env", "trainer")
MODULES = {"play": "troupe_router.play"}


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    document = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    return document["services"]


def _has_compose() -> bool:
    if shutil.which("docker") is None:
        return False
    asked = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    return asked.returncode == 0


OVERRIDES = [
    f"docker-compose.{name}.yml" for name in ("gpu", "one-gpu", "eight-gpu", "secure", "tls")
]


@pytest.mark.parametrize("override", ["", *OVERRIDES])
def test_compose_when_docker_reads_it_then_it_is_valid(override: str) -> None:
    if not _has_compose():
        pytest.skip("`docker compose` is not installed on this machine")
    names = ["docker-compose.yml", *filter(None, [override])]
    files = [part for name in names for part in ("--file", name)]
    done = subprocess.run(
        ["docker", "compose", *files, "--profile", "*", "config", "--quiet"],
        cwd=ROOT,
        env={**os.environ, "TROUPE_REDIS_PASSWORD_FILE": "x", "TROUPE_API_KEYS_FILE": "x"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_compose_when_read_then_has_every_service(services: dict[str, Any]) -> None:
    assert {"redis", *OURS} <= set(services)


def test_compose_when_read_then_only_router_and_grafana_have_a_port_and_on_loopback(
    services: dict[str, Any],
) -> None:
    ports = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert list(ports) == ["router", "grafana"]
    assert all(port.startswith("127.0.0.1:") for found in ports.values() for port in found)
    assert services["grafana"]["profiles"] == ["observability"]


def test_compose_when_read_then_every_image_has_a_version_and_a_health_check(
    services: dict[str, Any],
) -> None:
    for name, service in services.items():
        assert ":" in service["image"] and "latest" not in service["image"], name
        # The one that ends has no health.
        assert ("healthcheck" in service) is (name != "model"), name


def test_compose_when_it_mounts_files_of_the_repository_then_they_are_there(
    services: dict[str, Any],
) -> None:
    sources = [
        volume.partition(":")[0]
        for service in services.values()
        for volume in service.get("volumes", [])
        if volume.startswith("./")
    ]
    assert len(sources) == 4
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_rollout_when_a_job_names_weights_of_a_run_then_reads_them_where_the_trainer_does(
    services: dict[str, Any],
) -> None:
    assert "runs:/srv/runs:ro" in services["rollout"]["volumes"]
    assert "runs:/srv/runs" in services["trainer"]["volumes"]


@pytest.mark.parametrize("name", OVERRIDES)
def test_override_when_read_then_changes_only_services_that_there_are(
    name: str, services: dict[str, Any]
) -> None:
    document = yaml.safe_load((ROOT / name).read_text("utf-8"))
    assert set(document["services"]) <= set(services)


def test_tls_when_read_then_each_service_holds_its_own_roles_certificate() -> None:
    document = yaml.safe_load((ROOT / "docker-compose.tls.yml").read_text("utf-8"))
    assert set(document["services"]) == set(OURS)
    for name, service in document["services"].items():
        [volume] = service["volumes"]
        assert volume.endswith(f"/{name}:/etc/troupe/tls:ro")
        assert {f"TROUPE_TLS_{n.upper()}" for n in ("ca", "cert", "key")} == set(
            service["environment"]
        )


def test_prometheus_when_rest_asks_for_keys_then_its_targets_come_from_the_admin_port() -> None:
    text = (ROOT / "deploy" / "observability" / "prometheus.yml").read_text("utf-8")
    urls = [
        each["url"]
        for job in yaml.safe_load(text)["scrape_configs"]
        for each in job.get("http_sd_configs", [])
    ]
    assert urls == ["http://router:9090/metrics/targets"]


@pytest.mark.parametrize("override", ["", *OVERRIDES])
def test_health_check_when_it_runs_then_by_the_python_that_the_image_has_troupe_in(
    override: str,
) -> None:
    stages = _stages()
    found = _merged("docker-compose.yml", *filter(None, [override]))
    for name in OURS:
        target = found[name].get("build", {}).get("target", "router")
        interpreter = found[name]["healthcheck"]["test"][1]
        if "PATH=/opt/troupe/bin:" not in stages[target]:
            assert interpreter == "/opt/troupe/bin/python", name
        else:
            assert interpreter in ("python", "/opt/troupe/bin/python"), name


def _stages() -> dict[str, str]:
    """Target of the Dockerfile -> its own lines and those of the stages that it is made from."""
    text = (ROOT / "deploy" / "docker" / "Dockerfile").read_text("utf-8")
    found: dict[str, str] = {}
    for base, name, lines in re.findall(
        r"^FROM (\S+) AS (\S+)\n(.*?)(?=^FROM |\Z)", text, re.MULTILINE | re.DOTALL
    ):
        found[name] = found.get(base, "") + lines
    return found


def _merged(*names: str) -> dict[str, Any]:
    """Services of the files in turn: maps key by key, of all else the last."""

    def merge(one: Any, other: Any) -> Any:
        if not (isinstance(one, dict) and isinstance(other, dict)):
            return other
        return one | {key: merge(one.get(key), value) for key, value in other.items()}

    found: dict[str, Any] = {}
    for name in names:
        document = yaml.safe_load((ROOT / name).read_text("utf-8"))
        found = merge(found, document["services"])
    return found


def test_secrets_when_set_then_no_password_is_an_argument_or_a_variable() -> None:
    document = yaml.safe_load((ROOT / "docker-compose.secure.yml").read_text("utf-8"))
    assert set(document["secrets"]) == {"redis_password"}
    for name, service in document["services"].items():
        assert service["secrets"], name
        assert "requirepass" not in " ".join(service.get("environment", {})), name


def test_keys_when_their_file_is_replaced_then_the_container_sees_the_new_one() -> None:
    document = yaml.safe_load((ROOT / "docker-compose.secure.yml").read_text("utf-8"))
    router = document["services"]["router"]
    file = Path(router["environment"]["TROUPE_ROUTER_API_KEYS"])
    [volume] = router["volumes"]
    assert volume.endswith(f"/keys}}:{file.parent}:ro")


def test_compose_when_read_then_every_container_is_confined(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["mem_limit"] and service["cpus"] and service["pids_limit"], name


def test_compose_when_it_stops_then_services_have_time_to_drain_and_to_close(
    services: dict[str, Any],
) -> None:
    for name, service in services.items():
        given_s = float(service["stop_grace_period"].removesuffix("s"))
        assert given_s >= ServingSettings().grace_s + 15, name


@pytest.mark.parametrize("name", OURS)
def test_compose_when_a_variable_is_set_then_the_service_has_that_setting(
    name: str, services: dict[str, Any]
) -> None:
    package = MODULES.get(name, f"troupe_{name}")
    module = importlib.import_module(f"{package}.settings")
    settings = getattr(module, f"{name.capitalize()}Settings")
    prefix = f"TROUPE_{name.upper()}_"
    for variable in services[name]["environment"]:
        assert variable.startswith(prefix)
        assert variable.removeprefix(prefix).lower() in settings.model_fields, variable


def test_router_when_its_workers_are_offline_then_takes_hub_ids_by_their_folder_alone(
    services: dict[str, Any],
) -> None:
    environment = services["router"]["environment"]

    def allowed(**given: str) -> Allowlist:
        for name in ("TROUPE_ROUTER_MODEL_IDS", "TROUPE_ROUTER_HUB_COPIES"):
            assert environment[name] == f"${{{name}:-}}"
            given.setdefault(name.removeprefix("TROUPE_ROUTER_").lower(), "")
        return Allowlist.from_settings(RouterSettings.model_validate(given))

    assert "HF_HUB_OFFLINE=1" in (ROOT / "deploy" / "docker" / "Dockerfile").read_text("utf-8")
    assert allowed().hub_fault("Qwen/Qwen3-1.7B") is not None
    copies = allowed(hub_copies="Qwen/Qwen3-1.7B=models/Qwen3-1.7B").copies
    assert copies == {"Qwen/Qwen3-1.7B": "models/Qwen3-1.7B"}


@pytest.mark.parametrize("name", OURS)
def test_dockerfile_when_compose_names_a_target_then_it_exists(
    name: str, services: dict[str, Any]
) -> None:
    if "build" not in services[name]:
        built = [service["image"] for service in services.values() if "build" in service]
        assert services[name]["image"] in built
        return
    build = services[name]["build"]
    text = (ROOT / build["dockerfile"]).read_text("utf-8")
    assert f" AS {build['target']}\n" in text
