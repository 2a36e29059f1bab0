"""The trainer's record of each group: the lines of groups.jsonl, written with its checkpoints.

Reads that file, or those of all per-policy trainers, and nothing else. Never computes an advantage.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from troupe.runtime.run_folder import groups_file
from troupe.spec import JobSpec
from troupe_router.run.record_lines import parse_line

Advantages = Mapping[str, Sequence[float] | None]
"""By group id, in the candidates' order; None where the file does not hold them."""


def trained_counts(run_dir: Path, spec: JobSpec, step: int) -> dict[str, int]:
    """Groups of ``step`` that a checkpoint covers, by policy."""
    files = [groups_file(run_dir, policy) for policy in spec.trainers()]
    lines = (line for file in files for line in _lines(file, step))
    return {line["policy"]: len(line["group_ids"]) for line in lines}


def trained_advantages(run_dir: Path, spec: JobSpec, step: int) -> Advantages | None:
    """The groups that ``step`` learnt from; None while not every trainer's checkpoint covers it."""
    advantages: dict[str, Sequence[float] | None] = {}
    for policy in spec.trainers():
        is_covered = False
        for line in _lines(groups_file(run_dir, policy), step):
            is_covered = True
            ids = line["group_ids"]
            advantages.update(zip(ids, line.get("advantages") or [None] * len(ids), strict=False))
        if not is_covered:
            return None
    return advantages


def _lines(path: Path, step: int) -> Iterator[dict[str, Any]]:
    """The whole lines of ``step``; the others are not parsed."""
    start = b'{"step": %d,' % step
    try:
        with path.open("rb") as file:
            for line in file:
                if not line.startswith(start):
                    continue
                document = parse_line(line) or {}
                policy, ids = document.get("policy"), document.get("group_ids")
                if isinstance(policy, str) and isinstance(ids, list):
                    yield document
    except OSError:
        return
