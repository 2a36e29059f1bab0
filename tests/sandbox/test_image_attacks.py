"""The attacks inside the env service's image, under what the chart gives its pod.

Part of ``make test-sandbox``; needs a Docker Engine. The container has the pod's security context:
no root, no capability, no new privileges, a read-only root, a bounded /tmp, no network.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from compose_engine import Engine, find_engine

ROOT = Path(__file__).parents[2]
IMAGE = "troupe/env:sandbox-test"
POD = (
    *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
    *("--user", "10001:10001", "--network", "none", "--memory", "1g", "--pids-limit", "512"),
    *("--tmpfs", "/tmp:rw,nosuid,nodev,size=512m,mode=1777"),
)
"""``troupe.podSecurity`` and the env container's, in Docker's words."""
UNMASKED = (
    *("--security-opt", "seccomp=unconfined"),
    *("--security-opt", "systempaths=unconfined"),
)
"""``procMount: Unmasked`` and a profile that lets user namespaces be made: the chart's level
``namespaces``. The profile is the cluster's, so here it is none."""

pytestmark = pytest.mark.timeout(3000)
Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def run_in_image(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Run]:
    """A function that carries the attacks out in a container with these options."""
    if not request.config.getoption("--sandbox-full", default=False):
        pytest.skip("building the image takes minutes; run `make test-sandbox`")
    variables = find_engine()
    if variables is None:
        pytest.skip("no Docker Engine here; `python scripts/docker_engine.py start` says why")
    os.environ.setdefault("TROUPE_TORCH_INDEX", "")  # the env image has no torch
    engine = Engine(variables, tmp_path_factory.mktemp("image"), 0)
    engine.prepare()
    build = ["build", "--network", "host", "--target", "env", "--tag", IMAGE]
    build += ["--file", str(ROOT / "deploy" / "docker" / "Dockerfile")]
    build += ["--build-arg", f"PYTHON_IMAGE={engine.image('TROUPE_PYTHON_IMAGE')}"]
    engine.docker(*build, str(ROOT), timeout_s=2400)

    def run(*options: str) -> dict[str, Any]:
        suite = f"{ROOT / 'tests' / 'sandbox'}:/suite/tests/sandbox:ro"
        argv = ["run", "--rm", *POD, *options, "--volume", suite, "--entrypoint", "python", IMAGE]
        done: subprocess.CompletedProcess[str] = engine.docker(
            *argv, "/suite/tests/sandbox/in_image.py", timeout_s=1200
        )
        return json.loads(done.stdout.strip().splitlines()[-1])

    yield run
    engine.docker("image", "rm", "--force", IMAGE, check=False)
    engine.close()


def test_attacks_when_in_the_image_as_a_pod_runs_it_then_all_are_contained(
    run_in_image: Run,
) -> None:
    found = run_in_image(*UNMASKED)
    assert found.get("uid") == 10001, found
    assert len(found["attacks"]) > 80
    assert {name: said for name, said in found["attacks"].items() if said} == {}


def test_sandbox_when_the_pods_profile_refuses_namespaces_then_nothing_weaker_is_used(
    run_in_image: Run,
) -> None:
    found = run_in_image()
    assert "The sandbox level 'namespaces' is not possible here" in found["refused"], found
    assert "Nothing weaker is used in its place" in found["refused"]
