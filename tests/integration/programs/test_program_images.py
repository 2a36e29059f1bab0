"""Programs show images to their agents: in every format, by replay too, and within the limits."""

from contextlib import AbstractContextManager
from typing import Any

import pytest
from program_world import begun, forget, program

from troupe.errors import ProgramBadCallError
from troupe.tasks.content import ImagePart, TextPart
from troupe.tasks.family import Message
from troupe_tasks.programs.environment import ProgramEnvironment

SEEING = {"solver": {"system": "You are the solver", "judged": True, "images": True}}


def _square(red: int) -> ImagePart:
    return ImagePart(28, 28, bytes((red, 0, 0)) * 28 * 28)


def _seeing(how: str, **changes: Any) -> AbstractContextManager[ProgramEnvironment]:
    return program(how, **{"program": f"seeing:{how}", "seats": SEEING, **changes})


@pytest.mark.parametrize("how", ["by_chat", "by_responses", "by_messages"])
def test_program_when_it_shows_images_then_the_agent_sees_each_where_it_stood(how: str) -> None:
    with _seeing(how) as environment:
        state = begun(environment)
        seen = environment.observe(state, "solver")
        (text,) = [p for p in seen[1].content if isinstance(p, TextPart)]
        question = text.text.strip()  # blocks of Anthropic messages stand on lines of their own
        assert question.startswith("What is ")
        assert seen == (
            Message("system", "You are the solver."),
            Message("user", (_square(len(question)), text, _square(9))),
        )

        forget(environment)  # a new process is answered from the record, and asks the same
        ended = environment.step(state, "solver", "7")
        assert ended.done
        assert (ended.info["num_calls"], ended.info["program_end"]) == (1, "answered")


def test_program_when_an_image_is_another_then_the_call_is_another() -> None:
    with _seeing("by_chat") as environment:
        task = environment.task  # type: ignore[attr-defined]
        states = [environment.reset(task("train", index)) for index in range(2)]
        seen = [environment.observe(state, "solver") for state in states]
        assert seen[0] != seen[1]


@pytest.mark.parametrize(
    ("how", "changes", "why"),
    [
        ("asks_a_server", {}, "nothing is fetched"),
        ("asks_too_much", {}, "at most 8 images"),
        ("by_chat", {"seats": {"solver": {"rest": True}}}, "set images: true"),
    ],
)
def test_program_when_its_image_is_refused_then_the_error_says_why(
    how: str, changes: dict[str, Any], why: str
) -> None:
    with (
        _seeing(how, warm=False, **changes) as environment,
        pytest.raises(ProgramBadCallError, match=why),
    ):
        begun(environment)


def test_probe_when_the_seat_takes_no_images_then_names_the_image_and_the_problem() -> None:
    with _seeing("by_chat", seats={"solver": {"rest": True}}) as environment:
        task = environment.task("train", 0)  # type: ignore[attr-defined]
        (call,) = environment.probe(task, ["7"])["calls"]
        assert call["turns"][1][1].endswith(f"[image {_square(9).digest[:12]} 28x28]")
        assert "set images: true" in call["problem"]


def test_probe_when_an_image_has_a_detail_then_names_it_as_overridden() -> None:
    with _seeing("by_responses") as environment:
        task = environment.task("train", 0)  # type: ignore[attr-defined]
        (call,) = environment.probe(task, ["7"])["calls"]
        assert (call["problem"], call["overridden"]) == ("", ["detail"])
