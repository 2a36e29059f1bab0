"""One run of a program with given answers, to see what it asks before it has seats."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from troupe.errors import InvalidArgumentError
from troupe.seeds import derive_seed
from troupe.tasks.family import in_hermes_form
from troupe_tasks.programs.calls import ModelCall, ProgramRun, digest_of
from troupe_tasks.programs.seats import HEADER
from troupe_tasks.programs.world import ProgramServices


def probed(services: ProgramServices, seed: int, answers: Sequence[str]) -> dict[str, Any]:
    """Calls and end of one run; ``calls`` is cut off after ``max_calls``."""
    params, given = services.params, list(answers) or ["ok"]
    num_answered = 0

    def scripted(_: ModelCall) -> str:
        nonlocal num_answered
        if num_answered == params.max_calls:
            raise InvalidArgumentError(f"more than max_calls = {params.max_calls} calls")
        num_answered += 1
        return given[min(num_answered, len(given)) - 1]

    run = ProgramRun(params.max_waiting, lambda request, _: digest_of(request), scripted)
    endpoint = services.endpoint()
    base_url = endpoint.open(run)
    order = services.order(run, base_url, derive_seed(params.seed, seed), services.question(seed))
    process = services.launcher.start(run, order, lambda: None)
    deadline = time.monotonic() + params.idle_s
    try:
        # Not `changed`: woken by every call, this thread would stand in the endpoint's way.
        while not run.has_ended.wait(0.05) and time.monotonic() < deadline and process.is_alive:
            pass
        endpoint.drain()
        return {"calls": [_told(services, call) for call in run.calls], "end": _end(run, params)}
    finally:
        endpoint.close_run(run)
        process.kill()


def _told(services: ProgramServices, call: ModelCall) -> Mapping[str, Any]:
    request, problem, agent = call.request, "", None
    try:
        agent = services.seats.agent_of(request, call.headers)
        services.seats.check_images(agent, request)
    except InvalidArgumentError as error:
        problem = error.message
    return {
        "agent": agent,
        "problem": problem,
        "model": request.model,
        "header": call.headers.get(HEADER),
        "system": request.system,
        "tools": [tool.name for tool in request.tools],
        "is_stream": request.is_stream,
        "max_tokens": request.max_tokens,
        "overridden": list(request.overridden),
        "turns": [[m.role, m.described] for m in in_hermes_form(request.observation)],
        "answer": call.text,
    }


def _end(run: ProgramRun, params: Any) -> str:
    refused = f" (refused: {run.refusal})" if run.refusal else ""
    if run.end is None:
        return f"it did not end in {params.idle_s:g} s, or its process died{refused}"
    if run.end.error is not None:
        return f"it raised {run.end.error}{refused}\n{run.end.traceback}"
    return f"it returned {run.end.answer!r}{refused}"
