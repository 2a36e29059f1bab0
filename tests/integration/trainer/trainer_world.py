"""The trainer's surroundings in one process: a router, replicas and players over real gRPC."""

import asyncio
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model, set_peft_model_state_dict
from redis.asyncio import Redis
from safetensors.torch import load_file
from trainer_data import groups_of_step
from transformers import AutoModelForCausalLM

from troupe.api.records.v1 import records_pb2 as records
from troupe.api.rollout.v1 import rollout_pb2 as rollout
from troupe.api.rollout.v1.rollout_pb2_grpc import RolloutServiceServicer
from troupe.api.router.v1 import router_pb2 as router
from troupe.api.router.v1.router_pb2_grpc import RouterServiceServicer
from troupe.clients.router import RouterClient
from troupe.errors import UnavailableError, VersionNotLoadedError
from troupe.ids import ticket_id, train_round
from troupe.runtime.streams.events import EventLog
from troupe.runtime.streams.ledger import StepLedger
from troupe.runtime.weights import file_tensors, tensor_digest, verify_file
from troupe.spec.job import JobSpec
from troupe_trainer.control import Control, TrainerProgress
from troupe_trainer.job import TrainingJob
from troupe_trainer.model.loading import quiet_peft
from troupe_trainer.settings import TrainerSettings

JOB = "unit-1"


@dataclass
class ReplicaServer(RolloutServiceServicer):
    """Holds adapters as a real replica does: own copy of the model, own digest, own scores."""

    model: Path
    replica_id: str = "rollout-0"
    incarnation: str = "1"
    address: str = ""
    versions: dict[int, str] = field(default_factory=dict)
    adapters: dict[int, tuple[dict[str, Any], dict[str, torch.Tensor]]] = field(
        default_factory=dict
    )
    active: int | None = None
    refusals: int = 0
    wrong_digests: int = 0
    score_offset: float = 0.0
    calls: list[str] = field(default_factory=list)
    given_s: list[tuple[int, float, float]] = field(default_factory=list)
    """For each version its bytes, and the seconds left to receive and to activate it."""

    async def UpdateWeights(self, request_iterator: Any, context: Any) -> Any:
        left_s = context.time_remaining()
        manifest = records.WeightsManifest()
        with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
            async for part in request_iterator:
                if part.WhichOneof("part") == "manifest":
                    manifest.CopyFrom(part.manifest)
                else:
                    file.write(part.chunk.data)
            file.flush()
            if self.refusals > 0:
                self.refusals -= 1
                raise UnavailableError("the replica restarts")
            path = Path(file.name)
            verify_file(path, manifest)
            digest = tensor_digest(file_tensors(path))
            tensors = load_file(path)
        version = manifest.policy_version
        self.calls.append(f"stage {version}")
        self.given_s.append((manifest.size_bytes, left_s, 0.0))
        self.versions[version] = digest
        self.adapters[version] = (json.loads(manifest.adapter_config_json), tensors)
        if self.wrong_digests > 0:
            self.wrong_digests -= 1
            digest = "0" * 64
        return rollout.UpdateWeightsResponse(tensor_digest=digest)

    async def ScoreTokens(self, request: Any, context: Any) -> Any:
        if request.policy_version not in self.adapters:
            raise VersionNotLoadedError(f"version {request.policy_version} is not loaded")
        config, tensors = self.adapters[request.policy_version]
        base = AutoModelForCausalLM.from_pretrained(self.model)
        with quiet_peft():
            module: Any = get_peft_model(base, LoraConfig(**config))
        set_peft_model_state_dict(module, tensors)
        tokens = torch.tensor([list(request.token_ids)])
        with torch.no_grad():
            table = torch.log_softmax(module(input_ids=tokens).logits[0, :-1], -1)
        scores = table.gather(1, tokens[0, 1:, None])[:, 0] + self.score_offset
        return rollout.ScoreTokensResponse(logprobs=scores.tolist())

    async def ActivateWeights(self, request: Any, context: Any) -> Any:
        if request.policy_version not in self.versions:
            raise VersionNotLoadedError(f"version {request.policy_version} is not staged")
        self.calls.append(f"activate {request.policy_version}")
        self.given_s[-1] = (*self.given_s[-1][:2], context.time_remaining())
        self.active = request.policy_version
        return rollout.ActivateWeightsResponse(policy_version=self.active)

    async def DiscardWeights(self, request: Any, context: Any) -> Any:
        self.calls.append(f"discard {request.policy_version}")
        self.versions.pop(request.policy_version, None)
        self.adapters.pop(request.policy_version, None)
        return rollout.DiscardWeightsResponse()

    def restart(self) -> None:
        """Lose everything, as a new process would."""
        self.incarnation += "x"
        self.versions.clear()
        self.adapters.clear()
        self.active = None

    def describe(self) -> router.Replica:
        active = self.active if self.active is not None else 0
        policy = router.ReplicaPolicy(
            policy="shared",
            active_version=active,
            loaded_versions=sorted(self.versions),
            tensor_digest=self.versions.get(active, "") if self.active is not None else "",
        )
        return router.Replica(
            replica_id=self.replica_id,
            kind=router.REPLICA_KIND_ROLLOUT,
            address=self.address,
            incarnation=self.incarnation,
            policies=[policy],
            is_serving=True,
        )


@dataclass
class RouterServer(RouterServiceServicer):
    """Lists the replicas that there are, and assigns the job to whoever asks."""

    replicas: list[ReplicaServer] = field(default_factory=list)
    assignment: router.Assignment = field(default_factory=router.Assignment)
    should_exit: bool = False

    async def ListReplicas(self, request: Any, context: Any) -> Any:
        return router.ListReplicasResponse(replicas=[r.describe() for r in self.replicas])

    async def RegisterReplica(self, request: Any, context: Any) -> Any:
        return router.RegisterReplicaResponse(assignment=self.assignment, lease_ttl_s=5.0)

    async def SendHeartbeat(self, request: Any, context: Any) -> Any:
        return router.SendHeartbeatResponse(
            assignment=self.assignment, should_exit=self.should_exit
        )


async def open_round(redis: Redis, step: int, num_tickets: int) -> list[records.Ticket]:
    tickets = [
        records.Ticket(
            ticket_id=ticket_id(JOB, train_round(step), i),
            job_id=JOB,
            round_id=train_round(step),
            kind=records.ROUND_KIND_TRAIN,
            step=step,
        )
        for i in range(num_tickets)
    ]
    ledger = StepLedger(redis, JOB)
    await ledger.open_round(train_round(step), records.ROUND_KIND_TRAIN, step, tickets)
    return tickets


async def play(redis: Redis, step: int, num_tickets: int = 2) -> None:
    """Open the round of ``step``, finish its tickets and record it; harmless when that was done."""
    ledger = StepLedger(redis, JOB)
    groups = groups_of_step(step, tasks=num_tickets)
    for position, ticket in enumerate(await open_round(redis, step, num_tickets)):
        own = [g for g in groups if g.ticket_id == ticket.ticket_id]
        episode = records.Episode(episode_id=ticket.ticket_id, step=step)
        await ledger.complete_ticket(ticket, f"1-{position + 1}", own, episode)
    await ledger.mark_recorded(train_round(step))


async def conduct(redis: Redis, spec: JobSpec) -> None:
    """Open each step's round when the policy is at its version, until cancelled."""
    ledger = StepLedger(redis, JOB)
    while True:
        version = (await ledger.versions()).get("shared")
        if version is not None and version < spec.steps:
            await play(redis, version)
        await ledger.wait_change(0.5)


async def eventually(condition: Any, timeout_s: float = 20.0) -> None:
    """Poll until ``condition`` holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def end(*tasks: asyncio.Future[None]) -> None:
    """Cancel ``tasks``, again if need be: redis-py may swallow a cancellation."""
    alive = set(tasks)
    for _ in range(10):
        for task in alive:
            task.cancel()
        _, alive = await asyncio.wait(alive, timeout=2)
        if not alive:
            break
    assert not alive, [str(task) for task in alive]
    for task in tasks:
        if not task.cancelled():
            task.exception()


@dataclass
class World:
    """One job: what surrounds it, and lives of its trainer."""

    redis: Redis
    router: RouterServer
    client: RouterClient
    replica: ReplicaServer
    spec: JobSpec
    run_dir: Path

    def job(self, spec: JobSpec | None = None, control: Control | None = None) -> TrainingJob:
        self.progress = TrainerProgress()
        return TrainingJob(
            JOB,
            spec or self.spec,
            self.run_dir,
            TrainerSettings(),
            redis=self.redis,
            router=self.client,
            progress=self.progress,
            control=control or Control(),
        )

    async def run_to_the_end(self) -> None:
        """A whole life of a trainer with a conductor beside it."""
        task = asyncio.ensure_future(self.job().run())
        conductor = asyncio.ensure_future(conduct(self.redis, self.spec))
        try:
            await eventually(lambda: self.progress.phase == "done" or task.done(), 60)
            if task.done():
                task.result()
        finally:
            await end(task, conductor)

    def weights(self) -> dict[str, Any]:
        """Parameters and moments of all; the generator's state is left out: replicas share it."""
        folder = self.run_dir / "checkpoints" / f"step-{self.spec.steps:05d}"
        return {
            f"{file.stem}/{name}": tensor
            for file in folder.glob("*.safetensors")
            for name, tensor in load_file(file).items()
            if name != "rng"
        }

    def trained(self) -> list[dict[str, Any]]:
        lines = (self.run_dir / "groups.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    async def learned(self) -> list[dict[str, Any]]:
        events = await EventLog(self.redis, JOB, source="test").read()
        return [json.loads(e.event.data_json) for e in events if e.event.type == "step.learned"]
