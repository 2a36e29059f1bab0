"""Groups and specs that the trainer's tests share."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from troupe.api.records.v1 import records_pb2 as pb
from troupe.ids import group_id, prompt_digest, ticket_id, train_round
from troupe.spec.job import JobSpec

VOCABULARY = 48
TINY_SIZES: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
"""Of a model of a few thousand parameters, of any architecture."""
FULL: Mapping[str, Any] = {"kind": "full"}
LORA: Mapping[str, Any] = {"kind": "lora", "rank": 4, "alpha": 8}


def save_tiny_model(folder: Path, *, num_layers: int = 2, vocabulary: int = VOCABULARY) -> Path:
    """A random Qwen3 of a few thousand parameters with tied embeddings and grouped queries."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = Qwen3Config(
        **{**TINY_SIZES, "num_hidden_layers": num_layers, "vocab_size": vocabulary},
        head_dim=8,
        max_position_embeddings=512,
        initializer_range=0.3,
        tie_word_embeddings=True,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


def job_spec(model: Path, **overrides: Any) -> JobSpec:
    policy = {
        "model": str(model),
        "train": {"kind": "lora", "rank": 4, "alpha": 8},
        "optimizer": {"learning_rate": 0.01, "warmup_steps": 2},
    }
    body: dict[str, Any] = {
        "name": "unit",
        "seed": 3,
        "steps": 4,
        "tasks_per_step": 2,
        "task": {"name": "plan_path"},
        "workflow": {"order": ["tool", "planner"]},
        "agents": {"tool": {"policy": "shared"}, "planner": {"policy": "shared"}},
        "policies": {"shared": policy},
        "algorithm": {"group_size": 4},
        "batch": {"tokens_per_row": 64, "rows_per_microbatch": 2},
        "eval": {"num_tasks": 0},  # nobody conducts one here
    }
    return JobSpec.model_validate(body | overrides)


def imitating_spec(model: Path, train: Mapping[str, Any] = FULL, **demonstrations: Any) -> JobSpec:
    """One policy that also imitates 3 demonstrations in each update, with half their weight."""
    policy = {
        "model": str(model),
        "train": train,
        "optimizer": {"learning_rate": 0.01, "warmup_steps": 0, "max_grad_norm": 1e9},
    }
    minibatches = demonstrations.pop("minibatches", 1)
    part = {"path": "shown.jsonl", "per_update": 3, "weight": 0.5, **demonstrations}
    algorithm = {"group_size": 4, "minibatches": minibatches, "demonstrations": part}
    return job_spec(model, algorithm=algorithm, policies={"shared": policy})


def make_group(
    rng: random.Random,
    *,
    step: int = 0,
    task: int = 0,
    agent: str = "tool",
    turn: int = 0,
    size: int = 4,
    version: int | None = None,
    job: str = "unit-1",
    rewards: list[float] | None = None,
) -> pb.Group:
    """One observation group with random tokens and plausible log probabilities."""
    ticket = ticket_id(job, train_round(step), task)
    version = step if version is None else version
    prompt = [rng.randrange(VOCABULARY) for _ in range(rng.randrange(5, 15))]
    digest = prompt_digest(prompt)
    group = pb.Group(
        group_id=group_id(ticket, agent, turn),
        job_id=job,
        step=step,
        task_id=f"train/{task}",
        agent=agent,
        turn=turn,
        policy="shared",
        policy_version=version,
        key=pb.GROUP_KEY_OBSERVATION,
        prompts=[pb.Prompt(digest=digest, token_ids=prompt)],
        ticket_id=ticket,
    )
    for index in range(size):
        length = rng.randrange(1, 7)
        tokens = [rng.randrange(4) for _ in range(length)]
        group.candidates.add(
            index=index,
            token_ids=tokens,
            rollout_logprobs=[-rng.random() * 3 for _ in tokens],
            finish_reason=pb.FINISH_REASON_STOP,
            policy_version=version,
            prompt_digest=digest,
            reward=rewards[index] if rewards else rng.random(),
            turn=turn,
        )
    return group


def groups_of_step(step: int, *, seed: int = 0, tasks: int = 2) -> list[pb.Group]:
    rng = random.Random(f"{seed}/{step}")
    return [
        make_group(rng, step=step, task=task, agent=agent)
        for task in range(tasks)
        for agent in ("tool", "planner")
    ]
