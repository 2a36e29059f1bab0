"""What the trainer collects of a step, from a real Redis, when deliveries go wrong."""

import asyncio
import math
import time
from collections.abc import Sequence

import pytest
from redis.asyncio import Redis
from trainer_data import groups_of_step
from trainer_world import JOB, open_round, play

from troupe.api.records.v1 import records_pb2 as pb
from troupe.errors import JobFailedError
from troupe.ids import train_round
from troupe.runtime.streams import keys
from troupe.runtime.streams.consumer import Consumer, Entry
from troupe.runtime.streams.ledger import StepLedger
from troupe_trainer.control import Control
from troupe_trainer.learn.collector import CONSUMER, Arrived, Collector


def _collector(
    redis: Redis,
    *,
    max_staleness: int = 0,
    max_dropped_fraction: float = 1.0,
    timeout_s: float = 30.0,
    scored: Sequence[str] = (),
) -> Collector:
    vocabularies = {"shared": 1000}
    return Collector(
        redis,
        JOB,
        vocabularies,
        first_step=0,
        timeout_s=timeout_s,
        control=Control(),
        max_staleness=max_staleness,
        max_dropped_fraction=max_dropped_fraction,
        scored=scored,
    )


async def _complete(redis: Redis, step: int, groups: Sequence[pb.Group]) -> None:
    """Open the round of ``step``, with one ticket, which gave these groups."""
    [ticket] = await open_round(redis, step, 1)
    episode = pb.Episode(episode_id=ticket.ticket_id, step=step)
    await StepLedger(redis, JOB).complete_ticket(ticket, "1-1", groups, episode)


async def test_collect_when_the_answer_to_a_read_was_lost_then_every_group_is_there(
    redis: Redis,
) -> None:
    collector = _collector(redis)
    await play(redis, 0)
    first = await collector.collect(0)
    await play(redis, 1)
    # The entries go to this consumer's name, and nobody gets the answer.
    lost = Consumer(
        redis,
        keys.groups(JOB, "shared"),
        keys.TRAINER_GROUP,
        CONSUMER,
        claim_idle_s=1000.0,
        max_attempts=0,
    )
    read = {entry.payload for entry in await _all(lost)}
    second = await collector.collect(1)
    wanted = [sorted(g.group_id for g in groups_of_step(step)) for step in (0, 1)]
    assert [[g.group_id for g in b.groups["shared"]] for b in (first, second)] == wanted
    assert {g.SerializeToString() for g in second.groups["shared"]} <= read
    assert not first.dropped and not second.dropped


async def _end(
    ledger: StepLedger, tickets: Sequence[pb.Ticket], position: int, groups: Sequence[pb.Group]
) -> None:
    """End the ticket at ``position`` with those of ``groups`` that are its own."""
    ticket = tickets[position]
    mine = [g for g in groups if g.ticket_id == ticket.ticket_id]
    episode = pb.Episode(episode_id=ticket.ticket_id, step=0)
    await ledger.complete_ticket(ticket, f"1-{position + 1}", mine, episode)


async def _all(consumer: Consumer) -> list[Entry]:
    found: list[Entry] = []
    while entries := await consumer.read(count=100, block_s=0.0):
        found += entries
    return found


@pytest.mark.parametrize(("max_staleness", "num_trained"), [(0, 1), (1, 2), (2, 3)])
async def test_collect_when_stale_groups_are_injected_then_refuses_and_counts_them(
    redis: Redis, max_staleness: int, num_trained: int
) -> None:
    groups = [g for g in groups_of_step(4, tasks=3) if g.agent == "tool"]
    for behind, group in enumerate(groups):
        group.policy_version = 4 - behind
        for candidate in group.candidates:
            candidate.policy_version = 4 - behind
    await _complete(redis, 4, groups)
    batch = await _collector(redis, max_staleness=max_staleness).collect(4)
    trained = [g.policy_version for g in batch.groups["shared"]]
    assert sorted(trained, reverse=True) == [4, 3, 2][:num_trained]
    refused = 3 - num_trained
    assert dict(batch.dropped) == ({"stale_version": refused} if refused else {})


async def test_collect_when_a_served_teacher_scored_some_groups_then_the_others_are_counted(
    redis: Redis,
) -> None:
    groups = groups_of_step(0)
    for group in groups[:3]:
        for candidate in group.candidates:
            candidate.teacher_logprobs.extend([-0.5] * len(candidate.token_ids))
    groups[2].candidates[0].teacher_logprobs[0] = math.nan
    await _complete(redis, 0, groups)
    batch = await _collector(redis, scored=["shared"]).collect(0)
    assert [g.group_id for g in batch.groups["shared"]] == sorted(g.group_id for g in groups[:2])
    assert batch.dropped == {"bad_teacher_logprobs": 1, "no_teacher_logprobs": 1}


@pytest.mark.parametrize(("num_dropped", "is_refused"), [(0, False), (1, False), (2, True)])
async def test_collect_when_too_many_tickets_were_dropped_then_the_job_fails_and_nothing_is_learnt(
    redis: Redis, num_dropped: int, is_refused: bool
) -> None:
    ledger = StepLedger(redis, JOB)
    tickets = await open_round(redis, 0, 4)
    for number, ticket in enumerate(tickets):
        episode = pb.Episode(episode_id=ticket.ticket_id, step=0, dropped_reason="no replica")
        if number < num_dropped:
            await ledger.drop_ticket(ticket, f"1-{number + 1}", episode)
        else:
            await ledger.complete_ticket(ticket, f"1-{number + 1}", [], episode)
    # No router looks: it may be away, and a trainer learns from a complete round without one.
    collecting = _collector(redis, max_dropped_fraction=0.25).collect(0)
    if not is_refused:
        assert (await collecting).step == 0
        return
    with pytest.raises(JobFailedError, match=r"2 of 4 tickets of train-00000 .* no replica"):
        await collecting


async def test_collect_when_a_group_arrives_twice_then_it_is_trained_once(redis: Redis) -> None:
    groups = groups_of_step(0, tasks=1)
    await _complete(redis, 0, groups)
    await redis.xadd(keys.groups(JOB, "shared"), {"p": groups[0].SerializeToString()})
    batch = await _collector(redis).collect(0)
    assert [g.group_id for g in batch.groups["shared"]] == sorted(g.group_id for g in groups)
    assert dict(batch.dropped) == {"duplicate": 1}


async def test_collect_when_a_group_comes_after_its_step_then_it_is_counted_and_acked_with_it(
    redis: Redis,
) -> None:
    collector = _collector(redis)
    await play(redis, 0)
    first = await collector.collect(0)
    late = groups_of_step(0)[0]
    late.group_id += "-late"
    await redis.xadd(keys.groups(JOB, "shared"), {"p": late.SerializeToString()})
    await play(redis, 1)
    second = await collector.collect(1)
    assert not first.dropped
    assert dict(second.dropped) == {"late": 1}
    wanted = sorted(g.group_id for g in groups_of_step(1))
    assert [g.group_id for g in second.groups["shared"]] == wanted
    # No checkpoint covers step 0 yet, so its entries are still there; then they go together.
    assert await redis.xlen(keys.groups(JOB, "shared")) == len(groups_of_step(0)) + 1 + len(wanted)
    await collector.ack_below(1)
    assert await redis.xlen(keys.groups(JOB, "shared")) == len(wanted)


async def test_collect_when_tickets_end_out_of_turn_then_their_groups_come_before_the_round_is_over(
    redis: Redis,
) -> None:
    groups, ledger = groups_of_step(0, tasks=3), StepLedger(redis, JOB)
    groups[-1].candidates[0].reward = math.nan
    tickets = await open_round(redis, 0, 3)
    seen: list[tuple[list[int], list[str]]] = []

    async def learn(arrived: Arrived) -> bool:
        """Ends the next ticket whenever it was told of the one before."""
        assert (arrived.step, arrived.num_tickets) == (0, 3)
        finished = sorted(arrived.finished)
        if len(finished) == len(seen):
            return False
        of_all = arrived.groups_of("shared", finished)
        seen.append((finished, [g.group_id.removeprefix(f"{JOB}/train-00000/") for g in of_all]))
        left = [position for position in (2, 0, 1) if position not in finished]
        if left == [1]:
            episode = pb.Episode(episode_id=tickets[1].ticket_id, dropped_reason="a test")
            await ledger.drop_ticket(tickets[1], "1-9", episode)
        else:
            await _end(ledger, tickets, left[0], groups)
        return True

    await _end(ledger, tickets, 2, groups)
    batch = await _collector(redis).collect(0, ahead=learn)
    assert seen == [
        ([2], ["00002/tool/t00"]),
        ([0, 2], ["00000/planner/t00", "00000/tool/t00", "00002/tool/t00"]),
    ]
    assert [g.group_id for g in batch.groups["shared"]] == [
        f"{JOB}/train-00000/{name}" for name in seen[-1][1]
    ]
    assert batch.dropped == {"non_finite_reward": 1}
    assert batch.waited_s >= 0.0


async def test_collect_when_learning_ahead_outlasts_the_round_then_its_end_is_late(
    redis: Redis,
) -> None:
    groups, ledger = groups_of_step(0, tasks=2), StepLedger(redis, JOB)
    tickets = await open_round(redis, 0, 2)
    learnt_s, since_end_s = list[float](), list[float]()

    async def learn(arrived: Arrived) -> bool:
        """The round ends meanwhile."""
        began = time.monotonic()
        if len(arrived.finished) == 1:
            await _end(ledger, tickets, 1, groups)
            ended = time.monotonic()
            while time.monotonic() < ended + 0.05:
                await ledger.round(train_round(0))
            learnt_s.append(time.monotonic() - began)
            since_end_s.append(time.monotonic() - ended)
        return len(arrived.finished) == 1

    await _end(ledger, tickets, 0, groups)
    batch = await _collector(redis).collect(0, ahead=learn)
    state = await ledger.round(train_round(0))
    assert state is not None and state.completed_at is not None
    assert state.completed_at == pytest.approx(time.time(), abs=60.0)
    assert since_end_s[0] - 0.01 <= batch.late_s <= learnt_s[0] + 0.01


async def test_collect_when_the_router_is_away_for_longer_than_its_limit_then_the_step_has_it_anew(
    redis: Redis,
) -> None:
    collector, ledger = _collector(redis, timeout_s=0.1), StepLedger(redis, JOB)
    await redis.hset(keys.ledger(JOB), "conducted", "1.0 1.0")  # long ago
    collecting = asyncio.create_task(collector.collect(0))
    done, _ = await asyncio.wait({collecting}, timeout=0.5)
    assert not done
    await ledger.note_conducted(0.0)  # a router is there again
    await play(redis, 0)
    async with asyncio.timeout(5):
        assert (await collecting).step == 0


async def test_collect_when_a_router_conducts_the_job_then_the_step_has_its_limit(
    redis: Redis,
) -> None:
    async def conduct() -> None:
        while True:
            await StepLedger(redis, JOB).note_conducted(3600.0)
            await asyncio.sleep(0.01)

    conducting = asyncio.create_task(conduct())
    with pytest.raises(JobFailedError, match="was never opened"):
        await _collector(redis, timeout_s=0.1).collect(0)
    conducting.cancel()
