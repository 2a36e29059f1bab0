"""The prediction of a run folder's size: what it depends on."""

import json
from pathlib import Path

import pytest

from troupe.spec import parse_spec
from troupe.spec.growth import (
    StepCounts,
    evaluated_at_most,
    longest_prompts,
    played_at_most,
    recorded_share,
    run_growth,
)
from troupe.spec.job import JobSpec

SHAPE = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}


def _spec(model: str, **more: object) -> JobSpec:
    document = {
        "name": "j",
        "steps": 10,
        "tasks_per_step": 4,
        "task": {"name": "plan_path"},
        "workflow": {"order": ["tool", "planner"], "max_turns": 3},
        "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
        "policies": {"p": {"model": model, "train": {"kind": "lora", "rank": 4}}},
        "sampling": {"max_new_tokens": 50},
    }
    return parse_spec({**document, **more})


def test_played_when_every_turn_is_played_then_counts_groups_candidates_and_tokens() -> None:
    played = played_at_most(_spec("models/unknown"), draws=8)
    assert played == StepCounts(
        groups=4 * 3 * 2, candidates=4 * 3 * 2 * 8, tokens=4 * 3 * 2 * 8 * 50
    )


def test_growth_when_evaluated_then_every_evaluation_counts_with_one_candidate_an_act() -> None:
    spec = _spec("models/unknown", eval={"num_tasks": 100, "every": 4})
    evaluated = evaluated_at_most(spec)
    assert evaluated == StepCounts(
        groups=100 * 3 * 2, candidates=100 * 3 * 2, tokens=100 * 3 * 2 * 50
    )
    played = played_at_most(spec, draws=8)
    grown = run_growth(spec, played, evaluated)
    # After 0, 4, 8 and 10 steps; all of each is recorded, whatever the fraction of a step is.
    one = run_growth(spec, evaluated).step_bytes - run_growth(spec, StepCounts(0, 0, 0)).step_bytes
    assert grown.evals_bytes == pytest.approx(4 * one)
    assert run_growth(spec, played, evaluated, record_fraction=0.1).evals_bytes == grown.evals_bytes
    assert grown.after(10) == 10 * grown.step_bytes + grown.evals_bytes


def test_growth_when_prompts_fill_the_context_then_each_counts(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    spec = _spec(str(tmp_path))
    prompts = longest_prompts(spec)
    assert prompts == {"tool": 2048, "planner": 2048}
    short = run_growth(spec, played_at_most(spec, 8)).step_bytes
    for per_act in (1, 8):  # of a tree, whose candidates share one; of whole episodes, which don't
        long = run_growth(spec, played_at_most(spec, 8, prompts, prompts_per_act=per_act))
        assert 4 < (long.step_bytes - short) / (4 * 3 * 2 * per_act * 2048) < 5
    assert evaluated_at_most(spec, prompts).prompt_tokens == 200 * 3 * 2 * 2048
    assert longest_prompts(_spec("models/unknown")) is None


def test_growth_when_less_is_recorded_then_is_less() -> None:
    spec, played = _spec("models/unknown"), StepCounts(24, 192, 9600)
    whole = run_growth(spec, played).step_bytes
    assert 15 < (whole - run_growth(spec, StepCounts(24, 192, 0)).step_bytes) / 9600 < 25
    plain = run_growth(spec, played, record_tokens=False).step_bytes
    tenth = run_growth(spec, played, record_fraction=0.1).step_bytes
    assert tenth < plain < whole


def test_growth_when_more_checkpoints_are_kept_then_each_adds_its_state(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    played = StepCounts(24, 192, 9600)
    two, five = (
        run_growth(_spec(str(tmp_path), checkpoint=kept), played).weights_bytes
        for kept in ({"keep_last": 2}, {"keep_last": 3, "keep_best": 2})
    )
    unknown = run_growth(_spec("models/unknown"), played)
    assert unknown.weights_bytes is None
    assert unknown.after(10) == 10 * unknown.step_bytes
    assert two is not None and five is not None
    # A checkpoint is three times the adapter, and beside it are two of those and the merged model.
    adapter = (five - two) / 9
    assert 0 < adapter < two / 8


def test_growth_when_the_tower_is_frozen_then_it_is_published_and_in_no_checkpoint() -> None:
    seeing, reading = (
        run_growth(
            _spec(model, policies={"p": {"model": model, "train": {"kind": "full"}}}),
            StepCounts(24, 192, 9600),
        ).weights_bytes
        for model in ("Qwen/Qwen2.5-VL-3B-Instruct", "Qwen/Qwen2.5-3B-Instruct")
    )
    assert seeing is not None and reading is not None
    assert seeing - reading == pytest.approx(2 * 4 * 668e6, rel=0.01)


@pytest.mark.parametrize(
    ("tokens", "wall_s", "share"),
    [
        (400_000, 1.0, 1.0),  # ten seconds' worth are kept whole
        (1_000_000, 20.0, 1.0),
        (2_000_000, 20.0, 0.5),
        (100_000_000, 20.0, 0.01),
    ],
)
def test_share_when_a_round_is_faster_than_the_limit_then_what_the_rate_allows(
    tokens: float, wall_s: float, share: float
) -> None:
    assert recorded_share(1.0, tokens, wall_s, 50_000.0) == share
    assert recorded_share(0.1, tokens, wall_s, 50_000.0) == min(0.1, share)
    assert recorded_share(1.0, tokens, wall_s, 0.0) == 1.0
