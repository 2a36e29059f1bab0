"""What a group records of its generation: cached prompt tokens, and versions within a candidate."""

from dataclasses import replace

import pytest

from troupe.api.records.v1 import records_pb2 as pb
from troupe.api.rollout.v1 import rollout_pb2
from troupe.candidates import Candidate, Generation, generation_from_proto
from troupe.episodes.branch import Draw
from troupe.episodes.groups import (
    SHOWN_CHARS,
    Ending,
    episode_record,
    for_trainer,
    groups_by_observation,
    groups_by_task,
)
from troupe.episodes.lines import viewer_line
from troupe.episodes.ports import Outcome


def draw(turn: int, generation: Generation) -> Draw:
    count = len(generation.candidates)
    outcome = Outcome(b"", 0.0, {}, False, False, "{}", {})
    rewards = [0.0] * count
    return Draw("a", turn, "p", 0, (), generation, [outcome] * count, rewards, 0, 0.1, 0.1)


def generation(prompt: list[int], cached: int | None, *spans: tuple[tuple[int, int], ...]):
    found = [Candidate([1] * 5, [-1.0] * 5, "x", "stop", span) for span in spans or ((), ())]
    return Generation(prompt, f"digest-{len(prompt)}", found, 7, 0.1, cached)


TICKET = pb.Ticket(ticket_id="t/train-00000/00000", job_id="t")


def test_group_counts_each_prompt_once_for_each_candidate() -> None:
    (group,) = groups_by_observation(TICKET, "x", [draw(0, generation([1, 2, 3], 2))])
    assert (group.num_prompt_tokens, group.num_cached_tokens) == (6, 2)


def test_group_of_a_task_sums_over_its_turns() -> None:
    played = [draw(0, generation([1], 0)), draw(1, generation([1, 2, 3], 5))]
    (group,) = groups_by_task(TICKET, "x", played)
    assert (group.num_prompt_tokens, group.num_cached_tokens) == (2 + 6, 5)


def test_group_when_one_engine_does_not_say_then_cached_tokens_are_unknown_not_zero() -> None:
    played = [draw(0, generation([1], 0)), draw(1, generation([1, 2, 3], None))]
    (group,) = groups_by_task(TICKET, "x", played)
    assert not group.HasField("num_cached_tokens")
    assert group.num_prompt_tokens == 8


def test_candidate_that_spans_versions_carries_the_newest_and_every_span() -> None:
    spans = (((6, 2), (7, 3)), ((6, 5),), ())
    (group,) = groups_by_observation(TICKET, "x", [draw(0, generation([1], 0, *spans))])
    assert [c.policy_version for c in group.candidates] == [7, 6, 7]
    told = [[(s.policy_version, s.num_tokens) for s in c.version_spans] for c in group.candidates]
    assert told == [list(span) for span in spans]
    assert group.policy_version == 7


@pytest.mark.parametrize("cached", [None, 0, 12])
def test_cached_tokens_when_on_the_wire_then_unknown_stays_unknown(cached: int | None) -> None:
    answer = rollout_pb2.GenerateResponse(policy_version=7, num_cached_tokens=cached)
    spans = [pb.VersionSpan(policy_version=6, num_tokens=2)]
    answer.candidates.add(version_spans=spans)
    answer.candidates.add()
    found = generation_from_proto(
        rollout_pb2.GenerateResponse.FromString(answer.SerializeToString())
    )
    assert found.num_cached_tokens == cached
    assert [list(c.version_spans) for c in found.candidates] == [[(6, 2)], []]


def test_group_of_a_task_when_another_agent_earned_the_teams_reward_then_it_counts() -> None:
    """``a`` acts first and earns 0.25 by itself; ``b`` ends the episode with team reward 1."""
    first = replace(draw(0, generation([1], 0)), rewards=[0.25, 0.0], team_shares=[{"b": 0.0}] * 2)
    last = replace(
        draw(0, generation([1, 2], 0)),
        agent="b",
        rewards=[1.0, 0.0],
        shares=[{"a": 0.5}, {}],
        team_shares=[{"a": 1.0}, {"a": 0.0}],
    )
    of_a, of_b = groups_by_task(TICKET, "x", [first, last])
    assert [c.reward for c in of_a.candidates] == [0.25 + 0.5 + 1.0] * 2
    assert [c.reward for c in of_b.candidates] == [1.0] * 2


def _long() -> tuple[list[Draw], list[pb.Group]]:
    candidates = [Candidate([1] * 5, [-1.0] * 5, "x" * 1000 + str(i), "stop") for i in range(2)]
    draws = [draw(0, Generation([1], "digest-1", candidates, 7, 0.1, None))]
    return draws, groups_by_observation(TICKET, "x", draws)


def test_group_when_for_a_trainer_then_lacks_the_end_of_its_texts_and_nothing_else() -> None:
    groups = _long()[1]
    whole = [pb.Group.FromString(group.SerializeToString()) for group in groups]
    for short, group in zip(for_trainer(groups), whole, strict=True):
        for candidate, original in zip(short.candidates, group.candidates, strict=True):
            assert candidate.text == original.text[: SHOWN_CHARS + 1]
            candidate.text = original.text
        assert short == group


@pytest.mark.parametrize("omits_tokens", [True, False])
def test_episode_when_nobody_records_tokens_then_holds_their_number(omits_tokens: bool) -> None:
    draws, groups = _long()
    ticket = pb.Ticket(ticket_id="t/train-00000/00000", job_id="t", omits_tokens=omits_tokens)
    record = episode_record(ticket, "x", draws, groups, Ending(True, 1.0, 1, 0.0))
    lines = viewer_line(record, with_tokens=True)["groups"][0]["candidates"]
    assert [line["num_tokens"] for line in lines] == [5, 5]
    assert ["tokens" in line for line in lines] == [not omits_tokens] * 2
    assert all(len(line["text"]) > 1000 for line in lines)
    assert all(len(c.token_ids) == 5 for group in groups for c in group.candidates)
