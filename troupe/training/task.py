"""The task family of ``troupe.train``: rows of a data set, judged by the process that called it.

An env process asks the calling process over a Unix socket for each first state and each judgement.
When nobody answers there, that is a failure of the machine, not of an agent: it is retried. Never
scores by itself.
"""

import json
import socket
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from troupe.errors import (
    DeadlineError,
    InvalidArgumentError,
    RewardFailedError,
    TroupeError,
    UnavailableError,
)
from troupe.spec.params import Params
from troupe.tasks.agents import known_agent
from troupe.tasks.family import Message, Observation, Split, Task, Transition
from troupe.training.functions import usual_prompt

TASK_NAME = "troupe.training.task:DatasetTask"
"""Its name in a job spec. No entry point: a public router refuses it like any unlisted module."""

_REASONS = {error.reason: error for error in (InvalidArgumentError, RewardFailedError)}


class DatasetParams(Params):
    """Written by ``troupe.train``; a person need not."""

    socket: str = Field(description="Unix socket of the process that judges.")
    agents: dict[str, str] = Field(min_length=1, description="Instruction by agent, in order.")
    num_train: int = Field(ge=1, description="Training rows.")
    num_held_out: int = Field(ge=0, description="Held-out rows.")
    digest: str = Field(description="SHA-256 of the rows.")
    max_turns: int = Field(default=1, ge=1, description="Turns of an episode.")
    timeout_s: float = Field(default=60.0, gt=0.0, description="Longest call of a function.")
    has_observe: bool = Field(
        default=False, description="Whether a function of the caller writes the prompts."
    )
    has_done: bool = Field(default=False, description="Whether one ends episodes.")
    has_success: bool = Field(default=False, description="Whether solved tasks were told apart.")


Ask = Callable[[str, Mapping[str, Any]], Any]
"""Asks whoever judges: ``reset`` or ``step`` of a ``CallerEnvironment``, with its arguments."""


class DatasetTask:
    """Rows as tasks; the caller's functions as environment."""

    name: ClassVar[str] = "dataset"
    agents: tuple[str, ...] = ()
    Params: ClassVar[type[BaseModel]] = DatasetParams
    local_terms: Mapping[str, Mapping[str, float]] = {}
    return_bound: ClassVar[float] = float("inf")

    def __init__(self, params: BaseModel) -> None:
        self._params = DatasetParams.model_validate(params.model_dump())
        self.agents = tuple(self._params.agents)
        self.local_terms = {agent: {"reward": 1.0} for agent in self.agents}
        self.usual_workflow = {"order": list(self.agents), "max_turns": self._params.max_turns}

    def taskset(self) -> "RowTasks":
        """One task a row; held-out rows are the validation split."""
        return RowTasks(self._params.num_train, self._params.num_held_out)

    def environment(self) -> "RowEnvironment":
        """A client of the process that judges."""
        requests = Requests(self._params, CallerClient(self._params).ask)
        return RowEnvironment(self.agents, requests.ask)

    def request_task(self, text: str) -> Task:
        """``text`` as the prompt of a row that is in no data set; nobody judges its answers.

        Raises InvalidArgumentError where a function of the caller wrote the prompts.
        """
        if self._params.has_observe:
            raise InvalidArgumentError(
                "the prompts of this team were written by observe(row, agent, history) of the "
                "process that trained it, which is not here; ask the agents one by one, with "
                "messages as observe writes them"
            )
        return Task("request", "test", 0, json.dumps({"prompt": text}).encode())


class RowTasks:
    """Places of rows: the rows themselves stay with whoever judges."""

    def __init__(self, num_train: int, num_held_out: int) -> None:
        self._sizes = {"train": num_train, "validation": num_held_out, "test": 0}

    def size(self, split: Split) -> int:
        """Number of rows."""
        return self._sizes[split]

    def task(self, split: Split, index: int) -> Task:
        """The row's place; raises InvalidArgumentError when it is out of range."""
        if not 0 <= index < self._sizes[split]:
            raise InvalidArgumentError(
                f"there is no row {index} in split '{split}' of {self._sizes[split]}"
            )
        payload = json.dumps({"split": split, "index": index}).encode()
        return Task(f"dataset/{split}/{index}", split, index, payload)


class RowEnvironment:
    """``Environment`` whose states are JSON and whose judgements come from ``ask``."""

    def __init__(self, agents: Sequence[str], ask: Ask) -> None:
        self._agents = agents
        self._ask = ask

    def reset(self, task: Task) -> bytes:
        """The first state of a row."""
        return _packed(self._ask("reset", json.loads(task.payload)))

    def observe(self, state: bytes, agent: str) -> Observation:
        """The prompt that the state holds for ``agent``."""
        known_agent(agent, self._agents, task="the task")
        shown = json.loads(state)["shown"].get(agent, [])
        return tuple(Message(message["role"], message["content"]) for message in shown)

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """What the functions say of one answer."""
        before: dict[str, Any] = json.loads(state)
        judgement = self._ask("step", {"state": before, "agent": agent, "action": action})
        after = judgement["state"]
        return Transition(
            state=_packed(after),
            team_reward=judgement["team_reward"],
            local_rewards=judgement["local_rewards"],
            done=after["is_done"],
            success=after["is_success"],
        )


class Requests:
    """Answers for requests, which nobody judges: over when each agent wrote in each turn."""

    def __init__(self, params: DatasetParams, ask: Ask) -> None:
        self._params = params
        self._ask_on = ask

    def ask(self, call: str, document: Mapping[str, Any]) -> Any:
        """A request's state or judgement; for a row, what the wrapped ``ask`` answers."""
        agents = self._params.agents
        if call == "reset" and "prompt" in document:
            shown = {agent: usual_prompt(dict(document), text) for agent, text in agents.items()}
            return {"is_request": True, "num_acts": 0, "shown": shown, "is_done": False}
        before: Mapping[str, Any] = document.get("state", {})
        if "is_request" not in before:
            return self._ask_on(call, document)
        num_acts = before["num_acts"] + 1
        is_done = num_acts >= self._params.max_turns * len(agents)
        after = {**before, "num_acts": num_acts, "is_done": is_done, "is_success": False}
        return {"state": after, "team_reward": 0.0, "local_rewards": {}}


class CallerClient:
    """Asks the process that called ``troupe.train``.

    Raises RewardFailedError when a function of the caller raised, UnavailableError when nobody
    answers at the socket, DeadlineError when no answer came in time.
    """

    def __init__(self, params: DatasetParams) -> None:
        self._params = params

    def ask(self, call: str, document: Mapping[str, Any]) -> Any:
        """The answer to one call, on a connection of its own: they cost little on one machine."""
        connection = _UnixConnection(self._params.socket, timeout=self._params.timeout_s)
        try:
            connection.request("POST", f"/{call}", body=json.dumps(document))
            answer = connection.getresponse()
            body = json.loads(answer.read())
        except TimeoutError as error:
            raise DeadlineError(
                f"the process that called troupe.train did not judge within "
                f"{self._params.timeout_s:g} s; make the functions faster, or give a larger "
                "judge_timeout_s"
            ) from error
        except (OSError, HTTPException) as error:
            raise UnavailableError(
                f"the process that called troupe.train does not answer at {self._params.socket}: "
                "it has ended. Go on with troupe.resume(run_folder, ...), which judges again"
            ) from error
        finally:
            connection.close()
        if answer.status == HTTPStatus.OK:
            return body
        raise _REASONS.get(body.get("reason", ""), TroupeError)(body["message"])


class _UnixConnection(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, *, timeout: float) -> None:
        super().__init__("caller", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket at ``path``."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _packed(state: Mapping[str, Any]) -> bytes:
    return json.dumps(state, sort_keys=True, separators=(",", ":")).encode()
