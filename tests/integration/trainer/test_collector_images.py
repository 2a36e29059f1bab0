"""Images are in Redis once: a record's are those of its groups, which stay until it is recorded."""

from pathlib import Path
from random import Random

import pytest
from redis.asyncio import Redis
from trainer_world import JOB, open_round
from vision_data import image_group, random_image, save_vision_model

from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.images import image_file, keep_images
from troupe.ids import train_round
from troupe.runtime.streams import keys
from troupe.runtime.streams.ledger import StepLedger
from troupe.runtime.streams.versions import NewerRecordError
from troupe.vision.model import VisionModel
from troupe.vision.wire import image_table, parts_to_proto
from troupe_trainer.control import Control
from troupe_trainer.learn.collector import Collector
from troupe_trainer.model.vision import vision_model

KIND = "qwen2_5_vl"

SEEN = random_image(Random(1), KIND, 2, 2)
SHOWN = random_image(Random(2), KIND, 2, 2)
"""An image that no trained group has: of an agent whose policy is frozen."""


@pytest.fixture(scope="module")
def vision(tmp_path_factory: pytest.TempPathFactory) -> VisionModel:
    sees = vision_model(str(save_vision_model(tmp_path_factory.mktemp("model"), KIND)))
    assert sees is not None
    return sees


def _collector(redis: Redis, vision: VisionModel, first_step: int = 0) -> Collector:
    return Collector(
        redis,
        JOB,
        {"shared": 1000},
        first_step=first_step,
        timeout_s=30.0,
        control=Control(),
        vision={"shared": vision},
    )


async def _played(redis: Redis, step: int = 0) -> StepLedger:
    """A round of one ticket, whose record shows an image of its group and one of no group."""
    [ticket] = await open_round(redis, step, 1)
    group = image_group(Random(step), KIND, [SEEN], step=step)
    parts = parts_to_proto((SEEN, SHOWN))
    shown = pb.Prompt(messages=[pb.PromptMessage(role="user", parts=parts)])
    episode = pb.Episode(
        episode_id=ticket.ticket_id,
        step=step,
        groups=[pb.Group(prompts=[shown])],
        images=image_table([SEEN, SHOWN]),
    )
    ledger = StepLedger(redis, JOB)
    assert await ledger.complete_ticket(ticket, "1-1", [group], episode)
    return ledger


async def _num_groups(redis: Redis) -> int:
    return await redis.xlen(keys.groups(JOB, "shared"))


async def test_record_when_its_groups_hold_images_then_redis_holds_each_once(
    redis: Redis, tmp_path: Path
) -> None:
    ledger = await _played(redis)

    [(_, fields)] = await redis.xrange(keys.episodes(JOB, train_round(0)))
    stored = pb.Episode.FromString(fields[b"p"])
    assert [image.digest for image in stored.images] == [SHOWN.digest]

    [episode] = await ledger.episodes(train_round(0))
    assert {image.digest for image in episode.images} == {SEEN.digest, SHOWN.digest}
    keep_images(tmp_path, [episode])
    assert image_file(tmp_path, SEEN.digest).is_file()


async def test_groups_with_images_when_covered_and_not_recorded_then_stay_until_recorded(
    redis: Redis, vision: VisionModel
) -> None:
    ledger = await _played(redis)
    collector = _collector(redis, vision)
    assert len((await collector.collect(0)).groups["shared"]) == 1

    await collector.ack_below(1)
    assert await _num_groups(redis) == 1
    [episode] = await ledger.episodes(train_round(0))
    assert SEEN.digest in {image.digest for image in episode.images}

    await ledger.mark_recorded(train_round(0))
    await collector.ack_below(1)
    assert await _num_groups(redis) == 0


async def test_groups_with_images_when_the_trainer_comes_back_then_they_stay_and_are_not_learned(
    redis: Redis, vision: VisionModel
) -> None:
    ledger = await _played(redis)
    first = _collector(redis, vision)
    await first.collect(0)
    await first.ack_below(1)

    restarted = _collector(redis, vision, first_step=1)
    await restarted.ack_below(1)
    await _played(redis, step=1)
    batch = await restarted.collect(1)
    assert [group.step for group in batch.groups["shared"]] == [1]
    assert not batch.dropped
    assert await _num_groups(redis) == 2

    await ledger.mark_recorded(train_round(0))
    await ledger.mark_recorded(train_round(1))
    await restarted.ack_below(2)
    assert await _num_groups(redis) == 0


async def test_record_when_its_group_is_gone_then_the_record_lacks_the_image_alone(
    redis: Redis,
) -> None:
    ledger = await _played(redis)
    await redis.delete(keys.groups(JOB, "shared"))
    [episode] = await ledger.episodes(train_round(0))
    assert [image.digest for image in episode.images] == [SHOWN.digest]


async def test_record_when_a_group_of_its_round_is_unreadable_then_has_the_images_of_the_others(
    redis: Redis,
) -> None:
    ledger = await _played(redis)
    stream, round_id = keys.groups(JOB, "shared"), train_round(0)
    [(entry_id, fields)] = await redis.xrange(stream)
    await redis.delete(stream)
    await redis.xadd(stream, {**fields, b"p": b"\xff"}, id="0-1")
    await redis.xadd(stream, fields, id=entry_id)
    [episode] = await ledger.episodes(round_id)
    assert {image.digest for image in episode.images} == {SEEN.digest, SHOWN.digest}


async def test_record_when_a_group_of_its_round_is_of_a_newer_version_then_says_so(
    redis: Redis,
) -> None:
    ledger = await _played(redis)
    stream = keys.groups(JOB, "shared")
    [(_, fields)] = await redis.xrange(stream)
    await redis.xadd(stream, {**fields, b"v": b"99"})
    with pytest.raises(NewerRecordError, match="99"):
        await ledger.episodes(train_round(0))


async def test_record_when_episodes_are_not_kept_then_their_images_are_not_read(
    redis: Redis,
) -> None:
    ledger = await _played(redis)
    [(_, fields)] = await redis.xrange(keys.groups(JOB, "shared"))
    await redis.xadd(keys.groups(JOB, "shared"), {**fields, b"v": b"99"})  # reading it fails
    [episode] = await ledger.episodes(train_round(0), kept=lambda _: [])
    assert not episode.images
