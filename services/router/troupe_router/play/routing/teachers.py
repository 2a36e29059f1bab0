"""The port through which episodes have a served teacher score what a policy sampled, over a fleet.

Owns the path of such a call: choice of a replica, accounting. `failover` retries. A call follows
one of `FleetRollout` in its play, so plays bound them all.
"""

import time
from collections.abc import Sequence

from troupe.candidates import ScoreRequest
from troupe.clients import RolloutClient
from troupe.episodes import busy
from troupe.errors import VersionNotLoadedError
from troupe_router.play.routing.admission import Line
from troupe_router.play.routing.choose import RouteRequest, choose, is_held
from troupe_router.play.routing.failover import Pauses, Pick, until_answered
from troupe_router.play.routing.fleet import MAX_IN_FLIGHT, Fleet, ReplicaConnection
from troupe_router.play.routing.ports import connection_of, rollout_candidates
from troupe_router.play.routing.prefixes import Prefix, prefix_of


class FleetTeacher:
    """TeacherPort over a job's rollout replicas: any that serves the teacher may answer.

    ``max_in_flight`` bounds the completions that one replica is sent at once; more wait here.
    """

    def __init__(self, fleet: Fleet, *, max_in_flight: int = MAX_IN_FLIGHT) -> None:
        self._fleet = fleet
        self._max_in_flight = max_in_flight
        self._line = Line()
        self._pauses = Pauses()

    async def score(self, request: ScoreRequest, *, timeout_s: float) -> Sequence[Sequence[float]]:
        """Ask a replica that serves the teacher; wait while none can answer or has room."""
        prefix = prefix_of(request.observation)
        return await until_answered(
            lambda avoid: self._pick(request, prefix, avoid),
            lambda replica, _, left_s: self._ask(request, prefix, replica, left_s),
            timeout_s=timeout_s,
            missing=f"no rollout replica serves the teacher '{request.policy}'",
            pauses=self._pauses,
            refresh=self._fleet.probe,
            wait_for_room=self._line.wait,
        )

    def _pick(self, request: ScoreRequest, prefix: Prefix, avoid: frozenset[str]) -> Pick:
        policy, version = request.policy, request.policy_version
        route = RouteRequest(policy, version, prefix.affinity, avoid, len(request.completions))
        connections, candidates = rollout_candidates(
            self._fleet, policy, version, prefix, self._max_in_flight
        )
        chosen = choose(route, candidates)
        if chosen is None:
            return Pick(is_full=is_held(route, candidates))
        return Pick(connection_of(chosen, candidates, connections), chosen.affinity, version)

    async def _ask(
        self, request: ScoreRequest, prefix: Prefix, connection: ReplicaConnection, left_s: float
    ) -> Sequence[Sequence[float]]:
        assert isinstance(connection.client, RolloutClient)
        policy, version, count = request.policy, request.policy_version, len(request.completions)
        self._fleet.prefixes.record(policy, version, prefix.blocks, connection.number)
        connection.num_in_flight += count
        began = time.monotonic()
        try:
            scores = await connection.client.score_completions(request, timeout_s=left_s)
        except VersionNotLoadedError:
            connection.versions.get(policy, set[int]()).discard(version)
            raise
        finally:
            connection.num_in_flight -= count
            self._line.leave()
        busy.note_generate(began, time.monotonic(), replica=connection.replica_id)
        return scores
