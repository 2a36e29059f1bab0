"""Levels L1 to L3 in one trainer: who moves is the agent -> policy map, freezing and turns."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_data import job_spec, make_group
from transformers import LlamaConfig, LlamaForCausalLM

from troupe.api.records.v1 import records_pb2 as pb
from troupe.runtime.step_report.trainer import TrainerPart
from troupe.spec.job import JobSpec
from troupe_trainer.learn.collector import Batch
from troupe_trainer.learn.learners import Learners
from troupe_trainer.learn.outcome import NonFiniteError
from troupe_trainer.learn.report import step_report
from troupe_trainer.model.learner_state import LearnerState

AGENTS = ("tool", "planner")


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another family and another size than the tiny Qwen3."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.3,
        bos_token_id=1,
        eos_token_id=2,
    )
    folder = tmp_path_factory.mktemp("llama")
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def policy(model: Path, **changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": str(model),
        "train": {"kind": "lora", "rank": 4, "alpha": 8},
        "optimizer": {"learning_rate": 0.01, "warmup_steps": 0},
    }
    return body | changes


def duo(model: Path, first: dict[str, Any], second: dict[str, Any], **algorithm: Any) -> JobSpec:
    return job_spec(
        model,
        agents={"tool": {"policy": "one"}, "planner": {"policy": "two"}},
        policies={"one": first, "two": second},
        algorithm={"group_size": 4, **algorithm},
    )


def batch(step: int, *, only: str | None = None, flat: bool = False) -> Batch:
    """Two groups of each agent under its own policy; ``only`` one policy's, or all rewards 1."""
    found: dict[str, list[Any]] = {"one": [], "two": []}
    for name, agent in zip(found, AGENTS, strict=True):
        if only not in (None, name):
            continue
        for task in range(2):
            rng = random.Random(f"{step}/{agent}/{task}")
            rewards = [1.0] * 4 if flat else None
            group = make_group(rng, step=step, task=task, agent=agent, rewards=rewards)
            group.policy = name
            found[name].append(group)
    return Batch(step, found, {})


Weights = dict[str, dict[str, torch.Tensor]]


def weights(team: Learners) -> Weights:
    """Every parameter of every policy's module, frozen ones too."""
    return {
        name: {n: p.detach().clone() for n, p in learner.model.module.named_parameters()}
        for name, learner in team.by_policy.items()
    }


def moved(before: Weights, after: Weights) -> dict[str, set[str]]:
    """Names of the parameters that changed, by policy."""
    return {
        policy: {n for n, old in own.items() if not old.equal(after[policy][n])}
        for policy, own in before.items()
    }


async def steps(spec: JobSpec, run_dir: Path, *batches: Batch) -> list[dict[str, set[str]]]:
    team = await Learners.load(spec, run_dir, device="cpu", threads=1)
    found: list[dict[str, set[str]]] = []
    try:
        for it in batches:
            before = weights(team)
            await team.learn(it)
            found.append(moved(before, weights(team)))
    finally:
        team.close()
    return found


def adapters(model_moved: set[str]) -> bool:
    return bool(model_moved) and all("lora_" in name for name in model_moved)


@pytest.mark.parametrize(
    ("level", "agents"),
    [
        ("L1", {"tool": {"policy": "one"}, "planner": {"policy": "one"}}),
        ("L2", {"tool": {"policy": "one"}, "planner": {"policy": "two"}}),
    ],
)
async def test_level_when_only_the_map_of_agents_changes_then_one_document_serves_both(
    tiny_model: Path, tmp_path: Path, level: str, agents: dict[str, Any]
) -> None:
    both = {"one": policy(tiny_model), "two": policy(tiny_model)}
    spec = job_spec(tiny_model, agents=agents, policies=both)
    groups = batch(0).groups
    if level == "L1":
        for group in groups["two"]:
            group.policy = "one"
        groups = {"one": [*groups["one"], *groups["two"]]}
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    try:
        assert sorted(team.by_policy) == (["one"] if level == "L1" else ["one", "two"])
        before = weights(team)
        learned = await team.learn(Batch(0, groups, {}))
        assert all(adapters(own) for own in moved(before, weights(team)).values())
    finally:
        team.close()
    counts = {name: outcome.trained_groups for name, outcome in learned.outcomes.items()}
    assert counts == ({"one": 4} if level == "L1" else {"one": 2, "two": 2})


async def test_l2_when_only_one_policy_has_groups_then_its_adapter_alone_moves(
    tiny_model: Path, tmp_path: Path
) -> None:
    spec = duo(tiny_model, policy(tiny_model), policy(tiny_model))
    for name, other in (("one", "two"), ("two", "one")):
        (found,) = await steps(spec, tmp_path, batch(0, only=name))
        assert adapters(found[name])
        assert not found[other]


async def test_l2_when_both_learn_then_every_trained_tensor_of_both_adapters_moves(
    tiny_model: Path, tmp_path: Path
) -> None:
    narrow = policy(tiny_model, train={"kind": "lora", "rank": 2, "targets": ["q_proj", "v_proj"]})
    spec = duo(tiny_model, policy(tiny_model), narrow)
    found, again = await steps(spec, tmp_path, batch(0), batch(1))
    # B starts at 0, so A has no gradient before the second step: both move in the end.
    both = {name: found[name] | again[name] for name in found}
    assert len(both["one"]) == 2 * 2 * 7
    assert len(both["two"]) == 2 * 2 * 2
    assert all(adapters(own) for own in both.values())
    assert {n.split(".")[-4] for n in both["two"]} <= {"q_proj", "v_proj", "self_attn"}


async def test_l2_when_policies_share_a_model_then_the_base_is_in_memory_once(
    tiny_model: Path, tmp_path: Path
) -> None:
    spec = duo(tiny_model, policy(tiny_model), policy(tiny_model))
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    try:
        pointers = [
            {p.data_ptr() for n, p in learner.model.module.named_parameters() if "lora_" not in n}
            for learner in team.by_policy.values()
        ]
        assert pointers[0] == pointers[1]
        trained = [
            {p.data_ptr() for p in learner.model.trainable().values()}
            for learner in team.by_policy.values()
        ]
        assert not trained[0] & trained[1]
    finally:
        team.close()


async def test_l2_when_one_of_the_policies_trains_all_weights_then_it_shares_nothing(
    tiny_model: Path, tmp_path: Path
) -> None:
    spec = duo(tiny_model, policy(tiny_model), policy(tiny_model, train={"kind": "full"}))
    (found,) = await steps(spec, tmp_path, batch(0, only="two"))
    assert found["two"]
    assert not found["one"]


async def test_l3_when_models_differ_in_size_and_family_then_both_learn_in_one_trainer(
    tiny_model: Path, llama: Path, tmp_path: Path
) -> None:
    full = policy(llama, train={"kind": "full"}, optimizer={"learning_rate": 0.001})
    spec = duo(tiny_model, policy(tiny_model), full)
    (found,) = await steps(spec, tmp_path, batch(0))
    assert adapters(found["one"])
    assert any("mlp" in name for name in found["two"])


async def test_learning_rate_when_a_policy_has_its_own_then_it_moves_that_much(
    tiny_model: Path, tmp_path: Path
) -> None:
    slow = policy(tiny_model, optimizer={"learning_rate": 0.0001, "warmup_steps": 0})
    team = await Learners.load(
        duo(tiny_model, policy(tiny_model), slow), tmp_path, device="cpu", threads=1
    )
    try:
        before = weights(team)
        await team.learn(batch(0))
        after = weights(team)
    finally:
        team.close()
    far = {
        name: max(float((after[name][n] - old).abs().max()) for n, old in own.items())
        for name, own in before.items()
    }
    # Adam's first step moves each weight by its learning rate.
    assert far["one"] == pytest.approx(0.01, rel=1e-2)
    assert far["two"] == pytest.approx(0.0001, rel=1e-2)


async def test_frozen_when_groups_come_all_the_same_then_nothing_of_it_moves(
    tiny_model: Path, tmp_path: Path
) -> None:
    spec = duo(tiny_model, policy(tiny_model), policy(tiny_model, frozen=True))
    for found in await steps(spec, tmp_path, batch(0), batch(1)):
        assert found["one"]
        assert not found["two"]


async def test_alternate_when_it_is_one_policys_turn_then_only_that_one_moves(
    tiny_model: Path, tmp_path: Path
) -> None:
    turns = {"order": ["two", "one"], "every": 2}
    spec = duo(tiny_model, policy(tiny_model), policy(tiny_model), alternate=turns)
    found = await steps(spec, tmp_path, *(batch(step) for step in range(6)))
    who = ["".join(sorted(name for name, own in it.items() if own)) for it in found]
    assert who == ["two", "two", "one", "one", "two", "two"]


async def test_alternate_when_it_is_not_a_policys_turn_then_its_schedule_stands_still(
    tiny_model: Path, tmp_path: Path
) -> None:
    falling = {"learning_rate": 1.0, "warmup_steps": 2, "schedule": "linear", "min_ratio": 0.5}
    both = (policy(tiny_model, optimizer=falling) for _ in AGENTS)
    spec = duo(tiny_model, *both, alternate={"order": ["two", "one"], "every": 4})
    spec = spec.model_copy(update={"steps": 8})
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    found: dict[str, list[float]] = {"one": [], "two": []}
    try:
        for step in range(8):
            learned = await team.learn(batch(step))
            name = "two" if step < 4 else "one"
            found[name].append(learned.outcomes[name].metrics["learning_rate"])
        counts = {name: state.optimizer_step for name, state in team.states().items()}
    finally:
        team.close()
    # Each has four turns: two of warm-up, then from the peak down to half of it at its last.
    assert found == {"one": [0.5, 1.0, 1.0, 0.5], "two": [0.5, 1.0, 1.0, 0.5]}
    assert counts == {"one": 4, "two": 4}


async def test_step_when_no_group_has_variance_then_the_report_says_so(
    tiny_model: Path, tmp_path: Path
) -> None:
    spec = duo(tiny_model, policy(tiny_model), policy(tiny_model))
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    try:
        for flat in (True, False):
            it = batch(0, flat=flat)
            report = step_report(it, await team.learn(it), 1.0)
            assert report.is_flat is flat
            assert report.groups_zero_variance == (4 if flat else 0)
        empty = Batch(2, {"one": [], "two": []}, {"empty_completion": 8})
        report = step_report(empty, await team.learn(empty), 1.0)
        assert report.is_flat
        assert report.groups_dropped == {"empty_completion": 8}
    finally:
        team.close()


async def test_step_when_one_group_gives_no_number_then_it_alone_is_saved(
    tiny_model: Path, tmp_path: Path
) -> None:
    spec = duo(tiny_model, policy(tiny_model), policy(tiny_model))
    it = batch(3)
    bad = it.groups["two"][1]
    worst = min(range(4), key=lambda i: bad.candidates[i].reward)
    bad.candidates[worst].rollout_logprobs[0] = -1000.0
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    try:
        with pytest.raises(NonFiniteError, match=r"Step 4 stopped.*nan-step-3\.pb"):
            await team.learn(it)
    finally:
        team.close()
    saved = pb.Episode.FromString((tmp_path / "nan-step-3.pb").read_bytes())
    assert list(saved.groups) == [bad]


async def test_step_when_its_bad_groups_cannot_be_kept_then_the_error_is_told_all_the_same(
    tiny_model: Path, tmp_path: Path
) -> None:
    it = batch(3)
    it.groups["two"][1].candidates[0].rollout_logprobs[0] = -1000.0
    (tmp_path / "nan-step-3.pb").mkdir()  # a file that can't be replaced, as on a full disk
    team = await Learners.load(
        duo(tiny_model, policy(tiny_model), policy(tiny_model)), tmp_path, device="cpu", threads=1
    )
    try:
        with pytest.raises(NonFiniteError, match=r"Step 4 stopped.*could not be kept in .*\.pb"):
            await team.learn(it)
    finally:
        team.close()


async def test_filters_when_zero_variance_is_filtered_then_flat_groups_do_not_dilute(
    tiny_model: Path, tmp_path: Path
) -> None:
    # The same two groups with variance, alone and beside two without.
    reports: list[TrainerPart] = []
    norms: list[float] = []
    for filters, num_flat in ((False, 0), (True, 2), (False, 2)):
        spec = job_spec(
            tiny_model, algorithm={"group_size": 4, "filters": {"zero_variance": filters}}
        )
        rewards = [[1.0, 0.0, 0.0, 0.0]] * 2 + [[1.0] * 4] * num_flat
        groups = [
            make_group(random.Random(n), task=n, rewards=own) for n, own in enumerate(rewards)
        ]
        team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
        try:
            learned = await team.learn(it := Batch(0, {"shared": groups}, {}))
        finally:
            team.close()
        reports.append(step_report(it, learned, 1.0))
        norms.append(learned.outcomes["shared"].metrics["grad_norm"])
    assert norms[0] == norms[1]
    assert norms[2] < 0.9 * norms[0]
    assert [report.groups_zero_variance for report in reports] == [0, 2, 2]
    assert [report.groups_trained for report in reports] == [2, 2, 2]


async def test_filters_when_every_completion_was_cut_then_the_step_is_flat_and_they_are_counted(
    tiny_model: Path, tmp_path: Path
) -> None:
    spec = duo(tiny_model, policy(tiny_model), policy(tiny_model), filters={"truncated": True})
    it = batch(0)
    for groups in it.groups.values():
        for candidate in (c for group in groups for c in group.candidates):
            candidate.finish_reason = pb.FINISH_REASON_LENGTH
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    try:
        report = step_report(it, await team.learn(it), 1.0)
    finally:
        team.close()
    assert report.is_flat
    assert report.candidates_filtered == 16


@pytest.mark.parametrize("algorithm", [{}, {"kind": "ippo", "critic": {"kind": "head"}}])
async def test_l3_when_each_policy_has_a_trainer_then_the_weights_of_one_trainer(
    tiny_model: Path, llama: Path, tmp_path: Path, algorithm: dict[str, Any]
) -> None:
    full = policy(llama, train={"kind": "full"}, optimizer={"learning_rate": 0.001})
    spec = duo(tiny_model, policy(tiny_model), full, **algorithm)
    whole = await learnt(spec, tmp_path, "", batch(0), batch(1))
    for name in spec.policies:
        own = [batch(step, only=name) for step in range(2)]
        mine = [Batch(it.step, {name: it.groups[name]}, {}) for it in own]
        alone = await learnt(spec, tmp_path, name, *mine)
        assert alone.keys() == {key for key in whole if key.removeprefix("critic.") == name}
        for key, state in alone.items():
            same = {n: t for n, t in whole[key].tensors.items() if n != "rng"}
            assert state.optimizer_step == whole[key].optimizer_step
            assert all(state.tensors[n].equal(tensor) for n, tensor in same.items())


async def learnt(
    spec: JobSpec, run_dir: Path, policy: str, *batches: Batch
) -> dict[str, LearnerState]:
    team = await Learners.load(spec, run_dir, device="cpu", threads=1, policy=policy)
    try:
        for it in batches:
            await team.learn(it)
        return await team.on_thread(team.states)
    finally:
        team.close()
