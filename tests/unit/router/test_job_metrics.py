"""A job's lines as Prometheus series."""

import asyncio
from collections.abc import Iterator

import pytest
from prometheus_client import REGISTRY

from troupe_router.run import job_metrics

JOB = "metrics-test-1"
LINE = {
    "kind": "train",
    "step": 4,
    "loss": 0.5,
    "kl_rollout": None,
    "interrupted": False,
    "by_policy": {"planner": {"loss": 0.25}},
    "reward_by_agent": {"tool": 1.5, "planner": None},
    "groups_trained": 6,
    "groups_zero_variance": 2,
    "groups_dropped": {"stale": 1},
    "trained_tokens": 100,
    "num_tokens": 140,
    "success_rate": 0.75,
    "phases": {"generate": 2.0, "learn": 1.0},
    "wall_s": 3.5,
}


@pytest.fixture(autouse=True)
def begun() -> Iterator[None]:
    job_metrics.begin(JOB, 10, ["p"])
    yield
    job_metrics._forget(JOB)  # pyright: ignore[reportPrivateUsage]


def read(name: str, /, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, {"job_id": JOB, **labels})


def test_job_when_it_begins_then_what_alerts_count_is_zero() -> None:
    """Prometheus sees the increase to a first event only from a sample before it."""
    assert read("troupe_job_parity_alarms_total", policy="p") == 0
    for cause in ("canary", "other"):
        assert read("troupe_job_pushes_refused_total", policy="p", cause=cause) == 0
    assert read("troupe_job_component_restarts_total") == 0
    assert read("troupe_job_groups_total", outcome="trained") == 0


def test_step_line_when_observed_then_every_part_has_its_series() -> None:
    job_metrics.observe_line(JOB, LINE)
    job_metrics.observe_line(JOB, {**LINE, "step": 5, "loss": 0.4})
    assert read("troupe_job_step") == 6 and read("troupe_job_planned_steps") == 10
    assert read("troupe_job_learning_value", policy="", name="loss") == 0.4
    assert read("troupe_job_learning_value", policy="planner", name="loss") == 0.25
    assert read("troupe_job_learning_value", policy="", name="kl_rollout") is None
    assert read("troupe_job_learning_value", policy="", name="interrupted") == 0
    assert read("troupe_job_reward_mean", agent="tool") == 1.5
    assert read("troupe_job_groups_total", outcome="trained") == 12
    assert read("troupe_job_groups_total", outcome="dropped_stale") == 2
    assert read("troupe_job_tokens_total", kind="sampled") == 280
    assert read("troupe_job_phase_seconds_total", phase="generate") == 4.0
    assert read("troupe_job_step_seconds_sum") == 7.0
    assert read("troupe_job_success_ratio", kind="train") == 0.75


def test_value_of_a_replica_when_it_is_in_no_later_line_then_goes() -> None:
    job_metrics.observe_line(JOB, {**LINE, "replica_idle": {"a": 0.25, "b": 0.5}, "entropy": 0.5})
    job_metrics.observe_line(JOB, {**LINE, "step": 5, "replica_idle": {"b": 0.75}})
    assert read("troupe_job_learning_value", policy="", name="replica_idle.a") is None
    assert read("troupe_job_learning_value", policy="", name="replica_idle.b") == 0.75
    # A step without gradients has none, and an alert looks at the last one.
    assert read("troupe_job_learning_value", policy="", name="entropy") == 0.5
    job_metrics.observe_line(JOB, {**LINE, "step": 6})
    assert read("troupe_job_learning_value", policy="", name="replica_idle.b") is None
    assert read("troupe_job_learning_value", policy="planner", name="loss") == 0.25


def test_eval_line_when_observed_then_sets_held_out_success_only() -> None:
    job_metrics.observe_line(JOB, {"kind": "eval", "step": 0, "success": 0.5})
    assert read("troupe_job_success_ratio", kind="eval") == 0.5
    assert read("troupe_job_step") is None


def test_alarm_and_restart_events_when_observed_then_are_counted() -> None:
    job_metrics.observe_event(JOB, "parity.alarm", {"policy": "p"})
    job_metrics.observe_event(JOB, "component.restarted", {})
    job_metrics.observe_event(JOB, "job.state", {})
    assert read("troupe_job_parity_alarms_total", policy="p") == 1
    assert read("troupe_job_component_restarts_total") == 1


def test_refused_push_when_observed_then_is_counted_by_its_cause() -> None:
    """The trainer's own count ends with its process, right after it."""
    job_metrics.observe_event(JOB, "weights.refused", {"policy": "p", "cause": "canary"})
    # From a trainer of an earlier version.
    job_metrics.observe_event(JOB, "weights.refused", {"policy": "p"})
    for cause in ("canary", "other"):
        assert read("troupe_job_pushes_refused_total", policy="p", cause=cause) == 1


async def test_series_when_the_job_ends_then_linger_and_go() -> None:
    job_metrics.observe_line(JOB, LINE)
    job_metrics.end(JOB, linger_s=0.01)
    assert read("troupe_job_step") == 5
    await asyncio.sleep(0.1)
    assert read("troupe_job_step") is None


async def test_series_when_the_job_is_resumed_meanwhile_then_stay() -> None:
    job_metrics.observe_line(JOB, LINE)
    job_metrics.end(JOB, linger_s=0.02)
    job_metrics.begin(JOB, 10, ["p"])
    await asyncio.sleep(0.06)
    assert read("troupe_job_step") == 5


async def test_series_when_the_job_ends_twice_and_is_resumed_then_stay() -> None:
    job_metrics.observe_line(JOB, LINE)
    job_metrics.end(JOB, linger_s=0.02)
    job_metrics.end(JOB, linger_s=0.04)
    job_metrics.begin(JOB, 10, ["p"])
    await asyncio.sleep(0.1)
    assert read("troupe_job_step") == 5
