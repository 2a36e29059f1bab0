"""Demonstrations in a file of rows: what an agent was shown, and the answer to imitate.

Owns the form of a row and its errors. Never tokenizes: that is the policy's chat template's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from troupe.data.rows import read_rows
from troupe.data.sources import digest_of
from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.spec.job import JobSpec
from troupe.tasks.content import writable
from troupe.tasks.family import Message

POINTER = "/algorithm/demonstrations"
_ROLES = ("system", "user", "assistant")
_FORM = '{"agent": "...", "messages": [{"role": "user", "content": "..."}], "answer": "..."}'


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One answer to imitate; ``row`` is its number in the file, from 1.

    Example: ``Demonstration(1, "solver", (Message("user", "2 + 2"),), "4")``.
    """

    row: int
    agent: str
    messages: tuple[Message, ...]
    answer: str


def read_demonstrations(path: Path, agents: Sequence[str]) -> list[Demonstration]:
    """The demonstrations of the file; a row without `agent` is of the only one of ``agents``.

    Raises:
        NotFoundError: there is no such file.
        InvalidArgumentError: it has no rows, or a row is no demonstration; names the row.
    """
    found = [
        _demonstration(row, number, path, agents) for number, row in enumerate(read_rows(path), 1)
    ]
    if not found:
        raise InvalidArgumentError(f"{path} has no rows; give at least one: {_FORM}")
    return found


def demonstrations_in(spec: JobSpec) -> list[Demonstration]:
    """The rows of the spec's file by agents of policies that learn; empty where it names none.

    Raises:
        InvalidArgumentError: the file is not there, is another one than the spec's digest says,
            holds a row that is no demonstration, or none that a policy learns from.
    """
    given = spec.algorithm.demonstrations
    if given is None:
        return []
    path = Path(given.path).expanduser()
    taught = [name for name, agent in spec.agents.items() if spec.trains(agent.policy)]
    try:
        rows = read_demonstrations(path, list(spec.agents))
        if given.sha256 and digest_of(path) != given.sha256:
            raise InvalidArgumentError(
                f"{path} is another file than the job began with: its SHA-256 is "
                f"{digest_of(path)}, not {given.sha256}. Put the old file back, or begin a new job."
            )
        found = [row for row in rows if row.agent in taught]
        if not found:
            raise InvalidArgumentError(
                f"{path} has no row of an agent that learns ({', '.join(taught)}), so it would "
                "teach nothing; add such rows, thaw a policy, or leave demonstrations out"
            )
    except (InvalidArgumentError, NotFoundError) as error:
        raise InvalidArgumentError(error.message, pointer=f"{POINTER}/path") from error
    return found


def _demonstration(
    row: Mapping[str, Any], number: int, path: Path, agents: Sequence[str]
) -> Demonstration:
    def refuse(what: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"{path}, row {number}: {what}; a row is {_FORM}")

    agent = row.get("agent", agents[0] if len(agents) == 1 else None)
    if agent not in agents:
        raise refuse(f"agent is {agent!r}, and the job's agents are {', '.join(agents)}")
    if ("messages" in row) == ("prompt" in row):
        raise refuse("give either 'messages' or 'prompt'")
    answer = row.get("answer")
    if not isinstance(answer, str) or not answer:
        raise refuse("'answer' must be a text that is not empty")
    shown = row.get("messages", [{"role": "user", "content": row.get("prompt")}])
    if not isinstance(shown, list) or not shown:
        raise refuse("'messages' must be a list of at least one message")
    messages: list[Message] = []
    for place, item in enumerate(cast("list[Any]", shown), 1):
        message = _message(item)
        if message is None:
            raise refuse(
                f"message {place} must have a role ({', '.join(_ROLES)}) and a content of text, "
                "and nothing else"
            )
        messages.append(message)
    texts = [answer, *(message.text for message in messages)]
    if any(text != writable(text) for text in texts):
        raise refuse("a text holds a lone surrogate, which is no character")
    return Demonstration(number, str(agent), tuple(messages), answer)


def _message(item: Any) -> Message | None:
    if not isinstance(item, Mapping):
        return None
    fields = cast("Mapping[str, Any]", item)
    role, content = fields.get("role"), fields.get("content")
    is_text = isinstance(content, str) and bool(content)
    if set(fields) != {"role", "content"} or role not in _ROLES or not is_text:
        return None
    return Message(role, cast("str", content))
