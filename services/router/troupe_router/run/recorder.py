"""Records a job in its run folder, each episode and each step exactly once.

Owns episodes.jsonl, the images that it names, and metrics.jsonl. What must outlive the process
between two writes is noted in the job's record; the files hold the rest. Nothing is forgotten
before what is made of it is on the disk: a round's episodes leave the ledger after the file is
synced, a step's notes after its line is.
"""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from troupe.aio import to_the_end
from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.images import keep_images
from troupe.errors import UnavailableError
from troupe.ids import eval_round, train_round
from troupe.runtime.faults import reached
from troupe.runtime.step_report.play import PlayPart
from troupe.runtime.streams.events import EventLog
from troupe.runtime.streams.ledger import RoundState, StepLedger
from troupe.runtime.streams.retry import until_redis_answers
from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.telemetry.tracing import root_span
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.store import JobStore
from troupe_router.run import job_metrics
from troupe_router.run.answers import shown_episodes
from troupe_router.run.episode_index import EpisodeIndex
from troupe_router.run.episodes_file import RecordLimits, episode_lines, is_kept
from troupe_router.run.failing_programs import failing_programs
from troupe_router.run.learned_steps import ReportsByLife
from troupe_router.run.monitor import suspicion
from troupe_router.run.record_file import RecordFile
from troupe_router.run.record_lines import part_name
from troupe_router.run.record_restore import JobRecords, RecordRestorer, metrics_line
from troupe_router.run.round_metrics import eval_line, play_metrics, train_line

_log = get_logger(__name__)
_T = TypeVar("_T")
_REDIS_AWAY_S = 60.0
"""How long a read of the events waits for Redis; then another controller takes over."""
_LEARNED_WAIT_S = 30.0
"""So long a trainer's report of a step is awaited once it has reported a later one."""
_PAGE = 200
_INDEX_S = 2.0
"""Time to index a round's episodes; the rest is indexed with the next round or page."""


class Recorder:
    """The run folder of one job. ``run`` must be alive for step lines to be written.

    Files cannot refuse a superseded conductor, so each write asks the ledger.
    """

    def __init__(
        self,
        job: JobRecord,
        ledger: StepLedger,
        store: JobStore,
        events: EventLog,
        *,
        fraction: float,
        tokens_per_s: float = 0.0,
        with_tokens: bool = False,
    ) -> None:
        self._job = job
        self._ledger = ledger
        self._store = store
        self._events = events
        self._limits = RecordLimits(fraction, tokens_per_s)
        self._with_tokens = with_tokens
        self._notes: dict[str, Any] = {}
        self._reports = ReportsByLife(job)
        self._ended: dict[int, float] = {}
        self._awaited: dict[int, float] = {}
        """By open step: since when its line waits for reports here, on the monotonic clock."""
        self._breaks: list[tuple[float, float]] = []
        self._lines: dict[tuple[str, int], dict[str, Any]] = {}
        self._cursor = "0"
        self._has_caught_up = False
        self._settling = asyncio.Lock()
        self._records = JobRecords(
            RecordFile(job.run_dir / "episodes.jsonl"), RecordFile(job.run_dir / "metrics.jsonl")
        )

    @property
    def losses(self) -> list[dict[str, str]]:
        """What the job's records lack: file, part and loss."""
        return self._records.losses

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        return list(self._lines.values())

    async def rewind(self, step: int) -> None:
        """Bring the files to a job at ``step``: later lines belong to another life.

        What they lack is made anew (event `records.rebuilt`) or reported (`records.lost`).
        """
        self._notes = await self._store.notes(self._job.job_id)
        self._breaks.append((time.time(), time.time()))
        await self._ledger.check()
        unwritten = {train_round(n) for n in range(step) if f"play:{n}" in self._notes}
        restorer = RecordRestorer(
            self._job, self._ledger, self._events, self._records, self._write, unwritten
        )
        rebuilt = await restorer.restore(step, records_all=self._limits.fraction >= 1.0)
        self._lines = {(x["kind"], x["step"]): x for _, x in self._records.metrics.lines()}
        if rebuilt:
            sentence = f"Lines of metrics.jsonl were lost and made anew: {', '.join(rebuilt)}."
            data = {"parts": rebuilt, "sentence": sentence}
            await self._emit("records.rebuilt", ",".join(rebuilt), data)
        for loss in self._records.losses:
            _log.warning("records.lost", job_id=self._job.job_id, **loss)
            sentence = f"{loss['file']} lacks a part of {loss['part']}: {loss['loss']}."
            data = {**loss, "sentence": sentence}
            await self._emit("records.lost", f"{loss['file']}:{loss['part']}", data)
        while not self._has_caught_up:  # the reports that came while nobody listened
            await self._listen(block_s=0.0)
        await self._events.readmit(self._reports.earlier_ids(step))
        await self._end_left_open(step)

    async def run(self) -> None:
        """Follow the trainers' reports and write step lines, until cancelled."""
        while True:
            await self._listen(block_s=1.0)
            await self._settle()

    async def has_eval(self, step: int) -> bool:
        """Whether the evaluation after ``step`` steps is recorded."""
        return eval_round(step) in self._records.metrics.parts

    async def next_opened(self, state: RoundState) -> None:
        """Note that the round after a step has opened, which ends the step."""
        await self._end_step(state.step - 1, state.opened_at)

    async def learned(self, step: int, *, is_end: bool = False) -> None:
        """Note that the version after ``step`` is committed; the step ends unless a round opens.

        ``is_end``: it ends now in any case, as where rounds are played ahead.
        """
        self._ended.setdefault(step, time.time())
        if is_end:
            await self._end_step(step, self._ended[step])

    async def record(self, state: RoundState) -> list[pb.Episode]:
        """Record a complete round; its episodes. Repeating it after a crash changes nothing."""
        now = time.time()
        wall_s = now - state.opened_at
        of_round = await self._ledger.episodes(
            state.round_id,
            kept=partial(self._kept, opened_at=state.opened_at, now=now),
            with_tokens=self._with_tokens,
        )
        episodes = sorted(of_round, key=lambda episode: episode.episode_id)
        kept = self._kept(episodes, state.opened_at, now)
        await self._append_episodes(state.round_id, kept)
        reached("router.round_recording", state.round_id)
        play = await asyncio.to_thread(play_metrics, episodes, wall_s)
        kind = "eval" if state.kind == pb.ROUND_KIND_EVAL else "train"
        play = await self._watched(kind, state, play, kept or episodes)
        await self._watch_programs(kind, state, episodes)
        await self._emit(
            "round.played",
            state.round_id,
            {
                "round_id": state.round_id,
                "kind": kind,
                "step": state.step,
                "wall_s": play.play_s,
                "num_recorded": len(kept),
                **{k: v for k, v in play.to_wire().items() if k != "play_s"},
            },
        )
        if kind == "eval":
            root_span(self._job.job_id, state.round_id, state.opened_at, time.time())
            line = eval_line(state.step, play)
            await self._append_line(line)
            reached("router.evaluation_in_file", state.round_id)
            data = {k: line[k] for k in ("step", "success", "num_tasks", "wall_s")}
            await self._emit("eval.done", str(state.step), data)
        else:
            await self._note(f"play:{state.step}", {**play.to_wire(), "opened_at": state.opened_at})
        return episodes

    async def _watched(
        self, kind: str, state: RoundState, play: PlayPart, shown: Sequence[pb.Episode]
    ) -> PlayPart:
        """``play``, marked if the reward is suspect with it; the first such round says so.

        ``shown``: the episodes that may be named.
        """
        train, evals = self._lines_of("train"), self._lines_of("eval")
        if kind == "eval":
            evals[state.step] = eval_line(state.step, play)
            newest = {step: line for step, line in train.items() if step < state.step}
            was_suspect = any(line.get("is_suspect") for line in evals.values())
        else:
            newest = {**train, state.step: play.to_line()}
            recent = range(state.step - self._job.spec.monitor.window, state.step)
            was_suspect = any(train.get(step, {}).get("is_suspect") for step in recent)
        suspect = suspicion(newest, evals, self._job.spec.monitor)
        # A step's own suspicion is not an evaluation's: it was said when the step was played.
        if suspect is None or (kind == "eval" and not suspect.is_held_out):
            return replace(play, is_suspect=False)
        if not was_suspect:
            named = shown_episodes(shown, suspect.falls[0].agent)
            data = {**suspect.to_json(), "kind": kind, "episodes": named}
            _log.warning("reward.suspect", job_id=self._job.job_id, sentence=suspect.sentence)
            await self._emit("reward.suspect", state.round_id, data)
        return replace(play, is_suspect=True)

    async def _watch_programs(
        self, kind: str, state: RoundState, episodes: Sequence[pb.Episode]
    ) -> None:
        """Say that too many agent programs fail, in the first of the rounds in which they do."""
        monitor = self._job.spec.monitor
        failing = failing_programs(episodes, monitor.failed_programs)
        if failing is None or not monitor.is_on:
            return
        before = {step: line for step, line in self._lines_of(kind).items() if step < state.step}
        newest = before[max(before)] if before else {}
        if (newest.get("program_failed") or 0.0) <= monitor.failed_programs:
            data = {"kind": kind, "step": state.step, **failing.to_json()}
            _log.warning("program.failing", job_id=self._job.job_id, sentence=data["sentence"])
            await self._emit("program.failing", state.round_id, data)

    def _lines_of(self, kind: str) -> dict[int, dict[str, Any]]:
        """The recorded lines of a kind by step, and what was played and has no line yet."""
        lines = {step: line for (of_kind, step), line in self._lines.items() if of_kind == kind}
        if kind == "train":
            notes = {n.partition(":")[2]: note for n, note in self._notes.items() if "play:" in n}
            lines = {**{int(step): note for step, note in notes.items()}, **lines}
        return lines

    async def catch_up(self, step: int) -> None:
        """Record the training round of ``step`` if it is complete and nobody recorded it.

        A trainer learns from a complete round even without a router, so a job may be past it.
        """
        await self._listen(block_s=0.0)  # a refused push ends the job before ``run`` looks again
        state = await self._ledger.round(train_round(step)) if step >= 0 else None
        if state is not None and state.is_complete and not state.is_recorded:
            await self.record(state)
            await self._ledger.mark_recorded(state.round_id)

    async def finish(self) -> None:
        """Write the lines of all steps that ended, waiting a while for the trainers' reports."""
        for step, ended_at in list(self._ended.items()):
            await self._end_step(step, ended_at)
        deadline = time.monotonic() + 5.0
        while self._open_steps() and time.monotonic() < deadline:
            await self._listen(block_s=0.5)
            await self._settle()
        await self._settle(is_last=True)

    def _kept(
        self, episodes: Sequence[pb.Episode], opened_at: float, now: float
    ) -> list[pb.Episode]:
        """Those of a round that are recorded."""
        fraction = self._limits.fraction_of(episodes, opened_at, now=now)
        return [episode for episode in episodes if is_kept(episode, fraction)]

    async def _append_episodes(self, round_id: str, kept: list[pb.Episode]) -> None:
        record = self._records.episodes

        def write() -> None:
            keep_images(self._job.run_dir, kept)
            record.append(round_id, episode_lines(kept, with_tokens=self._with_tokens))

        await self._ledger.check()
        await self._write(record.path, write)
        await asyncio.to_thread(EpisodeIndex(self._job.run_dir).catch_up, budget_s=_INDEX_S)

    async def _end_step(self, step: int, ended_at: float) -> None:
        if f"play:{step}" in self._notes and f"ended:{step}" not in self._notes:
            await self._note(f"ended:{step}", ended_at)
            await self._settle()

    async def _end_left_open(self, step: int) -> None:
        """End the steps before the last one that a predecessor left open.

        The next step may be played and learnt before anybody conducts the job again.
        """
        played = [int(name.partition(":")[2]) for name in self._notes if name.startswith("play:")]
        for earlier in sorted(number for number in played if number < step - 1):
            following = await self._ledger.round(train_round(earlier + 1))
            await self._end_step(earlier, following.opened_at if following else time.time())

    async def _listen(self, *, block_s: float) -> None:
        before = self._cursor
        read = partial(self._events.read, before, count=_PAGE, block_s=block_s)
        page = await until_redis_answers(read, "events", within_s=_REDIS_AWAY_S)
        if self._cursor != before:
            return  # another task has taken these in
        is_new, self._has_caught_up = self._has_caught_up, self._has_caught_up or len(page) < _PAGE
        for stored in page:
            self._cursor = stored.id
            data = json.loads(stored.event.data_json)
            # What an earlier life of the job reported was counted then; no alert comes again.
            if is_new or stored.event.occurred_at >= self._job.started_at:
                job_metrics.count_event(self._job.job_id, stored, data)
            self._reports.add(stored.event, data)
            if stored.event.type in ("component.restarted", "replica.left"):
                at = stored.event.occurred_at
                self._breaks.append((float(data.get("seen_at") or at), at))

    def _open_steps(self) -> list[int]:
        """Steps that ended and have no line, in order."""
        names = [name for name in self._notes if name.startswith("ended:")]
        return sorted(int(name.partition(":")[2]) for name in names)

    async def _settle(self, *, is_last: bool = False) -> None:
        """Write the lines of the steps whose data is complete, in order."""
        async with self._settling:
            for step in self._open_steps():
                ended_at = float(self._notes[f"ended:{step}"])
                since = self._awaited.setdefault(step, time.monotonic())
                note = self._notes[f"play:{step}"]
                opened_at = float(note["opened_at"])
                reports = self._reports.of_round(opened_at)
                away_s = self._job.spec.limits.step_timeout_s  # its trainer may be started again
                wait_s = _LEARNED_WAIT_S if reports.is_passed(step) else away_s
                is_late = is_last or time.monotonic() - since > wait_s
                if not reports.is_reported(step) and not is_late:
                    return
                wall_s = ended_at - opened_at
                if ("train", step) not in self._lines:
                    is_broken = any(a <= ended_at and b >= opened_at for a, b in self._breaks)
                    play, learned = PlayPart.from_wire(note), reports.of(step)
                    line = train_line(
                        step,
                        play,
                        learned,
                        wall_s,
                        interrupted=is_broken,
                        eval_s=self._eval_s_in_tail(step),
                    )
                    await self._append_line(line)
                    root_span(self._job.job_id, train_round(step), opened_at, ended_at)
                await self._emit("step.recorded", str(step), self._lines["train", step])
                names = (f"play:{step}", f"ended:{step}")
                for name in names:
                    self._notes.pop(name, None)
                await self._store.forget_notes(self._job.job_id, *names)
                self._reports.forget(step)
                self._awaited.pop(step, None)

    def _eval_s_in_tail(self, step: int) -> float | None:
        """How long the evaluation was played that began in the tail of ``step``; None without."""
        line = self._lines.get(("eval", step))
        return None if line is None or self._job.spec.max_staleness else line["wall_s"]

    async def _append_line(self, line: dict[str, Any]) -> None:
        key = (str(line["kind"]), int(line["step"]))
        if key not in self._lines:
            await self._ledger.check()
            record = self._records.metrics
            text = metrics_line(line)
            await self._write(record.path, lambda: record.append(part_name(line), [text]))
            job_metrics.observe_line(self._job.job_id, line)
            self._lines[key] = line

    async def _write(self, path: Path, change: Callable[[], _T]) -> _T:
        """Apply ``change`` to a file of the run folder, on a thread; it may be applied again.

        Raises:
            UnavailableError: the disk is full or failing, which passes; the job's next controller
                makes the change.
        """

        def work() -> _T:
            reached("router.disk", path.name)
            return change()

        try:
            return await to_the_end(work)
        except OSError as error:
            message = (
                f"{path} can't be written ({error.strerror or error}); the job goes on when it "
                "can: free space there"
            )
            data = {"path": str(path), "error": message}
            await self._emit("recording.failed", f"{path.name}:{error.errno}", data)
            raise UnavailableError(message) from error

    async def _note(self, name: str, value: Any) -> None:
        self._notes[name] = value
        await self._store.note(self._job.job_id, name, value)

    async def _emit(self, type: str, what: str, data: dict[str, Any]) -> None:
        event_id = f"{self._job.life}:{type}:{what}"
        await self._events.emit(type, data, event_id=event_id)
