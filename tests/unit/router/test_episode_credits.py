"""Advantages on the episode page, computed from recorded lines alone."""

from typing import Any

import pytest
from run_folders import spec_document

from troupe.algorithms.algorithm import advantages_by_policy
from troupe.algorithms.base import GroupRelative
from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import group_outcome
from troupe.episodes.build import JobParts, load_parts
from troupe.episodes.lines import episode_line
from troupe.spec import parse_spec
from troupe_router.run.episode_tree import step_advantages


def _parts(algorithm: dict[str, Any]) -> JobParts:
    algorithm = {"group_size": 3, "scale": "none", **algorithm}
    return load_parts(parse_spec(spec_document("m") | {"algorithm": algorithm}))


def _advantages(algorithm: dict[str, Any]) -> dict[str, list[float]]:
    """Of a group of two calls, in rollouts 0 and 1 of three, with rewards 1 and 0."""
    group = pb.Group(group_id="g", agent="tool", policy="tool", key=pb.GROUP_KEY_TASK)
    group.prompts.add(digest="d")
    for rollout, reward in enumerate((1.0, 0.0)):
        group.candidates.add(
            index=rollout,
            trajectory=rollout,
            prompt_digest="d",
            token_ids=[1, 2],
            reward=reward,
        )
    group.lead_returns.extend([1.0, 0.0, 0.5])
    return step_advantages([episode_line(pb.Episode(groups=[group]))], _parts(algorithm))


def test_step_advantages_when_a_group_has_a_lead_then_they_are_of_its_returns() -> None:
    matpo = {"kind": "matpo", "params": {"lead": "planner"}}
    assert _advantages(matpo) == {"g": [0.5, -0.5]}


@pytest.mark.parametrize("kind", ["gigpo", "gagpo"])
def test_step_advantages_when_acts_are_compared_by_their_prompts_then_are_the_trainers(
    kind: str,
) -> None:
    group = pb.Group(group_id="g", agent="tool", policy="tool", key=pb.GROUP_KEY_TASK)
    for digest in ("start", "left", "right"):
        group.prompts.add(digest=digest)
    for index, (trajectory, turn, prompt, reward) in enumerate(
        [(0, 0, "start", 0.0), (0, 1, "left", 1.0), (1, 0, "start", 0.0), (1, 1, "right", 0.0)]
    ):
        group.candidates.add(
            index=index,
            trajectory=trajectory,
            turn=turn,
            prompt_digest=prompt,
            token_ids=[1, 2],
            reward=reward,
        )
    parts = _parts({"kind": kind})
    shown = step_advantages([episode_line(pb.Episode(groups=[group]))], parts)
    trained = advantages_by_policy(parts.algorithm, {"tool": [group_outcome(group)]})
    assert shown["g"] == pytest.approx(trained["tool"][0])
    assert shown["g"][1] != shown["g"][0]  # an act whose prompt nobody shares has no step term


def test_step_advantages_when_long_completions_are_penalised_then_none_are_shown() -> None:
    assert _advantages({"kind": "grpo"}) == {"g": [0.5, -0.5]}
    assert _advantages({"kind": "grpo", "overlong": {"buffer": 4}}) == {}


def test_step_advantages_when_terms_are_weighed_then_none_are_shown() -> None:
    assert _advantages({"kind": "gdpo"}) == {}


class Fails(GroupRelative):
    def advantages(self, group: Any) -> list[float]:
        return [candidate.rewrd for candidate in group.candidates]


def test_step_advantages_when_a_users_algorithm_fails_then_the_episode_is_shown_without() -> None:
    assert _advantages({"kind": f"{__name__}:Fails"}) == {}
