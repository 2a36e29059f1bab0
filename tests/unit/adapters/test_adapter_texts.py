"""How answers become actions and observations become text."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe_tasks.adapters.actions import FreeText, JsonObject, NamedActions, ParsedBy
from troupe_tasks.adapters.render import render

NAMED = NamedActions({"go left": 0, "right": 1})


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("right", 1),
        ("Action: Go Left", 0),
        ("I think left is a wall.\n\nFinal answer: **right**.", 1),
        ("right\ngo left\n", 0),
        ("right, go left", None),
        ("right!\nI am sure", None),
        ("", None),
        ("go  left", None),
    ],
)
def test_named_actions_when_read_then_only_the_last_line_counts(text: str, action: int) -> None:
    assert NAMED.read(text) == action


@pytest.mark.parametrize("name", ["+", "*", "move: left", "up!"])
@pytest.mark.parametrize("label", ["", "action: "])
def test_named_actions_when_a_name_has_marks_then_can_be_chosen(name: str, label: str) -> None:
    marked = NamedActions({"+": "+", "*": "*", "move: left": "move: left", "up!": "up!"})
    assert marked.read(f"I think.\n{label}{name}") == name


@given(st.text(max_size=300))
def test_read_when_the_text_is_anything_then_never_fails(text: str) -> None:
    parsers = (
        NAMED,
        FreeText(),
        FreeText("message"),
        JsonObject(),
        ParsedBy(lambda said: [float(said)], lambda rng: "0"),
    )
    for parser in parsers:
        parser.read(text)


def test_json_object_when_read_then_takes_objects_alone() -> None:
    parser = JsonObject([{"cell": 1}])
    assert parser.read('so:\n{"cell": 4}') == {"cell": 4}
    assert parser.read("[1]") is None
    assert parser.read('{"cell": NaN}') is None
    assert parser.read('{"a":' * 5000) is None
    assert '{"cell": 1}' in parser.ask()


@pytest.mark.parametrize(
    "text",
    ['{"x": 1e999}', '{"x": [-1e999]}', '{"x": "\\ud800"}', '{"\\udfff": 1}']
    + [f'{{"x": {"[" * levels}{"]" * levels}}}' for levels in (20, 500, 900, 990)],
)
def test_json_object_when_no_wire_holds_it_then_is_no_action(text: str) -> None:
    assert JsonObject().read(text) is None


def test_json_object_when_it_is_nested_a_little_then_is_an_action() -> None:
    assert JsonObject().read('{"x": [[{"y": "\\u00e9"}]]}') == {"x": [[{"y": "\u00e9"}]]}
    assert JsonObject().read(f'{{"x": {"[" * 19}{"]" * 19}}}') is not None


@pytest.mark.parametrize(
    ("observation", "text"),
    [
        (np.int64(4), "4"),
        (np.array([0.123456, 2.0]), "[0.1235 2]"),
        (np.array([[1, 0], [0, 1]]), "[[1 0] [0 1]]"),
        ((3, np.float32(0.5), True), "[3 0.5 yes]"),
        ({"board": np.zeros(2, dtype=int), "turn": "you"}, "board: [0 0]\nturn: you"),
        ("plain", "plain"),
        (np.zeros(100), "[" + "0 " * 64 + "...]"),
    ],
)
def test_render_when_an_observation_is_nested_then_is_short_text(observation, text: str) -> None:
    assert render(observation) == text
