"""The `sglang` engine on processes that speak SGLang's HTTP shapes (fake_sglang.py)."""

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troupe.candidates import GenerateRequest
from troupe.runtime.engines.engine import StagedWeights
from troupe.spec.job import SamplingSpec
from troupe.spec.policy import LoraSpec, PolicySpec
from troupe_rollout.engines.sglang import SglangEngine
from troupe_rollout.engines.sglang.settings import SglangSettings

FAKE = Path(__file__).with_name("fake_sglang.py")
LORA = LoraSpec(rank=2, alpha=4)


@dataclass
class FakeSglangWorld:
    """An engine on fake servers, and the folder that steers them."""

    folder: Path
    model: Path
    engines: list[SglangEngine]

    def engine(self, **more: Any) -> SglangEngine:
        python = self.folder / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
        python.chmod(0o755)
        values: dict[str, Any] = {
            "python": str(python),
            "device": "cpu",
            "work_dir": str(self.folder / "work"),
            "health_interval_s": 0.05,
            "health_timeout_s": 0.2,
            "backoff_s": 0.05,
            "start_timeout_s": 20.0,
        }
        self.engines.append(SglangEngine(SglangSettings(**{**values, **more})))
        return self.engines[-1]

    async def started(self, **more: Any) -> SglangEngine:
        engine = self.engine(**more)
        await engine.start({"p": PolicySpec(model=str(self.model), train=LORA)})
        return engine

    def calls(self, path: str) -> list[tuple[int, str | None]]:
        """(process, adapter) of every call of one kind."""
        return [(pid, name) for pid, called, name in self._all_calls() if called == path]

    def names(self) -> list[str]:
        """The path of every call, in their order."""
        return [path for _, path, _ in self._all_calls()]

    def _all_calls(self) -> list[tuple[int, str, str | None]]:
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]


def version(weights: StagedWeights, number: int) -> StagedWeights:
    return StagedWeights("p", number, "lora", weights.path, weights.adapter_config_json)


def request(number: int, tokens: int = 4, count: int = 2) -> GenerateRequest:
    return GenerateRequest("p", number, [1, 2, 3], count, SamplingSpec(max_new_tokens=tokens), 0)


async def until(condition: Callable[[], bool], within_s: float = 20) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - what is waited for is another process
            await asyncio.sleep(0.02)
