"""The folder of an evaluation: it goes on after a kill and never mixes two evaluations."""

from pathlib import Path

import pytest

from troupe.errors import ConflictError, InvalidArgumentError
from troupe.evaluation.fingerprints import code_digest
from troupe.evaluation.folder import EPISODES, EvaluationFolder
from troupe.evaluation.plan import EvalPlan
from troupe.ids import eval_round
from troupe.spec.job import SamplingSpec, TaskSpec, WorkflowSpec


def plan(**changes) -> EvalPlan:
    return EvalPlan(
        task=TaskSpec(name="plan_path"), workflow=WorkflowSpec(order=["planner"]), **changes
    )


def test_journal_when_opened_again_then_holds_what_was_appended(tmp_path: Path) -> None:
    for number in range(2):
        with EvaluationFolder(tmp_path, plan(), {"p": "1"}) as journal:
            journal.append({"n": number})
            assert [line["n"] for line in journal.lines()] == list(range(number + 1))


@pytest.mark.parametrize("torn", [b'{"n": 1', b"x" * 200_000])
def test_journal_when_the_last_line_is_torn_then_it_is_cut_off(tmp_path: Path, torn: bytes) -> None:
    with EvaluationFolder(tmp_path, plan(), {}) as journal:
        journal.append({"n": 0})
    whole = (tmp_path / EPISODES).read_bytes()
    (tmp_path / EPISODES).write_bytes(whole + torn)
    with EvaluationFolder(tmp_path, plan(), {}) as journal:
        journal.append({"n": 2})
        assert [line["n"] for line in journal.lines()] == [0, 2]


def test_journal_when_only_a_torn_line_is_there_then_the_file_is_empty(tmp_path: Path) -> None:
    with EvaluationFolder(tmp_path, plan(), {}):
        (tmp_path / EPISODES).write_bytes(b'{"n"')
    with EvaluationFolder(tmp_path, plan(), {}) as journal:
        assert list(journal.lines()) == []


def test_journal_when_settings_differ_then_refuses_and_names_them(tmp_path: Path) -> None:
    with EvaluationFolder(tmp_path, plan(), {}):
        pass
    with (
        pytest.raises(ConflictError, match="seed was 0 and is 1"),
        EvaluationFolder(tmp_path, plan(seed=1), {}),
    ):
        pass
    with pytest.raises(ConflictError, match="sampling was"):
        EvaluationFolder(tmp_path, plan(sampling=SamplingSpec(temperature=0.5)), {}).__enter__()


def test_journal_when_the_tasks_own_file_changed_then_refuses(tmp_path: Path) -> None:
    code = tmp_path / "own.py"
    code.write_text("RULE = 1\n")
    for _ in range(2):
        with EvaluationFolder(tmp_path / "out", plan(task_code=code_digest(f"{code}:Own")), {}):
            pass
    code.write_text("RULE = 2\n")
    with pytest.raises(ConflictError, match="task_code was"):
        EvaluationFolder(
            tmp_path / "out", plan(task_code=code_digest(f"{code}:Own")), {}
        ).__enter__()
    assert code_digest("plan_path") == code_digest("a.module:Own") == ""
    assert "task_code" not in plan().fixed()


def test_journal_when_more_tasks_samples_and_policies_are_asked_then_goes_on(
    tmp_path: Path,
) -> None:
    with EvaluationFolder(tmp_path, plan(num_tasks=5), {"p": "1"}) as journal:
        journal.append({"n": 0})
    with EvaluationFolder(tmp_path, plan(num_tasks=9, num_samples=3), {"q": "2"}) as journal:
        journal.append({"n": 1})
    with EvaluationFolder(tmp_path, plan(), {"p": "1", "q": "2"}) as journal:
        assert [line["n"] for line in journal.lines()] == [0, 1]


def test_journal_when_a_policy_has_other_weights_then_refuses(tmp_path: Path) -> None:
    with EvaluationFolder(tmp_path, plan(), {"p": "1"}):
        pass
    with pytest.raises(ConflictError, match="'p' with other weights"):
        EvaluationFolder(tmp_path, plan(), {"p": "2"}).__enter__()


def test_journal_when_two_write_at_once_then_the_second_is_refused(tmp_path: Path) -> None:
    with (
        EvaluationFolder(tmp_path, plan(), {}),
        pytest.raises(ConflictError, match="another evaluation"),
    ):
        EvaluationFolder(tmp_path, plan(), {}).__enter__()


def test_journal_when_the_folder_is_something_else_then_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConflictError, match="holds other files"):
        EvaluationFolder(tmp_path, plan(), {}).__enter__()
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgumentError, match="can't be written"):
        EvaluationFolder(tmp_path / "file" / "inner", plan(), {}).__enter__()


def test_plan_when_sample_0_then_draws_what_a_jobs_first_evaluation_draws() -> None:
    found = plan(first_task=4, num_tasks=2, num_samples=2)
    assert list(found.samples()) == [(4, 0), (5, 0), (4, 1), (5, 1)]
    tickets = [found.ticket(key) for key in found.samples()]
    assert [t.round_id for t in tickets] == [eval_round(0)] * 2 + [eval_round(1)] * 2
    assert [t.task_index for t in tickets] == [4, 5, 4, 5]


def test_plan_when_sampling_is_given_then_the_player_uses_it_for_evaluation() -> None:
    sampling = SamplingSpec(temperature=0.0, top_p=0.9, max_new_tokens=7)
    spec = plan(sampling=sampling).job_spec({"planner": "m"})
    assert spec.sampling_for("planner", evaluate=True) == sampling


def test_journal_when_the_first_line_fails_after_an_image_then_the_same_command_goes_on(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "eval"
    with pytest.raises(ConflictError), EvaluationFolder(folder, plan(), {}) as journal:
        (journal.folder / "episodes" / "images").mkdir(parents=True)
        raise ConflictError("no room for the first line")
    with EvaluationFolder(folder, plan(), {}) as journal:
        journal.append({"n": 0})
