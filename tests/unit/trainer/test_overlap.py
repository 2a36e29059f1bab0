"""Learning while the round is played: the same bits, in whatever order its tickets end."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_data import groups_of_step, job_spec

from troupe.algorithms.load import load_algorithm
from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.build import refuse_what_cannot_spread
from troupe.errors import InvalidArgumentError
from troupe.ids import ticket_position
from troupe.spec.job import JobSpec
from troupe_trainer.learn.collector import Arrived, Batch
from troupe_trainer.learn.learner import NonFiniteError
from troupe_trainer.learn.learners import Learned, Learners

TICKETS = 6
STEPS = 2
PLENTY = 1 << 30
LORA = {"kind": "lora", "rank": 4, "alpha": 8}
SAFE_LOSS: dict[str, Any] = {"kl": {"coef": 0.1, "where": "loss"}, "importance": {}}


def _spec(tiny_model: Path, *, overlap: bool, **overrides: Any) -> JobSpec:
    train, sums = overrides.pop("train", LORA), overrides.pop("sums", None)
    policy = {
        "model": str(tiny_model),
        "train": train,
        "optimizer": {"learning_rate": 0.01, "warmup_steps": 0},
    }
    batch = {"tokens_per_row": 64, "rows_per_microbatch": 2, "overlap": overlap}
    batch |= {"gradient_sums": sums}
    body = {"policies": {"shared": policy}, "batch": batch, "tasks_per_step": TICKETS}
    return job_spec(tiny_model, **(body | overrides))


def _groups(step: int) -> list[pb.Group]:
    return sorted(groups_of_step(step, tasks=TICKETS), key=lambda group: group.group_id)


def _arrived(step: int, groups: Sequence[pb.Group], finished: Sequence[int]) -> Arrived:
    def groups_of(policy: str, positions: Sequence[int]) -> list[pb.Group]:
        return [g for g in groups if ticket_position(g.ticket_id) in positions]

    return Arrived(step, TICKETS, frozenset(finished), groups_of)


async def _play(team: Learners, step: int, groups: Sequence[pb.Group], order: list[int]) -> None:
    """Tickets end in ``order``; after each the trainer learns from all that it may."""
    for ended in range(1, len(order) + 1):
        while await team.ahead(_arrived(step, groups, order[:ended])):
            pass


def _weights(team: Learners) -> dict[str, torch.Tensor]:
    state = team.by_policy["shared"].state()
    return {name: value for name, value in state.tensors.items() if name != "rng"}


def _assert_same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


async def _learn(
    spec: JobSpec, run_dir: Path, orders: Sequence[list[int]] = (), held_bytes: int = PLENTY
) -> tuple[dict[str, torch.Tensor], list[Learned]]:
    """The state after ``STEPS`` steps, whose tickets end in ``orders``, and what was reported."""
    team = await Learners.load(spec, run_dir, device="cpu", threads=1, held_bytes=held_bytes)
    learned: list[Learned] = []
    try:
        for step in range(STEPS):
            groups = _groups(step)
            if orders:
                await _play(team, step, groups, orders[step % len(orders)])
            learned.append(await team.learn(Batch(step, {"shared": groups}, {})))
        return _weights(team), learned
    finally:
        team.close()


ORDERS = {
    "in turn": list(range(TICKETS)),
    "the first last": [*range(1, TICKETS), 0],
    "backwards": list(reversed(range(TICKETS))),
    "some not before the end": [4, 0, 2],
    "shuffled": random.Random(1).sample(range(TICKETS), TICKETS),
}
JOBS: dict[str, dict[str, Any]] = {
    "one minibatch": {},
    "minibatches": {"algorithm": {"group_size": 4, "minibatches": 3}},
    "kl and importance": {
        "algorithm": {"group_size": 4, "minibatches": 2, "loss": SAFE_LOSS},
    },
    "epochs": {
        "algorithm": {"group_size": 4, "minibatches": 2, "epochs": 2, "loss": SAFE_LOSS},
    },
    "sequences": {
        "algorithm": {"kind": "grpo", "group_size": 4, "loss": {"kind": "gspo"}},
    },
    "entropy": {"algorithm": {"group_size": 4, "loss": {"entropy_coef": 0.1}}},
    "no flat groups": {
        "algorithm": {"group_size": 4, "minibatches": 2, "filters": {"zero_variance": True}}
    },
    "full weights": {"train": {"kind": "full"}},
    "full weights, exact": {"train": {"kind": "full"}, "sums": "exact"},
    "full weights, exact, minibatches": {
        "train": {"kind": "full"},
        "sums": "exact",
        "algorithm": {"group_size": 4, "minibatches": 2, "loss": SAFE_LOSS},
    },
    "adapters in turn": {"sums": "in_turn"},
}


@pytest.mark.parametrize("job", JOBS)
async def test_weights_when_tickets_end_in_any_order_then_equal_those_without_overlap(
    tiny_model: Path, tmp_path: Path, job: str
) -> None:
    alone, reported = await _learn(_spec(tiny_model, overlap=False, **JOBS[job]), tmp_path)
    spec = _spec(tiny_model, overlap=True, **JOBS[job])
    for name, order in ORDERS.items():
        weights, learned = await _learn(spec, tmp_path, [order])
        _assert_same_bits(weights, alone)
        for one, other in zip(learned, reported, strict=True):
            assert one.ahead_s > 0.0, name
            assert one.outcomes["shared"].metrics == other.outcomes["shared"].metrics, name


@pytest.mark.parametrize("held_bytes", [0, 20_000])
async def test_weights_when_there_is_little_room_for_what_came_early_then_are_the_same_bits(
    tiny_model: Path, tmp_path: Path, held_bytes: int
) -> None:
    alone, _ = await _learn(_spec(tiny_model, overlap=False), tmp_path)
    spec = _spec(tiny_model, overlap=True)
    weights, _ = await _learn(spec, tmp_path, [ORDERS["backwards"]], held_bytes)
    _assert_same_bits(weights, alone)


@pytest.mark.parametrize(
    ("train", "sums", "waits"),
    [
        ({"kind": "full"}, None, True),
        ({"kind": "full"}, "exact", False),
        (LORA, None, False),
        (LORA, "in_turn", True),
    ],
)
async def test_room_when_it_is_used_up_then_only_gradients_that_are_summed_in_turn_wait(
    tiny_model: Path, tmp_path: Path, train: dict[str, Any], sums: str | None, waits: bool
) -> None:
    groups = _groups(0)
    spec = _spec(tiny_model, overlap=True, train=train, sums=sums)
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1, held_bytes=0)
    try:
        assert await team.ahead(_arrived(0, groups, [1, 2, 3])) is not waits
        assert await team.ahead(_arrived(0, groups, [0, 1, 3]))
        assert not await team.ahead(_arrived(0, groups, [0, 1, 3]))
        following = team.by_policy["shared"].next_window(TICKETS, range(TICKETS))
        assert following == (2 if waits else 4)
    finally:
        team.close()


async def test_weights_when_a_group_came_after_its_ticket_was_learnt_from_then_it_is_not_left_out(
    tiny_model: Path, tmp_path: Path
) -> None:
    alone, _ = await _learn(_spec(tiny_model, overlap=False), tmp_path)
    team = await Learners.load(
        _spec(tiny_model, overlap=True), tmp_path, device="cpu", threads=1, held_bytes=PLENTY
    )
    try:
        for step in range(STEPS):
            groups = _groups(step)
            await _play(team, step, groups[:3] + groups[4:], list(range(TICKETS)))
            await team.learn(Batch(step, {"shared": groups}, {}))
        _assert_same_bits(_weights(team), alone)
    finally:
        team.close()


@pytest.mark.parametrize(
    ("train", "sums"), [(LORA, None), ({"kind": "full"}, None), ({"kind": "full"}, "exact")]
)
async def test_weights_when_a_ticket_among_others_gave_no_group_then_are_those_without_overlap(
    tiny_model: Path, tmp_path: Path, train: dict[str, Any], sums: str | None
) -> None:
    weights: list[dict[str, torch.Tensor]] = []
    for overlap in (False, True):
        spec = _spec(tiny_model, overlap=overlap, train=train, sums=sums)
        team = await Learners.load(spec, tmp_path, device="cpu", threads=1, held_bytes=PLENTY)
        try:
            for step in range(STEPS):
                groups = [g for g in _groups(step) if ticket_position(g.ticket_id) not in (1, 4)]
                if overlap:  # nobody says that ticket 1 is over before the round is
                    await _play(team, step, groups, [2, 0, 5, 3, 4])
                await team.learn(Batch(step, {"shared": groups}, {}))
            weights.append(_weights(team))
        finally:
            team.close()
    _assert_same_bits(*weights)


@pytest.mark.parametrize("job", [{}, {"train": {"kind": "full"}, "sums": "exact"}])
async def test_weights_when_restored_in_the_middle_of_a_round_then_what_was_summed_is_forgotten(
    tiny_model: Path, tmp_path: Path, job: dict[str, Any]
) -> None:
    algorithm = {"group_size": 4, "minibatches": 2}
    spec = _spec(tiny_model, overlap=True, algorithm=algorithm, **job)
    alone, _ = await _learn(spec, tmp_path)
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1, held_bytes=PLENTY)
    try:
        first = await team.on_thread(team.states)
        await _play(team, 0, _groups(0), [0, 3, 1])
        await team.on_thread(lambda: team.restore(first))
        for step in range(STEPS):
            await _play(team, step, _groups(step), [5, 0, 1])
            await team.learn(Batch(step, {"shared": _groups(step)}, {}))
        _assert_same_bits(_weights(team), alone)
    finally:
        team.close()


async def test_loss_when_a_ticket_learnt_from_early_is_not_finite_then_no_weight_changes(
    tiny_model: Path, tmp_path: Path
) -> None:
    spec, groups = _spec(tiny_model, overlap=True), _groups(0)
    groups[0].candidates[0].rollout_logprobs[0] = -1000.0
    groups[0].candidates[0].reward = 5.0
    groups[0].candidates[1].rollout_logprobs[0] = -1000.0
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1, held_bytes=PLENTY)
    try:
        before = _weights(team)
        await _play(team, 0, groups, [1, 0])
        with pytest.raises(NonFiniteError, match="no weight was changed") as caught:
            await team.learn(Batch(0, {"shared": groups}, {}))
        assert [g.record.group_id for g in caught.value.groups] == [groups[0].group_id]
        _assert_same_bits(_weights(team), before)
        assert all(p.grad is None for p in team.by_policy["shared"].model.trainable().values())
    finally:
        team.close()


@pytest.mark.parametrize(
    ("algorithm", "overlap", "begins_early"),
    [
        ({"group_size": 4}, True, True),
        ({"group_size": 4}, None, False),
        ({"group_size": 4}, False, False),
        ({"group_size": 4, "kind": "reinforce_pp"}, True, False),
        ({"group_size": 4, "loss": {"kl": {"coef": 0.1, "where": "reward"}}}, True, False),
    ],
)
async def test_step_when_the_spec_and_the_algorithm_allow_it_then_begins_while_played(
    tiny_model: Path,
    tmp_path: Path,
    algorithm: dict[str, Any],
    overlap: bool | None,
    begins_early: bool,
) -> None:
    batch = {"tokens_per_row": 64, "overlap": overlap}
    spec = job_spec(tiny_model, algorithm=algorithm, batch=batch)
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    team.close()
    assert (team.while_played is not None) == begins_early


@pytest.mark.parametrize(
    ("overlap", "sums", "refused"),
    [
        (True, None, "/batch/overlap: gradients"),
        (None, "exact", "/batch/gradient_sums: exact sums"),
        (None, None, ""),
        (False, "in_turn", ""),
    ],
)
def test_sums_when_asked_for_over_ranks_then_are_refused_by_name_where_they_are_not_there(
    tiny_model: Path, overlap: Any, sums: str | None, refused: str
) -> None:
    spec = _spec(tiny_model, overlap=overlap, sums=sums)
    algorithm = load_algorithm(spec.algorithm)
    if not refused:
        refuse_what_cannot_spread(spec, algorithm, 2)
        return
    with pytest.raises(InvalidArgumentError, match=refused) as caught:
        refuse_what_cannot_spread(spec, algorithm, 2)
    assert caught.value.pointer == refused.partition(":")[0]
