"""Conversations as Markdown, from a job's or an evaluation's episodes.jsonl.

Shows the messages of an episode, what the environment understood, the rewards and the times.
Transcripts show a selection; episodes.jsonl holds everything.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from troupe.episodes.lines import Line
from troupe.evaluation.plan import SampleKey
from troupe.evaluation.scores import Score
from troupe.evaluation.teams import slug


def transcript(line: Line) -> str:
    """One episode as Markdown; siblings that were not executed are named with their rewards."""
    return "\n\n".join(_parts(line)) + "\n"


def write_transcripts(
    folder: Path,
    lines: Callable[[], Iterable[Line]],
    scores: Mapping[str, Mapping[SampleKey, Score]],
    limit: int,
) -> None:
    """``transcripts/<policy>.md``: up to ``limit`` samples a policy, failed ones first."""
    selection = {label: _selected(by_sample, limit) for label, by_sample in scores.items()}
    target = folder / "transcripts"
    target.mkdir(exist_ok=True)
    with ExitStack() as stack:
        files: dict[str, IO[str]] = {}
        for label, name in zip(scores, file_names(scores), strict=True):
            path = target / f"{name}.md"
            files[label] = stack.enter_context(path.open("w", encoding="utf-8"))
            files[label].write(
                f"# {label}\n\n{len(selection[label])} of {len(scores[label])} samples, failed "
                "ones first chosen; episodes.jsonl holds all.\n\n"
            )
        for line in lines():
            label, key = line["policy"], SampleKey(line["task_index"], line["sample"])
            if label in selection and key in selection[label]:
                files[label].write(transcript(line) + "\n")


def file_names(labels: Collection[str]) -> list[str]:
    """A file name for each label, in order; equal ones get a number."""
    names: list[str] = []
    for label in labels:
        name = slug(label)
        names.append(name if name not in names else f"{name}-{len(names)}")
    return names


def _selected(scores: Mapping[SampleKey, Score], limit: int) -> set[SampleKey]:
    order = sorted(scores, key=lambda key: (scores[key].is_success, key.sample, key.task_index))
    return set(order[:limit])


def _parts(line: Line) -> Iterator[str]:
    yield f"## {_title(line)}"
    if line.get("failure") == "error" or line.get("dropped_reason"):
        errors = line.get("errors") or [line.get("dropped_reason")]
        yield "Not played: " + "; ".join(str(error) for error in errors)
        return
    yield (
        f"{_outcome(line)} in {line['num_turns']} turns; team return {line['team_return']:g}, "
        f"{line['num_tokens']} tokens, {line['wall_s']:.2f} s"
    )
    if line.get("errors"):
        yield "Attempts that failed before: " + "; ".join(line["errors"])
    for group in line["groups"]:
        yield from _group(group)


def _title(line: Line) -> str:
    words = [str(line.get("task_id") or f"task {line.get('task_index')}")]
    if "policy" in line:
        words.append(f"sample {line['sample']} of {line['policy']}")
    elif "step" in line:
        words.append(f"{line['kind']} step {line['step']}")
    return ", ".join(words)


def _outcome(line: Line) -> str:
    if line["is_success"]:
        return "Solved"
    failure = line.get("failure")
    return f"Not solved ({failure})" if failure else "Not solved"


def _group(group: Mapping[str, Any]) -> Iterator[str]:
    chosen = [c for c in group["candidates"] if c["is_chosen"]]
    for candidate in chosen:
        yield f"### Turn {candidate['turn'] + 1}, {group['agent']}"
        for message in _prompt(group, candidate):
            yield f"{message['role']}:\n\n{_block(message['content'])}"
        cut = " (cut off at the token limit)" if candidate["is_truncated"] else ""
        yield f"answer{cut}:\n\n{_block(candidate['text'])}"
        yield _judgement({**group, **candidate})
    others = [c for c in group["candidates"] if not c["is_chosen"]]
    if others:
        rewards = ", ".join(f"{c['reward']:g}" for c in others)
        yield f"not executed: {len(others)} candidates with rewards {rewards}"


def _prompt(group: Mapping[str, Any], candidate: Mapping[str, Any]) -> list[dict[str, str]]:
    if "prompts" in group:
        return group["prompts"][candidate["prompt"]]
    return group.get("prompt") or []


def _judgement(candidate: Mapping[str, Any]) -> str:
    terms = ", ".join(f"{k} {v:g}" for k, v in candidate["local_rewards"].items()) or "none"
    words = f"reward {candidate['reward']:g} (team {candidate['team_reward']:g}; {terms})"
    if "generate_s" in candidate:
        words += f"; answered in {candidate['generate_s']:.3f} s"
    if "env_s" in candidate:
        words += f", judged in {candidate['env_s']:.3f} s"
    info = candidate.get("info")
    if not info:
        return words
    notes = "\n".join(f"- {key}: {_value(value)}" for key, value in info.items())
    return f"{words}\n\n{notes}"


def _value(value: Any) -> str:
    if isinstance(value, str) and "\n" in value:
        return "\n\n" + "\n".join("      " + line for line in value.splitlines())
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _block(text: str) -> str:
    """A fenced block whose fence no line of ``text`` can close."""
    longest = max((len(line) - len(line.lstrip("`")) for line in text.splitlines()), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
