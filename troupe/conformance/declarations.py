"""Checks a family's declarations: agents, terms, parameters, vocabulary, policies."""

import json
from collections.abc import Mapping, Sequence
from random import Random

from pydantic import BaseModel, ValidationError

from troupe.conformance.findings import claimed, clipped, tolerant
from troupe.conformance.play import agent_to_act, chosen
from troupe.conformance.subject import Subject
from troupe.conformance.texts import written
from troupe.errors import InvalidArgumentError
from troupe.finite import is_finite
from troupe.tasks.family import HiddenTexts, TaskFamily
from troupe.tasks.optional import vocabulary_of

UNKNOWN_AGENT = "nobody-of-this-team"


def declared(subject: Subject) -> None:
    """Agents, reward terms, parameters and bound are declared and consistent."""
    family = subject.family

    def wrong(reason: str) -> None:
        subject.findings.fail("declared", reason)

    name = claimed(family.name)
    if not isinstance(name, str) or not name:
        wrong(f"name is {name!r}")
    agents = family.agents
    if not agents or len(set(agents)) != len(agents):
        wrong(f"agents are {agents!r}: at least one, each once")
    if not is_finite(family.return_bound):
        wrong(f"return_bound is {family.return_bound!r}, not a finite number")
    if set(family.local_terms) != set(agents):
        wrong(f"local_terms speaks of {sorted(family.local_terms)}, the agents are {agents!r}")
    for agent, terms in family.local_terms.items():
        for term, weight in terms.items():
            if not is_finite(weight):
                wrong(f"local_terms[{agent!r}][{term!r}] is {weight!r}")
    _params(subject, family)
    subject.findings.fact(
        "declared", f"agents {', '.join(agents)}; bound {family.return_bound}; local terms declared"
    )


def _params(subject: Subject, family: TaskFamily) -> None:
    params = claimed(family.Params)
    if not (isinstance(params, type) and issubclass(params, BaseModel)):
        subject.findings.fail("declared", f"Params is {params!r}, no pydantic model")
        return
    try:
        params.model_validate({"no_such_parameter_": 0})
    except ValidationError as error:
        if any(problem["type"] == "extra_forbidden" for problem in error.errors()):
            return
    subject.findings.warn("declared", "Params ignores unknown parameters, so typing errors pass")


def unknown_agent(subject: Subject) -> None:
    """An agent that the family does not have is the caller's mistake, and says so."""
    env, task = subject.env, subject.tasks[0]
    with tolerant():
        state = env.reset(task)
        calls = {
            "step": lambda: env.unwatched().step(state, UNKNOWN_AGENT, "x"),
            "observe": lambda: env.unwatched().observe(state, UNKNOWN_AGENT),
        }
        for name, call in calls.items():
            try:
                call()
            except InvalidArgumentError:
                subject.findings.fact("unknown_agent", f"{name} refuses it")
            except (Exception, SystemExit) as error:
                subject.findings.fail(
                    "unknown_agent", f"{name} raised {type(error).__name__}: {clipped(str(error))}"
                )
            else:
                subject.findings.fail("unknown_agent", f"{name} accepted {UNKNOWN_AGENT!r}")


def vocabulary(subject: Subject) -> None:
    """Words are texts without spaces and without repeats."""
    if subject.skips_without("vocabulary", "vocabulary"):
        return
    words = list(vocabulary_of(subject.family))
    for word in map(claimed, words):
        if not isinstance(word, str) or not word or word.split() != [word]:
            subject.findings.fail("vocabulary", f"{word!r} is no single word")
    repeated = sorted({word for word in words if words.count(word) > 1}) if words else []
    if repeated:
        subject.findings.fail("vocabulary", f"more than once: {clipped(repeated)}")
    subject.findings.fact("vocabulary", f"{len(words)} words")


def policies(subject: Subject) -> None:
    """Demonstrations and random actions are texts that depend only on state and seed."""
    names = [name for name in ("demonstrate", "random_action") if subject.has(name)]
    if not names:
        subject.skips_without("policies", "demonstrate", "random_action")
        return
    count = 0
    for task in subject.tasks:
        with tolerant():
            state = subject.env.reset(task)
            agent = agent_to_act(subject, state, 0)
            for policy in (getattr(subject, name) for name in names):
                first = chosen(subject, policy, state, agent, Random(count))
                chosen(subject, policy, state, agent, Random(count + 1))
                again = chosen(subject, policy, state, agent, Random(count))
                if first != again:
                    subject.findings.fail(
                        "policies",
                        f"{policy.__qualname__} with one seed gave {clipped(first)}, then "
                        f"{clipped(again)}",
                    )
                count += 1
    subject.findings.fact(
        "policies", f"{count} draws of {', '.join(names)} repeated with their seed"
    )


def hidden(subject: Subject) -> None:
    """No prompt contains text that the family marks as hidden."""
    reveal = getattr(subject.family, "hidden_texts", None)
    if reveal is None:
        subject.findings.skip(
            "hidden", "the family has no hidden_texts(task) hook, so nothing is marked as hidden"
        )
        return
    count = 0
    for task in subject.tasks:
        if count and subject.is_late("hidden"):
            break
        secrets = _secrets(subject, reveal(task))
        if not any(secrets.values()):
            continue
        with tolerant():
            state = subject.env.reset(task)
            for number in range(2 * len(subject.family.agents)):
                _search_prompts(subject, state, secrets, task.id)
                agent = agent_to_act(subject, state, number)
                action = chosen(subject, subject.random_action, state, agent, Random(number))
                done = subject.env.step(state, agent, action)
                state = done.state
                count += 1
                if done.done:
                    break
    if count:
        subject.findings.fact("hidden", f"searched the prompts of {count} states")
    else:
        subject.findings.skip("hidden", "hidden_texts(task) marks nothing as hidden")


def _secrets(subject: Subject, hidden_texts: HiddenTexts) -> dict[str, Sequence[str]]:
    """agent -> texts that its prompts must not show."""
    if isinstance(hidden_texts, Mapping):
        return {agent: hidden_texts.get(agent, ()) for agent in subject.family.agents}
    return dict.fromkeys(subject.family.agents, hidden_texts)


def _search_prompts(
    subject: Subject, state: bytes, secrets: Mapping[str, Sequence[str]], task_id: str
) -> None:
    for agent, texts in secrets.items():
        shown = written(subject.env.observe(state, agent))
        for secret in texts:
            # Tools and arguments of calls are JSON, in which a secret may be escaped.
            spellings = (
                secret,
                json.dumps(secret)[1:-1],
                json.dumps(secret, ensure_ascii=False)[1:-1],
            )
            if secret and any(spelling in shown for spelling in spellings):
                subject.findings.fail(
                    "hidden", f"{task_id}: the prompt of '{agent}' shows {clipped(secret)}"
                )
