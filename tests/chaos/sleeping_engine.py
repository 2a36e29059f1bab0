"""The `cpu` engine behind the states of `sglang`'s device: it answers nothing in its sleep."""

from collections.abc import Sequence
from typing import Any

from troupe.candidates import GenerateRequest, Generation
from troupe.runtime.engines.engine import StagedWeights
from troupe.runtime.faults import reached
from troupe.tasks.content import ImagePart
from troupe_rollout.engines.cpu import CpuEngine
from troupe_rollout.engines.sglang.turns import DeviceTurns


class Memory:
    """What a server does with the device's memory."""

    async def release(self) -> None:
        """Nothing is on a device here."""

    async def resume(self) -> None:
        """The moment between the memory and what was in it."""
        reached("rollout.resumed")


class SleepingCpuEngine:
    """An engine that serves only in its turns; see `DeviceTurns`."""

    name = "sleeping"

    def __init__(self) -> None:
        self._cpu = CpuEngine()
        self._turns = DeviceTurns(is_colocated=True, drain_timeout_s=60.0)
        self._turns.of([Memory()])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cpu, name)

    async def sleep(self) -> None:
        await self._turns.sleep()

    async def wake(self) -> None:
        await self._turns.wake()

    async def generate(self, request: GenerateRequest[Sequence[int]]) -> Generation:
        async with self._turns.user():
            return await self._cpu.generate(request)

    async def score(
        self,
        policy: str,
        policy_version: int,
        token_ids: Sequence[int],
        images: Sequence[ImagePart] = (),
    ) -> list[float]:
        async with self._turns.user(waits=False):
            return await self._cpu.score(policy, policy_version, token_ids, images)

    async def score_completions(
        self,
        policy: str,
        policy_version: int,
        prompt: Sequence[int],
        completions: Sequence[Sequence[int]],
    ) -> list[list[float]]:
        async with self._turns.user():
            return await self._cpu.score_completions(policy, policy_version, prompt, completions)

    async def stage(self, weights: StagedWeights) -> str:
        async with self._turns.user(waits=False):
            return await self._cpu.stage(weights)

    async def activate(self, policy: str, policy_version: int) -> None:
        async with self._turns.user(waits=False):
            await self._cpu.activate(policy, policy_version)

    async def stop(self) -> None:
        await self._turns.close()
        await self._cpu.stop()
