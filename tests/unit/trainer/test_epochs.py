"""Several epochs over a step's groups: what stays fixed, and the update against torch's own."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_data import FULL, groups_of_step, job_spec
from transformers import AutoModelForCausalLM

from troupe.algorithms.at_grpo import AtGrpo
from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import group_outcome
from troupe.spec.job import JobSpec
from troupe_trainer.learn.learner import Learner
from troupe_trainer.samples import CreditedGroup, credit

RATE, CLIP, CAP, EPOCHS = 0.01, 0.2, 1.5, 3


def _spec(tiny_model: Path, **algorithm: Any) -> JobSpec:
    optimizer = {"learning_rate": RATE, "warmup_steps": 0, "max_grad_norm": 1e9}
    policy = {"model": str(tiny_model), "train": FULL, "optimizer": optimizer}
    return job_spec(
        tiny_model, algorithm={"group_size": 4, **algorithm}, policies={"shared": policy}
    )


def _learner(spec: JobSpec) -> Learner:
    return Learner("shared", spec, AtGrpo(spec.algorithm), device="cpu")


def _credited(groups: list[pb.Group], spec: JobSpec) -> list[CreditedGroup]:
    algorithm = AtGrpo(spec.algorithm)
    return [credit(g, algorithm.advantages(group_outcome(g)), 1.0) for g in groups]


def _near(learner: Learner, groups: list[pb.Group]) -> list[pb.Group]:
    """The groups as an engine would have sampled them that differs a little from the trainer."""
    for number, (group, c) in enumerate((g, c) for g in groups for c in g.candidates):
        tokens = [*group.prompts[0].token_ids, *c.token_ids]
        scores = learner.model.score(tokens)[-len(c.token_ids) :]
        c.rollout_logprobs[:] = [x + 0.2 * math.sin(number + i) for i, x in enumerate(scores)]
    return groups


def _reference(
    model_folder: Path, groups: list[pb.Group], spec: JobSpec
) -> tuple[list[float], float, dict[str, torch.Tensor]]:
    """PPO as in its paper: log pi_old of all tokens first, then EPOCHS gradient steps.

    Returns the mean ratio of new to sampled in each epoch, the share of clipped tokens over all
    epochs, and the weights.
    """
    model: Any = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.0)
    advantages = [AtGrpo(spec.algorithm).advantages(group_outcome(g)) for g in groups]
    rows = [
        (list(g.prompts[0].token_ids), list(c.token_ids), a, torch.tensor(c.rollout_logprobs))
        for g, values in zip(groups, advantages, strict=True)
        for c, a in zip(g.candidates, values, strict=True)
    ]

    def scores(prompt: list[int], answer: list[int]) -> torch.Tensor:
        logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
        return torch.log_softmax(logits, -1)[range(len(answer)), answer]

    with torch.no_grad():
        old = [scores(prompt, answer) for prompt, answer, _, _ in rows]
    number = sum(len(answer) for _, answer, _, _ in rows)
    ratios, num_clipped = [], 0
    for _ in range(EPOCHS):
        losses, total = [], 0.0
        for (prompt, answer, a, sampled), before in zip(rows, old, strict=True):
            new = scores(prompt, answer)
            weight, behaviour = torch.ones(len(answer)), sampled
            if spec.algorithm.loss.importance is not None:
                weight, behaviour = torch.exp(before - sampled).clamp(max=CAP), before
            ratio = torch.exp(new - behaviour)
            kept = torch.minimum(ratio * a, ratio.clamp(1 - CLIP, 1 + CLIP) * a)
            losses.append(-(weight * kept).sum())
            total += float(torch.exp(new.detach() - sampled).sum())
            high, low = (a > 0) & (ratio > 1 + CLIP), (a < 0) & (ratio < 1 - CLIP)
            num_clipped += int((high | low).sum())
        ratios.append(total / number)
        optimizer.zero_grad()
        (torch.stack(losses).sum() / number).backward()
        optimizer.step()
    return ratios, num_clipped / (number * EPOCHS), dict(model.named_parameters())


@pytest.mark.parametrize("loss", [{}, {"importance": {"cap": CAP}}], ids=["sampled", "old"])
def test_step_when_there_are_epochs_then_is_ppos_with_the_first_probabilities_kept(
    tiny_model: Path, loss: dict[str, Any]
) -> None:
    spec = _spec(tiny_model, epochs=EPOCHS, loss=loss)
    learner, before = _learner(spec), _learner(spec)
    groups = _near(learner, groups_of_step(0))
    ratios, clipped, weights = _reference(tiny_model, groups, spec)
    outcome = learner.step(_credited(groups, spec))
    assert max(ratios) - min(ratios) > 0.01
    assert outcome.metrics["ratio_mean"] == pytest.approx(sum(ratios) / EPOCHS, rel=1e-4)
    assert outcome.metrics["clip_fraction"] == pytest.approx(clipped, abs=1e-6)
    assert clipped > 0.0
    # Adam's first steps are of one size, so rounding decides of a few gradients next to 0.
    ours, first = learner.model.trainable(), before.model.trainable()
    off = sum(float((ours[n] - weights[n]).detach().abs().sum()) for n in ours)
    moved = sum(float((ours[n] - first[n]).detach().abs().sum()) for n in ours)
    assert moved > 0.0
    assert off < 0.01 * moved, off / moved


def test_step_when_there_are_epochs_then_each_deals_out_all_groups_anew(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = _spec(tiny_model, epochs=2, minibatches=2)
    learner, given = _learner(spec), list[list[str]]()
    deal = learner._deal_step  # pyright: ignore[reportPrivateUsage]

    def noted(parts: Any) -> Any:
        given.extend([group.record.group_id for group in part] for part in parts)
        return deal(parts)

    monkeypatch.setattr(learner, "_deal_step", noted)
    groups = sorted(groups_of_step(0, tasks=4), key=lambda group: group.group_id)
    outcome = learner.step(_credited(groups, spec))
    names = sorted(group.group_id for group in groups)
    assert sorted(given[0] + given[1]) == sorted(given[2] + given[3]) == names
    assert {frozenset(part) for part in given[:2]} != {frozenset(part) for part in given[2:]}
    assert learner.state().optimizer_step == 4
    assert outcome.trained_groups == len(groups)


def test_step_when_there_is_one_epoch_then_its_first_is_what_others_begin_with(
    tiny_model: Path,
) -> None:
    """Parity is of the first epoch, and a second one moves the policy farther."""
    outcomes = []
    for epochs in (1, 4):
        spec = _spec(tiny_model, epochs=epochs)
        learner = _learner(spec)
        outcomes.append(learner.step(_credited(_near(learner, groups_of_step(0)), spec)).metrics)
    once, often = outcomes
    assert often["parity_kl"] == pytest.approx(once["parity_kl"], rel=1e-6)
    assert often["kl_rollout"] > 1.2 * once["kl_rollout"]
