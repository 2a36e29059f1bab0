"""The real ledger on a real Valkey, and the real intake, under random histories."""

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from protocol_settings import ProtocolSettings
from redis.asyncio import Redis
from safetensors.numpy import save_file

from troupe.api.records.v1.records_pb2 import (
    ROUND_KIND_TRAIN,
    Episode,
    Group,
    Ticket,
    WeightsManifest,
)
from troupe.clients.rollout import _parts
from troupe.errors import ConflictError, FencedError, TroupeError, VersionNotLoadedError
from troupe.ids import group_id, ticket_id, train_round
from troupe.runtime.engines.engine import PolicyState, StagedWeights
from troupe.runtime.streams import keys, scripts
from troupe.runtime.streams.consumer import Consumer
from troupe.runtime.streams.fencing import Fence
from troupe.runtime.streams.ledger import StepLedger
from troupe.runtime.streams.redis import connect
from troupe.runtime.weights import build_manifest, file_tensors, tensor_digest
from troupe_rollout.engines.versions import VersionTable
from troupe_rollout.staging import StagingArea
from troupe_rollout.weight_receiver import WeightReceiver

JOB, POLICY, STEPS, TICKETS = "j", "p", 3, 2
T = TypeVar("T")

SETTINGS = settings(
    max_examples=ProtocolSettings().examples,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class _Machine(RuleBasedStateMachine):
    """A machine with an event loop of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        async def within() -> T:
            async with asyncio.timeout(60):
                return await work

        return self.loop.run_until_complete(within())

    def refused(self, work: Coroutine[Any, Any, Any]) -> type[TroupeError] | None:
        try:
            self.do(work)
        except TroupeError as error:
            return type(error)
        return None

    def teardown(self) -> None:
        self.do(self.close())
        self.loop.close()

    async def close(self) -> None:
        """End what the machine opened."""


class LedgerMachine(_Machine):
    """Turns are taken at any time, and every earlier holder goes on trying."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.redis: Redis = self.do(connect(url, connect_for_s=20))
        self.do(self.redis.flushall())
        self.conductors: list[StepLedger] = []
        self.trainers: list[tuple[StepLedger, Fence]] = []
        self.opened: set[int] = set()
        self.done: dict[int, set[int]] = {}
        self.recorded: set[int] = set()
        self.acked: set[str] = set()
        self.committed: tuple[int, str] | None = None

    @initialize()
    def begin(self) -> None:
        self.conductor_begins()
        self.trainer_begins()

    @rule()
    def conductor_begins(self) -> None:
        ledger = StepLedger(self.redis, JOB)
        self.do(ledger.take("router", f"router {len(self.conductors)}"))
        self.conductors.append(ledger)

    @rule()
    def trainer_begins(self) -> None:
        ledger = StepLedger(self.redis, JOB)
        fence = self.do(ledger.take("trainer", f"trainer {len(self.trainers)}"))
        assert all(fence.epoch > earlier.epoch for _, earlier in self.trainers)
        self.trainers.append((ledger, fence))

    @rule(who=st.integers(0, 9), step=st.integers(0, STEPS - 1))
    def open_round(self, who: int, step: int) -> None:
        at = who % len(self.conductors)
        opening = self.conductors[at].open_round(
            train_round(step), ROUND_KIND_TRAIN, step, _tickets(step)
        )
        if at < len(self.conductors) - 1:
            assert self.refused(opening) is FencedError
            return
        assert self.do(opening) == (step not in self.opened)
        self.opened.add(step)
        self.done.setdefault(step, set())

    @rule(step=st.integers(0, STEPS - 1), at=st.integers(0, TICKETS - 1))
    def complete(self, step: int, at: int) -> None:
        ticket = _tickets(step)[at]
        group = Group(group_id=group_id(ticket.ticket_id, "a", 0), policy=POLICY, step=step)
        episode = Episode(episode_id=ticket.ticket_id)
        ledger = StepLedger(self.redis, JOB)
        is_first = self.do(ledger.complete_ticket(ticket, "", [group], episode))
        assert is_first == (step in self.opened and at not in self.done[step])
        if is_first:
            self.done[step].add(at)

    @rule(who=st.integers(0, 9), step=st.integers(0, STEPS - 1))
    def record(self, who: int, step: int) -> None:
        at = who % len(self.conductors)
        error = self.refused(self.conductors[at].mark_recorded(train_round(step)))
        if at < len(self.conductors) - 1:
            assert error is FencedError
        elif len(self.done.get(step, ())) == TICKETS:
            assert error is None
            self.recorded.add(step)
        else:
            assert error is not None

    @rule(who=st.integers(0, 9), version=st.integers(0, STEPS), digest=st.sampled_from("ab"))
    def commit(self, who: int, version: int, digest: str) -> None:
        at = who % len(self.trainers)
        error = self.refused(self.trainers[at][0].commit_version(POLICY, version, digest))
        if at < len(self.trainers) - 1:
            assert error is FencedError
        elif self.committed is None or version > self.committed[0]:
            assert error is None
            self.committed = (version, digest)
        else:
            assert error is (None if self.committed == (version, digest) else ConflictError)

    @rule(who=st.integers(0, 9), below=st.integers(0, STEPS))
    def read_and_ack(self, who: int, below: int) -> None:
        at = who % len(self.trainers)
        reader = Consumer(
            self.redis,
            keys.groups(JOB, POLICY),
            keys.TRAINER_GROUP,
            "trainer",
            claim_idle_s=1000,
            max_attempts=0,
            fence=self.trainers[at][1],
        )
        entries = self.do(reader.read(count=100, block_s=0))
        entries += self.do(reader.read(count=100, block_s=0))
        covered = [e.id for e in entries if Group.FromString(e.payload).step < below]
        error = self.refused(reader.ack(*covered))
        if covered and at < len(self.trainers) - 1:
            assert error is FencedError
            return
        assert error is None
        for entry in entries:
            group = Group.FromString(entry.payload)
            assert entry.round_id == train_round(group.step)
            if group.step < below:
                self.acked.add(group.group_id)

    @invariant()
    def ledger_says_what_happened(self) -> None:
        ledger = StepLedger(self.redis, JOB)
        versions, digests = self.do(ledger.versions()), self.do(ledger.digests())
        wanted = {} if self.committed is None else {POLICY: self.committed[0]}
        assert versions == wanted
        assert digests == ({} if self.committed is None else {POLICY: self.committed[1]})
        for step in self.opened:
            state = self.do(ledger.round(train_round(step)))
            assert state is not None
            assert state.num_done == state.num_groups.get(POLICY, 0) == len(self.done[step])
            assert state.is_recorded == (step in self.recorded)

    @invariant()
    def no_group_is_lost_or_doubled(self) -> None:
        entries: Any = self.do(_listing(self.redis.xrange(keys.groups(JOB, POLICY))))
        there = sorted(Group.FromString(fields[b"p"]).group_id for _, fields in entries)
        counted = {
            group_id(_tickets(step)[at].ticket_id, "a", 0)
            for step, done in self.done.items()
            for at in done
        }
        assert there == sorted(counted - self.acked)

    async def close(self) -> None:
        await self.redis.aclose()


async def _listing(reading: Awaitable[T]) -> T:
    return await reading


def _tickets(step: int) -> Sequence[Ticket]:
    round_id = train_round(step)
    return [
        Ticket(ticket_id=ticket_id(JOB, round_id, at), job_id=JOB, round_id=round_id, step=step)
        for at in range(TICKETS)
    ]


class TableEngine:
    """The version table of the real engines around nothing that computes."""

    name = "table"

    def __init__(self) -> None:
        self.table = VersionTable[_Held](POLICY, 2)

    async def stage(self, weights: StagedWeights) -> str:
        digest = tensor_digest(file_tensors(weights.path))
        self.table.stage(_Held(weights.policy_version, digest))
        return digest

    async def activate(self, policy: str, policy_version: int) -> None:
        self.table.activate(policy_version)

    async def discard(self, policy: str, policy_version: int) -> None:
        self.table.discard(policy_version)

    def policies(self) -> list[PolicyState]:
        return [self.table.state()]


@dataclass(frozen=True)
class _Held:
    policy_version: int
    tensor_digest: str


class IntakeMachine(_Machine):
    """Trainers of three epochs call one replica in any order; each means weights of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.staging = StagingArea(str(folder), max_bytes=10**6, max_uploads=2, chunk_timeout_s=60)
        self.staging.open()
        self.newest = 0
        self.engine: Any = TableEngine()
        self.intake = WeightReceiver(self.engine, self.staging, lease_s=1000)

    @rule(epoch=st.integers(1, 3))
    def router_tells(self, epoch: int) -> None:
        self.intake.refuse_before(epoch)
        self.newest = max(self.newest, epoch)

    @rule(epoch=st.integers(1, 3), version=st.integers(0, 3))
    def stage(self, epoch: int, version: int) -> None:
        path, manifest = self._weights(epoch, version)
        before = self.engine.table.state()
        parts = aiter(_parts(manifest, path, epoch))
        error = self.refused(self.intake.update(parts, timeout_s=60))
        self._judge(epoch, error, before, ConflictError)
        if error is None:
            assert version in self.engine.table.state().staged_versions

    @rule(epoch=st.integers(1, 3), version=st.integers(0, 3))
    def activate(self, epoch: int, version: int) -> None:
        _, manifest = self._weights(epoch, version)
        before = self.engine.table.state()
        digest = manifest.tensor_digest
        call = self.intake.activate(POLICY, version, epoch=epoch, tensor_digest=digest)
        error = self.refused(call)
        self._judge(epoch, error, before, ConflictError, VersionNotLoadedError)
        if error is None:
            state = self.engine.table.state()
            assert (state.active_version, state.tensor_digest) == (version, digest)
            assert before.active_version is None or version >= before.active_version - 1

    @rule(epoch=st.integers(1, 3), version=st.integers(0, 3))
    def discard(self, epoch: int, version: int) -> None:
        before = self.engine.table.state()
        error = self.refused(self.intake.discard(POLICY, version, epoch=epoch))
        is_active = version == before.active_version
        if epoch >= self.newest:
            assert error is (ConflictError if is_active else None)
        self._judge(epoch, error, before, ConflictError)

    def _judge(
        self,
        epoch: int,
        error: type[TroupeError] | None,
        before: PolicyState,
        *allowed: type[TroupeError],
    ) -> None:
        """An earlier epoch is refused and changes nothing; what serves changes by success alone."""
        if epoch < self.newest:
            assert error is FencedError
            assert self.engine.table.state() == before
            return
        self.newest = epoch
        assert error is None or error in allowed
        if error is not None:
            now = self.engine.table.state()
            assert now.active_version == before.active_version
            assert now.tensor_digest == before.tensor_digest

    def _weights(self, epoch: int, version: int) -> tuple[Path, WeightsManifest]:
        """Learnt anew by each epoch, so with other bits."""
        path = self.folder / f"{version}-{epoch}.safetensors"
        if not path.exists():
            save_file({"w": np.array([version, epoch], np.float32)}, path)
        return path, build_manifest(
            path,
            policy=POLICY,
            policy_version=version,
            kind="full",
            adapter_config_json="",
            job_id=JOB,
        )

    async def close(self) -> None:
        await self.intake.close()
        self.staging.close()


def test_ledger_when_histories_are_random_then_it_agrees_with_the_rules(redis_url: str) -> None:
    run_state_machine_as_test(lambda: LedgerMachine(redis_url), settings=SETTINGS)


def test_intake_when_histories_are_random_then_it_agrees_with_the_rules(tmp_path: Path) -> None:
    run_state_machine_as_test(lambda: IntakeMachine(tmp_path), settings=SETTINGS)


SURE = settings(
    SETTINGS,
    max_examples=1000,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    print_blob=False,
)
"""The same histories each time, enough of them to meet what a missing guard lets through."""


def test_ledger_when_a_script_lacks_its_fence_then_a_history_shows_it(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = scripts.COMMIT_VERSION.replace("if newest ~= epoch", "if false")
    monkeypatch.setattr(scripts, "COMMIT_VERSION", text)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(lambda: LedgerMachine(redis_url), settings=SURE)


def test_intake_when_it_forgets_epochs_then_a_history_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WeightReceiver, "_refuse_older", lambda *_: None)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(lambda: IntakeMachine(tmp_path), settings=SURE)


def test_intake_when_it_takes_a_number_for_the_weights_then_a_history_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WeightReceiver, "_check_meant", lambda *_: None)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(lambda: IntakeMachine(tmp_path), settings=SURE)
