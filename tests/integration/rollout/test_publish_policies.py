"""The policies of a step are pushed at once: to replicas of their own, and to one they share."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from benchmarks.rollout_fleet import Members, TinyTrainer, publisher, sidecar
from troupe.clients.rollout import WeightsReceipt
from troupe.errors import FencedError, InvalidArgumentError, JobFailedError
from troupe.runtime.streams.ledger import StepLedger
from troupe.spec.policy import LoraSpec, PolicySpec
from troupe_rollout.engines.cpu import CpuEngine
from troupe_trainer.checkpoint.export import Export
from troupe_trainer.control import TrainerProgress
from troupe_trainer.publish.device import TrainersDevice
from troupe_trainer.publish.push import PushSeconds
from troupe_trainer.publish.stream import StreamTransport
from troupe_trainer.publish.transport import Send, Target
from troupe_trainer.publish.versions import Versions

POLICIES = ("planner", "tool")


@dataclass
class Learnt:
    """Learners of two policies that are not trained here."""

    by_policy: dict[str, TinyTrainer]

    async def on_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(work)


class Meeting(StreamTransport):
    """Sends nothing before as many policies as ``parties`` are being sent; refuses ``refused``."""

    def __init__(self, parties: int, refused: dict[str, Exception] | None = None) -> None:
        self._barrier = asyncio.Barrier(parties)
        self._refused = refused or {}

    @contextlib.asynccontextmanager
    async def session(
        self, export: Export, targets: Sequence[Target], *, timeout_s: float
    ) -> AsyncGenerator[Send]:
        policy = export.manifest.policy
        async with (
            asyncio.timeout(20),
            super().session(export, targets, timeout_s=timeout_s) as send,
        ):
            await self._barrier.wait()

            async def send_or_not(target: Target) -> WeightsReceipt:
                if policy in self._refused:
                    raise self._refused[policy]
                return await send(target)

            yield send_or_not


@dataclass
class World:
    """Replicas, and what publishes to them."""

    members: Members
    learnt: Learnt
    policies: dict[str, PolicySpec]
    ledger: StepLedger
    folder: Path
    progress: TrainerProgress = field(default_factory=TrainerProgress)

    async def publish(self, version: int, transport: StreamTransport) -> PushSeconds | None:
        sender = publisher(self.members, self.policies, 60, transport=transport)
        learners: Any = self.learnt
        versions = Versions(
            "job", learners, sender, self.ledger, self.folder, self.progress, TrainersDevice()
        )
        try:
            return await versions.publish(version)
        finally:
            await sender.close()

    async def active(self) -> dict[str, set[int | None]]:
        """The versions that replicas serve, by policy."""
        served: dict[str, set[int | None]] = {}
        for replica in self.members.sidecars:
            for state in (await replica.client.status()).policies:
                served.setdefault(state.policy, set()).add(state.active_version)
        return served


@pytest.fixture(params=["apart", "shared"])
async def world(
    redis: Redis, rollout_model: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncGenerator[World]:
    """A replica for each policy, or one of both."""
    policies = {
        name: PolicySpec(model=str(rollout_model), train=LoraSpec(rank=2, alpha=4))
        for name in POLICIES
    }
    names: list[Sequence[str]] = (
        [POLICIES] if request.param == "shared" else [[n] for n in POLICIES]
    )
    async with contextlib.AsyncExitStack() as stack:
        replicas = list[Any]()
        for i, served in enumerate(names):
            engine = CpuEngine()
            stack.push_async_callback(engine.stop)
            await engine.start({name: policies[name] for name in served})
            place = sidecar(engine, tmp_path / f"in-{i}", f"r{i}")
            replicas.append(await stack.enter_async_context(place))
        learnt = Learnt({n: TinyTrainer(n, policies[n], tmp_path / n) for n in POLICIES})
        for i, trainer in enumerate(learnt.by_policy.values()):
            trainer.learn(i + 1)
        ledger = StepLedger(redis, "job")
        yield World(Members(replicas), learnt, policies, ledger, tmp_path / "publish")


async def test_policies_when_pushed_then_all_are_under_way_at_once(world: World) -> None:
    took = await world.publish(0, Meeting(2))
    assert took is not None
    assert await world.active() == {name: {0} for name in POLICIES}
    assert await world.ledger.versions() == dict.fromkeys(POLICIES, 0)
    digests = await world.ledger.digests()
    assert len(set(digests.values())) == 2
    for replica in world.members.sidecars:
        for state in replica.replica().policies:
            assert state.tensor_digest == digests[state.policy]


async def test_policies_when_one_is_refused_then_the_other_is_committed_first(world: World) -> None:
    await world.publish(0, StreamTransport())
    refused = Meeting(2, {"planner": InvalidArgumentError("no room for it")})
    with pytest.raises(JobFailedError, match="version 1 of policy 'planner': no room"):
        await world.publish(1, refused)
    assert await world.ledger.versions() == {"planner": 0, "tool": 1}
    assert await world.active() == {"planner": {0}, "tool": {1}}
    # The next life of the job pushes what is missing, and what is committed as it was committed.
    await world.publish(1, Meeting(1))
    assert await world.ledger.versions() == dict.fromkeys(POLICIES, 1)


async def test_policies_when_a_successor_took_one_over_then_that_is_what_is_said(
    world: World,
) -> None:
    errors: dict[str, Exception] = {
        "planner": InvalidArgumentError("no room for it"),
        "tool": FencedError("another trainer has taken over"),
    }
    with pytest.raises(FencedError, match="another trainer"):
        await world.publish(0, Meeting(2, errors))


def test_seconds_when_pushes_overlap_then_those_of_the_slowest_count() -> None:
    pushes = [PushSeconds(2.0, 0.1), PushSeconds(1.0, 0.5)]
    assert PushSeconds.at_once(pushes) == PushSeconds(2.0, pytest.approx(0.1))
