"""Troupe's two runs of ``benchmarks.vs_peers``: its parts in one process, and the four services."""

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
import yaml
from transformers.utils import logging as transformers_logging

from benchmarks.peer_task import WRITER, PeerTask, prompt_of, reward_of
from benchmarks.processes import cpu_s, family, name_of, peak_mb
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
from troupe_trainer.samples import CreditedGroup, credit

REPO = Path(__file__).parent.parent


@dataclass(frozen=True)
class Plan:
    """What everyone does."""

    steps: int
    warm_up: int
    prompts_per_step: int = 8
    k: int = 4
    tokens: int = 32
    rate: float = 5e-6
    timeout_s: float = 900.0

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
        "limits": {"generate_timeout_s": 600, "startup_timeout_s": 600},
    }


def in_process(model: Path, plan: Plan, folder: Path) -> dict[str, Any]:
    """Troupe's engine, advantages and learner in one process, weights handed over by file.

    The process is a new one, so that its peak is its own.
    """
    command = [sys.executable, "-m", __name__, str(model), json.dumps(asdict(plan)), str(folder)]
    done = subprocess.run(
        ["env", "OMP_NUM_THREADS=1", *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPO,
        timeout=plan.timeout_s,
    )
    if done.returncode:
        raise SystemExit(f"troupe_in_process failed: {done.stderr[-1500:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def _main(model: str, plan_json: str, folder: str) -> None:
    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()
    plan = Plan(**json.loads(plan_json))
    print(json.dumps(_run(Path(model), plan, Path(folder))))


def _run(model: Path, plan: Plan, folder: Path) -> dict[str, Any]:
    return asyncio.run(_in_process(JobSpec.model_validate(spec_of(model, plan)), plan, folder))


async def _in_process(spec: JobSpec, plan: Plan, folder: Path) -> dict[str, Any]:
    algorithm = Grpo(spec.algorithm)
    learner = Learner("p", spec, algorithm, device="cpu")
    engine = CpuEngine()
    await engine.start(spec.policies)
    prompts = iter(plan.prompts())
    marks: list[tuple[float, float]] = []
    tokens, rewards = list[int](), list[float]()
    try:
        for step in range(plan.steps):
            await serve(learner, engine, step, folder)
            texts = [next(prompts) for _ in range(plan.prompts_per_step)]
            requests, results = await generate(engine, spec, plan, step, texts)
            marks.append((time.process_time(), time.perf_counter()))
            tokens += [sum(len(c.token_ids) for r in results for c in r.candidates)]
            groups = [group_of(q, r, algorithm) for q, r in zip(requests, results, strict=True)]
            rewards.append(_mean_reward(results))
            learner.step(groups)
    finally:
        await engine.stop()
    (cpu_0, wall_0), (cpu_1, wall_1) = marks[plan.warm_up], marks[plan.steps - 1]
    figures = {"sequences": plan.sequences, "cpu_s": cpu_1 - cpu_0, "wall_s": wall_1 - wall_0}
    measured = sum(tokens[plan.warm_up : plan.steps - 1])
    return figures | {"tokens": measured, "peak_mb": peak_mb(os.getpid()), "rewards": rewards}


Requests = Sequence[GenerateRequest[Sequence[int]]]


async def generate(
    engine: CpuEngine, spec: JobSpec, plan: Plan, version: int, texts: Sequence[str]
) -> tuple[Requests, Sequence[Generation]]:
    """Completions of all prompts of a step."""
    requests = [
        GenerateRequest(
            "p", version, engine.render("p", [Message("user", text)]), plan.k, spec.sampling, i
        )
        for i, text in enumerate(texts)
    ]
    return requests, await asyncio.gather(*(engine.generate(request) for request in requests))


def _mean_reward(results: Sequence[Generation]) -> float:
    rewards = [reward_of(c.text) for result in results for c in result.candidates]
    return statistics.fmean(rewards)


async def serve(learner: Learner, engine: CpuEngine, version: int, folder: Path) -> None:
    """Hand the learner's weights to the engine."""
    export = export_version(learner, version, folder, job_id="bench")
    await engine.stage(StagedWeights("p", version, "full", export.path, ""))
    await engine.activate("p", version)
    if version:
        await engine.discard("p", version - 1)
    export.path.unlink()


def group_of(
    request: GenerateRequest[Sequence[int]], result: Generation, algorithm: Grpo
) -> CreditedGroup:
    """The candidates of one prompt with their advantages."""
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


def services(model: Path, plan: Plan, folder: Path) -> dict[str, Any]:
    """A whole job on a platform of its own; CPU time and peaks of all its processes."""
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec_of(model, plan)))
    runs = folder / f"runs-{time.monotonic_ns()}"
    command = [sys.executable, "-m", "troupe.cli", "train", str(folder / "spec.yaml"), "--json"]
    log = (folder / "services.log").open("w")
    process = subprocess.Popen(
        ["env", "OMP_NUM_THREADS=1", *command, "--ports", "auto", "--runs-dir", str(runs)],
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=REPO,
    )
    marks: dict[int, tuple[dict[int, float], float]] = {}
    names: dict[int, str] = {}
    peaks: dict[int, float] = {}
    deadline = time.monotonic() + plan.timeout_s
    try:
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
            done = _steps_done(runs)
            for step in (plan.warm_up, plan.steps - 1):
                if done >= step and step not in marks:
                    members = family(process.pid)
                    marks[step] = ({pid: cpu_s(pid) for pid in members}, time.perf_counter())
                    peaks = {pid: peak_mb(pid) for pid in members}
                    names |= {pid: name_of(pid) for pid in members}
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(120)
        log.close()
    if len(marks) < 2:
        raise SystemExit(f"the services' job failed: {(folder / 'services.log').read_text()}")
    (cpu_0, wall_0), (cpu_1, wall_1) = marks[plan.warm_up], marks[plan.steps - 1]
    spent = {pid: cpu_1[pid] - cpu_0.get(pid, 0.0) for pid in cpu_1}
    figures = {
        "sequences": plan.sequences,
        "cpu_s": sum(cpu_1.values()) - sum(cpu_0.values()),
        "wall_s": wall_1 - wall_0,
        "peak_mb": sum(peaks.values()),
        "processes": {
            name: {
                "cpu_s": round(sum(spent[pid] for pid in spent if names[pid] == name), 2),
                "peak_mb": round(sum(peaks[pid] for pid in peaks if names[pid] == name)),
            }
            for name in sorted(set(names.values()))
        },
    }
    lines = [line for line in _metrics(runs) if line["kind"] == "train"]
    tokens = sum(line["num_tokens"] for line in lines[plan.warm_up : plan.steps - 1])
    rewards = [line["reward_mean"] for line in lines]
    return figures | {"tokens": tokens, "rewards": rewards}


def _steps_done(runs: Path) -> int:
    files = list(runs.glob("*/metrics.jsonl"))
    return files[0].read_bytes().count(b'"kind":"train"') if files else 0


def _metrics(runs: Path) -> list[dict[str, Any]]:
    [file] = runs.glob("*/metrics.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


if __name__ == "__main__":
    _main(*sys.argv[1:])
