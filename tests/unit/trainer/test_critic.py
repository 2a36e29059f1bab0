"""The value function on a tiny network: arithmetic by hand, learning, resuming, isolation."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from trainer_data import job_spec, make_group, save_tiny_model
from transformers import PreTrainedTokenizerFast

from benchmarks.trainer_size.allocation_counter import AllocationCounter
from troupe.algorithms.load import load_algorithm
from troupe.api.records.v1 import records_pb2 as pb
from troupe.errors import InvalidArgumentError, JobFailedError
from troupe.spec.algorithm import CriticSpec
from troupe.spec.job import JobSpec
from troupe.spec.policy import PolicySpec
from troupe_trainer.checkpoint.files import CheckpointContents, Checkpoints
from troupe_trainer.learn.collector import Batch
from troupe_trainer.learn.critic import Critic, explained_variance
from troupe_trainer.learn.critics import Critics
from troupe_trainer.learn.learner import Learner
from troupe_trainer.learn.learners import Learners
from troupe_trainer.model.learner_state import IncompatibleWeightsError
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.samples import Lesson

PROMPTS = [(1, 2, 3), (4, 5), (6, 7, 8, 9, 10), (11,)]
TARGETS = [1.0, -1.0, 0.5, 2.0]


def critic_of(model: Path, *, tokens_per_pass: int = 64, **settings: Any) -> Critic:
    spec = CriticSpec.model_validate({"train": {"kind": "lora", "rank": 4}, **settings})
    network = PolicyModel(
        "critic.shared", PolicySpec(model=str(model), train=spec.train), seed=1, device="cpu"
    )
    return Critic("shared", spec, network, tokens_per_pass=tokens_per_pass)


def lessons(critic: Critic) -> list[Lesson]:
    values = critic.values(PROMPTS)
    return [Lesson(*it) for it in zip(PROMPTS, TARGETS, values, strict=True)]


def state_of(critic: Critic) -> dict[str, torch.Tensor]:
    return critic.state().tensors


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one)


def test_explained_variance_when_worked_by_hand_then_one_zero_or_worse() -> None:
    def of(*pairs: tuple[float, float]) -> float | None:
        return explained_variance([Lesson((1,), target, seen) for target, seen in pairs])

    assert of((1.0, 1.0), (3.0, 3.0)) == 1.0
    assert of((1.0, 0.0), (3.0, 0.0)) == 0.0
    assert of((1.0, 3.0), (3.0, 1.0)) == -3.0
    assert of((2.0, 0.0), (2.0, 5.0)) is None


def test_values_when_nothing_was_learnt_then_are_zero(tiny_model: Path) -> None:
    assert critic_of(tiny_model).values(PROMPTS) == [0.0] * 4


def test_values_when_batched_otherwise_then_are_the_same(tiny_model: Path) -> None:
    critic = critic_of(tiny_model, learning_rate=0.05)
    critic.learn(lessons(critic))
    together = critic.values([*PROMPTS, PROMPTS[0]])
    alone = [critic.values([prompt])[0] for prompt in PROMPTS]
    assert together == pytest.approx([*alone, alone[0]], abs=1e-6)


@pytest.mark.parametrize("kind", ["model", "head"])
def test_learn_when_repeated_then_the_targets_are_found(tiny_model: Path, kind: str) -> None:
    critic = critic_of(tiny_model, kind=kind, learning_rate=0.02, epochs=10, clip=None)
    first = critic.learn(lessons(critic))
    for _ in range(3):
        last = critic.learn(lessons(critic))
    assert first["explained_variance"] == 0.0
    assert last["explained_variance"] > 0.9
    assert last["value_loss"] < 0.1 * first["value_loss"]


def test_learn_when_cut_into_passes_then_the_steps_are_the_same(tiny_model: Path) -> None:
    whole, cut = critic_of(tiny_model), critic_of(tiny_model, tokens_per_pass=4)
    a, b = whole.learn(lessons(whole)), cut.learn(lessons(cut))
    assert a == pytest.approx(b, abs=1e-6)
    assert whole.values(PROMPTS) == pytest.approx(cut.values(PROMPTS), abs=1e-5)


def test_value_clip_when_a_value_moves_too_far_then_it_is_counted_and_slowed(
    tiny_model: Path,
) -> None:
    settings = {"learning_rate": 0.05, "epochs": 12, "kind": "head"}
    tight, free = (
        critic_of(tiny_model, clip=0.05, **settings),
        critic_of(tiny_model, clip=None, **settings),
    )
    cut = tight.learn(lessons(tight))
    loose = free.learn(lessons(free))
    assert cut["value_clip_fraction"] > 0.0
    assert loose["value_clip_fraction"] == 0.0
    # The clipped loss is the larger of the two errors, so it can't fall below the bounded move's.
    floor = sum(max(0.0, abs(target) - 0.05) ** 2 for target in TARGETS) / 4
    assert cut["value_loss"] >= floor > loose["value_loss"]


@pytest.mark.parametrize("kind", ["model", "head"])
def test_restore_when_mid_way_then_goes_on_bit_for_bit(tiny_model: Path, kind: str) -> None:
    whole, resumed = critic_of(tiny_model, kind=kind), critic_of(tiny_model, kind=kind)
    whole.learn(lessons(whole))
    resumed.restore(whole.state())
    assert same(state_of(whole), state_of(resumed))
    assert whole.learn(lessons(whole)) == resumed.learn(lessons(resumed))
    assert same(state_of(whole), state_of(resumed))


@pytest.mark.parametrize("kind", ["model", "head"])
def test_restore_when_the_critic_is_another_then_refuses_and_changes_nothing(
    tiny_model: Path, kind: str
) -> None:
    small, large = critic_of(tiny_model, kind=kind), critic_of(tiny_model, kind=kind)
    if kind == "model":
        small = critic_of(tiny_model, train={"kind": "lora", "rank": 2})
    before = state_of(large)
    other = small.state()
    if kind == "head":
        del other.tensors["param/head.bias"]
    first = "lora_A.* shape .2, 32. in the checkpoint" if kind == "model" else "head.bias"
    with pytest.raises(IncompatibleWeightsError, match=f"the critic 'shared': .*{first}"):
        large.restore(other)
    assert same(before, state_of(large))


async def test_team_when_a_checkpoint_has_no_critic_then_names_it(
    tiny_model: Path, tmp_path: Path
) -> None:
    team = await Learners.load(actor_critic(tiny_model), tmp_path, device="cpu", threads=1)
    try:
        states = team.states()
        del states["critic.shared"]
        with pytest.raises(IncompatibleWeightsError, match=r"nothing of 'critic\.shared'"):
            team.restore(states)
    finally:
        team.close()


def test_learn_when_a_target_is_no_number_then_stops_before_any_weight_changes(
    tiny_model: Path,
) -> None:
    critic = critic_of(tiny_model)
    before = state_of(critic)
    with pytest.raises(JobFailedError, match="critic 'shared' has loss nan"):
        critic.learn([Lesson((1, 2), float("nan"), 0.0), Lesson((3,), 1.0, 0.0)])
    assert same(before, state_of(critic))


def without_rng(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The process has one generator, and both teams of a test draw from it."""
    return {name: tensor for name, tensor in tensors.items() if name != "rng"}


def turns_group(seed: int, agent: str, step: int = 0) -> pb.Group:
    """Two trajectories of two turns each, every turn with its own prompt."""
    rng = random.Random(f"{seed}/{agent}/{step}")
    parts = [make_group(rng, step=step, agent=agent, size=2, turn=turn) for turn in range(2)]
    group = parts[0]
    group.key = pb.GROUP_KEY_TASK
    group.prompts.extend(parts[1].prompts)
    group.candidates.extend(parts[1].candidates)
    for index, candidate in enumerate(group.candidates):
        candidate.index, candidate.trajectory = index, index % 2
        candidate.joint_observation = f"step {step} turn {candidate.turn} of both"
        candidate.reward = rng.random()
    return group


def actor_critic(model: Path, /, **critic: Any) -> JobSpec:
    trained = {} if critic.get("kind") == "head" else {"train": {"kind": "lora", "rank": 4}}
    settings = {**trained, **critic}
    return job_spec(model, algorithm={"kind": "ippo", "group_size": 2, "critic": settings})


def batch(step: int) -> Batch:
    groups = [turns_group(0, agent, step) for agent in ("tool", "planner")]
    return Batch(step, {"shared": groups}, {})


@pytest.fixture(scope="session")
def reading_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with a tokenizer, which a team's critic needs: a token for each letter."""
    folder = tmp_path_factory.mktemp("reading") / "model"
    shutil.copytree(tiny_model, folder)
    vocabulary = {letter: number for number, letter in enumerate(" abcdefghijklmnopqrstuvwxyz?")}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?").save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("kind", "name"), [("model", "shared"), ("head", "shared"), ("mappo", "team")]
)
async def test_team_with_a_critic_when_restored_then_the_next_step_is_bit_identical(
    reading_model: Path, tmp_path: Path, kind: str, name: str
) -> None:
    settings = {"kind": "model" if kind == "mappo" else kind, "learning_rate": 0.01}
    spec = actor_critic(reading_model, **settings)
    if kind == "mappo":
        algorithm = spec.algorithm.model_copy(update={"kind": "mappo"})
        spec = spec.model_copy(update={"algorithm": algorithm})
    whole = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    resumed = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    try:
        await whole.learn(batch(0))
        Checkpoints(tmp_path, spec).save(CheckpointContents(1, whole.states()))
        found = Checkpoints(tmp_path, spec).load()
        assert found is not None
        assert found.learners.keys() == {"shared", f"critic.{name}"}
        fresh = without_rng(resumed.states()[f"critic.{name}"].tensors)
        resumed.restore(found.learners)
        assert not same(fresh, without_rng(resumed.states()[f"critic.{name}"].tensors))
        one, other = await whole.learn(batch(1)), await resumed.learn(batch(1))
        assert one.outcomes["shared"].metrics == other.outcomes["shared"].metrics
        assert "explained_variance" in one.outcomes["shared"].metrics
        for owner, state in whole.states().items():
            assert same(without_rng(state.tensors), without_rng(resumed.states()[owner].tensors))
    finally:
        whole.close()
        resumed.close()


@pytest.mark.parametrize("partner", [{"frozen": True}, {"past": {"of": "shared", "every": 1}}])
async def test_ippo_when_a_partner_never_learns_then_the_others_do(
    tiny_model: Path, tmp_path: Path, partner: dict[str, Any]
) -> None:
    body = actor_critic(tiny_model).model_dump()
    body["policies"]["partner"] = body["policies"]["shared"] | partner
    body["agents"]["planner"]["policy"] = "partner"
    team = await Learners.load(JobSpec.model_validate(body), tmp_path, device="cpu", threads=1)
    try:
        groups = {"partner": [], "shared": [turns_group(0, "tool")]}
        learned = await team.learn(Batch(0, groups, {}))
    finally:
        team.close()
    assert learned.outcomes["shared"].trained_tokens > 0
    assert "value_loss" in learned.outcomes["shared"].metrics
    assert learned.outcomes["partner"].trained_tokens == 0


async def test_mappo_when_two_agents_saw_the_same_then_the_teams_critic_values_it_once(
    reading_model: Path, tmp_path: Path
) -> None:
    spec = actor_critic(reading_model, learning_rate=0.05, epochs=20, clip=None)
    algorithm = spec.algorithm.model_copy(update={"kind": "mappo"})
    spec = spec.model_copy(update={"algorithm": algorithm})
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    seen: list[float] = []
    try:
        for _ in range(6):
            groups = [turns_group(0, agent) for agent in ("tool", "planner")]
            for group, reward in zip(groups, (1.0, -3.0), strict=True):
                for candidate in group.candidates:
                    candidate.joint_observation = "all agents see this"
                    # The last act of each trajectory brings it; both agents' returns are fixed.
                    candidate.reward = reward if candidate.turn else 0.0
            learned = await team.learn(Batch(0, {"shared": groups}, {}))
            seen.append(learned.outcomes["shared"].metrics["value_mean"])
    finally:
        team.close()
    # One prompt for both agents, whose returns are 1 and -3 at gamma 1: one value, their mean.
    assert seen[0] == 0.0
    assert seen[-1] == pytest.approx(-1.0, abs=0.1)


async def test_head_when_it_learns_then_the_policy_moves_by_the_actors_loss_alone(
    tiny_model: Path, tmp_path: Path
) -> None:
    moved: list[dict[str, torch.Tensor]] = []
    for epochs in (1, 30):
        spec = actor_critic(tiny_model, kind="head", epochs=epochs, learning_rate=0.1)
        team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
        try:
            # The first step's values are 0 whatever the critic's epochs: equal advantages.
            await team.learn(batch(0))
            model = team.by_policy["shared"].model
            moved.append({n: p.detach().clone() for n, p in model.trainable().items()})
        finally:
            team.close()
    assert same(*moved)


def test_critic_when_activations_are_computed_again_then_keeps_fewer_and_learns_the_same(
    tiny_model: Path,
) -> None:
    seen: list[tuple[int, dict[str, float]]] = []
    prompt = tuple(range(3, 27)) * 4
    for again in (False, True):
        spec = actor_critic(tiny_model, epochs=1)
        layout = {"tokens_per_row": 512, "checkpoint_activations": again}
        spec = spec.model_copy(update={"batch": spec.batch.model_copy(update=layout)})
        learner = Learner("shared", spec, load_algorithm(spec.algorithm), device="cpu")
        torch.manual_seed(0)
        critics = Critics(spec, "own", {"shared": learner}, device="cpu")
        given = [Lesson((number, *prompt), 1.0, 0.0) for number in range(8)]
        with AllocationCounter(torch.Tensor) as counter:
            learned = critics.learn({"shared": given})
        seen.append((counter.peak, learned["shared"]))
    (kept, metrics), (fewer, same_metrics) = seen
    assert metrics == same_metrics
    assert fewer < 0.8 * kept


async def test_critics_when_the_policies_are_trained_whole_then_adapters_share_one_base(
    tiny_model: Path, tmp_path: Path
) -> None:
    body = actor_critic(tiny_model).model_dump()
    body["policies"]["shared"]["train"] = {"kind": "full"}
    body["policies"]["other"] = body["policies"]["shared"]
    body["agents"]["planner"]["policy"] = "other"
    team = await Learners.load(JobSpec.model_validate(body), tmp_path, device="cpu", threads=1)
    assert team._critics is not None
    bases = {
        parameter.data_ptr()
        for critic in team._critics._critics.values()
        for name, parameter in critic._network.module.named_parameters()
        if name.endswith("embed_tokens.weight")
    }
    team.close()
    assert len(bases) == 1


@pytest.mark.parametrize("fault", ["another word", "no tokenizer", "too small"])
async def test_critic_when_it_cannot_read_the_policys_tokens_then_is_refused_by_name(
    reading_model: Path, tiny_model: Path, tmp_path: Path, fault: str
) -> None:
    folder = shutil.copytree(reading_model, tmp_path / "other")
    if fault == "another word":
        file = folder / "tokenizer.json"
        file.write_text(file.read_text().replace('"q"', '"Q"'))
        message = "2 tokens differ, the first is 'Q'"
    elif fault == "no tokenizer":
        shutil.copytree(tiny_model, folder := tmp_path / "mute")
        message = "'.*mute' of policy 'shared' has another vocabulary"
    else:
        save_tiny_model(folder, vocabulary=20)
        message = "embeddings of 20 tokens, and its tokenizer numbers of 28"
    spec = actor_critic(reading_model, model=str(folder))
    with pytest.raises(InvalidArgumentError, match=message) as refusal:
        await Learners.load(spec, tmp_path, device="cpu", threads=1)
    assert refusal.value.pointer == "/algorithm/critic/model"


@pytest.mark.parametrize("has_more", [False, True])
async def test_critic_when_it_is_another_model_of_the_same_tokens_then_learns(
    reading_model: Path, tmp_path: Path, has_more: bool
) -> None:
    folder = shutil.copytree(reading_model, tmp_path / "larger")
    save_tiny_model(folder, num_layers=3)
    if has_more:
        file = folder / "tokenizer.json"
        tokenizer = json.loads(file.read_text())
        tokenizer["model"]["vocab"]["!"] = 28
        file.write_text(json.dumps(tokenizer))
    spec = actor_critic(reading_model, model=str(folder))
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    try:
        learned = await team.learn(batch(0))
    finally:
        team.close()
    assert "value_loss" in learned.outcomes["shared"].metrics
