"""docker-compose.serve.yml: confined, on loopback alone, and in step with the settings."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from troupe_router.serve.settings import ServeSettings

ROOT = Path(__file__).parents[2]
PREFIX = "TROUPE_SERVE_"


@pytest.fixture(scope="module")
def service() -> dict[str, Any]:
    document = yaml.safe_load((ROOT / "docker-compose.serve.yml").read_text("utf-8"))
    [(name, service)] = document["services"].items()
    assert name == "serve"
    return service


def test_serve_file_when_read_then_its_variables_are_settings(service: dict[str, Any]) -> None:
    for variable in service["environment"]:
        assert variable.removeprefix(PREFIX).lower() in ServeSettings.model_fields, variable


def test_serve_file_when_read_then_the_container_is_confined_and_on_loopback(
    service: dict[str, Any],
) -> None:
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    [port] = service["ports"]
    assert port.startswith("127.0.0.1:")
    assert all(volume.endswith(":ro") for volume in service["volumes"])
    assert "healthcheck" in service
    assert service["stop_grace_period"] == "30s"


def test_serve_file_when_it_names_a_target_then_the_dockerfile_has_it(
    service: dict[str, Any],
) -> None:
    text = (ROOT / service["build"]["dockerfile"]).read_text("utf-8")
    for target in (service["build"]["target"], "serve-sglang"):
        assert f" AS {target}\n" in text
