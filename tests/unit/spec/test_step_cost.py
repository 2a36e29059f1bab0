"""What a step takes by the formula, on each layout."""

import pytest

from troupe.spec import parse_spec
from troupe.spec.job import JobSpec
from troupe.spec.layout import plan_layout
from troupe.spec.step_cost import Rates, StepCost, sampled_at_most, step_cost

RATES = Rates(memory_share=1.0, mfu=1.0)


def spec(model: str = "Qwen/Qwen3-8B", **train: object) -> JobSpec:
    policy = {"model": model, "dtype": "bfloat16", "train": train or {"kind": "lora", "rank": 32}}
    return parse_spec(
        {
            "name": "costs",
            "steps": 1,
            "tasks_per_step": 4,
            "task": {"name": "plan_path"},
            "workflow": {"order": ["tool", "planner"], "max_turns": 2},
            "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
            "policies": {"p": policy},
            "sampling": {"max_new_tokens": 1000},
        }
    )


def cost(job: JobSpec, gpus: int) -> StepCost:
    found = step_cost(job, plan_layout(job, gpus), {"p": 1_000_000}, RATES)
    assert found is not None
    return found


def test_tokens_when_every_turn_is_played_then_each_agent_has_its_own() -> None:
    assert sampled_at_most(spec(), draws=8) == {"p": 2 * 4 * 2 * 8 * 1000}


def test_step_when_there_is_one_gpu_then_the_formula_gives_each_part() -> None:
    found = cost(spec(), 1)
    parameters, kv = 8_190_735_360, 2 * 36 * 8 * 128 * 2
    passes = 3.35e12 / (2 * parameters + 131_072 * kv)
    assert found.play_s == pytest.approx(1e6 / (passes * 131_072 / 2048), rel=0.01)
    assert found.learn_s == pytest.approx(1e6 * 6 * parameters / 989e12, rel=0.01)
    assert found.push_s == pytest.approx(0.1746e9 / 25e9, rel=0.01)
    assert found.turns_s > 5  # the state and the base's copy cross the bus twice


def test_step_when_there_are_more_gpus_then_each_phase_is_shared_and_nobody_takes_turns() -> None:
    one, eight, sixteen = (cost(spec(), gpus) for gpus in (1, 8, 16))
    assert eight.play_s == pytest.approx(one.play_s / 4)
    assert eight.learn_s == pytest.approx(one.learn_s / 4)
    assert sixteen.play_s == pytest.approx(one.play_s / 8)
    assert eight.turns_s == sixteen.turns_s == 0
    assert eight.push_s == one.push_s  # all replicas at once


def test_step_when_all_weights_are_trained_then_learning_and_pushing_take_longer() -> None:
    full, lora = cost(spec(kind="full"), 8), cost(spec(), 8)
    assert full.learn_s == pytest.approx(lora.learn_s * 8 / 6)
    assert full.push_s == pytest.approx(2 * 8_190_735_360 / 25e9)


def test_step_when_a_models_shape_is_unknown_then_nothing_is_said() -> None:
    job = spec("nobody/knows")
    assert step_cost(job, plan_layout(job, 8), {"p": 1}) is None
