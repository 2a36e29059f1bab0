"""Generation and judgement over a fleet: tries replicas until one answers or time is up.

Owns waiting and failing over. Which replica is asked is ``choose``'s decision.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from services.router.routing.choose import RouteCandidate, RouteRequest, choose
from services.router.routing.fleet import Fleet, Seat, unless_closed
from troupe.clients import EnvClient, RolloutClient
from troupe.episodes.ports import Generation, Outcome, Start
from troupe.errors import TroupeError, UnavailableError, VersionNotLoadedError
from troupe.spec.job import SamplingSpec
from troupe.tasks.contract import Observation, Split
from troupe.telemetry import metrics

_LONGEST_PAUSE_S = 1.0
_T = TypeVar("_T")


class FleetRollout:
    """RolloutPort over a job's rollout replicas."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def generate(
        self,
        *,
        policy: str,
        policy_version: int,
        observation: Observation,
        num_candidates: int,
        sampling: SamplingSpec,
        seed: int,
        timeout_s: float,
    ) -> Generation:
        """Ask the least busy replica that holds the version; wait while none does."""
        affinity = _affinity(observation)

        async def ask(seat: Seat, left_s: float) -> Generation:
            assert isinstance(seat.client, RolloutClient)
            seat.num_in_flight += num_candidates
            try:
                generation = await seat.client.generate(
                    policy=policy,
                    policy_version=policy_version,
                    observation=observation,
                    num_candidates=num_candidates,
                    sampling=sampling,
                    seed=seed,
                    timeout_s=left_s,
                )
            except VersionNotLoadedError:
                seat.versions.get(policy, set[int]()).discard(policy_version)
                raise
            finally:
                seat.num_in_flight -= num_candidates
            ended = time.monotonic()
            self._fleet.meter.generate.append((ended - generation.engine_s, ended))
            return generation

        def pick(avoid: frozenset[str]) -> Seat | None:
            request = RouteRequest(policy, policy_version, affinity, avoid)
            return _pick(request, self._fleet.rollouts())

        missing = f"no rollout replica holds version {policy_version} of policy '{policy}'"
        return await _until_answered(
            pick, ask, timeout_s=timeout_s, missing=missing, refresh=self._fleet.probe
        )


class FleetEnv:
    """EnvPort over a job's env replicas; every call is pure, so any replica may answer."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def reset(
        self, *, split: Split, index: int, observe: Sequence[str], timeout_s: float
    ) -> Start:
        """The first state of an episode."""

        async def ask(client: EnvClient, left_s: float) -> Start:
            return await client.reset(split=split, index=index, observe=observe, timeout_s=left_s)

        return await self._call(ask, f"{split}/{index}", timeout_s)

    async def step(
        self,
        *,
        state: bytes,
        agent: str,
        actions: Sequence[str],
        observe: Sequence[str],
        timeout_s: float,
    ) -> list[Outcome]:
        """Judge each action on its own copy of ``state``."""

        async def ask(client: EnvClient, left_s: float) -> list[Outcome]:
            return await client.step(
                state=state, agent=agent, actions=actions, observe=observe, timeout_s=left_s
            )

        return await self._call(ask, agent, timeout_s)

    async def _call(
        self, call: Callable[[EnvClient, float], Awaitable[_T]], affinity: str, timeout_s: float
    ) -> _T:
        async def ask(seat: Seat, left_s: float) -> _T:
            assert isinstance(seat.client, EnvClient)
            seat.num_in_flight += 1
            began = time.monotonic()
            try:
                return await call(seat.client, left_s)
            finally:
                seat.num_in_flight -= 1
                self._fleet.meter.env.append((began, time.monotonic()))

        def pick(avoid: frozenset[str]) -> Seat | None:
            return _pick_env(avoid, affinity, self._fleet.envs())

        return await _until_answered(
            pick,
            ask,
            timeout_s=timeout_s,
            missing="no env replica serves",
            refresh=self._fleet.refresh,
        )


async def _until_answered(
    pick: Callable[[frozenset[str]], Seat | None],
    ask: Callable[[Seat, float], Awaitable[_T]],
    *,
    timeout_s: float,
    missing: str,
    refresh: Callable[[], Awaitable[None]],
) -> _T:
    """Pick and ask until an answer, an error that is not retryable, or ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    avoid: frozenset[str] = frozenset()
    pause_s = 0.01
    last: TroupeError | None = None
    while (left_s := deadline - time.monotonic()) > 0:
        seat = pick(avoid)
        if seat is None:
            await refresh()
            seat = pick(avoid)
        if seat is not None:
            replica_id = seat.member.replica.replica_id
            try:
                with unless_closed(seat):
                    answer = await ask(seat, left_s)
            except TroupeError as error:
                metrics.ROUTER_ROUTED.labels(replica_id, error.reason).inc()
                if not error.retryable:
                    raise
                last = error
                avoid |= {replica_id}
            else:
                metrics.ROUTER_ROUTED.labels(replica_id, "OK").inc()
                return answer
            await refresh()
        await asyncio.sleep(min(pause_s, max(0.0, deadline - time.monotonic())))
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
    detail = f"; the last error was: {last.message}" if last else ""
    raise UnavailableError(
        f"{missing} within {timeout_s:g} s{detail}. See the job's component logs."
    ) from last


def _pick(request: RouteRequest, seats: Sequence[Seat]) -> Seat | None:
    candidates = [seat.candidate() for seat in seats]
    chosen = choose(request, candidates)
    return None if chosen is None else seats[candidates.index(chosen)]


def _pick_env(avoid: frozenset[str], affinity: str, seats: Sequence[Seat]) -> Seat | None:
    """Env replicas hold no versions: each is asked for the same imaginary one."""
    candidates = [
        RouteCandidate(
            s.member.replica.replica_id, s.member.replica.is_serving, s.num_in_flight, {"": {0}}
        )
        for s in seats
    ]
    chosen = choose(RouteRequest("", 0, affinity, avoid), candidates)
    return None if chosen is None else seats[candidates.index(chosen)]


def _affinity(observation: Observation) -> str:
    text = "\x1e".join(f"{m.role}\x1f{m.content}" for m in observation)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
