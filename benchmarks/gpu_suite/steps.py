"""Part: a trainer's step at several shapes: MFU, and peak memory beside its prediction.

The step is the learner's own, over random completions of full length. Each path of attention is
measured where it applies: trees under a mask for short groups, segments for long ones, and the same
long groups under the mask instead; flash attention's packages are left out, with which a trainer
lays out plain sequences and none of these paths. ``mfu`` counts each product of the model once
(troupe_trainer/model/flops.py); memory is ``torch.cuda.max_memory_allocated`` of the step, without
CUDA's context. Without a model, weights are random in the shape of one.
"""

import gc
import json
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from benchmarks.gpu_suite.attention import under_mask
from benchmarks.gpu_suite.part import PartOptions, run_part, synchronize
from benchmarks.random_model import save_random_model
from benchmarks.report import goal
from benchmarks.trainer_step import Shape, random_groups
from troupe.algorithms.at_grpo import AtGrpo
from troupe.errors import TroupeError
from troupe.runtime.engines.presets import ModelShape
from troupe.spec.fit import fit_batch
from troupe.spec.job import JobSpec
from troupe.spec.memory import CONTEXT_BYTES, GB, decoder_shape, trainer_peak
from troupe_trainer.learn.learner import Learner
from troupe_trainer.model.packing import lay_out

MFU_GOAL = 0.35
"""Of long completions and full weights; the project's goal for eight H100 and 8B at 8k."""
MEMORY_WITHIN = 0.1
ROUNDS = 3


@dataclass(frozen=True)
class StepCase:
    """One shape of a step. ``path``: "segments" or "mask" for a long group, "tree" for a short."""

    size: str
    train: dict[str, Any]
    path: Literal["tree", "segments", "mask"]
    num_groups: int
    group_size: int
    prompt: int
    completion: int
    batch: dict[str, Any] = field(default_factory=dict[str, Any])
    is_compiled: bool = False

    @property
    def name(self) -> str:
        """Of the row."""
        shape = f"{self.prompt}+{self.group_size}x{self.completion}"
        more = "".join(f" {k}" for k, v in self.batch.items() if v is True)
        more += NARROW if "tokens_per_row" in self.batch else ""
        more += " compiled" if self.is_compiled else ""
        return f"{self.size} {self.train['kind']} {shape} {self.path}{more}"


NARROW = " in few tokens"
"""Ends the name of a case in passes of 4,096 tokens, beside one of as many as fit."""
LORA = {"kind": "lora", "rank": 32, "alpha": 64}
FULL = {"kind": "full"}
CASES = (
    StepCase("Qwen3-1.7B", LORA, "segments", 8, 8, 512, 1024),
    StepCase("Qwen3-1.7B", FULL, "segments", 8, 8, 512, 1024),
    StepCase("Qwen3-8B", LORA, "segments", 4, 8, 512, 2048),
    StepCase("Qwen3-1.7B", LORA, "tree", 64, 8, 128, 32),
    StepCase("Qwen3-1.7B", LORA, "tree", 64, 8, 128, 32, {"tokens_per_row": 512}),
    StepCase("Qwen3-1.7B", LORA, "segments", 8, 8, 512, 1024, is_compiled=True),
    StepCase("Qwen3-1.7B", LORA, "mask", 8, 8, 512, 1024),
    StepCase("Qwen3-1.7B", LORA, "segments", 4, 4, 1024, 7168),
    StepCase("Qwen3-1.7B", FULL, "segments", 4, 4, 1024, 7168, {"checkpoint_activations": True}),
)
"""Those that tell most come first: whoever has few minutes gets them."""
QUICK = (
    StepCase("tiny", LORA, "tree", 4, 4, 24, 12),
    StepCase("tiny", LORA, "tree", 4, 4, 24, 12, {"tokens_per_row": 16}),
    StepCase("tiny", LORA, "segments", 2, 4, 300, 80),
    StepCase("tiny", LORA, "mask", 2, 4, 300, 80),
    StepCase("tiny", FULL, "segments", 2, 4, 300, 80, {"checkpoint_activations": True}),
)
TINY = ModelShape(64, 2, 4, 2, 16, 168, 68, True, has_qk_norm=True)


def model_of(case: StepCase, options: PartOptions, folder: Path) -> str:
    """The user's model where it has this case's shape, else random weights of that shape."""
    shape = TINY if case.size == "tiny" else decoder_shape(case.size)
    assert shape is not None, case.size
    if options.model and decoder_shape(options.model) == shape:
        return options.model
    made = folder / case.size
    if not made.exists():
        save_random_model(
            made, num_words=shape.vocab - 8, hidden=shape.hidden, layers=shape.layers,
            heads=shape.heads, kv_heads=shape.kv_heads, head_dim=shape.head_dim,
            intermediate=shape.intermediate, tied=shape.is_tied, context=40960, sharpness=1.0,
            dtype="bfloat16", device=options.device,
        )  # fmt: skip
    return str(made)


def spec_of(case: StepCase, model: str) -> JobSpec:
    """The job of one step."""
    return JobSpec.model_validate(
        {
            "name": "steps",
            "steps": 1000,
            "task": {"name": "plan_path"},
            "workflow": {"order": ["a"]},
            "agents": {"a": {"policy": "p"}},
            "policies": {"p": {"model": model, "train": case.train, "dtype": "bfloat16"}},
            "algorithm": {"group_size": case.group_size},
            "sampling": {"max_new_tokens": case.completion},
            "batch": case.batch,
        }
    )


def row_of(case: StepCase, options: PartOptions, folder: Path) -> dict[str, Any]:
    """Steps of one case."""
    asked = spec_of(case, model_of(case, options, folder))
    on_gpu = options.device == "cuda"
    total = torch.cuda.get_device_properties(0).total_memory if on_gpu else 1000 * GB
    batch = fit_batch(asked, total).batch
    spec = asked.model_copy(update={"batch": batch})
    checkpointed = bool(batch.checkpoint_activations)
    with under_mask(case.path == "mask"):
        algorithm = AtGrpo(spec.algorithm)
        learner = Learner(
            "p",
            spec,
            algorithm,
            device=options.device,
            attention="tree",  # "auto" is flash attention where that is installed, for every path
            is_compiled=case.is_compiled,
        )
        groups = random_groups(
            Shape(
                {}, case.train, case.num_groups, case.group_size, case.prompt, case.completion, 0
            ),
            learner.model.vocabulary_size,
        )
        assert learner.model.shares_prompts, "plain sequences, where no path differs"
        layout = lay_out([p for g in groups for p in g.prompts], batch)
        sizes = [sum(len(block.tokens_B) for block in blocks) for blocks in layout]
        seconds, outcome = _timed(learner, groups, options.device)
    del learner
    gc.collect()
    if on_gpu:
        torch.cuda.empty_cache()
    peak = trainer_peak(spec, tokens=max(sizes), checkpoint_activations=checkpointed)
    predicted = None if peak is None else peak - CONTEXT_BYTES
    measured = outcome.peak_memory_bytes
    return {
        "case": case.name,
        "checkpoint_activations": checkpointed,
        "tokens": sum(sizes),
        "largest_microbatch": max(sizes),
        "step_s": round(seconds, 3),
        "tokens_per_s": round(sum(sizes) / seconds),
        "mfu": None if outcome.ideal_s is None else round(outcome.ideal_s / seconds, 4),
        "predicted_gb": predicted and round(predicted / GB, 2),
        "measured_gb": measured and round(measured / GB, 2),
        "off": round(predicted / measured - 1, 4) if on_gpu and predicted and measured else None,
    }


def _timed(learner: Learner, groups: Any, device: str) -> tuple[float, Any]:
    """Median seconds of a step, after one that warms up, and the last outcome."""
    times: list[float] = []
    outcome = learner.step(groups)
    for _ in range(ROUNDS):
        synchronize(device)
        began = time.perf_counter()
        outcome = learner.step(groups)
        synchronize(device)
        times.append(time.perf_counter() - began)
    return statistics.median(times), outcome


def measure(options: PartOptions) -> dict[str, Any]:
    """Cases in turn, while the next is likely to end in time; not those measured before."""
    began, rows, longest = time.monotonic(), list[dict[str, Any]](), 0.0
    before = {row["case"]: row for row in options.before if "error" not in row}
    left_out: list[str] = []
    with tempfile.TemporaryDirectory(prefix="troupe-steps-") as folder:
        for case in QUICK if options.quick else CASES:
            if case.name in before:
                rows.append(before[case.name])
                continue
            started = time.monotonic()
            if started - began + longest > options.seconds:
                left_out.append(case.name)
                continue
            try:
                rows.append(row_of(case, options, Path(folder)))
            except (TroupeError, RuntimeError) as error:  # torch's, out of memory too
                rows.append({"case": case.name, "error": str(error)[:300]})
            print(json.dumps(rows[-1]), flush=True)
            longest = max(longest, time.monotonic() - started)
    unfinished = {"unfinished": f"no time for {'; '.join(left_out)}"} if left_out else {}
    return {"rows": rows, "goals": goals_of(rows), **unfinished}


def goals_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """MFU of full weights; memory of every case; that none failed; the mask against segments."""
    failed = sum("error" in row for row in rows)
    goals = [goal("cases that failed", failed, 0, not failed)]
    full = [row["mfu"] for row in rows if row.get("mfu") and " full " in row["case"]]
    if full:
        goals.append(
            goal("largest mfu of full weights", max(full), MFU_GOAL, max(full) >= MFU_GOAL)
        )
    # A long group's mask is not predicted: the trainer makes none.
    as_trained = [row for row in rows if not row["case"].endswith(" mask")]
    off = [abs(row["off"]) for row in as_trained if row.get("off") is not None]
    if off:
        within = max(off) <= MEMORY_WITHIN
        goals.append(goal("predicted memory off by a share", max(off), MEMORY_WITHIN, within))
    speed = {row["case"]: row["tokens_per_s"] for row in rows if "tokens_per_s" in row}
    for name, value in speed.items():
        if name.endswith(" mask") and (other := speed.get(name[: -len("mask")] + "segments")):
            ratio = round(other / value, 3)
            goals.append(goal(f"segments over mask, {name[:-5]}", ratio, 1.0, ratio >= 1.0))
        if name.endswith(NARROW) and (wide := speed.get(name.removesuffix(NARROW))):
            ratio = round(wide / value, 3)
            goals.append(goal("wide over narrow passes, tokens/s", ratio, 1.0, ratio >= 1.0))
        if name.endswith(" compiled") and (plain := speed.get(name[: -len(" compiled")])):
            ratio = round(value / plain, 3)
            goals.append(goal("compiled over plain, tokens/s", ratio, 1.0, ratio >= 1.0))
    return goals


if __name__ == "__main__":
    run_part(__doc__, measure)
