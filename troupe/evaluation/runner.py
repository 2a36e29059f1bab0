"""Plays the missing samples of one team, many episodes at once, and records each sample.

Owns attempts. An infrastructure failure is retried, then recorded as an error and never scored; a
resumed evaluation retries errors. Never estimates.
"""

import asyncio
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.build import JobParts, load_parts
from troupe.episodes.lines import Line, episode_line
from troupe.episodes.local import LocalEnv, ScriptedRollout
from troupe.episodes.player import Played
from troupe.episodes.ports import RolloutPort
from troupe.errors import JobFailedError, TroupeError
from troupe.evaluation.plan import EvalPlan, SampleKey
from troupe.evaluation.players import TeamPlayer
from troupe.evaluation.refs import ScriptedRef
from troupe.evaluation.scores import Flawless, best_terms, failure_of
from troupe.evaluation.teams import Team
from troupe.retry import Backoff
from troupe.tasks.family import TaskFamily
from troupe.tasks.optional import optional_method

_BACKOFF = Backoff(0.2, 5.0)
_HOPELESS = 8
"""After so many new samples that failed and none played, the policy can't be evaluated."""

Note = Callable[[Line], None]
"""Receives the line of each sample as it ends."""


class TeamRunner:
    """Plays the samples of one team of one plan; those in ``failed`` were errors before."""

    def __init__(
        self,
        plan: EvalPlan,
        family: TaskFamily,
        env: LocalEnv,
        team: Team,
        failed: Collection[SampleKey] = (),
    ) -> None:
        self._plan = plan
        self._family = family
        self._env = env
        self._team = team
        self._failed = failed
        models = {agent: str(ref) for agent, ref in team.seats.items()}
        self._parts = load_parts(plan.job_spec(models), family)
        self._num_played = 0
        self._num_failed = 0

    async def play(
        self,
        seats: Mapping[str, RolloutPort],
        flawless: Flawless,
        done: Collection[SampleKey],
        note: Note,
        keep: Callable[[pb.Episode], None],
    ) -> None:
        """Play every sample of the plan that is not in ``done``; ``keep`` takes what was played.

        Raises:
            JobFailedError: the first samples that are new all failed, so continuing is pointless.
        """
        keys = (key for key in self._plan.samples() if key not in done)

        async def work() -> None:
            for key in keys:
                note(await self._sample(key, seats, flawless, keep))

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._num_at_once()):
                    tasks.create_task(work())
        except ExceptionGroup as failures:
            raise _first(failures) from failures

    def _num_at_once(self) -> int:
        """1 where nothing is awaited: concurrent episodes would only delay each other."""
        is_waiting = self._env.is_threaded or any(
            not isinstance(ref, ScriptedRef) for ref in self._team.seats.values()
        )
        return self._plan.limits.episodes_in_flight if is_waiting else 1

    async def _sample(
        self,
        key: SampleKey,
        seats: Mapping[str, RolloutPort],
        flawless: Flawless,
        keep: Callable[[pb.Episode], None],
    ) -> Line:
        identity: Line = {
            "policy": self._team.label,
            "task_index": key.task_index,
            "sample": key.sample,
        }
        errors: list[str] = []
        for pause_s in _pauses(self._plan.limits.max_attempts):
            team = TeamPlayer(seats)
            try:
                played = await self._parts.player(team, self._env).play(self._plan.ticket(key))
            except TroupeError as error:
                errors.append(f"{error.reason}: {error.message}")
                if not error.retryable:
                    break
                await asyncio.sleep(pause_s)
            except Exception as error:
                errors.append(_crash(error))
                break
            else:
                self._num_played += 1
                keep(played.episode)
                return _played_line(identity, played, team, errors, flawless)
        self._num_failed += key not in self._failed  # a sample that failed before says nothing new
        if not self._num_played and self._num_failed >= _HOPELESS:
            raise JobFailedError(
                f"none of the first {self._num_failed} samples of policy '{self._team.label}' "
                f"could be played now; the last one failed with {errors[-1]}"
            )
        return {**identity, "failure": "error", "attempts": len(errors), "errors": errors}


async def measure_flawless(plan: EvalPlan, parts: JobParts, env: LocalEnv) -> Flawless:
    """The family's rewards for well-formed and legal actions: those of a demonstration.

    Empty for a family without demonstrations, so no fault of form is detected.
    """
    if optional_method(parts.family, "demonstrate") is None:
        return {}
    seats = dict.fromkeys(plan.workflow.order, ScriptedRollout(parts.family))
    player = parts.player(TeamPlayer(seats), env)
    played = await player.play(plan.ticket(SampleKey(plan.first_task, 0)))
    return best_terms(episode_line(played.episode))


def _played_line(
    identity: Line, played: Played, team: TeamPlayer, errors: list[str], flawless: Flawless
) -> Line:
    line = episode_line(played.episode)
    groups = line.pop("groups")
    return {
        **identity,
        **line,
        "num_tokens": team.num_sampled_tokens,
        "num_prompt_tokens": team.num_prompt_tokens,
        "attempts": len(errors) + 1,
        "errors": errors,
        "failure": failure_of({**line, "groups": groups}, flawless),
        "groups": groups,
    }


def _crash(error: Exception) -> str:
    """Describes an exception of the task's code, with its origin."""
    [*_, last] = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"


def _pauses(max_attempts: int) -> Iterator[float]:
    """Seconds to wait after each failed attempt."""
    for attempt in range(max_attempts):
        is_last = attempt == max_attempts - 1
        yield 0.0 if is_last else _BACKOFF.pause_s(attempt + 1)


def _first(failures: ExceptionGroup[Exception]) -> Exception:
    inner = failures.exceptions[0]
    return _first(inner) if isinstance(inner, ExceptionGroup) else inner
