"""Part: attention by segments gives on this device what a mask gives, forward and backward.

Where no GPU is, ATen's operators of flash attention are only checked for shapes. Each path is held
against float64 attention under a mask, with the same rounded inputs, beside PyTorch's own attention
under that mask in the same format: the segments may be twice as far off as that, not more. Then a
whole model's log probabilities and gradients, by segments and by the mask, against float32 on the
CPU.

Shape suffixes: M tokens, H heads, S size of a head.
"""

import random
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.gpu_suite.part import PartOptions, run_part
from benchmarks.random_model import save_random_model
from benchmarks.report import goal
from troupe.candidates import Sample
from troupe.spec.policy import LoraSpec, PolicySpec
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.model.packing import Microbatch, block_of, microbatch
from troupe_trainer.model.segment_attention import Segments
from troupe_trainer.samples import PromptSamples

AS_FAR = 2.0
"""Segments round twice where a mask rounds once: each pass, then both together."""
FLOOR = 1e-6
"""Differences below this are none."""
COSINE = 0.999
"""Least cosine of a whole model's bfloat16 gradient to the float32 one."""


@dataclass(frozen=True)
class HeadCase:
    """Heads of one model, and blocks: the lengths of a prompt and of its completions."""

    heads: tuple[int, int, int]
    blocks: tuple[tuple[int, ...], ...]


LONG = ((350, 256, 130, 1), (700,), (3, 500, 400, 129))
CASES = {
    "qwen3-1.7b": HeadCase((16, 8, 128), LONG),
    "qwen3-8b": HeadCase((32, 8, 128), LONG),
    "qwen2.5-0.5b": HeadCase((14, 2, 64), LONG),
    "one head a group, odd lengths": HeadCase((4, 4, 64), ((1, 1), (5, 3, 2), (129,))),
}
QUICK = {"tiny": HeadCase((4, 2, 16), ((70, 51, 13, 1), (150,), (3, 90, 25)))}


def mask_of(blocks: Sequence[Sequence[int]]) -> Tensor:
    """M x M: which token sees which."""
    size = sum(map(sum, blocks))
    sees = torch.zeros(size, size, dtype=torch.bool)
    first = 0
    for prompt, *rest in blocks:
        start = first
        for number, length in enumerate((prompt, *rest)):
            end = start + length
            sees[start:end, start:end] = torch.ones(length, length).tril().bool()
            if number:
                sees[start:end, first : first + prompt] = True
            start = end
        first = start
    return sees


def masked(heads: Sequence[Tensor], sees: Tensor) -> Tensor:
    """PyTorch's attention under a mask, M x H x S."""
    times = heads[0].shape[1] // heads[1].shape[1]
    query, key, value = (head.transpose(0, 1)[None] for head in heads)
    key, value = (x.repeat_interleave(times, dim=1) for x in (key, value))
    return scaled_dot_product_attention(query, key, value, attn_mask=sees)[0].transpose(0, 1)


def differences(
    found: Sequence[Tensor], wanted: Sequence[Tensor], names: Sequence[str]
) -> dict[str, float]:
    """Root mean square of each difference, relative to that of what is wanted."""
    return {
        name: float((a.double().cpu() - b).square().mean().sqrt() / b.square().mean().sqrt())
        for name, a, b in zip(names, found, wanted, strict=True)
    }


def heads_row(name: str, case: HeadCase, dtype: torch.dtype, device: str) -> dict[str, Any]:
    """How far segments and the mask are off, output and gradients."""
    generator = torch.Generator().manual_seed(0)
    size, (heads, kv_heads, width) = sum(map(sum, case.blocks)), case.heads
    drawn = [torch.randn(size, n, width, generator=generator) for n in (heads, kv_heads, kv_heads)]
    upstream = torch.randn(size, heads, width, generator=generator).to(dtype)
    inputs = [x.to(dtype) for x in drawn]
    sees = mask_of(case.blocks)

    def passes(attend: Any, number: torch.dtype, at: str) -> list[Tensor]:
        leaves = [x.to(at, number).requires_grad_() for x in inputs]
        output = attend(leaves)
        return [
            output.detach(),
            *torch.autograd.grad((output * upstream.to(at, number)).sum(), leaves),
        ]

    wanted = passes(lambda x: masked(x, sees), torch.float64, "cpu")
    on = torch.device(device)
    segments = Segments(case.blocks, on)
    names = ("output", "of_query", "of_key", "of_value")
    own = passes(lambda x: segments.attend(x, None), dtype, device)
    peer = passes(lambda x: masked(x, sees.to(on)), dtype, device)
    by_segments, by_mask = (differences(x, wanted, names) for x in (own, peer))
    worst = max(by_segments[n] / max(by_mask[n], FLOOR) for n in names)
    return {
        "heads": name,
        "dtype": str(dtype).removeprefix("torch."),
        "tokens": size,
        "segments": {n: float(f"{v:.3g}") for n, v in by_segments.items()},
        "mask": {n: float(f"{v:.3g}") for n, v in by_mask.items()},
        "as_far": round(worst, 3),
    }


def batch_of(prompt: int, completions: Sequence[int], vocabulary: int) -> Microbatch:
    """One group of random tokens whose completions share a prompt."""
    rng = random.Random(0)
    samples = [
        Sample(
            index=number,
            reward=0.0,
            num_tokens=length,
            is_truncated=False,
            token_ids=[rng.randrange(4, vocabulary) for _ in range(length)],
            rollout_logprobs=np.zeros(length, dtype=np.float32),
        )
        for number, length in enumerate(completions)
    ]
    tokens = np.array([rng.randrange(4, vocabulary) for _ in range(prompt)], dtype=np.int32)
    return microbatch([block_of(PromptSamples(tokens, samples))])


def model_rows(folder: Path, device: str, scale: int) -> list[dict[str, Any]]:
    """A model's log probabilities and gradients, by each path, against float32 on the CPU."""
    vocabulary = 1000
    model = save_random_model(
        folder / "model", hidden=64 * scale, heads=scale, kv_heads=max(1, scale // 2),
        num_words=vocabulary, context=4096, sharpness=1.0,
    )  # fmt: skip
    batch = batch_of(150 * scale, [100 * scale, 60 * scale, 90 * scale], vocabulary)
    assert batch.segments, "the group must be long enough to be laid out as segments"
    wanted = _passes(model, batch, "float32", "cpu", by_mask=True)
    rows: list[dict[str, Any]] = []
    for dtype in ("float32", "bfloat16"):
        has_kernel = dtype == "bfloat16" or device == "cpu"
        for by_mask in (False, True) if has_kernel else (True,):
            logprobs_N, gradient = _passes(model, batch, dtype, device, by_mask=by_mask)
            off_N = (logprobs_N - wanted[0]).abs()
            rows.append(
                {
                    "model": f"{64 * scale} wide, {len(batch.tokens_M)} tokens",
                    "dtype": dtype,
                    "path": "mask" if by_mask else "segments",
                    "nats_mean": float(f"{float(off_N.mean()):.3g}"),
                    "nats_worst": float(f"{float(off_N.max()):.3g}"),
                    "cosine": round(float(torch.cosine_similarity(gradient, wanted[1], dim=0)), 6),
                }
            )
    return rows


@contextmanager
def under_mask(is_so: bool) -> Generator[None]:
    """Long groups are computed under the mask of trees, as where no kernel takes segments."""
    if not is_so:
        yield
        return
    with patch("troupe_trainer.model.model.computes", lambda *_: False):
        yield


def _passes(
    model: Path, batch: Microbatch, dtype: Any, device: str, *, by_mask: bool
) -> tuple[Tensor, Tensor]:
    """Log probabilities, and the gradient of their sum, on the CPU."""
    spec = PolicySpec(model=str(model), dtype=dtype, train=LoraSpec(rank=8))
    policy = PolicyModel("p", spec, seed=0, device=device)
    with torch.no_grad():  # B begins as zeros, and A would have no gradient
        generator = torch.Generator().manual_seed(1)
        for parameter in policy.trainable().values():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator).to(device)
    with under_mask(by_mask):
        logprobs_N, _ = policy.logprobs(batch, want_entropy_grad=False)
    logprobs_N.sum().backward()
    gradients = [p.grad.flatten() for p in policy.trainable().values() if p.grad is not None]
    return logprobs_N.detach().float().cpu(), torch.cat(gradients).float().cpu()


def measure(options: PartOptions) -> dict[str, Any]:
    """All heads in each format that the kernel takes, then a model."""
    dtypes = [torch.bfloat16, torch.float16 if options.device == "cuda" else torch.float32]
    rows: list[dict[str, Any]] = []
    for name, case in (QUICK if options.quick else CASES).items():
        for dtype in dtypes:
            rows.append(heads_row(name, case, dtype, options.device))
            print(rows[-1], flush=True)
    with tempfile.TemporaryDirectory(prefix="troupe-attention-") as folder:
        models = model_rows(Path(folder), options.device, 2 if options.quick else 8)
    for row in models:
        print(row, flush=True)
    worst = max(row["as_far"] for row in rows)
    half = [row for row in models if row["dtype"] == "bfloat16"]
    by_path = {row["path"]: row["nats_mean"] for row in half}
    apart = by_path["segments"] / max(by_path["mask"], FLOOR)
    cosine = min(row["cosine"] for row in half)
    return {
        "rows": rows,
        "models": models,
        "goals": [
            goal(
                "segments off by so many times the mask's rounding", worst, AS_FAR, worst <= AS_FAR
            ),
            goal(
                "a model's nats by segments over those by the mask", apart, AS_FAR, apart <= AS_FAR
            ),
            goal("cosine of a model's bfloat16 gradient", cosine, COSINE, cosine >= COSINE),
        ],
    }


if __name__ == "__main__":
    run_part(__doc__, measure)
