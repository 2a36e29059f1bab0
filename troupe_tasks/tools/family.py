"""Tools as a task family: its parameters, its tasks and its demonstrations."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from troupe.data.prepared import SplitRows
from troupe.data.taskset import PreparedTaskset
from troupe.tasks.family import Environment, Split, Task, Taskset
from troupe.tasks.splits import DrawnTaskset, split_of_key
from troupe_tasks.tools import compact, dialect, script, tau2_environment
from troupe_tasks.tools.case import Case, case_of, encode_case
from troupe_tasks.tools.dialect import Call
from troupe_tasks.tools.environment import AGENTS, DOMAINS, RETURN_BOUND, ToolsEnvironment
from troupe_tasks.tools.state import decode_state
from troupe_tasks.tools.tau2_environment import Tau2Environment
from troupe_tasks.tools.tau2_row import Tau2Row
from troupe_tasks.tools.turn import CLERK, OPERATOR, tools_of

_TERMS = {"format": 0.1, "valid": 0.1, "learnt": 0.2, "found": 0.2}


class Tau2Params(BaseModel):
    """Files of one of tau2-bench's domains, retail or airline."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Path = Field(description="Folder or file of `troupe data prepare tau2`.")
    db: Path = Field(description="The domain's published db.json.")
    policy: Path | None = Field(default=None, description="The published policy.md.")


class ToolsParams(BaseModel):
    """Which cases, and how many agents share the work."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(default=0, description="Seed of the cases.")
    domains: tuple[Literal["shop", "airline"], ...] = Field(
        default=("shop", "airline"), min_length=1, description="Lines of business."
    )
    requests: tuple[str, ...] = Field(
        default=(),
        description="Kinds of requests by the name of the change, such as cancel_order; none: all.",
    )
    style: Literal["compact", "verbose"] = Field(
        default="verbose",
        description="verbose: prose and Hermes calls, for a general model; compact: one line of "
        "short names and words, for a tiny one.",
    )
    is_solo: bool = Field(
        default=False,
        description="One agent, operator, with policy, customer and tools; else clerk and "
        "operator share them.",
    )
    tau2: Tau2Params | None = Field(
        default=None, description="For evaluation: tau2-bench's tasks, by one agent."
    )

    @model_validator(mode="after")
    def _can_be_drawn(self) -> "ToolsParams":
        chosen = (DOMAINS[name] for name in self.domains)
        known = [tool.name for domain in chosen for tool in domain.write_tools]
        if unknown := set(self.requests) - set(known):
            raise ValueError(f"requests are: {', '.join(known)}; not {', '.join(sorted(unknown))}")
        if self.tau2 and (self.requests or self.style == "compact"):
            raise ValueError("tau2's tasks have no requests to choose and no compact style")
        return self


class Tools:
    """A clerk with the customer and the policy, an operator with the database.

    Neither can settle a case alone: the operator does not know what is allowed or wanted, the clerk
    does not know what is in the database and cannot change it.

    Example: ``Tools(ToolsParams(domains=("shop",))).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "tools"
    agents: ClassVar[tuple[str, ...]] = AGENTS
    Params: ClassVar[type[BaseModel]] = ToolsParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = {
        CLERK: {name: _TERMS[name] for name in ("format", "valid", "learnt")},
        OPERATOR: {name: _TERMS[name] for name in ("format", "valid", "found")},
    }
    return_bound: ClassVar[float] = RETURN_BOUND
    usual_workflow: ClassVar[Mapping[str, Any]] = {
        "kind": "turn_based",
        "order": [CLERK, OPERATOR],
        "max_turns": 9,
    }

    def __init__(self, params: BaseModel) -> None:
        self._params = ToolsParams.model_validate(params.model_dump())
        self._is_compact = self._params.style == "compact"
        if self._params.is_solo or self._params.tau2:
            # What an instance declares hides the class's.
            vars(self).update(
                agents=(OPERATOR,),
                local_terms={OPERATOR: _TERMS},
                usual_workflow={"kind": "turn_based", "order": [OPERATOR], "max_turns": 9},
            )
        if self._params.tau2:
            vars(self).update(
                local_terms={OPERATOR: {name: _TERMS[name] for name in ("format", "valid")}},
                usual_workflow={"kind": "turn_based", "order": [OPERATOR], "max_turns": 20},
            )

    def taskset(self) -> Taskset:
        """Cases without end in each split, or tau2's rows."""
        if self._params.tau2:
            return PreparedTaskset(SplitRows(self._params.tau2.data, Tau2Row))
        return DrawnTaskset(self.name, self._params.seed, self._draw, hint="ask for more domains")

    def split_key(self, task: Task) -> str | None:
        """Who calls."""
        return None if self._params.tau2 else case_of(json.loads(task.payload)).caller

    def _draw(self, rng: Random, split: Split) -> bytes | None:
        case = DOMAINS[rng.choice(self._params.domains)].draw(rng)
        requests = self._params.requests
        is_owner = split_of_key(case.caller) == split
        is_chosen = not requests or case.request.name in requests
        return encode_case(case) if is_owner and is_chosen else None

    def environment(self) -> Environment:
        """The family's judge."""
        if self._params.tau2:
            return Tau2Environment(self._params.tau2.db, self._params.tau2.policy)
        return ToolsEnvironment(self.agents, is_compact=self._is_compact)

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """Ask, look up, report, decide and settle, as far as the seat knows enough."""
        if self._params.tau2:
            ticket = tau2_environment.decode_state(state)
            return tau2_environment.demonstration(ticket, self._params.tau2.db)
        decoded = decode_state(state)
        domain = DOMAINS[decoded.case.domain]
        calls = script.demonstration(domain, decoded, agent, is_solo=self._params.is_solo)
        return self._written(decoded.case, calls)

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """Well-formed calls with ids that exist."""
        if self._params.tau2:
            return tau2_environment.random_call(self._params.tau2.db, rng)
        decoded = decode_state(state)
        domain = DOMAINS[decoded.case.domain]
        calls = script.random_calls(domain, decoded, agent, rng, is_solo=self._params.is_solo)
        return self._written(decoded.case, calls)

    def _written(self, case: Case, calls: Sequence[Call]) -> str:
        return compact.written(case, *calls) if self._is_compact else dialect.written(*calls)

    def hidden_texts(self, task: Task) -> list[str]:
        """Emails of all customers but the caller: no prompt shows them."""
        if self._params.tau2:
            return []
        case = case_of(json.loads(task.payload))
        others = (record for key, record in case.db["customers"].items() if key != case.customer)
        return [record["email"] for record in others]

    def vocabulary(self) -> Sequence[str]:
        """Names of tools, arguments, topics and rules."""
        words = dict.fromkeys(compact.words() if self._is_compact else ())
        for domain in DOMAINS.values():
            for agent in AGENTS:
                for tool in tools_of(domain, agent, is_solo=False):
                    words |= dict.fromkeys((tool.name, *tool.parameters))
            words |= dict.fromkeys((*domain.topics, *domain.rules))
        return list(words)
