"""Three adapters of one base on one real SGLang server: what is done to one leaves the others."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from sglang_world import CANARY, PROMPT, engine_settings, lora_policies, push, request, until, worst

from benchmarks.rollout_fleet import TinyTrainer
from troupe_rollout.engines.sglang import SglangEngine

NAMES = ("coder", "tester", "judge")
RESTART_S = 240


@pytest.fixture
async def engine(sglang_model: Path, tmp_path: Path) -> AsyncIterator[SglangEngine]:
    found = SglangEngine(engine_settings(tmp_path / "work"))
    await found.start(lora_policies(sglang_model, *NAMES))
    assert len(found._servers) == 1
    yield found
    await found.stop()


async def test_adapters_on_one_server_when_one_is_pushed_and_it_is_killed_then_each_keeps_its_own(
    engine: SglangEngine, new_trainer: Callable[..., TinyTrainer]
):
    trainers = {name: new_trainer(name) for name in NAMES}
    for seed, trainer in enumerate(trainers.values()):
        trainer.learn(seed + 1, size=0.3)
        await push(engine, trainer, 1)

    # Draws of one while another is pushed: seeds fix none on a CPU, so each logprob is compared.
    long = request(1, "coder", sampling={"max_new_tokens": 100}, num_candidates=8)
    running = asyncio.ensure_future(engine.generate(long))
    await until(lambda: engine.num_in_flight() > 0, 10, "a request in flight")
    for version in (2, 3):
        trainers["tester"].learn(version, size=0.3)
        await push(engine, trainers["tester"], version)
    for candidate in (await running).candidates:
        theirs = trainers["coder"].logprobs(PROMPT, candidate.token_ids, 1.0)
        assert worst(theirs.tolist(), candidate.logprobs) < 1e-3

    os.kill(engine._servers[0].pid, signal.SIGKILL)
    await until(lambda: not engine.is_ready(), 10, "the server is gone")
    await until(engine.is_ready, RESTART_S, "the server is back")
    versions = {state.policy: state.active_version for state in engine.policies()}
    assert versions == {"coder": 1, "tester": 3, "judge": 1}
    for name, trainer in trainers.items():
        scores = await engine.score(name, versions[name], CANARY)
        assert worst(scores, trainer.model.score(CANARY)) < 1e-4
