"""A step and a state of real size through four gloo ranks, which the store refuses above 8 MiB."""

import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ranks_receiver import sums
from ranks_world import load, started_ranks
from trainer_data import job_spec, make_group
from transformers import Qwen3Config, Qwen3ForCausalLM

from troupe.algorithms.at_grpo import AtGrpo
from troupe.candidates import Sample
from troupe_trainer.checkpoint.files import CheckpointContents, Checkpoints
from troupe_trainer.learn.learner import Learner
from troupe_trainer.model.packing import Block, build_block, fill
from troupe_trainer.model.ranks.group import join
from troupe_trainer.model.ranks.start import free_port
from troupe_trainer.model.shares import deal
from troupe_trainer.samples import PromptSamples, credit

RANKS = 4
GROUP, COMPLETION, PROMPT = 8, 1024, 256
MEBI = 1 << 20
SLACK = 200 * MEBI
"""What a rank may need beside its part: buffers of the largest tensor, and of the allocator."""


def _blocks(num_tokens: int) -> list[Block]:
    """Prompts of 256 tokens with 8 completions of 1,024 each, ``num_tokens`` trained in all."""
    rng = np.random.default_rng(0)
    blocks: list[Block] = []
    for _ in range(-(-num_tokens // (GROUP * COMPLETION))):
        tokens = rng.integers(0, 151_936, (GROUP, COMPLETION), dtype=np.int32)
        logprobs = -rng.random((GROUP, COMPLETION), dtype=np.float32)
        samples = [
            Sample(
                i, 0.0, COMPLETION, False, token_ids=tokens[i], rollout_logprobs=logprobs[i],
                advantage=0.5 - i,
            )
            for i in range(GROUP)
        ]  # fmt: skip
        prompt = rng.integers(0, 151_936, PROMPT, dtype=np.int32)
        blocks.append(build_block(PromptSamples(prompt, samples)))
    return blocks


def _receivers(url: str) -> list["subprocess.Popen[bytes]"]:
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    script = str(Path(__file__).parents[2] / "ranks_receiver.py")
    return [
        subprocess.Popen(
            [sys.executable, script, url, str(rank), str(RANKS)],
            env=os.environ | {"PYTHONPATH": path},
        )
        for rank in range(1, RANKS)
    ]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("millions", [50])
def test_step_of_50_million_tokens_when_sent_to_four_ranks_then_each_gets_its_share(
    millions: int,
) -> None:
    url = f"tcp://127.0.0.1:{free_port()}"
    children = _receivers(url)
    try:
        ranks = join(url, 0, RANKS, device="cpu")
        blocks = _blocks(millions * 1_000_000)
        want_tokens = sum(len(b.predictors_N) for b in blocks)
        want_ids = sum(int(s.token_ids.sum()) for b in blocks for s in b.samples.samples)
        dealt = deal([fill(blocks, 1 << 16)], [want_tokens], [len(blocks)], RANKS)
        begin = time.monotonic()
        ranks.tell(("p", "_step", (dealt,)))
        sent_s = time.monotonic() - begin
        found = torch.stack(ranks.gathered(sums(list(dealt.shares[0])), [5] * RANKS))
        ranks.end()
        assert [child.wait(60) for child in children] == [0] * (RANKS - 1)
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert want_tokens >= millions * 1_000_000
    assert int(found[:, 0].sum()) == want_tokens
    assert int(found[:, 1].sum()) == want_ids
    assert found[:, 0].min() > 0.9 * want_tokens / RANKS
    # A share's arrays take 8 bytes a token on the wire and some 40 as blocks and samples.
    most = float(found[1:, 4].max())
    assert most < 1500 * MEBI
    print(
        f"\n{want_tokens:,} tokens of {len(blocks):,} groups sent to {RANKS} ranks in {sent_s:.1f}"
        f" s; peak memory {found[0, 4] / MEBI:,.0f} MiB on rank 0, {most / MEBI:,.0f} on others"
    )


def _model(folder: Path) -> Path:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=32_000, hidden_size=768, intermediate_size=3072, num_hidden_layers=8,
        num_attention_heads=12, num_key_value_heads=4, head_dim=64, tie_word_embeddings=True,
    )  # fmt: skip
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


def _memory(pid: int, field: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"^{field}:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


class Memory:
    """Bytes by which ranks' memory grows at most, from one moment on."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self.begin()

    def begin(self) -> None:
        """Count from now on."""
        for pid in self._pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        self._before = [_memory(pid, "VmRSS") for pid in self._pids]

    def grown(self) -> int:
        """Of the rank that grew most."""
        peaks = [_memory(pid, "VmHWM") for pid in self._pids]
        return max(peak - held for peak, held in zip(peaks, self._before, strict=True))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_state_of_a_gigabyte_when_loaded_saved_and_restored_then_each_rank_holds_its_part(
    tmp_path: Path,
) -> None:
    policy = {"model": str(_model(tmp_path / "m")), "train": {"kind": "full"}}
    spec = job_spec(
        tmp_path / "m", policies={"shared": policy | {"dtype": "bfloat16"}}, tasks_per_step=1
    )
    algorithm: Any = AtGrpo(spec.algorithm)
    checkpoints = Checkpoints(tmp_path / "run", spec)
    grown: dict[str, int] = {}
    with started_ranks(RANKS) as started:
        memory = Memory([os.getpid(), *(child.pid for child in started.children)])
        load(spec, started.ranks)
        learner = Learner("shared", spec, algorithm, device="cpu", ranks=started.ranks)
        assert started.ranks.num_blind(tmp_path) == 0  # all have loaded
        grown["start"] = memory.grown()
        group = credit(make_group(random.Random(0)), [1.0, -1.0, 0.5, -0.5], 1.0)
        _ = learner.step([group], 0)  # moments are there
        memory.begin()
        begin = time.monotonic()
        state = learner.state_in(checkpoints.begin(1) / "shared")
        folder = checkpoints.save(CheckpointContents(1, {"shared": state}))
        grown["writing"], write_s = memory.grown(), time.monotonic() - begin
        del state
        size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        _ = learner.step([group], 1)
        memory.begin()
        begin = time.monotonic()
        learner.restore(checkpoints.read(folder).learners["shared"])
        assert started.ranks.num_blind(tmp_path) == 0  # all have restored
        grown["restore"], restore_s = memory.grown(), time.monotonic() - begin
        saved, back = checkpoints.read(folder).learners["shared"].tensors, learner.state()
    assert size >= 1_000_000_000
    assert back.optimizer_step == 1
    assert back.tensors.keys() == saved.keys()
    assert all(torch.equal(back.tensors[name], saved[name]) for name in saved)
    for when, bytes_ in grown.items():
        assert bytes_ < size / RANKS + SLACK, f"{when}: {bytes_ / MEBI:.0f} MiB"
    said = ", ".join(f"{when} {bytes_ / MEBI:,.0f}" for when, bytes_ in grown.items())
    print(
        f"\n{size / 1e9:.2f} GB of state on {RANKS} ranks, written in {write_s:.1f} s and restored "
        f"in {restore_s:.1f} s; a part is {size / RANKS / MEBI:,.0f} MiB, and a rank's memory grew "
        f"by at most (MiB): {said}"
    )
