"""A kill of any process at the worst moment: the job ends as if nothing had happened."""

import json
from pathlib import Path
from typing import Any

import pytest
from chaos_cases import QUICK, Case
from chaos_world import ChaosWorld

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_run_folder_when_job_succeeded_then_holds_all_that_was_promised(undisturbed: Path):
    summary = json.loads((undisturbed / "summary.json").read_text())
    assert summary["state"] == "succeeded"
    assert (summary["task"], summary["seed"], summary["num_eval"]) == ("plan_path", 5, 12)
    assert 0 <= summary["base_success"] <= 1
    assert 0 <= summary["final_success"] <= 1
    assert summary["groups_trained"] > 0
    assert 0 < summary["busy_ratio"] <= 1
    metrics = [json.loads(x) for x in (undisturbed / "metrics.jsonl").read_text().splitlines()]
    assert [m["step"] for m in metrics if m["kind"] == "train"] == [0, 1, 2]
    assert [m["step"] for m in metrics if m["kind"] == "eval"] == [0, 3]
    assert all(m["groups_trained"] > 0 for m in metrics if m["kind"] == "train")
    assert all(abs(m["ratio_mean"] - 1) < 1e-4 for m in metrics if m["kind"] == "train")
    episodes = (undisturbed / "episodes.jsonl").read_text().splitlines()
    assert len(episodes) == 12 + 3 * 6 + 12
    assert (undisturbed / "curve.png").read_bytes().startswith(b"\x89PNG")
    for name in ("adapter/adapter_config.json", "merged/model.safetensors"):
        assert (undisturbed / "policies" / "shared" / name).is_file()


def test_groups_when_trained_then_both_agents_have_own_signal_and_one_prompt(undisturbed: Path):
    episodes = [json.loads(x) for x in (undisturbed / "episodes.jsonl").read_text().splitlines()]
    groups = [g for e in episodes if e["kind"] == "train" for g in e["groups"]]
    for agent in ("tool", "planner"):
        own = [g for g in groups if g["agent"] == agent]
        spread = [len({c["reward"] for c in g["candidates"]}) > 1 for g in own]
        assert all(len(g["candidates"]) == 4 for g in own)
        assert any(spread), f"no group of {agent} has two different rewards"


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.id)
def test_job_when_a_process_is_killed_then_ends_as_if_nothing_happened(
    world: ChaosWorld, chaos_spec: dict[str, Any], undisturbed: Path, case: Case
):
    outcome = world.run(case, chaos_spec, undisturbed)
    assert outcome.faults == []
    assert outcome.num_groups > 0
    assert (outcome.num_lost, outcome.num_duplicated) == (0, 0)
