"""Two replicas of the cpu engine behind gRPC and a trainer that publishes to them."""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.rollout_fleet import Members, Sidecar, TinyTrainer, publisher, sidecar
from troupe.runtime.weights.store import open_store
from troupe.spec.policy import FullSpec, LoraSpec, PolicySpec
from troupe_rollout.engines.cpu import CpuEngine
from troupe_trainer.checkpoint.export import Export
from troupe_trainer.publish import Publisher, Transport
from troupe_trainer.publish.broadcast import BroadcastTransport
from troupe_trainer.publish.push_events import PushRefusal, PushResult
from troupe_trainer.publish.stored import StoredTransport
from troupe_trainer.publish.stream import StreamTransport


@dataclass
class Notes:
    """What the publisher said."""

    results: list[list[PushResult]] = field(default_factory=list[list[PushResult]])
    refusals: list[PushRefusal] = field(default_factory=list[PushRefusal])
    late: list[PushResult] = field(default_factory=list[PushResult])

    async def published(self, export: Export, via: str, results: Sequence[PushResult]) -> None:
        self.results.append(list(results))

    async def refused(self, export: Export, via: str, refusal: PushRefusal) -> None:
        self.refusals.append(refusal)

    async def caught_up(self, export: Export, via: str, result: PushResult) -> None:
        self.late.append(result)


@dataclass
class Fleet:
    """Two replicas and a trainer."""

    replicas: list[Sidecar]
    members: Members
    trainer: TinyTrainer
    policies: dict[str, PolicySpec]
    store: Path
    notes: Notes = field(default_factory=Notes)

    def transport(self, via: str) -> Transport:
        if via == "store":
            return StoredTransport(open_store(str(self.store)), "job")
        if via == "distributed":
            files = StreamTransport()
            return BroadcastTransport(files, host="127.0.0.1", device="cpu", join_timeout_s=2)
        return StreamTransport()

    def publisher(self, via: str | Transport, timeout_s: float = 20.0) -> Publisher:
        transport = self.transport(via) if isinstance(via, str) else via
        return publisher(
            self.members, self.policies, timeout_s, transport=transport, listener=self.notes
        )

    def export(self, version: int, via: str) -> Export:
        """What the trainer publishes by that transport."""
        live = via == "distributed" and not self.trainer.model.is_lora
        return self.trainer.live(version) if live else self.trainer.export(version)

    async def serving(self) -> list[tuple[int | None, tuple[int, ...]]]:
        """(active, staged) of each replica."""
        states = [(await r.client.status()).policies[0] for r in self.replicas]
        return [(state.active_version, tuple(state.staged_versions)) for state in states]


@contextlib.asynccontextmanager
async def running_fleet(
    model: Path, folder: Path, train: FullSpec | LoraSpec
) -> AsyncGenerator[Fleet]:
    """Two replicas that are up."""
    policies = {"p": PolicySpec(model=str(model), train=train)}
    async with contextlib.AsyncExitStack() as stack:
        replicas: list[Sidecar] = []
        for name in ("r0", "r1"):
            engine = CpuEngine()
            stack.push_async_callback(engine.stop)
            await engine.start(policies)
            place = sidecar(
                engine, folder / name, name, store=str(folder / "store"), push_lease_s=1.0
            )
            replicas.append(await stack.enter_async_context(place))
        trainer = TinyTrainer("p", policies["p"], folder / "out")
        yield Fleet(replicas, Members(replicas), trainer, policies, folder / "store")
