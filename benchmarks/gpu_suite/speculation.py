"""Part: drafts by prompt lookup: tokens a second with and without, and whether they are sampled.

Where drafts are verified by sampling, a token's surprisal is on average the entropy of the model's
distribution there, which the trainer computes; where the largest probability is accepted instead,
it is far less. The check is over a small random model and prompts that repeat themselves, so that
there are drafts; without one that was accepted it would say nothing, so they are counted, by what
SGLang tells of each completion. On a CPU the engine refuses drafts, so only drawing without them
is tried there.
"""

import asyncio
import json
import math
import statistics
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.gpu_rollout import RATIO_LIMIT
from benchmarks.gpu_suite.environment import sglang_problem
from benchmarks.gpu_suite.part import PartOptions, run_part
from benchmarks.random_model import save_random_model
from benchmarks.report import goal
from benchmarks.rollout_fleet import TinyTrainer
from benchmarks.weight_push import SHAPES
from troupe.candidates import GenerateRequest
from troupe.errors import TroupeError
from troupe.spec.job import SamplingSpec
from troupe.spec.policy import LoraSpec, PolicySpec
from troupe_rollout.engines.sglang import SglangEngine
from troupe_rollout.engines.sglang.client import SglangClient
from troupe_rollout.engines.sglang.settings import load_settings

MOST_ERRORS = 4.0
"""Standard errors between mean surprisal and mean entropy."""
PROMPT = [5, 12, 30, 41, 22, 7] * 8
PROMPTS, K, TOKENS = 16, 16, 64
QUICK_PROMPTS = 4


@dataclass
class Drafts:
    """Verifications, and the draft tokens that they accepted, of all completions."""

    verified: int = 0
    accepted: int = 0

    def note(self, item: dict[str, Any]) -> None:
        """What SGLang tells of one completion; nothing where it drafts nothing."""
        self.verified += item["meta_info"].get("spec_verify_ct", 0)
        self.accepted += item["meta_info"].get("spec_num_correct_drafts", 0)

    @property
    def tokens_each(self) -> float:
        """Tokens of a verification: its own one, and the drafts before it."""
        return 1 + self.accepted / self.verified if self.verified else 1.0

    @contextmanager
    def counted(self) -> Generator[None]:
        """Note the completions of every server meanwhile."""
        real = SglangClient.generate

        async def generate(client: SglangClient, body: dict[str, Any]) -> list[dict[str, Any]]:
            items = await real(client, body)
            for item in items:
                self.note(item)
            return items

        with patch.object(SglangClient, "generate", generate):
            yield


async def drawn(
    speculation: str, model: str, options: PartOptions, folder: Path
) -> tuple[list[tuple[list[int], list[float]]], Drafts, float]:
    """Tokens and log probabilities of each candidate, drafts, and tokens a second."""
    spec = PolicySpec(model=model, train=LoraSpec(rank=16, alpha=32), dtype="bfloat16")
    trainer = TinyTrainer("p", spec, folder / f"out-{speculation}")
    update = {"device": options.device, "work_dir": str(folder / speculation)}
    engine = SglangEngine(load_settings().model_copy(update=update | {"speculation": speculation}))
    sampling = SamplingSpec(max_new_tokens=TOKENS)
    await engine.start({"p": spec})
    try:
        await engine.stage(trainer.staged(0))
        await engine.activate("p", 0)
        seeds = range(QUICK_PROMPTS if options.quick else PROMPTS)
        requests = [GenerateRequest("p", 0, PROMPT, K, sampling, seed) for seed in seeds]
        await engine.generate(requests[0])
        drafts = Drafts()
        with drafts.counted():
            began = time.perf_counter()
            results = await asyncio.gather(*(engine.generate(request) for request in requests))
            wall_s = time.perf_counter() - began
    finally:
        await engine.stop()
    found = [(list(c.token_ids), list(c.logprobs)) for r in results for c in r.candidates]
    return found, drafts, sum(len(tokens) for tokens, _ in found) / wall_s


def errors_of(
    trainer: TinyTrainer, candidates: list[tuple[list[int], list[float]]], prompt: list[int]
) -> dict[str, float]:
    """How far mean surprisal is from mean entropy, and log probabilities from the trainer's."""
    differences: list[float] = []
    ratios: list[float] = []
    for tokens, logprobs in candidates:
        table = trainer.table(prompt, tokens, 1.0)
        entropy = -(table.exp() * table).sum(-1)
        own = table.gather(1, torch.tensor(tokens)[:, None])[:, 0]
        differences += (-own - entropy).tolist()
        ratios += (own - torch.tensor(logprobs)).exp().sub(1).abs().tolist()
    spread = statistics.stdev(differences) / math.sqrt(len(differences))
    return {
        "standard_errors": round(statistics.fmean(differences) / spread, 2),
        "ratio_worst": round(max(ratios), 4),
        "tokens": len(differences),
    }


def measure(options: PartOptions) -> dict[str, Any]:
    """Off and on, over a small model; tokens a second over the given model too."""
    if problem := sglang_problem(options.device):
        return {"skipped": problem, "goals": []}
    with tempfile.TemporaryDirectory(prefix="troupe-drafts-") as scratch:
        folder = Path(scratch)
        small = str(save_random_model(folder / "small", sharpness=2.0, **SHAPES["tiny"]))
        trainer = TinyTrainer(
            "p",
            PolicySpec(model=small, train=LoraSpec(rank=16, alpha=32), dtype="bfloat16"),
            folder / "judge",
        )
        rows: dict[str, Any] = {}
        for speculation in ("off", "ngram"):
            try:
                found, drafts, speed = asyncio.run(drawn(speculation, small, options, folder))
            except TroupeError as error:
                if options.device == "cpu" and speculation == "ngram":
                    return {"skipped": error.message, "rows": rows, "goals": []}
                raise
            rows[speculation] = errors_of(trainer, found, PROMPT) | {
                "tokens_per_s": round(speed),
                "tokens_a_verification": round(drafts.tokens_each, 4),
            }
            print(json.dumps({speculation: rows[speculation]}), flush=True)
        if options.model:
            for speculation in ("ngram", "off"):
                work = folder / f"large-{speculation}"
                _, _, speed = asyncio.run(drawn(speculation, options.model, options, work))
                rows[speculation]["model_tokens_per_s"] = round(speed)
    return {"rows": rows, "goals": goals_of(rows)}


def goals_of(rows: dict[str, Any]) -> list[dict[str, Any]]:
    """That drafts were accepted, that they are samples, and what they are for."""
    drafted = rows["ngram"]
    off, each = abs(drafted["standard_errors"]), drafted["tokens_a_verification"]
    worst, limit = drafted["ratio_worst"], RATIO_LIMIT["bfloat16"]
    speed = "model_tokens_per_s" if "model_tokens_per_s" in drafted else "tokens_per_s"
    ratio = round(drafted[speed] / rows["off"][speed], 3)
    return [
        goal("tokens a verification, above", each, 1.0, each > 1.0),
        goal("standard errors of surprisal to entropy", off, MOST_ERRORS, off <= MOST_ERRORS),
        goal("worst |ratio - 1| with drafts", worst, limit, worst <= limit),
        goal("tokens/s with drafts over without", ratio, 1.0, ratio >= 1.0),
    ]


if __name__ == "__main__":
    run_part(__doc__, measure)
