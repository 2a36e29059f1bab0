"""Locks and workflows in step with the rest: pins are ours and hashed, actions are pinned."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.build_images import IMAGES, build_argv

ROOT = Path(__file__).parents[2]
LOCKS = {path.stem: path for path in (ROOT / "deploy" / "locks").glob("*.txt")}
OWN = ("router", "env", "torch", "dev")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TORCH = ("torch", "triton", "nvidia-", "cuda-")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path: Path) -> dict[str, str]:
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", path.read_text("utf-8"), re.MULTILINE)
    return {normal(name): version for name, version in found}


def direct(extra: str, project: dict[str, Any]) -> set[str]:
    """Names that an extra asks for, with the extras that it names."""
    names: set[str] = set()
    for wanted in project["optional-dependencies"][extra]:
        if inner := re.match(r"troupe\[([^\]]+)\]", wanted):
            names |= {n for one in inner.group(1).split(",") for n in direct(one, project)}
        else:
            names.add(normal(re.split(r"[<>=!~\[; ]", wanted)[0]))
    return names


def test_locks_when_read_then_each_is_there() -> None:
    assert set(LOCKS) == {*OWN, "build", "audit", "docs"}


@pytest.mark.parametrize("name", sorted(LOCKS))
def test_lock_when_read_then_every_pin_has_hashes(name: str) -> None:
    text = LOCKS[name].read_text("utf-8")
    blocks = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(blocks) == len(pins(LOCKS[name])) > 0
    for block in blocks:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block[:80]


@pytest.mark.parametrize("name", OWN)
def test_lock_when_read_then_its_versions_are_those_of_the_constraints(name: str) -> None:
    """Run `python scripts/lock.py` after a change of constraints.txt."""
    tested = pins(ROOT / "constraints.txt")
    other = {
        package: (version, tested[package])
        for package, version in pins(LOCKS[name]).items()
        if package in tested and tested[package] != version
    }
    assert other == {}


@pytest.mark.parametrize(
    ("name", "extras"),
    [
        # The images trace, and exchange weights by a bucket, without a build of one's own.
        ("router", ["router", "tracing"]),
        ("env", ["env", "tracing"]),
        ("torch", ["rollout", "trainer", "tracing", "objectstore"]),
        ("dev", ["dev"]),
    ],
)
def test_lock_when_read_then_it_holds_all_that_its_extras_ask_for(
    name: str, extras: list[str]
) -> None:
    """Run `python scripts/lock.py` after a change of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = {normal(re.split(r"[<>=!~\[; ]", one)[0]) for one in project["dependencies"]}
    for extra in extras:
        wanted |= direct(extra, project)
    if name == "torch":
        wanted = {one for one in wanted if not one.startswith(TORCH)}
    assert wanted - set(pins(LOCKS[name])) == set()


def test_dockerfile_when_read_then_it_installs_only_what_a_lock_holds() -> None:
    """But torch, whose builds differ by index, and Troupe itself."""
    text = (ROOT / "deploy" / "docker" / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    installs = [part.split() for part in re.findall(r"pip install ([^&\n]+)", text)]
    assert len(installs) > 8
    for words in installs:
        if words[-1] in (".", "torch"):
            continue
        assert "--require-hashes" in words, words
        lock = Path(words[-1])
        assert words[-2] == "-r" and lock.parent == Path("deploy/locks") and lock.stem in LOCKS


def test_dockerfile_when_a_stage_is_slimmed_then_no_later_step_installs_into_it() -> None:
    """slim.sh removes pip: `pip` is then the base image's, and packages land in its Python."""
    text = (ROOT / "deploy" / "docker" / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    stages = dict[str, str]()
    for block in re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]:
        head, _, body = block.partition("\n")
        base, name = re.fullmatch(r"(\S+) AS (\S+)", head).groups()  # type: ignore[union-attr]
        stages[name] = stages.get(base, "") + body
    slimmed = {name: body.split("slim /opt/troupe") for name, body in stages.items()}
    ends_slim = {name for name, parts in slimmed.items() if len(parts) > 1}
    assert ends_slim == {"build-router", "build-env", "build-torch", "build-serve"}
    assert all("pip " not in "".join(parts[1:]) for parts in slimmed.values())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_when_read_then_its_actions_are_pinned_and_its_rights_are_few(path: Path) -> None:
    document = yaml.safe_load(path.read_text("utf-8"))
    assert document["permissions"] == {"contents": "read"}
    for job in document["jobs"].values():
        assert job["timeout-minutes"] <= 200
        rights = set(job.get("permissions", {}).items())
        assert rights <= {("contents", "read"), ("packages", "write"), ("id-token", "write")}
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", step["uses"]), step
            # A value of an event in a script is code of whoever made the event.
            assert "${{" not in step.get("run", ""), step


def test_workflows_when_they_call_make_then_the_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    called = {
        target
        for path in WORKFLOWS
        for target in re.findall(r"run: make ([a-z-]+)", path.read_text("utf-8"))
    }
    assert called and called <= targets


def test_workflows_when_they_name_tests_then_those_are_there() -> None:
    named = {
        path
        for workflow in WORKFLOWS
        for path in re.findall(r"\btests/[\w./-]+", workflow.read_text("utf-8"))
    }
    assert named and [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_nightly_when_read_then_processors_of_two_kinds_run_the_tests_with_models() -> None:
    text = (ROOT / ".github" / "workflows" / "nightly.yml").read_text("utf-8")
    job = yaml.safe_load(text)["jobs"]["processors"]
    assert set(job["env"]) == {"ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS"}
    kinds = job["strategy"]["matrix"]["instructions"]
    assert {kind["torch"] for kind in kinds} == {"default", "avx2"}


def test_release_when_read_then_what_is_published_is_signed() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    for job in ("images", "chart"):
        scripts = "\n".join(step.get("run", "") for step in jobs[job]["steps"])
        assert "cosign sign --yes" in scripts
        assert jobs[job]["permissions"]["id-token"] == "write"
    assert jobs["images"]["needs"] == "audit"
    # As the images job tags them; the comment at the top says how to check one.
    tagged = "/troupe/$IMAGE:${TAG#v}"
    assert tagged in "\n".join(step.get("run", "") for step in jobs["images"]["steps"])
    assert re.findall(r"cosign verify (\S+)", text) == ["ghcr.io/OWNER/REPO/troupe/env:0.1.0"]


def _images_of_chart_and_compose() -> set[str]:
    """Names after `troupe/` that a values file or a compose file has for an image."""
    chart = sorted((ROOT / "deploy" / "helm" / "troupe").glob("values*.yaml"))
    texts = [
        path.read_text("utf-8") for path in [*chart, *sorted(ROOT.glob("docker-compose*.yml"))]
    ]
    pattern = r"(?:repository|image): troupe/([a-z-]+)"
    return {name for text in texts for name in re.findall(pattern, text)}


def test_release_when_it_lists_its_images_then_they_are_those_of_chart_and_compose(
    tmp_path: Path,
) -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    [step] = [step for step in jobs["audit"]["steps"] if step.get("id") == "images"]
    output = tmp_path / "output"
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    environment = {"GITHUB_OUTPUT": str(output), "PATH": path}
    subprocess.run(
        ["bash", "-e", "-c", step["run"]], cwd=ROOT, env=environment, timeout=60, check=True
    )
    name, _, listed = output.read_text("utf-8").partition("=")
    assert jobs["audit"]["outputs"]["images"] == f"${{{{ steps.images.outputs.{name} }}}}"
    matrix = jobs["images"]["strategy"]["matrix"]
    assert matrix == {"image": "${{ fromJSON(needs.audit.outputs.images) }}"}
    assert set(json.loads(listed)) == _images_of_chart_and_compose()


def test_images_when_built_then_only_those_for_gpus_have_cuda() -> None:
    index = {
        name: [word for word in build_argv(name, "tag", [], "default") if "TORCH_INDEX=" in word]
        for name in IMAGES
    }
    lean = ["TORCH_INDEX=https://download.pytorch.org/whl/cpu"]
    assert {name for name, words in index.items() if words == lean} == {
        *("rollout", "trainer", "serve")
    }
    assert index["trainer-cuda"] == ["TORCH_INDEX="]
