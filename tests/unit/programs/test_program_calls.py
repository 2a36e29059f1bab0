"""Which requests are one call, which agent a call is for, and what an operator allows."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from troupe import plugins
from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.tasks.actions import CutAction, is_cut
from troupe.tasks.content import ImagePart, TextPart
from troupe.tasks.family import Message
from troupe.tasks.tool_calls import Tool, ToolCall, written_call
from troupe.wire.dialect import request_of
from troupe.wire.request import ModelRequest
from troupe_tasks.programs.calls import ProgramRun, digest_of
from troupe_tasks.programs.params import ProgramParams, SeatParams
from troupe_tasks.programs.seats import Seats
from troupe_tasks.programs.settings import folder_of, interpreter_of

CALLS = "\n".join([written_call("add", '{"a": 1}')] * 2)


def request(system: str = "You are the solver.", model: str = "m") -> ModelRequest:
    return request_of(model, [Message("system", system), Message("user", "What?")], ())


def new_run(**more: Any) -> ProgramRun:
    return ProgramRun(8, lambda asked, _: digest_of(asked), **more)


def waker(woken: list[str], name: str) -> Callable[[], None]:
    return lambda: woken.append(name)


def test_body_when_the_client_retries_then_it_joins_the_call_that_waits() -> None:
    run, woken = new_run(), []
    first = run.ask(request(), b"body", {}, waker(woken, "first"))
    again = run.ask(request(), b"body", {"x-stainless-retry-count": "1"}, waker(woken, "again"))
    assert first is again
    run.answer(first, "so")
    assert woken == ["first", "again"]
    assert (run.num_calls, run.num_retries) == (1, 1)


def test_body_when_its_connection_was_lost_then_it_takes_the_call_over() -> None:
    run, woken = new_run(), []
    lost = waker(woken, "lost")
    call = run.ask(request(), b"body", {}, lost)
    run.left(call, lost, is_delivered=False)
    assert run.waiting == []
    assert run.ask(request(), b"body", {}, waker(woken, "new")) is call
    assert run.waiting == [call]


def test_body_when_it_was_answered_then_the_same_again_is_a_new_call() -> None:
    run, wake = new_run(), waker([], "")
    call = run.ask(request(), b"body", {}, wake)
    run.answer(call, "so")
    run.left(call, wake, is_delivered=True)
    retried = run.ask(request(), b"body", {"x-stainless-retry-count": "1"}, wake)
    assert retried is call
    other = run.ask(request(), b"body", {}, wake)
    assert other is not call
    assert (other.key.digest, other.key.occurrence) == (call.key.digest, 1)


def test_calls_when_they_arrive_in_any_order_then_wait_in_one() -> None:
    orders = []
    for bodies in (["a", "b", "c"], ["c", "a", "b"]):
        run = new_run()
        for body in bodies:
            run.ask(request(body), body.encode(), {}, waker([], ""))
        orders.append([call.request.system for call in run.waiting])
    assert orders[0] == orders[1]


def test_calls_when_more_wait_than_may_then_are_refused() -> None:
    run = new_run()
    for number in range(8):
        run.ask(request(str(number)), str(number).encode(), {}, waker([], ""))
    with pytest.raises(InvalidArgumentError, match="more than 8 model calls at once"):
        run.ask(request("x"), b"x", {}, waker([], ""))
    assert run.is_flooded


def give_up(run: ProgramRun, number: int) -> None:
    wake = waker([], "")
    call = run.ask(request(str(number)), str(number).encode(), {}, wake)
    run.left(call, wake, is_delivered=False)


def test_calls_when_their_clients_gave_them_up_then_they_do_not_wait() -> None:
    run = new_run()
    for number in range(8 * 8):
        give_up(run, number)
    assert run.waiting == []
    with pytest.raises(InvalidArgumentError, match="gave up"):
        give_up(run, 64)


def test_answer_when_no_client_was_there_then_it_is_lost_unless_one_comes_back() -> None:
    run, wake = new_run(), waker([], "")
    call = run.ask(request(), b"body", {}, wake)
    run.left(call, wake, is_delivered=False)
    run.answer(call, "so")
    assert run.is_given_up(call)
    assert run.ask(request(), b"body", {}, wake) is call
    run.left(call, wake, is_delivered=True)
    assert not run.is_given_up(call)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"Hm.\n{CALLS}\nSo.\nNo.", f"Hm.\n{CALLS}\nSo."),
        (f"Hm.\nNo.\n{CALLS}", "Hm."),
        ("Hm.\n<tool_call>", "Hm."),
    ],
)
def test_answer_when_it_calls_tools_then_stops_cut_only_the_text_beside(
    text: str, expected: str
) -> None:
    tools = [Tool("add", "Adds.", {"type": "object"})]
    asked = request_of("m", [Message("user", "What?")], tools, stop=("\n",))
    run = new_run()
    call = run.ask(asked, b"", {}, waker([], ""))
    run.answer(call, text)
    assert call.text == expected


def test_answer_when_no_tool_is_offered_then_stops_cut_anywhere() -> None:
    run = new_run()
    asked = request_of("m", [Message("user", "What?")], (), stop=("\n",))
    call = run.ask(asked, b"", {}, waker([], ""))
    run.answer(call, CALLS)
    assert call.text == "<tool_call>"


def test_refusal_when_a_call_that_was_made_after_it_is_answered_then_is_not_to_blame() -> None:
    run = new_run()
    before = run.ask(request("a"), b"a", {}, waker([], ""))
    run.refuse("not served")
    run.answer(before, "so")
    assert run.is_refused
    run.answer(run.ask(request("b"), b"b", {}, waker([], "")), "so")
    assert not run.is_refused
    run.refuse("nor this")
    assert (run.is_refused, run.refusal) == (True, "nor this")


def test_answer_when_the_run_was_ended_then_is_retryable() -> None:
    run = new_run()
    call = run.ask(request(), b"", {}, waker([], ""))
    run.void()
    with pytest.raises(UnavailableError):
        run.answer(call, "so")


def test_call_when_it_was_answered_then_holds_no_pixels_and_counts_the_same_texts() -> None:
    image = ImagePart(28, 28, bytes(3 * 28 * 28))
    seen = Message("user", (TextPart("What?"), image))
    run, asked = new_run(), replace(request(), messages=(Message("system", "You see."), seen))
    call = run.ask(asked, b"", {}, waker([], ""))
    assert call.request.images == (image,)
    run.answer(call, "so")
    assert call.request.images == ()
    assert call.request.turns == asked.turns


@pytest.mark.parametrize(
    ("seats", "agent"),
    [
        ({"a": {"model": "m"}, "b": {"system": "solver"}}, "a"),
        ({"a": {"system": "verifier"}, "b": {"system": "the solver"}}, "b"),
        ({"a": {"system": "verifier"}, "b": {"rest": True}}, "b"),
        ({"a": {"system": "solver"}, "b": {"header": "b"}}, "b"),
    ],
)
def test_seat_when_rules_fit_then_the_first_kind_decides(seats: dict[str, Any], agent: str) -> None:
    known = Seats({name: SeatParams(**seat) for name, seat in seats.items()})
    headers = {"x-troupe-agent": "b"} if "header" in seats["b"] else {}
    assert known.agent_of(request(), headers) == agent


@pytest.mark.parametrize(
    ("systems", "why"),
    [(("solver", "You"), "a and b both claim"), (("x", "y"), "no agent claims")],
)
def test_seat_when_none_or_two_fit_then_the_error_shows_the_call(
    systems: tuple[str, str], why: str
) -> None:
    seats = dict(zip("ab", [SeatParams(system=s) for s in systems], strict=True))
    with pytest.raises(InvalidArgumentError, match=f"{why}.*You are the solver"):
        Seats(seats).agent_of(request(), {})


def test_mask_when_it_hides_what_differs_then_the_digests_are_equal() -> None:
    seats = Seats({"a": SeatParams(rest=True, ignore=r"\d\d:\d\d")})
    digests = {seats.digest(request(f"It is {time}."), {}) for time in ("12:00", "12:01")}
    assert len(digests) == 1
    assert seats.shown("a", request("It is 12:00.")).turns[0] == ("system", "It is *.")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"t": 1700, "at": ["in 1700 s", 2.50]}', '{"t": "*", "at": ["in * s", 2.5]}'),
        ('{"t":  17, "1700": true}', '{"t":  17, "1700": true}'),
        ("at 1700", "at *"),
    ],
)
def test_mask_when_arguments_of_a_call_match_then_they_stay_json(
    arguments: str, expected: str
) -> None:
    seats = Seats({"a": SeatParams(rest=True, ignore=r"\d{4}")})
    called = Message("assistant", "", (ToolCall("wait", arguments),))
    asked = request_of("m", [Message("user", "?"), called, Message("tool", "ok")], ())
    shown = seats.shown("a", asked)
    assert shown.messages[1].tool_calls == (ToolCall("wait", expected),)


@pytest.mark.parametrize(
    "params",
    [
        {"program": "team"},
        {"seats": {}},
        {"seats": {"a": {}}},
        {"seats": {"a": {"system": "("}}},
        {"seats": {"a": {"rest": True}, "b": {"rest": True}}},
        {"seats": {"a": {"rest": True, "terms": {"x": 1.0}}}},
        {"score": "m:f", "seats": {"a": {"rest": True, "terms": {"judged": 1.0}}}},
    ],
)
def test_params_when_they_do_not_fit_then_are_refused(params: dict[str, Any]) -> None:
    fine = {
        "program": "team:run",
        "judge": {"name": "plan_path", "agent": "planner"},
        "seats": {"a": {"rest": True}},
    }
    ProgramParams.model_validate(fine)
    with pytest.raises(ValueError):
        ProgramParams.model_validate({**fine, **params})


def test_interpreter_when_the_operator_lists_others_then_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert interpreter_of(None) == sys.executable
    assert interpreter_of(sys.executable) == sys.executable
    with pytest.raises(InvalidArgumentError, match="there is no interpreter"):
        interpreter_of(str(tmp_path / "python"))
    monkeypatch.setenv("TROUPE_PROGRAM_INTERPRETERS", "/opt/teams/*/bin/python")
    with pytest.raises(InvalidArgumentError, match="TROUPE_PROGRAM_INTERPRETERS"):
        interpreter_of(sys.executable)
    monkeypatch.setenv("TROUPE_PROGRAM_FOLDERS", f"/opt/*,{tmp_path}")
    assert folder_of(str(tmp_path)) == str(tmp_path.resolve())
    with pytest.raises(InvalidArgumentError, match="TROUPE_PROGRAM_FOLDERS"):
        folder_of(str(tmp_path.parent))


def test_folder_when_a_router_limits_code_then_none_may_be_named(tmp_path: Path) -> None:
    assert folder_of(str(tmp_path)) is not None
    with plugins.only_modules(["my_team"]), pytest.raises(InvalidArgumentError):
        folder_of(str(tmp_path))
    with plugins.only_modules(["my_team"]), pytest.raises(InvalidArgumentError):
        interpreter_of(sys.executable)


@pytest.mark.parametrize(("text", "is_left_cut"), [("one END two", False), ("one two", True)])
def test_answer_when_a_stop_ends_it_before_its_bound_then_it_is_not_cut(
    text: str, is_left_cut: bool
) -> None:
    run = new_run()
    call = run.ask(replace(request(), stop=("END",)), b"body", {}, waker([], ""))
    run.answer(call, CutAction(text))
    assert call.text is not None
    assert is_cut(call.text) is is_left_cut
