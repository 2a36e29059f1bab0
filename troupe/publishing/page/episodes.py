"""Episodes for the page: the best and the worst of a round, each as a tree of its candidates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troupe.episodes.lines import Line
from troupe.evaluation.run_report import whole_lines
from troupe.publishing.page.texts import shown

NUM_EACH = 3
"""Best episodes of a round, and as many worst ones."""
_MAX_GROUPS = 24
_MAX_CANDIDATES = 16
_MAX_PROMPT_CHARS = 1200


@dataclass(frozen=True, slots=True)
class Extremes:
    """The best and the worst episodes of one round, by success and then mean reward."""

    round_id: str
    num_episodes: int
    best: Sequence[Line]
    worst: Sequence[Line]


def extremes(episodes: Path, round_id: str) -> Extremes:
    """Those of ``round_id``; reads the file once and parses only that round's lines."""
    lines = [
        line
        for line in whole_lines(episodes, round_id.encode())
        if line["round_id"] == round_id and not line.get("dropped_reason") and line["groups"]
    ]
    lines.sort(key=lambda line: (bool(line["is_success"]), _mean_reward(line)))
    num_each = min(NUM_EACH, len(lines) // 2 or len(lines))
    best = lines[::-1][:num_each]
    worst = lines[: min(num_each, len(lines) - num_each)]
    return Extremes(round_id, len(lines), best, worst)


def episode_html(line: Line) -> str:
    """One episode: turns and agents, with what they were asked, wrote and were paid."""
    word, tone = ("solved", "good") if line["is_success"] else ("not solved", "bad")
    groups = line["groups"][:_MAX_GROUPS]
    left_out = len(line["groups"]) - len(groups)
    more = f'<p class="cut">{left_out} more groups are not shown.</p>' if left_out else ""
    return (
        f"<details><summary>{shown(line['task_id'], most=200)} "
        f'<b class="{tone}">{word}</b>, mean reward {_mean_reward(line):.3f}, '
        f"{int(line['num_turns'])} turns</summary>{''.join(map(_group, groups))}{more}</details>"
    )


def _group(group: Mapping[str, Any]) -> str:
    candidates = group["candidates"][:_MAX_CANDIDATES]
    left_out = len(group["candidates"]) - len(candidates)
    more = f'<p class="cut">{left_out} more candidates are not shown.</p>' if left_out else ""
    return (
        f"<details open><summary>turn {int(group['turn']) + 1}, <b>{shown(group['agent'])}</b> "
        f'<span class="soft">policy {shown(group["policy"])}, version '
        f"{int(group['policy_version'])}</span></summary>{_prompt(group)}"
        f"{''.join(map(_candidate, candidates))}{more}</details>"
    )


def _prompt(group: Mapping[str, Any]) -> str:
    messages = group.get("prompt") or (group.get("prompts") or [[]])[0]
    texts = "".join(
        f'<p class="soft">{shown(message["role"], most=20)}</p>'
        f"<pre>{shown(message['content'], most=_MAX_PROMPT_CHARS)}</pre>"
        for message in messages[-4:]
    )
    return f"<details><summary>prompt</summary>{texts}</details>" if texts else ""


def _candidate(candidate: Mapping[str, Any]) -> str:
    terms = ", ".join(
        f"{shown(name, most=60)} {float(value):g}"
        for name, value in candidate["local_rewards"].items()
    )
    kind = "chosen" if candidate["is_chosen"] else "other"
    word = "executed" if candidate["is_chosen"] else "not executed"
    return (
        f'<div class="candidate {kind}"><p class="soft">{word}, reward '
        f"{float(candidate['reward']):+.3f} (team {float(candidate['team_reward']):g}"
        f"{'; ' + terms if terms else ''})</p><pre>{shown(candidate['text'])}</pre></div>"
    )


def _mean_reward(line: Line) -> float:
    rewards = [c["reward"] for group in line["groups"] for c in group["candidates"]]
    return sum(rewards) / len(rewards) if rewards else 0.0
