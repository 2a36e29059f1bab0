"""Four keepers know different things: a router says whom to ask, or all are asked in turn."""

import re

from team import ask

RECORD = re.compile(r"(\w+) : ([\w ]+?) \.")


def keeper(place, records, question):
    """What the keeper of a place says; it sees its own records alone."""
    return ask(f"You are the keeper of {place}.", f"{records} . {question}")


def parts(task):
    """Records by place, and the question after them."""
    question = task["question"]
    return dict(RECORD.findall(question)), question[question.rindex("How") :]


def boxed(said):
    """The first answer that is a number."""
    return f"\\boxed{{{next((words for words in said if words.isdigit()), '')}}}"


def run(task):
    """A router names a place, and another one if that keeper knows nothing: four calls at most."""
    records, question = parts(task)
    said, seen = [], question
    for _ in range(2):
        choice = ask("You are the router. Whose keeper knows it?", seen)
        place = next((name for name in records if name in choice), None)
        if place is None:
            break
        said.append(keeper(place, records[place], question))
        if said[-1].isdigit():
            break
        seen += f" {place} : none"
    return boxed(said)


def fixed(task):
    """All four in turn, whatever they say."""
    records, question = parts(task)
    return boxed([keeper(place, records[place], question) for place in records])
