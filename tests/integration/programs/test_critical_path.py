"""The critical path of a run as a reward term: by hand, whatever the order of answers."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from program_world import SEATS, asked, begun, forget, program

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Transition
from troupe.tasks.registry import load_family
from troupe_tasks.programs.critical_path import PATH_TERM

PAID = {name: {**seat, "path_weight": -0.1} for name, seat in SEATS.items()}
SOLVER_PAYS = {**SEATS, "solver": PAID["solver"]}


def answered(seats: Any, first: str, rng: Random | None = None, **params: Any) -> list[Transition]:
    """A run whose first answer says how many workers there are; the next agent is drawn."""
    steps: list[Transition] = []
    with program("delegates", seats=seats, max_calls=20, **params) as environment:
        state = begun(environment)
        while agents := asked(environment, state):
            agent = rng.choice(agents) if rng else agents[0]
            steps.append(environment.step(state, agent, "12345678" if steps else first))
            state = steps[-1].state
            if rng is not None and rng.random() < 0.3:
                forget(environment)  # the next step replays the run
    return steps


def path(steps: Sequence[Transition]) -> Any:
    return steps[-1].local_rewards[PATH_TERM]


@pytest.mark.parametrize(
    ("workers", "calls", "length"),
    [("0", 2, 2.0), ("1", 3, 3.0), ("2", 5, 4.0), ("4", 9, 4.0)],
)
def test_path_when_workers_run_at_once_then_stages_count_and_not_calls(
    workers: str, calls: int, length: float
) -> None:
    # Plan, first calls of all workers, second calls of all but worker 0, last word.
    steps = answered(SOLVER_PAYS, workers)
    assert (len(steps), path(steps)) == (calls, length)
    assert all(PATH_TERM not in s.local_rewards or not path([s]) for s in steps[:-1])
    assert steps[-1].info[PATH_TERM] == length


def test_path_when_agents_answer_in_any_order_and_runs_are_replayed_then_is_the_same() -> None:
    assert {path(answered(PAID, "3", Random(seed))) for seed in range(4)} == {4.0}


def test_path_when_it_counts_tokens_then_a_stage_costs_its_slowest_call() -> None:
    # About 1 token for the plan, and 3 for each of the later answers of eight characters.
    assert path(answered(SOLVER_PAYS, "3", path_unit="tokens")) == pytest.approx(0.010, abs=1e-12)


def test_path_when_another_seat_pays_then_the_last_act_says_whose_it_is() -> None:
    seats = {**SEATS, "verifier": PAID["verifier"]}
    assert answered(seats, "2")[-1].local_rewards[f"verifier/{PATH_TERM}"] == 4.0


def test_path_when_no_seat_pays_then_nothing_is_told_of_it() -> None:
    last = answered(SEATS, "2")[-1]
    assert PATH_TERM not in {**last.local_rewards, **last.info}


@pytest.mark.parametrize("seat", [{"path_weight": 0.1}, {"terms": {PATH_TERM: -1.0}}])
def test_seat_when_its_path_pays_or_is_a_term_of_its_own_then_is_refused(seat: Any) -> None:
    seats = {"solver": {"rest": True, **seat}}
    params = {"program": "x:run", "judge": {"name": "math", "agent": "reasoner"}, "seats": seats}
    with pytest.raises(InvalidArgumentError):
        load_family("program", {**params, "score": "verdicts:score"})
