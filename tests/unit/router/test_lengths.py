"""Which tickets are predicted to be long, and that the prediction only orders them."""

import pytest

from troupe.api.records.v1 import records_pb2 as pb
from troupe.ids import ticket_id
from troupe_router.conduct import lengths
from troupe_router.conduct.lengths import TicketLengths, tokens_by_agent
from troupe_router.jobs.tickets import make_tickets


def group(agent: str, *candidates: tuple[int, int, int]) -> pb.Group:
    """Candidates as (trajectory, turn, tokens)."""
    return pb.Group(
        agent=agent,
        candidates=[
            pb.Candidate(trajectory=trajectory, turn=turn, token_ids=[1] * tokens)
            for trajectory, turn, tokens in candidates
        ],
    )


def played(index: int, **tokens: int) -> pb.Episode:
    groups = [group(agent, (0, 0, count)) for agent, count in tokens.items()]
    return pb.Episode(episode_id=ticket_id("j", "train-00000", index), groups=groups)


def order(lengths: TicketLengths, *indices: int) -> list[int]:
    tickets = make_tickets(
        "j", "train-00001", pb.ROUND_KIND_TRAIN, 1, "train", list(indices), {"p": 1}, 0.0
    )
    ordered = lengths.longest_first(tickets)
    assert sorted(t.ticket_id for t in ordered) == [t.ticket_id for t in tickets]
    return [ticket.task_index for ticket in ordered]


def test_order_when_nothing_was_played_then_is_that_of_the_round() -> None:
    assert order(TicketLengths(), 5, 3, 9) == [5, 3, 9]


def test_order_when_tasks_were_played_then_the_longest_are_first_and_unknown_ones_in_the_middle():
    known = TicketLengths()
    known.learn(
        "train", range(10), [played(1, solver=10), played(2, solver=90), played(3, solver=50)]
    )
    assert order(known, 1, 7, 2, 8) == [2, 7, 8, 1]


def test_order_when_agents_differ_then_an_unknown_agent_counts_as_it_does_on_average() -> None:
    known = TicketLengths()
    known.learn("train", range(10), [played(1, coder=20), played(2, coder=40, tester=100)])
    assert order(known, 2, 1) == [2, 1]
    known.learn("train", range(10), [played(1, coder=200)])
    assert order(known, 2, 1) == [1, 2]


def test_order_when_an_episode_was_dropped_then_it_says_nothing() -> None:
    known = TicketLengths()
    dropped = played(1, solver=500)
    dropped.dropped_reason = "UNAVAILABLE: gone"
    known.learn("train", range(10), [dropped])
    assert order(known, 2, 1) == [2, 1]


def test_order_when_a_round_had_more_tasks_than_the_spec_has_now_then_the_others_say_nothing() -> (
    None
):
    known = TicketLengths()
    known.learn("train", range(2), [played(1, solver=10), played(7, solver=90)])
    assert order(known, 1, 7) == [1, 7]


def test_length_of_an_episode_is_the_longest_candidate_of_each_turn() -> None:
    tree = [group("a", (0, 0, 3), (0, 0, 7)), group("a", (0, 1, 5), (0, 1, 2)), group("b")]
    apart = [group("c", (0, 0, 9), (0, 1, 9), (1, 0, 4), (1, 1, 20))]
    assert tokens_by_agent(pb.Episode(groups=[*tree, *apart])) == {"a": 12.0, "c": 24.0}


def test_lengths_when_more_tasks_come_than_are_remembered_then_the_oldest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lengths, "MAX_TASKS", 2)
    known = TicketLengths()
    for index, tokens in ((1, 90), (2, 10), (3, 20)):
        known.learn("train", range(10), [played(index, solver=tokens)])
    assert order(known, 2, 1, 3) == [1, 3, 2]  # 1 is as long as the average again
