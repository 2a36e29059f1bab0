"""The example that a real model learns: what a pair of summaries is worth, worked by hand."""

from random import Random

import pytest

from examples.note_summaries import NoteSummaries, Params, judge, note

STATE = {
    "person": "Emma",
    "other": "Jack",
    "thing": "radio",
    "day": "Monday",
    "helper": "sister",
    "place": "park",
    "brief": "",
}
BRIEF = "Emma bought a radio at the park."
DETAILED = (
    "On Monday Emma bought an old radio at the park, and her sister helped to fix it. Jack knows."
)


def play(task: NoteSummaries, brief: str, detailed: str) -> tuple[float, bool]:
    env = task.environment()
    state = env.reset(task.taskset().task("test", 0))
    first = env.step(state, "brief", brief)
    assert (first.team_reward, first.done) == (0.0, False)
    last = env.step(first.state, "detailed", detailed)
    assert last.done
    return last.team_reward, last.success


def test_note_when_written_then_holds_all_six_facts() -> None:
    text = note(STATE)
    assert all(fact in text for fact in ("Emma", "Jack", "radio", "Monday", "sister", "park"))


def test_pair_when_three_times_as_long_with_facts_then_paid_in_full() -> None:
    value, ratio, is_good = judge(STATE, BRIEF, DETAILED, len(DETAILED) / len(BRIEF))
    assert (value, is_good) == (pytest.approx(1.0), True)
    assert ratio == pytest.approx(len(DETAILED) / len(BRIEF))


@pytest.mark.parametrize(
    ("brief", "detailed", "worth"),
    [
        (BRIEF, BRIEF, 0.0),  # as long as the other: ratio 1
        (BRIEF, DETAILED[:-1], 0.5),  # no sentence
        ("Emma radio.", "Emma radio Monday park sister Jack.", 0.5),  # words, and no sentences
        ("It was a day like any other.", "w " * 60 + "w.", 0.0),  # no fact
        ("", DETAILED, 0.0),
        (BRIEF, "", 0.0),
    ],
)
def test_pair_when_it_misses_something_then_paid_at_most_a_share(
    brief: str, detailed: str, worth: float
) -> None:
    value, _, is_good = judge(STATE, brief, detailed, 3.0)
    assert value <= worth
    assert not is_good


def test_value_when_the_ratio_is_off_by_half_its_room_then_half_is_paid() -> None:
    detailed = DETAILED[:63] + "."
    value, ratio, _ = judge(STATE, BRIEF, detailed, 3.0)
    assert ratio == 2.0
    assert value == pytest.approx(0.5)


def test_demonstration_when_played_then_solves_every_task() -> None:
    task = NoteSummaries(Params())
    env = task.environment()
    for number in range(50):
        state, rng = env.reset(task.taskset().task("validation", number)), Random(number)
        first = env.step(state, "brief", task.demonstrate(state, "brief", rng))
        last = env.step(first.state, "detailed", task.demonstrate(first.state, "detailed", rng))
        assert last.success


def test_actions_when_they_are_no_text_of_a_summary_then_judged_and_not_raised() -> None:
    task = NoteSummaries(Params())
    assert play(task, "\x00" * 9, "🧀" * 5_000) == (0.0, False)
