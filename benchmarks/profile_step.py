"""Where the time of a step of ``benchmarks.vs_peers`` goes: phases, operations, processes.

Run: ``python -m benchmarks.profile_step [--quick]``, with ``--model smollm2`` or a model's folder.
Two parts: a step in one process under torch's profiler, where every operation of 5 % or more of
the step is listed, and beside it what the matrix products of the step cost alone, by oneDNN and by
MKL, at the step's shapes (the profiler records the calling thread alone, which learns and exports;
the engine samples on a thread of its own, whose operations are not listed: its time is the phases'
alone); and a job of the four services, whose processes' time and peak memory are
read from /proc. The last line is one JSON object; exits 0 whatever it shows.
"""

import argparse
import asyncio
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from transformers.utils import logging as transformers_logging

from benchmarks.peer_own import Plan, generate, group_of, serve, services, spec_of
from benchmarks.report import clean_up_on_sigterm, commit, machine
from benchmarks.vs_peers import model_at
from troupe.algorithms.grpo import Grpo
from troupe.spec.job import JobSpec
from troupe_rollout.engines.cpu import CpuEngine
from troupe_trainer.learn.learner import Learner
from troupe_trainer.model.onednn import product

SHARE = 0.05
"""Of a step's time, from which an operation is listed."""


class Phases:
    """CPU seconds and page faults of each phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.faults: dict[str, int] = {}

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        """Count what is spent meanwhile."""
        began, faults = time.process_time(), _faults()
        yield
        self.seconds[name] = round(time.process_time() - began, 3)
        self.faults[name] = _faults() - faults


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


async def step_in_one_process(model: Path, plan: Plan, folder: Path) -> dict[str, Any]:
    """The last of ``plan.steps`` steps, twice: timed by phase, and under the profiler."""
    spec = JobSpec.model_validate(spec_of(model, plan))
    algorithm = Grpo(spec.algorithm)
    learner, engine = Learner("p", spec, algorithm, device="cpu"), CpuEngine()
    await engine.start(spec.policies)
    texts = plan.prompts()[: plan.prompts_per_step]
    phases = Phases()

    async def step(number: int) -> None:
        with phases.during("push"):
            await serve(learner, engine, number, folder)
        with phases.during("generate"):
            requests, results = await generate(engine, spec, plan, number, texts)
        with phases.during("learn"):
            learner.step(
                [group_of(q, r, algorithm) for q, r in zip(requests, results, strict=True)]
            )

    try:
        for number in range(plan.steps):
            await step(number)
        timed = dict(phases.seconds), dict(phases.faults)
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            await step(plan.steps)
    finally:
        await engine.stop()
    seconds = sum(timed[0].values())
    rows = [
        {"operation": row.key, "calls": row.count, "s": round(row.self_cpu_time_total / 1e6, 2)}
        for row in profiled.key_averages()
        if row.self_cpu_time_total / 1e6 >= SHARE * seconds
    ]
    rows.sort(key=lambda row: -row["s"])
    products = products_alone(learner.model.module, plan)
    return {
        "cpu_s": round(seconds, 2),
        "phases": timed[0],
        "faults": timed[1],
        "learner_and_export": rows,
        "products": products,
    }


def products_alone(module: nn.Module, plan: Plan) -> dict[str, Any]:
    """Seconds and GFLOP/s of the step's matrix products, and nothing else, by either library."""
    shapes: dict[tuple[int, int], int] = {}
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            shape = tuple(layer.weight.shape)
            shapes[shape] = shapes.get(shape, 0) + 1
    trained = plan.k * plan.tokens
    rows = 25 + plan.k * (plan.tokens - 1)
    candidates = plan.k * plan.prompts_per_step
    figures: dict[str, Any] = {}
    for name, multiply in (("onednn", product), ("mkl", nn.functional.linear)):
        learn = generate_s = flops = 0.0
        for (outputs, inputs), count in shapes.items():
            num_rows = trained if outputs > 8 * inputs else rows
            x, y = torch.randn(num_rows, inputs), torch.randn(num_rows, outputs)
            w, drawn = torch.randn(outputs, inputs), torch.randn(candidates, inputs)
            passes = (
                _best(lambda x=x, w=w, of=multiply: of(x, w)),
                _best(lambda y=y, w=w, of=multiply: of(y, w.t())),
                _best(lambda x=x, y=y, of=multiply: of(y.t(), x.t())),
            )
            learn += count * plan.prompts_per_step * sum(passes)
            generate_s += count * plan.tokens * _best(lambda x=drawn, w=w, of=multiply: of(x, w))
            rows_in_all = 3 * plan.prompts_per_step * num_rows + plan.tokens * candidates
            flops += 2.0 * count * outputs * inputs * rows_in_all
        figures[name] = {
            "learn_s": round(learn, 2),
            "decode_s": round(generate_s, 2),
            "gflop_per_s": round(flops / (learn + generate_s) / 1e9),
        }
    return figures


@torch.no_grad()
def _best(call: Callable[[], Any]) -> float:
    """The shortest of three calls after a first one, CPU seconds."""
    call()
    times: list[float] = []
    for _ in range(3):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return min(times)


def main() -> None:
    """Profile both forms and print."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.profile_step")
    parser.add_argument("--model", default="tiny", help="tiny, smollm2, or a model's folder")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--only", choices=("in_process", "services"))
    parser.add_argument("--quick", action="store_true", help="3 steps")
    args = parser.parse_args()
    clean_up_on_sigterm()
    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()
    steps = 3 if args.quick else args.steps
    plan = Plan(steps=steps, warm_up=1)
    result: dict[str, Any] = {
        "benchmark": "profile_step",
        "commit": commit(),
        "machine": machine(),
        "load": os.getloadavg()[0],
        "model": args.model,
        "spec": asdict(plan),
        "n": 1,
        "goals": [],
    }
    with tempfile.TemporaryDirectory(prefix="troupe-profile-") as scratch:
        folder = Path(scratch)
        model = model_at(args.model, folder / "model")
        if args.only != "services":
            one = asyncio.run(step_in_one_process(model, plan, folder))
            result["in_process"] = one
            print(json.dumps(one, indent=1), flush=True)
        if args.only != "in_process":
            figures = services(model, plan, folder)
            measured = steps - 1 - plan.warm_up
            cpu = {name: p["cpu_s"] / measured for name, p in figures["processes"].items()}
            peaks = {name: p["peak_mb"] for name, p in figures["processes"].items()}
            result["services"] = {"cpu_s_a_step": cpu, "peak_mb": peaks}
            print(json.dumps(result["services"], indent=1), flush=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
