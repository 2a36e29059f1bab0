"""The step ledger on a real Valkey: all or nothing, once, whatever dies in between."""

import asyncio
import random

import pytest
from redis.asyncio import Redis

from troupe.api.records.v1.records_pb2 import (
    ROUND_KIND_EVAL,
    ROUND_KIND_TRAIN,
    Episode,
    Group,
    Ticket,
)
from troupe.errors import ConflictError, InvalidArgumentError, NotFoundError
from troupe.ids import group_id, ticket_id
from troupe.runtime.streams import keys
from troupe.runtime.streams.consumer import Consumer, Entry
from troupe.runtime.streams.ledger import StepLedger

ROUND = "train-00000"


def tickets(num: int, round_id: str = ROUND, job: str = "j") -> list[Ticket]:
    return [
        Ticket(ticket_id=ticket_id(job, round_id, i), job_id=job, round_id=round_id, task_index=i)
        for i in range(num)
    ]


def groups(ticket: Ticket) -> list[Group]:
    return [
        Group(group_id=group_id(ticket.ticket_id, agent, 0), policy=policy)
        for agent, policy in (("tool", "small"), ("planner", "big"), ("critic", "big"))
    ]


def episode(ticket: Ticket, reason: str = "") -> Episode:
    return Episode(episode_id=ticket.ticket_id, dropped_reason=reason)


def worker(redis: Redis, name: str = "w", *, claim_idle_s: float = 60.0) -> Consumer:
    return Consumer(
        redis,
        keys.tickets("j"),
        keys.WORKERS_GROUP,
        name,
        claim_idle_s=claim_idle_s,
        max_attempts=0,
    )


async def opened(redis: Redis, num: int) -> tuple[StepLedger, list[tuple[Ticket, Entry]]]:
    ledger = StepLedger(redis, "j")
    assert await ledger.open_round(ROUND, ROUND_KIND_TRAIN, 0, tickets(num))
    entries = await worker(redis).read(count=num, block_s=0)
    return ledger, [(Ticket.FromString(e.payload), e) for e in entries]


async def trained_ids(redis: Redis, policy: str) -> list[str]:
    entries = await redis.xrange(keys.groups("j", policy))
    return [Group.FromString(fields[b"p"]).group_id for _, fields in entries]


async def test_open_round_when_repeated_then_tickets_are_there_once(redis: Redis):
    ledger = StepLedger(redis, "j")
    assert await ledger.round(ROUND) is None
    assert await ledger.open_round(ROUND, ROUND_KIND_EVAL, 7, tickets(5))
    assert not await ledger.open_round(ROUND, ROUND_KIND_EVAL, 7, tickets(5))
    assert await redis.xlen(keys.tickets("j")) == 5
    state = await ledger.round(ROUND)
    assert state is not None
    assert (state.kind, state.step, state.num_tickets) == (ROUND_KIND_EVAL, 7, 5)
    assert not state.is_complete
    assert not state.is_recorded


async def test_open_round_when_many_conductors_race_then_one_wins(redis: Redis):
    ledgers = [StepLedger(redis, "j") for _ in range(8)]
    won = await asyncio.gather(
        *(ledger.open_round(ROUND, ROUND_KIND_TRAIN, 0, tickets(3)) for ledger in ledgers)
    )
    assert sum(won) == 1
    assert await redis.xlen(keys.tickets("j")) == 3


async def test_open_round_when_a_ticket_is_foreign_or_twice_then_refuses(redis: Redis):
    ledger = StepLedger(redis, "j")
    with pytest.raises(InvalidArgumentError, match="other"):
        await ledger.open_round(ROUND, ROUND_KIND_TRAIN, 0, tickets(1, job="other"))
    with pytest.raises(InvalidArgumentError, match="two tickets"):
        await ledger.open_round(ROUND, ROUND_KIND_TRAIN, 0, tickets(1) * 2)
    assert await ledger.round(ROUND) is None


async def test_open_round_when_large_then_every_ticket_is_there(redis: Redis):
    ledger = StepLedger(redis, "j")
    assert await ledger.open_round(ROUND, ROUND_KIND_EVAL, 0, tickets(20_000))
    assert await redis.xlen(keys.tickets("j")) == 20_000


async def test_complete_ticket_when_repeated_then_counts_once_and_acks(redis: Redis):
    ledger, work = await opened(redis, 2)
    for ticket, entry in work:
        assert await ledger.complete_ticket(ticket, entry.id, groups(ticket), episode(ticket))
        assert not await ledger.complete_ticket(ticket, entry.id, groups(ticket), episode(ticket))
    state = await ledger.round(ROUND)
    assert state is not None
    assert state.is_complete and state.completed_at is not None
    assert (state.num_done, state.num_dropped) == (2, 0)
    assert state.num_groups == {"small": 2, "big": 4}
    assert len(await trained_ids(redis, "big")) == 4
    assert len(await ledger.episodes(ROUND)) == 2
    assert await redis.xlen(keys.tickets("j")) == 0


async def test_complete_ticket_when_two_workers_race_then_its_groups_are_there_once(redis: Redis):
    _, [(ticket, entry)] = await opened(redis, 1)
    answers = await asyncio.gather(
        *(
            StepLedger(redis, "j").complete_ticket(
                ticket, entry.id, groups(ticket), episode(ticket)
            )
            for _ in range(10)
        )
    )
    assert sum(answers) == 1
    assert sorted(await trained_ids(redis, "big")) == sorted(
        g.group_id for g in groups(ticket) if g.policy == "big"
    )


async def test_drop_ticket_when_exhausted_then_parked_counted_and_never_completed(redis: Redis):
    ledger, [(ticket, entry), _] = await opened(redis, 2)
    assert await ledger.drop_ticket(ticket, entry.id, episode(ticket, "env is down"))
    assert not await ledger.drop_ticket(ticket, entry.id, episode(ticket, "env is down"))
    assert not await ledger.complete_ticket(ticket, entry.id, groups(ticket), episode(ticket))
    state = await ledger.round(ROUND)
    assert state is not None
    assert (state.num_done, state.num_dropped, dict(state.num_groups)) == (0, 1, {})
    [(_, fields)] = await redis.xrange(keys.dead(keys.tickets("j")))
    assert fields[b"reason"] == b"env is down"
    assert Ticket.FromString(fields[b"p"]) == ticket
    assert [e.dropped_reason for e in await ledger.episodes(ROUND)] == ["env is down"]
    assert await redis.xlen(keys.tickets("j")) == 1


async def test_mark_recorded_when_complete_then_frees_memory_and_still_refuses_replays(
    redis: Redis,
):
    ledger, work = await opened(redis, 2)
    with pytest.raises(NotFoundError):
        await ledger.mark_recorded("train-00099")
    with pytest.raises(ConflictError):
        await ledger.mark_recorded(ROUND)
    for ticket, entry in work:
        await ledger.complete_ticket(ticket, entry.id, groups(ticket), episode(ticket))
    await ledger.mark_recorded(ROUND)
    await ledger.mark_recorded(ROUND)
    assert not await redis.exists(keys.episodes("j", ROUND), keys.round_done("j", ROUND))
    ticket, entry = work[0]
    assert not await ledger.complete_ticket(ticket, entry.id, groups(ticket), episode(ticket))
    state = await ledger.round(ROUND)
    assert state is not None
    assert state.is_recorded
    assert state.num_groups == {"small": 2, "big": 4}
    assert await ledger.episodes(ROUND) == []


async def test_complete_ticket_when_the_job_is_deleted_then_false_and_nothing_comes_back(
    redis: Redis,
):
    ledger, [(ticket, entry)] = await opened(redis, 1)
    await ledger.delete()
    assert not await ledger.complete_ticket(ticket, entry.id, groups(ticket), episode(ticket))
    assert await redis.keys("*") == []


async def test_round_when_workers_die_anywhere_then_every_group_is_there_once(redis: Redis):
    """Workers are cancelled at random awaits; others claim what they held."""
    num = 40
    ledger = StepLedger(redis, "j")
    await ledger.open_round(ROUND, ROUND_KIND_TRAIN, 0, tickets(num))
    rng = random.Random(7)

    async def work(name: str) -> None:
        reader = worker(redis, name, claim_idle_s=0.05)
        while True:
            for entry in await reader.read(count=3, block_s=0.05):
                ticket = Ticket.FromString(entry.payload)
                await ledger.complete_ticket(ticket, entry.id, groups(ticket), episode(ticket))

    async with asyncio.timeout(60):
        lives = 0
        while not (state := await ledger.round(ROUND)) or not state.is_complete:
            lives += 1
            life = [asyncio.create_task(work(f"w{lives}-{i}")) for i in range(4)]
            await asyncio.wait(life, timeout=rng.uniform(0.001, 0.02))
            for task in life:
                task.cancel()
            await asyncio.gather(*life, return_exceptions=True)
    assert lives > 1
    assert (state.num_done, state.num_groups) == (num, {"small": num, "big": 2 * num})
    for policy, expected in (("small", num), ("big", 2 * num)):
        ids = await trained_ids(redis, policy)
        assert len(ids) == len(set(ids)) == expected
    assert len(await ledger.episodes(ROUND)) == num


async def test_episodes_when_more_than_a_page_then_all_in_order(redis: Redis):
    ledger, work = await opened(redis, 600)
    for ticket, entry in work:
        await ledger.complete_ticket(ticket, entry.id, [], episode(ticket))
    ids = [e.episode_id for e in await ledger.episodes(ROUND)]
    assert ids == [ticket.ticket_id for ticket, _ in work]


async def test_commit_version_when_lower_then_conflict(redis: Redis):
    ledger = StepLedger(redis, "j")
    assert await ledger.versions() == {}
    await ledger.commit_version("a", 0, "d0")
    await ledger.commit_version("a", 10, "d10")
    await ledger.commit_version("a", 10, "d10")
    await ledger.commit_version("b", 2, "d2")
    with pytest.raises(ConflictError, match="version 10"):
        await ledger.commit_version("a", 9, "d9")
    with pytest.raises(ConflictError, match="other weights"):
        await ledger.commit_version("a", 10, "d10 learnt again")
    assert await ledger.versions() == {"a": 10, "b": 2}
    assert await ledger.digests() == {"a": "d10", "b": "d2"}


async def test_count_failure_when_one_is_asked_for_again_then_it_counts_once(redis: Redis):
    ledger, [(first, _), (second, _)] = await opened(redis, 2)
    told = [
        await ledger.count_failure(ticket, "no memory", failure)
        for ticket, failure in ((first, "a"), (first, "a"), (second, "a"), (first, "b"))
    ]
    assert told == [1, 1, 1, 2]


async def test_fail_when_said_twice_then_the_first_reason_stays(redis: Redis):
    ledger = StepLedger(redis, "j")
    assert (await ledger.failure(), await ledger.result()) == (None, None)
    await ledger.fail("no memory")
    await ledger.fail("later")
    await ledger.set_result({"adapter": "x"})
    assert await ledger.failure() == "no memory"
    assert await ledger.result() == {"adapter": "x"}


async def test_wait_change_when_something_changed_before_then_returns_at_once(redis: Redis):
    waiter, other = StepLedger(redis, "j"), StepLedger(redis, "j")
    for version in (0, 1):
        await other.commit_version("a", version, "")
        async with asyncio.timeout(20):
            await waiter.wait_change(60)
        assert await waiter.versions() == {"a": version}


async def test_wait_change_when_something_changes_then_wakes_each_waiter(redis: Redis):
    waiters = [StepLedger(redis, "j") for _ in range(3)]

    async def wait(waiter: StepLedger) -> str | None:
        await waiter.wait_change(60)
        return await waiter.failure()

    waiting = [asyncio.create_task(wait(waiter)) for waiter in waiters]
    async with asyncio.timeout(20):
        while await _num_blocked(redis) < len(waiters):  # noqa: ASYNC110 (nobody else can tell)
            await asyncio.sleep(0.01)
        await StepLedger(redis, "j").fail("x")
        assert await asyncio.gather(*waiting) == ["x"] * len(waiters)


async def _num_blocked(redis: Redis) -> int:
    info: dict[str, int] = await redis.info("clients")
    return info["blocked_clients"]


async def test_wait_change_when_nothing_changes_then_returns_at_the_timeout(redis: Redis):
    ledger = StepLedger(redis, "j")
    await ledger.fail("x")
    await ledger.wait_change(1)
    loop = asyncio.get_running_loop()
    started = loop.time()
    await ledger.wait_change(0.2)
    assert 0.15 < loop.time() - started < 20


async def test_delete_when_done_then_only_record_and_events_stay(redis: Redis):
    ledger, [(ticket, entry), _] = await opened(redis, 2)
    await ledger.complete_ticket(ticket, entry.id, groups(ticket), episode(ticket))
    kept = {keys.job("j"), keys.events("j"), keys.event_ids("j"), keys.job("j2")}
    for key in kept:
        await redis.set(key, "x")
    await ledger.delete()
    assert {key.decode() for key in await redis.keys("*")} == kept


async def test_result_when_each_policy_has_a_trainer_then_there_once_all_have_told(redis: Redis):
    ledger = StepLedger(redis, "j")
    both = ("a", "b")
    await ledger.set_result({"step": 3, "policies": {"b": {"merged": "y"}}}, policy="b")
    assert await ledger.result(both) is None
    assert await ledger.result() is None
    await ledger.set_result({"step": 3, "policies": {"a": {"merged": "x"}}}, policy="a")
    policies = {"a": {"merged": "x"}, "b": {"merged": "y"}}
    assert await ledger.result(both) == {"step": 3, "policies": policies}
