"""The prompt prefixes that each replica was sent: the router's estimate of their caches.

Owns a bounded memory and no decision. An engine may have evicted what is recorded here. An
engine's cache is keyed by version, so the memory is too.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from troupe.tasks.family import Observation

BLOCK_CHARS = 64
"""Prefixes are compared in steps of this many characters, about 16 tokens."""
MAX_BLOCKS = 512
"""Blocks of a prompt beyond this number are ignored."""
_MAX_OWNERS = 256
"""Replicas that are remembered for one prefix; each life of a replica counts as another."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """A prompt as the router compares it.

    ``blocks`` are digests of its growing prefixes, the last one of the whole prompt; ``affinity``
    names the prompt for rendezvous hashing, equal in every process.
    """

    affinity: str
    blocks: tuple[int, ...]


def prefix_of(observation: Observation) -> Prefix:
    """The prefixes of a chat prompt. Messages that are appended later keep the earlier ones."""
    text = "".join(f"\x1e{m.role}\x1f{m.described}" for m in observation)
    affinity = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    blocks: list[int] = []
    digest = 0
    for begin in range(0, min(len(text), BLOCK_CHARS * MAX_BLOCKS), BLOCK_CHARS):
        digest = hash((digest, text[begin : begin + BLOCK_CHARS]))
        blocks.append(digest)
    return Prefix(affinity, tuple(blocks))


class PrefixTable:
    """Which replica was sent which prefix, under which version; the least recent is forgotten."""

    def __init__(self, *, max_blocks: int = 1 << 16) -> None:
        self._max_blocks = max_blocks
        self._owners: OrderedDict[int, tuple[int, ...]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._owners)

    def matched(self, policy: str, policy_version: int, blocks: Sequence[int]) -> dict[int, float]:
        """Share of the prompt that each replica (by number) was sent before, 0 to 1."""
        shares: dict[int, float] = {}
        for position, block in enumerate(blocks, start=1):
            owners = self._owners.get(hash((policy, policy_version, block)))
            if owners is None:
                break
            share = position / len(blocks)
            for owner in owners:
                shares[owner] = share
        return shares

    def record(self, policy: str, policy_version: int, blocks: Sequence[int], owner: int) -> None:
        """Note that a prompt is sent to ``owner``, a replica's number."""
        for block in reversed(blocks):  # what many prompts begin with is the most recent
            key = hash((policy, policy_version, block))
            owners = self._owners.pop(key, ())
            self._owners[key] = owners if owner in owners else (*owners[-_MAX_OWNERS + 1 :], owner)
        while len(self._owners) > self._max_blocks:
            self._owners.popitem(last=False)
