"""Models and jobs of the counts, and groups to learn from."""

from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from benchmarks.trainer_step import Shape, random_groups
from troupe.spec.job import JobSpec
from troupe_trainer.samples import CreditedGroup

VOCABULARY = 48


def save_model(folder: Path, **shape: int) -> Path:
    """A Qwen3 of random bfloat16 weights with a tied head; no tokenizer."""
    torch.manual_seed(0)
    config = Qwen3Config(**{"vocab_size": VOCABULARY} | shape, tie_word_embeddings=True)
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


def job_of(model: Path, train: dict[str, Any], **fields: Any) -> JobSpec:
    """A job of one policy in bfloat16."""
    return JobSpec.model_validate(
        {
            "name": "size",
            "steps": 4,
            "tasks_per_step": 1,
            "task": {"name": "plan_path"},
            "workflow": {"order": ["a"]},
            "agents": {"a": {"policy": "shared"}},
            "policies": {"shared": {"model": str(model), "train": train, "dtype": "bfloat16"}},
            "algorithm": {"group_size": 4},
            "eval": {"num_tasks": 0},
            **fields,
        }
    )


def small_groups(count: int) -> list[CreditedGroup]:
    """Groups of four completions of 6 tokens."""
    return random_groups(Shape({}, {}, count, 4, 6, 6, 0), VOCABULARY)
