"""Hub ids of `models.download`: loaded once, whole, and named by jobs as the hub names them."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from chart_world import CHART, Manifests, Render

from troupe_router.settings import RouterSettings

MODEL = 'models.download=[{"repo":"Qwen/Qwen3-8B","name":"Qwen3-8B","revision":"abc"}]'
TOKEN = 'models.tokenSecret={"name":"hub","key":"token"}'


def router(manifests: Manifests) -> dict[str, str]:
    """Variables of the router."""
    [found] = [c for of, c, _ in manifests.containers() if of.endswith("/router")]
    return {each["name"]: each.get("value", "") for each in found["env"]}


def download(manifests: Manifests) -> dict[str, Any]:
    """The container that loads the model."""
    [found] = [c for of, c, _ in manifests.containers() if "-model-qwen3-8b-" in of]
    return found


def test_router_when_models_are_downloaded_then_jobs_may_name_their_hub_ids(
    render: Render,
) -> None:
    variables = router(render([], MODEL))
    settings = RouterSettings(
        hub_copies=variables["TROUPE_ROUTER_HUB_COPIES"],
        model_ids=variables["TROUPE_ROUTER_MODEL_IDS"],
    )
    assert settings.copies == {"Qwen/Qwen3-8B": "models/Qwen3-8B"}
    assert settings.model_ids == ""  # the images are offline
    online = router(render([], MODEL, 'router.settings={"model_ids":"Qwen/*"}'))
    assert online["TROUPE_ROUTER_MODEL_IDS"] == "Qwen/*"


@pytest.mark.parametrize("preset", sorted(CHART.glob("values-*.yaml")), ids=lambda p: p.stem)
def test_router_when_of_a_preset_then_has_a_folder_for_each_model_it_loads(
    render: Render, preset: Path
) -> None:
    manifests = render([preset])
    copies = RouterSettings(hub_copies=router(manifests)["TROUPE_ROUTER_HUB_COPIES"]).copies
    loaded = {
        c["args"][0]: c["args"][c["args"].index("download") + 1]
        for of, c, _ in manifests.containers()
        if of.endswith("/model") and "download" in c["args"]
    }
    assert loaded
    assert {folder.removeprefix("models/"): hub for hub, folder in copies.items()} == loaded


def test_download_when_the_model_is_gated_then_only_its_pod_has_the_token(render: Render) -> None:
    manifests = render([], MODEL, TOKEN)
    holders = [
        of
        for of, container, _ in manifests.containers()
        if any(each["name"] == "HF_TOKEN" for each in container.get("env", []))
    ]
    assert [name.rpartition("-")[0] for name in holders] == ["t-troupe-model-qwen3-8b"]
    env = {each["name"]: each for each in download(manifests)["env"]}
    assert env["HF_TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": "hub", "key": "token"}
    assert env["HF_HUB_OFFLINE"]["value"] == "0"


@pytest.mark.parametrize(
    "change",
    [
        'tolerations=[{"key":"gpu","operator":"Exists"}]',
        'imagePullSecrets=[{"name":"pull"}]',
        TOKEN,
        'models.resources.limits.memory="6Gi"',
    ],
)
def test_model_jobs_when_their_template_changes_then_have_other_names(
    render: Render, change: str
) -> None:
    """A Job's template is immutable: `helm upgrade` fails where a name keeps another template."""
    before, after = (
        {job["metadata"]["name"]: job["spec"]["template"] for job in render(*given).of("Job")}
        for given in (([], MODEL), ([], MODEL, change))
    )
    assert len(before) == len(after) == 2
    assert before.keys() != after.keys()
    assert all(before[name] == after[name] for name in before.keys() & after.keys())


def test_download_when_it_has_variables_then_no_other_pod_has_them(render: Render) -> None:
    extra = (
        'models.extraEnv={"HF_ENDPOINT":"https://hub.example","HTTPS_PROXY":"http://proxy:3128"}'
    )
    manifests = render([], MODEL, extra)
    assert {
        "HF_ENDPOINT": "https://hub.example",
        "HTTPS_PROXY": "http://proxy:3128",
    }.items() <= {each["name"]: each["value"] for each in download(manifests)["env"]}.items()
    holders = [of for of, c, _ in manifests.containers() if "HF_ENDPOINT" in str(c.get("env"))]
    assert len(holders) == 1


def test_model_jobs_when_only_their_deadline_changes_then_keep_their_names(render: Render) -> None:
    before, after = (
        [job["metadata"]["name"] for job in render(*given).of("Job")]
        for given in (([], MODEL), ([], MODEL, "models.deadlineSeconds=9000"))
    )
    assert before == after


def test_download_when_a_pod_ends_in_the_middle_then_the_folder_appears_whole(
    render: Render, tmp_path: Path
) -> None:
    """The rendered script with a `python` that writes a file a run, and fails in its first."""
    container = download(render([], MODEL))
    (tmp_path / "models" / "Qwen3-8B").mkdir(parents=True)
    (tmp_path / "models" / "Qwen3-8B" / "of-no-finished-download").touch()
    fake = tmp_path / "bin" / "python"
    fake.parent.mkdir()
    fake.write_text(
        '#!/bin/sh\nfor part; do [ "$before" = --local-dir ] && folder=$part; before=$part; done\n'
        'mkdir -p "$folder"; [ -e "$folder/first" ] && touch "$folder/second" && exit 0\n'
        'touch "$folder/first"; exit 1\n'
    )
    fake.chmod(0o755)
    path = f"{fake.parent}:{os.environ['PATH']}"

    def run() -> int:
        argv = [*container["command"], *container["args"]]
        return subprocess.run(argv, cwd=tmp_path, env={"PATH": path}, check=False).returncode

    def held() -> list[str]:
        return sorted(each.name for each in (tmp_path / "models" / "Qwen3-8B").iterdir())

    assert run() == 1
    assert held() == ["of-no-finished-download"]
    assert run() == 0
    assert held() == ["first", "second"]
    fake.unlink()  # a third run loads nothing
    assert run() == 0
    assert sorted(p.name for p in (tmp_path / "models").iterdir()) == [".Qwen3-8B.done", "Qwen3-8B"]
    assert (tmp_path / "models" / ".Qwen3-8B.done").read_text() == "Qwen/Qwen3-8B@abc"


def test_download_when_the_name_holds_another_revision_then_is_refused_and_it_stays(
    render: Render, tmp_path: Path
) -> None:
    (tmp_path / "models" / "Qwen3-8B").mkdir(parents=True)
    mark = tmp_path / "models" / ".Qwen3-8B.done"

    def run(model: str) -> subprocess.CompletedProcess[str]:
        container = download(render([], model))
        argv = [*container["command"], *container["args"]]
        return subprocess.run(argv, cwd=tmp_path, check=False, capture_output=True, text=True)

    mark.write_text("Qwen/Qwen3-8B@abc")
    assert run(MODEL).returncode == 0
    other = run(MODEL.replace("abc", "def"))
    assert other.returncode == 1
    assert "models/Qwen3-8B holds Qwen/Qwen3-8B@abc, which jobs may use: give" in other.stderr
    assert run(MODEL.replace("Qwen/Qwen3-8B", "another/Qwen3-8B")).returncode == 1
    assert mark.read_text() == "Qwen/Qwen3-8B@abc"
    mark.write_text("")  # an older chart's, which names nothing
    assert run(MODEL.replace("abc", "def")).returncode == 0
