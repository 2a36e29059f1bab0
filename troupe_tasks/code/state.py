"""The state of a Code episode between steps, and its encoding as compact JSON bytes.

The problem itself, with its hidden tests, is not in the state: only its place and digest are.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from troupe.tasks.family import Split

Verdict = Literal["valid", "wrong", "repeat", "unknown"]


@dataclass(frozen=True, slots=True)
class Proposal:
    """One test of the tester. ``verdict`` is for the judge and never shown to the tester.

    ``valid``: the reference agrees; ``wrong``: it does not, or the input breaks it; ``repeat``: the
    input is that of a public or an earlier test; ``unknown``: there is no reference.
    """

    input: str
    output: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the coder's last program did on one test that agents may see."""

    input: str
    expected: str
    passed: bool
    shown: str
    """What it wrote or returned, or how it failed."""


@dataclass(frozen=True, slots=True)
class State:
    """One moment of an episode. ``best`` is the largest hidden pass rate so far.

    ``asked`` is the text of a user's request, which is in no problem file.
    """

    split: Split
    index: int
    digest: str
    best: float = 0.0
    proposals: tuple[Proposal, ...] = ()
    code: str = ""
    public_outcomes: tuple[Outcome, ...] = ()
    proposal_outcomes: tuple[Outcome, ...] = ()
    """In the order of ``proposals``; empty while the last program has not met them."""
    asked: str = ""
    marks: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])
    """What the last answer of each agent is worth, by term; an agent without one has none."""

    def marked(self, agent: str, marks: Mapping[str, float]) -> tuple["State", dict[str, float]]:
        """The state with the agent's new marks, and by how much they differ from its last ones."""
        last = self.marks.get(agent, {})
        terms = {term: mark - last.get(term, 0.0) for term, mark in marks.items()}
        return replace(self, marks={**self.marks, agent: marks}), terms

    @property
    def is_solved(self) -> bool:
        """Whether a program passed every hidden test."""
        return self.best >= 1.0

    @property
    def is_agreed(self) -> bool:
        """Of a request: whether the program passed all tests of the team, which has some."""
        outcomes = self.proposal_outcomes
        return bool(self.asked and outcomes) and all(outcome.passed for outcome in outcomes)


def encode_task(split: Split, index: int, problem_id: str, digest: str) -> bytes:
    """A task payload: which problem, and the hash of what is in it."""
    return _encode({"split": split, "index": index, "id": problem_id, "digest": digest})


def encode_request(text: str) -> bytes:
    """The task payload of a user's request."""
    return _encode({"asked": text})


def first_state(payload: bytes) -> State:
    """The state that an episode of a task payload begins in."""
    raw = json.loads(payload)
    if "asked" in raw:
        return State("test", 0, "", asked=raw["asked"])
    return State(raw["split"], raw["index"], raw["digest"])


def encode_state(state: State) -> bytes:
    """Opaque state bytes; ``decode_state`` is the inverse."""
    return _encode(asdict(state))


def decode_state(data: bytes) -> State:
    """The state that ``encode_state`` wrote."""
    raw = json.loads(data)
    for name, part in (
        ("proposals", Proposal),
        ("public_outcomes", Outcome),
        ("proposal_outcomes", Outcome),
    ):
        raw[name] = tuple(part(**item) for item in raw[name])
    return State(**raw)


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
