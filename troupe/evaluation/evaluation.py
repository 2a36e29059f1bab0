"""Runs one evaluation: from a plan and teams to a report and its folder.

Owns the order of work: judge, folder, each team in turn, report. Each team is closed before the
next is opened, so memory holds the models of one team.
"""

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from troupe.durable import replace_file
from troupe.episodes.build import load_parts
from troupe.episodes.lines import Line
from troupe.episodes.local import LocalEnv
from troupe.errors import InvalidArgumentError, TroupeError
from troupe.evaluation.fingerprints import code_digest, fingerprint
from troupe.evaluation.folder import EPISODES, EvaluationFolder
from troupe.evaluation.plan import EvalPlan, SampleKey
from troupe.evaluation.playable import check_playable
from troupe.evaluation.report import Report, report_json, report_markdown
from troupe.evaluation.runner import TeamRunner, measure_flawless
from troupe.evaluation.scores import Flawless, Score, read_score
from troupe.evaluation.serving import opened
from troupe.evaluation.summary import compare, summarize
from troupe.evaluation.teams import Team
from troupe.evaluation.transcripts import write_transcripts
from troupe.tasks.family import TaskFamily

Progress = Callable[[Team, int, int], None]
"""Receives the team, the number of its finished samples, and the number of all."""


@dataclass(frozen=True, slots=True)
class EvalSettings:
    """How an evaluation runs on this machine; ``engine`` and ``dtype`` change figures."""

    engine: str = "cpu"
    dtype: str = "float32"
    api_key: SecretStr = field(default_factory=lambda: SecretStr(""))
    num_transcripts: int = 50
    num_judges: int = field(default_factory=lambda: max(2, os.cpu_count() or 2))

    @property
    def computed_by(self) -> str:
        """Engine and number format; "" for the usual ones."""
        usual = (self.engine, self.dtype) == ("cpu", "float32")
        return "" if usual else f"{self.engine} {self.dtype}"


async def evaluate(
    plan: EvalPlan,
    family: TaskFamily,
    teams: Sequence[Team],
    folder: Path,
    settings: EvalSettings,
    progress: Progress,
) -> Report:
    """Play the samples of ``plan`` that ``folder`` lacks, then write and return the report.

    A team that fails after others were played whole leaves the report of those, which is also a
    note of the error.
    """
    check_playable(teams, family)
    with LocalEnv(family, num_threads=settings.num_judges) as env:
        code = {"task_code": code_digest(plan.task.name)}
        plan = _fitted(plan, env).model_copy(update=code)
        prints = {team.label: fingerprint(team, computed_by=settings.computed_by) for team in teams}
        with EvaluationFolder(folder, plan, prints) as journal:
            return await _Evaluation(plan, family, env, journal, settings, progress).run(teams)


class _Evaluation:
    def __init__(
        self,
        plan: EvalPlan,
        family: TaskFamily,
        env: LocalEnv,
        journal: EvaluationFolder,
        settings: EvalSettings,
        progress: Progress,
    ) -> None:
        self._plan = plan
        self._family = family
        self._env = env
        self._journal = journal
        self._settings = settings
        self._progress = progress
        self._parts = load_parts(plan.job_spec(), family)
        self._planned = frozenset(plan.samples())
        self._scores: dict[str, dict[SampleKey, Score]] = {}

    async def run(self, teams: Sequence[Team]) -> Report:
        """Play each team in turn, then report."""
        flawless = await measure_flawless(self._plan, self._parts, self._env)
        self._scores = {team.label: {} for team in teams}
        for number, line in enumerate(self._journal.lines(), 1):
            try:
                self._take(line, flawless)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise InvalidArgumentError(
                    f"line {number} of {self._journal.folder / EPISODES} is no sample of an "
                    f"evaluation ({error!r}); remove it, or give another folder with --out"
                ) from error
        for number, team in enumerate(teams):
            try:
                await self._play(team, flawless)
            except TroupeError as error:
                if played := teams[:number]:
                    error.add_note(report_markdown(await self._reported(played)))
                raise
        return await self._reported(teams)

    async def _reported(self, teams: Sequence[Team]) -> Report:
        """The report of ``teams``, written to the folder."""
        self._journal.sync()
        report = self._report(teams)
        await asyncio.to_thread(self._write, report)
        return report

    def _take(self, line: Line, flawless: Flawless) -> None:
        """Keep the score of a planned sample; its last attempt counts."""
        scores = self._scores.get(line["policy"])
        score = read_score(line, self._parts.mix, flawless)
        key = SampleKey(score.task_index, score.sample)
        if scores is not None and key in self._planned:
            scores[key] = score

    async def _play(self, team: Team, flawless: Flawless) -> None:
        scores = self._scores[team.label]
        done = {key for key, score in scores.items() if score.is_played}
        self._progress(team, len(done), len(self._planned))
        if len(done) == len(self._planned):
            return

        num_done = len(done)

        def note(line: Line) -> None:
            nonlocal num_done
            self._journal.append(line)
            self._take(line, flawless)
            num_done += 1
            self._progress(team, num_done, len(self._planned))

        settings = self._settings
        async with opened(
            team,
            self._family,
            engine=settings.engine,
            dtype=settings.dtype,
            api_key=settings.api_key,
            max_connections=self._plan.limits.episodes_in_flight,
        ) as seats:
            failed = scores.keys() - done
            runner = TeamRunner(self._plan, self._family, self._env, team, failed)
            await runner.play(seats, flawless, done, note, self._journal.keep_images)

    def _report(self, teams: Sequence[Team]) -> Report:
        scores = {label: list(by_sample.values()) for label, by_sample in self._scores.items()}
        summaries = [
            summarize(
                team.label,
                {agent: str(ref) for agent, ref in team.seats.items()},
                scores[team.label],
            )
            for team in teams
        ]
        first = teams[0].label
        comparisons = [
            compare((first, scores[first]), (t.label, scores[t.label])) for t in teams[1:]
        ]
        return Report(self._plan, summaries, [c for c in comparisons if c is not None])

    def _write(self, report: Report) -> None:
        folder = self._journal.folder
        document = json.dumps(report_json(report), indent=2, ensure_ascii=False)
        replace_file(folder / "report.json", document + "\n")
        replace_file(folder / "report.md", report_markdown(report))
        write_transcripts(folder, self._journal.lines, self._scores, self._settings.num_transcripts)


def _fitted(plan: EvalPlan, env: LocalEnv) -> EvalPlan:
    """``plan`` with no more tasks than its split has; raises InvalidArgumentError without any."""
    size = env.size(plan.split)
    if size is None or plan.first_task + plan.num_tasks <= size:
        return plan
    if plan.first_task >= size:
        raise InvalidArgumentError(
            f"split '{plan.split}' of task '{plan.task.name}' has {size} tasks, so none begins at "
            f"{plan.first_task}; give a smaller --first-task, or another --split"
        )
    return plan.model_copy(update={"num_tasks": size - plan.first_task})
