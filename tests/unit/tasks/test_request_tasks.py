"""Tasks that a user's text makes: shown as in training, and never paid as right."""

import json

import pytest
from code_world import ProcessSandbox

from troupe.errors import InvalidArgumentError
from troupe.sandbox.sandbox import Execution, Limits, Program
from troupe.tasks.family import Environment, Message, TaskFamily
from troupe.tasks.optional import request_task
from troupe.tasks.registry import load_family, make_environment
from troupe.training.task import DatasetParams, DatasetTask
from troupe_tasks.code import Code, CodeParams
from troupe_tasks.math.family import Math, MathParams
from troupe_tasks.math.row import MathRow


class PrintingSandbox:
    """Every program prints 391."""

    level = "fake"

    def run(self, program: Program, limits: Limits) -> Execution:
        return Execution("391\n", "", 0, None, 0.01, 0)

    def close(self) -> None: ...


def begun(family: TaskFamily, environment: Environment, text: str) -> bytes:
    return environment.reset(request_task(family, text))


def test_math_when_a_user_asks_then_the_team_is_done_as_both_agree_and_nothing_is_right() -> None:
    family = Math(MathParams())
    environment = family.environment_in(PrintingSandbox())
    state = begun(family, environment, "What is 17 * 23?")
    _, user = environment.observe(state, "tool")
    assert user.content == "Problem:\nWhat is 17 * 23?"
    first = environment.step(state, "tool", "```python\nprint(17 * 23)\n```")
    last = environment.step(first.state, "reasoner", r"It is \boxed{391}.")
    assert (first.done, last.done, last.success, last.team_reward) == (False, True, False, 0.0)
    assert last.local_rewards["correct"] == 0.0


def test_math_row_when_it_has_no_answer_then_only_a_request_may() -> None:
    with pytest.raises(ValueError, match="needs an answer"):
        MathRow(id="a", problem="1 + 1?", answer="", source="gsm8k")


def test_code_when_a_user_asks_then_it_is_over_when_a_program_passes_the_testers_tests() -> None:
    family = Code(CodeParams())
    environment = family.environment_in(ProcessSandbox())
    state = begun(family, environment, "Write `def double(x)`.\ndef double(x): ...")
    rules, user = environment.observe(state, "coder")
    assert "the Python 3 function double" in rules.content
    assert user.content.startswith("Write `def double(x)`.")
    tested = environment.step(state, "tester", "```python\nassert double(4) == 8\n```")
    wrong = environment.step(tested.state, "coder", "```python\ndef double(x): return x\n```")
    assert (wrong.done, wrong.success, wrong.team_reward) == (False, False, 0.0)
    right = environment.step(wrong.state, "coder", "```python\ndef double(x): return 2 * x\n```")
    assert (right.done, right.success, right.team_reward) == (True, False, 0.0)


def test_code_when_the_text_has_no_function_then_a_program_on_standard_input_is_asked() -> None:
    family = Code(CodeParams())
    environment = family.environment_in(ProcessSandbox())
    rules, _ = environment.observe(begun(family, environment, "Double the number."), "coder")
    assert "reads standard input" in rules.content


@pytest.mark.parametrize("name", ["tldr", "arxiv_expansion"])
def test_writing_when_a_user_asks_then_the_text_is_the_source(name: str) -> None:
    family = load_family(name, {})
    environment = make_environment(family, None)
    state = begun(family, environment, "A cat sat on a mat.")
    first, second = family.agents[:2]
    assert "A cat sat on a mat." in environment.observe(state, first)[-1].content
    between = environment.step(state, first, "A cat sat.")
    assert not between.done
    assert environment.step(between.state, second, "A cat sat on a mat.").done


def dataset(**more: object) -> DatasetTask:
    params = {
        "socket": "/nowhere",
        "agents": {"a": "Be short.", "b": ""},
        "num_train": 1,
        "num_held_out": 0,
        "digest": "",
    }
    return DatasetTask(DatasetParams.model_validate(params | more))


def test_rows_when_a_user_asks_then_the_text_is_the_prompt_and_nobody_is_asked() -> None:
    family = dataset()
    environment = family.environment()
    state = begun(family, environment, "2 + 2")
    assert environment.observe(state, "a") == (
        Message("system", "Be short."),
        Message("user", "2 + 2"),
    )
    assert environment.observe(state, "b") == (Message("user", "2 + 2"),)
    first = environment.step(state, "a", "4")
    last = environment.step(first.state, "b", "four")
    assert (first.done, last.done, last.team_reward) == (False, True, 0.0)


def test_rows_when_a_function_wrote_the_prompts_then_a_request_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="observe"):
        request_task(dataset(has_observe=True), "2 + 2")


def test_family_when_it_makes_no_task_of_a_text_then_the_error_says_what_to_write() -> None:
    with pytest.raises(InvalidArgumentError, match=r"request_task\(text\)"):
        request_task(load_family("plan_path", {}), "x")


@pytest.mark.parametrize("name", ["math", "code", "tldr"])
def test_request_when_its_text_is_empty_or_too_long_then_is_refused(name: str) -> None:
    family = load_family(name, {})
    for text in ("", "x" * 20_001):
        with pytest.raises(InvalidArgumentError, match="characters"):
            request_task(family, text)


def test_payload_when_made_of_a_text_then_holds_no_answer() -> None:
    payload = json.loads(request_task(Math(MathParams()), "1 + 1?").payload)
    assert payload["answer"] == ""


def test_request_task_when_it_gives_no_task_then_says_what_to_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    family = load_family("math", {})
    monkeypatch.setattr(family, "request_task", lambda text: {"prompt": text}, raising=False)
    with pytest.raises(InvalidArgumentError, match="gave dict; return a Task"):
        request_task(family, "2 + 2?")
