"""Which files are sent of a team, and what is in their texts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from run_folders import INSTRUCTION, without_episode_rewards, write_metrics, write_model, write_run

from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.publishing.content import ContentOptions, TeamContent, content_of
from troupe.publishing.manifest import TeamManifest
from troupe.publishing.places import FolderPlace, HubPlace, OciPlace, read_place
from troupe.publishing.team_folder import open_team, team_of_run
from troupe.publishing.to_folder import write_team


def content(run: Path, *, at: str = "org/pair", **options: object) -> TeamContent:
    return content_of(team_of_run(run), ContentOptions(**options), at=at)  # pyright: ignore[reportArgumentType]


def text(sent: TeamContent, name: str) -> str:
    return b"".join(sent.files[name].chunks()).decode()


def test_content_when_adapters_share_a_local_base_then_it_is_sent_once(tmp_path: Path) -> None:
    sent = content(write_run(tmp_path / "pair-1"))
    names = set(sent.files)
    assert {"team.json", "README.md", "bases/base/model.safetensors"} <= names
    assert {"policies/tool/adapter_model.safetensors", "policies/tool/README.md"} <= names
    config = json.loads(text(sent, "policies/tool/adapter_config.json"))
    assert config["base_model_name_or_path"] == "bases/base"
    assert str(tmp_path) not in "".join(
        b"".join(file.chunks()).decode("latin1") for file in sent.files.values()
    )


def test_content_when_the_base_is_on_the_hub_then_it_is_named_and_not_sent(tmp_path: Path) -> None:
    sent = content(
        write_run(tmp_path / "pair-1"),
        base_ids={"base": "org/base"},
        licence="mit",
        datasets=("o/d",),
    )
    assert not any(name.startswith("bases/") for name in sent.files)
    card = text(sent, "policies/tool/README.md")
    metadata = yaml.safe_load(card.split("---\n")[1])
    assert metadata["base_model"] == ["org/base"]
    assert metadata["base_model_relation"] == "adapter"
    assert (metadata["license"], metadata["datasets"]) == ("mit", ["o/d"])
    assert metadata["library_name"] == "peft"
    assert 'PeftModel.from_pretrained(base, "org/pair", subfolder="policies/tool")' in card
    with pytest.raises(InvalidArgumentError, match="not a hub id"):
        content(tmp_path / "pair-1", base_ids={"base": "/etc/passwd"})


def test_content_when_all_weights_were_trained_then_models_are_sent_without_a_base(
    tmp_path: Path,
) -> None:
    sent = content(write_run(tmp_path / "pair-1", is_full=True), at="")
    assert "policies/tool/model.safetensors" in sent.files
    assert not any(name.startswith("bases/") for name in sent.files)
    card = text(sent, "policies/tool/README.md")
    assert 'AutoModelForCausalLM.from_pretrained("policies/tool")' in card
    assert "peft" not in card


@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize("model", ["models/Qwen--X", "Qwen--X", "qwen"])
def test_content_when_the_base_is_a_relative_folder_then_the_team_reads_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, is_full: bool
) -> None:
    run = write_run(tmp_path / "pair-1", is_full=is_full)
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / model)
    document = json.loads((run / "spec.json").read_text())
    for policy in document["policies"].values():
        policy["model"] = model
    (run / "spec.json").write_text(json.dumps(document))
    team = open_team(write_team(content(run, at=""), tmp_path / "out"))
    bases = {base.path for base in team.manifest.bases.values()}
    assert bases == ({""} if is_full else {f"bases/{name}" for name in team.manifest.bases})


def test_content_when_the_base_is_gone_then_the_message_says_what_to_give(tmp_path: Path) -> None:
    run = write_run(tmp_path / "pair-1")
    (tmp_path / "base" / "config.json").unlink()
    with pytest.raises(InvalidArgumentError, match="--base base=ORG/MODEL"):
        content(run)


def test_content_when_a_pickle_lies_beside_the_weights_then_nothing_is_sent(tmp_path: Path) -> None:
    run = write_run(tmp_path / "pair-1")
    (run / "policies" / "tool" / "adapter" / "training_args.bin").write_bytes(b"x")
    with pytest.raises(InvalidArgumentError, match="pickle"):
        content(run)


def test_card_when_a_run_has_rows_and_evaluations_then_it_says_both(tmp_path: Path) -> None:
    run = write_run(tmp_path / "pair-1", has_rows=True)
    write_metrics(run)
    card = text(content(run), "README.md")
    assert f"`{INSTRUCTION}`" in card
    assert "9 rows, sha256 `0000000000000000`" in card
    assert "| 0 | 25.0% | 4.6% to 69.9% | 4 | 0.100 |" in card
    assert "| steps | 2 of 8 tasks |" in card or "| steps | 2 of 32 tasks |" in card


def test_card_when_a_checkpoints_weights_are_sent_then_it_tells_of_no_later_step(
    tmp_path: Path,
) -> None:
    run = write_run(tmp_path / "pair-1")
    write_metrics(run)
    team = team_of_run(run)
    early = replace(team, manifest=team.manifest.model_copy(update={"checkpoint": "1"}))
    card = text(content_of(early, ContentOptions(), at="org/pair"), "README.md")
    assert "| steps | 1 of " in card
    assert "these are the weights of checkpoint 1, the run went on" in card
    assert "| 0 | 25.0%" in card
    assert "| 2 | 75.0%" not in card
    last = replace(team, manifest=team.manifest.model_copy(update={"checkpoint": "2"}))
    card = text(content_of(last, ContentOptions(), at="org/pair"), "README.md")
    assert "these are the weights of checkpoint 2 |" in card


def test_card_when_a_run_told_rewards_of_acts_then_none_is_shown_as_an_episodes(
    tmp_path: Path,
) -> None:
    run = write_run(tmp_path / "pair-1")
    write_metrics(run)
    without_episode_rewards(run)
    assert "| 0 | 25.0% | 4.6% to 69.9% | 4 | - |" in text(content(run), "README.md")


def test_card_when_an_evaluation_folder_is_wrong_then_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"report\.json"):
        content(write_run(tmp_path / "pair-1"), evaluation=tmp_path)


@pytest.mark.parametrize(
    ("report", "where"),
    [
        ("[]", "/: "),
        ('{"policies": [{}], "comparisons": []}', "/policies/0/policy: this field is required"),
        ('{"policies": []}', "/comparisons"),
        ("{", "/: "),
    ],
)
def test_card_when_a_report_is_damaged_then_says_where_and_what_to_do(
    report: str, where: str, tmp_path: Path
) -> None:
    (tmp_path / "report.json").write_text(report, "utf-8")
    with pytest.raises(InvalidArgumentError, match=rf"report\.json is not .*\({where}") as raised:
        content(write_run(tmp_path / "pair-1"), evaluation=tmp_path)
    assert "`troupe eval --out` again" in raised.value.message


def test_content_when_made_twice_then_it_is_equal_and_reads_back(tmp_path: Path) -> None:
    run = write_run(tmp_path / "pair-1")
    first, second = content(run, at=""), content(run, at="")
    assert {n: f.entry for n, f in first.files.items()} == {
        n: f.entry for n, f in second.files.items()
    }
    folder = Path(write_team(first, tmp_path / "out"))
    assert TeamManifest.read(folder) == first.manifest


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("hub:org/team", HubPlace("org/team")),
        ("hub:org/team@v1", HubPlace("org/team", "v1")),
        ("oci:host.example:5000/a/b:v1", OciPlace("host.example:5000", "a/b", "v1")),
        ("oci:host/a", OciPlace("host", "a", "latest")),
        ("folder:/tmp/x", FolderPlace("/tmp/x")),
    ],
)
def test_place_when_named_then_read_and_written_back(name: str, place: object) -> None:
    assert read_place(name) == place
    assert read_place(str(read_place(name))) == place


@pytest.mark.parametrize(
    "name",
    [
        "org/team",
        "hub:team",
        "hub:a/b/c",
        "hub:org/my--team",
        "hub:o/t@",
        "oci:host",
        "oci:host/A:v",
        "folder:",
        "s3:x/y",
    ],
)
def test_place_when_it_has_another_form_then_the_forms_are_named(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="hub:ORG/NAME"):
        read_place(name)
