"""What each agent reads, and how its answer is read. An answer is never an error."""

import re

from troupe.tasks.family import Message, Observation

from add_and_double.state import ADDER, MAX_ADDED, State

_RULES = (
    "Two agents change a number in turn until it equals the target; going over it loses. The "
    "adder adds 1 to 9, the doubler doubles the number or keeps it. "
)
_ASKS = {
    True: "You are the adder. End your answer with a line like: add 4",
    False: "You are the doubler. End your answer with one line: double or keep",
}
_ADD = re.compile(r"add ([1-9])")
_WORDS = {"keep": 0, "double": 1}


def observation(state: State, agent: str) -> Observation:
    """The prompt: the rules, then this moment."""
    facts = f"number {state.number} target {state.target} {agent}"
    return Message("system", _RULES + _ASKS[agent == ADDER]), Message("user", facts)


def answer(agent: str, choice: int) -> str:
    """The text that ``read_choice`` reads as ``choice``."""
    return f"add {choice}" if agent == ADDER else ("keep", "double")[choice]


def read_choice(agent: str, text: str) -> int | None:
    """What the last line of ``text`` says, or None when it can't be read.

    Only the last line counts, so naming every answer at once is no answer.
    """
    last = text[-200:].strip().rpartition("\n")[2].strip()
    if agent == ADDER:
        match = _ADD.fullmatch(last)
        return int(match[1]) if match else None
    return _WORDS.get(last)


def words(max_target: int) -> list[str]:
    """Every word that prompts and answers hold, for a small made-here tokenizer."""
    said = ["number", "target", "adder", "doubler", "add", "double", "keep"]
    numbers = [str(number) for number in range(1, max(2 * max_target, MAX_ADDED) + 1)]
    rules = (_RULES + " ".join(_ASKS.values())).split()
    return [*dict.fromkeys([*said, *numbers, *rules])]
