"""Segments attended to without a mask are those under the mask, forward and backward."""

import pytest
import torch

from troupe_trainer.model.segment_attention import Segments


def _mask(blocks: list[list[int]]) -> torch.Tensor:
    size = sum(map(sum, blocks))
    mask = torch.zeros(size, size, dtype=torch.bool)
    first = 0
    for block in blocks:
        start = first
        for number, length in enumerate(block):
            for place in range(start, start + length):
                mask[place, start : place + 1] = True
                if number:
                    mask[place, first : first + block[0]] = True
            start += length
        first = start
    return mask


@pytest.mark.parametrize(
    ("dtype", "allowed"), [(torch.float32, 5e-6), (torch.bfloat16, 0.05)], ids=str
)
@pytest.mark.parametrize("blocks", [[[5, 3, 4, 1], [7], [2, 6, 6]], [[9]], [[1, 1], [3, 2]]])
def test_segments_when_attended_then_equal_the_mask_and_so_do_gradients(
    blocks: list[list[int]], dtype: torch.dtype, allowed: float
) -> None:
    torch.manual_seed(0)
    size = sum(map(sum, blocks))
    heads = [torch.randn(size, count, 8, dtype=dtype, requires_grad=True) for count in (4, 2, 2)]
    weights = torch.randn(size, 4, 8, dtype=dtype)
    got = Segments(blocks, torch.device("cpu")).attend(heads, None)
    by_head = [head.transpose(0, 1)[None] for head in heads]
    want = torch.nn.functional.scaled_dot_product_attention(
        *by_head, attn_mask=_mask(blocks), enable_gqa=True
    )[0].transpose(0, 1)
    assert torch.allclose(got, want, atol=allowed)
    for one, other in zip(
        torch.autograd.grad((got * weights).sum(), heads),
        torch.autograd.grad((want * weights).sum(), heads),
        strict=True,
    ):
        assert other.abs().max() > 0
        assert torch.allclose(one, other, atol=allowed)


def test_segments_when_on_a_gpu_then_the_same_passes_are_asked_of_its_kernel() -> None:
    """Shapes alone: ATen's operators of flash attention accept what they are given."""
    meta = torch.device("meta")
    heads = [
        torch.randn(18, count, 8, dtype=torch.bfloat16, device=meta, requires_grad=True)
        for count in (4, 2, 2)
    ]
    got = Segments([[5, 3, 4, 1], [5]], meta).attend(heads, None)
    assert (got.shape, got.dtype) == (torch.Size([18, 4, 8]), torch.bfloat16)
    gradients = torch.autograd.grad(got.sum(), heads)
    assert [g.shape for g in gradients] == [h.shape for h in heads]
