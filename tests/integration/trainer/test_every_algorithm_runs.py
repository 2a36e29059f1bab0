"""Two steps of every algorithm on Plan-Path with a tiny model, and what must be true of each."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from algorithm_world import InProcess, build_planner, plan_path_spec

from troupe.api.records.v1 import records_pb2 as pb
from troupe_trainer.learn.learners import Learners

AT_ONCE = {
    "kind": "simultaneous",
    "order": ["tool", "planner"],
    "max_turns": 2,
}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "at_grpo": {},
    "at_grpo random": {"params": {"advance": "random"}},
    "best_of_k": {},
    "best_of_k parallel": {"params": {"sampling": "parallel"}},
    "ccpo": {},
    "ccpo repeat": {"params": {"others": "repeat", "team_weight": 0.0}},
    "distill": {"group_size": 1},
    "distill tree": {"params": {"sampling": "tree", "reward_coef": 0.5}},
    "gagpo": {},
    "gdpo": {},
    "gdpo parallel": {"params": {"sampling": "parallel"}},
    "gigpo": {},
    "grpo": {},
    "grpo masked": {"loss": {"importance": {"mask": {"level": "token", "low": 0.5, "high": 2.0}}}},
    "grpo overlong": {"overlong": {"buffer": 4}},
    "m_grpo": {},
    "matpo": {"params": {"lead": "planner"}},
    "matpo rollouts": {"params": {"lead": "planner", "weigh": "rollouts"}},
    "maxrl": {},
    "shapley": {},
    "shapley weights": {"params": {"team_weight": 1.0, "default_action": "up"}},
    "tree_grpo": {"group_size": 4},
    "tree_grpo uncertain": {"group_size": 6, "params": {"rounds": 2, "expand": "uncertain"}},
    "turn_grpo": {},
    "dr_grpo": {},
    "dr_mas": {},
    "rloo": {},
    "reinforce_pp": {},
    "reinforce_pp_baseline": {},
    "role_conditioned": {},
    "remax": {},
    "mareinforce": {},
    "marloo": {},
    "maremax": {},
    "magrpo": {"joint": {"mode": "aligned", "gamma": 0.9}},
    "magrpo cross": {"joint": {"mode": "cross"}, "group_size": 2},
    "mareinforce joint": {"joint": {}},
    "marloo joint": {"joint": {}},
    "maremax joint": {"joint": {}},
    "ippo": {"critic": {"train": {"kind": "lora", "rank": 4, "alpha": 8}, "epochs": 1}},
    "ippo head": {"critic": {"kind": "head", "learning_rate": 0.01}},
    "mappo": {"critic": {"train": {"kind": "full"}, "learning_rate": 0.001, "epochs": 1}},
    "madpo": {"joint": {}, "preference": {"beta": 0.1}},
}


@pytest.fixture(scope="session")
def planner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_planner(tmp_path_factory.mktemp("models") / "planner")


def weights(team: Learners, policy: str = "shared") -> dict[str, torch.Tensor]:
    found = team.by_policy[policy].model.trainable()
    return {name: tensor.detach().clone() for name, tensor in found.items()}


def moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> bool:
    return any(not before[name].equal(after[name]) for name in before)


@pytest.fixture(scope="session")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_planner(tmp_path_factory.mktemp("models") / "teacher", steps=80)


@pytest.mark.parametrize("case", ALGORITHMS)
async def test_algorithm_when_two_steps_are_run_then_it_is_on_policy_and_weights_move(
    case: str, planner: Path, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = ALGORITHMS[case]
    changes: dict[str, Any] = {"workflow": AT_ONCE} if "joint" in settings else {}
    if case.startswith("distill"):
        shared = {"model": str(planner), "teacher": str(request.getfixturevalue("teacher"))}
        fast = {"learning_rate": 0.01, "warmup_steps": 0}
        train = {"kind": "lora", "rank": 4}
        changes["policies"] = {"shared": {**shared, "train": train, "optimizer": fast}}
    if case == "maxrl":  # it takes no negative reward, and a step away from the goal is one
        changes["reward"] = {"kind": "algorithm_world:moved_closer", "mode": "replace"}
    spec = plan_path_spec(planner, {"kind": case.split()[0], **settings}, **changes)
    job = await InProcess.start(spec, tmp_path)
    try:
        for _ in range(spec.steps):
            before = weights(job.team)
            batch, learned, report = await job.step()
            assert not report.is_flat, "the tasks of this test give rewards that differ"
            assert moved(before, weights(job.team))
            metrics = learned.outcomes["shared"].metrics
            on_policy(metrics)
            _check(case, batch.groups["shared"], metrics)
    finally:
        await job.close()


def on_policy(metrics: dict[str, float]) -> None:
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["parity_ratio"] < 0.005
    assert abs(metrics["parity_kl"]) < 1e-6


def teams(planner: Path) -> dict[str, dict[str, Any]]:
    """Parts of a spec: all weights, a policy each (L2), and agents who sample differently."""
    fast = {"learning_rate": 0.001, "warmup_steps": 0}
    adapter = {"model": str(planner), "train": {"kind": "lora", "rank": 4}, "optimizer": fast}
    whole = {"model": str(planner), "train": {"kind": "full"}, "optimizer": fast}
    each = {"tool": {"policy": "tool"}, "planner": {"policy": "planner"}}
    greedy = {"temperature": 0.0, "top_p": 0.9, "top_k": 3, "max_new_tokens": 8}
    partner = {"policy": "planner", "sampling": greedy}
    cold, hot = ({"temperature": t, "max_new_tokens": 8} for t in (0.7, 1.3))
    shared = {"policy": "shared"}
    return {
        "full": {"policies": {"shared": whole}},
        "l2": {"agents": each, "policies": {"tool": adapter, "planner": adapter}},
        "l2 with one of all weights": {
            "agents": each,
            "policies": {"tool": adapter, "planner": whole},
        },
        "greedy partner": {
            "agents": {**each, "planner": partner},
            "policies": {"tool": adapter, "planner": {**adapter, "frozen": True}},
        },
        "temperatures": {
            "agents": {"tool": {**shared, "sampling": cold}, "planner": {**shared, "sampling": hot}}
        },
    }


@pytest.mark.parametrize(
    "case", ["full", "l2", "l2 with one of all weights", "greedy partner", "temperatures"]
)
async def test_team_when_weights_policies_or_sampling_differ_then_it_is_on_policy(
    case: str, planner: Path, tmp_path: Path
) -> None:
    spec = plan_path_spec(planner, {"kind": "at_grpo"}, **teams(planner)[case])
    job = await InProcess.start(spec, tmp_path)
    try:
        for _ in range(spec.steps):
            batch, learned, _ = await job.step()
            sizes = {policy: len(groups) for policy, groups in batch.groups.items()}
            learns = {policy for policy in sizes if spec.trains(policy)}
            assert {policy for policy, size in sizes.items() if size} == learns, sizes
            taught = {p: o for p, o in learned.outcomes.items() if o.trained_groups}
            assert taught
            for outcome in taught.values():
                on_policy(outcome.metrics)
            if case == "temperatures":
                (groups,) = batch.groups.values()
                assert {group.agent for group in groups} == {"tool", "planner"}
    finally:
        await job.close()


def _check(case: str, groups: list[pb.Group], metrics: dict[str, float]) -> None:
    if case.startswith("distill"):
        assert metrics["kl_teacher"] > 0.0
    if case == "remax":
        greedy = [[c for c in g.candidates if c.is_baseline] for g in groups]
        assert all({c.trajectory for c in own} == {3} for own in greedy)
    if case.startswith(("magrpo", "madpo")) or case.endswith("joint"):
        for group in groups:
            twins = [g for g in groups if g.node == group.node]
            assert {g.agent for g in twins} == {"tool", "planner"}
            assert len(group.prompts) == 1
    if case.startswith(("ippo", "mappo")):
        assert metrics["value_loss"] >= 0.0
        assert metrics["explained_variance"] <= 1.0
    if case == "mappo":
        assert all("[planner] acts" in c.joint_observation for c in groups[0].candidates) or all(
            "[tool] acts" in c.joint_observation for c in groups[0].candidates
        )
