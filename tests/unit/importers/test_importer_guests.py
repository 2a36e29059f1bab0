import asyncio
import contextlib
import errno
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from guests import packaged, procedural, rollouts, serve

from troupe.runtime.transient import is_transient


@pytest.fixture
def held() -> Iterator[Any]:
    made: list[Any] = []

    def make(play: Any) -> Any:
        made.append(rollouts.Rollouts(play))
        return made[-1]

    yield make
    for one in made:
        one.loop.run_until_complete(one.loop.shutdown_asyncgens())
        one.loop.close()


def said(text: str) -> dict[str, Any]:
    return {"choices": [{"message": {"content": text}}]}


async def two_rounds(life: Any, row: Any) -> dict[str, Any]:
    drawn = random.randint(1, 10**9)
    first = await life.ask("a", {"messages": [row, drawn]})
    second = await life.ask("b", {"messages": [random.randint(1, 10**9)]})
    return {"told": [first, second]}


def test_rollout_when_it_asks_then_waits_until_it_is_answered(held: Any) -> None:
    lives = held(two_rounds)
    shown = lives.start("row", 7)
    ((number, (agent, body)),) = shown["asked"].items()
    assert agent == "a"
    assert body["messages"][0] == "row"
    shown = lives.answer(shown["life"], number, said("x"))
    ((number, (agent, _)),) = shown["asked"].items()
    assert agent == "b"
    assert lives.answer(1, number, said("y")) == {"end": {"told": [said("x"), said("y")]}}


def test_rows_in_when_a_row_holds_line_separators_then_they_are_part_of_it(tmp_path: Path) -> None:
    rows = [{"question": "a\u2028b\u2029c\u0085d"}, {"question": "e"}]
    lines = "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (tmp_path / "rows.jsonl").write_text(lines + "\n", encoding="utf-8-sig")
    assert rollouts.rows_in(tmp_path / "rows.jsonl") == rows


def test_rollout_when_others_draw_between_its_turns_then_draws_the_same(held: Any) -> None:
    alone = held(two_rounds)
    first = alone.start("row", 7)["asked"]
    second = alone.answer(1, 1, said("x"))["asked"]
    crowd = held(two_rounds)
    assert crowd.start("row", 7)["asked"] == first
    crowd.start("row", 8)
    random.random()
    assert crowd.answer(1, 1, said("x"))["asked"] == second


def test_rollout_when_it_begins_then_the_process_draws_as_before(held: Any) -> None:
    random.seed(3)
    expected = random.Random(3).random()
    held(two_rounds).start("row", 7)
    assert random.random() == expected


def test_rollout_when_it_asks_twice_at_once_then_both_requests_wait(held: Any) -> None:
    async def at_once(life: Any, row: Any) -> dict[str, Any]:
        asked = [life.ask(agent, {"messages": []}) for agent in "ab"]
        return {"told": await asyncio.gather(*asked)}

    lives = held(at_once)
    assert [agent for agent, _ in lives.start("row", 1)["asked"].values()] == ["a", "b"]


def test_answer_when_nothing_waits_for_it_then_is_another_attempt(held: Any) -> None:
    lives = held(two_rounds)
    lives.start("row", 1)
    with pytest.raises(serve.MachineError, match="no request 5"):
        lives.answer(1, 5, said("x"))
    lives.drop(1)
    with pytest.raises(serve.MachineError, match="no request 1"):
        lives.answer(1, 1, said("x"))


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("(3 + 4) * 2 - 1/7", True),
        ("2*x**3 + C", True),
        ("sin(x)/2 + exp(x)", True),
        ("__import__('os').getcwd()", False),
        ("x.func", False),
        ("open('f')", False),
        ("9**9**9", False),
        ("2**(3**4)", False),
        ("9**99999", False),
        ("lambda: 1", False),
        ("1+" * 600 + "1", False),
    ],
)
def test_formula_when_it_could_be_a_program_or_a_huge_number_then_is_none(
    text: str, is_one: bool
) -> None:
    assert procedural.is_formula(text) is is_one


def test_environment_when_its_package_does_not_require_verifiers_then_is_refused() -> None:
    for name in ("os", "pytest", "not-there", "owner/json"):
        with pytest.raises(serve.RefusedError, match="no installed package that uses verifiers"):
            packaged.environment_module(name)


def test_reply_when_a_method_raises_then_tells_what_and_where() -> None:
    class Served:
        def broken(self) -> None:
            raise ValueError("boom")

    told = serve.answered(Served(), {"id": 1, "op": "broken"})
    assert told["kind"] == "broken"
    assert "ValueError: boom" in told["error"]
    assert "test_importer_guests.py" in told["error"]


LACKING = [
    *(OSError(number, "told") for number in errno.errorcode),
    MemoryError(),
    *(RuntimeError(words) for words in ("can't start new thread", "std::bad_alloc", "boom")),
    *(ValueError(words) for words in ("No space left on device", "database or disk is full")),
    ValueError("can't start new thread"),
    SystemExit(1),
]


@pytest.mark.parametrize("error", LACKING, ids=repr)
def test_reply_when_the_machine_lacks_something_then_it_is_another_attempt(
    error: BaseException,
) -> None:
    class Served:
        def score(self) -> None:
            raise error

    told = serve.answered(Served(), {"id": 1, "op": "score"})
    assert told["kind"] == ("machine" if is_transient(error) else "broken")


class OneItem:
    """A data set whose scorer raises; made without the library."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"question": "?", "answer": "1"}

    def score_answer(self, answer: str, entry: Any) -> float:
        raise self._error


@pytest.mark.parametrize(
    ("error", "is_paid"),
    [
        (OSError(errno.ENOSPC, "full"), False),
        (RuntimeError("can't start new thread"), False),
        (MemoryError(), True),
        (RecursionError(), True),
        (ValueError("not a formula"), True),
        (ValueError("not a number: No space left on device"), True),
    ],
)
def test_score_when_the_machine_lacks_something_then_is_no_reward_of_nothing(
    error: Exception, is_paid: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = object.__new__(procedural.Items)
    items._name, items._items, items._extract = "one", OneItem(error), str
    monkeypatch.setattr(procedural, "guarded", lambda *_: contextlib.nullcontext())
    told = serve.answered(items, {"id": 1, "op": "score", "index": 0, "text": "1"})
    assert told.get("ok") == ({"score": 0.0, "is_read": True} if is_paid else None)
    assert told.get("kind") == (None if is_paid else "machine")
