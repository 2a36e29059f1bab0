"""Client of one env replica for one task family (implements ``troupe.episodes.ports.EnvPort``)."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from troupe.api.env.v1 import env_pb2 as pb
from troupe.api.env.v1.env_pb2_grpc import EnvServiceStub
from troupe.clients import codec
from troupe.clients.channel import Client
from troupe.episodes.ports import Outcome, Start
from troupe.episodes.sealed import seal_with, with_seal
from troupe.errors import TroupeError
from troupe.rewards.reward import reward_json
from troupe.spec.bundle import BundleSpec
from troupe.spec.job import JobSpec
from troupe.spec.reward import RewardSpec
from troupe.tasks.actions import is_cut
from troupe.tasks.family import Observation, Split, Task


class EnvClient(Client):
    """Client for one task family, with the job's reward function if it has one.

    Every call is a pure function and may be repeated on any replica.
    """

    peer = "env"

    def __init__(
        self,
        address: str,
        task_name: str,
        task_params: Mapping[str, Any] | None = None,
        *,
        reward: RewardSpec | None = None,
        bundle: BundleSpec | None = None,
        retry_for_s: float = 2.0,
        is_local: bool = False,
    ) -> None:
        super().__init__(address, retry_for_s=retry_for_s, is_local=is_local)
        self._stub = EnvServiceStub(self._channel)
        params_json = json.dumps(dict(task_params or {}), sort_keys=True)
        self._term = reward.term if reward else ""
        self._environment = pb.EnvironmentRef(
            name=task_name,
            params_json=params_json,
            reward_json=reward_json(reward) if reward else "",
            bundle_digest=bundle.digest if bundle else "",
            bundle_facts_json=bundle.task.model_dump_json() if bundle and bundle.task else "",
        )

    async def reset(
        self, *, split: Split, index: int, observe: Sequence[str], timeout_s: float
    ) -> Start:
        """The first state of a task, and what the agents in ``observe`` see in it."""
        task = pb.TaskRef(split=split, index=index)
        return await self._reset(observe, timeout_s, task=task)

    async def begin_request(self, text: str, *, observe: Sequence[str], timeout_s: float) -> Start:
        """The first state of a user's request."""
        return await self._reset(observe, timeout_s, request_text=text)

    async def _reset(self, observe: Sequence[str], timeout_s: float, **task: Any) -> Start:
        request = pb.ResetRequest(environment=self._environment, observe_agents=observe, **task)
        answer = await self._call(
            "Reset",
            lambda left_s: self._stub.Reset(request, timeout=left_s),
            timeout_s=timeout_s,
        )
        observations = codec.observations_from_proto(answer.observations)
        return Start(answer.task_id, with_seal(answer.state, answer.seal), observations)

    async def step(
        self,
        *,
        state: bytes,
        agent: str,
        actions: Sequence[str],
        observe: Sequence[str],
        timeout_s: float,
    ) -> list[Outcome]:
        """The outcome of each action on a separate copy of ``state``, in order."""
        request = pb.StepRequest(
            environment=self._environment,
            state=state,
            agent=agent,
            actions=actions,
            observe_agents=observe,
            seal=seal_with(state),
            cut_actions=[index for index, action in enumerate(actions) if is_cut(action)],
        )
        answer = await self._call(
            "Step",
            lambda left_s: self._stub.Step(request, timeout=left_s),
            timeout_s=timeout_s,
        )
        if len(answer.outcomes) != len(actions):
            raise TroupeError(
                f"The env service at {self.address} judged {len(answer.outcomes)} of "
                f"{len(actions)} actions; its version differs from this client's."
            )
        if self._term and any(self._term not in o.local_rewards for o in answer.outcomes):
            raise TroupeError(
                f"The env service at {self.address} did not apply the reward function for the term "
                f"'{self._term}': it is older than this client. Upgrade it."
            )
        return [codec.outcome_from_proto(outcome) for outcome in answer.outcomes]

    async def observations(
        self, *, state: bytes, observe: Sequence[str], timeout_s: float
    ) -> Mapping[str, Observation]:
        """What the agents in ``observe`` see in ``state``.

        Raises UnimplementedError where the env service is of a version without this call.
        """
        request = pb.ObserveRequest(
            environment=self._environment,
            state=state,
            observe_agents=observe,
            seal=seal_with(state),
        )
        answer = await self._call(
            "Observe",
            lambda left_s: self._stub.Observe(request, timeout=left_s),
            timeout_s=timeout_s,
        )
        return codec.observations_from_proto(answer.observations)

    async def list_tasks(
        self, *, split: Split, start: int = 0, count: int = 100, timeout_s: float = 30.0
    ) -> tuple[list[Task], int | None]:
        """A page of at most 1000 tasks, and the size of the split (None: unbounded)."""
        request = pb.ListTasksRequest(
            environment=self._environment, split=split, start_index=start, page_size=count
        )
        answer = await self._call(
            "ListTasks",
            lambda left_s: self._stub.ListTasks(request, timeout=left_s),
            timeout_s=timeout_s,
        )
        tasks = [
            Task(t.task_id, codec.split_from_text(t.ref.split), t.ref.index, t.payload)
            for t in answer.tasks
        ]
        return tasks, answer.total_size or None

    async def dry_run(
        self, spec: JobSpec, *, num_tasks: int = 3, timeout_s: float = 120.0
    ) -> list[dict[str, Any]]:
        """Episodes of ``spec`` with scripted agents, played in the env service."""
        request = pb.PlayDryRunRequest(
            environment=self._environment,
            spec_json=spec.model_dump_json(),
            num_tasks=num_tasks,
        )
        answer = await self._call(
            "PlayDryRun",
            lambda left_s: self._stub.PlayDryRun(request, timeout=left_s),
            timeout_s=timeout_s,
        )
        return [json.loads(text) for text in answer.episodes_json]
