import math

import numpy as np
import pytest
import torch

from troupe_rollout.engines.cpu.sampling import BLOCK, Filters, candidate_stream, sample


def filters(num_rows: int, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0):
    return Filters(
        torch.full((num_rows,), temperature),
        torch.full((num_rows,), top_k),
        torch.full((num_rows,), top_p, dtype=torch.float64),
        any_filtered=top_k > 0 or top_p < 1.0,
    )


def probabilities(logits: list[float], **how: float) -> dict[int, float]:
    """Drawn share of each token over an even grid of uniforms, and the reported probability."""
    grid = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    rows = torch.tensor([logits]).expand(len(grid), -1)
    tokens, logprobs = sample(rows, filters(len(grid), **how), grid)  # pyright: ignore
    shares: dict[int, float] = {}
    for token in tokens.unique().tolist():
        is_token = tokens == token
        shares[token] = is_token.double().mean().item()
        reported = logprobs[is_token].exp()
        assert reported.min() == reported.max()
        assert reported[0].item() == pytest.approx(shares[token], abs=2e-4)
    return shares


def test_sample_at_temperature_1_draws_the_softmax_and_reports_it():
    shares = probabilities([math.log(1), math.log(2), math.log(5)])
    assert shares == pytest.approx({0: 1 / 8, 1: 2 / 8, 2: 5 / 8}, abs=2e-4)


def test_sample_at_temperature_half_squares_the_odds():
    shares = probabilities([math.log(1), math.log(2)], temperature=0.5)
    assert shares == pytest.approx({0: 1 / 5, 1: 4 / 5}, abs=2e-4)


def test_sample_with_top_k_renormalises_over_the_kept():
    shares = probabilities([math.log(1), math.log(2), math.log(5)], top_k=2)
    assert shares == pytest.approx({1: 2 / 7, 2: 5 / 7}, abs=2e-4)


def test_sample_with_top_p_keeps_the_smallest_set_that_reaches_the_mass():
    logits = [math.log(1), math.log(3), math.log(6)]
    assert probabilities(logits, top_p=0.6).keys() == {2}
    shares = probabilities(logits, top_p=0.61)
    assert shares == pytest.approx({1: 3 / 9, 2: 6 / 9}, abs=2e-4)


def test_sample_when_greedy_takes_the_largest_and_reports_the_plain_softmax():
    logits = torch.tensor([[0.0, math.log(3), 0.0]])
    how = filters(1, temperature=0.0, top_k=1, top_p=0.5)
    tokens, logprobs = sample(logits, how, torch.tensor([0.999], dtype=torch.float64))
    assert tokens.tolist() == [1]
    assert logprobs.exp().tolist() == pytest.approx([3 / 5])


def test_sample_when_probability_is_zero_never_draws_the_token():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf]]).expand(3, -1)
    edge = torch.tensor([0.0, 0.5, math.nextafter(1.0, 0.0)], dtype=torch.float64)
    assert sample(logits, filters(3), edge)[0].tolist() == [1, 1, 1]


def test_sample_when_a_neighbour_is_filtered_leaves_a_plain_row_bit_equal():
    logits = torch.randn(2, 50, generator=torch.Generator().manual_seed(0))
    uniforms = torch.tensor([0.3, 0.7], dtype=torch.float64)
    plain = sample(logits[:1], filters(1), uniforms[:1])
    mixed_how = Filters(
        torch.ones(2), torch.tensor([0, 5]), torch.ones(2, dtype=torch.float64), True
    )
    mixed = sample(logits, mixed_how, uniforms)
    assert torch.equal(plain[0], mixed[0][:1])
    assert torch.equal(plain[1], mixed[1][:1])


def test_candidate_stream_when_seed_or_index_differs_differs():
    draws = {(s, i): candidate_stream(s, i).random(4).tobytes() for s in (1, 2) for i in (0, 1)}
    assert len(set(draws.values())) == 4
    assert draws[1, 0] == np.random.Generator(np.random.Philox(key=[1, 0])).random(4).tobytes()


def test_candidate_stream_when_the_seed_has_64_bits_then_each_bit_counts():
    seeds = (2**63, 2**63 + 1, 2**64 - 1, 2**62 + 1, 2**62)
    assert len({candidate_stream(seed, 0).random() for seed in seeds}) == len(seeds)


@pytest.mark.parametrize("seed", [0, 1, 2**53 + 1, 2**62 + 12345, 2**63 - 1])
def test_candidate_stream_when_the_seed_has_63_bits_then_is_that_of_earlier_versions(seed: int):
    earlier = np.random.Generator(np.random.Philox(key=[seed, 7]))
    assert candidate_stream(seed, 7).random(4).tolist() == earlier.random(4).tolist()


def test_sample_over_several_blocks_finds_the_token_of_the_whole_running_sum():
    torch.manual_seed(5)
    logits = torch.randn(64, 3 * BLOCK + 17) * 4
    logits[:, :BLOCK] = -torch.inf  # a block without weight
    uniforms = torch.rand(64, dtype=torch.float64)
    uniforms[0], uniforms[1] = 0.0, 1.0 - 2.0**-53
    tokens, logprobs = sample(logits, filters(64), uniforms)
    expected = torch.log_softmax(logits.double(), -1)
    ends = expected.exp().cumsum(-1)
    drawn = torch.searchsorted(ends, uniforms[:, None] * ends[:, -1:], right=True)[:, 0]
    assert torch.equal(tokens[1:], drawn[1:]) and tokens[0] == BLOCK
    torch.testing.assert_close(logprobs.double(), expected.gather(1, tokens[:, None])[:, 0])


def test_sample_at_the_border_of_a_block_never_draws_what_has_no_probability():
    logits = torch.zeros(1, 2 * BLOCK)
    logits[0, BLOCK : BLOCK + 9] = -torch.inf
    border = torch.tensor([BLOCK / (2 * BLOCK - 9)], dtype=torch.float64)
    for uniforms in (
        border,
        torch.nextafter(border, border + 1),
        torch.nextafter(border, border - 1),
    ):
        token = sample(logits, filters(1, top_p=0.999999), uniforms)[0].item()
        assert token < BLOCK or token >= BLOCK + 9
