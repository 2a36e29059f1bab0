"""Several servers on one GPU: each gets its share of it, whatever the others hold already."""

import asyncio
from pathlib import Path

import pytest

from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.runtime.engines.presets import ModelShape
from troupe.spec.policy import FullSpec, PolicySpec
from troupe_rollout.engines.sglang.command import ServerPlan, beside_others
from troupe_rollout.engines.sglang.environment import Machine
from troupe_rollout.engines.sglang.model import SglangModel
from troupe_rollout.engines.sglang.plan import plan_servers
from troupe_rollout.engines.sglang.settings import SglangSettings
from troupe_rollout.engines.sglang.supervisor import Supervisor

GPU = Machine("cuda", 80 * 10**9)
BASE = SglangModel(
    "m", Path("/m"), None, ModelShape(64, 2, 4, 2, 16, 128, 100, True), 256, (2,), {}
)


def planned(count: int) -> list[ServerPlan]:
    names = [f"p{number}" for number in range(count)]
    spec = PolicySpec(model="m", train=FullSpec(), dtype="bfloat16")
    groups = plan_servers(
        SglangSettings(mem_fraction=0.8),
        GPU,
        dict.fromkeys(names, spec),
        dict.fromkeys(names, BASE),
    )
    return [group.plan for group in groups]


@pytest.mark.parametrize("count", [2, 3])
def test_servers_when_they_share_a_gpu_then_each_gets_its_share_of_the_whole(count: int) -> None:
    free, share = GPU.available_bytes, 0.8 * GPU.available_bytes / count
    for plan in planned(count):
        taken = beside_others(plan, free).mem_fraction * free  # as SGLang computes it
        assert taken == pytest.approx(share, rel=1e-3)
        free -= int(taken)


def test_server_when_alone_on_a_gpu_then_has_the_fraction_itself() -> None:
    [plan] = planned(1)
    assert (plan.mem_fraction, plan.share_bytes) == (0.8, 0)


def test_plan_when_float32_is_for_a_gpu_then_refused_unless_its_kernel_is_named() -> None:
    policies = {"p": PolicySpec(model="m", train=FullSpec(), dtype="float32")}
    bases = {"p": BASE}
    with pytest.raises(InvalidArgumentError, match=r"float32.*bfloat16.*ATTENTION_BACKEND"):
        plan_servers(SglangSettings(), GPU, policies, bases)
    for named in (
        SglangSettings(attention_backend="torch_native"),
        SglangSettings(extra_flags="--attention-backend torch_native"),
    ):
        assert plan_servers(named, GPU, policies, bases)
    assert plan_servers(SglangSettings(), Machine("cpu", 2**34), policies, bases)


async def test_start_when_servers_share_a_gpu_then_one_after_the_other() -> None:
    under_way, seen = list[int](), list[int]()

    class Server(Supervisor):
        async def _bring_up_now(self) -> None:
            under_way.append(1)
            await asyncio.sleep(0)
            seen.append(len(under_way))
            under_way.pop()

    async def restore(client: object) -> None:
        raise AssertionError(client)

    turn, log = asyncio.Lock(), Path("server.log")
    servers = [
        Server(SglangSettings(), plan, log=log, restore=restore, turn=turn) for plan in planned(2)
    ]
    await asyncio.gather(*(server._bring_up() for server in servers))
    assert seen == [1, 1]

    await servers[0].stop()
    with pytest.raises(UnavailableError, match="the engine is stopping"):
        await servers[0]._bring_up()
    assert seen == [1, 1]
