"""What a sampled token costs in Redis until its step is recorded and covered by a checkpoint."""

import random

import pytest
from redis.asyncio import Redis

from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import Candidate, Generation
from troupe.episodes.branch import Draw
from troupe.episodes.groups import Ending, episode_record, for_trainer, groups_by_observation
from troupe.episodes.ports import Outcome
from troupe.runtime.streams.ledger import StepLedger

K, T, TURNS, TICKETS = 8, 1024, 2, 32
VOCABULARY = 151_936
WORDS = [
    "have",
    "been",
    "that",
    "with",
    "this",
    "from",
    "they",
    "will",
    "would",
    "there",
    "their",
    "what",
    "about",
    "which",
    "when",
]


def played(
    ticket: pb.Ticket, rng: random.Random, *, is_scored: bool = False
) -> tuple[list[pb.Group], pb.Episode]:
    """One episode: ids of a whole vocabulary alike (the dearest), four characters a token."""
    draws: list[Draw] = []
    for turn in range(TURNS):
        candidates = [
            Candidate(
                [rng.randrange(VOCABULARY) for _ in range(T)],
                [-rng.expovariate(3.0) for _ in range(T)],
                " ".join(rng.choices(WORDS, k=T))[: 4 * T],
                "stop",
                teacher_logprobs=[-rng.expovariate(3.0) for _ in range(T * is_scored)],
            )
            for _ in range(K)
        ]
        prompt = [rng.randrange(VOCABULARY) for _ in range(T // 4)]
        generation = Generation(prompt, "d" * 32, candidates, 7, 0.1)
        outcome = Outcome(b"", 0.0, {"format": 1.0}, False, False, "{}", {})
        draws.append(Draw("a", turn, "p", 0, (), generation, [outcome] * K, [1.0] * K, 0, 0.1, 0.1))
    groups = groups_by_observation(ticket, "train/1", draws)
    trained = {group.group_id for group in groups}
    ending = Ending(True, 1.0, TURNS, 1.0)
    record = episode_record(ticket, "train/1", draws, groups, ending, trained=trained)
    return groups, record


async def used(redis: Redis) -> int:
    return int((await redis.info("memory"))["used_memory_dataset"])


@pytest.mark.parametrize(
    ("omits_tokens", "is_scored", "most"),
    [(True, False, 12.0), (False, False, 12.0), (True, True, 16.0)],
)
async def test_token_when_played_then_costs_redis_no_more_than_this(
    redis: Redis, omits_tokens: bool, is_scored: bool, most: float
) -> None:
    rng, ledger = random.Random(1), StepLedger(redis, "j")
    tickets = [
        pb.Ticket(
            ticket_id=f"j/train-00000/{i}",
            job_id="j",
            round_id="train-00000",
            omits_tokens=omits_tokens,
        )
        for i in range(TICKETS)
    ]
    await ledger.open_round("train-00000", pb.ROUND_KIND_TRAIN, 0, tickets)
    before, sent = await used(redis), 0
    for ticket in tickets:
        groups, episode = played(ticket, rng, is_scored=is_scored)
        sent += len(episode.SerializeToString())
        sent += sum(len(g.SerializeToString()) for g in for_trainer(groups))
        assert await ledger.complete_ticket(ticket, "0-1", groups, episode)
    num_tokens = TICKETS * TURNS * K * T
    grown = (await used(redis) - before) / num_tokens
    print(
        f"{omits_tokens=} {is_scored=}: {sent / num_tokens:.2f} B sent, {grown:.2f} B held a token"
    )
    assert grown < most
