"""What --policy texts mean, and what is said when they mean nothing."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.evaluation.evaluation import EvalSettings
from troupe.evaluation.fingerprints import fingerprint
from troupe.evaluation.playable import check_playable
from troupe.evaluation.refs import ChatRef, RefOptions, ScriptedRef, WeightsRef
from troupe.evaluation.teams import read_teams, slug
from troupe.tasks.registry import load_family

AGENTS = ("tool", "planner")


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "models" / "m"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes(100))
    return folder


def adapter(folder: Path, base: str | None) -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))
    (folder / "adapter_model.safetensors").write_bytes(b"w")
    return folder


def test_team_when_one_policy_then_it_has_every_seat() -> None:
    [team] = read_teams(["random"], AGENTS)
    assert team.label == "random"
    assert team.seats == dict.fromkeys(AGENTS, ScriptedRef("random"))


def test_team_when_seats_are_named_then_each_has_its_own() -> None:
    [team] = read_teams(["planner=random,tool=scripted"], AGENTS)
    assert team.seats == {"tool": ScriptedRef("scripted"), "planner": ScriptedRef("random")}
    assert team.label == "tool=scripted,planner=random"


def test_team_when_seats_come_in_several_texts_then_a_repeated_agent_begins_the_next() -> None:
    texts = ["tool=scripted", "planner=random", "tool=random", "planner=scripted", "scripted"]
    assert [team.label for team in read_teams(texts, AGENTS)] == [
        "tool=scripted,planner=random",
        "tool=random,planner=scripted",
        "scripted",
    ]


def test_team_when_a_star_is_given_then_it_fills_the_other_seats() -> None:
    [team] = read_teams(["planner=random,*=scripted"], AGENTS)
    assert team.seats["tool"] == ScriptedRef("scripted")


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["plannr=random,tool=scripted"], "did you mean 'planner'?"),
        (["planner=random"], "leaves tool without a policy"),
        (["scriptd"], "did you mean 'scripted'?"),
        (["openai:gpt"], "--base-url"),
    ],
)
def test_team_when_a_text_is_wrong_then_says_what_to_do(texts: list[str], said: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read_teams(texts, AGENTS)
    assert said in caught.value.message


@pytest.mark.parametrize("text", ["models/none", "./x", "/no/such", "a b"])
def test_ref_when_a_path_leads_nowhere_then_is_not_found(text: str) -> None:
    with pytest.raises(NotFoundError, match="there is no policy"):
        read_teams([text], AGENTS)


def test_ref_when_a_hub_id_or_url_then_is_taken_at_its_word() -> None:
    teams = read_teams(
        ["Qwen/Qwen3-0.6B", "http://h:1/v1/#q", "openai:q"],
        ["tool"],
        RefOptions(base_url="http://h:2/v1/"),
    )
    assert [team.seats["tool"] for team in teams] == [
        WeightsRef("Qwen/Qwen3-0.6B"),
        ChatRef("http://h:1/v1", "q"),
        ChatRef("http://h:2/v1", "q"),
    ]


def test_ref_when_an_adapter_names_its_base_then_is_found(tmp_path: Path, model: Path) -> None:
    folder = adapter(tmp_path / "a", str(model))
    [team] = read_teams([str(folder)], ["tool"])
    assert team.seats["tool"] == WeightsRef(str(model), str(folder))


def test_ref_when_an_adapter_has_no_base_then_asks_for_one(tmp_path: Path, model: Path) -> None:
    folder = adapter(tmp_path / "a", None)
    with pytest.raises(InvalidArgumentError, match="--base MODEL"):
        read_teams([str(folder)], ["tool"])
    [team] = read_teams([str(folder)], ["tool"], RefOptions(base=str(model)))
    assert team.seats["tool"] == WeightsRef(str(model), str(folder))


def test_ref_when_an_adapters_base_is_gone_then_says_so(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "a", "/no/such/base")
    with pytest.raises(NotFoundError, match="--base MODEL"):
        read_teams([str(folder)], ["tool"])


def test_ref_when_a_folder_is_nothing_known_then_says_what_it_must_hold(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidArgumentError, match=r"adapter_config\.json"):
        read_teams([str(tmp_path / "empty")], ["tool"])


@pytest.mark.parametrize(("seats", "weights"), [("spec.json", "policies"), ("export.json", ".")])
def test_ref_when_a_run_or_an_export_of_it_then_each_agent_gets_its_own_policy(
    tmp_path: Path, seats: str, weights: str
) -> None:
    run = tmp_path / "runs" / "r-1"
    run.mkdir(parents=True)
    agents = {"tool": {"policy": "t"}, "planner": {"policy": "p"}}
    policies = {"t": {}, "p": {"chat_template_kwargs": {"enable_thinking": False}}}
    (run / seats).write_text(json.dumps({"agents": agents, "policies": policies}))
    for name in "tp":
        (run / weights / name / "merged").mkdir(parents=True)
        (run / weights / name / "merged" / "config.json").write_text("{}")
    [team] = read_teams([str(run)], AGENTS)
    assert team.seats["tool"] == WeightsRef(str(run / weights / "t" / "merged"))
    planner = team.seats["planner"]
    assert isinstance(planner, WeightsRef)
    assert planner.chat_template_kwargs == (("enable_thinking", False),)
    with pytest.raises(InvalidArgumentError, match="trained no agent 'coder'"):
        read_teams([str(run)], ["coder"])


def test_ref_when_an_export_names_no_agents_then_says_how_to_seat_its_policies(
    tmp_path: Path,
) -> None:
    for name in "tp":
        (tmp_path / "out" / name / "merged").mkdir(parents=True)
        (tmp_path / "out" / name / "merged" / "config.json").write_text("{}")
    with pytest.raises(InvalidArgumentError, match="--policy AGENT=out/p/merged,AGENT=out/t/merg"):
        read_teams(["out"], AGENTS)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (
            ["tool=scripted,*=random", "planner=scripted,*=random"],
            ["tool=scripted,planner=random", "tool=random,planner=scripted"],
        ),
        (
            ["tool=scripted,planner=random", "*=scripted"],
            ["tool=scripted,planner=random", "scripted"],
        ),
        (["tool=scripted", "*=random", "*=scripted"], ["tool=scripted,planner=random", "scripted"]),
        (["tool=scripted", "planner=random"], ["tool=scripted,planner=random"]),
        (["*=random", "tool=scripted"], ["tool=scripted,planner=random"]),
    ],
)
def test_policies_when_others_are_filled_then_each_team_is_its_own(
    texts: list[str], expected: list[str]
) -> None:
    assert [team.label for team in read_teams(texts, AGENTS)] == expected


def test_fingerprint_when_weights_change_under_the_same_name_then_changes(model: Path) -> None:
    [team] = read_teams([str(model)], ["tool"])
    before = fingerprint(team)
    assert fingerprint(team) == before
    (model / "model.safetensors").write_bytes(bytes(99) + b"\x01")
    assert fingerprint(team) != before


def test_fingerprint_when_figures_are_computed_in_another_way_then_changes(model: Path) -> None:
    [team] = read_teams([str(model)], ["tool"])
    ref = team.seats["tool"]
    assert isinstance(ref, WeightsRef)
    quiet = replace(ref, chat_template_kwargs=(("enable_thinking", False),))
    prints = {
        fingerprint(team),
        fingerprint(team, computed_by="sglang bfloat16"),
        fingerprint(replace(team, seats={"tool": quiet})),
    }
    assert len(prints) == 3
    assert EvalSettings().computed_by == ""
    assert EvalSettings(dtype="bfloat16").computed_by == "cpu bfloat16"


def test_teams_when_two_have_one_name_then_are_refused() -> None:
    # A team of --team and one of --policy may be of the same run: its adapters, and merged weights.
    teams = [*read_teams(["scripted"], AGENTS), *read_teams(["scripted"], AGENTS)]
    with pytest.raises(InvalidArgumentError, match="two teams are called scripted"):
        check_playable(teams, load_family("plan_path", {}))


def test_slug_when_a_label_is_a_path_then_is_a_file_name() -> None:
    assert slug("tool=runs/demo-1,planner=http://h:1/v1#q") == (
        "tool-runs-demo-1-planner-http-h-1-v1-q"
    )
    assert slug("///") == "policy"
