"""Followed candidates: values against an own reference, trajectories, what is trained."""

import pytest
from follow_world import AGENTS, Numbers, job, paid, play, said

from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.follow import resumable
from troupe.samplers.follow import FollowSampler
from troupe.spec.issues import SpecInvalidError
from troupe.workflows.self_play import SelfPlay
from troupe.workflows.simultaneous import Simultaneous
from troupe.workflows.turn_based import TurnBased


def continued(history: list[int], trajectory: int, length: int) -> list[int]:
    """``history`` played on to the end as trajectory ``trajectory``."""
    while len(history) < length:
        agent, turn = AGENTS[len(history) % 2], len(history) // 2
        history = [*history, said(agent, turn, trajectory)]
    return history


def worth(agent: str, history: list[int], since: int, length: int) -> float:
    """What the actions from number ``since`` on paid ``agent``."""
    own = sum(0.1 * n for n in history[since:][(since % 2) :: 2]) if agent == "a" else 0.0
    return own + paid(history, length)


def reference(*, size: int, executions: int, length: int) -> list[list[float]]:
    """The values of all candidates of an episode that follows both agents and goes on by the best.

    Written from the definition alone: no class of the player is used.
    """
    history: list[int] = []
    values: list[list[float]] = []
    for act in range(length):
        agent, turn = AGENTS[act % 2], act // 2
        tried = [[*history, said(agent, turn, 0, k)] for k in range(size)]
        values.append([])
        for k, begun in enumerate(tried):
            numbers = [1 + (act * size + k) * executions + m for m in range(executions)]
            ends = [continued(begun, number, length) for number in numbers]
            values[-1].append(sum(worth(agent, end, act, length) for end in ends) / executions)
        history = tried[max(range(size), key=lambda k: (values[-1][k], -k))]
    return values


@pytest.mark.parametrize(("size", "executions", "length"), [(2, 1, 4), (4, 3, 5), (3, 2, 1)])
async def test_values_when_all_are_followed_then_equal_the_reference(
    size: int, executions: int, length: int
) -> None:
    spec = job(size=size)
    played = await play(FollowSampler(size, executions=executions), spec=spec, length=length)
    found = {(g.agent, g.turn): [c.reward for c in g.candidates] for g in played.groups}
    expected = reference(size=size, executions=executions, length=length)
    assert len(found) == length
    for act, values in enumerate(expected):
        assert found[AGENTS[act % 2], act // 2] == pytest.approx(values, abs=1e-12)
    assert len({round(v, 6) for values in expected for v in values}) > 1


async def test_values_when_worked_by_hand_then_are_the_reward_and_the_mean_of_what_follows():
    # Two candidates of a, three continuations each, in which b says one number and the game ends.
    assert [said("a", 0, 0, 0), said("a", 0, 0, 1)] == [5, 0]
    assert [said("b", 0, trajectory) for trajectory in range(1, 7)] == [7, 1, 8, 1, 3, 4]
    played = await play(FollowSampler(2, executions=3, agents=["a"]), length=2)
    # 5 earns a tenth of itself; of the sums 12, 6 and 13 two are multiples of 3. 0 earns nothing;
    # of the sums 1, 3 and 4 one is.
    assert [c.reward for c in played.groups[0].candidates] == pytest.approx([0.5 + 2 / 3, 1 / 3])
    assert [c.is_chosen for c in played.groups[0].candidates] == [True, False]


async def test_trajectories_when_followed_then_no_two_draws_share_a_seed() -> None:
    rollout = Numbers()
    await play(FollowSampler(3, executions=2), spec=job(size=3), length=6, rollout=rollout)
    # 6 acts on the spine; 6 continuations after each, of 5, 4, 3, 2, 1 and no acts.
    assert len(rollout.seeds) == 6 + 6 * (5 + 4 + 3 + 2 + 1)
    assert len(set(rollout.seeds)) == len(rollout.seeds)


async def test_play_when_repeated_then_is_equal() -> None:
    one, two = [await play(FollowSampler(3, executions=2), length=5) for _ in range(2)]
    assert len(one.groups) == 5
    assert [g.SerializeToString(deterministic=True) for g in one.groups] == [
        g.SerializeToString(deterministic=True) for g in two.groups
    ]


async def test_designer_when_the_episode_does_not_go_on_then_the_other_learns_by_task() -> None:
    sampler = FollowSampler(3, executions=2, agents=["a"], goes_on=False)
    played = await play(sampler, spec=job(size=3), length=4)
    tree, after = played.groups
    assert (tree.agent, tree.key, len(tree.candidates)) == ("a", pb.GROUP_KEY_OBSERVATION, 3)
    assert (after.agent, after.key) == ("b", pb.GROUP_KEY_TASK)
    assert after.group_id != tree.group_id
    # Six continuations in which b acts twice; each carries the return of its continuation.
    assert sorted({c.trajectory for c in after.candidates}) == [1, 2, 3, 4, 5, 6]
    assert len(after.candidates) == 12
    for candidate in after.candidates:
        begun = [said("a", 0, 0, (candidate.trajectory - 1) // 2)]
        assert candidate.reward == paid(continued(begun, candidate.trajectory, 4), 4)
    wins = [paid(continued([said("a", 0, 0, k // 2)], k + 1, 4), 4) for k in range(6)]
    assert played.episode.success_fraction == pytest.approx(sum(wins) / 6)
    assert played.episode.team_return == pytest.approx(sum(wins) / 6)
    assert played.episode.is_success == all(wins)
    assert played.episode.num_turns == 2
    # All draws cost tokens: 3 candidates, and 3 acts in each of 6 continuations.
    assert played.episode.num_tokens == 3 + 6 * 3


async def test_spine_when_an_agent_is_not_followed_then_its_act_there_is_shown_and_not_trained():
    played = await play(FollowSampler(2, executions=1, agents=["a"]), length=4)
    trained = {g.group_id.rsplit("/", 2)[-1] for g in played.groups}
    assert [(g.agent, g.turn, len(g.candidates)) for g in played.groups if g.agent == "a"] == [
        ("a", 0, 2),
        ("a", 1, 2),
    ]
    assert "after" in trained
    shown = {g.group_id for g in played.episode.groups} - {g.group_id for g in played.groups}
    assert {i.split("/", 3)[-1] for i in shown} == {"b/t00", "b/t01"}


async def test_continuation_when_turns_are_used_up_then_ends_where_the_episode_would() -> None:
    rollout = Numbers()
    spec = job(acts=2)
    await play(FollowSampler(2, executions=1), spec=spec, length=50, rollout=rollout)
    # At most 2 acts of each agent: 4 on the spine; after them 3, 2, 1 and 0, of 2 candidates.
    assert len(rollout.seeds) == 4 + 2 * (3 + 2 + 1)


async def test_agent_when_only_others_learn_then_is_followed_for_their_sake() -> None:
    frozen = {"p": {"model": "m", "frozen": True}, "q": {"model": "m"}}
    sampler = FollowSampler(2, executions=2, agents=["a"], goes_on=False)
    played = await play(sampler, spec=job(policies=frozen), length=2)
    assert [g.agent for g in played.groups] == ["b"]
    assert len(played.groups[0].candidates) == 4


async def test_agent_when_nobody_learns_from_it_then_is_not_followed() -> None:
    frozen = {"p": {"model": "m", "frozen": True}, "q": {"model": "m"}}
    rollout = Numbers()
    played = await play(
        FollowSampler(2, executions=2), spec=job(policies=frozen), length=2, rollout=rollout
    )
    assert [(g.agent, len(g.candidates)) for g in played.groups] == [("b", 2)]
    assert len(rollout.seeds) == 2


async def test_evaluation_when_played_then_is_one_plain_episode() -> None:
    rollout = Numbers()
    played = await play(
        FollowSampler(3, executions=2), length=4, rollout=rollout, kind=pb.ROUND_KIND_EVAL
    )
    assert (played.groups, len(rollout.seeds)) == ([], 4)


@pytest.mark.parametrize("workflow", [TurnBased, Simultaneous])
def test_workflow_when_it_counts_turns_itself_then_is_refused(workflow: type) -> None:
    spec = job()
    with pytest.raises(SpecInvalidError, match=r"/workflow/kind.*the state alone.*self_play"):
        resumable(spec, workflow(spec.workflow), FollowSampler(2, executions=1))


def test_continuations_when_too_many_then_says_how_many_and_what_to_lower() -> None:
    spec = job(acts=20, size=32)
    with pytest.raises(SpecInvalidError, match=r"executions.*could have 5120 continuations"):
        resumable(spec, SelfPlay(spec.workflow), FollowSampler(32, executions=4))
