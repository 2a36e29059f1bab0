"""``troupe publish --to hub:`` and back, with the hub's own client against a hub on loopback."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from publishing_hub import TOKEN, Hub, HubRepo, running_hub
from run_folders import write_run

from troupe.cli.main import run
from troupe.publishing.manifest import TeamManifest
from troupe.publishing.team_folder import open_team

constants = pytest.importorskip(
    "huggingface_hub.constants", reason="the hub's client is not installed"
)
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")
"""The hub's client warns of its own call of its HTTP library."""
REPO = "org/pair"


@dataclass
class PublishWorld:
    """A run, a hub, and the command line with a token for it."""

    folder: Path
    hub: Hub
    capture: pytest.CaptureFixture[str]

    def troupe(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, stdout and stderr."""
        self.capture.readouterr()
        status = run(arguments)
        captured = self.capture.readouterr()
        return status, captured.out, captured.err

    def publish(self, *more: str) -> tuple[int, str, str]:
        return self.troupe("publish", "./run/pair-1", "--to", f"hub:{REPO}", *more)


@pytest.fixture
def world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[PublishWorld]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("TROUPE_PUBLISH_HUB_TOKEN", TOKEN)
    monkeypatch.setenv("TROUPE_CACHE_DIR", str(tmp_path / "cache"))
    write_run(tmp_path / "run" / "pair-1")
    with running_hub() as hub:
        monkeypatch.setenv("TROUPE_PUBLISH_HUB_URL", hub.url)
        yield PublishWorld(tmp_path, hub, capsys)
        assert hub.violations == []


def test_command_when_the_client_is_set_up_as_usual_then_its_own_variables_are_enough(
    world: PublishWorld,
) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TROUPE_", "HF_"))}
    environment |= {"HF_ENDPOINT": world.hub.url, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}
    command = ["publish", "./run/pair-1", "--to", f"hub:{REPO}"]
    done = subprocess.run(
        [sys.executable, "-m", "troupe.cli.main", *command],
        cwd=world.folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "team.json" in world.hub.repos[REPO].files


def test_team_when_published_and_fetched_then_every_file_is_the_same(world: PublishWorld) -> None:
    status, said, notes = world.publish("--license", "apache-2.0", "--dataset", "org/rows")
    assert status == 0, notes
    repo = world.hub.repos[REPO]
    assert repo.is_private
    assert len(repo.commits) == 1
    assert f"{world.hub.url}/{REPO}/commit/" in said
    status, printed, more = world.troupe("model", "fetch", f"hub:{REPO}", "--to", "copy", "--json")
    assert status == 0, more
    copy = world.folder / json.loads(printed)["folder"]
    assert TeamManifest.read(copy).name == "pair"
    for name, data in repo.files.items():
        assert (copy / name).read_bytes() == data, name
    texts = "".join(map(str, repo.files.values()))
    assert TOKEN not in said + notes + more + texts
    assert str(world.folder) not in texts


def test_team_when_published_twice_then_the_second_sends_no_blob_and_makes_no_commit(
    world: PublishWorld,
) -> None:
    assert world.publish()[0] == 0
    sent = world.hub.counts["upload"]
    assert world.publish()[0] == 0
    assert world.hub.counts["upload"] == sent
    assert len(world.hub.repos[REPO].commits) == 1


def test_team_when_the_upload_broke_then_the_same_command_goes_on(world: PublishWorld) -> None:
    world.hub.failures["commit"] = 1
    status, _, notes = world.publish()
    assert status == 1
    assert "try again" in notes
    assert TOKEN not in notes
    assert world.hub.repos[REPO].commits == []
    sent = world.hub.counts["upload"]
    assert sent == 3  # two adapters and a base
    assert world.publish()[0] == 0
    assert world.hub.counts["upload"] == sent
    assert len(world.hub.repos[REPO].commits) == 1


def test_team_when_a_policy_is_gone_then_its_files_leave_the_repository(
    world: PublishWorld,
) -> None:
    assert world.publish()[0] == 0
    assert "policies/tool/adapter_model.safetensors" in world.hub.repos[REPO].files
    spec = world.folder / "run" / "pair-1" / "spec.json"
    document = json.loads(spec.read_text())
    document["agents"] = {name: {"policy": "planner"} for name in ("tool", "planner")}
    spec.write_text(json.dumps(document))
    assert world.publish()[0] == 0
    assert not any(name.startswith("policies/tool/") for name in world.hub.repos[REPO].files)


def test_team_when_the_repository_is_public_then_it_is_sent_only_with_the_flag(
    world: PublishWorld,
) -> None:
    world.hub.repos[REPO] = HubRepo(is_private=False)
    status, _, notes = world.publish()
    assert status == 2
    assert "--public" in notes
    assert world.hub.repos[REPO].commits == []
    assert world.publish("--public")[0] == 0


def test_team_when_the_repository_is_private_then_the_flag_is_refused(world: PublishWorld) -> None:
    assert world.publish()[0] == 0
    status, _, notes = world.publish("--public")
    assert status == 2
    assert "is private, and --public opens new repositories only" in notes
    assert len(world.hub.repos[REPO].commits) == 1


def test_team_when_the_repository_holds_a_model_then_it_is_left_alone(world: PublishWorld) -> None:
    files = {"model.safetensors": b"theirs"}
    world.hub.repos[REPO] = HubRepo(is_private=True, commits=[("a" * 40, files)])
    status, _, notes = world.publish()
    assert status == 2
    assert "no team" in notes
    assert world.hub.repos[REPO].files == files


def test_team_when_the_token_is_wrong_then_the_message_says_so_without_it(
    world: PublishWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = "hf_" + "w" * 34
    monkeypatch.setenv("TROUPE_PUBLISH_HUB_TOKEN", wrong)
    status, _, notes = world.publish()
    assert status == 2
    assert "refuses the token" in notes
    assert wrong not in notes


def test_team_when_nothing_is_to_be_sent_then_nobody_is_asked(world: PublishWorld) -> None:
    status, said, notes = world.publish("--dry-run")
    assert status == 0, notes
    assert "policies/tool/adapter_model.safetensors" in said
    assert "nothing was sent" in notes
    assert world.hub.repos == {}


def test_team_when_the_hub_changed_a_weight_then_fetching_refuses_it(world: PublishWorld) -> None:
    assert world.publish()[0] == 0
    commit, files = world.hub.repos[REPO].commits[-1]
    name = "policies/tool/adapter_model.safetensors"
    changed = files | {name: files[name][:-1] + b"\1"}
    world.hub.repos[REPO].commits[-1] = (commit, changed)
    status, _, notes = world.troupe("model", "fetch", f"hub:{REPO}")
    assert status == 2
    assert "not the file of the manifest" in notes
    assert not (world.folder / "cache" / "teams" / "hub" / "org--pair" / commit).exists()


def test_base_when_fetched_then_no_second_copy_of_its_weights_is(
    world: PublishWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = world.folder / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    files = {path.name: path.read_bytes() for path in (world.folder / "run" / "base").iterdir()}
    more = {"consolidated.safetensors": b"the same once more"}
    world.hub.repos["org/base"] = HubRepo(is_private=True, commits=[("b" * 40, files | more)])
    assert world.publish("--base", "org/base")[0] == 0
    status, printed, notes = world.troupe("model", "fetch", f"hub:{REPO}", "--json")
    assert status == 0, notes
    base = cache / "models--org--base" / "snapshots" / ("b" * 40)
    assert {path.name for path in base.iterdir()} == set(files)
    assert open_team(json.loads(printed)["folder"]).model("tool") == str(base)


def test_team_when_there_is_no_such_repository_then_the_message_names_it(
    world: PublishWorld,
) -> None:
    status, _, notes = world.troupe("model", "fetch", "hub:org/nothing")
    assert status == 2
    assert "hub:org/nothing" in notes
