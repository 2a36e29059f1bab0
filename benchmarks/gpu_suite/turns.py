"""Part: sleep and wake of a server that shares its device with a trainer.

The engine is the colocated one, its server the real SGLang. Each turn: play, sleep, move a trainer
onto the device and off again, wake, prove by scores that the weights are back. Free memory is read
from the driver, so it is what the other side could take. On a CPU the calls free nothing.
"""

import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_suite.environment import sglang_problem
from benchmarks.gpu_suite.part import PartOptions, run_part, synchronize
from benchmarks.random_model import save_random_model
from benchmarks.report import goal
from benchmarks.rollout_fleet import TinyTrainer
from benchmarks.weight_push import SHAPES
from troupe.candidates import GenerateRequest
from troupe.spec.job import SamplingSpec
from troupe.spec.memory import GB
from troupe.spec.policy import FullSpec, LoraSpec, PolicySpec
from troupe_rollout.engines.sglang import SglangEngine
from troupe_rollout.engines.sglang.settings import load_settings
from troupe_trainer.model.relocation import free_cache, relocate

TURNS = 5
ASLEEP_GB = 2.0
"""What may stay: `plan` takes 1.5 GiB and the adapter slots (troupe/spec/sizes.py)."""
WAKE_GOAL_S = 10.0
SAME_NATS = {"float32": 1e-4, "bfloat16": 1e-2}
PROMPT = [5, 12, 30, 41, 22, 7, 9, 6]
CANARY = [(7 * i + 1) % 60 + 4 for i in range(32)]


async def turns_of(kind: str, options: PartOptions, folder: Path) -> dict[str, Any]:
    """Turns of one kind of weights."""
    model = options.model
    if not model:
        shape = "tiny" if options.quick else "0.5b"
        model = str(save_random_model(folder / f"model-{kind}", sharpness=1.0, **SHAPES[shape]))
    dtype: Any = "float32" if options.device == "cpu" else "bfloat16"
    train = LoraSpec(rank=16, alpha=32) if kind == "lora" else FullSpec()
    spec = PolicySpec(model=model, train=train, dtype=dtype)
    trainer = TinyTrainer("p", spec, folder / f"out-{kind}")
    update = {"device": options.device, "colocated": True, "work_dir": str(folder / kind)}
    if options.quick:
        update |= {"max_total_tokens": 4096, "max_running_requests": 16}
    engine = SglangEngine(load_settings().model_copy(update=update))
    rows: list[dict[str, float]] = []
    began = time.perf_counter()
    await engine.start({"p": spec})
    try:
        await engine.wake()
        started_s = time.perf_counter() - began
        trainer.learn(1, size=0.01)  # unlike the files that a server could wake with
        await engine.stage(trainer.staged(0))
        await engine.activate("p", 0)
        for turn in range(2 if options.quick else TURNS):
            rows.append(await _turn(engine, trainer, options.device, turn))
            print(json.dumps({"kind": kind} | rows[-1]), flush=True)
    finally:
        await engine.stop()
    names = ("sleep_s", "trainer_in_s", "trainer_out_s", "wake_s", "awake_gb", "asleep_gb")
    middle = {n: round(statistics.median(row[n] for row in rows), 4) for n in names}
    worst = max(row["nats"] for row in rows)
    return {"kind": kind, "start_s": round(started_s, 1), **middle, "nats": worst, "dtype": dtype}


async def _turn(
    engine: SglangEngine, trainer: TinyTrainer, device: str, seed: int
) -> dict[str, float]:
    """One turn of each side, by the clock."""
    before = await engine.score("p", 0, CANARY)
    sampling = SamplingSpec(max_new_tokens=16)
    await engine.generate(GenerateRequest("p", 0, PROMPT, 4, sampling, seed))
    row: dict[str, float] = {"awake_gb": _used_gb(device)}

    def note(name: str, since: float) -> float:
        now = time.perf_counter()
        row[name] = round(now - since, 4)
        return now

    at = time.perf_counter()
    await engine.sleep()
    at = note("sleep_s", at)
    row["asleep_gb"] = _used_gb(device)
    at = time.perf_counter()
    relocate(trainer.model.modules(), None, lambda tensor: tensor.to(device))
    synchronize(device)
    at = note("trainer_in_s", at)
    relocate(trainer.model.modules(), None, lambda tensor: tensor.to("cpu"))
    free_cache(torch.device(device))
    at = note("trainer_out_s", at)
    await engine.wake()
    note("wake_s", at)
    after = await engine.score("p", 0, CANARY)
    row["nats"] = max(abs(a - b) for a, b in zip(before, after, strict=True))
    return row


def _used_gb(device: str) -> float:
    """What all processes hold of the device."""
    if device == "cpu":
        return 0.0
    free, total = torch.cuda.mem_get_info()
    return round((total - free) / GB, 2)


def measure(options: PartOptions) -> dict[str, Any]:
    """An adapter, then full weights."""
    if problem := sglang_problem(options.device):
        print(problem)
        return {"skipped": problem, "goals": []}
    with tempfile.TemporaryDirectory(prefix="troupe-turns-") as folder:
        rows = [asyncio.run(turns_of(kind, options, Path(folder))) for kind in ("lora", "full")]
    goals: list[dict[str, Any]] = []
    for row in rows:
        kind, limit = row["kind"], SAME_NATS[row["dtype"]]
        goals.append(
            goal(f"{kind}: wake, s", row["wake_s"], WAKE_GOAL_S, row["wake_s"] <= WAKE_GOAL_S)
        )
        same = row["nats"] <= limit
        goals.append(goal(f"{kind}: nats between before and after", row["nats"], limit, same))
        if options.device == "cuda":
            little = row["asleep_gb"] <= ASLEEP_GB
            goals.append(goal(f"{kind}: held asleep, GB", row["asleep_gb"], ASLEEP_GB, little))
    return {"rows": rows, "goals": goals}


if __name__ == "__main__":
    run_part(__doc__, measure)
