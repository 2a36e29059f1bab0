"""Problems of the Code family: the schema, disjoint splits, the built-in set and its making."""

import ast
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from code_world import ADD, DOUBLE, ProcessSandbox, made
from hypothesis import given
from hypothesis import strategies as st

from tools.code_bank import DRAFTS
from tools.code_bank.build import build_draft
from troupe.errors import InvalidArgumentError
from troupe.tasks.family import SPLITS
from troupe_tasks.code import Code, CodeParams
from troupe_tasks.code.answers import read_program, read_tests
from troupe_tasks.code.cooperative import CodeCooperative
from troupe_tasks.code.grade import Grader
from troupe_tasks.code.judge import Judge
from troupe_tasks.code.mutants import mutants
from troupe_tasks.code.problem import (
    Checker,
    Problem,
    TestCase,
    read_problems,
    split_of,
    statement_key,
    write_problems,
)
from troupe_tasks.code.tasks import BUILTIN, builtin
from troupe_tasks.code.text import program_answer
from troupe_tasks.code.text import tests_answer as written_tests
from troupe_tasks.code.wrong_programs import main, with_wrong_programs


def test_problem_when_written_and_read_then_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "problems.jsonl"
    write_problems(path, [ADD, DOUBLE])
    assert read_problems(path) == [ADD, DOUBLE]


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"kind": "call"},
        {"hidden_tests": ()},
        {"hidden_tests": (TestCase(input="1 2\n", output="3\n"),)},
        {"unknown": 1},
        {"statement": ""},
    ],
)
def test_problem_when_it_does_not_hold_together_then_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        Problem.model_validate({**ADD.model_dump(), **change})


def test_checker_when_a_program_is_missing_then_is_refused() -> None:
    with pytest.raises(ValueError, match="source"):
        Checker(kind="program")


def test_read_problems_when_a_line_is_wrong_then_names_it(tmp_path: Path) -> None:
    path = tmp_path / "problems.jsonl"
    write_problems(path, [ADD])
    path.write_text(path.read_text("utf-8") + '{"id": "x"}\n', "utf-8")
    with pytest.raises(InvalidArgumentError, match="line 2"):
        read_problems(path)
    with pytest.raises(InvalidArgumentError, match="cannot be read"):
        read_problems(tmp_path / "none.jsonl")


def test_read_problems_when_a_statement_is_in_two_splits_then_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "problems.jsonl"
    again = ADD.model_copy(
        update={"id": "again", "statement": ADD.statement.upper(), "split": "test"}
    )
    write_problems(path, [ADD, again])
    with pytest.raises(InvalidArgumentError, match="train and test meet"):
        read_problems(path)


@given(st.text(max_size=40))
def test_split_of_when_only_space_and_case_differ_then_is_the_same(statement: str) -> None:
    other = "  " + statement.replace(" ", "\n ") + "."
    assert statement_key(other) == statement_key(statement)
    assert split_of(other) == split_of(statement)


def test_builtin_then_holds_enough_problems_of_both_kinds_in_each_split() -> None:
    problems = [p for split in SPLITS for p in builtin()[split]]
    assert len(problems) >= 60
    assert len({p.id for p in problems}) == len({p.statement for p in problems}) == len(problems)
    for split in SPLITS:
        assert len(builtin()[split]) >= 8
        assert {p.kind for p in builtin()[split]} == {"stdin", "call"}
        assert all(split_of(p.statement) == split for p in builtin()[split])


@pytest.mark.parametrize("problem", read_problems(BUILTIN), ids=lambda p: p.id)
def test_builtin_problem_then_is_whole(problem: Problem) -> None:
    inputs = [test.input for test in problem.hidden_tests]
    other = [test.input for test in (*problem.public_tests, *problem.spare_tests)]
    assert len(problem.public_tests) == 2
    assert len(inputs) == len(set(inputs)) >= 10
    assert not set(inputs) & set(other)
    assert 1 <= len(problem.spare_tests) <= 4
    assert 2 <= len(problem.wrong_programs) <= 6
    assert problem.references[0] not in problem.wrong_programs
    for source in (*problem.references, *problem.wrong_programs):
        ast.parse(source)
    _, most = Counter(test.output.strip() for test in problem.hidden_tests).most_common(1)[0]
    assert most / len(inputs) <= 0.75, "a constant answer would pass most hidden tests"


@pytest.mark.parametrize("name", ["gaps", "vowel_count"])
def test_builtin_problem_when_built_again_then_is_the_same(name: str) -> None:
    draft = next(draft for draft in DRAFTS if draft.name == name)
    stored = next(p for p in read_problems(BUILTIN) if p.id == f"troupe/{name}")
    built = build_draft(draft, ProcessSandbox())
    assert built == stored


def test_drafts_then_are_what_the_built_file_holds() -> None:
    stored = {p.id: p for p in read_problems(BUILTIN)}
    assert {f"troupe/{draft.name}" for draft in DRAFTS} == set(stored)
    for draft in DRAFTS:
        problem = stored[f"troupe/{draft.name}"]
        assert (problem.statement, problem.references) == (draft.statement, (draft.reference,))


def test_mutants_when_drawn_twice_then_are_the_same_and_all_differ() -> None:
    source = "def f(a, b):\n    return a + 1 if a < b and b else -a\n"
    first, second = (list(mutants(source, Random(3))) for _ in range(2))
    assert first == second
    assert len(set(first)) == len(first) >= 8
    assert "def f(a, b):\n    return a + 1 if a <= b and b else -a\n" in first
    assert "def f(a, b):\n    return a - 1 if a < b and b else -a\n" in first
    assert "def f(a, b):\n    return a + 2 if a < b and b else -a\n" in first


def test_with_wrong_programs_then_each_fails_a_hidden_test_and_ends_in_time() -> None:
    bare = DOUBLE.model_copy(update={"wrong_programs": (DOUBLE.references[0],)})
    grader = Grader(Judge(ProcessSandbox()))
    problem = with_wrong_programs(bare, grader)
    assert problem.wrong_programs
    assert DOUBLE.references[0] not in problem.wrong_programs
    for graded in grader.grade_all(problem, problem.wrong_programs, problem.hidden_tests):
        assert not all(one.passed for one in graded)


def test_build_when_given_prepared_problems_then_adds_wrong_programs_and_drops_wrong_tests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = TestCase(input="([9],)", output="[19]")
    bare = DOUBLE.model_copy(
        update={"wrong_programs": (), "hidden_tests": (*DOUBLE.hidden_tests, wrong)}
    )
    hopeless = bare.model_copy(
        update={"id": "hopeless", "statement": "Else.", "hidden_tests": (wrong,)}
    )
    write_problems(tmp_path / "in.jsonl", [bare, hopeless])
    paths = ["--data", str(tmp_path / "in.jsonl"), "--out", str(tmp_path / "out.jsonl")]
    main([*paths, "--sandbox", "code_world:ProcessSandbox"])
    (built,) = read_problems(tmp_path / "out.jsonl")
    assert built.hidden_tests == DOUBLE.hidden_tests
    assert built.wrong_programs
    assert "1 problems" in capsys.readouterr().out


@pytest.mark.parametrize("problem", [ADD, DOUBLE])
def test_read_tests_when_an_answer_was_written_from_tests_then_reads_them(
    problem: Problem,
) -> None:
    pairs = [(t.input, t.output) for t in problem.hidden_tests]
    answer = read_tests(problem, "I think.\n" + written_tests(problem, pairs), 4)
    assert answer.is_well_formed
    assert [(i.strip(), o.strip()) for i, o in answer.tests] == [
        (i.strip(), o.strip()) for i, o in pairs
    ]
    too_many = read_tests(problem, written_tests(problem, pairs), 1)
    assert (len(too_many.tests), too_many.is_well_formed) == (1, False)


@given(st.text(max_size=80))
def test_read_when_the_text_is_anything_then_never_fails(text: str) -> None:
    read_program(text, 100)
    for problem in (ADD, DOUBLE):
        assert len(read_tests(problem, text, 2).tests) <= 2
        assert len(read_tests(problem, f"```python\nassert {text}\n```", 2).tests) <= 2


@given(st.text(st.characters(codec="utf-8", exclude_characters="`\r"), min_size=1, max_size=60))
def test_read_program_when_an_answer_was_written_from_a_program_then_reads_it(code: str) -> None:
    answer = read_program(program_answer(code), 1000)
    if code.strip():
        assert answer.code.rstrip("\n") == code.rstrip("\n")
        assert answer.is_well_formed


def test_random_action_when_played_then_scores_the_share_of_that_constant(tmp_path: Path) -> None:
    family, env = made([ADD], str(tmp_path))
    state = env.reset(family.taskset().task("train", 0))
    action = family.random_action(state, "coder", Random(0))
    done = env.step(state, "coder", action)
    assert done.local_rewards == {"format": 1.0, "compiles": 1.0, "hidden": 0.0}
    assert not done.success
    tests = env.step(state, "tester", family.random_action(state, "tester", Random(0)))
    assert tests.local_rewards == {"format": 1.0, "valid": 0.0, "catches": 0.0}


def test_taskset_then_is_finite_and_says_when_an_index_is_out_of_range() -> None:
    taskset = Code(CodeParams()).taskset()
    size = taskset.size("test")
    assert size == len(builtin()["test"])
    assert taskset.task("test", 0) == Code(CodeParams()).taskset().task("test", 0)
    for index in (-1, size):
        with pytest.raises(InvalidArgumentError, match="test problems"):
            taskset.task("test", index)


def test_task_then_its_payload_holds_no_test_of_the_problem() -> None:
    taskset = Code(CodeParams()).taskset()
    for index in range(8):
        assert len(taskset.task("validation", index).payload) < 200


@pytest.mark.parametrize("family", [Code(CodeParams()), CodeCooperative(CodeParams())])
def test_hidden_texts_of_every_builtin_problem_then_are_in_no_first_prompt(
    family: Code | CodeCooperative,
) -> None:
    env, taskset = family.environment_in(ProcessSandbox()), family.taskset()
    for split in SPLITS:
        for index in range(taskset.size(split) or 0):
            task = taskset.task(split, index)
            secrets = family.hidden_texts(task)
            assert len(secrets) >= 3
            state = env.reset(task)
            for agent in family.agents:
                prompt = "\n".join(message.content for message in env.observe(state, agent))
                assert not [secret for secret in secrets if secret in prompt], task.id
