"""Routes of what specs can name: task families, algorithms, the schema. The same for every job."""

import asyncio
from functools import lru_cache
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from troupe import plugins
from troupe.cli.starter import starter_spec
from troupe.clients.rest import models as m
from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.spec import JobSpec
from troupe_router.rest.bodies import answer
from troupe_router.rest.openapi import SPEC, Responses, shows
from troupe_router.rest.route import Route, routed

TaskName = Annotated[str, Path(max_length=100, examples=["plan_path"])]
_SCHEMA: Responses = {
    200: {
        "description": "Done",
        "content": {"application/json": {"schema": {"type": "object"}}},
    },
    304: {"description": "The client has it already (If-None-Match)"},
}


def catalogue_routes() -> APIRouter:
    """Routes of tasks, algorithms and the schema."""
    return routed(
        "/v1",
        "platform",
        Route("/tasks", _list_tasks, "Task families", shows(m.TaskList)),
        Route("/tasks/{name}", _get_task, "One task family", shows(m.TaskFamily)),
        Route(
            "/tasks/{name}/spec", _get_starter, "A small spec to begin with", shows(JobSpec, SPEC)
        ),
        Route("/algorithms", _list_algorithms, "Algorithms", shows(m.AlgorithmList)),
        Route("/schemas/job-spec", _get_schema, "JSON Schema of a job spec", _SCHEMA, ()),
    )


async def _list_tasks(request: Request) -> Response:
    names = plugins.registered(plugins.TASKS)
    return answer(request, {"tasks": await asyncio.to_thread(lambda: list(map(family, names)))})


async def _get_task(request: Request, name: TaskName) -> Response:
    return answer(request, await asyncio.to_thread(family, _known_task(name)))


async def _get_starter(request: Request, name: TaskName) -> Response:
    return answer(request, await asyncio.to_thread(starter_spec, _known_task(name)))


async def _list_algorithms(request: Request) -> Response:
    return answer(request, {"algorithms": await asyncio.to_thread(_algorithms)})


async def _get_schema(request: Request) -> Response:
    return answer(request, JobSpec.model_json_schema())


@lru_cache(maxsize=256)
def family(name: str) -> dict[str, Any]:
    """What REST says of a registered task family; an installation does not change while it runs."""
    try:
        found = plugins.load(plugins.TASKS, name)
    except InvalidArgumentError as error:
        return {"name": name, "error": error.message}
    return {
        "name": name,
        "summary": (found.__doc__ or "").strip().partition("\n")[0],
        "agents": list(found.agents),
        "params": found.Params.model_json_schema(),
        "local_terms": {agent: dict(terms) for agent, terms in found.local_terms.items()},
        "return_bound": found.return_bound,
    }


def _known_task(name: str) -> str:
    known = plugins.registered(plugins.TASKS)
    if name not in known:
        raise NotFoundError(f"no task family '{name}'; there are: {', '.join(known)}")
    return name


@lru_cache(maxsize=1)
def _algorithms() -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for name in plugins.registered(plugins.ALGORITHMS):
        try:
            summary = (plugins.load(plugins.ALGORITHMS, name).__doc__ or "").strip()
        except InvalidArgumentError as error:
            summary = error.message
        found.append({"name": name, "summary": summary.partition("\n")[0]})
    return found
