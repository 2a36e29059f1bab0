"""What a weight push's rows come to for larger models, worked by hand."""

from typing import Any

from benchmarks.weight_push import paths


def _row(kind: str, replicas: int, size: int, p50_s: float, transfer_s: float) -> dict[str, Any]:
    return {
        "kind": kind,
        "via": "grpc",
        "replicas": replicas,
        "bytes": size,
        "p50_s": p50_s,
        "transfer_s": transfer_s,
    }


def test_adapter_when_it_grows_then_its_transfer_alone_does() -> None:
    """0.02 GB in 0.04 s are 2 s a GB; 1.66 s of the push are the merge and the checks. A second
    replica adds 1 s a GB and 0.345 s."""
    one, two = _row("lora", 1, 2 * 10**7, 1.7, 0.04), _row("lora", 2, 2 * 10**7, 2.065, 0.06)
    [line] = paths([one, two])
    assert (line["seconds_a_gb"], line["seconds_a_gb_more"]) == (2.0, 1.0)
    assert (line["fixed_s"], line["fixed_s_more"]) == (1.66, 0.345)
    [of_8b] = line["extrapolated_s"].values()  # 0.175 GB
    assert of_8b == {1: 2.01, 8: 5.65}
    [alone] = paths([one])
    assert alone["fixed_s_more"] is None
    assert [*alone["extrapolated_s"].values()] == [{1: 2.01}]


def test_full_weights_when_they_grow_then_all_of_the_push_does() -> None:
    small = _row("full", 1, 10**8, 9.0, 9.0)
    [line] = paths([small, _row("full", 1, 10**9, 4.0, 1.0), _row("full", 2, 10**9, 5.0, 2.0)])
    assert (line["fixed_s"], line["seconds_a_gb"], line["seconds_a_gb_more"]) == (0.0, 4.0, 1.0)
    assert line["extrapolated_s"]["1.7B bfloat16"] == {1: 13.6, 8: 37.4}
