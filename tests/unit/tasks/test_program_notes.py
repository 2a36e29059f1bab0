"""The notes of examples/programs: each sentence is paid as the one that its label says."""

from random import Random
from types import SimpleNamespace

import pytest

from examples.programs.notes import Notes, score, worth
from troupe.tasks.simple import pack_state

NOTES = Notes()
STATE = NOTES.draw(Random(0))
PAIR = NOTES.demonstrate(pack_state(STATE), "writer", Random(0))
SHORT, LONG = (line.partition(": ")[2] for line in PAIR.splitlines())


def paid(text: str) -> float:
    return NOTES.step(STATE, "writer", text).team_reward


def test_step_when_both_sentences_are_right_then_paid_in_full() -> None:
    assert worth(STATE, "Short", SHORT) == worth(STATE, "Long", LONG) == 1.0
    assert paid(PAIR) == paid(f" Short: {SHORT}\n Long: {LONG}") == 1.0


@pytest.mark.parametrize(
    ("agent", "text"),
    [
        ("short", f"Long: {LONG}"),
        ("short", f"{SHORT} Long: {LONG}"),
        ("short", f"{SHORT}\nLong: {LONG}"),
        ("long", f"{LONG} Short: {SHORT}"),
    ],
)
def test_score_when_a_sentence_holds_the_other_label_then_paid_as_its_own(
    agent: str, text: str
) -> None:
    call = SimpleNamespace(agent=agent, text=text, judged=paid)

    assert score(call)["sentence"] == worth(STATE, agent.capitalize(), text)


def test_step_when_the_short_line_names_the_long_one_then_the_real_one_counts() -> None:
    text = f"Short: Long: {LONG}\nLong: nothing"

    assert NOTES.step(STATE, "writer", text).info["long"] == worth(STATE, "Long", "nothing")
