"""Tokens per second of the cpu engine on the demo's shape, beside transformers' own generate.

Run: ``python -m benchmarks.engine_throughput [--quick]``. The last line is one JSON object.
"""

import argparse
import asyncio
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from benchmarks.random_model import save_random_model
from benchmarks.report import commit
from troupe.candidates import GenerateRequest
from troupe.runtime.engines.engine import StagedWeights
from troupe.spec.job import SamplingSpec
from troupe.spec.policy import PolicySpec
from troupe_rollout.engines.cpu import CpuEngine
from troupe_rollout.engines.cpu.settings import CpuEngineSettings

NUM_CANDIDATES = 8
MAX_NEW_TOKENS = 16


def requests(num_prompts: int) -> list[GenerateRequest[Sequence[int]]]:
    """Prompts of 60 to 119 random tokens, K = 8 candidates each."""
    generator = torch.Generator().manual_seed(0)
    sampling = SamplingSpec(max_new_tokens=MAX_NEW_TOKENS)
    batch: list[GenerateRequest[Sequence[int]]] = []
    for seed in range(num_prompts):
        length = 60 + int(torch.randint(0, 60, (1,), generator=generator))
        prompt = torch.randint(4, 60, (length,), generator=generator).tolist()
        batch.append(GenerateRequest("shared", 0, prompt, NUM_CANDIDATES, sampling, seed))
    return batch


async def engine_rates(
    folder: Path, weights: Path, work: list[GenerateRequest[Sequence[int]]], n: int
):
    """Sampled tokens per second, ``n`` times, all requests at once."""
    engine = CpuEngine(CpuEngineSettings())
    await engine.start({"shared": PolicySpec(model=str(folder))})
    await engine.stage(StagedWeights("shared", 0, "full", weights, ""))
    await engine.activate("shared", 0)
    rates: list[float] = []
    for _ in range(n + 1):
        began = time.perf_counter()
        results = await asyncio.gather(*(engine.generate(request) for request in work))
        wall_s = time.perf_counter() - began
        rates.append(sum(len(c.token_ids) for r in results for c in r.candidates) / wall_s)
    await engine.stop()
    return rates[1:]


def peer_rates(model: Any, work: list[GenerateRequest[Sequence[int]]], n: int) -> list[float]:
    """transformers generate: one left-padded batch of all candidates, the same sampling."""
    width = max(len(request.prompt) for request in work)
    rows = [
        [0] * (width - len(request.prompt)) + list(request.prompt)
        for request in work
        for _ in range(NUM_CANDIDATES)
    ]
    ids = torch.tensor(rows)
    rates: list[float] = []
    for _ in range(n):
        began = time.perf_counter()
        out = model.generate(
            ids, attention_mask=(ids != 0).long(), do_sample=True, temperature=1.0, top_k=0,
            top_p=1.0, max_new_tokens=MAX_NEW_TOKENS, pad_token_id=0,
        )  # fmt: skip
        rates.append(int((out[:, width:] != 0).sum()) / (time.perf_counter() - began))
    return rates


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    n = 3 if parser.parse_args().quick else 10
    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as temporary:
        folder = save_random_model(
            Path(temporary) / "model", hidden=192, layers=4, heads=6, kv_heads=2, context=512
        )
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        weights = Path(temporary) / "weights"
        save_file({k: v.detach().clone() for k, v in model.named_parameters()}, weights)
        work = requests(25)
        rates = asyncio.run(engine_rates(folder, weights, work, n))
        peers = peer_rates(model, work, n)
        num_parameters = sum(p.numel() for p in model.parameters())
    median, peer = statistics.median(rates), statistics.median(peers)
    print(json.dumps(report(median, peer, rates, num_parameters)))


def report(median: float, peer: float, rates: list[float], num_parameters: int) -> dict[str, Any]:
    """The line that the benchmark ends with."""
    return {
        "benchmark": "engine_throughput",
        "commit": commit(),
        "machine": f"{platform.processor() or platform.machine()}, 1 thread",
        "spec": f"{num_parameters} parameters, 25 prompts x {NUM_CANDIDATES}, <= {MAX_NEW_TOKENS}",
        "n": len(rates),
        "tokens_per_s_median": round(median),
        "tokens_per_s_spread": [round(min(rates)), round(max(rates))],
        "peer": "transformers generate, one batch",
        "peer_tokens_per_s_median": round(peer),
        "goals": [
            {
                "name": "times as fast as transformers generate",
                "value": round(median / peer, 2),
                "goal": 1.0,
                "holds": median >= peer,
            }
        ],
    }


if __name__ == "__main__":
    main()
