"""One life of a program as a live world: a call that waits is a prompt, its answer is an action.

See ``troupe_tasks.adapters.world.World``. Says whose failure an end is: the team's, the program's
author's, or a machine's; when it has ended, or only waits, is told by ``Settling``.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from troupe.errors import (
    OverloadedError,
    ProgramBadCallError,
    ProgramDiedError,
    ProgramNoCallError,
    ProgramRunDiedError,
    ProgramRunTimeoutError,
    ProgramTimeoutError,
    UnavailableError,
)
from troupe.runtime.faults import reached
from troupe.seeds import derive_seed
from troupe.tasks.actions import CutAction
from troupe.tasks.program_ends import ANSWERED, PROGRAM_END
from troupe.wire.dialect import read_answer
from troupe_tasks.adapters.world import Moment
from troupe_tasks.programs.calls import ModelCall, ProgramEnd, ProgramRun, until_stop
from troupe_tasks.programs.critical_path import PATH_TERM, CriticalPath
from troupe_tasks.programs.endpoint import ProgramEndpoint
from troupe_tasks.programs.launcher import ProgramLauncher, StartedRun, WarmRun
from troupe_tasks.programs.params import ProgramParams
from troupe_tasks.programs.prompts import encoded
from troupe_tasks.programs.sandboxed import SandboxedLauncher
from troupe_tasks.programs.seats import Seats
from troupe_tasks.programs.settling import Settling, too_long

COME_BACK_S = 10.0
"""Longest time for a client that gave a request up to send it again."""
GAVE_UP = (
    "the program's process died, or gave its call up, while the call waited for its answer; a "
    "total time-out of a client (asyncio.wait_for) must be longer than that wait"
)
LOST_S = 0.1
"""How often a run that is to come back is asked whether it still runs."""
SHOWN_CHARS = 2000
TEAM = "team"


@dataclass(frozen=True, slots=True)
class ProgramServices:
    """What all lives of one program share. ``paid`` judges a returned answer: pay, success.

    ``slots`` are those of runs that cannot be repeated: none of them may be ended for another.
    """

    params: ProgramParams
    seats: Seats
    launcher: ProgramLauncher | SandboxedLauncher
    endpoint: Callable[[], ProgramEndpoint]
    question: Callable[[int], Mapping[str, str]]
    paid: Callable[[int, str], tuple[float, bool]]
    terms: Callable[[int, str, ModelCall, str], Mapping[str, float]]
    order: Callable[[ProgramRun, str, int, Mapping[str, str]], dict[str, Any]]
    warm_run: Callable[[], WarmRun | None]
    slots: threading.Semaphore


@dataclass(slots=True)
class _Tally:
    num_answers: int = 0
    tools_offered: int = 0
    tool_calls_parsed: int = 0
    tool_calls_unread: int = 0
    answered: list[list[str]] = field(default_factory=list[list[str]])

    def document(self) -> dict[str, Any]:
        return {
            "num_calls": self.num_answers,
            "tools_offered": self.tools_offered,
            "tool_calls_parsed": self.tool_calls_parsed,
            "tool_calls_unread": self.tool_calls_unread,
            "answered": [list(pair) for pair in self.answered],
        }


class ProgramWorld:
    """One process of the program, and the calls that it makes."""

    def __init__(self, services: ProgramServices) -> None:
        self._services = services
        self._endpoint = services.endpoint()
        self._run = ProgramRun(services.params.max_waiting, services.seats.digest)
        self._process: StartedRun | None = None
        self._tally = _Tally()
        self._payers = tuple(a for a, s in services.params.seats.items() if s.path_weight)
        self._path = CriticalPath(services.params.path_unit) if self._payers else None
        self._seed = 0
        self._settling = Settling(self._endpoint, self._run, services.params)
        self._first: Moment | None = None
        self._asked: dict[str, tuple[str, ModelCall]] = {}
        self._has_slot = False
        self._lock = threading.Lock()

    def reset(self, seed: int) -> Moment:
        """Start the program on a task and run it to its first model call.

        Raises:
            ProgramNoCallError: it ended, or failed, before it asked anything.
            ProgramBadCallError: it asked for what is not served, or for nobody.
            UnavailableError: a machine's failure; the same may succeed elsewhere.
        """
        services = self._services
        self._seed = seed
        self._take_slot()
        self._settling.deadline = time.monotonic() + services.params.run_s
        self._run.expires_at = self._settling.deadline
        self._run.expired = self.close
        base_url = self._endpoint.open(self._run)
        order = services.order(
            self._run, base_url, derive_seed(services.params.seed, seed), services.question(seed)
        )
        self._process = services.launcher.start(self._run, order, services.warm_run)
        reached("env.program_started")
        self._first = self._settled({})
        return self._first

    def first_moment(self, seed: int) -> Moment | None:
        """What a run of ``seed`` shows that nobody has answered yet; None for any other."""
        first = self._first
        if first is None or seed != self._seed or self._tally.num_answers:
            return None
        return first if self.asks(first.prompts) else None

    def act(self, agent: str, action: Any) -> Moment:
        """Answer the call that the agent was shown and run the program to its next one, or its end.

        ``action`` is a text, or ``{"cut": text}`` for one that a bound cut. Raises UnavailableError
        when the program gave the call up at this very moment.
        """
        _, call = self._asked[agent]
        whole = CutAction(action["cut"]) if isinstance(action, dict) else str(action)
        text, _ = until_stop(whole, call.request)  # what the program never got is not paid
        terms = self._services.terms(self._seed, agent, call, text)
        answer = read_answer(text, call.request.tools)
        self._run.expires_at = self._settling.deadline
        self._tally.num_answers += 1
        self._tally.answered.append([agent, call.key.digest[:8]])
        self._tally.tools_offered += bool(call.request.tools)
        self._tally.tool_calls_parsed += len(answer.tool_calls)
        self._tally.tool_calls_unread += answer.num_unread
        if self._path is not None:
            self._path.answered(call, text)
        self._run.answer(call, whole)
        reached("env.program_answered", self._tally.num_answers)
        moment = self._settled(terms)
        if self._run.is_given_up(call):
            raise self.lost()
        return moment if self._path is None else self._with_path(moment, agent, self._path.length)

    def save(self) -> str | None:
        """None: only a replay leads to a point of a program's life."""
        return None

    def restore(self, saved: str) -> None:
        """Never called, because nothing is saved."""
        raise NotImplementedError

    def asks(self, prompts: Mapping[str, str]) -> bool:
        """Whether it lives and still asks each agent what its prompt shows.

        A client may have given its call up, and the program have asked something else instead.
        """
        return (
            self._is_running
            and self._run.end is None
            and time.monotonic() < self._settling.deadline
            and all(self._still_asks(agent, prompt) for agent, prompt in prompts.items())
        )

    def comes_back(self, prompts: Mapping[str, str]) -> bool:
        """Whether a client that gave its request up asks again soon, so that the run is live."""
        run, by = self._run, time.monotonic() + COME_BACK_S
        with run.changed:
            while not (self.asks(prompts) or run.end is not None or run.is_void):
                # A process that was killed wakes nobody.
                if not self._is_running or time.monotonic() > by:
                    break
                run.changed.wait(LOST_S)
        return self.asks(prompts)

    def lost(self) -> UnavailableError:
        """Why it lives no more, or asks something else, though nobody ended it.

        The episode of a run that is never repeated is over.
        """
        params = self._services.params
        is_once = params.replay == "never"
        if time.monotonic() >= self._settling.deadline:
            return (ProgramRunTimeoutError if is_once else ProgramTimeoutError)(too_long(params))
        return (ProgramRunDiedError if is_once else ProgramDiedError)(GAVE_UP)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or its time was over."""
        return self._run.is_void

    def close(self) -> None:
        """End the program and all that it began; its keys are valid no more."""
        self._endpoint.close_run(self._run)
        if self._process is not None:
            self._process.kill()
        with self._lock:
            had_slot, self._has_slot = self._has_slot, False
        if had_slot:
            self._services.slots.release()

    @property
    def _is_running(self) -> bool:
        return self._process is not None and self._process.is_alive

    def _take_slot(self) -> None:
        params = self._services.params
        if params.replay == "always":
            return
        if not self._services.slots.acquire(timeout=params.start_s):
            raise OverloadedError(
                f"{params.max_live} runs are under way in this process (max_live), and none ended "
                f"in {params.start_s:g} s (start_s); raise max_live, or add env replicas"
            )
        self._has_slot = True

    def _settled(self, terms: Mapping[str, float]) -> Moment:
        """Run on until the program has ended, or does nothing but wait for answers."""
        assert self._process is not None
        while True:
            self._settling.wait(self._process, is_answered=self._tally.num_answers > 0)
            if self._run.end is not None:
                return self._ended(terms)
            if self._run.is_flooded:
                return self._flooded(terms)
            if calls := self._calls():  # none where a client has just given its call up
                return self._shown(calls, terms)

    def _still_asks(self, agent: str, prompt: str) -> bool:
        shown, call = self._asked.get(agent, ("", None))
        if call is None or shown != prompt:
            return False
        if self._run.is_open(call):
            return True
        for again in self._waiting():
            if again.key.digest == call.key.digest and self._agent_of(again) == agent:
                self._asked[agent] = (prompt, again)
                return True
        return False

    def _waiting(self) -> list[ModelCall]:
        waiting = self._run.waiting
        return waiting if self._path is None else self._path.first(waiting)

    def _agent_of(self, call: ModelCall) -> str:
        return self._services.seats.agent_of(call.request, call.headers)

    def _calls(self) -> dict[str, ModelCall]:
        """The call that each agent is asked: of several, the first in an order that repeats."""
        calls: dict[str, ModelCall] = {}
        for call in self._waiting():
            calls.setdefault(self._agent_of(call), call)
        return calls

    def _shown(self, calls: Mapping[str, ModelCall], terms: Mapping[str, float]) -> Moment:
        params, seats = self._services.params, self._services.seats
        prompts = {
            a: encoded(seats.shown(a, call.request).observation) for a, call in calls.items()
        }
        self._asked = {agent: (prompts[agent], call) for agent, call in calls.items()}
        largest = max(len(prompt.encode("utf-8", "replace")) for prompt in prompts.values())
        if self._tally.num_answers >= params.max_calls:
            return self._failed(terms, "too_many_calls", f"more than {params.max_calls} calls")
        if largest > params.max_prompt_bytes:
            return self._failed(terms, "prompt_too_long", f"a prompt of {largest} bytes")
        self._run.expires_at = min(self._settling.deadline, time.monotonic() + params.answer_s)
        return Moment(prompts, {**terms, TEAM: 0.0}, False, False, self._tally.document())

    def _ended(self, terms: Mapping[str, float]) -> Moment:
        end = self._run.end
        assert end is not None
        if self._run.is_flooded and end.error is not None:
            return self._flooded(terms)
        if self._run.is_refused and (end.error is not None or not self._tally.num_answers):
            then = "returned without an answer" if end.error is None else f"raised {end.error}"
            raise ProgramBadCallError(
                f"the program was refused ({self._run.refusal}) and then {then}"
            )
        if not self._tally.num_answers:
            raise _asked_nothing(end)
        if end.error is not None:
            return self._failed(terms, "program_error", end.error, end.traceback)
        paid, is_success = self._services.paid(self._seed, end.answer)
        answer = end.answer[-SHOWN_CHARS:]
        info = {**self._tally.document(), PROGRAM_END: ANSWERED, "answer": answer}
        return Moment({}, {**terms, TEAM: paid}, True, is_success, info)

    def _with_path(self, moment: Moment, actor: str, length: float) -> Moment:
        """``moment``; at the end, each seat that declares it is paid the path's length."""
        if not moment.is_done:
            return moment
        names = {a: PATH_TERM if a == actor else f"{a}/{PATH_TERM}" for a in self._payers}
        paid = dict.fromkeys(names.values(), length)
        info = {**moment.info, PATH_TERM: length}
        return replace(moment, rewards={**moment.rewards, **paid}, info=info)

    def _flooded(self, terms: Mapping[str, float]) -> Moment:
        """How wide a team fans out may be an agent's doing; a flood before any answer is not."""
        message = f"more than {self._services.params.max_waiting} calls at once"
        return self._failed(terms, "too_many_calls_at_once", self._run.refusal or message)

    def _failed(
        self, terms: Mapping[str, float], failure: str, message: str, traceback: str = ""
    ) -> Moment:
        """The end of an episode by the team's own doing: it is paid nothing for it."""
        if not self._tally.num_answers:
            raise ProgramNoCallError(f"the program failed before any answer: {message}")
        told = {PROGRAM_END: failure, "failure": failure, "message": message}
        info = {**self._tally.document(), **told}
        if traceback:
            info["traceback"] = traceback[-SHOWN_CHARS:]
        return Moment({}, {**terms, TEAM: 0.0}, True, False, info)


def _asked_nothing(end: ProgramEnd) -> ProgramNoCallError:
    if end.error is None:
        return ProgramNoCallError(
            "the program returned before it asked any model; it must reach the endpoint in "
            "OPENAI_BASE_URL (or ANTHROPIC_BASE_URL), which it sees when its module is imported"
        )
    return ProgramNoCallError(
        f"the program failed before it asked any model: {end.error}. Correct it at the last line "
        "of the traceback; what it imports must lie in task.params.folder or be installed for "
        f"task.params.python.\n{end.traceback.rstrip()}"
    )
