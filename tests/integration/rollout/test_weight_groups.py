"""Groups of torch.distributed: kept from push to push, left by who fails, made anew."""

import asyncio
import itertools
from collections.abc import Callable, Generator

import pytest
from torch import Tensor
from weight_fleet import Fleet

from troupe.errors import OverloadedError, TroupeError, UnavailableError
from troupe.runtime.engines.broadcast import BroadcastWeights
from troupe_rollout.engines.cpu import CpuEngine
from troupe_rollout.engines.cpu.receive import Memberships
from troupe_trainer.publish.broadcast import BroadcastTransport
from troupe_trainer.publish.stream import StreamTransport
from troupe_trainer.publish.transport import Target


async def test_broadcast_with_a_replica_that_fails_is_done_again_with_all_that_lack_it(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
):
    publish = fleet.publisher("distributed", timeout_s=60.0)
    real, calls = Memberships.receive, list[BroadcastWeights]()

    def fail_once(self: Memberships, weights: BroadcastWeights) -> object:
        calls.append(weights)
        if len(calls) == 1:
            raise OverloadedError("Not now.")
        return real(self, weights)

    monkeypatch.setattr(Memberships, "receive", fail_once)
    await publish.publish(fleet.trainer.live(0))
    assert len(calls) == 4, "both again: the group never came together"
    assert await fleet.serving() == [(0, ())] * 2
    await publish.close()


async def test_broadcast_when_one_fails_in_the_middle_then_the_others_do_not_wait_for_it(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
):
    real, calls = Memberships.receive, itertools.count()

    def fail_midway(self: Memberships, weights: BroadcastWeights) -> Generator[tuple[str, Tensor]]:
        coming, call = real(self, weights), next(calls)
        yield next(coming)
        if call == 0:
            coming.close()
            raise OverloadedError("Not now.")
        yield from coming

    monkeypatch.setattr(Memberships, "receive", fail_midway)
    small = BroadcastTransport(
        StreamTransport(), host="127.0.0.1", device="cpu", join_timeout_s=120, bucket_bytes=4096
    )
    publish = fleet.publisher(small, timeout_s=300)
    async with asyncio.timeout(60):
        await publish.publish(fleet.trainer.live(0))
    assert next(calls) == 4, "both again, in another group"
    assert await fleet.serving() == [(0, ())] * 2
    await publish.close()


async def test_groups_when_the_members_stay_then_one_serves_every_push(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
):
    real, groups = Memberships.receive, list[tuple[str, bool]]()

    def note(self: Memberships, weights: BroadcastWeights) -> object:
        groups.append((weights.group.name, weights.group.is_formed))
        return real(self, weights)

    monkeypatch.setattr(Memberships, "receive", note)
    publish = fleet.publisher("distributed", timeout_s=60.0)

    async def push(version: int) -> list[tuple[str, bool]]:
        groups.clear()
        fleet.trainer.learn(version)
        await publish.publish(fleet.trainer.live(version))
        assert await fleet.serving() == [(version, ())] * 2
        return sorted(groups)

    first = (await push(0))[0][0]
    assert groups == [(first, False)] * 2
    for version in (1, 2):
        assert await push(version) == [(first, True)] * 2
    # One that is not in its group any more says so at once, and a new group is formed.
    engine = fleet.replicas[1].engine
    assert isinstance(engine, CpuEngine)
    engine._memberships.close()
    tried = await push(3)
    second = tried[-1][0]
    assert tried == [(first, True)] * 2 + [(second, False)] * 2
    assert await push(4) == [(second, True)] * 2
    # One that comes back as another life makes another group.
    fleet.replicas[0].incarnation = "2"
    assert {is_formed for _, is_formed in await push(5)} == {False}
    await publish.close()


async def test_late_joiner_when_the_trainer_has_learnt_on_then_waits_for_the_next_version(
    fleet: Fleet,
):
    late = fleet.replicas[1]
    late.is_listed = False
    publish = fleet.publisher("distributed")
    await publish.publish(fleet.trainer.live(3))
    fleet.trainer.learn(4)
    late.is_listed = True
    await publish._catch_up("p")
    assert [active for active, _ in await fleet.serving()] == [3, None], "version 3 is no more"
    await publish.publish(fleet.trainer.live(4))
    assert await fleet.serving() == [(4, ())] * 2
    await publish.close()


def test_memberships_when_an_old_receive_ends_late_then_the_group_after_it_is_kept() -> None:
    memberships = Memberships()
    memberships._held["p"] = ("second", object(), object())
    memberships.leave("p", "first")
    assert memberships._held["p"][0] == "second"
    memberships.leave("p", "second")
    assert not memberships._held


async def test_broadcast_when_the_host_is_not_the_trainers_then_says_which_setting(
    fleet: Fleet,
) -> None:
    elsewhere = BroadcastTransport(
        StreamTransport(), host="192.0.2.1", device="cpu", join_timeout_s=1.0
    )
    publish = fleet.publisher(elsewhere, timeout_s=30)
    with pytest.raises(TroupeError, match="TROUPE_TRAINER_ADVERTISE_HOST"):
        await publish.publish(fleet.trainer.live(0))
    await publish.close()


async def test_broadcast_when_the_learner_is_busy_for_longer_then_is_given_up_and_sent_again(
    fleet: Fleet,
) -> None:
    transport = BroadcastTransport(
        StreamTransport(), host="127.0.0.1", device="cpu", join_timeout_s=1.0
    )
    publish = fleet.publisher(transport, timeout_s=30)
    export = fleet.trainer.live(0)
    assert export.live is not None
    real, is_learnt, calls = export.live.on_thread, asyncio.Event(), itertools.count()

    async def busy(work: Callable[[], None]) -> object:
        if next(calls) == 1:  # the check has passed, and a step begins before the first bucket
            await is_learnt.wait()
        return await real(work)

    export.live.on_thread = busy
    targets = [Target(r.name, r.client, r.incarnation) for r in fleet.replicas]
    with pytest.raises(UnavailableError, match="is not done"):
        async with transport.session(export, targets, timeout_s=1.0) as send:
            answers = await asyncio.gather(*map(send, targets), return_exceptions=True)
    assert all(isinstance(answer, TroupeError) for answer in answers)
    is_learnt.set()
    await publish.publish(export)
    assert await fleet.serving() == [(0, ())] * 2
    await publish.close()
