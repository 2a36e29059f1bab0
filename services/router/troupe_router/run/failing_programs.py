"""Agent programs of a round that failed: how many, why, and what to do. Pure.

Owns the words for people; `program_ends` of an episode has the numbers.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from troupe.api.records.v1 import records_pb2 as pb
from troupe.tasks.program_ends import PROGRAM_END, end_of_reason, failures_of

_SHOWN_CHARS, _IN_SENTENCE = 1000, 300
_REMEDY = {
    "program_error": "Have the program catch what an answer can cause (a parser, a tool), or pay "
    "well-formed answers by `score`; if it raises whatever is answered, mend the program.",
    "too_many_calls": "Bound the program's loop, or raise task.params.max_calls.",
    "too_many_calls_at_once": "Bound the program's fan-out, or raise task.params.max_waiting.",
    "prompt_too_long": "Have the program shorten its history, raise task.params.max_prompt_bytes, "
    "or train a model of a longer context.",
    "state_too_big": "Have the program ask less, or lower task.params.max_calls and "
    "max_answer_chars.",
    "bad_call": "Write a seat for every call, and ask for what the endpoint serves: "
    "`troupe program probe SPEC` prints each call.",
    "no_call": "`troupe program run SPEC` shows what it does before it asks.",
    "diverged": "Remove what changes from run to run, or mask it by `ignore` of its seat: "
    "`troupe program check SPEC` finds it. Or play whole runs (grpo) with replay: never.",
    "timeout": "Its tools are slow or it hangs: raise task.params.idle_s (or run_s) and "
    "limits.env_timeout_s, or give its tools time-outs of their own.",
    "died": "It was killed, ran out of memory or passed task.params.cpu_s: raise that, or give "
    "the env service more memory.",
}


@dataclass(frozen=True, slots=True)
class FailingPrograms:
    """The programs of a round, of which too many failed.

    ``example`` is one failure of the commonest kind: its message, in ``episode_id``.
    """

    num_runs: int
    by_kind: Mapping[str, int]
    example: str
    episode_id: str

    @property
    def sentence(self) -> str:
        """For people: how many, why, an example, what to do."""
        num_failed = sum(self.by_kind.values())
        kinds = ", ".join(f"{kind} {count}" for kind, count in self.by_kind.items())
        commonest = next(iter(self.by_kind))
        # As a literal: a message may hold an agent's text, which could change a terminal.
        shown = f" In {self.episode_id}: {self.example[:_IN_SENTENCE]!r}." if self.example else ""
        return (
            f"{num_failed} of {self.num_runs} agent programs failed ({kinds}).{shown} "
            f"{_REMEDY.get(commonest, '')}"
        ).rstrip()

    def to_json(self) -> dict[str, Any]:
        """As the event has it."""
        return {
            "num_runs": self.num_runs,
            "share": round(sum(self.by_kind.values()) / self.num_runs, 6),
            "by_kind": dict(self.by_kind),
            "episode_id": self.episode_id,
            "example": self.example,
            "sentence": self.sentence,
        }


def program_failures(episodes: Sequence[pb.Episode]) -> tuple[int, Counter[str]]:
    """How many programs the episodes ran, dropped ones included, and those that failed by kind."""
    ends: Counter[str] = Counter()
    for episode in episodes:
        ends.update(episode.program_ends)
    return ends.total(), failures_of(ends)


def failing_programs(episodes: Sequence[pb.Episode], limit: float) -> FailingPrograms | None:
    """The round's failures, if they are more than the share ``limit`` of its programs."""
    num_runs, failures = program_failures(episodes)
    if failures.total() <= limit * num_runs:
        return None
    by_kind = dict(sorted(failures.items(), key=lambda entry: (-entry[1], entry[0])))
    examples = list(_examples(episodes, next(iter(by_kind))))
    if not examples:  # what raised and was played again left no message
        return FailingPrograms(num_runs, by_kind, "", "")
    [(message, _)] = Counter(message for message, _ in examples).most_common(1)
    return FailingPrograms(num_runs, by_kind, message, dict(reversed(examples))[message])


def _examples(episodes: Sequence[pb.Episode], kind: str) -> Iterator[tuple[str, str]]:
    """Message and episode of each failure of ``kind`` that left a message."""
    for episode in episodes:
        reason, _, message = episode.dropped_reason.partition(": ")
        if end_of_reason(reason) == kind:
            yield message[:_SHOWN_CHARS], episode.episode_id
        for group in episode.groups:
            for candidate in group.candidates:
                if PROGRAM_END in candidate.info_json:
                    info = json.loads(candidate.info_json)
                    if isinstance(info, dict) and info.get(PROGRAM_END) == kind:
                        yield str(info.get("message", ""))[:_SHOWN_CHARS], episode.episode_id
