"""Fenced blocks: found as the patterns say that define them, and in one pass."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe_tasks.code import fences
from troupe_tasks.code.answers import read_program

BLOCK = re.compile(r"^```[ \t]*(\w*)[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(
    r"^([ \t]+)```[ \t]*(\w*)[ \t]*\n(.*?)^\1```[ \t]*$", re.DOTALL | re.MULTILINE
)
STDIN_TEST = re.compile(
    r"^Test Input:[ \t]*\n```\w*[ \t]*\n(.*?)^```[ \t]*\n+"
    r"Test Output:[ \t]*\n```\w*[ \t]*\n(.*?)^```[ \t]*$",
    re.DOTALL | re.MULTILINE,
)
PARTS = ("```", "``` \t", "```py", "``` py ", "```a b", "``", "x", "", " ", "Test Input:")
PARTS += ("Test Input: ", "Test Output:", "Test Output:\t", "Test Output:x", "```\r", " ```")
PARTS += (" ``` py", "   x", "  ```\t", "  ```")
TEXTS = st.lists(st.sampled_from(PARTS), max_size=14).map("\n".join)
FAR_IN = st.lists(st.sampled_from(PARTS[6:9] + PARTS[15:]), max_size=14).map("\n".join)


@given(TEXTS | FAR_IN)
def test_blocks_when_any_lines_are_written_then_those_of_the_pattern(text):
    assert list(fences.blocks(text)) == _blocks(text)


def _blocks(text):
    if re.search(r"^```", text, re.MULTILINE):
        return BLOCK.findall(text)
    return [
        (mark, re.sub(f"^(?:{indent}|[ \\t]*)", "", inner, flags=re.MULTILINE))
        for indent, mark, inner in INDENTED.findall(text)
    ]


@given((TEXTS | FAR_IN).filter(lambda text: "\r" not in text and "\n" in text))
def test_blocks_when_all_lines_end_with_a_carriage_return_then_as_without(text):
    ended = text.replace("\n", "\r\n")
    assert list(fences.blocks(ended)) == list(fences.blocks(text))
    assert list(fences.stdin_tests(ended)) == list(fences.stdin_tests(text))


@pytest.mark.parametrize("mark", ["python", "Python", "PY", "python3", "py3", "py", ""])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("indent", ["", "   ", "\t"])
def test_read_program_when_its_fence_is_written_in_another_way_then_it_is_read(mark, end, indent):
    lines = ["1. The program:", f"{indent}```{mark}", f"{indent}if 1:", f"{indent}    x = 2"]
    answer = read_program(end.join([*lines, f"{indent}```", "Done."]), 100)
    assert (answer.code, answer.is_well_formed) == ("if 1:\n    x = 2\n", True)


def test_read_program_when_fences_are_many_then_the_last_marked_one_else_the_last():
    marked = read_program("```Python\n1\n```\n```py\n2\n```\nIt prints\n```\n3\n```\n", 100)
    assert (marked.code, marked.is_well_formed) == ("2\n", False)
    plain = read_program("```\n1\n```\n```\n2\n```\n```bash\nls\n```\n", 100)
    assert (plain.code, plain.is_well_formed) == ("2\n", False)


def test_read_program_when_a_fence_is_in_a_docstring_then_it_ends_nothing():
    code = 'def f():\n    """\n    ```\n    f()\n    ```\n    """\n'
    assert read_program(f"```python\n{code}```\n", 100).code == code
    assert read_program(f"```python\n{code}", 100).code == ""


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
        " ```\n" * 200_000,
        " ```py\n" * 150_000,
        "".join(" " * n + "```\n" for n in range(1, 1400)),
        " ```\n" + " " * 1_000_000 + "x\n ```",
    ],
    ids=[
        "spaces",
        "openings",
        "fences",
        "inputs",
        "pairs",
        "empty lines",
        "indented",
        "indented openings",
        "ever further",
        "far in",
    ],
)
def test_fences_when_a_million_characters_are_hostile_then_read_at_once(text):
    began = time.process_time()
    for _ in fences.blocks(text):
        pass
    for _ in fences.stdin_tests(text):
        pass
    assert time.process_time() - began < 3.0
