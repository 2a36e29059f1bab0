"""Plays what an evaluation lacks of one team, many episodes at once, and notes each sample.

Owns attempts. A machine's failure is tried again, then noted as an error and never scored; an
evaluation that starts again tries errors again. Never estimates.
"""

import asyncio
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from troupe.episodes.player import EpisodePlayer, Played
from troupe.errors import JobFailedError, TroupeError
from troupe.evaluation.environment import JudgingEnv, WatchedEnv
from troupe.evaluation.lines import Line, episode_line
from troupe.evaluation.plan import EvalPlan, SampleKey
from troupe.evaluation.players import ScriptedPlayer, TeamPlayer
from troupe.evaluation.refs import ScriptedRef
from troupe.evaluation.scores import Flawless, best_terms, failure_of
from troupe.evaluation.serving import SeatMaker
from troupe.evaluation.teams import Team
from troupe.retry import Backoff
from troupe.rewards.mix import RewardMix
from troupe.samplers.parallel import ParallelSampler
from troupe.spec.job import JobSpec, RewardSpec
from troupe.tasks.family import TaskFamily
from troupe.tasks.optional import optional_method
from troupe.workflows.load import load_workflow
from troupe.workflows.workflow import Workflow

_BACKOFF = Backoff(0.2, 5.0)
_HOPELESS = 8
"""So many samples that failed, and none that was played: the policy can't be evaluated."""

Note = Callable[[Line], None]
"""Takes the line of each sample as it ends."""


@dataclass(frozen=True, slots=True)
class PlayerParts:
    """What all episodes of a plan share: the player of a job's own evaluation but for its ports."""

    workflow: Workflow
    mix: RewardMix

    @classmethod
    def load(cls, plan: EvalPlan, family: TaskFamily) -> Self:
        """Raises InvalidArgumentError when the plan's workflow does not exist."""
        return cls(load_workflow(plan.workflow), RewardMix(RewardSpec(), family.local_terms))

    def player(self, spec: JobSpec, team: TeamPlayer, env: WatchedEnv) -> EpisodePlayer:
        """The player of one episode."""
        return EpisodePlayer(
            spec,
            workflow=self.workflow,
            sampler=ParallelSampler(1),
            mix=self.mix,
            rollout=team,
            env=env,
        )


class TeamRunner:
    """Plays the samples of one team of one plan."""

    def __init__(self, plan: EvalPlan, family: TaskFamily, env: JudgingEnv, team: Team) -> None:
        self._plan = plan
        self._family = family
        self._env = env
        self._team = team
        self._parts = PlayerParts.load(plan, family)
        self._spec = plan.job_spec({agent: str(ref) for agent, ref in team.seats.items()})
        self._num_played = 0
        self._num_failed = 0

    async def play(
        self,
        seats: Mapping[str, SeatMaker],
        flawless: Flawless,
        done: Collection[SampleKey],
        note: Note,
    ) -> None:
        """Play every sample of the plan but the ``done``.

        Raises:
            JobFailedError: the first samples all failed, so that going on makes no sense.
        """
        keys = (key for key in self._plan.samples() if key not in done)

        async def work() -> None:
            for key in keys:
                note(await self._sample(key, seats, flawless))

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._num_at_once()):
                    tasks.create_task(work())
        except ExceptionGroup as failures:
            raise _first(failures) from failures

    def _num_at_once(self) -> int:
        """One, where nothing is waited for: many would only wait for each other."""
        is_waiting = self._env.is_threaded or any(
            not isinstance(ref, ScriptedRef) for ref in self._team.seats.values()
        )
        return self._plan.limits.episodes_in_flight if is_waiting else 1

    async def _sample(
        self, key: SampleKey, seats: Mapping[str, SeatMaker], flawless: Flawless
    ) -> Line:
        identity: Line = {
            "policy": self._team.label,
            "task_index": key.task_index,
            "sample": key.sample,
        }
        errors: list[str] = []
        for pause_s in _pauses(self._plan.limits.max_attempts):
            env = WatchedEnv(self._env)
            team = TeamPlayer({agent: make(env) for agent, make in seats.items()})
            try:
                player = self._parts.player(self._spec, team, env)
                played = await player.play(self._plan.ticket(key))
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
                return _played_line(identity, played, team, errors, flawless)
        self._num_failed += 1
        if not self._num_played and self._num_failed >= _HOPELESS:
            raise JobFailedError(
                f"none of the first {self._num_failed} samples of policy '{self._team.label}' "
                f"could be played; the last one failed with {errors[-1]}"
            )
        return {**identity, "failure": "error", "attempts": len(errors), "errors": errors}


async def measure_flawless(plan: EvalPlan, family: TaskFamily, env: JudgingEnv) -> Flawless:
    """What the family pays for well-formed and legal actions: those of a demonstration.

    A family that demonstrates nothing leaves it open, so that no fault of form is seen.
    """
    if optional_method(family, "demonstrate") is None:
        return {}
    spec = plan.job_spec(dict.fromkeys(plan.workflow.order, "scripted"))
    watched = WatchedEnv(env)
    seats = {a: ScriptedPlayer(family, "scripted", watched) for a in plan.workflow.order}
    player = PlayerParts.load(plan, family).player(spec, TeamPlayer(seats), watched)
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
    """A fault of the task's code in words: what, and where it came from."""
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
