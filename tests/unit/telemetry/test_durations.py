"""Histograms of durations reach as far as the things that they time may take."""

import pytest
from prometheus_client import REGISTRY, Histogram

from troupe.runtime.telemetry import metrics

_POLICY = {"job_id": "slow-1", "policy": "slow"}


@pytest.mark.parametrize(
    ("name", "histogram", "labels"),
    [
        ("troupe_grpc_request_seconds", metrics.GRPC_SECONDS, {"method": "slow"}),
        ("troupe_rollout_generate_seconds", metrics.ROLLOUT_SECONDS, _POLICY),
        ("troupe_env_step_seconds", metrics.ENV_STEP_SECONDS, {}),
        ("troupe_env_sandbox_run_seconds", metrics.ENV_SANDBOX_SECONDS, {}),
    ],
)
def test_duration_when_it_is_minutes_then_its_bucket_is_not_the_open_one(
    name: str, histogram: Histogram, labels: dict[str, str]
) -> None:
    def below(limit_s: str) -> float:
        sample = REGISTRY.get_sample_value(f"{name}_bucket", {**labels, "le": limit_s})
        return sample or 0.0

    (histogram.labels(**labels) if labels else histogram).observe(300.0)
    assert below("300.0") == below("120.0") + 1
    assert below("3600.0") == below("+Inf")
