"""docker-compose.yml: valid for Compose, hardened, and in step with the services' settings."""

import importlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
OURS = ("router", "rollout", "env", "trainer")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    document = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    return document["services"]


def _has_compose() -> bool:
    if shutil.which("docker") is None:
        return False
    asked = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    return asked.returncode == 0


def test_compose_when_docker_reads_it_then_it_is_valid() -> None:
    if not _has_compose():
        pytest.skip("`docker compose` is not installed on this machine")
    done = subprocess.run(
        ["docker", "compose", "--profile", "*", "config", "--quiet"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_compose_when_read_then_has_every_service(services: dict[str, Any]) -> None:
    assert {"redis", *OURS} <= set(services)


def test_compose_when_read_then_only_the_router_has_a_port_and_on_loopback(
    services: dict[str, Any],
) -> None:
    ports = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert list(ports) == ["router"]
    assert all(port.startswith("127.0.0.1:") for port in ports["router"])


def test_compose_when_read_then_every_container_is_confined(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["mem_limit"] and service["cpus"] and service["pids_limit"], name


@pytest.mark.parametrize("name", OURS)
def test_compose_when_a_variable_is_set_then_the_service_has_that_setting(
    name: str, services: dict[str, Any]
) -> None:
    module = importlib.import_module(f"services.{name}.settings")
    settings = getattr(module, f"{name.capitalize()}Settings")
    prefix = f"TROUPE_{name.upper()}_"
    for variable in services[name]["environment"]:
        assert variable.startswith(prefix)
        assert variable.removeprefix(prefix).lower() in settings.model_fields, variable


@pytest.mark.parametrize("name", OURS)
def test_dockerfile_when_compose_names_a_target_then_it_exists(
    name: str, services: dict[str, Any]
) -> None:
    build = services[name]["build"]
    text = (ROOT / build["dockerfile"]).read_text("utf-8")
    assert f" AS {build['target']}\n" in text
