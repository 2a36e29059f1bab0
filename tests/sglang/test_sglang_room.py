"""A real SGLang whose key/value cache holds less than the model's context."""

from pathlib import Path

import pytest
from sglang_world import engine_settings, full_policies, push, request

from benchmarks.rollout_fleet import TinyTrainer
from troupe.errors import PromptTooLongError
from troupe_rollout.engines.sglang import SglangEngine


async def test_answer_when_the_cache_is_smaller_than_the_context_then_ends_at_the_room_it_names(
    sglang_model: Path, tmp_path: Path
):
    policies = full_policies(sglang_model)
    engine = SglangEngine(engine_settings(tmp_path / "work", max_total_tokens=128))
    await engine.start(policies)
    try:
        await push(engine, TinyTrainer("p", policies["p"], tmp_path / "out"), 0)
        room = engine._servers[0].context_length
        assert 100 < room < 128
        whole = request(0, prompt=[5] * 60, sampling={"max_new_tokens": 190}, num_candidates=8)
        found = await engine.generate(whole)
        assert max(len(c.token_ids) for c in found.candidates) == room - 60
        assert {c.finish_reason for c in found.candidates} <= {"length", "stop"}
        last = await engine.generate(request(0, prompt=[5] * (room - 1)))
        assert [len(c.token_ids) for c in last.candidates] == [1] * 4
        with pytest.raises(PromptTooLongError, match=f"has {room} here"):
            await engine.generate(request(0, prompt=[5] * room))
    finally:
        await engine.stop()
