"""The discovery task: readings, budgets, what is paid, and published tables."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.data.dataset import RefusedRowError
from troupe.errors import InvalidArgumentError
from troupe.tasks.family import SPLITS, Task, Transition
from troupe_tasks.datasets import llm_srbench
from troupe_tasks.discovery import Discovery, DiscoveryParams, text
from troupe_tasks.discovery.design import information
from troupe_tasks.discovery.formulas import written
from troupe_tasks.discovery.laws import form_of, law
from troupe_tasks.discovery.state import decode_state
from troupe_tasks.discovery.tables import TableRow

FAMILY = Discovery(DiscoveryParams(names="plain"))
ENV = FAMILY.environment()
KEY = "decay|1.5,0.0,0.0|plain|7"
TASK = Task("by hand", "train", 0, KEY.encode())


def named(state: bytes, formula: str) -> Transition:
    return ENV.step(state, "theorist", text.formula_answer(formula))


def test_reading_when_asked_again_then_is_the_same_and_costs_nothing() -> None:
    first = ENV.step(ENV.reset(TASK), "experimenter", "x=2 y=1\nx=2 y=3")
    again = ENV.step(first.state, "experimenter", "x=2 y=1")
    assert decode_state(again.state).readings == decode_state(first.state).readings
    assert again.local_rewards == {"informs": 0.0}
    assert "Readings, 10 left:\nx=2 y=1 -> " in ENV.observe(again.state, "theorist")[1].content


def test_reading_then_has_the_noise_that_is_asked_for() -> None:
    found = law(KEY)
    errors = []
    for number in range(400):
        point = {"x": 0.5 + number * 0.008, "y": 1.0}
        errors.append(found.reading(point, 0.01) / found.at(point) - 1)
    spread = (sum(e * e for e in errors) / 400) ** 0.5
    assert 0.008 < spread < 0.012
    assert found.reading({"x": 1.0, "y": 1.0}, 0.0) == float(
        f"{found.at({'x': 1.0, 'y': 1.0}):.4g}"
    )


def test_experimenter_when_the_budget_is_spent_then_measures_no_more() -> None:
    state, rng = ENV.reset(TASK), Random(0)
    for _ in range(8):
        state = ENV.step(
            state, "experimenter", FAMILY.random_action(state, "experimenter", rng)
        ).state
    assert len(decode_state(state).readings) == 12
    done = ENV.step(state, "experimenter", "x=0.77 y=0.77")
    assert done.state == state


def test_points_outside_the_range_then_are_clipped() -> None:
    state = ENV.step(ENV.reset(TASK), "experimenter", "x=999 y=-3").state
    assert decode_state(state).readings[0][0] == (4.0, 0.5)


@pytest.mark.parametrize("number", ["1.23456789", "2.0005", "0.4999", "3", "12345678", "-2.5"])
def test_point_of_a_law_then_is_measured_at_three_decimals_within_the_range(number: str) -> None:
    state = ENV.step(ENV.reset(TASK), "experimenter", f"x={number} y=1").state
    assert decode_state(state).readings[0][0] == (
        round(min(4.0, max(0.5, float(number))), 3),
        1.0,
    )


@pytest.mark.parametrize(
    ("number", "span", "read"),
    [
        ("2e-4", (1e-5, 5e-4), 2e-4),
        ("0.00023", (1e-5, 5e-4), 2.3e-4),
        ("1e-9", (1.23456e-5, 5e-4), 1.23456e-5),
        ("6.02e+23", (1e23, 9e23), 6.02e23),
        ("1250000", (0.0, 2e6), 1.25e6),
        ("9e999", (0.0, 2e6), 2e6),
    ],
)
def test_read_points_of_a_table_then_reads_what_prompts_write_and_stays_in_the_range(
    number: str, span: tuple[float, float], read: float
) -> None:
    assert text.read_points(f"v1={number}", {"v1": span}) == [{"v1": read}]


def test_theorist_when_right_in_form_and_prediction_then_has_all() -> None:
    done = named(ENV.reset(TASK), law(KEY).text)
    assert (done.team_reward, done.done, done.success) == (1.0, True, True)


def test_theorist_when_the_form_is_right_and_the_numbers_are_not_then_has_part() -> None:
    done = named(ENV.reset(TASK), law(KEY).text.replace("exp(-0.", "exp(-1."))
    assert 0.0 <= done.team_reward < 0.5
    assert not done.success


def test_theorist_when_many_formulas_are_tried_then_only_a_new_best_is_paid() -> None:
    found = law(KEY)
    good = written(found.formula).replace("exp", "1.1 * exp")
    state, paid = ENV.reset(TASK), []
    for formula in ("1", good, "2", good, good):
        done = named(state, formula)
        paid.append(done.team_reward)
        state = done.state
    assert paid[1] > 0
    assert [paid[0], *paid[2:]] == [0.0] * 4


def test_theorist_when_readings_are_few_then_a_fit_pays_nothing() -> None:
    state = ENV.step(ENV.reset(TASK), "experimenter", "x=2 y=1").state
    measured = decode_state(state).readings[0][1]
    assert named(state, f"{measured}").local_rewards == {"fits": 0.0}


def test_observe_when_a_formula_was_tried_then_shows_one_digit_of_the_hidden_score() -> None:
    state = named(ENV.reset(TASK), "2*x").state
    shown = ENV.observe(state, "theorist")[1].content
    assert "2*x: fits the readings to 0.00, hidden points to 0." in shown


def test_theorist_alone_when_it_may_measure_then_does_in_the_same_answer() -> None:
    family = Discovery(DiscoveryParams(names="plain", theorist_measures=True))
    env = family.environment()
    state = env.reset(TASK)
    for _ in range(3):
        done = env.step(state, "theorist", family.demonstrate(state, "theorist", Random(1)))
        state = done.state
    assert done.success
    assert len(decode_state(state).readings) >= 3


@pytest.mark.parametrize(
    ("action", "formula"),
    [
        ("I think so.\nformula: 2*x", "2*x"),
        ("formula: x\nformula: y", "y"),
        ("q = 2*x", "2*x"),
        ("Formula: q = `2*x`.", "2*x"),
        ("formula: .63 * x", ".63 * x"),
        ("**Formula:** 2*x\nIt fits.", "2*x"),
        ("- formula: -2*x", "-2*x"),
        ("> **formula: q = 2*x**", "2*x"),
        ("## Formula\nq = `2*x`", "2*x"),
        ("q = $.5*x$.", ".5*x"),
        ("", ""),
    ],
)
def test_read_formula_on_each_shape_then_reads_the_last(action: str, formula: str) -> None:
    assert text.read_formula(action) == formula


def test_information_when_points_repeat_then_hardly_grows_and_is_bounded() -> None:
    ranges = {"x": (0.5, 4.0), "y": (0.5, 4.0)}
    corner = {"x": 0.5, "y": 4.0}
    spread = [{"x": x, "y": y} for x in (0.5, 2.0, 4.0) for y in (0.5, 2.0, 4.0)]
    assert information([], ranges) == pytest.approx(0.0)
    assert information([corner] * 9, ranges) < 0.6 * information(spread, ranges)
    assert information(spread * 9, ranges) <= 1.0


def test_splits_then_share_no_form() -> None:
    taskset = FAMILY.taskset()
    forms = {
        split: {form_of(taskset.task(split, n).payload.decode()) for n in range(150)}
        for split in SPLITS
    }
    assert not forms["train"] & (forms["validation"] | forms["test"])
    assert not forms["validation"] & forms["test"]
    assert min(map(len, forms.values())) > 40


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_play_when_actions_are_mixed_then_pays_at_most_the_bound_in_small_states(seed: int) -> None:
    rng = Random(seed)
    state = ENV.reset(FAMILY.taskset().task("train", seed))
    players = [FAMILY.random_action, *FAMILY.attackers().values()]
    paid = 0.0
    for number in range(10):
        agent = text.AGENTS[number % 2]
        done = ENV.step(state, agent, rng.choice(players)(state, agent, rng))
        paid, state = paid + done.team_reward, done.state
        assert len(state) < 4096
        assert not done.success
    assert paid <= 0.5


def test_state_when_it_names_no_law_then_says_so() -> None:
    with pytest.raises(InvalidArgumentError, match="no law"):
        ENV.observe(ENV.reset(Task("t", "train", 0, b"unknown|1")), "theorist")


PUBLISHED = {
    "name": "PO7",
    "symbols": ["a", "x", "t", "w"],
    "symbol_descs": ["Acceleration", "Position", "Time", "Frequency"],
    "symbol_properties": ["O", "V", "V", "C"],
    "expression": "2*x + t",
    "train": [[2 * x + t, x, t] for x in (0.0, 1.0, 2.0, 3.0) for t in (0.0, 2.0, 5.0)],
    "test": [[2 * x + t, x, t] for x, t in ((0.5, 1.0), (2.5, 3.0), (1.5, 4.0))],
    "ood_test": [[2 * x + t, x, t] for x, t in ((9.0, 1.0), (7.0, 30.0), (8.0, 4.0))],
}


def test_published_table_when_played_then_measures_rows_and_judges_outside(
    tmp_path: Path,
) -> None:
    row = TableRow.model_validate(llm_srbench.convert(PUBLISHED))
    assert row.descriptions == ("Acceleration", "Position", "Time")
    (tmp_path / "test.jsonl").write_text(row.model_dump_json() + "\n")
    family = Discovery(DiscoveryParams(data=tmp_path))
    env = family.environment()
    state = env.reset(family.taskset().task("test", 0))
    assert "q is Acceleration; v1 is Position" in env.observe(state, "experimenter")[0].content
    state = env.step(state, "experimenter", "v1=0.9 v2=4.8\nv1=50 v2=50").state
    assert decode_state(state).readings == (((1.0, 5.0), 7.0), ((3.0, 5.0), 11.0))
    assert env.step(state, "theorist", "formula: 2*v1 + v2").success
    assert not env.step(state, "theorist", "formula: 2*v1 + v2 + 0.01*v1**3").success


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"symbol_properties": ["V", "V", "V", "C"]}, "no_single_output"),
        ({"train": [[1.0, 2.0]]}, "train_of_another_width"),
        ({"test": [[1.0, "x", 2.0]]}, "test_no_number"),
        ({"expression": ""}, "no_expression"),
    ],
)
def test_published_row_when_it_cannot_be_used_then_is_refused(
    change: dict[str, object], reason: str
) -> None:
    with pytest.raises(RefusedRowError) as caught:
        llm_srbench.convert({**PUBLISHED, **change})
    assert caught.value.reason == reason
