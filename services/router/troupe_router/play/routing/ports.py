"""The ports through which episodes generate and step environments, over a fleet.

Owns the path of a call: admission, choice of a replica, accounting. The strategy decides which
replica is asked; `failover` retries.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from prometheus_client import Counter

from troupe.candidates import GenerateRequest, Generation
from troupe.clients import EnvClient, RolloutClient
from troupe.episodes import busy
from troupe.episodes.affinity import played_episode
from troupe.episodes.ports import Outcome, Start
from troupe.errors import VersionNotLoadedError
from troupe.runtime.telemetry import metrics
from troupe.tasks.family import Observation, Split
from troupe_router.play.routing.admission import Admission, Line
from troupe_router.play.routing.choose import (
    Affinity,
    Choice,
    RouteCandidate,
    RouteRequest,
    Strategy,
    choose,
    is_held,
    newer_version,
)
from troupe_router.play.routing.failover import Pauses, Pick, until_answered
from troupe_router.play.routing.fleet import MAX_ENV_CALLS, MAX_IN_FLIGHT, Fleet, ReplicaConnection
from troupe_router.play.routing.prefixes import Prefix, prefix_of

_T = TypeVar("_T")
MAX_KNOWN_EPISODES = 4096
"""Episodes whose env replica is remembered; the oldest is forgotten first."""


class FleetRollout:
    """RolloutPort over a job's rollout replicas.

    ``max_calls`` bounds the calls that are under way or wait here, ``max_in_flight`` the candidates
    that one replica is sent at once. A strictly on-policy job gets the version that it asks for; a
    job with ``max_staleness`` gets a newer one where no replica holds that one any more.
    """

    def __init__(
        self,
        fleet: Fleet,
        *,
        max_calls: int = 8192,
        max_in_flight: int = MAX_IN_FLIGHT,
        strategy: Strategy = choose,
    ) -> None:
        self._fleet = fleet
        self._strategy = strategy
        self._max_in_flight = max_in_flight
        self._admission = Admission(fleet.job_id, max_calls=max_calls)
        self._pauses = Pauses()
        self._affinities: dict[tuple[str, Affinity], Counter] = {}

    async def generate(
        self, request: GenerateRequest[Observation], *, timeout_s: float
    ) -> Generation:
        """Ask the replica that the strategy picks; wait while none can answer or has room.

        Raises OverloadedError at once when too many calls wait already.
        """
        prefix = prefix_of(request.prompt)
        with self._admission:
            return await until_answered(
                lambda avoid: self._pick(request, prefix, avoid),
                lambda replica, picked, left_s: self._ask(request, prefix, replica, picked, left_s),
                timeout_s=timeout_s,
                missing=f"no rollout replica holds version {request.policy_version} of policy "
                f"'{request.policy}'",
                pauses=self._pauses,
                refresh=self._fleet.probe,
                wait_for_room=self._admission.wait,
            )

    def _pick(
        self, request: GenerateRequest[Observation], prefix: Prefix, avoid: frozenset[str]
    ) -> Pick:
        policy, version = request.policy, request.policy_version
        route = RouteRequest(policy, version, prefix.affinity, avoid, request.num_candidates)
        connections, candidates = rollout_candidates(
            self._fleet, policy, version, prefix, self._max_in_flight
        )
        if self._fleet.allows_newer and not is_held(route, candidates):
            newer = newer_version(route, candidates)
            if newer is not None:
                return self._pick(replace(request, policy_version=newer), prefix, avoid)
        chosen = self._strategy(route, candidates)
        if chosen is None:
            return Pick(is_full=is_held(route, candidates))
        return Pick(connection_of(chosen, candidates, connections), chosen.affinity, version)

    async def _ask(
        self,
        request: GenerateRequest[Observation],
        prefix: Prefix,
        connection: ReplicaConnection,
        picked: Pick,
        left_s: float,
    ) -> Generation:
        assert isinstance(connection.client, RolloutClient)
        policy, version = request.policy, picked.policy_version
        self._count_affinity(policy, picked.affinity)
        self._fleet.prefixes.record(policy, version, prefix.blocks, connection.number)
        connection.num_in_flight += request.num_candidates
        try:
            asked = request
            if version != request.policy_version:
                asked = replace(request, policy_version=version)
            generation = await connection.client.generate(asked, timeout_s=left_s)
        except VersionNotLoadedError:
            connection.versions.get(policy, set[int]()).discard(version)
            raise
        finally:
            connection.num_in_flight -= request.num_candidates
            self._admission.leave()
        ended = time.monotonic()
        busy.note_generate(ended - generation.engine_s, ended, replica=connection.replica_id)
        self._count_tokens(policy, generation)
        return generation

    def _count_affinity(self, policy: str, affinity: Affinity) -> None:
        """Look a counter up once: it is removed after the job's last play, and so is this port."""
        counter = self._affinities.get((policy, affinity))
        if counter is None:
            labels = (self._fleet.job_id, policy, affinity)
            counter = metrics.ROUTER_AFFINITY.labels(*labels)
            self._affinities[policy, affinity] = counter
        counter.inc()

    def _count_tokens(self, policy: str, generation: Generation) -> None:
        cached = generation.num_cached_tokens
        if cached is not None:
            asked = len(generation.prompt_token_ids) * len(generation.candidates)
            count = metrics.ROUTER_PROMPT_TOKENS
            count.labels(self._fleet.job_id, policy, "cached").inc(cached)
            count.labels(self._fleet.job_id, policy, "computed").inc(max(0, asked - cached))


class FleetEnv:
    """EnvPort over a job's env replicas; every call is pure, so any replica may answer.

    A replica gets at most ``max_in_flight`` calls at once; more wait here, where waiting is cheap.
    It would refuse the excess, and thousands of answers at once would hold up this router's
    event loop. The calls of an episode go to the replica that answered its last one, unless that
    one is too busy: an agent program may still wait there, and elsewhere would have to run again.
    """

    def __init__(self, fleet: Fleet, *, max_in_flight: int = MAX_ENV_CALLS) -> None:
        self._fleet = fleet
        self._max_in_flight = max_in_flight
        self._line = Line()
        self._pauses = Pauses()
        self._answered: OrderedDict[str, int] = OrderedDict()

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

        # The call has the time of all actions; a task that hangs does not have it again and again.
        one_s = timeout_s / max(1, len(actions))
        return await self._call(ask, agent, timeout_s, asks_late_for_s=one_s)

    async def observations(
        self, *, state: bytes, observe: Sequence[str], timeout_s: float
    ) -> Mapping[str, Observation]:
        """What the agents in ``observe`` see in ``state``."""

        async def ask(client: EnvClient, left_s: float) -> Mapping[str, Observation]:
            return await client.observations(state=state, observe=observe, timeout_s=left_s)

        return await self._call(ask, ",".join(observe), timeout_s)

    async def _call(
        self,
        call: Callable[[EnvClient, float], Awaitable[_T]],
        affinity: str,
        timeout_s: float,
        *,
        asks_late_for_s: float = math.inf,
    ) -> _T:
        episode = played_episode()

        async def ask(connection: ReplicaConnection, _: Pick, left_s: float) -> _T:
            assert isinstance(connection.client, EnvClient)
            connection.num_in_flight += 1
            began = time.monotonic()
            try:
                answer = await call(connection.client, left_s)
                self._remember(episode, connection.number)
                return answer
            finally:
                connection.num_in_flight -= 1
                self._line.leave()
                busy.note_env(began, time.monotonic())

        return await until_answered(
            lambda avoid: self._pick(avoid, episode, affinity),
            ask,
            timeout_s=timeout_s,
            missing="no env replica serves",
            pauses=self._pauses,
            refresh=self._fleet.refresh,
            wait_for_room=self._line.wait,
            asks_late_for_s=asks_late_for_s,
        )

    def _remember(self, episode: str, number: int) -> None:
        if episode:
            self._answered[episode] = number
            self._answered.move_to_end(episode)
            while len(self._answered) > MAX_KNOWN_EPISODES:
                self._answered.popitem(last=False)

    def _pick(self, avoid: frozenset[str], episode: str, affinity: str) -> Pick:
        connections = self._fleet.envs()
        last = self._answered.get(episode)
        candidates = [
            connection.candidate(float(connection.number == last), self._max_in_flight)
            for connection in connections
        ]
        request = RouteRequest("", 0, episode or affinity, avoid)
        chosen = choose(request, candidates)
        if chosen is None:
            return Pick(is_full=is_held(request, candidates))
        return Pick(connection_of(chosen, candidates, connections))


def rollout_candidates(
    fleet: Fleet, policy: str, version: int, prefix: Prefix, max_in_flight: int
) -> tuple[Sequence[ReplicaConnection], list[RouteCandidate]]:
    """The rollout replicas, and how each stands to a call whose prompt has this ``prefix``."""
    connections = fleet.rollouts()
    matched = fleet.prefixes.matched(policy, version, prefix.blocks)
    return connections, [
        connection.candidate(matched.get(connection.number, 0.0), max_in_flight)
        for connection in connections
    ]


def connection_of(
    chosen: Choice, candidates: Sequence[RouteCandidate], connections: Sequence[ReplicaConnection]
) -> ReplicaConnection:
    """The connection of the replica that was chosen."""
    return next(s for s, c in zip(connections, candidates, strict=True) if c is chosen.replica)
