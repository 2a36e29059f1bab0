"""Demonstrations in the learner: the loss beside the groups', their order."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ranks_world import ranks_with
from trainer_data import FULL, LORA, VOCABULARY, groups_of_step, imitating_spec, make_group
from transformers import AutoModelForCausalLM

from troupe.algorithms.at_grpo import AtGrpo
from troupe.candidates import Sample, group_outcome
from troupe.spec.job import JobSpec
from troupe_trainer.learn.demonstrations import Demonstrations
from troupe_trainer.learn.learner import Learner
from troupe_trainer.learn.outcome import NonFiniteError, blame
from troupe_trainer.samples import CreditedGroup, PromptSamples, credit


def _prompt(tokens: Sequence[int], answer: Sequence[int]) -> PromptSamples:
    sample = Sample(
        0,
        0.0,
        len(answer),
        False,
        token_ids=np.array(answer, dtype=np.int32),
        rollout_logprobs=np.zeros(len(answer), dtype=np.float32),
    )
    return PromptSamples(np.array(tokens, dtype=np.int32), [sample])


def _prompts(count: int = 5) -> list[PromptSamples]:
    rng = random.Random(9)
    return [
        _prompt(
            [rng.randrange(VOCABULARY) for _ in range(4 + n)],
            [rng.randrange(VOCABULARY) for _ in range(1 + n)],
        )
        for n in range(count)
    ]


def _shown(spec: JobSpec, prompts: Sequence[PromptSamples] | None = None) -> Demonstrations:
    given = spec.algorithm.demonstrations
    assert given is not None
    return Demonstrations(given, prompts or _prompts(), 7, spec.steps * spec.algorithm.minibatches)


def _learner(spec: JobSpec, shown: Demonstrations | None, **more: Any) -> Learner:
    algorithm = AtGrpo(spec.algorithm)
    return Learner("shared", spec, algorithm, device="cpu", demonstrations=shown, **more)


def _credited(spec: JobSpec, step: int = 0) -> list[CreditedGroup]:
    algorithm = AtGrpo(spec.algorithm)
    return [credit(g, algorithm.advantages(group_outcome(g)), 1.0) for g in groups_of_step(step)]


def _gradient(learner: Learner, groups: list[CreditedGroup]) -> tuple[Any, Any]:
    """Metrics of a step, and the gradient that its optimizer was given."""
    taken: dict[str, torch.Tensor] = {}

    def take(*_: Any) -> None:
        named = learner.model.trainable().items()
        taken.update({n: p.grad.clone() for n, p in named if p.grad is not None})

    handle = learner._optimizer.register_step_pre_hook(take)
    metrics = learner.step(groups, 0).metrics
    handle.remove()
    return metrics, taken


def _plain(learner: Learner, model: Path, prompts: Sequence[PromptSamples]) -> tuple[Any, Any]:
    """The mean cross-entropy by transformers alone, and its gradient by name: of full weights by
    another model in float64, of an adapter by peft's own forward pass."""
    if learner.model.is_lora:
        module, parameters = learner.model.module, learner.model.trainable()
    else:
        module = AutoModelForCausalLM.from_pretrained(model).double()
        parameters = dict(module.named_parameters())
    total, num_tokens = torch.zeros((), dtype=torch.float64), 0
    for prompt in prompts:
        answer = list(prompt.samples[0].token_ids)
        row = torch.tensor([[*prompt.prompt, *answer]], dtype=torch.long)
        logits = module(input_ids=row).logits[0].double()
        table = logits - torch.logsumexp(logits, -1, keepdim=True)
        for place, token in enumerate(answer, len(prompt.prompt)):
            total = total - table[place - 1, int(token)]
            num_tokens += 1
    mean: Any = total / num_tokens
    gradients = torch.autograd.grad(mean, list(parameters.values()))
    return float(mean.detach()), dict(zip(parameters, gradients, strict=True))


@pytest.mark.parametrize("train", [FULL, LORA], ids=["full", "lora"])
def test_step_when_demonstrations_are_shown_then_adds_their_weighted_mean_to_the_gradient(
    train: Mapping[str, Any], tiny_model: Path
) -> None:
    """To the precision of float32; the loss itself is compared at 1e-9 in test_imitation_loss."""
    spec = imitating_spec(tiny_model, train)
    alone, both = _learner(spec, None), _learner(spec, _shown(spec))
    if train is LORA:  # an adapter's product begins at 0: give every matrix a gradient
        pairs = zip(alone.model.trainable().values(), both.model.trainable().values(), strict=True)
        with torch.no_grad():
            for one, other in pairs:
                noise = torch.randn_like(one) * 0.1
                one.add_(noise)
                other.add_(noise)
    prompts = _shown(spec).of_update(0)
    mean, wanted = _plain(both, tiny_model, prompts)
    _, of_groups = _gradient(alone, _credited(spec))
    metrics, found = _gradient(both, _credited(spec))
    assert metrics["demonstration_loss"] == pytest.approx(mean, abs=1e-5)
    assert metrics["demonstration_tokens"] == sum(len(p.samples[0].token_ids) for p in prompts)
    assert metrics["demonstration_weight"] == 0.5
    assert max(float(gradient.abs().max()) for gradient in wanted.values()) > 0.01
    for name, gradient in wanted.items():
        added = (found[name] - of_groups[name]).double()
        assert torch.allclose(added, 0.5 * gradient.double(), atol=2e-5), name


@pytest.mark.parametrize("train", [FULL, LORA], ids=["full", "lora"])
def test_step_when_memory_is_short_in_a_demonstration_then_groups_count_once(
    train: Mapping[str, Any], tiny_model: Path
) -> None:
    spec = imitating_spec(tiny_model, train)
    plain, short = _learner(spec, _shown(spec)), _learner(spec, _shown(spec))
    passes: list[int] = []

    def last_pass(_: Any) -> None:
        passes.append(len(passes))
        if len(passes) == num_passes:
            raise torch.OutOfMemoryError("CUDA out of memory")

    parameter = next(iter(plain.model.trainable().values()))
    parameter.register_hook(passes.append)
    wanted = plain.step(_credited(spec), 0).metrics
    num_passes = len(passes)
    passes.clear()
    next(iter(short.model.trainable().values())).register_hook(last_pass)
    assert short.step(_credited(spec), 0).metrics == wanted
    assert len(passes) == 2 * num_passes
    assert all(torch.equal(t, short.state().tensors[n]) for n, t in plain.state().tensors.items())


def test_step_when_every_group_is_flat_then_demonstrations_alone_teach(tiny_model: Path) -> None:
    spec = imitating_spec(tiny_model, weight=1.0)
    learner = _learner(spec, _shown(spec, [_prompt([1, 2, 3], [4, 5])]))
    group = make_group(random.Random(1), rewards=[1.0] * 4)
    flat = [credit(group, [0.0] * 4, 1.0)]
    losses = [learner.step(flat, 0).metrics["demonstration_loss"] for _ in range(4)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.5 * losses[0]
    outcome = learner.step(flat, 0)
    assert (outcome.trained_tokens, outcome.trained_groups) == (0, 0)


def test_step_when_the_policy_has_no_groups_then_nothing_is_shown(tiny_model: Path) -> None:
    spec = imitating_spec(tiny_model)
    learner = _learner(spec, _shown(spec))
    before = {n: p.detach().clone() for n, p in learner.model.trainable().items()}
    assert "demonstration_loss" not in learner.step([], 0).metrics
    assert all(torch.equal(before[n], p) for n, p in learner.model.trainable().items())


def test_order_when_five_are_shown_three_by_three_then_each_comes_once_before_any_again(
    tiny_model: Path,
) -> None:
    """Worked by hand: 5 rows, 3 an update. Updates 0 to 4 show 15, which is each of them 3 times;
    the first five of these are all five, and update 1 ends one round and begins the next."""
    spec, prompts = imitating_spec(tiny_model), _prompts()
    updates = [_shown(spec, prompts).of_update(n) for n in range(5)]
    places = [next(i for i, p in enumerate(prompts) if p is q) for u in updates for q in u]
    rounds = [places[0:5], places[5:10], places[10:15]]
    assert all(sorted(each) == [0, 1, 2, 3, 4] for each in rounds)
    assert rounds[0] != rounds[1]
    again = _shown(spec, prompts)
    assert [again.of_update(3), again.of_update(1)] == [updates[3], updates[1]]


def test_weight_when_it_falls_then_is_worked_by_hand(tiny_model: Path) -> None:
    """Weight 2 over 8 optimizer steps (4 of 2 minibatches): 2, 1.75, ..., 0.25."""
    spec = imitating_spec(tiny_model, weight=2.0, schedule="linear", minibatches=2)
    weights = [_shown(spec).weight(n) for n in range(9)]
    assert weights == [2.0, 1.75, 1.5, 1.25, 1.0, 0.75, 0.5, 0.25, 0.0]
    steady = imitating_spec(tiny_model, weight=2.0)
    assert [_shown(steady).weight(n) for n in (0, 99)] == [2.0, 2.0]


def test_restore_when_mid_way_then_goes_on_with_the_same_demonstrations_and_bits(
    tiny_model: Path,
) -> None:
    spec = imitating_spec(tiny_model, LORA, minibatches=2, schedule="linear")
    whole, resumed = (_learner(spec, _shown(spec)) for _ in range(2))
    for step in range(2):
        whole.step(_credited(spec, step))
    resumed.restore(whole.state())
    for step in range(2, 4):
        one, other = (learner.step(_credited(spec, step)) for learner in (whole, resumed))
        assert one.metrics == other.metrics
    one, other = whole.state().tensors, resumed.state().tensors
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_learner_when_it_begins_ahead_of_the_round_then_the_bits_are_the_same(
    tiny_model: Path,
) -> None:
    spec = imitating_spec(tiny_model, LORA)
    late, early = (_learner(spec, _shown(spec), held_bytes=1 << 20) for _ in range(2))
    groups = _credited(spec)
    tickets = early.tickets_of(0, 2)
    early.ahead(0, [g for g in groups if int(g.record.ticket_id.rsplit("/", 1)[-1]) in tickets])
    assert late.step(groups, 0).metrics == early.step(groups, 0).metrics
    one, other = late.state().tensors, early.state().tensors
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_step_when_a_demonstration_is_not_finite_then_says_so_and_changes_nothing(
    tiny_model: Path,
) -> None:
    spec = imitating_spec(tiny_model)
    learner = _learner(spec, _shown(spec))
    parameter = next(iter(learner.model.trainable().values()))
    with torch.no_grad():
        parameter.view(-1)[0] = float("nan")
    with pytest.raises(NonFiniteError, match=r"the demonstrations' nan .* no weight was changed"):
        learner.step(_credited(spec), 0)
    assert blame([], has_finite_weights=True) == "No group has a part in it."  # of a flat step


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_learner_when_spread_over_two_ranks_then_imitates_as_one_process(
    kind: str, tiny_model: Path
) -> None:
    spec = imitating_spec(tiny_model, LORA if kind == "lora" else FULL, minibatches=2)
    with ranks_with(spec) as ranks:
        spread = _learner(spec, _shown(spec), ranks=ranks)
        alone = _learner(spec, _shown(spec))
        for step in range(2):
            got, want = (learner.step(_credited(spec, step), step) for learner in (spread, alone))
            assert got.metrics["demonstration_tokens"] == want.metrics["demonstration_tokens"]
            for name in ("loss", "grad_norm", "demonstration_loss"):
                assert got.metrics[name] == pytest.approx(want.metrics[name], rel=1e-3, abs=1e-5)
        one, other = spread.state().tensors, alone.state().tensors
        names = [name for name in other if name.startswith("param/")]
        assert all(torch.allclose(one[n], other[n], atol=2e-4) for n in names)
