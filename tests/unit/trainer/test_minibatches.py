"""Which groups share an optimizer step, and that parity is measured on all of them."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trainer_data import groups_of_step, job_spec

from troupe.algorithms.algorithm import Needs
from troupe.algorithms.at_grpo import AtGrpo
from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import group_outcome
from troupe.spec.job import JobSpec
from troupe_trainer.learn.learner import Learner
from troupe_trainer.learn.outcome import Minibatch, step_metrics
from troupe_trainer.samples import CreditedGroup, credit


def _spec(tiny_model: Path, **overrides: Any) -> JobSpec:
    algorithm = {"group_size": 4, "minibatches": 2}
    return job_spec(tiny_model, algorithm=algorithm, **overrides)


def _credited(groups: list[pb.Group], spec: JobSpec) -> list[CreditedGroup]:
    algorithm = AtGrpo(spec.algorithm)
    return [credit(g, algorithm.advantages(group_outcome(g)), 1.0) for g in groups]


def _sorted_groups(step: int, tasks: int) -> list[pb.Group]:
    """As the collector hands them on: by id, so that two agents take turns."""
    return sorted(groups_of_step(step, tasks=tasks), key=lambda group: group.group_id)


def _parts(monkeypatch: pytest.MonkeyPatch, learner: Learner) -> list[list[CreditedGroup]]:
    """The minibatches that ``learner`` takes from now on."""
    parts: list[list[CreditedGroup]] = []
    deal = learner._deal_step  # pyright: ignore[reportPrivateUsage]

    def noted(given: Any) -> Any:
        parts.extend(list(part) for part in given)
        return deal(given)

    monkeypatch.setattr(learner, "_deal_step", noted)
    return parts


def _ids(parts: list[list[CreditedGroup]]) -> list[list[str]]:
    return [[group.record.group_id for group in part] for part in parts]


def test_step_when_agents_take_turns_in_the_order_then_each_minibatch_has_both(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = _spec(tiny_model)
    learner = Learner("shared", spec, AtGrpo(spec.algorithm), device="cpu")
    parts = _parts(monkeypatch, learner)
    groups = _sorted_groups(0, tasks=8)
    assert [g.agent for g in groups] == ["planner", "tool"] * 8
    learner.step(_credited(groups, spec))
    assert [len(part) for part in parts] == [8, 8]
    assert sorted(name for part in _ids(parts) for name in part) == [g.group_id for g in groups]
    for part in parts:
        assert {group.record.agent for group in part} == {"planner", "tool"}


def test_step_when_repeated_then_minibatches_follow_from_seed_and_optimizer_step(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[list[list[str]]] = []
    for seed in (0, 0, 1):
        spec = _spec(tiny_model, seed=seed)
        learner = Learner("shared", spec, AtGrpo(spec.algorithm), device="cpu")
        parts = _parts(monkeypatch, learner)
        for _ in range(2):
            learner.step(_credited(_sorted_groups(0, tasks=8), spec))
        drawn.append(_ids(parts))
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]
    assert drawn[0][:2] != drawn[0][2:]


class _WithOld(AtGrpo):
    """AT-GRPO that has the trainer's own probabilities computed before the first update."""

    @property
    def needs(self) -> Needs:
        return replace(super().needs, old=True)


@pytest.mark.parametrize("kind", [AtGrpo, _WithOld])
def test_parity_when_there_are_minibatches_then_it_is_that_of_all_before_any_update(
    tiny_model: Path, kind: type[AtGrpo]
) -> None:
    groups = _sorted_groups(0, tasks=4)
    measured: list[dict[str, float]] = []
    for minibatches in (1, 2, 3):
        spec = job_spec(tiny_model, algorithm={"group_size": 4, "minibatches": minibatches})
        learner = Learner("shared", spec, kind(spec.algorithm), device="cpu")
        measured.append(learner.step(_credited(groups, spec)).metrics)
    for metrics in measured[1:]:
        for name in ("parity_kl", "parity_ratio"):
            assert metrics[name] == pytest.approx(measured[0][name], rel=1e-4)
    assert measured[0]["parity_kl"] > 0.01


def test_metrics_when_a_minibatch_makes_no_optimizer_step_then_are_means_over_the_others() -> None:
    moved = [
        Minibatch(sums=defaultdict(float), loss=loss, grad_norm=norm, num_tokens=5)
        for loss, norm in ((2.0, 3.0), (4.0, 1.0))
    ]
    flat = Minibatch(sums=defaultdict(float))
    metrics = step_metrics([moved[0], flat, moved[1], flat])
    assert (metrics["loss"], metrics["grad_norm"]) == (3.0, 2.0)
    metrics = step_metrics([flat])
    assert (metrics["loss"], metrics["grad_norm"]) == (0.0, 0.0)
