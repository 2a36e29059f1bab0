"""The parity alarm's limits, and the numbers that products are computed with."""

import torch

from troupe_trainer.learn.parity import LIMITS, limits_of
from troupe_trainer.model.model import exact_products


def test_limits_when_float32_is_multiplied_in_tf32_then_are_those_of_tf32() -> None:
    present = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")  # as a model on a GPU does
        assert limits_of("float32") == LIMITS["tf32"]
        assert limits_of("bfloat16") == LIMITS["bfloat16"]
        with exact_products():  # as a canary is computed
            assert torch.get_float32_matmul_precision() == "highest"
            assert limits_of("float32") == LIMITS["float32"]
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(present)
