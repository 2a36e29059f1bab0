"""Which episodes of a job are recorded, and their lines in episodes.jsonl.

What a line holds is ``troupe.episodes.lines``'s; how the file is kept is ``record_file``'s.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence

from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.lines import viewer_line


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
        line = viewer_line(episode, with_tokens=with_tokens)
        yield json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
