"""Numbers of rounds and steps, by hand."""

import pytest

from troupe.api.records.v1 import records_pb2 as pb
from troupe.runtime.step_report.play import PlayPart, StepPart
from troupe.runtime.step_report.trainer import TrainerPart
from troupe_router.run.round_metrics import eval_line, play_metrics, step_phases, train_line


def episode(name: str, success: bool, rewards: dict[str, list[float]], dropped: str = ""):
    groups = [
        pb.Group(agent=agent, candidates=[pb.Candidate(reward=r) for r in values])
        for agent, values in rewards.items()
    ]
    return pb.Episode(
        episode_id=name,
        is_success=success,
        success_fraction=float(success),
        num_turns=2,
        team_return=1.0,
        num_tokens=100,
        groups=groups,
        dropped_reason=dropped,
    )


def test_play_metrics_never_score_a_dropped_episode() -> None:
    episodes = [
        episode("a", True, {"tool": [1.0, 3.0], "planner": [2.0]}),
        episode("b", False, {"tool": [0.0, 0.0], "planner": [0.0]}),
        episode("c", False, {}, dropped="UNAVAILABLE: gone"),
    ]
    episodes[0].busy.generate[:] = [0, 3]
    episodes[2].busy.generate[:] = [1, 4]
    play = play_metrics(episodes, 8.0)
    assert (play.num_episodes, play.num_dropped) == (2, 1)
    assert play.success_rate == 0.5
    assert play.reward_by_agent == {"planner": 1.0, "tool": 1.0}
    assert play.reward_mean == 1.0
    assert (play.generate_s, play.tokens_per_s) == (4.0, 50.0)


def test_evaluation_when_acts_are_paid_at_the_end_then_its_reward_is_the_episodes() -> None:
    paid = [{"first": 3.0, "last": 3.0}, {"first": 1.0, "last": 0.0}]
    played = [episode("a", False, {"first": [0.0], "last": [3.0]}) for _ in paid]
    for each, rewards in zip(played, paid, strict=True):
        each.rewards.update(rewards)
    line = eval_line(4, play_metrics(played, 1.0))
    assert line["reward_mean"] == 1.75
    assert line["reward_by_agent"] == {"first": 2.0, "last": 1.5}


def test_evaluation_when_some_players_tell_no_rewards_then_its_reward_is_the_candidates() -> None:
    played = [episode(name, False, {"first": [0.0], "last": [3.0]}) for name in "abc"]
    played[0].rewards.update({"first": 3.0, "last": 3.0})
    play = play_metrics(played, 1.0)
    assert play.reward_by_agent == {"first": 0.0, "last": 3.0}
    line = eval_line(4, PlayPart.from_wire(play.to_wire()))
    assert line["reward_mean"] == 1.5
    assert "reward_by_agent" not in line


def test_evaluation_when_nobody_acted_in_an_episode_then_the_others_count() -> None:
    played = [episode("a", False, {"tool": [0.5]}), episode("b", True, {})]
    played[0].rewards["tool"] = 2.0
    line = eval_line(4, PlayPart.from_wire(play_metrics(played, 1.0).to_wire()))
    assert line["reward_by_agent"] == {"tool": 2.0}


def test_play_metrics_sum_the_tasks_that_were_played_for_nothing() -> None:
    episodes = [episode(name, True, {}) for name in "abc"]
    episodes.append(episode("d", False, {}, dropped="UNAVAILABLE: gone"))
    for it, count in zip(episodes, (2, 0, 3, 9), strict=True):
        it.num_redraws = count
    assert play_metrics(episodes, 1.0).num_redraws == 5


def test_play_metrics_of_nothing_played_are_unknown_not_zero() -> None:
    play = play_metrics([episode("c", False, {}, dropped="x")], 1.0)
    assert play.success_rate is None
    assert play.reward_mean is None
    assert eval_line(3, play)["success"] is None


def test_cached_ratio_is_over_tokens_of_the_groups_whose_engines_say() -> None:
    told = episode("a", True, {})
    told.groups.add(num_prompt_tokens=800, num_cached_tokens=700)
    told.groups.add(num_prompt_tokens=200, num_cached_tokens=0)
    told.groups.add(num_prompt_tokens=5000)
    dropped = episode("b", False, {}, dropped="x")
    dropped.groups.add(num_prompt_tokens=100, num_cached_tokens=100)
    play = play_metrics([told, dropped], 1.0)
    assert play.cached_token_ratio == 0.7
    assert play_metrics([episode("c", True, {})], 1.0).cached_token_ratio is None


def test_phases_sum_to_the_wall_time_of_the_step() -> None:
    trainer = {"collect": 5.0, "learn": 2.0, "publish": 0.5, "checkpoint": 0.25}
    phases = step_phases(PlayPart(generate_s=4.0, env_s=1.0), trainer, 8.0)
    assert phases["other"] == 0.25
    assert sum(phases.values()) == pytest.approx(8.0)


def test_train_line_keeps_what_play_and_trainer_measure_of_the_same_name() -> None:
    play = PlayPart(
        success_rate=0.5,
        reward_mean=1.0,
        reward_by_agent={"tool": 1.0},
        tokens_per_s=111.0,
        generate_s=4.0,
        env_s=1.0,
    )
    event = {
        "step": 7,
        "phases": {"learn": 4.0},
        "loss": 0.1,
        "trained_reward_mean": 9.0,
        "trained_reward_by_agent": {"tool": 9.0},
        "trained_tokens_per_s": 999.0,
    }
    former = {name.removeprefix("trained_"): value for name, value in event.items()}
    for told in (event, former):
        line = train_line(7, play, TrainerPart.from_wire(told), 10.0)
        assert (line["kind"], line["step"], line["loss"]) == ("train", 7, 0.1)
        assert (line["tokens_per_s"], line["trained_tokens_per_s"]) == (111.0, 999.0)
        assert (line["reward_mean"], line["trained_reward_mean"]) == (1.0, 9.0)
        assert line["reward_by_agent"] == {"tool": 1.0}
        assert line["trained_reward_by_agent"] == {"tool": 9.0}
        assert line["busy_ratio"] == 0.8
        assert line["interrupted"] is False
    assert train_line(7, play, None, 10.0, interrupted=True)["interrupted"] is True


def test_train_line_when_the_step_waited_for_its_evaluation_then_the_rest_of_it_was_hidden() -> (
    None
):
    late = TrainerPart(step=7, phases={"learn": 1.0, "evaluation": 1.5})
    line = train_line(7, PlayPart(), late, 10.0, eval_s=4.0)
    assert (line["eval_hidden_s"], line["phases"]["evaluation"]) == (2.5, 1.5)
    assert "eval_hidden_s" not in train_line(7, PlayPart(), late, 10.0)


def test_train_line_without_a_trainers_report_does_not_say_what_was_learnt() -> None:
    line = train_line(7, PlayPart(), None, 10.0)
    assert line.keys() == {
        "kind",
        "step",
        *(name for name, metric in PlayPart.metrics().items() if not metric.is_optional),
        *(name for name, metric in StepPart.metrics().items() if not metric.is_optional),
    }


def test_play_part_read_back_from_the_note_of_a_round_is_the_same() -> None:
    played = episode("a", True, {"tool": [1.0]})
    played.busy.generate[:] = [0, 4]
    play = play_metrics([played], 8.0)
    assert PlayPart.from_wire({**play.to_wire(), "opened_at": 5.0}) == play
