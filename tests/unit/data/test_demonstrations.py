"""Rows of demonstrations: what is read, and what a row that is none says."""

import json
from pathlib import Path
from typing import Any

import pytest

from troupe.data.demonstrations import Demonstration, read_demonstrations
from troupe.data.sources import digest_of
from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.tasks.family import Message

GOOD = {"agent": "solver", "messages": [{"role": "user", "content": "2 + 2"}], "answer": "4"}


def _file(folder: Path, *rows: Any) -> Path:
    path = folder / "shown.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_rows_when_they_are_good_then_are_read_in_order(tmp_path: Path) -> None:
    short = {"agent": "checker", "prompt": "is 4 right?", "answer": "yes"}
    found = read_demonstrations(_file(tmp_path, GOOD, short), ["solver", "checker"])
    assert found == [
        Demonstration(1, "solver", (Message("user", "2 + 2"),), "4"),
        Demonstration(2, "checker", (Message("user", "is 4 right?"),), "yes"),
    ]


def test_row_when_the_job_has_one_agent_then_needs_no_name(tmp_path: Path) -> None:
    path = _file(tmp_path, {"prompt": "2 + 2", "answer": "4"})
    assert read_demonstrations(path, ["solver"])[0].agent == "solver"
    with pytest.raises(InvalidArgumentError, match=r"row 1: agent is None, .* solver, checker"):
        read_demonstrations(path, ["solver", "checker"])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"agent": "sover"}, "agent is 'sover', and the job's agents are solver"),
        ({"prompt": "2 + 2"}, "give either 'messages' or 'prompt'"),
        ({"answer": ""}, "'answer' must be a text that is not empty"),
        ({"answer": {"solver": "4"}}, "'answer' must be a text"),
        ({"answer": "4 \ud83d"}, "a text holds a lone surrogate"),
        ({"messages": [{"role": "user", "content": "\ud83d"}]}, "a text holds a lone surrogate"),
        ({"messages": []}, "at least one message"),
        ({"messages": "2 + 2"}, "at least one message"),
        ({"messages": [*GOOD["messages"], {"role": "tool", "content": "4"}]}, "message 2 must"),
        ({"messages": [{"role": "user", "content": ["a"]}]}, "message 1 must"),
        ({"messages": [{**GOOD["messages"][0], "tool_calls": []}]}, "and nothing else"),  # type: ignore[dict-item]
    ],
)
def test_row_when_it_is_no_demonstration_then_says_which_and_why(
    change: dict[str, Any], why: str, tmp_path: Path
) -> None:
    path = _file(tmp_path, GOOD, {**GOOD, **change})
    with pytest.raises(InvalidArgumentError, match=why) as caught:
        read_demonstrations(path, ["solver"])
    assert "shown.jsonl, row 2: " in caught.value.message
    assert "a row is {" in caught.value.message


def test_file_when_it_is_damaged_empty_or_missing_then_says_so(tmp_path: Path) -> None:
    path = _file(tmp_path, GOOD)
    path.write_text(path.read_text() + '{"agent": "solver", \n')
    with pytest.raises(InvalidArgumentError, match=r"shown\.jsonl, line 2: not JSON"):
        read_demonstrations(path, ["solver"])
    with pytest.raises(InvalidArgumentError, match="has no rows; give at least one"):
        read_demonstrations(_file(tmp_path), ["solver"])
    with pytest.raises(NotFoundError, match="does not exist"):
        read_demonstrations(tmp_path / "other.jsonl", ["solver"])


def test_digest_when_a_byte_changes_then_is_another(tmp_path: Path) -> None:
    one = digest_of(_file(tmp_path, GOOD))
    assert len(one) == 64
    assert one != digest_of(_file(tmp_path, GOOD, GOOD))
