"""Which episodes of a job are recorded, and their lines in episodes.jsonl.

What a line holds is ``troupe.episodes.lines``'s; how the file is kept is ``record_file``'s.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import orjson

from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.busy import last_work
from troupe.episodes.lines import Line, viewer_line
from troupe.finite import finite_only
from troupe.spec.growth import recorded_share


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """How much of what is played in training is recorded; evaluation always is.

    ``fraction`` of the episodes, and of a round that samples more than ``tokens_per_s`` (0: no
    limit) as many as that rate allows, so that neither the file nor who writes it falls behind.
    """

    fraction: float
    tokens_per_s: float = 0.0

    def fraction_of(self, episodes: Sequence[pb.Episode], opened_at: float, *, now: float) -> float:
        """The share of a round that is recorded.

        The same whenever it is recorded: a router that comes after a crash must count the episodes
        that are in the file. ``now`` is for rounds of players that measure no work.
        """
        sampled = sum(episode.num_tokens for episode in episodes)
        wall_s = (last_work(episodes) or now) - opened_at
        return recorded_share(self.fraction, sampled, wall_s, self.tokens_per_s)


def is_kept(episode: pb.Episode, fraction: float) -> bool:
    """Whether a training episode is among the recorded ``fraction``; evaluation always is."""
    if episode.kind == pb.ROUND_KIND_EVAL or fraction >= 1.0:
        return True
    digest = hashlib.blake2b(episode.episode_id.encode(), digest_size=4).digest()
    return int.from_bytes(digest) / 2**32 < fraction


def episode_lines(episodes: Sequence[pb.Episode], *, with_tokens: bool = False) -> Iterator[bytes]:
    """The lines of these episodes.

    ``with_tokens`` keeps token ids and their log probabilities where the episodes have them.
    """
    for episode in episodes:
        yield _json(viewer_line(episode, with_tokens=with_tokens)) + b"\n"


def _json(line: Line) -> bytes:
    try:
        return orjson.dumps(line)
    except TypeError:  # an environment's notes may hold a number of more than 64 bits
        return json.dumps(finite_only(line), ensure_ascii=False, separators=(",", ":")).encode()
