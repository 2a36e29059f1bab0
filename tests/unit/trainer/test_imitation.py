"""Demonstrations in the learner: the loss beside the groups', the order, what is refused."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from algorithm_world import build_planner
from trainer_data import VOCABULARY, groups_of_step, job_spec, make_group
from transformers import AutoModelForCausalLM, AutoTokenizer

from troupe.algorithms.at_grpo import AtGrpo
from troupe.candidates import Sample, group_outcome
from troupe.data.sources import digest_of
from troupe.errors import InvalidArgumentError
from troupe.runtime.step_report.trainer import TrainerPart, over_policies
from troupe.spec.algorithm import DemonstrationsSpec
from troupe.spec.job import JobSpec
from troupe.tasks.family import Message
from troupe_rollout.engines.chat import ChatTemplate
from troupe_trainer.learn.collector import Batch
from troupe_trainer.learn.demonstrations import Demonstrations, demonstrations_of
from troupe_trainer.learn.learner import Learner
from troupe_trainer.learn.learners import Learners
from troupe_trainer.learn.outcome import NonFiniteError
from troupe_trainer.learn.report import step_report
from troupe_trainer.model.ranks.group import LOAD
from troupe_trainer.model.ranks.start import start
from troupe_trainer.samples import CreditedGroup, PromptSamples, credit

FULL: dict[str, Any] = {"kind": "full"}
LORA: dict[str, Any] = {"kind": "lora", "rank": 4, "alpha": 8}


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


def _spec(model: Path, train: dict[str, Any] = FULL, **demonstrations: Any) -> JobSpec:
    policy = {
        "model": str(model),
        "train": train,
        "optimizer": {"learning_rate": 0.01, "warmup_steps": 0, "max_grad_norm": 1e9},
    }
    minibatches = demonstrations.pop("minibatches", 1)
    part = {"path": "shown.jsonl", "per_update": 3, "weight": 0.5, **demonstrations}
    algorithm = {"group_size": 4, "minibatches": minibatches, "demonstrations": part}
    return job_spec(model, algorithm=algorithm, policies={"shared": policy})


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
    train: dict[str, Any], tiny_model: Path
) -> None:
    """To the precision of float32; the loss itself is compared at 1e-9 in test_imitation_loss."""
    spec = _spec(tiny_model, train)
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


def test_step_when_every_group_is_flat_then_demonstrations_alone_teach(tiny_model: Path) -> None:
    spec = _spec(tiny_model, weight=1.0)
    learner = _learner(spec, _shown(spec, [_prompt([1, 2, 3], [4, 5])]))
    group = make_group(random.Random(1), rewards=[1.0] * 4)
    flat = [credit(group, [0.0] * 4, 1.0)]
    losses = [learner.step(flat, 0).metrics["demonstration_loss"] for _ in range(4)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.5 * losses[0]
    outcome = learner.step(flat, 0)
    assert (outcome.trained_tokens, outcome.trained_groups) == (0, 0)


def test_step_when_the_policy_has_no_groups_then_nothing_is_shown(tiny_model: Path) -> None:
    spec = _spec(tiny_model)
    learner = _learner(spec, _shown(spec))
    before = {n: p.detach().clone() for n, p in learner.model.trainable().items()}
    assert "demonstration_loss" not in learner.step([], 0).metrics
    assert all(torch.equal(before[n], p) for n, p in learner.model.trainable().items())


def test_order_when_five_are_shown_three_by_three_then_each_comes_once_before_any_again(
    tiny_model: Path,
) -> None:
    """Worked by hand: 5 rows, 3 an update. Updates 0 to 4 show 15, which is each of them 3 times;
    the first five of these are all five, and update 1 ends one round and begins the next."""
    spec, prompts = _spec(tiny_model), _prompts()
    updates = [_shown(spec, prompts).of_update(n) for n in range(5)]
    places = [next(i for i, p in enumerate(prompts) if p is q) for u in updates for q in u]
    rounds = [places[0:5], places[5:10], places[10:15]]
    assert all(sorted(each) == [0, 1, 2, 3, 4] for each in rounds)
    assert rounds[0] != rounds[1]
    again = _shown(spec, prompts)
    assert [again.of_update(3), again.of_update(1)] == [updates[3], updates[1]]


def test_weight_when_it_falls_then_is_worked_by_hand(tiny_model: Path) -> None:
    """Weight 2 over 8 optimizer steps (4 of 2 minibatches): 2, 1.75, ..., 0.25."""
    spec = _spec(tiny_model, weight=2.0, schedule="linear", minibatches=2)
    weights = [_shown(spec).weight(n) for n in range(9)]
    assert weights == [2.0, 1.75, 1.5, 1.25, 1.0, 0.75, 0.5, 0.25, 0.0]
    steady = _spec(tiny_model, weight=2.0)
    assert [_shown(steady).weight(n) for n in (0, 99)] == [2.0, 2.0]


def test_restore_when_mid_way_then_goes_on_with_the_same_demonstrations_and_bits(
    tiny_model: Path,
) -> None:
    spec = _spec(tiny_model, LORA, minibatches=2, schedule="linear")
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
    spec = _spec(tiny_model, LORA)
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
    spec = _spec(tiny_model)
    learner = _learner(spec, _shown(spec))
    parameter = next(iter(learner.model.trainable().values()))
    with torch.no_grad():
        parameter.view(-1)[0] = float("nan")
    with pytest.raises(NonFiniteError, match=r"the demonstrations' nan .* no weight was changed"):
        learner.step(_credited(spec), 0)


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_learner_when_spread_over_two_ranks_then_imitates_as_one_process(
    kind: str, tiny_model: Path
) -> None:
    spec = _spec(tiny_model, LORA if kind == "lora" else FULL, minibatches=2)
    started = start(2, device="cpu", threads=1)
    try:
        started.ranks.tell(("", LOAD, (spec.model_dump_json(), "auto")))
        spread = _learner(spec, _shown(spec), ranks=started.ranks)
        alone = _learner(spec, _shown(spec))
        for step in range(2):
            got, want = (learner.step(_credited(spec, step), step) for learner in (spread, alone))
            assert got.metrics["demonstration_tokens"] == want.metrics["demonstration_tokens"]
            for name in ("loss", "grad_norm", "demonstration_loss"):
                assert got.metrics[name] == pytest.approx(want.metrics[name], rel=1e-3, abs=1e-5)
        one, other = spread.state().tensors, alone.state().tensors
        names = [name for name in other if name.startswith("param/")]
        assert all(torch.allclose(one[n], other[n], atol=2e-4) for n in names)
    finally:
        started.end()
    assert [child.returncode for child in started.children] == [0]


@pytest.fixture(scope="module")
def planner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a tokenizer."""
    return build_planner(tmp_path_factory.mktemp("planner"), steps=2)


def _rows(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "shown.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


SHOWN = [{"role": "system", "content": "Plan."}, {"role": "user", "content": "grid: S . G"}]
ROW = {"agent": "tool", "messages": SHOWN, "answer": "right right"}


def _of_file(planner: Path, path: Path, **more: Any) -> JobSpec:
    return _spec(planner, LORA, path=str(path), **more)


def test_tokens_when_a_row_is_read_then_are_the_engines_prompt_and_an_answer_that_ends(
    planner: Path, tmp_path: Path
) -> None:
    spec = _of_file(planner, _rows(tmp_path, ROW), per_update=1)
    found = demonstrations_of("shared", spec)
    assert found is not None
    (prompt,) = found.of_update(0)
    tokenizer: Any = AutoTokenizer.from_pretrained(planner)
    engine = ChatTemplate(tokenizer, str(planner))
    assert prompt.prompt.tolist() == engine.render([Message(**m) for m in SHOWN])  # type: ignore[arg-type]
    (sample,) = prompt.samples
    assert int(sample.token_ids[-1]) == tokenizer.eos_token_id
    assert engine.answer_text(list(sample.token_ids), [], calls=False) == "right right"
    assert sample.temperature == 1.0


def test_policies_when_each_has_agents_then_gets_their_rows_alone(
    planner: Path, tmp_path: Path
) -> None:
    path = _rows(tmp_path, ROW, {**ROW, "agent": "planner", "answer": "left"})
    base = _of_file(planner, path).model_dump()
    policy = base["policies"].pop("shared")
    base["policies"] = {"a": policy, "b": {**policy, "frozen": True}, "c": policy}
    base["agents"] = {"tool": {"policy": "a"}, "planner": {"policy": "b"}}
    spec = JobSpec.model_validate(base)
    shown = demonstrations_of("a", spec)
    assert shown is not None and len({id(p) for p in shown.of_update(0)}) == 1
    assert demonstrations_of("b", spec) is None


@pytest.mark.parametrize(
    ("row", "more", "why"),
    [
        ({**ROW, "agent": "tol"}, {}, "row 2: agent is 'tol'"),
        (
            {**ROW, "answer": "right " * 300},
            {},
            r"row 2: the answer has \d+ tokens .* may write 256",
        ),
        (ROW, {"sha256": "0" * 64}, "is another file than the job began with"),
    ],
)
def test_file_when_it_is_not_what_the_job_can_learn_then_says_what_to_do(
    row: dict[str, Any], more: dict[str, Any], why: str, planner: Path, tmp_path: Path
) -> None:
    spec = _of_file(planner, _rows(tmp_path, ROW, row), **more)
    with pytest.raises(InvalidArgumentError, match=why) as caught:
        demonstrations_of("shared", spec)
    assert caught.value.pointer == "/algorithm/demonstrations/path"


async def test_job_when_it_imitates_then_the_report_has_it_and_the_answers_become_likelier(
    planner: Path, tmp_path: Path
) -> None:
    """Through the trainer's own loading, learning and report, groups flat and with signal."""
    path = _rows(tmp_path, ROW, {**ROW, "answer": "right"})
    spec = _of_file(planner, path, per_update=2, weight=1.0, sha256=digest_of(path))
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    try:
        lines: list[dict[str, Any]] = []
        for step in range(6):
            batch = Batch(step, {"shared": groups_of_step(step)}, {})
            part = step_report(batch, await team.learn(batch), 0.1)
            lines.append(part.to_line())
            assert TrainerPart.from_wire(part.to_wire()) == part
    finally:
        team.close()
    losses = [line["demonstration_loss"] for line in lines]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.85 * losses[0], losses
    assert all(line["demonstration_tokens"] == lines[0]["demonstration_tokens"] for line in lines)
    assert all(line["demonstration_weight"] == 1.0 for line in lines)


def test_report_when_policies_have_trainers_then_the_loss_is_weighed_by_tokens_shown() -> None:
    """Worked by hand: 10 tokens at 2 nats and 30 at 4 are 3.5 in the mean."""
    part = TrainerPart(step=0, demonstration_loss=2.0, demonstration_tokens=10, trained_tokens=900)
    other = replace(part, demonstration_loss=4.0, demonstration_tokens=30, trained_tokens=100)
    whole = over_policies([part, other])
    assert (whole.demonstration_loss, whole.demonstration_tokens) == (3.5, 40)
    assert over_policies([replace(part, demonstration_loss=None, demonstration_tokens=None)]) == (
        TrainerPart(step=0, trained_tokens=900)
    )


def test_spec_when_it_has_none_then_is_written_as_before(tiny_model: Path) -> None:
    assert "demonstrations" not in job_spec(tiny_model).model_dump()["algorithm"]
    assert DemonstrationsSpec(path="a").model_dump(exclude_defaults=True) == {"path": "a"}
