"""The order in which a round's tickets are started changes nothing that is learnt."""

import asyncio
from pathlib import Path

from job_world import JOB, tickets
from play_world import ROUND, PlayWorld, Serve, fresh
from redis.asyncio import Redis

from troupe.aio import cancel_all
from troupe.api.records.v1 import records_pb2 as pb
from troupe_router.conduct.lengths import TicketLengths
from troupe_router.run.tail import tail_of


async def played_in(world: PlayWorld, opened: list[pb.Ticket]) -> list[str]:
    """Play the round; the ids in the order in which they ended."""
    await world.ledger.open_round(ROUND, pb.ROUND_KIND_TRAIN, 0, opened)
    playing = asyncio.create_task(world.players(claim_idle_s=1.0).run())
    try:
        await world.played()
    finally:
        await cancel_all(playing)
    return [episode.episode_id for episode in await world.ledger.episodes(ROUND)]


async def test_groups_when_the_longest_are_started_first_then_are_those_of_any_other_order(
    redis: Redis, tmp_path: Path, grpc_servers: Serve
) -> None:
    world = await fresh(redis, tmp_path / "as-drawn", grpc_servers, in_flight=2)
    opened = tickets(ROUND, world.num_tickets)
    for ticket in opened:
        ticket.policy_versions["p"] = 0
    await played_in(world, opened)
    expected, episodes = await world.groups(), await world.ledger.episodes(ROUND)
    tail = tail_of(episodes)
    assert tail is not None
    assert tail.num_draws == sum(len(episode.groups) for episode in episodes)
    assert list(tail.idle_by_replica) == [f"{JOB}-{1}"]

    for number, episode in enumerate(sorted(episodes, key=lambda e: e.episode_id)):
        episode.groups[0].candidates[0].num_tokens += 100 * number
    lengths = TicketLengths()
    lengths.learn("train", range(world.num_tickets), episodes)
    longest_first = lengths.longest_first(opened)
    assert longest_first == opened[::-1]
    world = await fresh(redis, tmp_path / "longest-first", grpc_servers, in_flight=1)
    ended = await played_in(world, longest_first)  # one at a time: they end as they are started
    assert ended == [ticket.ticket_id for ticket in longest_first]
    assert await world.groups() == expected
