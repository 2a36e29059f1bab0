"""Commands that need no service: dry run, schema, version."""

import json
from hashlib import sha256
from pathlib import Path

import pytest

from troupe import __version__
from troupe.cli.main import run
from troupe.cli.spec_commands import print_episodes
from troupe.cli.specs import is_missing_folder, read_spec, tiny_model_args, with_local_paths
from troupe.spec import JobSpec, SpecInvalidError

EXAMPLE = Path(__file__).parents[3] / "examples" / "plan_path_6x6.yaml"


def test_dryrun_when_the_example_is_played_then_each_group_has_one_prompt_and_centred_advantages(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["dryrun", str(EXAMPLE), "--num-tasks", "1", "--json"]) == 0
    [episode] = json.loads(capsys.readouterr().out)
    assert {group["agent"] for group in episode["groups"]} == {"tool", "planner"}
    for group in episode["groups"]:
        assert len(group["prompts"]) == 1
        assert sum(c["is_chosen"] for c in group["candidates"]) == 1
        assert sum(c["advantage"] for c in group["candidates"]) == pytest.approx(0.0, abs=1e-6)


def test_dryrun_when_printed_for_people_then_names_agents_and_outcome(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["dryrun", str(EXAMPLE), "--num-tasks", "1"]) == 0
    said = capsys.readouterr().out
    assert "planner" in said
    assert "solved" in said


@pytest.mark.parametrize(
    ("advantages", "texts", "named"),
    [
        ({"writer": [1.0, -1.0], "critic": [0.0, 0.0]}, ["a", "b"], ["critic"]),
        ({"writer": [0.0, 0.0], "critic": [0.0, 0.0]}, ["a", "b"], []),
        ({"writer": [1.0, -1.0], "critic": [0.0, 0.0]}, ["a", "a"], []),
    ],
    ids=["one agent", "nobody learns", "equal texts"],
)
def test_dryrun_when_an_agents_answers_are_all_worth_the_same_then_says_whose(
    capsys: pytest.CaptureFixture[str],
    advantages: dict[str, list[float]],
    texts: list[str],
    named: list[str],
) -> None:
    groups = [
        {
            "agent": agent,
            "turn": 0,
            "policy": agent,
            "prompts": ["0"],
            "candidates": [
                {"index": n, "text": text, "reward": 0.0, "advantage": value, "is_chosen": n == 0}
                for n, (text, value) in enumerate(zip(texts, values, strict=True))
            ],
        }
        for agent, values in advantages.items()
    ]
    episode = {"task_id": "t", "is_success": False, "num_turns": 1, "team_return": 0.0}
    print_episodes([{**episode, "groups": groups}], as_json=False)
    notes = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in notes if "advantages are all 0" in line] == named


@pytest.mark.parametrize(("count", "warns"), [(50, False), (51, True)])
def test_validate_when_a_step_is_larger_than_its_split_then_warns(
    capsys: pytest.CaptureFixture[str], count: int, warns: bool
) -> None:
    spec = EXAMPLE.with_name("code.yaml")
    assert run(["validate", str(spec), "--set", f"tasks_per_step={count}"]) == 0
    said = "warning: /tasks_per_step: the train split has 50 tasks" in capsys.readouterr().err
    assert said is warns


@pytest.mark.parametrize(
    ("replay", "max_turns", "warns"),
    [("never", 7, True), ("never", 8, False), ("always", 7, False)],
)
def test_validate_when_turns_may_end_a_run_that_is_not_repeated_then_warns(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    replay: str,
    max_turns: int,
    warns: bool,
) -> None:
    monkeypatch.chdir(EXAMPLE.parent / "programs")
    changes = [f"task.params.replay={replay}", f"workflow.max_turns={max_turns}"]
    changes += ["algorithm.kind=grpo"]
    assert run(["validate", "toy.yaml", *(part for c in changes for part in ("--set", c))]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert ("warning: /workflow/max_turns: an agent's turn 7" in said) is warns
    assert ("lower max_calls to 7" in said) is warns


@pytest.mark.parametrize(
    ("example", "change", "warns"),
    [
        ("proposed.yaml", "workflow.max_turns=3", True),
        ("proposed.yaml", "task.params.attempts=8", True),
        ("proposed.yaml", "workflow.max_turns=4", False),
        ("code_best_of.yaml", "task.params.programs=8", True),
        ("code_best_of.yaml", "workflow.max_turns=5", False),
        ("guided_walk.yaml", "workflow.max_turns=2", False),
    ],
)
def test_validate_when_no_episode_can_come_to_its_end_then_warns(
    example: str, change: str, warns: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["validate", str(EXAMPLE.with_name(example)), "--set", change]) == 0
    assert ("warning: /workflow/max_turns: an episode" in capsys.readouterr().err) is warns


def test_dryrun_when_no_episode_can_come_to_its_end_then_warns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec = str(EXAMPLE.with_name("proposed.yaml"))
    assert run(["dryrun", spec, "--num-tasks", "1", "--set", "workflow.max_turns=2"]) == 0
    assert "takes 4 turns with these" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("rows", "code", "said"),
    [
        (None, 0, "warning: /algorithm/demonstrations/path: there is no file"),
        ("", 2, "/algorithm/demonstrations/path: {path} has no rows"),
        ('{"agent": "tool", "prompt": "a", "answer": ""}\n', 2, "row 1: 'answer' must be a text"),
        ('{"agent": "tool", "prompt": "a", "answer": "b"}\n', 0, ""),
    ],
)
def test_validate_when_demonstrations_can_not_teach_then_says_so(
    rows: str | None, code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "shown.jsonl"
    if rows is not None:
        path.write_text(rows)
    shown = f"algorithm.demonstrations={{path: {path}}}"
    assert run(["validate", str(EXAMPLE), "--set", shown]) == code
    heard = capsys.readouterr().err.replace("\n", " ")
    assert said.format(path=path) in " ".join(heard.split())
    assert ("demonstrations" in heard) is bool(said)


def test_validate_when_a_teacher_is_the_policys_own_model_then_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec = str(EXAMPLE.with_name("distill_guided_walk.yaml"))
    own = "policies.shared.teacher=models/guided_walk_beside"
    assert run(["validate", spec, "--set", own]) == 2
    assert "/policies/shared/teacher: is the policy's own model" in capsys.readouterr().err


def test_validate_when_a_teacher_is_a_policy_that_nobody_uses_then_says_that_it_is_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = EXAMPLE.with_name("distill_guided_walk.yaml").read_text("utf-8")
    text = text.replace("policies:\n", "policies:\n  big: {model: acme/base}\n")
    spec = tmp_path / "job.yaml"
    spec.write_text(text.replace("teacher: models/guided_walk_teacher", "teacher: big"), "utf-8")
    assert run(["validate", str(spec)]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "or remove it; a teacher is a model, no policy" in said


def test_validate_when_a_train_row_is_held_out_too_then_warns_that_no_job_opens_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"id": "a", "problem": "What is 3 + 4?", "answer": "7", "source": "s"}
    for split in ("train", "test"):
        (tmp_path / f"{split}.jsonl").write_text(json.dumps(row))
    data = f"task.params.data={tmp_path}"
    assert run(["validate", str(EXAMPLE.with_name("math.yaml")), "--set", data]) == 0
    assert "can't be opened here: 1 rows of" in " ".join(capsys.readouterr().err.split())


def test_help_when_an_option_has_a_default_in_brackets_then_shows_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["eval", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "[test]" in shown
    assert "[cpu]" in shown


def test_dryrun_when_neither_file_nor_task_then_says_what_is_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["dryrun", "plan_pth", "--on", "http://127.0.0.1:9"]) == 2
    assert "did you mean 'plan_path'?" in capsys.readouterr().err


def test_schema_when_printed_then_is_the_models_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == JobSpec.model_json_schema()


def test_version_when_asked_then_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


def test_overrides_when_nested_then_change_only_their_field() -> None:
    spec = read_spec(EXAMPLE, ["policies.shared.optimizer.learning_rate=3e-4", "steps=7"])
    plain = read_spec(EXAMPLE)
    assert spec.policies["shared"].optimizer.learning_rate == pytest.approx(3e-4)
    assert spec.steps == 7
    assert spec.model_copy(update={"policies": plain.policies, "steps": plain.steps}) == plain


@pytest.mark.parametrize(
    ("model", "is_missing"),
    [
        ("Qwen/Qwen3-0.6B", False),
        ("gpt2", False),
        ("models/nothing", True),
        ("./nothing", True),
        ("/no/such/model", True),
        ("a/b/c", True),
    ],
)
def test_is_missing_folder_when_a_name_may_be_a_hub_id_then_is_not_missing(
    model: str, is_missing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_missing_folder(model) is is_missing


def test_with_local_paths_when_demonstrations_are_named_then_their_file_and_digest_are_fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    (tmp_path / "shown.jsonl").write_text('{"agent": "tool", "prompt": "a", "answer": "b"}\n')
    model, shown = "policies.shared.model=m", "algorithm.demonstrations={path: shown.jsonl}"
    given = with_local_paths(read_spec(EXAMPLE, [model, shown])).algorithm.demonstrations
    assert given is not None
    assert given.path == str((tmp_path / "shown.jsonl").resolve())
    assert given.sha256 == sha256((tmp_path / "shown.jsonl").read_bytes()).hexdigest()
    missing = "algorithm.demonstrations={path: other.jsonl}"
    with pytest.raises(SpecInvalidError, match=r"there is no file 'other\.jsonl'"):
        with_local_paths(read_spec(EXAMPLE, [model, missing]))


def test_with_local_paths_when_a_folder_is_relative_then_it_becomes_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}", encoding="utf-8")
    spec = with_local_paths(read_spec(EXAMPLE, ["policies.shared.model=m"]))
    assert spec.policies["shared"].model == str(tmp_path / "m")


def test_tiny_model_args_when_the_task_has_parameters_then_carry_them() -> None:
    spec = read_spec(EXAMPLE, ["task.params.size=9", "seed=4"])
    assert tiny_model_args(spec, "m") == [
        *("--task", "plan_path", "--size", "9", "--params", '{"max_actions": 4}'),
        *("--seed", "4", "--out", "m"),
    ]
