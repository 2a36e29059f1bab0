"""Deterministic ids: equal inputs give equal ids on every machine and after every restart.

Also recognises model ids of the Hugging Face hub in specs and command lines.
"""

import hashlib
import re
import struct
from collections.abc import Sequence
from typing import NewType

JobId = NewType("JobId", str)
RoundId = NewType("RoundId", str)
TicketId = NewType("TicketId", str)
GroupId = NewType("GroupId", str)
AgentName = NewType("AgentName", str)
PolicyName = NewType("PolicyName", str)

_HUB_NAME = r"[A-Za-z0-9](?:[\w.-]{0,94}\w)?"
_HUB_ID = re.compile(rf"(?!.*(?:--|\.\.))(?:{_HUB_NAME}/)?{_HUB_NAME}(?<!\.git)", re.ASCII)
"""As strict as the hub's client, whose every call raises a ValueError for another name."""


def train_round(step: int) -> RoundId:
    """Round that plays training step ``step`` (from 0), "train-00012"."""
    return RoundId(f"train-{step:05d}")


def step_of(round_id: str) -> int | None:
    """The step of a training round; None for any other id."""
    kind, _, step = round_id.partition("-")
    return int(step) if kind == "train" and step.isdecimal() else None


def counted(step: int) -> int:
    """Training step ``step`` as sentences for people count it: from 1, as "step 3/10" does.

    Records, rounds, JSON and the names of files count from 0.
    """
    return step + 1


def eval_round(step: int) -> RoundId:
    """Round that evaluates after ``step`` training steps, "eval-00012"."""
    return RoundId(f"eval-{step:05d}")


def ticket_id(job: str, round_id: str, position: int) -> TicketId:
    """Id of the ticket at ``position`` of a round."""
    return TicketId(f"{job}/{round_id}/{position:05d}")


def ticket_position(ticket: str) -> int:
    """The position in its round of the ticket with this id; 0 for a foreign id."""
    position = ticket.rpartition("/")[2]
    return int(position) if position.isdecimal() and position.isascii() else 0


def group_id(ticket: str, agent: str, turn: int) -> GroupId:
    """Id of the group of one (ticket, agent, turn); a ticket is one (job, step, task instance)."""
    return GroupId(f"{ticket}/{agent}/t{turn:02d}")


def prompt_digest(token_ids: Sequence[int], image_digests: Sequence[str] = ()) -> str:
    """Hex digest of a prompt: its token ids and the digests of its images, in order.

    BLAKE2b-128 over little-endian uint32; with images, personalised and their digests behind it.
    """
    data = struct.pack(f"<{len(token_ids)}I", *token_ids[:])  # a slice of a record's is copied in C
    if not image_digests:
        return hashlib.blake2b(data, digest_size=16).hexdigest()
    data += "".join(f"\0{digest}" for digest in image_digests).encode()
    return hashlib.blake2b(data, digest_size=16, person=b"troupe.images").hexdigest()


def is_hub_id(text: str) -> bool:
    """Whether ``text`` has the form of a hub model id, such as "Qwen/Qwen3-0.6B" or "gpt2"."""
    return _HUB_ID.fullmatch(text) is not None
