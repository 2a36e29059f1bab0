"""Fenced blocks: found as the patterns say that define them, and in one pass."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe_tasks.code import fences

BLOCK = re.compile(r"^```[ \t]*(\w*)[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
STDIN_TEST = re.compile(
    r"^Test Input:[ \t]*\n```\w*[ \t]*\n(.*?)^```[ \t]*\n+"
    r"Test Output:[ \t]*\n```\w*[ \t]*\n(.*?)^```[ \t]*$",
    re.DOTALL | re.MULTILINE,
)
PARTS = ("```", "``` \t", "```py", "``` py ", "```a b", "``", "x", "", " ", "Test Input:")
PARTS += ("Test Input: ", "Test Output:", "Test Output:\t", "Test Output:x", "```\r", " ```")
TEXTS = st.lists(st.sampled_from(PARTS), max_size=14).map("\n".join)


@given(TEXTS)
def test_blocks_when_any_lines_are_written_then_those_of_the_pattern(text):
    assert list(fences.blocks(text)) == BLOCK.findall(text)


@given(
    TEXTS
    | st.lists(st.sampled_from(PARTS[:3] + PARTS[9:12] + ("1", "")), max_size=24).map("\n".join)
)
def test_stdin_tests_when_any_lines_are_written_then_those_of_the_pattern(text):
    assert list(fences.stdin_tests(text)) == STDIN_TEST.findall(text)


def test_stdin_tests_when_an_input_holds_a_fence_then_it_ends_before_the_output():
    text = "Test Input:\n```\n```\n1\n```\n\nTest Output:\n```\n2\n```\n"
    assert list(fences.stdin_tests(text)) == [("```\n1\n", "2\n")]


@pytest.mark.parametrize(
    "text",
    [
        "```python\n1\n```" + " " * 1_000_000 + "x",
        "```py\n" * 200_000,
        "```\n" * 250_000,
        "Test Input:\n```\n" * 60_000,
        "Test Input:\n```\n```\nTest Output:\n" * 30_000,
        "```\n" + "\n" * 500_000 + "```\n" * 100,
    ],
    ids=["spaces", "openings", "fences", "inputs", "pairs", "empty lines"],
)
def test_fences_when_a_million_characters_are_hostile_then_read_at_once(text):
    began = time.process_time()
    for _ in fences.blocks(text):
        pass
    for _ in fences.stdin_tests(text):
        pass
    assert time.process_time() - began < 3.0
