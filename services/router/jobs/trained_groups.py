"""What the trainer made of each group: the lines of groups.jsonl, written with its checkpoints.

Reads the file and nothing beside it. Never computes an advantage.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Advantages = Mapping[str, Sequence[float] | None]
"""By group id, in the candidates' order; None where the file does not say it."""


def trained_counts(run_dir: Path, step: int) -> dict[str, int]:
    """Groups of ``step`` that a checkpoint covers, by policy."""
    return {line["policy"]: len(line["group_ids"]) for line in _lines(run_dir, step)}


def trained_advantages(run_dir: Path, step: int) -> Advantages | None:
    """The groups that ``step`` learnt from; None while no checkpoint covers the step."""
    found: dict[str, Sequence[float] | None] = {}
    is_covered = False
    for line in _lines(run_dir, step):
        is_covered = True
        ids = line["group_ids"]
        found.update(zip(ids, line.get("advantages") or [None] * len(ids), strict=False))
    return found if is_covered else None


def _lines(run_dir: Path, step: int) -> Iterator[dict[str, Any]]:
    """The whole lines of ``step``; the others are not parsed."""
    start = b'{"step": %d,' % step
    try:
        with (run_dir / "groups.jsonl").open("rb") as file:
            for line in file:
                if line.startswith(start) and line.endswith(b"\n"):
                    yield json.loads(line)
    except OSError:
        return
