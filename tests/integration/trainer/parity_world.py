"""Two steps of engine and learner in this process, and how far their probabilities differ."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import torch

from troupe.algorithms.grpo import Grpo
from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import GenerateRequest, Generation, group_outcome
from troupe.runtime.engines.engine import StagedWeights
from troupe.spec.job import JobSpec, SamplingSpec
from troupe_rollout.engines.cpu import CpuEngine
from troupe_trainer.checkpoint.export import export_version
from troupe_trainer.learn.learner import Learner
from troupe_trainer.samples import CreditedGroup, credit

TEMPERATURES = (1.0, 0.7)


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


async def two_steps(
    spec: JobSpec, prompts: Sequence[Sequence[int]], folder: Path
) -> list[tuple[float, float]]:
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
            requests = [
                GenerateRequest("p", step, prompt, 3, _sampling(number), 10 * step + number)
                for number, prompt in enumerate(prompts)
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


def _sampling(number: int) -> SamplingSpec:
    return SamplingSpec(max_new_tokens=12, temperature=TEMPERATURES[number % len(TEMPERATURES)])
