"""EnvService on the wire: proto to domain and back, and nothing else."""

from collections.abc import Iterable, Mapping
from typing import Any

import grpc.aio

from troupe.api.env.v1 import env_pb2 as pb
from troupe.api.env.v1.env_pb2_grpc import EnvServiceServicer
from troupe.clients import codec
from troupe.episodes.ports import Start
from troupe.episodes.sealed import seal_with
from troupe.errors import InvalidArgumentError
from troupe.tasks.actions import CutAction
from troupe.tasks.agents import known_agent
from troupe.tasks.family import Observation, Task
from troupe.tasks.optional import request_task
from troupe_env.deadlines import allowed_s
from troupe_env.families import Families, Loaded
from troupe_env.judging_pool import JudgingPool, begun, observed
from troupe_env.settings import EnvSettings

MAX_PAGE = 1000
MAX_DRY_TASKS = 10

_Context = grpc.aio.ServicerContext[Any, Any]


class EnvServicer(EnvServiceServicer):
    """Answers ListTasks, Reset, Step and Observe for whatever family the request names."""

    def __init__(self, settings: EnvSettings, families: Families, pool: JudgingPool) -> None:
        self._settings = settings
        self._families = families
        self._pool = pool

    async def ListTasks(  # noqa: N802
        self, request: pb.ListTasksRequest, context: _Context
    ) -> pb.ListTasksResponse:
        split = codec.split_from_text(request.split)
        if not 1 <= request.page_size <= MAX_PAGE:
            raise InvalidArgumentError(
                f"page_size is {request.page_size}; give 1 to {MAX_PAGE}.", pointer="/page_size"
            )

        def work() -> tuple[list[Task], int]:
            taskset = self._load(request.environment).taskset
            size = taskset.size(split)
            stop = request.start_index + request.page_size
            indices = range(request.start_index, stop if size is None else min(stop, size))
            return [taskset.task(split, index) for index in indices], size or 0

        tasks, size = await self._pool.run("ListTasks", work, self._allowed_s(context))
        entries = [
            pb.TaskEntry(
                task_id=task.id,
                ref=pb.TaskRef(split=task.split, index=task.index),
                payload=task.payload,
            )
            for task in tasks
        ]
        return pb.ListTasksResponse(tasks=entries, total_size=size)

    async def Reset(  # noqa: N802
        self, request: pb.ResetRequest, context: _Context
    ) -> pb.ResetResponse:
        place = request.task
        is_request = request.HasField("request_text")
        split = None if is_request else codec.split_from_text(place.split)

        def work() -> Start:
            loaded = self._load(request.environment)
            _check_agents(loaded, request.observe_agents)
            task = (
                loaded.taskset.task(split, place.index)
                if split
                else request_task(loaded.family, request.request_text)
            )
            return begun(loaded, task, request.observe_agents)

        start = await self._pool.run("Reset", work, self._allowed_s(context))
        return pb.ResetResponse(
            task_id=start.task_id,
            state=start.state,
            observations=codec.observations_to_proto(start.observations),
            seal=seal_with(start.state),
        )

    async def Step(  # noqa: N802
        self, request: pb.StepRequest, context: _Context
    ) -> pb.StepResponse:
        limit = self._settings.max_actions
        if not 1 <= len(request.actions) <= limit:
            raise InvalidArgumentError(
                f"Step has {len(request.actions)} actions; give 1 to {limit}.", pointer="/actions"
            )
        ref = request.environment
        loaded = self._families.cached(*_named(ref))
        if loaded is None:
            loaded = await self._pool.run("Step", lambda: self._load(ref), self._allowed_s(context))
        _check_agents(loaded, [request.agent, *request.observe_agents])
        with loaded.uses.one():  # while it waits for a thread, too
            outcomes = await self._pool.step(
                loaded,
                state=request.state,
                seal=request.seal,
                agent=request.agent,
                actions=_actions(request),
                observe=list(request.observe_agents),
                timeout_s=self._allowed_s(context),
            )
        return pb.StepResponse(outcomes=[codec.outcome_to_proto(o) for o in outcomes])

    async def Observe(  # noqa: N802
        self, request: pb.ObserveRequest, context: _Context
    ) -> pb.ObserveResponse:
        def work() -> Mapping[str, Observation]:
            loaded = self._load(request.environment)
            _check_agents(loaded, request.observe_agents)
            return observed(loaded, request.state, request.seal, request.observe_agents)

        observations = await self._pool.run("Observe", work, self._allowed_s(context))
        return pb.ObserveResponse(observations=codec.observations_to_proto(observations))

    async def PlayDryRun(  # noqa: N802
        self, request: pb.PlayDryRunRequest, context: _Context
    ) -> pb.PlayDryRunResponse:
        if not 1 <= request.num_tasks <= MAX_DRY_TASKS:
            raise InvalidArgumentError(
                f"num_tasks is {request.num_tasks}; give 1 to {MAX_DRY_TASKS}.",
                pointer="/num_tasks",
            )

        def work() -> list[str]:
            self._load(request.environment)
            return self._families.dry_run(request.spec_json, request.num_tasks)

        episodes = await self._pool.run("PlayDryRun", work, self._allowed_s(context))
        return pb.PlayDryRunResponse(episodes_json=episodes)

    def _allowed_s(self, context: _Context) -> float:
        return allowed_s(context, self._settings.call_timeout_s)

    def _load(self, ref: pb.EnvironmentRef) -> Loaded:
        return self._families.get(*_named(ref))


def _named(ref: pb.EnvironmentRef) -> tuple[str, str, str, str]:
    return ref.name, ref.params_json, ref.reward_json, ref.bundle_facts_json


def _actions(request: pb.StepRequest) -> list[str]:
    cut = frozenset(request.cut_actions)
    return [CutAction(text) if i in cut else text for i, text in enumerate(request.actions)]


def _check_agents(loaded: Loaded, names: Iterable[str]) -> None:
    for agent in names:
        known_agent(agent, loaded.family.agents, task=f"Task {loaded.family.name!r}")
