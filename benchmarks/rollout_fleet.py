"""Sidecars over real gRPC with a trainer's side, in one process: for benchmarks and tests.

Owns no numbers. The engine, the servicer, the staging area and the publisher are the real ones;
only the router is replaced, by a list of who is there.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import grpc.aio
import torch

from troupe.api.rollout.v1.rollout_pb2_grpc import add_RolloutServiceServicer_to_server
from troupe.api.router.v1.router_pb2 import Replica, ReplicaPolicy
from troupe.clients.channel import SERVER_OPTIONS
from troupe.clients.rollout import RolloutClient
from troupe.runtime.engines.engine import Engine, StagedWeights
from troupe.runtime.serving.interceptor import ErrorInterceptor
from troupe.runtime.weights import build_manifest
from troupe.runtime.weights.store import open_store
from troupe.spec.job import JobSpec
from troupe.spec.policy import PolicySpec
from troupe_rollout.servicer import RolloutServicer
from troupe_rollout.settings import RolloutSettings
from troupe_rollout.staging import StagingArea
from troupe_trainer.checkpoint.canary import canary_of
from troupe_trainer.checkpoint.export import Export, export_live, write_weights
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.publish import Publisher, Transport
from troupe_trainer.publish.push_events import PushListener


class TinyTrainer:
    """The trainer's own model of a policy, and files of its weights."""

    def __init__(self, policy: str, spec: PolicySpec, folder: Path) -> None:
        torch.set_num_threads(1)
        self.policy = policy
        self.model = PolicyModel(policy, spec, seed=1, device="cpu")
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def kind(self) -> Literal["lora", "full"]:
        """What is published."""
        return "lora" if self.model.is_lora else "full"

    def learn(self, seed: int, size: float = 0.1) -> None:
        """A step in a random direction."""
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.model.trainable().values():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * size)
        self.model.revision += 1

    def export(self, version: int, adapter_dtype: str = "float32") -> Export:
        """What the trainer would publish."""
        path = self._folder / f"{self.policy}-v{version}.safetensors"
        began = time.perf_counter()
        sums = write_weights(self.model.weights(adapter_dtype), path)
        manifest = build_manifest(
            path,
            policy=self.policy,
            policy_version=version,
            kind=self.kind,
            adapter_config_json=self.model.adapter_config_json,
            sums=sums,
        )
        canary = canary_of(self.model)
        scores = self.model.score(canary.token_ids, canary.images)
        return Export(manifest, path, canary, scores, time.perf_counter() - began)

    def live(self, version: int) -> Export:
        """The same without a file, as a broadcast sends full weights."""
        return export_live(self.model, self.policy, version, asyncio.to_thread, job_id="")

    def staged(self, version: int) -> StagedWeights:
        """The same, as an engine gets it from the sidecar."""
        config = self.model.adapter_config_json
        return StagedWeights(self.policy, version, self.kind, self.export(version).file, config)

    def logprobs(
        self, prompt: Sequence[int], completion: Sequence[int], temperature: float
    ) -> torch.Tensor:
        """The trainer's logprobs of a completion under the sampled distribution."""
        table = self.table(prompt, completion, temperature)
        return table.gather(1, torch.tensor(completion)[:, None])[:, 0]

    def table(
        self, prompt: Sequence[int], completion: Sequence[int], temperature: float
    ) -> torch.Tensor:
        """The same of every word, at each token of the completion."""
        ids = torch.tensor([[*prompt, *completion]])
        with torch.no_grad(), self.model.autocast:
            logits = self.model._causal(input_ids=ids, use_cache=False).logits[0]
        return torch.log_softmax(logits[len(prompt) - 1 : -1].float() / temperature, -1)


@dataclass
class Sidecar:
    """An engine behind its real gRPC service."""

    engine: Engine
    address: str
    client: RolloutClient
    name: str
    is_listed: bool = True
    incarnation: str = "1"

    def replica(self) -> Replica:
        """Its heartbeat, as `RolloutApp` says it."""
        return Replica(
            replica_id=self.name,
            incarnation=self.incarnation,
            address=self.address,
            is_serving=self.engine.is_ready(),
            policies=[
                ReplicaPolicy(
                    policy=state.policy,
                    active_version=state.active_version or 0,
                    loaded_versions=state.loaded_versions,
                    tensor_digest=state.tensor_digest,
                )
                for state in self.engine.policies()
            ],
        )


@contextlib.asynccontextmanager
async def sidecar(
    engine: Engine,
    folder: Path,
    name: str = "r0",
    extra: Sequence[Any] = (),
    *,
    store: str = "",
    push_lease_s: float = 60.0,
) -> AsyncGenerator[Sidecar]:
    """Serve a started engine on loopback, and ``extra`` handlers on the same port.

    ``store`` is the URL of its weight store.
    """
    staging = StagingArea(
        str(folder),
        max_bytes=2**36,
        max_uploads=4,
        chunk_timeout_s=5.0,
        store=lambda: open_store(store),
    )
    staging.open()
    servicer = RolloutServicer(RolloutSettings(push_lease_s=push_lease_s), engine, staging)
    servicer.open("model", "job")
    server = grpc.aio.server(interceptors=[ErrorInterceptor()], options=SERVER_OPTIONS)
    add_RolloutServiceServicer_to_server(servicer, server)
    server.add_generic_rpc_handlers(tuple(extra))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    client = RolloutClient(address, retry_for_s=0.0)
    try:
        yield Sidecar(engine, address, client, name)
    finally:
        await client.close()
        await server.stop(None)
        staging.close()


@dataclass
class Members:
    """The router as the publisher sees it: who is there."""

    sidecars: list[Sidecar] = field(default_factory=list[Sidecar])

    async def list_replicas(self, job_id: str, kind: int) -> list[Replica]:
        """The heartbeats of those that are listed."""
        return [item.replica() for item in self.sidecars if item.is_listed]


def publisher(
    members: Members,
    policies: dict[str, PolicySpec],
    timeout_s: float = 60.0,
    *,
    transport: Transport | None = None,
    listener: PushListener | None = None,
) -> Publisher:
    """The trainer's real publisher."""
    spec = JobSpec.model_validate(
        {
            "name": "t",
            "steps": 1,
            "task": {"name": "plan_path"},
            "workflow": {"order": list(policies)},
            "agents": {name: {"policy": name} for name in policies},
            "policies": {name: item.model_dump() for name, item in policies.items()},
            "limits": {"startup_timeout_s": timeout_s},
        }
    )
    router: Any = members
    return Publisher("job", spec, router, transport=transport, listener=listener)
