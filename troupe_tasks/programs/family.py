"""An agent program of somebody else as a task family: it runs unmodified, and its agents learn."""

import json
import math
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from pydantic import BaseModel

from troupe import plugins
from troupe.errors import InvalidArgumentError, TroupeError
from troupe.sandbox.sandbox import Sandbox
from troupe.tasks.family import HiddenTexts, Task, Taskset, in_hermes_form
from troupe.tasks.program_ends import PROGRAM_TASK
from troupe_tasks.adapters.family import load_function
from troupe_tasks.adapters.record import decode
from troupe_tasks.programs.calls import ModelCall, ProgramRun
from troupe_tasks.programs.endpoint import ProgramEndpoint
from troupe_tasks.programs.environment import ProgramEnvironment
from troupe_tasks.programs.image_launcher import ImageLauncher
from troupe_tasks.programs.judge import AnswerJudge, InnerFamily, ScoredCall
from troupe_tasks.programs.launcher import ProgramLauncher, WarmRun
from troupe_tasks.programs.params import JUDGED, ProgramParams
from troupe_tasks.programs.sandboxed import ORIGIN, SandboxedLauncher
from troupe_tasks.programs.seats import Seats
from troupe_tasks.programs.settings import (
    LOOPBACK,
    ProgramSettings,
    folder_of,
    interpreter_of,
    reached_at,
)
from troupe_tasks.programs.world import ProgramServices


class Program:
    """Agents of a program: a model call is an agent's turn, its answer is its action.

    ``agents``, ``local_terms`` and ``return_bound`` depend on the parameters. Programs are run in
    processes of their own, so a step takes as long as the program's own work.
    """

    name: ClassVar[str] = PROGRAM_TASK
    Params: ClassVar[type[BaseModel]] = ProgramParams
    agents: tuple[str, ...] = ()
    local_terms: Mapping[str, Mapping[str, float]] = {}
    return_bound: float = 0.0
    is_scripted: bool = False
    runs_programs: bool = True
    is_repeatable: bool = True
    team_writes_prompts: bool = True
    usual_workflow: Mapping[str, Any] = {}

    def __init__(self, params: BaseModel) -> None:
        self.params = ProgramParams.model_validate(params.model_dump())
        self._folder = self.params.folder
        if self.params.image is None:  # whoever allows an image allows the code in it
            plugins.check(self.params.program, pointer="/task/params/program")
            self._python = interpreter_of(self.params.python)
            self._folder = folder_of(self.params.folder)
        self._score = load_function(self.params.score, "/task/params/score")
        self._inner = InnerFamily(self.params.judge)
        self._seats = Seats(self.params.seats)
        self.agents = tuple(self.params.seats)
        self.local_terms = {a: dict(seat.weights) for a, seat in self.params.seats.items()}
        self.is_repeatable = self.params.replay == "always"
        self.return_bound = self._inner.family.return_bound
        self.needs_sandbox = self._inner.needs_sandbox or self.params.sandbox is not None
        self.usual_workflow = {
            "kind": "self_play",
            "order": list(self.agents),
            "max_turns": self.params.max_calls,
        }
        self._slots = threading.BoundedSemaphore(self.params.max_live)
        self._lock = threading.Lock()
        self._endpoint: ProgramEndpoint | None = None
        self._judge: AnswerJudge | None = None
        self._warmed: ProgramRun | None = None
        self._launcher = self._made_launcher()
        weakref.finalize(self, self._launcher.close)

    def taskset(self) -> Taskset:
        """The judge's tasks."""
        return self._inner.taskset

    def environment(self) -> ProgramEnvironment:
        """The program, judged without a sandbox.

        Raises InvalidArgumentError when the judge needs one.
        """
        return self._environment(None)

    def environment_in(self, sandbox: Sandbox) -> ProgramEnvironment:
        """The program; its judge runs what it runs in ``sandbox``."""
        return self._environment(sandbox)

    def close(self) -> None:
        """End every program; the next run starts afresh."""
        self._launcher.close()
        with self._lock:
            endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            endpoint.close()

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """A sample of the seat, else a good answer to the judge's task."""
        return self._said(state, agent, rng, "demonstration")

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """A sample of the seat, else a random answer to the judge's task."""
        return self._said(state, agent, rng, "random_answer")

    def hidden_texts(self, task: Task) -> HiddenTexts:
        """The judge's."""
        return self._inner.hidden_texts(task)

    def vocabulary(self) -> Sequence[str]:
        """Words of the judge's task and of the seats' samples."""
        samples = [text for seat in self.params.seats.values() for text in seat.samples]
        words = [word for text in samples for word in text.split()]
        return [*dict.fromkeys([*self._inner.vocabulary(), *words])]

    def _made_launcher(self) -> ProgramLauncher:
        preload, is_forked = list(self.params.preload), self.params.start == "fork"
        shared: Any = {"folder": self._folder, "start_s": self.params.start_s}
        shared |= {"preload": preload, "is_forked": is_forked}
        if self.params.image is None:
            return ProgramLauncher(self._python, **shared)
        return ImageLauncher(ProgramSettings().socket, self.params.image, **shared)

    def _environment(self, sandbox: Sandbox | None) -> ProgramEnvironment:
        launcher = self._launcher
        if self.params.sandbox is not None:
            launcher = SandboxedLauncher(
                sandbox, self.params, self._python, self._folder, self.endpoint
            )
        judge = AnswerJudge(self._inner, sandbox if self._inner.needs_sandbox else None)
        self._judge = self._judge or judge
        services = ProgramServices(
            self.params,
            self._seats,
            launcher,
            self.endpoint,
            question=judge.question,
            paid=lambda seed, text: _paid(judge, seed, text),
            terms=lambda seed, agent, call, text: self._terms(judge, seed, agent, call, text),
            order=self.order,
            warm_run=lambda: self._warm_run(judge),
            slots=self._slots,
        )
        return ProgramEnvironment(services, self.close)

    def endpoint(self) -> ProgramEndpoint:
        """The endpoint of this process's runs; started on first use."""
        with self._lock:
            if self._endpoint is None:
                is_afar = self.params.is_keyed and self.params.sandbox is None
                listen = ProgramSettings().listen if is_afar else LOOPBACK
                self._endpoint = ProgramEndpoint(self.params.keep_alive_s, listen)
            return self._endpoint

    def order(
        self, run: ProgramRun, base_url: str, seed: int, task: Mapping[str, str]
    ) -> dict[str, Any]:
        """What a process is told to run the program once."""
        endpoint, seats = self.endpoint(), self.params.seats
        keys = endpoint.keys.give(run, seats)
        is_keyed, is_sandboxed = self.params.is_keyed, self.params.sandbox is not None
        if is_sandboxed:
            base_url = f"{ORIGIN}/r/{run.name}/v1"
        shared_url = f"{ORIGIN}/v1"
        if is_keyed and not is_sandboxed:
            shared_url = endpoint.shared_url(reached_at(ProgramSettings()))
        return {
            "program": self.params.program,
            "folder": self._folder,
            "task": dict(task),
            "base_url": shared_url if is_keyed else base_url,
            "end_url": f"{base_url.removesuffix('/v1')}/end",
            "key": keys.by_agent[next(iter(seats))] if len(seats) == 1 else keys.run,
            "keys": dict(keys.by_agent) if is_keyed else {},
            "seed": seed,
            "cpu_s": self.params.cpu_s,
        }

    def _warm_run(self, judge: AnswerJudge) -> WarmRun | None:
        if not self.params.warm or self.params.replay == "never":
            return None
        try:
            text = judge.demonstration(0, Random(0))
        except TroupeError:
            text = "ok"
        run = ProgramRun(self.params.max_waiting, self._seats.digest, self._scripted(text))
        if self._warmed is not None:  # of a process that has ended
            self.endpoint().close_run(self._warmed)
        self._warmed = run
        base_url = self.endpoint().open(run)
        order = self.order(run, base_url, self.params.seed, judge.question(0))
        return WarmRun(run, order, self.params.idle_s)

    def _scripted(self, text: str) -> Callable[[ModelCall], str]:
        num_answered = 0

        def answered(call: ModelCall) -> str:
            nonlocal num_answered
            num_answered += 1
            if num_answered > self.params.max_calls:
                raise InvalidArgumentError(f"more than {self.params.max_calls} calls")
            return self._sample_for(call) or text

        return answered

    def _sample_for(self, call: ModelCall) -> str:
        try:
            agent = self._seats.agent_of(call.request, call.headers)
        except InvalidArgumentError:
            return ""
        return next(iter(self.params.seats[agent].samples), "")

    def _terms(
        self, judge: AnswerJudge, seed: int, agent: str, call: ModelCall, text: str
    ) -> dict[str, float]:
        seat = self.params.seats[agent]
        terms = dict.fromkeys(seat.weights, 0.0)
        if seat.judged:
            terms[JUDGED] = judge.judged(seed, text).team_reward
        if self._score is not None and seat.terms:
            shown = self._seats.shown(agent, call.request).observation
            messages = tuple(in_hermes_form(shown))
            scored = ScoredCall(judge.question(seed), agent, messages, text, judge, seed)
            terms.update(_checked(self._score(scored), seat.terms, self.params.score))
        return terms

    def _said(self, state: bytes, agent: str, rng: Random, what: str) -> str:
        seat, record = self.params.seats[agent], decode(state)
        if seat.samples:
            return rng.choice(seat.samples)
        if self._judge is None:
            self._judge = AnswerJudge(self._inner, None)
        return getattr(self._judge, what)(record.seed, rng)


def _paid(judge: AnswerJudge, seed: int, text: str) -> tuple[float, bool]:
    done = judge.judged(seed, text)
    return done.team_reward, done.success


def _checked(terms: Any, known: Mapping[str, float], name: str | None) -> dict[str, float]:
    """The terms of the user's function.

    Raises InvalidArgumentError for terms that the seat does not declare, or no finite number.
    """
    is_fine = isinstance(terms, Mapping) and all(
        term in known and isinstance(paid, int | float) and math.isfinite(paid)
        for term, paid in terms.items()
    )
    if not is_fine:
        raise InvalidArgumentError(
            f"{name} returned {json.dumps(terms, default=str)[:200]}; it must return finite "
            f"numbers by term, of the terms {', '.join(known)}",
            pointer="/task/params/score",
        )
    return {term: float(paid) for term, paid in terms.items()}
