"""Deadlines that follow from the size of what is moved."""

from pathlib import Path
from typing import Any

import pytest

from troupe.spec import parse_spec
from troupe.spec.deadlines import (
    checkpoint_s,
    decoding_rate,
    episode_s,
    generation_s,
    in_words,
    model_bytes,
    moving_s,
    push_s,
    startup_s,
    state_bytes,
)
from troupe.spec.job import EvalSpec, JobSpec, LimitsSpec, SamplingSpec

LORA = {"model": "Qwen/Qwen3-8B", "dtype": "bfloat16", "train": {"kind": "lora", "rank": 32}}
FULL = {"model": "Qwen/Qwen3-8B", "dtype": "bfloat16", "train": {"kind": "full"}}
QWEN3_8B = 8_190_735_360
"""Parameters of Qwen3-8B."""


def spec(*policies: dict[str, Any]) -> JobSpec:
    names = ["tool", "planner"][: len(policies)]
    return parse_spec(
        {
            "name": "sized",
            "steps": 1,
            "task": {"name": "plan_path"},
            "workflow": {"order": names},
            "agents": {name: {"policy": name} for name in names},
            "policies": dict(zip(names, policies, strict=True)),
            "limits": {"startup_timeout_s": 300, "step_timeout_s": 3600},
        }
    )


def test_startup_when_adapters_share_a_base_then_it_is_read_once_and_full_weights_apart() -> None:
    one = 2 * QWEN3_8B / 25e6
    assert startup_s(spec(LORA)) == pytest.approx(300 + one)
    assert startup_s(spec(LORA, LORA)) == pytest.approx(300 + one)
    assert startup_s(spec(FULL, FULL)) == pytest.approx(300 + 2 * one)
    assert one == pytest.approx(655, abs=1)


def test_generation_when_nothing_is_set_then_follows_from_size_and_length() -> None:
    eight, small = spec(LORA).policies["tool"], spec(LORA | {"model": "nobody/knows"}).policies
    assert decoding_rate(eight) == pytest.approx(2e11 / (2 * QWEN3_8B))
    assert decoding_rate(small["tool"]) == 50
    limits = LimitsSpec()
    assert generation_s(limits, 8192, decoding_rate(eight)) == pytest.approx(791, abs=1)
    assert generation_s(limits, 200, 50.0) == 124
    assert generation_s(LimitsSpec(generate_timeout_s=7), 8192, 1.0) == 7  # what is set binds


def test_episode_when_nothing_is_set_then_has_the_tokens_of_each_turn() -> None:
    job = spec(LORA, LORA)
    turns, tokens = job.workflow.max_turns, job.sampling_for("tool").max_new_tokens
    expected = 900 + turns * (tokens / 10 + tokens / 40)
    assert episode_s(job, {"tool": 10.0, "planner": 40.0}) == pytest.approx(expected)
    limits = job.limits.model_copy(update={"episode_timeout_s": 5.0})
    assert episode_s(job.model_copy(update={"limits": limits}), {}) == 5


def test_episode_when_evaluation_writes_more_then_its_time_is_enough_for_that() -> None:
    job = spec(LORA)
    longer = EvalSpec(sampling=SamplingSpec(max_new_tokens=4096))
    expected = 900 + job.workflow.max_turns * 4096 / 10
    found = episode_s(job.model_copy(update={"eval": longer}), {"tool": 10.0})
    assert found == pytest.approx(expected)


def test_episode_when_replicas_score_what_is_written_then_has_their_time_too() -> None:
    taught = LORA | {"teacher": "Qwen/Qwen3-8B", "teacher_replicas": 1}
    job = spec(taught, LORA)
    turns, tokens = job.workflow.max_turns, job.sampling_for("tool").max_new_tokens
    rates = {"tool": 10.0, "planner": 40.0, "tool-teacher": 5.0}
    expected = 900 + turns * (tokens / 10 + tokens / 40 + tokens / 5)
    assert episode_s(job, rates) == pytest.approx(expected)
    lines = in_words(job)
    assert lines[1].startswith("a teacher's scores of it: 141 s")
    assert lines[2].startswith("a completion of planner: ")


def test_words_when_a_job_is_planned_then_name_each_deadline_and_what_was_set() -> None:
    job = spec(LORA)
    words = "; ".join(in_words(job))
    assert "a completion of tool: " in words
    assert "tokens at 12 a second, 120 s beside; an episode: " in words
    assert "images of a cluster's pods: 1800 s; start: 955 s, of which 655 s to load" in words
    limits = job.limits.model_copy(update={"generate_timeout_s": 30.0})
    set_words = in_words(job.model_copy(update={"limits": limits}))
    assert set_words[0] == "a completion of tool: 30 s (set)"


def test_push_when_there_are_replicas_then_each_is_sent_the_bytes() -> None:
    assert push_s(spec(LORA | {"replicas": 4}), "tool", 175_000_000) == 300 + 4 * 7
    both = spec(LORA | {"replicas": 4}, LORA)  # one pool: each of its replicas serves both
    assert push_s(both, "planner", 175_000_000) == 300 + 4 * 7
    assert push_s(spec(LORA), "tool", 1000) == pytest.approx(300, abs=0.01)


def test_checkpoint_when_all_weights_are_trained_then_follows_from_their_state() -> None:
    assert checkpoint_s(spec(FULL)) == pytest.approx(3600 + 12 * QWEN3_8B / 25e6)
    assert checkpoint_s(spec(LORA)) < 3600 + 60


@pytest.mark.parametrize(
    ("train", "tower_state_gb"),
    [
        ({"kind": "full"}, 0.0),
        ({"kind": "full", "vision": True}, 8.0),
        ({"kind": "lora", "rank": 32}, 0.0),
        ({"kind": "lora", "rank": 32, "vision": True}, 0.2743),
    ],
)
def test_bytes_when_a_model_takes_images_then_its_tower_counts_where_it_is_moved(
    train: dict[str, Any], tower_state_gb: float
) -> None:
    model, decoder = "Qwen/Qwen2.5-VL-3B-Instruct", "Qwen/Qwen2.5-3B-Instruct"
    assert model_bytes(model) - model_bytes(decoder) == pytest.approx(4 * 668e6, rel=0.01)
    seeing, reading = (
        spec({"model": name, "train": train}).policies["tool"] for name in (model, decoder)
    )
    more = (state_bytes(seeing) - state_bytes(reading)) / 1e9
    assert more == pytest.approx(tower_state_gb, rel=0.01)


def test_bytes_when_the_model_is_a_folder_then_they_are_its_files(tmp_path: Path) -> None:
    for name in ("a.safetensors", "b.safetensors", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"x" * 1000)
    assert model_bytes(str(tmp_path)) == 2000
    assert moving_s(model_bytes("nobody/knows-it")) == 0
