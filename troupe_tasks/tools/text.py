"""The prompts of the tools family: what a seat knows, in the dialect of ``dialect``.

The clerk reads the policy and the customer's words, the operator the tools' results; neither
reads the other's. With one agent for both seats it reads everything.
"""

from troupe.tasks.family import Message, Observation
from troupe.tasks.quoting import shown
from troupe_tasks.tools.case import Domain
from troupe_tasks.tools.dialect import answered, listed
from troupe_tasks.tools.state import Line, State
from troupe_tasks.tools.turn import CLERK, MAX_CALLS, tools_of

_CLERK = (
    "You are the clerk of {business}. You alone talk to the customer and know the policy. The "
    "operator alone reads and changes the database, and knows only what you write to it."
)
_OPERATOR = (
    "You are the operator of {business}. You alone read and change the database. The clerk talks "
    "to the customer, knows the policy and decides; it knows only what you write to it."
)
_SOLO = "You are the only agent of {business}: you talk to the customer and use the database."
_POLICY = (
    "Policy. First ask for email and zip code and have them verified. Then find out what the "
    "customer wants, and look up every record that the decision needs. If the request breaks a "
    "rule, close the case as refused with that rule's code, and change nothing. If it breaks "
    "none, propose the exact change, and after a yes make exactly that change, no other, and "
    "close the case as done. The rules:"
)
_DUTY = (
    "Change only what the clerk tells you to change, exactly; a change cannot be undone. Close the "
    "case when it is settled."
)


def observation(domain: Domain, state: State, agent: str, *, is_solo: bool) -> Observation:
    """The prompt of ``agent``."""
    opening = f"customer: {state.case.opening}"
    rules = [_POLICY, *(f"- {line}" for line in domain.policy_lines(state.case.policy))]
    tools = listed(tools_of(domain, agent, is_solo=is_solo))
    form = f"Write one to {MAX_CALLS} calls a turn; you see their results in your next turn."
    if is_solo:
        head, seen = [_SOLO, *rules], [opening, *_lines(state.front), *_lines(state.desk)]
    elif agent == CLERK:
        head, seen = [_CLERK, *rules], [opening, *_lines(state.front)]
    else:
        head, seen = [_OPERATOR, _DUTY], _lines(state.desk) or ["A new case is open."]
    system = "\n".join([head[0].format(business=domain.business), *head[1:], tools, form])
    return Message("system", system), Message("user", "\n".join([*seen, "Your calls?"]))


def _lines(lines: tuple[Line, ...]) -> list[str]:
    texts: list[str] = []
    for who, text in lines:
        clean = shown(" ".join(text.split()), max_chars=700)
        texts.append(answered(clean) if who == "tool" else f"{who}: {clean}")
    return texts
