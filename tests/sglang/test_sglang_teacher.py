"""A teacher in a real SGLang: the scores of completions are those of the model itself."""

from collections.abc import Callable
from pathlib import Path

from sglang_world import LORA, PROMPT, engine_settings, push, worst

from benchmarks.rollout_fleet import TinyTrainer
from troupe.spec.policy import PolicySpec
from troupe_rollout.engines.cpu import CpuEngine
from troupe_rollout.engines.sglang import SglangEngine
from troupe_rollout.teachers import hold_teachers

COMPLETIONS = [[4, 8, 15, 16, 23, 42, 2], [11], [4, 8, 2], [9] * 30]


async def test_teacher_when_it_shares_a_server_with_an_adapter_then_scores_as_the_model_alone(
    sglang_model: Path, new_trainer: Callable[..., TinyTrainer], tmp_path: Path
) -> None:
    policy = PolicySpec(
        model=str(sglang_model), train=LORA, teacher=str(sglang_model), teacher_replicas=1
    )
    teacher = policy.served_teacher()
    assert teacher is not None
    cpu, engine = CpuEngine(), SglangEngine(engine_settings(tmp_path / "work"))
    try:
        await cpu.start({"p-teacher": teacher})
        await hold_teachers(cpu, {"p-teacher": teacher})
        want = await cpu.score_completions("p-teacher", 0, PROMPT, COMPLETIONS)
        await engine.start({"p": policy, "p-teacher": teacher})
        await hold_teachers(engine, {"p-teacher": teacher})
        own = new_trainer("p")
        own.learn(3, size=0.3)
        await push(engine, own, 1)
        for completions in (COMPLETIONS, COMPLETIONS[:1], COMPLETIONS):
            got = await engine.score_completions("p-teacher", 0, PROMPT, completions)
            assert [len(scores) for scores in got] == [len(ids) for ids in completions]
            for ours, theirs in zip(got, want, strict=False):
                assert worst(ours, theirs) < 1e-3
        adapted = await engine.score_completions("p", 1, PROMPT, COMPLETIONS)
        assert worst(adapted[0], want[0]) > 0.01
    finally:
        await engine.stop()
        await cpu.stop()
