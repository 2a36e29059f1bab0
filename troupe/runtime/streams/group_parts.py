"""What of a round's episodes is in Redis once, in the groups that are trained: images and tokens.

Owns what an episode's entry leaves out because the entries of its groups hold it, and finding it
there again. Groups stay until their round is recorded (the trainer's collector).
"""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any

from google.protobuf.message import DecodeError
from redis.asyncio import Redis

from troupe.api.records.v1.records_pb2 import Candidate, Episode, Group, ImageData
from troupe.runtime.streams import keys
from troupe.runtime.streams.redis import redis_errors
from troupe.runtime.streams.stream import FIELD, ROUND_FIELD
from troupe.runtime.streams.versions import check_version
from troupe.runtime.transient import is_transient

_PAGE = 64

Wanted = Mapping[str, Sequence[Candidate]]
"""Candidates of records that lack their tokens, by group."""


def without_images_of(groups: Sequence[Group], episode: Episode) -> Episode:
    """``episode`` without the images that ``groups`` hold; itself when they hold none."""
    held = {image.digest for group in groups for image in group.images}
    if not held:
        return episode
    kept = Episode()
    kept.CopyFrom(episode)
    kept.ClearField("images")
    kept.images.extend(image for image in episode.images if image.digest not in held)
    return kept


def are_parts_missing(episodes: Iterable[Episode], *, with_tokens: bool) -> bool:
    """Whether ``episodes`` lack images that their messages name, or tokens that were sampled."""
    return any(_missing(e) or (with_tokens and _without_tokens([e])) for e in episodes)


async def put_parts_back(
    redis: Redis,
    job_id: str,
    round_id: str,
    policies: Iterable[str],
    episodes: Sequence[Episode],
    *,
    with_tokens: bool,
) -> None:
    """Give ``episodes`` what they lack and the groups of the round hold.

    What is nowhere any more is left out: the record names it, or says how many there were.
    """
    missing = [_missing(episode) for episode in episodes]
    wanted = set[str]().union(*missing)
    tokens = _without_tokens(episodes) if with_tokens else {}
    images: dict[str, ImageData] = {}
    for policy in policies:
        if tokens or wanted - set(images):
            async for group in _groups(redis, keys.groups(job_id, policy), round_id):
                images.update((i.digest, i) for i in group.images if i.digest in wanted)
                _give_tokens(group, tokens)
    for episode, digests in zip(episodes, missing, strict=True):
        episode.images.extend(images[digest] for digest in sorted(digests & set(images)))


def _missing(episode: Episode) -> set[str]:
    named = {
        part.image_digest
        for group in episode.groups
        for prompt in group.prompts
        for message in prompt.messages
        for part in message.parts
        if part.image_digest
    }
    return named - {image.digest for image in episode.images}


def _without_tokens(episodes: Iterable[Episode]) -> Wanted:
    groups = (group for episode in episodes for group in episode.groups)
    return {g.group_id: g.candidates for g in groups if any(map(_lacks_tokens, g.candidates))}


def _lacks_tokens(candidate: Candidate) -> bool:
    return candidate.num_tokens > 0 and not candidate.token_ids


def _give_tokens(group: Group, wanted: Wanted) -> None:
    held = {candidate.index: candidate for candidate in group.candidates}
    for candidate in wanted.get(group.group_id, ()):
        source = held.get(candidate.index)
        if source is not None and len(source.token_ids) == candidate.num_tokens:
            candidate.token_ids.MergeFrom(source.token_ids)
            candidate.rollout_logprobs.MergeFrom(source.rollout_logprobs)


async def _groups(redis: Redis, key: str, round_id: str) -> AsyncGenerator[Group]:
    """A stream's groups of the round."""
    after = "-"
    is_more = True
    while is_more:
        with redis_errors(f"groups of round {round_id} in {key}"):
            page: Any = await redis.xrange(key, min=after, count=_PAGE)
        for entry_id, fields in page:
            after = f"({entry_id.decode()}"
            if fields.get(ROUND_FIELD) == round_id.encode():
                check_version(fields, f"entry {entry_id.decode()} of {key}")
                try:
                    group = Group.FromString(fields[FIELD])
                except DecodeError as error:
                    if is_transient(error):
                        raise
                    continue  # the trainer counts it as unreadable
                yield group
        is_more = len(page) == _PAGE
