"""Troupe beside CoMLRL and TRL: sequences per CPU-second from prompt to applied weights.

Run: ``python scripts/setup_peers.py`` once, then ``python -m benchmarks.vs_peers [--quick]``. All
train the same tiny Qwen2 (all weights) on the same prompts with the same K, tokens and reward, one
agent and one turn, one torch thread, 8 prompts a step; runs are interleaved. Troupe runs twice: its
own parts in one process, and the four services as processes, whose CPU time is added up, Valkey
and router included. Only steps after the warm-up count. The last line is one JSON object; exits 0
whatever it shows.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
import yaml
from transformers.utils import logging as transformers_logging

from benchmarks.peer_task import WRITER, PeerTask, prompt_of, reward_of, save_tiny_qwen2
from benchmarks.report import clean_up_on_sigterm, commit, goal, machine
from troupe.algorithms.grpo import Grpo
from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import GenerateRequest, Generation, group_outcome
from troupe.ids import prompt_digest
from troupe.runtime.engines.engine import StagedWeights
from troupe.spec.job import JobSpec
from troupe.tasks.family import Message
from troupe_rollout.engines.cpu import CpuEngine
from troupe_trainer.checkpoint.export import export_version
from troupe_trainer.learn.learner import Learner
from troupe_trainer.model.peak_memory import peak_bytes
from troupe_trainer.samples import CreditedGroup, credit

REPO = Path(__file__).parent.parent
PEERS = ("comlrl_magrpo", "comlrl_iac", "trl_grpo")
OWN = ("troupe_in_process", "troupe_services")
GOALS = (
    ("troupe_services", "comlrl_magrpo", 2.0),
    ("troupe_services", "trl_grpo", 1.0),
    ("troupe_in_process", "comlrl_magrpo", 3.0),
)
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Plan:
    """What everyone does."""

    steps: int
    warm_up: int
    prompts_per_step: int = 8
    k: int = 4
    tokens: int = 32
    rate: float = 5e-6

    @property
    def sequences(self) -> int:
        """Sequences between the end of the warm-up and the end of the last step but one."""
        return (self.steps - 1 - self.warm_up) * self.prompts_per_step * self.k

    def prompts(self) -> list[str]:
        """One for each episode."""
        rng = Random(0)
        return [prompt_of(rng) for _ in range(self.steps * self.prompts_per_step)]


def spec_of(model: Path, plan: Plan) -> dict[str, Any]:
    """Troupe's job."""
    return {
        "name": "peers",
        "steps": plan.steps,
        "tasks_per_step": plan.prompts_per_step,
        "task": {"name": f"{PeerTask.__module__}:{PeerTask.__name__}"},
        "workflow": {"order": [WRITER], "max_turns": 1},
        "agents": {WRITER: {"policy": "p"}},
        "policies": {
            "p": {
                "model": str(model),
                "train": {"kind": "full"},
                "optimizer": {"learning_rate": plan.rate, "warmup_steps": 0},
            }
        },
        "algorithm": {"kind": "at_grpo", "group_size": plan.k},
        "sampling": {"max_new_tokens": plan.tokens},
        "eval": {"num_tasks": 0},
        # The peers write none either; the last one falls behind the measured steps.
        "checkpoint": {"every": plan.steps},
    }


def peer(name: str, python: Path, model: Path, plan: Plan) -> dict[str, float]:
    """One run in the peers' environment."""
    plan_document = {
        "prompts": plan.prompts(),
        "k": plan.k,
        "tokens": plan.tokens,
        "prompts_per_step": plan.prompts_per_step,
        "steps": plan.steps,
        "warm_up": plan.warm_up,
        "rate": plan.rate,
    }
    script = Path(__file__).with_name("peer_run.py")
    command = ["env", "OMP_NUM_THREADS=1", str(python), str(script), name, str(model)]
    done = subprocess.run(
        [*command, json.dumps(plan_document)],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    if done.returncode:
        raise SystemExit(f"{name} failed: {done.stderr[-1500:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def in_process(model: Path, plan: Plan, folder: Path) -> dict[str, float]:
    """Troupe's engine, advantages and learner in this process, weights handed over by file."""
    return asyncio.run(_in_process(JobSpec.model_validate(spec_of(model, plan)), plan, folder))


async def _in_process(spec: JobSpec, plan: Plan, folder: Path) -> dict[str, float]:
    algorithm = Grpo(spec.algorithm)
    learner = Learner("p", spec, algorithm, device="cpu")
    engine = CpuEngine()
    await engine.start(spec.policies)
    prompts = iter(plan.prompts())
    marks: list[tuple[float, float]] = []
    try:
        for step in range(plan.steps):
            await _serve(learner, engine, step, folder)
            texts = [next(prompts) for _ in range(plan.prompts_per_step)]
            requests = [
                GenerateRequest(
                    "p", step, engine.render("p", [Message("user", text)]), plan.k, spec.sampling, i
                )
                for i, text in enumerate(texts)
            ]
            results = await asyncio.gather(*(engine.generate(request) for request in requests))
            marks.append((time.process_time(), time.perf_counter()))
            groups = [_group(q, r, algorithm) for q, r in zip(requests, results, strict=True)]
            learner.step(groups)
    finally:
        await engine.stop()
    (cpu_0, wall_0), (cpu_1, wall_1) = marks[plan.warm_up], marks[plan.steps - 1]
    peak = (peak_bytes(torch.device("cpu")) or 0) / 2**20
    figures = {"sequences": plan.sequences, "cpu_s": cpu_1 - cpu_0, "wall_s": wall_1 - wall_0}
    return figures | {"peak_mb": peak}


async def _serve(learner: Learner, engine: CpuEngine, version: int, folder: Path) -> None:
    export = export_version(learner, version, folder, job_id="bench")
    await engine.stage(StagedWeights("p", version, "full", export.path, ""))
    await engine.activate("p", version)
    if version > 1:
        await engine.discard("p", version - 2)
    export.path.unlink()


def _group(
    request: GenerateRequest[Sequence[int]], result: Generation, algorithm: Grpo
) -> CreditedGroup:
    digest = prompt_digest(request.prompt)
    prompt = pb.Prompt(digest=digest, token_ids=request.prompt)
    record = pb.Group(group_id=str(request.seed), agent=WRITER, prompts=[prompt])
    for index, candidate in enumerate(result.candidates):
        record.candidates.add(
            index=index,
            trajectory=index,
            token_ids=candidate.token_ids,
            rollout_logprobs=candidate.logprobs,
            prompt_digest=digest,
            reward=reward_of(candidate.text),
        )
    return credit(record, algorithm.advantages(group_outcome(record)), 1.0)


def services(model: Path, plan: Plan, folder: Path) -> dict[str, float]:
    """A whole job on a platform of its own; CPU time and peaks of all its processes."""
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec_of(model, plan)))
    runs = folder / f"runs-{time.monotonic_ns()}"
    command = [sys.executable, "-m", "troupe.cli", "train", str(folder / "spec.yaml"), "--json"]
    log = (folder / "services.log").open("w")
    process = subprocess.Popen(
        ["env", "OMP_NUM_THREADS=1", *command, "--runs-dir", str(runs)],
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=REPO,
    )
    marks: dict[int, tuple[float, float]] = {}
    peak = 0.0
    deadline = time.monotonic() + 900
    try:
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
            done = _steps_done(runs)
            for step in (plan.warm_up, plan.steps - 1):
                if done >= step and step not in marks:
                    family = _family(process.pid)
                    marks[step] = (sum(map(_cpu_s, family)), time.perf_counter())
                    peak = max(peak, sum(map(_peak_mb, family)))
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(120)
        log.close()
    if len(marks) < 2:
        raise SystemExit(f"the services' job failed: {(folder / 'services.log').read_text()}")
    (cpu_0, wall_0), (cpu_1, wall_1) = marks[plan.warm_up], marks[plan.steps - 1]
    figures = {"sequences": plan.sequences, "cpu_s": cpu_1 - cpu_0, "wall_s": wall_1 - wall_0}
    return figures | {"peak_mb": peak}


def _steps_done(runs: Path) -> int:
    files = list(runs.glob("*/metrics.jsonl"))
    return files[0].read_bytes().count(b'"kind":"train"') if files else 0


def _family(pid: int) -> list[int]:
    """All processes that name the run's folder, and those below them; the command line too."""
    parents = {int(p.name): _stat(int(p.name)) for p in Path("/proc").iterdir() if p.name.isdigit()}
    key = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-2]
    family = {pid} | {p for p in parents if key in _read(f"/proc/{p}/cmdline")}
    grown = True
    while grown:
        more = {p for p, fields in parents.items() if fields and int(fields[1]) in family}
        grown = not more <= family
        family |= more
    return sorted(family)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on."""
    return _read(f"/proc/{pid}/stat").decode().rpartition(") ")[2].split()


def _cpu_s(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) * TICK_S if fields else 0.0


def _peak_mb(pid: int) -> float:
    for line in _read(f"/proc/{pid}/status").decode().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def row_of(name: str, runs: list[dict[str, float]]) -> dict[str, Any]:
    """Medians over the runs."""
    rates = [run["sequences"] / run["cpu_s"] for run in runs]
    return {
        "name": name,
        "n": len(runs),
        "sequences_per_cpu_s": round(statistics.median(rates), 2),
        "spread": [round(min(rates), 2), round(max(rates), 2)],
        "sequences_per_s": round(statistics.median(r["sequences"] / r["wall_s"] for r in runs), 2),
        "peak_mb": round(max(run["peak_mb"] for run in runs)),
    }


def main() -> None:
    """Interleave the runs and compare."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.vs_peers")
    parser.add_argument("--venv", type=Path, default=REPO / ".venv-peers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--only", default=",".join((*PEERS, *OWN)))
    parser.add_argument("--quick", action="store_true", help="one round of six steps")
    args = parser.parse_args()
    clean_up_on_sigterm()
    if args.quick:
        args.rounds, args.steps = 1, 6
    python = args.venv / "bin" / "python"
    names = args.only.split(",")
    if not python.exists():
        print(f"no {python}: the peers are left out; run scripts/setup_peers.py", file=sys.stderr)
        names = [name for name in names if name in OWN]
    plan = Plan(steps=args.steps, warm_up=1 if args.quick else 3)
    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="troupe-peers-") as scratch:
        folder = Path(scratch)
        model = save_tiny_qwen2(folder / "model")
        runners: dict[str, Callable[[], dict[str, float]]] = {
            "troupe_in_process": lambda: in_process(model, plan, folder),
            "troupe_services": lambda: services(model, plan, folder),
        }
        for _ in range(args.rounds):
            for name in names:
                run = runners.get(name) or (lambda name=name: peer(name, python, model, plan))
                figures[name].append(run())
                print(json.dumps({"run": name, **figures[name][-1]}), flush=True)
    rows = {name: row_of(name, runs) for name, runs in figures.items()}
    rates = {name: row["sequences_per_cpu_s"] for name, row in rows.items()}
    goals = [
        goal(f"{a} over {b}", round(rates[a] / rates[b], 2), wanted, rates[a] >= wanted * rates[b])
        for a, b, wanted in GOALS
        if a in rates and b in rates
    ]
    result = {
        "benchmark": "vs_peers",
        "commit": commit(),
        "machine": machine(),
        "load": os.getloadavg()[0],
        "spec": plan.__dict__ if hasattr(plan, "__dict__") else str(plan),
        "n": args.rounds,
        "rows": list(rows.values()),
        "goals": goals,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
