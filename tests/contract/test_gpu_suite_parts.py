"""Parts of the suite for a day with a GPU: what each one's figures and goals are made of."""

import pytest

from benchmarks.gpu_suite.environment import computes_on


@pytest.mark.parametrize("device", ["meta", "cuda:99", "no such device"])
def test_device_when_it_cannot_multiply_then_does_not_compute(device: str) -> None:
    assert computes_on("cpu")
    assert not computes_on(device)
