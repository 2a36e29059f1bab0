"""The numbers of a step: weighted means, and None where nothing was measured."""

from dataclasses import replace

import pytest

from troupe.api.records.v1 import records_pb2 as pb
from troupe.runtime.step_report.trainer import TrainerPart
from troupe_trainer.learn.collector import Batch
from troupe_trainer.learn.learner import LearnOutcome
from troupe_trainer.learn.learners import Learned
from troupe_trainer.learn.report import step_report
from troupe_trainer.samples import credit

MEANS = ("loss", "kl_rollout", "ratio_mean", "ratio_max", "clip_fraction", "entropy", "grad_norm")


def outcome(ratio: float, tokens: int) -> LearnOutcome:
    metrics = {"loss": 0.5, "ratio_mean": ratio, "ratio_max": ratio, "learning_rate": 1e-3}
    return LearnOutcome(metrics, tokens)


def test_report_when_nothing_was_trained_then_every_mean_is_none() -> None:
    learned = Learned({"p": []}, {"p": outcome(0.0, 0)})
    report = step_report(Batch(3, {"p": []}, {}), learned, 1.0)
    assert {name: getattr(report, name) for name in MEANS} == dict.fromkeys(MEANS)
    for name in ("trained_reward_mean", "reward_std", "advantage_std", "completion_tokens"):
        assert getattr(report, name) is None
    assert (report.groups_trained, report.trained_tokens) == (0, 0)
    assert report.trained_tokens_per_s is None


def test_report_when_one_of_two_policies_trained_then_the_means_are_its_own() -> None:
    learned = Learned({"a": [], "b": []}, {"a": outcome(1.0, 30), "b": outcome(0.0, 0)})
    report = step_report(Batch(3, {"a": [], "b": []}, {}), learned, 1.0)
    assert (report.ratio_mean, report.ratio_max) == (1.0, 1.0)
    assert report.by_policy["b"]["ratio_mean"] is None
    assert report.by_policy["a"]["ratio_mean"] == 1.0


def test_report_when_two_policies_trained_then_means_are_weighted_by_tokens() -> None:
    learned = Learned({"a": [], "b": []}, {"a": outcome(1.0, 30), "b": outcome(2.0, 10)})
    report = step_report(Batch(3, {"a": [], "b": []}, {}), learned, 2.0)
    assert report.ratio_mean == pytest.approx(1.25)
    assert report.ratio_max == 2.0
    assert report.trained_tokens_per_s == 20.0


def test_report_when_a_greedy_baseline_was_played_then_only_samples_count() -> None:
    group = pb.Group(group_id="g", agent="a", policy="p", key=pb.GROUP_KEY_TASK)
    group.prompts.add(digest="d", token_ids=[2])
    for reward, is_baseline in ((1.0, False), (0.0, False), (0.25, True)):
        group.candidates.add(reward=reward, is_baseline=is_baseline, prompt_digest="d")
    credited = [credit(group, [0.75, -0.25, 0.0], 1.0)]
    report = step_report(Batch(3, {"p": [group]}, {}), Learned({"p": credited}, {}), 1.0)
    assert (report.advantage_std, report.reward_std) == (0.5, 0.5)


def test_report_when_the_devices_speed_is_known_then_tells_the_share_of_it_that_was_used() -> None:
    def one(tokens: int, ideal_s: float | None) -> LearnOutcome:
        return replace(outcome(1.0, tokens), ideal_s=ideal_s)

    for outcomes, want in [
        ({"a": one(30, 0.5), "b": one(10, 0.3)}, 0.4),
        ({"a": one(30, 0.5), "b": one(0, None)}, 0.25),
        ({"a": one(30, 0.5), "b": one(10, None)}, None),
        ({"a": one(0, 0.0)}, None),
    ]:
        learned = Learned({policy: [] for policy in outcomes}, outcomes)
        report = step_report(Batch(3, {policy: [] for policy in outcomes}, {}), learned, 2.0)
        assert report.mfu == (want if want is None else pytest.approx(want))


def test_report_when_a_loss_gives_a_number_that_nobody_declares_then_is_a_mean_by_tokens() -> None:
    outcomes = {"a": LearnOutcome({"mine": 1.0}, 30), "b": LearnOutcome({"mine": 5.0}, 10)}
    report = step_report(Batch(3, {}, {}), Learned({"a": [], "b": []}, outcomes), 1.0)
    assert report.to_line()["mine"] == pytest.approx(2.0)
    assert TrainerPart.from_wire(report.to_wire()) == report
