"""A step's tokens through four gloo ranks, which the store would refuse above 8 MiB."""

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.trainer_size.receiver import sums
from troupe.candidates import Sample
from troupe_trainer.model.packing import Block, build_block, fill
from troupe_trainer.model.ranks.group import join
from troupe_trainer.model.ranks.start import free_port
from troupe_trainer.model.shares import deal
from troupe_trainer.samples import PromptSamples

RANKS = 4
GROUP, COMPLETION, PROMPT = 8, 1024, 256
VOCABULARY = 151_936
END_S = 60.0


@dataclass(frozen=True)
class SentStep:
    """``tokens`` were sent and ``received``, the least by a rank ``least``; ``is_whole``: so were
    their ids. Peaks are of a process, bytes."""

    tokens: int
    groups: int
    received: int
    least: int
    is_whole: bool
    seconds: float
    first_peak: int
    other_peak: int


def send_step(num_tokens: int) -> SentStep:
    """Send a step of at least ``num_tokens`` trained tokens to ranks that are processes here."""
    url = f"tcp://127.0.0.1:{free_port()}"
    children = _receivers(url)
    try:
        ranks = join(url, 0, RANKS, device="cpu")
        blocks = _blocks(num_tokens)
        tokens = sum(len(b.predictors_N) for b in blocks)
        ids = sum(int(s.token_ids.sum()) for b in blocks for s in b.samples.samples)
        dealt = deal([fill(blocks, 1 << 16)], [tokens], [len(blocks)], RANKS)
        begin = time.monotonic()
        ranks.tell(("p", "_step", (dealt,)))
        seconds = time.monotonic() - begin
        got = torch.stack(ranks.gathered(sums(list(dealt.shares[0])), [5] * RANKS))
        ranks.end()
        assert [child.wait(END_S) for child in children] == [0] * (RANKS - 1)
    finally:
        for child in children:
            child.kill()
            child.wait()
    return SentStep(
        tokens,
        len(blocks),
        int(got[:, 0].sum()),
        int(got[:, 0].min()),
        int(got[:, 1].sum()) == ids,
        seconds,
        int(got[0, 4]),
        int(got[1:, 4].max()),
    )


def _blocks(num_tokens: int) -> list[Block]:
    """Prompts of 256 tokens with 8 completions of 1,024 each."""
    rng = np.random.default_rng(0)
    blocks: list[Block] = []
    for _ in range(-(-num_tokens // (GROUP * COMPLETION))):
        tokens = rng.integers(0, VOCABULARY, (GROUP, COMPLETION), dtype=np.int32)
        logprobs = -rng.random((GROUP, COMPLETION), dtype=np.float32)
        samples = [
            Sample(
                i, 0.0, COMPLETION, False, token_ids=tokens[i], rollout_logprobs=logprobs[i],
                advantage=0.5 - i,
            )
            for i in range(GROUP)
        ]  # fmt: skip
        prompt = rng.integers(0, VOCABULARY, PROMPT, dtype=np.int32)
        blocks.append(build_block(PromptSamples(prompt, samples)))
    return blocks


def _receivers(url: str) -> list["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "benchmarks.trainer_size.receiver", url]
    root = Path(__file__).parents[2]
    return [
        subprocess.Popen([*command, str(rank), str(RANKS)], cwd=root) for rank in range(1, RANKS)
    ]
