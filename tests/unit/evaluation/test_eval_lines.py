"""A line of episodes.jsonl holds the conversation, and a transcript shows it."""

import json

from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.lines import episode_line
from troupe.evaluation.plan import SampleKey
from troupe.evaluation.scores import Score
from troupe.evaluation.transcripts import transcript, write_transcripts


def candidate(index: int, *, chosen: bool, digest: str = "d0", turn: int = 0) -> pb.Candidate:
    return pb.Candidate(
        index=index,
        text=f"go {index}",
        finish_reason=pb.FINISH_REASON_STOP,
        prompt_digest=digest,
        reward=0.5,
        team_reward=0.25,
        local_rewards={"legal": 1.0},
        is_chosen=chosen,
        info_json=json.dumps({"moves": f"m{index}", "grid": "a\nb"}),
        turn=turn,
        generate_s=0.125,
        env_s=0.002,
    )


def prompt(digest: str, text: str) -> pb.Prompt:
    return pb.Prompt(digest=digest, messages=[pb.PromptMessage(role="user", content=text)])


def episode(*groups: pb.Group, kind: pb.RoundKind = pb.ROUND_KIND_TRAIN) -> pb.Episode:
    return pb.Episode(episode_id="e", kind=kind, step=3, task_id="t/train/1", groups=groups)


def test_line_when_a_tree_is_written_then_holds_prompt_answers_parse_and_times() -> None:
    group = pb.Group(
        agent="tool",
        prompts=[prompt("d0", "where?")],
        candidates=[candidate(0, chosen=False), candidate(1, chosen=True)],
    )
    line = episode_line(episode(group))
    assert line == json.loads(json.dumps(line))
    [found] = line["groups"]
    assert found["prompt"] == [{"role": "user", "content": "where?"}]
    sibling, chosen = found["candidates"]
    assert "info" not in sibling
    assert chosen["info"]["moves"] == "m1"
    assert (found["generate_s"], found["env_s"]) == (0.125, 0.002)


def test_line_when_members_have_their_own_prompts_then_each_names_its_own() -> None:
    group = pb.Group(
        agent="tool",
        key=pb.GROUP_KEY_TASK,
        prompts=[prompt("d0", "first"), prompt("d1", "second")],
        candidates=[
            candidate(0, chosen=True),
            candidate(1, chosen=True, digest="d1", turn=1),
        ],
    )
    line = episode_line(episode(group))
    [found] = line["groups"]
    assert [c["prompt"] for c in found["candidates"]] == [0, 1]
    assert found["candidates"][1]["generate_s"] == 0.125
    shown = transcript(line)
    assert shown.index("first") < shown.index("go 0") < shown.index("second") < shown.index("go 1")


def test_transcript_when_read_then_shows_what_was_said_paid_and_not_executed() -> None:
    group = pb.Group(
        agent="tool",
        prompts=[prompt("d0", "fence ``` inside")],
        candidates=[candidate(0, chosen=False), candidate(1, chosen=True)],
    )
    shown = transcript(episode_line(episode(group)))
    assert "## t/train/1, train step 3" in shown
    assert "### Turn 1, tool" in shown
    assert "text\ngo 1\n" in shown
    assert "- moves: m1" in shown
    assert "not executed: 1 candidates with rewards 0.5" in shown


def test_transcript_when_the_text_holds_a_fence_then_the_block_is_not_closed_by_it() -> None:
    told = candidate(0, chosen=True)
    told.text = "```python\nprint(1)\n```"
    group = pb.Group(agent="a", prompts=[prompt("d0", "x")], candidates=[told])
    assert "````text\n```python\nprint(1)\n```\n````" in transcript(episode_line(episode(group)))


def test_transcript_when_dropped_then_says_why() -> None:
    dropped = pb.Episode(episode_id="e", task_id="t/train/1", dropped_reason="UNAVAILABLE: gone")
    assert "Not played: UNAVAILABLE: gone" in transcript(episode_line(dropped))


def test_transcripts_when_there_are_too_many_then_failed_ones_are_kept(tmp_path) -> None:
    def line(index: int) -> dict:
        played = episode_line(episode(kind=pb.ROUND_KIND_EVAL))
        extra = {"policy": "p", "task_index": index, "sample": 0, "task_id": f"t/test/{index}"}
        return {**played, **extra, "is_success": index != 7}

    scores = {SampleKey(i, 0): Score(i, 0, is_success=i != 7) for i in range(10)}
    write_transcripts(tmp_path, lambda: map(line, range(10)), {"p": scores}, 3)
    shown = (tmp_path / "transcripts" / "p.md").read_text("utf-8")
    assert [i for i in range(10) if f"## t/test/{i}," in shown] == [0, 1, 7]
