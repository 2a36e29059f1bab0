"""An episode as one line of episodes.jsonl: the full conversation, for people and notebooks.

Pure. Jobs and evaluations write the same line; a job's line also holds what the episode viewer
needs. Prompts are the messages that the agent saw; where one holds images, ``content`` names each
in its place and ``parts`` gives digests and sizes (``troupe.episodes.images`` keeps the pixels).
``tools`` names the functions that a group's prompts offered, ``tool_calls`` those that a message
called.
``info`` is what the environment understood and did, such as the parsed action, for the executed
candidate of each draw. Siblings share one prompt and its times. A group that spans turns has
several prompts, and each candidate names its own.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from troupe.api.records.v1 import records_pb2 as pb
from troupe.tasks.content import image_label

Line = dict[str, Any]
Images = Mapping[str, pb.ImageData]
"""The images of an episode by digest."""


def episode_line(episode: pb.Episode) -> Line:
    """One episode as plain values."""
    line: Line = {
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
    if episode.rewards:
        line["rewards"] = {a: round(value, 6) for a, value in sorted(episode.rewards.items())}
    if episode.program_ends:
        line["program_ends"] = dict(sorted(episode.program_ends.items()))
    if episode.dropped_reason:
        line["dropped_reason"] = episode.dropped_reason
    images = {image.digest: image for image in episode.images}
    line["groups"] = [_group(group, images) for group in episode.groups]
    return line


def viewer_line(episode: pb.Episode, *, with_tokens: bool = False) -> Line:
    """The line with joint nodes, greedy draws and lengths, as a job's episode viewer shows them.

    ``with_tokens`` keeps token ids and their log probabilities where the episode has them.
    """
    line = episode_line(episode)
    for group, record in zip(line["groups"], episode.groups, strict=True):
        if record.node:
            group["node"] = record.node
        for candidate, sampled in zip(group["candidates"], record.candidates, strict=True):
            candidate["num_tokens"] = num_tokens(sampled)
            if sampled.is_baseline:
                candidate["is_baseline"] = True
            if with_tokens:
                candidate |= _tokens(sampled)
    return line


def num_tokens(candidate: pb.Candidate) -> int:
    """How many tokens were sampled, also where an episode's candidate does not hold them."""
    return candidate.num_tokens or len(candidate.token_ids)


def _tokens(candidate: pb.Candidate) -> Line:
    ids, logprobs = candidate.token_ids, candidate.rollout_logprobs
    if not ids or len(logprobs) != len(ids) or not math.isfinite(math.fsum(logprobs)):
        return {}
    return {"tokens": {"ids": ids[:], "logprobs": _rounded(logprobs[:])}}


def _rounded(logprobs: list[float]) -> list[float]:
    """To thousandths. Not by ``round``, which alone takes longer than all else of a line."""
    return [int(value * 1000 - 0.5) / 1000 for value in logprobs]


def _group(group: pb.Group, images: Images) -> Line:
    line: Line = {
        "group_id": group.group_id,
        "agent": group.agent,
        "turn": group.turn,
        "policy": group.policy,
        "policy_version": group.policy_version,
    }
    if group.lead_returns:
        line["lead_returns"] = list(group.lead_returns)
    if tools := dict.fromkeys(tool.name for p in group.prompts for tool in p.tools):
        line["tools"] = list(tools)
    if group.key == pb.GROUP_KEY_TASK:
        order = [p.digest for p in group.prompts]
        line["prompts"] = [_prompt(p, images) for p in group.prompts]
        line["candidates"] = [
            {
                **_candidate(c),
                "trajectory": c.trajectory,
                "prompt": order.index(c.prompt_digest),
                **_times(c),
            }
            for c in group.candidates
        ]
    else:
        line["prompt"] = [m for p in group.prompts for m in _prompt(p, images)]
        line |= _times(*group.candidates[:1])
        line["candidates"] = [_candidate(c) for c in group.candidates]
    return line


def _prompt(prompt: pb.Prompt, images: Images) -> list[Line]:
    return [_message(m, images) for m in prompt.messages]


def _times(*candidates: pb.Candidate) -> Line:
    """Seconds of the sampling call and the judging call; siblings share them."""
    return {
        name: round(seconds, 4)
        for c in candidates
        for name, seconds in (("generate_s", c.generate_s), ("env_s", c.env_s))
    }


def _message(message: pb.PromptMessage, images: Images) -> Line:
    line: Line = {"role": message.role, "content": message.content}
    if message.parts:
        parts = [_part(part, images) for part in message.parts]
        names = [p["text"] if "text" in p else image_label(**p) for p in parts]
        line |= {"content": "".join(names), "parts": parts}
    if message.tool_calls:
        line["tool_calls"] = [
            {"name": call.name, "arguments": call.arguments_json} for call in message.tool_calls
        ]
    return line


def _part(part: pb.ContentPart, images: Images) -> Line:
    if part.WhichOneof("part") == "text":
        return {"text": part.text}
    digest = part.image_digest
    image = images.get(digest, pb.ImageData(digest=digest))  # a record without it is kept too
    return {"digest": digest, "width": image.width, "height": image.height}


def _candidate(candidate: pb.Candidate) -> Line:
    line: Line = {
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
    if candidate.is_chosen and candidate.info_json:
        line["info"] = json.loads(candidate.info_json)
    return line
