"""What a job leaves for people, from its two files."""

import json
from pathlib import Path

from troupe.evaluation.run_report import write_run_report


def episode(round_id: str, index: int, *, solved: bool, **more) -> dict:
    kind, _, step = round_id.partition("-")
    chosen = {
        "turn": 0,
        "text": f"answer {index}",
        "reward": 1.0 if solved else -0.5,
        "team_reward": 0.0,
        "local_rewards": {"format": 0.0 if solved else -1.0},
        "is_chosen": True,
        "is_truncated": False,
        "generate_s": 0.5,
    }
    sibling = {**chosen, "text": "other", "reward": 0.0, "is_chosen": False}
    group = {
        "agent": "a",
        "policy": "shared",
        "policy_version": int(step),
        "prompt": [{"role": "user", "content": f"task {index}"}],
        "candidates": [chosen, sibling] if kind == "train" else [chosen],
    }
    return {
        "episode_id": f"{round_id}/{index}",
        "round_id": round_id,
        "kind": kind,
        "step": int(step),
        "task_id": f"t/{index}",
        "is_success": solved,
        "num_turns": 1,
        "team_return": 0.0,
        "num_tokens": 3,
        "wall_s": 0.1,
        "groups": [group],
        **more,
    }


def write(path: Path, lines: list[dict], torn: str = "") -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + torn, encoding="utf-8")


def test_run_report_when_a_job_has_ended_then_tells_rounds_policies_and_outcomes(
    tmp_path: Path,
) -> None:
    evals = [episode("eval-00000", i, solved=i == 0) for i in range(30)]
    late = [episode("eval-00002", i, solved=True) for i in range(2)]
    gone = episode("eval-00002", 9, solved=False, dropped_reason="UNAVAILABLE: gone", groups=[])
    train = [episode(f"train-0000{i}", 0, solved=True) for i in range(2)]
    write(tmp_path / "episodes.jsonl", [*evals, *train, *late, gone], torn='{"round_id"')
    metrics = [
        {"kind": "eval", "step": 0, "success": 1 / 30},
        *({"kind": "train", "step": i, "success_rate": 0.5, "num_tokens": 7} for i in range(2)),
        {"kind": "eval", "step": 2, "success": 1.0},
    ]
    write(tmp_path / "metrics.jsonl", metrics)
    text = write_run_report(tmp_path)
    assert "| eval | 0 | 3.3 % |" in text
    assert "| train | 1 | 50.0 % |" in text
    # 32 played evaluation candidates: 3 paid 1 and 29 paid -0.5; two train rounds of two each.
    assert "| shared | eval | 0 to 2 | 32 | 32 | -0.359 | format -0.906 | format 90.6% |" in text
    assert "| shared | train | 0 to 1 | 4 | 2 | 0.500 | format 0.000 | - |" in text
    assert "| eval-00000 | 1 | 0 | 29 | 0 | 0 | 0 |" in text
    assert "| eval-00002 | 2 | 0 | 0 | 0 | 0 | 1 |" in text
    first = (tmp_path / "transcripts" / "eval-00000.md").read_text("utf-8")
    assert first.count("## t/") == 20
    assert "answer 0\n" not in first
    last = (tmp_path / "transcripts" / "eval-00002.md").read_text("utf-8")
    assert "Not played: UNAVAILABLE: gone" in last
    assert write_run_report(tmp_path) == text


def test_run_report_when_rewards_are_of_candidates_and_of_episodes_then_two_columns(
    tmp_path: Path,
) -> None:
    told = [
        {"kind": "train", "step": 0, "reward_mean": 0.5, "reward_by_agent": {"a": 0.5}},
        {"kind": "eval", "step": 1, "reward_mean": 4.0, "reward_by_agent": {"a": 4.0}},
        {"kind": "eval", "step": 2, "reward_mean": 0.7},
    ]
    write(tmp_path / "metrics.jsonl", told)
    text = write_run_report(tmp_path)
    assert "| success | reward of a candidate | reward of an episode | return |" in text
    assert "| train | 0 | - | 0.500 | - |" in text
    assert "| eval | 1 | - | - | 4.000 |" in text
    assert "| eval | 2 | - | - | - |" in text


def test_run_report_when_there_are_many_steps_then_shows_some_and_the_last(tmp_path: Path) -> None:
    write(tmp_path / "metrics.jsonl", [{"kind": "train", "step": i} for i in range(1000)])
    text = write_run_report(tmp_path)
    assert 40 <= text.count("| train |") <= 41
    assert "| train | 999 |" in text


def test_run_report_when_a_job_did_nothing_then_is_still_written(tmp_path: Path) -> None:
    assert write_run_report(tmp_path).startswith(f"# {tmp_path.name}")


def test_run_report_when_a_reward_is_null_then_the_policys_is_nan_and_all_else_is_told(
    tmp_path: Path,
) -> None:
    wrong = episode("eval-00000", 0, solved=False)
    wrong["groups"][0]["candidates"][0].update(reward=None, team_reward=None)
    write(tmp_path / "episodes.jsonl", [wrong, episode("eval-00000", 1, solved=True)])
    write(tmp_path / "metrics.jsonl", [{"kind": "eval", "step": 0, "success": 0.5}])
    text = write_run_report(tmp_path)
    assert "| shared | eval | 0 to 0 | 2 | 2 | nan | format -0.500 | format 50.0% |" in text
    told = (tmp_path / "transcripts" / "eval-00000.md").read_text("utf-8")
    assert "reward nan (team nan; format -1)" in told
