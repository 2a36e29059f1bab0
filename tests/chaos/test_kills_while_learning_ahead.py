"""Learning while the round is played: the weights of a job that does not, also when hit."""

import json
from pathlib import Path
from typing import Any

import pytest
from chaos_cases import IN_TAIL, OVERLAP, Case
from chaos_world import ChaosWorld
from platform_world import trained_bytes, trained_groups

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def overlapping(chaos_spec: dict[str, Any]) -> dict[str, Any]:
    """The undisturbed job, but with gradients summed while others play."""
    return {**chaos_spec, "batch": {"overlap": True}}


def test_weights_when_learnt_while_the_round_is_played_then_are_the_same_bits(
    world: ChaosWorld, overlapping: dict[str, Any], undisturbed: Path
):
    run_dir = world.run_alone(overlapping)
    assert trained_bytes(run_dir) == trained_bytes(undisturbed)
    assert trained_groups(run_dir) == trained_groups(undisturbed)
    lines = {folder: _train_lines(folder) for folder in (run_dir, undisturbed)}
    assert sum(line["learned_ahead_s"] for line in lines[run_dir]) > 0.0
    assert all(line["learned_ahead_s"] == 0.0 for line in lines[undisturbed])
    for name in ("loss", "grad_norm", "kl_rollout", "trained_tokens"):
        one, other = ([line[name] for line in of] for of in lines.values())
        assert one == other, name


@pytest.fixture(scope="module")
def full_weights(chaos_spec: dict[str, Any]) -> dict[str, Any]:
    """All weights are trained, and their gradients are summed exactly."""
    shared = {**chaos_spec["policies"]["shared"], "train": {"kind": "full"}}
    batch = {"gradient_sums": "exact"}
    return {**chaos_spec, "name": "full", "policies": {"shared": shared}, "batch": batch}


@pytest.mark.parametrize("case", OVERLAP[:1], ids=lambda case: f"full-weights-{case.id}")
def test_job_when_hit_in_an_exact_sum_of_full_weights_then_ends_as_one_that_does_not_overlap(
    world: ChaosWorld, full_weights: dict[str, Any], case: Case
):
    undisturbed = world.run_alone(full_weights)
    batch = {**full_weights["batch"], "overlap": True}
    assert world.run(case, {**full_weights, "batch": batch}, undisturbed).faults == []


@pytest.mark.parametrize("case", IN_TAIL, ids=lambda case: case.id)
def test_job_when_hit_while_it_evaluates_beside_its_learning_then_ends_as_one_that_is_not(
    world: ChaosWorld, overlapping: dict[str, Any], undisturbed: Path, case: Case
):
    assert world.run(case, overlapping, undisturbed).faults == []


@pytest.mark.parametrize("case", OVERLAP, ids=lambda case: case.id)
def test_job_when_hit_in_the_middle_of_a_sum_then_ends_as_one_that_does_not_overlap(
    world: ChaosWorld, overlapping: dict[str, Any], undisturbed: Path, case: Case
):
    assert world.run(case, overlapping, undisturbed).faults == []


def _train_lines(run_dir: Path) -> list[dict[str, Any]]:
    lines = [json.loads(x) for x in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "train"]
