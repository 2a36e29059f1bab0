"""What a teacher's engine thinks of a policy's completions."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from troupe.errors import InvalidArgumentError, VersionNotLoadedError
from troupe.evaluation.bare import stage_bare
from troupe.spec.policy import PolicySpec
from troupe_rollout.engines.cpu import CpuEngine, score

PROMPT = [5, 9, 33, 12, 40, 7, 21]
COMPLETIONS: Sequence[Sequence[int]] = [[4, 8, 15, 16, 23, 42, 2], [11], [4, 8, 2], [9] * 30]


@pytest.fixture
async def teacher(model_dir: Path, tmp_path: Path):
    """An engine that serves a model as it is, as version 0."""
    served = PolicySpec(model="m", teacher=str(model_dir), teacher_replicas=1).served_teacher()
    assert served is not None
    engine = CpuEngine()
    await engine.start({"p-teacher": served})
    await stage_bare(engine, "p-teacher", served.model, tmp_path)
    await engine.activate("p-teacher", 0)
    yield engine
    await engine.stop()


async def test_completions_when_scored_then_are_transformers_on_each_sequence_alone(
    teacher: CpuEngine, model_dir: Path
) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_dir).eval()
    scores = await teacher.score_completions("p-teacher", 0, PROMPT, COMPLETIONS)
    assert [len(s) for s in scores] == [len(c) for c in COMPLETIONS]
    for completion, got in zip(COMPLETIONS, scores, strict=True):
        row = torch.tensor([[*PROMPT, *completion]])
        with torch.no_grad():
            table = torch.log_softmax(model(input_ids=row).logits[0], -1)[len(PROMPT) - 1 : -1]
        want = table.gather(1, row[0, len(PROMPT) :, None])[:, 0].tolist()
        assert got == pytest.approx(want, abs=1e-5)
        alone = await teacher.score("p-teacher", 0, [*PROMPT, *completion])
        assert got == pytest.approx(alone[len(PROMPT) - 1 :], abs=1e-5)
    again = await teacher.score_completions("p-teacher", 0, PROMPT, COMPLETIONS)
    assert again == scores, "the same request has the same bits"


async def test_completions_when_there_is_little_room_then_are_scored_a_few_at_a_time(
    teacher: CpuEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = await teacher.score_completions("p-teacher", 0, PROMPT, COMPLETIONS)
    monkeypatch.setattr(score, "LOGITS", 1)
    parts = await teacher.score_completions("p-teacher", 0, PROMPT, COMPLETIONS)
    for got, want in zip(parts, whole, strict=True):
        assert got == pytest.approx(want, abs=1e-5)


async def test_completions_when_they_can_not_be_scored_then_says_why(teacher: CpuEngine) -> None:
    with pytest.raises(VersionNotLoadedError, match="Version 1 of policy 'p-teacher'"):
        await teacher.score_completions("p-teacher", 1, PROMPT, [[4]])
    with pytest.raises(InvalidArgumentError, match="outside the vocabulary"):
        await teacher.score_completions("p-teacher", 0, PROMPT, [[4], [10**6]])
    with pytest.raises(InvalidArgumentError, match="of the context of"):
        await teacher.score_completions("p-teacher", 0, PROMPT, [[4] * 100_000])
    with pytest.raises(InvalidArgumentError, match="is not served here"):
        await teacher.score_completions("q-teacher", 0, PROMPT, [[4]])
