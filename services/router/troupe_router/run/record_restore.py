"""Brings a job's records back to what must be there when a router takes the job up.

Owns which parts a record must have, and what a lost line of metrics.jsonl is made anew from: the
events. What can't be made anew is noted as lost in the record's digests.
"""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from troupe.finite import finite_only
from troupe.ids import eval_round, train_round
from troupe.runtime.step_report.play import PlayPart
from troupe.runtime.streams.events import EventLog
from troupe.runtime.streams.ledger import RoundState, StepLedger
from troupe_router.jobs.record import JobRecord
from troupe_router.run.record_file import RecordFile
from troupe_router.run.record_lines import part_name
from troupe_router.run.round_metrics import eval_line

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class JobRecords:
    """The two records of a job, each a file of its run folder."""

    episodes: RecordFile
    metrics: RecordFile

    @classmethod
    def read(cls, run_dir: Path) -> "JobRecords":
        """The records of a job that nobody records right now, as their digests note them."""
        found = cls(RecordFile(run_dir / "episodes.jsonl"), RecordFile(run_dir / "metrics.jsonl"))
        found.episodes.look()
        found.metrics.look()
        return found

    @property
    def losses(self) -> list[dict[str, str]]:
        """What is missing of them: file, part and loss of each part that is not whole."""
        return [
            {"file": record.path.name, "part": part.name, "loss": part.loss}
            for record in (self.episodes, self.metrics)
            for part in record.parts.values()
            if part.loss
        ]


Write = Callable[[Path, Callable[[], Any]], Awaitable[Any]]
"""Apply a change to a file of the run folder; raises UnavailableError where the disk refuses."""


@dataclass(frozen=True, slots=True)
class RecordRestorer:
    """Brings the records of one job to what its ledger says.

    ``unwritten`` are the steps, by round, whose lines of metrics.jsonl are still to be written.
    """

    job: JobRecord
    ledger: StepLedger
    events: EventLog
    records: JobRecords
    write: Write
    unwritten: AbstractSet[str]

    async def restore(self, step: int, *, records_all: bool) -> list[str]:
        """Restore both files to a job at ``step``; which lines were made anew.

        ``records_all``: each round leaves episodes, so those of an older version are known too.
        """
        episodes, metrics = self.records.episodes, self.records.metrics
        states = await self._open_rounds(step)

        def is_kept(name: str) -> bool:
            """Not what will be played anew: rounds that the ledger does not know (any more)."""
            if name == eval_round(step):
                return name in states or name in metrics.parts
            return name in states or _is_before(name, step)

        def restore_both() -> bool:
            metrics.restore(partial(_is_before, step=step))
            return episodes.restore(
                is_kept,
                is_pending=lambda name: name in states and not states[name].is_recorded,
            )

        is_known = await self.write(self.job.run_dir, restore_both)
        rebuilt = await self._rebuild_metrics(step)
        lost = await self._missing(metrics, episodes, step)
        await self.write(metrics.path, lambda: metrics.mark_lost(lost))
        if is_known or records_all:
            lost_rounds = await self._missing(episodes, metrics, step)
            await self.write(episodes.path, lambda: episodes.mark_lost(lost_rounds))
        return rebuilt

    async def _open_rounds(self, step: int) -> dict[str, RoundState]:
        """The ledger's rounds from ``step`` on, and those before it: one may be unrecorded yet."""
        states: dict[str, RoundState] = {}
        for number in range(max(step - 1, 0), step + self.job.spec.max_staleness + 1):
            for round_id in (train_round(number), eval_round(number)):
                if state := await self.ledger.round(round_id):
                    states[round_id] = state
        return states

    async def _rebuild_metrics(self, step: int) -> list[str]:
        """Make lost lines of metrics.jsonl anew as far as the events tell them; their parts."""
        metrics = self.records.metrics
        names = set(await self._missing(metrics, self.records.episodes, step))
        names |= {part.name for part in metrics.parts.values() if part.loss}
        lines = await _lines_of_events(self.events, names) if names else {}
        if lines:
            await self.write(metrics.path, lambda: _put_back(metrics, lines))
        return sorted(lines)

    async def _missing(self, record: RecordFile, other: RecordFile, step: int) -> list[str]:
        """Parts that ``record`` had and has not: their rounds were recorded.

        An evaluation of an earlier life may not have been due; it is known by the ``other`` record.
        """
        pending = self.unwritten if record is self.records.metrics else frozenset[str]()
        names: list[str] = []
        for name in _due(self.job, step):
            if name in record.parts or name in pending:
                continue
            state = await self.ledger.round(name)
            if state.is_recorded if state else name.startswith("train") or name in other.parts:
                names.append(name)
        return names


def metrics_line(line: Mapping[str, Any]) -> bytes:
    """A line of metrics.jsonl as bytes; null stands for a number that is not finite."""
    return json.dumps(finite_only(line), separators=(",", ":")).encode() + b"\n"


def _is_before(name: str, step: int) -> bool:
    """Whether the part belongs to a job at ``step``."""
    return _step_of(name) <= (step if name.startswith("eval") else step - 1)


def _step_of(name: str) -> int:
    return int(name.partition("-")[2])


def _due(job: JobRecord, step: int) -> Iterator[str]:
    """Every part that a job at ``step`` may have recorded."""
    spec = job.spec
    evals = spec.eval_steps()
    yield from (eval_round(number) for number in evals if number <= step)
    yield from (train_round(number) for number in range(step))


async def _lines_of_events(events: EventLog, names: AbstractSet[str]) -> dict[str, dict[str, Any]]:
    """The lines of metrics.jsonl among ``names`` that the job's events still tell."""
    lines: dict[str, dict[str, Any]] = {}
    after = "0"
    while stored := await events.read(after, count=_PAGE):
        after = stored[-1].id
        for event in (each.event for each in stored):
            line = _line_of(event.type, json.loads(event.data_json))
            if line is not None and (name := part_name(line)) in names:
                lines[name] = line
    return lines


def _line_of(event: str, data: dict[str, Any]) -> dict[str, Any] | None:
    if event == "step.recorded":
        return data
    if event == "round.played" and data["kind"] == "eval":
        return eval_line(data["step"], PlayPart.from_wire(data | {"play_s": data["wall_s"]}))
    return None


def _put_back(metrics: RecordFile, lines: Mapping[str, Mapping[str, Any]]) -> None:
    """Write metrics.jsonl anew with these lines, each in its step's place."""
    texts = {part_name(line): text for text, line in metrics.lines()}
    texts |= {name: metrics_line(line) for name, line in lines.items()}
    losses = {n: part.loss for n, part in metrics.parts.items() if part.loss and n not in lines}
    order = sorted(texts, key=lambda name: (_step_of(name), name))
    metrics.rewrite({name: [texts[name]] for name in order}, losses)
