"""One customer case: a database, a policy, a customer with a request, and its JSON form.

Owns what a case is; ``shop`` and ``airline`` draw cases and say which rules a request breaks.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from troupe_tasks.tools.dialect import Call, Tool

Database = dict[str, Any]
"""Tables of records by id; plain JSON values."""

NOT_VERIFIED = "not_verified"
NOT_YOURS = "not_yours"


@dataclass(frozen=True, slots=True)
class Case:
    """One problem instance.

    ``facts`` are the customer's answers by topic; ``customer`` is the record of the person that
    the caller claims to be; ``request`` is what the caller wants, whether allowed or not.
    """

    domain: str
    db: Database
    policy: Mapping[str, Any]
    caller: str
    customer: str
    opening: str
    facts: Mapping[str, str]
    request: Call
    lookups: tuple[Call, ...]
    """What must be read before anybody can decide."""


@dataclass(frozen=True, slots=True)
class Domain:
    """One line of business: its tools, its rules, and how its cases are drawn.

    ``read`` and ``write`` return a result or a new database, or a short refusal as text; neither
    knows the policy. ``broken`` lists the rules that a case's request breaks.
    """

    name: str
    business: str
    topics: Mapping[str, str]
    read_tools: tuple[Tool, ...]
    write_tools: tuple[Tool, ...]
    rules: tuple[str, ...]
    draw: Callable[[Random], Case]
    policy_lines: Callable[[Mapping[str, Any]], Sequence[str]]
    read: Callable[[Database, Call], dict[str, Any] | str]
    write: Callable[[Database, Call], Database | str]
    broken: Callable[[Case], frozenset[str]]


def owner_is_proven(case: Case) -> bool:
    """Whether what the caller says of email and zip code fits the customer's record."""
    record = case.db["customers"][case.customer]
    return all(record[name] == case.facts[name] for name in ("email", "zip"))


def copied(db: Database) -> Database:
    """A database that may be changed."""
    return deepcopy(db)


def encode_case(case: Case) -> bytes:
    """A task payload."""
    return json.dumps(case_fields(case), separators=(",", ":")).encode()


def case_fields(case: Case) -> dict[str, Any]:
    """Plain JSON values of ``case``."""
    return asdict(case)


def case_of(fields: Mapping[str, Any]) -> Case:
    """The case that ``case_fields`` wrote."""
    parts: dict[str, Any] = dict(fields)
    parts["lookups"] = tuple(Call(**call) for call in parts["lookups"])
    parts["request"] = Call(**parts["request"])
    return Case(**parts)


def verify(db: Database, email: str, zip_code: str) -> str:
    """The customer of this email and zip code, or an empty text."""
    for key, record in db["customers"].items():
        if record["email"] == email and record["zip"] == zip_code:
            return key
    return ""
