"""SGLang on a GPU: pushes by each transport, tokens per second, parity, and the prefix cache.

Run on a machine with a GPU: ``python3.11 scripts/setup_sglang.py --gpu --venv DIR``, then
``TROUPE_ROLLOUT_SGLANG_PYTHON=DIR/bin/python python -m benchmarks.gpu_rollout [--quick]``. The
model has random weights, so nothing is fetched. NCCL needs a second GPU, since trainer and server
can't share one: the trainer takes the first, and this environment a torch that sees it. The last
line is one JSON object. Without a GPU or SGLang it says so there, and exits 0 like every benchmark.
"""

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

from benchmarks.random_model import save_random_model
from benchmarks.report import commit, goal, machine
from benchmarks.rollout_fleet import TinyTrainer
from benchmarks.weight_push import SHAPES, Case, measure
from troupe.candidates import GenerateRequest, Generation
from troupe.errors import TroupeError
from troupe.runtime.engines.engine import Engine
from troupe.spec.job import SamplingSpec
from troupe.spec.policy import LoraSpec, PolicySpec
from troupe_rollout.engines.sglang import SglangEngine
from troupe_rollout.engines.sglang.environment import look_at_machine
from troupe_rollout.engines.sglang.settings import load_settings

K = 8
"""Candidates of a prompt."""
RATIO_LIMIT = {"float32": 0.005, "bfloat16": 0.3}
"""Largest |ratio - 1| of a token between engine and trainer."""


def engine_factory(device: str, *, is_beside_trainer: bool = False) -> Callable[[Path], Engine]:
    """Makes engines with the settings of the environment, on this device.

    ``is_beside_trainer`` leaves the first GPU to the trainer.
    """
    settings = load_settings()
    flags = f"{settings.extra_flags} --base-gpu-id 1" if is_beside_trainer else settings.extra_flags

    def make(folder: Path) -> Engine:
        update = {"device": device, "work_dir": str(folder), "extra_flags": flags}
        return SglangEngine(settings.model_copy(update=update))

    return make


async def generation(
    make: Callable[[Path], Engine], folder: Path, dtype: Any, prompts: int, tokens: int, shape: str
) -> dict[str, Any]:
    """Tokens per second with all prompts at once, parity of each token, and the cache's share."""
    model = folder / f"model-{shape}"
    if not model.exists():
        save_random_model(model, sharpness=1.0, **SHAPES[shape])
    spec = PolicySpec(model=str(model), train=LoraSpec(rank=16, alpha=32), dtype=dtype)
    trainer = TinyTrainer("p", spec, folder / "out-generation")
    engine = make(folder / "work-generation")
    await engine.start({"p": spec})
    try:
        trainer.learn(1, size=0.01)
        await engine.stage(trainer.staged(0))
        await engine.activate("p", 0)
        words = random.Random(0)
        vocab = trainer.model.vocabulary_size
        requests = [
            GenerateRequest(
                "p", 0, [words.randrange(4, vocab) for _ in range(64)], K,
                SamplingSpec(max_new_tokens=tokens), seed,
            )
            for seed in range(prompts)
        ]  # fmt: skip
        await engine.generate(requests[0])
        began = time.perf_counter()
        results = await asyncio.gather(*(engine.generate(request) for request in requests[1:]))
        wall_s = time.perf_counter() - began
    finally:
        await engine.stop()
    sampled = sum(len(c.token_ids) for result in results for c in result.candidates)
    return {
        "tokens_per_s": round(sampled / wall_s, 1),
        "candidates_in_flight": K * (prompts - 1),
        **parity(trainer, requests[1:], results),
        "cached_ratio": round(
            sum(r.num_cached_tokens or 0 for r in results) / (64 * K * len(results)), 4
        ),
        "cached_bound": (K - 1) / K,
    }


def parity(
    trainer: TinyTrainer, requests: list[GenerateRequest[Sequence[int]]], results: list[Generation]
) -> dict[str, float]:
    """The worst |ratio - 1| and the mean k3 estimate of KL(rollout || trainer), over all tokens."""
    logs: list[float] = []
    for request, result in zip(requests[:8], results[:8], strict=True):
        for candidate in result.candidates:
            expected = trainer.logprobs(request.prompt, candidate.token_ids, 1.0).tolist()
            logs += [a - b for a, b in zip(expected, candidate.logprobs, strict=True)]
    ratios = torch.tensor(logs).exp()
    k3 = ratios - 1 - torch.tensor(logs)
    return {
        "ratio_worst": round(float((ratios - 1).abs().max()), 6),
        "kl_mean": float(f"{float(k3.mean()):.3g}"),
    }


async def run(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The whole table."""
    make = engine_factory(args.device)
    rows: list[dict[str, Any]] = []
    ways = [(kind, via) for kind in ("lora", "full") for via in ("grpc", "store")]
    if args.device == "cpu" or torch.cuda.device_count() > 1:
        ways.append(("full", "distributed"))
    for kind, via in ways:
        case = Case(args.shape, kind, args.replicas, via, args.dtype)
        beside = via == "distributed" and args.device == "cuda"
        engines = engine_factory(args.device, is_beside_trainer=beside)
        try:
            rows.append(await measure(case, engines, folder, args.n))
        except TroupeError as error:
            rows.append({"kind": kind, "via": via, "error": error.message})
        print(json.dumps(rows[-1]), flush=True)
    measured = [row["p50_s"] for row in rows if row["kind"] == "lora" and "p50_s" in row]
    pushes = statistics.median(measured) if measured else float("inf")
    goals = [goal("lora push p50_s", pushes, 1.0, pushes <= 1.0)]
    try:
        table = await generation(make, folder, args.dtype, args.prompts, args.tokens, args.shape)
    except Exception as error:  # the pushes are measured, whatever went wrong here
        traceback.print_exc()
        table = {"error": f"{type(error).__name__}: {error}"}
        goals.append(goal("generation was measured", 0, 1, holds=False))
    else:
        worst, limit = table["ratio_worst"], RATIO_LIMIT[args.dtype]
        cached, bound = table["cached_ratio"], table["cached_bound"] - 0.03
        goals.append(goal("worst |ratio - 1|", worst, limit, worst <= limit))
        goals.append(goal("cached ratio", cached, bound, cached >= bound))
    print(json.dumps(table), flush=True)
    unfinished = {"unfinished": table["error"]} if "error" in table else {}
    return {"rows": rows, "generation": table, "goals": goals, **unfinished}


def main() -> None:
    """Look at the machine first; measure where there is something to measure."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.gpu_rollout")
    parser.add_argument("--shape", default="0.5b", choices=sorted(SHAPES))
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16"])
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--n", type=int, default=10, help="pushes of each kind")
    parser.add_argument("--prompts", type=int, default=65)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu: to try it")
    parser.add_argument("--quick", action="store_true", help="tiny, three pushes, few prompts")
    args = parser.parse_args()
    if args.quick:
        args.shape, args.n, args.prompts, args.tokens = "tiny", 3, 9, 16
    transformers_logging.disable_progress_bar()
    report: dict[str, Any] = {"benchmark": "gpu_rollout", "commit": commit(), "machine": machine()}
    report["spec"] = {name: value for name, value in vars(args).items() if name != "quick"}
    try:
        settings = load_settings().model_copy(update={"device": args.device})
        inventory = asyncio.run(look_at_machine(settings))
    except TroupeError as error:
        report |= {"skipped": error.message, "goals": []}
        print(f"Nothing was measured: {error.message}")
    else:
        if args.device == "cuda":
            report["gpu_bytes_free"] = inventory.available_bytes
        with tempfile.TemporaryDirectory(prefix="troupe-gpu-") as scratch:
            report |= asyncio.run(run(args, Path(scratch)))
    print(json.dumps(report))


if __name__ == "__main__":
    main()
