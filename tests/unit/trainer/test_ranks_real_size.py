"""A step and a state of real size through four gloo ranks, which the store refuses above 8 MiB."""

from pathlib import Path

import pytest

from benchmarks.trainer_size.exchange import RANKS, send_step
from benchmarks.trainer_size.state import GIGABYTE, keep_state

MEBI = 1 << 20
SLACK = 200 * MEBI
"""What a rank may need beside its part: buffers of the largest tensor, and of the allocator."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_step_of_50_million_tokens_when_sent_to_four_ranks_then_each_gets_its_share() -> None:
    step = send_step(50_000_000)
    assert step.tokens >= 50_000_000
    assert step.received == step.tokens
    assert step.is_whole
    assert step.least > 0.9 * step.tokens / RANKS
    # A share's arrays take 8 bytes a token on the wire and some 40 as blocks and samples.
    assert step.other_peak < 1500 * MEBI
    print(
        f"\n{step.tokens:,} tokens of {step.groups:,} groups sent to {RANKS} ranks in "
        f"{step.seconds:.1f} s; peak memory {step.first_peak / MEBI:,.0f} MiB on rank 0, "
        f"{step.other_peak / MEBI:,.0f} on others"
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_state_of_a_gigabyte_when_loaded_saved_and_restored_then_each_rank_holds_its_part(
    tmp_path: Path,
) -> None:
    state = keep_state(tmp_path, GIGABYTE)
    assert state.size >= 1_000_000_000
    assert state.is_same
    for when, bytes_ in state.grown.items():
        assert bytes_ < state.size / RANKS + SLACK, f"{when}: {bytes_ / MEBI:.0f} MiB"
    said = ", ".join(f"{when} {bytes_ / MEBI:,.0f}" for when, bytes_ in state.grown.items())
    print(
        f"\n{state.size / 1e9:.2f} GB of state on {RANKS} ranks, written in {state.write_s:.1f} s "
        f"and restored in {state.restore_s:.1f} s; a part is {state.size / RANKS / MEBI:,.0f} MiB, "
        f"and a rank's memory grew by at most (MiB): {said}"
    )
