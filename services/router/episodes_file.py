"""Episodes as lines of episodes.jsonl: the tree with all siblings, for people and notebooks."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from troupe.api.records.v1 import records_pb2 as pb


def episode_json(episode: pb.Episode) -> dict[str, Any]:
    """One episode as plain values; token ids are left out."""
    line: dict[str, Any] = {
        "episode_id": episode.episode_id,
        "round_id": episode.round_id,
        "kind": "eval" if episode.kind == pb.ROUND_KIND_EVAL else "train",
        "step": episode.step,
        "task_id": episode.task_id,
        "is_success": episode.is_success,
        "num_turns": episode.num_turns,
        "team_return": round(episode.team_return, 6),
        "num_tokens": episode.num_tokens,
        "wall_s": round(episode.wall_s, 4),
    }
    if episode.dropped_reason:
        line["dropped_reason"] = episode.dropped_reason
    line["groups"] = [_group(group) for group in episode.groups]
    return line


def is_kept(episode: pb.Episode, fraction: float) -> bool:
    """Whether a training episode is among the recorded ``fraction``; evaluation always is."""
    if episode.kind == pb.ROUND_KIND_EVAL or fraction >= 1.0:
        return True
    digest = hashlib.blake2b(episode.episode_id.encode(), digest_size=4).digest()
    return int.from_bytes(digest) / 2**32 < fraction


def append_at(path: Path, offset: int, episodes: Sequence[pb.Episode]) -> None:
    """Make the file be its first ``offset`` bytes and these episodes. Idempotent."""
    with path.open("ab") as file:
        file.truncate(offset)
        file.seek(0, os.SEEK_END)
        for episode in episodes:
            text = json.dumps(episode_json(episode), ensure_ascii=False, separators=(",", ":"))
            file.write(text.encode() + b"\n")


def keep_lines(path: Path, keep: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """Rewrite a JSON-lines file with the lines to keep (torn ones go); what it then holds."""
    kept: list[dict[str, Any]] = []
    if not path.is_file():
        return kept
    temporary = path.with_suffix(".tmp")
    num_lines = 0
    with path.open("rb") as source, temporary.open("wb") as target:
        for line in source:
            num_lines += 1
            document = _parse(line)
            if document is not None and keep(document):
                kept.append({k: v for k, v in document.items() if k != "groups"})
                target.write(line)
    if len(kept) == num_lines:
        temporary.unlink()
    else:
        temporary.replace(path)
    return kept


def _parse(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        document = json.loads(line)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _group(group: pb.Group) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "agent": group.agent,
        "turn": group.turn,
        "policy": group.policy,
        "policy_version": group.policy_version,
        "candidates": [_candidate(candidate) for candidate in group.candidates],
    }


def _candidate(candidate: pb.Candidate) -> dict[str, Any]:
    return {
        "index": candidate.index,
        "turn": candidate.turn,
        "text": candidate.text,
        "reward": round(candidate.reward, 6),
        "team_reward": round(candidate.team_reward, 6),
        "local_rewards": {k: round(v, 6) for k, v in sorted(candidate.local_rewards.items())},
        "is_chosen": candidate.is_chosen,
        "is_done": candidate.is_done,
        "is_success": candidate.is_success,
        "is_truncated": candidate.finish_reason == pb.FINISH_REASON_LENGTH,
    }
