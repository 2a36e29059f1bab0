"""What an attacker is: a way to write every action of an episode without solving the task.

An attacker may read the prompt and draw random actions. It never reads a demonstration: what
solves the task is no attack.
"""

from dataclasses import dataclass

from troupe.conformance.adversarial import Situation, Tactic


@dataclass(frozen=True, slots=True)
class Attacker:
    """One attacker. ``act`` writes the text of each agent whose turn it is.

    ``what`` says in words what it tries. ``follows_honest``: a demonstration of the same task is
    judged right before it, by the same judge, so that there is something to copy.

    Example: ``Attacker("constant_zero", "always answers 0", lambda now: "0")``.
    """

    name: str
    what: str
    act: Tactic
    follows_honest: bool = False


def user_text(now: Situation) -> str:
    """The last message that the acting agent is shown; "" when it is shown nothing."""
    messages = now.subject.env.observe(now.state, now.agent)
    return messages[-1].text if messages else ""
