import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from trainer_data import groups_of_step, job_spec, make_group
from transformers import AutoModelForCausalLM

from troupe.algorithms.at_grpo import AtGrpo
from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import group_outcome
from troupe.spec.batch import BatchSpec
from troupe.spec.job import JobSpec
from troupe_trainer.checkpoint.export import export_artifacts
from troupe_trainer.learn.learner import Learner, NonFiniteError
from troupe_trainer.samples import CreditedGroup, credit


def _learner(spec: JobSpec) -> Learner:
    return Learner("shared", spec, AtGrpo(spec.algorithm), device="cpu")


def _credited(groups: list[pb.Group], spec: JobSpec) -> list[CreditedGroup]:
    algorithm = AtGrpo(spec.algorithm)
    return [credit(g, algorithm.advantages(group_outcome(g)), 1.0) for g in groups]


def _weights(learner: Learner) -> dict[str, torch.Tensor]:
    return {n: p.detach().clone() for n, p in learner.model.trainable().items()}


def _equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


def _on_policy(learner: Learner, group: pb.Group) -> pb.Group:
    """The group as if the learner's own weights had sampled it."""
    for candidate in group.candidates:
        tokens = [*group.prompts[0].token_ids, *candidate.token_ids]
        logprobs = learner.model.score(tokens)[-len(candidate.token_ids) :]
        candidate.rollout_logprobs[:] = logprobs
    return group


@pytest.mark.parametrize("train", [{"kind": "lora", "rank": 4, "alpha": 8}, {"kind": "full"}])
def test_step_when_repeated_on_policy_then_rewarded_completions_become_likelier(
    tiny_model: Path, train: dict[str, object]
) -> None:
    policy = {
        "model": str(tiny_model),
        "train": train,
        "optimizer": {"learning_rate": 0.003, "warmup_steps": 0},
    }
    spec = job_spec(tiny_model, steps=20, policies={"shared": policy})
    learner = _learner(spec)
    group = make_group(random.Random(5), rewards=[1.0, 0.0, 0.0, 0.0])
    group.candidates[0].token_ids[:] = [11, 12, 13]
    good = [*group.prompts[0].token_ids, 11, 12, 13]
    before = sum(learner.model.score(good)[-3:])
    for _ in range(10):
        outcome = learner.step(_credited([_on_policy(learner, group)], spec))
    assert sum(learner.model.score(good)[-3:]) > before + 0.5
    assert outcome.metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-3)
    assert outcome.metrics["kl_rollout"] == pytest.approx(0.0, abs=1e-5)


def test_step_when_seeded_alike_then_is_bit_identical(tiny_model: Path) -> None:
    spec = job_spec(tiny_model)
    first, second = _learner(spec), _learner(spec)
    for learner in (first, second):
        learner.step(_credited(groups_of_step(0), spec))
    assert _equal(_weights(first), _weights(second))


@pytest.mark.parametrize("aggregation", ["token", "sequence", "sequence_sum"])
@pytest.mark.parametrize("loss", ["ppo_clip", "gspo"])
def test_step_when_the_layout_changes_then_learns_the_same(
    tiny_model: Path, aggregation: str, loss: str
) -> None:
    algorithm = {"group_size": 4, "aggregation": aggregation, "loss": {"kind": loss}}
    narrow, wide = (
        job_spec(tiny_model, algorithm=algorithm, batch=batch)
        for batch in (
            {"tokens_per_row": 16, "rows_per_microbatch": 1},
            {"tokens_per_row": 4096, "rows_per_microbatch": 64},
        )
    )
    learners = [_learner(narrow), _learner(wide)]
    # Its own probabilities, a little off: ratios on both sides of the clip, and none enormous.
    groups = [_on_policy(learners[0], group) for group in groups_of_step(0)]
    rng = random.Random(0)
    for candidate in (c for group in groups for c in group.candidates):
        candidate.rollout_logprobs[:] = [
            x + rng.uniform(-0.4, 0.4) for x in candidate.rollout_logprobs
        ]
    one, other = (it.step(_credited(groups, narrow)).metrics for it in learners)
    for name in ("loss", "grad_norm", "entropy", "kl_rollout", "ratio_mean", "clip_fraction"):
        assert one[name] == pytest.approx(other[name], rel=1e-5, abs=1e-7), name
    assert 0.0 < one["clip_fraction"] < 1.0


def test_restore_when_mid_way_then_goes_on_bit_for_bit(tiny_model: Path) -> None:
    spec = job_spec(tiny_model, algorithm={"group_size": 4, "minibatches": 2})
    whole, resumed = _learner(spec), _learner(spec)
    for step in range(2):
        whole.step(_credited(groups_of_step(step), spec))
    resumed.restore(whole.state())
    assert _equal(_weights(whole), _weights(resumed))
    for learner in (whole, resumed):
        learner.step(_credited(groups_of_step(2), spec))
    assert _equal(_weights(whole), _weights(resumed))


def test_step_when_no_group_has_signal_then_nothing_changes(tiny_model: Path) -> None:
    spec = job_spec(tiny_model)
    learner = _learner(spec)
    before = _weights(learner)
    group = make_group(random.Random(1), rewards=[0.5] * 4)
    outcome = learner.step(_credited([group], spec))
    assert outcome.trained_tokens == 0
    assert _equal(before, _weights(learner))


def test_step_when_a_minibatch_has_no_groups_then_it_is_no_optimizer_step(
    tiny_model: Path,
) -> None:
    spec = job_spec(tiny_model, algorithm={"group_size": 4, "minibatches": 3})
    learner = _learner(spec)
    for groups, steps in ((groups_of_step(0)[:2], 2), ([], 2), (groups_of_step(1), 5)):
        learner.step(_credited(groups, spec))
        assert learner.state().optimizer_step == steps


def test_step_when_groups_without_signal_join_then_the_gradient_is_diluted_by_their_tokens(
    tiny_model: Path,
) -> None:
    spec = job_spec(tiny_model)
    signal = make_group(random.Random(1), rewards=[1.0, 0.0, 0.0, 0.0])
    flat = make_group(random.Random(2), task=1, rewards=[0.5] * 4)
    alone, diluted = _learner(spec), _learner(spec)
    a = alone.step(_credited([signal], spec))
    b = diluted.step(_credited([signal, flat], spec))
    tokens = [sum(len(c.token_ids) for c in g.candidates) for g in (signal, flat)]
    share = tokens[0] / sum(tokens)
    assert b.metrics["grad_norm"] == pytest.approx(a.metrics["grad_norm"] * share, rel=1e-4)
    assert b.trained_tokens == tokens[0]


def test_step_when_loss_is_not_finite_then_stops_before_any_weight_changes(
    tiny_model: Path,
) -> None:
    spec = job_spec(tiny_model)
    learner = _learner(spec)
    before = _weights(learner)
    group = make_group(random.Random(1), rewards=[1.0, 0.0, 0.0, 0.0])
    group.candidates[1].rollout_logprobs[0] = -1000.0
    with pytest.raises(NonFiniteError, match="no weight was changed"):
        learner.step(_credited([group], spec))
    assert _equal(before, _weights(learner))


LORA: dict[str, object] = {"kind": "lora", "rank": 4, "alpha": 8}
FULL: dict[str, object] = {"kind": "full"}


@pytest.mark.parametrize(
    ("train", "dtype"), [(LORA, "float32"), (FULL, "float32"), (FULL, "bfloat16")]
)
def test_artifacts_when_exported_then_plain_transformers_scores_like_the_learner(
    tiny_model: Path, tmp_path: Path, train: dict[str, object], dtype: str
) -> None:
    policy = {"model": str(tiny_model), "train": train, "dtype": dtype}
    spec = job_spec(tiny_model, policies={"shared": policy})
    learner = _learner(spec)
    learner.step(_credited(groups_of_step(0), spec))
    paths = export_artifacts(learner, spec.policies["shared"], tmp_path / "shared")
    merged = AutoModelForCausalLM.from_pretrained(paths["merged"])
    assert {p.dtype for p in merged.parameters()} == {getattr(torch, dtype)}
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9]])
    with torch.no_grad():
        table = torch.log_softmax(merged(input_ids=tokens).logits[0, :-1].float(), -1)
    scores = table.gather(1, tokens[0, 1:, None])[:, 0].tolist()
    near = 1e-4 if dtype == "float32" else 0.1
    assert scores == pytest.approx(learner.model.score(tokens[0].tolist()), abs=near)
    saved = load_file(Path(paths["merged"]) / "model.safetensors")
    if train is FULL:
        published = learner.model.weights()
        assert saved.keys() == published.keys()
        assert all(saved[name].equal(published[name]) for name in saved)
    else:
        assert (Path(paths["adapter"]) / "adapter_model.safetensors").is_file()


def test_pack_when_a_group_has_several_prompts_then_all_its_turns_are_trained(
    tiny_model: Path,
) -> None:
    spec = job_spec(tiny_model, batch=BatchSpec().model_dump())
    learner = _learner(spec)
    first, second = (make_group(random.Random(s), size=2, rewards=[1.0, 0.0]) for s in (1, 2))
    first.key = pb.GROUP_KEY_TASK
    first.prompts.extend(second.prompts)
    first.candidates.extend(second.candidates)
    outcome = learner.step(_credited([first], spec))
    assert outcome.trained_tokens == sum(len(c.token_ids) for c in first.candidates)
