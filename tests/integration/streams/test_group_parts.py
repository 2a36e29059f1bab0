"""Sampled tokens are in Redis once: a record gets those that its groups still hold."""

import pytest
from redis.asyncio import Redis

from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import Candidate, Generation
from troupe.episodes.branch import Draw
from troupe.episodes.groups import Ending, episode_record, for_trainer, groups_by_observation
from troupe.episodes.lines import viewer_line
from troupe.episodes.ports import Outcome
from troupe.runtime.streams import keys
from troupe.runtime.streams.ledger import StepLedger

ROUND = "train-00000"
IDS = [[7, 8, 9], [151_935]]
LOGPROBS = [[-0.1, -2.5, -0.0078125], [-11.25]]


def _ticket() -> pb.Ticket:
    return pb.Ticket(ticket_id=f"j/{ROUND}/00000", job_id="j", round_id=ROUND)


def _draw(agent: str, policy: str) -> Draw:
    sampled = zip(IDS, LOGPROBS, strict=True)
    candidates = [Candidate(ids, logprobs, "go", "stop") for ids, logprobs in sampled]
    outcome = Outcome(b"", 0.0, {}, False, False, "{}", {})
    generation = Generation([1, 2], "d" * 32, candidates, 0, 0.1)
    return Draw(agent, 0, policy, 0, (), generation, [outcome] * 2, [1.0, 0.0], 0, 0.1, 0.1)


async def _played(redis: Redis, ticket: pb.Ticket) -> StepLedger:
    """One episode of an agent that is trained and one whose policy is frozen."""
    draws = [_draw("a", "trained"), _draw("b", "frozen")]
    groups = groups_by_observation(ticket, "train/1", draws)
    trained = groups[:1]
    ids = {group.group_id for group in trained}
    ending = Ending(True, 1.0, 1, 1.0)
    episode = episode_record(ticket, "train/1", draws, groups, ending, trained=ids)
    ledger = StepLedger(redis, "j")
    await ledger.open_round(ROUND, pb.ROUND_KIND_TRAIN, 0, [ticket])
    assert await ledger.complete_ticket(ticket, "0-1", for_trainer(trained), episode)
    return ledger


def _tokens(episode: pb.Episode) -> list[list[list[int]]]:
    return [[list(c.token_ids) for c in group.candidates] for group in episode.groups]


async def test_record_when_read_with_tokens_then_has_the_bits_that_the_trainer_gets(redis: Redis):
    ledger = await _played(redis, _ticket())
    [(_, fields)] = await redis.xrange(keys.episodes("j", ROUND))
    assert _tokens(pb.Episode.FromString(fields[b"p"])) == [[[], []], IDS]

    [episode] = await ledger.episodes(ROUND, with_tokens=True)
    assert _tokens(episode) == [IDS, IDS]
    held = [[list(c.rollout_logprobs) for c in g.candidates] for g in episode.groups]
    [(_, fields)] = await redis.xrange(keys.groups("j", "trained"))
    group = pb.Group.FromString(fields[b"p"])
    assert held[0] == [list(c.rollout_logprobs) for c in group.candidates] == held[1]
    line = viewer_line(episode, with_tokens=True)
    assert line["groups"][0]["candidates"][0]["tokens"]["ids"] == IDS[0]


async def test_record_when_read_without_tokens_then_only_counts_them(redis: Redis):
    ledger = await _played(redis, _ticket())
    await redis.xadd(keys.groups("j", "trained"), {"p": b"\xff", "v": b"99"})  # reading it fails
    [episode] = await ledger.episodes(ROUND)
    assert _tokens(episode)[0] == [[], []]
    counts = [c["num_tokens"] for c in viewer_line(episode)["groups"][0]["candidates"]]
    assert counts == [3, 1]
    [episode] = await ledger.episodes(ROUND, kept=lambda _: [], with_tokens=True)
    assert _tokens(episode)[0] == [[], []]


@pytest.mark.parametrize("is_other_group", [True, False])
async def test_record_when_its_group_is_gone_or_another_then_lacks_the_tokens_alone(
    redis: Redis, is_other_group: bool
):
    ledger = await _played(redis, _ticket())
    key = keys.groups("j", "trained")
    [(_, fields)] = await redis.xrange(key)
    await redis.delete(key)
    if is_other_group:
        group = pb.Group.FromString(fields[b"p"])
        group.candidates[0].token_ids.append(1)
        await redis.xadd(key, {**fields, b"p": group.SerializeToString()})
    [episode] = await ledger.episodes(ROUND, with_tokens=True)
    assert _tokens(episode) == [[[], IDS[1] if is_other_group else []], IDS]
