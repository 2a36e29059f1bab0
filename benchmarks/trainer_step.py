"""A trainer's step beside a bare loop: the same tokens of the same model, forward and backward.

Run: ``python -m benchmarks.trainer_step [--quick]``. The step is the real learner's: layout, masks,
log probabilities, loss, clipping and AdamW. The bare loop runs transformers' own forward, a cross
entropy and a backward over the tokens that the step computes, in rows of ``tokens_per_row``,
already made and on the device, with causal attention. Both are interleaved. Beside it: the same
completions one a row, padded, as trainers without packing lay them out. The last line is one JSON
object; exits 0 whatever it shows.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from benchmarks.random_model import save_random_model
from benchmarks.report import commit, goal, machine
from troupe.algorithms.at_grpo import AtGrpo
from troupe.api.records.v1 import records_pb2 as pb
from troupe.ids import prompt_digest
from troupe.spec.job import JobSpec
from troupe_trainer.learn.learner import Learner
from troupe_trainer.model.packing import Microbatch, pack
from troupe_trainer.model.peak_memory import peak_bytes, reset_peak
from troupe_trainer.samples import CreditedGroup, credit

GOAL = 0.8


@dataclass(frozen=True)
class Shape:
    """One model and one batch of it."""

    model: dict[str, Any]
    train: dict[str, Any]
    num_groups: int
    group_size: int
    prompt: int
    completion: int
    tokens_per_row: int


SHAPES = {
    "tiny-full": Shape(
        {"hidden": 128, "layers": 4, "heads": 4, "kv_heads": 2, "num_words": 1000, "context": 512},
        {"kind": "full"},
        num_groups=32,
        group_size=8,
        prompt=48,
        completion=32,
        tokens_per_row=512,
    ),
    "tiny-lora": Shape(
        {"hidden": 128, "layers": 4, "heads": 4, "kv_heads": 2, "num_words": 1000, "context": 512},
        {"kind": "lora", "rank": 16},
        num_groups=32,
        group_size=8,
        prompt=48,
        completion=32,
        tokens_per_row=512,
    ),
    "small-full": Shape(
        {"hidden": 384, "layers": 6, "heads": 6, "kv_heads": 2, "num_words": 8000, "context": 1024},
        {"kind": "full"},
        num_groups=8,
        group_size=8,
        prompt=128,
        completion=64,
        tokens_per_row=1024,
    ),
}


def measure(name: str, shape: Shape, folder: Path, n: int) -> dict[str, Any]:
    """Interleaved times of both loops over one batch."""
    model = save_random_model(folder / name, sharpness=1.0, **shape.model)
    spec = _spec(model, shape)
    learner = Learner("p", spec, AtGrpo(spec.algorithm), device="cpu")
    groups = random_groups(shape, learner.model.vocabulary_size)
    prompts = [prompt for group in groups for prompt in group.prompts]
    batches = list(pack(prompts, spec.batch))
    packed_tokens = sum(len(batch.tokens_M) for batch in batches)
    causal = AutoModelForCausalLM.from_pretrained(model)
    bare = _bare(
        _as_trained(causal, spec), [_on_device(batch, shape.tokens_per_row) for batch in batches]
    )
    padded = _bare(causal, _padded(groups))
    runs: dict[str, Callable[[], Any]] = {
        "step": lambda: learner.step(groups),
        "bare": bare,
        "padded": padded,
    }
    times: dict[str, list[float]] = {kind: [] for kind in runs}
    peaks: dict[str, int] = {}
    device = torch.device("cpu")
    for turn in range(n + 1):
        for kind, run in runs.items():
            reset_peak(device)
            began = time.process_time()
            run()
            if turn:
                times[kind].append(time.process_time() - began)
                peaks[kind] = max(peaks.get(kind, 0), peak_bytes(device) or 0)
    ratios = [b / s for b, s in zip(times["bare"], times["step"], strict=True)]
    return {
        "shape": name,
        "n": n,
        "parameters": sum(p.numel() for p in causal.parameters()),
        "packed_tokens": packed_tokens,
        "sequence_tokens": sum(
            len(p.prompt) + len(s.token_ids) for p in prompts for s in p.samples
        ),
        "cpu_s": {kind: round(statistics.median(seconds), 4) for kind, seconds in times.items()},
        "tokens_per_s": {
            kind: round(packed_tokens / statistics.median(seconds))
            for kind, seconds in times.items()
        },
        "ratio_to_bare": round(statistics.median(ratios), 3),
        "ratio_spread": [round(min(ratios), 3), round(max(ratios), 3)],
        "speed_up_over_padded": round(
            statistics.median(times["padded"]) / statistics.median(times["step"]), 2
        ),
        "peak_memory_mb": {kind: round(peak / 2**20) for kind, peak in peaks.items()},
    }


def _spec(model: Path, shape: Shape) -> JobSpec:
    return JobSpec.model_validate(
        {
            "name": "bench",
            "steps": 1000,
            "task": {"name": "plan_path"},
            "workflow": {"order": ["a"]},
            "agents": {"a": {"policy": "p"}},
            "policies": {"p": {"model": str(model), "train": shape.train}},
            "algorithm": {"group_size": shape.group_size},
            "batch": {"tokens_per_row": shape.tokens_per_row},
        }
    )


def random_groups(shape: Shape, vocabulary: int) -> list[CreditedGroup]:
    """Random completions that share nothing but the prompt, all of full length."""
    rng = random.Random(0)
    groups: list[CreditedGroup] = []
    for number in range(shape.num_groups):
        prompt = [rng.randrange(4, vocabulary) for _ in range(shape.prompt)]
        digest = prompt_digest(prompt)
        record = pb.Group(
            group_id=f"g{number}", agent="a", prompts=[pb.Prompt(digest=digest, token_ids=prompt)]
        )
        for index in range(shape.group_size):
            record.candidates.add(
                index=index,
                token_ids=[rng.randrange(4, vocabulary) for _ in range(shape.completion)],
                rollout_logprobs=[-6.9] * shape.completion,
                prompt_digest=digest,
            )
        advantages = [rng.gauss(0.0, 1.0) for _ in range(shape.group_size)]
        groups.append(credit(record, advantages, 1.0))
    return groups


def _as_trained(model: Any, spec: JobSpec) -> Any:
    """The same model with the parameters that the spec trains."""
    train = spec.policies["p"].train
    if train.kind == "full":
        return model
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=train.rank, lora_alpha=32, target_modules=train.targets)
    return get_peft_model(AutoModelForCausalLM.from_pretrained(spec.policies["p"].model), config)


def _on_device(batch: Microbatch, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The micro-batch's tokens in equal rows of about ``width``; a few are left over."""
    num_rows = max(1, round(len(batch.tokens_M) / width))
    usable = len(batch.tokens_M) // num_rows * num_rows
    rows = torch.from_numpy(batch.tokens_M[:usable]).view(num_rows, -1)
    return rows, torch.ones_like(rows)


def _padded(groups: Sequence[CreditedGroup]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """One completion a row after its prompt, a group in a forward pass."""
    return [(tokens := _rows(group), torch.ones_like(tokens)) for group in groups]


def _rows(group: CreditedGroup) -> torch.Tensor:
    (prompt,) = group.prompts
    return torch.tensor([[*prompt.prompt.tolist(), *s.token_ids] for s in prompt.samples])


def _bare(model: Any, inputs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> Callable[[], None]:
    """Forward with its loss, backward; no optimizer and no metrics."""
    model.eval()

    def run() -> None:
        for tokens, mask in inputs:
            loss = model(input_ids=tokens, attention_mask=mask, labels=tokens, use_cache=False).loss
            loss.backward()
        for parameter in model.parameters():
            parameter.grad = None

    return run


def main() -> None:
    """Measure every shape and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.trainer_step")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--n", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="the tiny shapes, three rounds")
    args = parser.parse_args()
    if args.quick:
        args.shapes, args.n = "tiny-full,tiny-lora", 3
    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="troupe-step-") as scratch:
        for name in args.shapes.split(","):
            rows.append(measure(name, SHAPES[name], Path(scratch), args.n))
            print(json.dumps(rows[-1]), flush=True)
    print(json.dumps(last_line(rows, args.n)))


def last_line(rows: list[dict[str, Any]], n: int) -> dict[str, Any]:
    """All shapes in one line; ``median`` and ``spread`` are of the ratio that has a goal."""
    goals = [
        goal(
            f"{row['shape']}: packed tokens/s over those of a bare loop",
            row["ratio_to_bare"],
            GOAL,
            row["ratio_to_bare"] >= GOAL,
        )
        for row in rows
    ]
    return {
        "benchmark": "trainer_step",
        "commit": commit(),
        "machine": machine(),
        "threads": 1,
        "spec": {row["shape"]: asdict(SHAPES[row["shape"]]) for row in rows},
        "n": n,
        "median": {row["shape"]: row["ratio_to_bare"] for row in rows},
        "spread": {row["shape"]: row["ratio_spread"] for row in rows},
        "rows": rows,
        "goals": goals,
    }


if __name__ == "__main__":
    main()
