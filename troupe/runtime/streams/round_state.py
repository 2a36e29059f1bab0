"""The counters of one round, as the ledger keeps them. Changes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from troupe.api.records.v1.records_pb2 import RoundKind
from troupe.errors import JobFailedError

TAIL_CUT = "TAIL_CUT"
"""How the reason of a ticket begins that was dropped because its round was cut."""


@dataclass(frozen=True, slots=True)
class RoundState:
    """Counters of one round. ``num_groups`` is by policy; ``opened_at`` is in Unix seconds.

    ``last_failure`` is the latest error of playing a ticket, ``last_drop`` the latest reason for
    dropping one; both are empty until then. ``is_cut``: the tickets at work are to be dropped.
    ``completed_at``: when the last ticket ended, by Redis' clock; None before that, and where a
    player of an earlier version ended it.

    Example: ``RoundState("train-00003", ROUND_KIND_TRAIN, 3, 32, 30, 0, {"shared": 240}, ...)``.
    """

    round_id: str
    kind: RoundKind
    step: int
    num_tickets: int
    num_done: int
    num_dropped: int
    num_groups: Mapping[str, int]
    opened_at: float
    is_recorded: bool
    last_failure: str = ""
    last_drop: str = ""
    is_cut: bool = False
    completed_at: float | None = None

    @classmethod
    def from_fields(cls, round_id: str, fields: Mapping[str, str]) -> "RoundState":
        """The counters as the ledger's hash has them."""
        counted = {n.split(":", 1)[1]: int(v) for n, v in fields.items() if n.startswith("groups:")}
        return cls(
            round_id=round_id,
            kind=cast("RoundKind", int(fields["kind"])),
            step=int(fields["step"]),
            num_tickets=int(fields["num_tickets"]),
            num_done=int(fields["num_done"]),
            num_dropped=int(fields["num_dropped"]),
            num_groups=counted,
            opened_at=float(fields["opened_at"]),
            is_recorded="is_recorded" in fields,
            last_failure=fields.get("last_failure", ""),
            last_drop=fields.get("last_drop", ""),
            is_cut="is_cut" in fields,
            completed_at=float(fields["completed_at"]) if "completed_at" in fields else None,
        )

    @property
    def is_complete(self) -> bool:
        """Every ticket was played or dropped."""
        return self.num_done + self.num_dropped >= self.num_tickets

    def check_drops(self, allowed: float) -> None:
        """Raises JobFailedError if more than this fraction of the tickets was dropped."""
        if self.num_dropped > allowed * self.num_tickets:
            raise JobFailedError(
                f"{self.num_dropped} of {self.num_tickets} tickets of {self.round_id} were "
                f"dropped, more than limits.max_dropped_fraction = {allowed:g} allows; "
                f"the last one because of {self.last_drop or 'a reason in episodes.jsonl'}"
            )
