"""Routes of what specs can name: task families, algorithms, the schema. The same for every job."""

import asyncio
from functools import lru_cache
from typing import Annotated, Any

from fastapi import APIRouter, Path
from starlette.responses import JSONResponse

from troupe import plugins
from troupe.cli.starter import starter_spec
from troupe.clients.rest.models.catalogue import (
    AlgorithmDocument,
    AlgorithmList,
    TaskFamilyDocument,
    TaskList,
)
from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.spec import JobSpec
from troupe_router.rest.openapi import EVERY, problems
from troupe_router.rest.strict_route import StrictRoute

routes = APIRouter(prefix="/v1", tags=["platform"], route_class=StrictRoute, responses=EVERY)
TaskName = Annotated[str, Path(max_length=100, examples=["plan_path"])]


@routes.get("/tasks", response_model_exclude_unset=True)
async def list_tasks() -> TaskList:
    """Task families."""
    names = plugins.registered(plugins.TASKS)
    return TaskList(tasks=await asyncio.to_thread(lambda: [family(name) for name in names]))


@routes.get("/tasks/{name}", response_model_exclude_unset=True, responses=problems(404))
async def get_task(name: TaskName) -> TaskFamilyDocument:
    """One task family."""
    return await asyncio.to_thread(family, _known_task(name))


@routes.get("/tasks/{name}/spec", response_model=JobSpec, responses=problems(404))
async def get_starter(name: TaskName) -> JSONResponse:
    """A small spec to begin with."""
    # A response, not a JobSpec: that would show every default.
    return JSONResponse(await asyncio.to_thread(starter_spec, _known_task(name)))


@routes.get("/algorithms")
async def list_algorithms() -> AlgorithmList:
    """Algorithms."""
    return AlgorithmList(algorithms=await asyncio.to_thread(_algorithms))


@routes.get("/schemas/job-spec")
async def get_schema() -> dict[str, Any]:
    """JSON Schema of a job spec."""
    return JobSpec.model_json_schema()


@lru_cache(maxsize=256)
def family(name: str) -> TaskFamilyDocument:
    """What REST says of a registered task family; an installation does not change while it runs."""
    try:
        loaded = _installed(plugins.TASKS, name)
    except InvalidArgumentError as error:
        return TaskFamilyDocument(name=name, error=error.message)
    return TaskFamilyDocument(
        name=name,
        summary=(loaded.__doc__ or "").strip().partition("\n")[0],
        agents=list(loaded.agents),
        params=loaded.Params.model_json_schema(),
        local_terms={agent: dict(terms) for agent, terms in loaded.local_terms.items()},
        return_bound=loaded.return_bound,
    )


def _installed(group: str, name: str) -> Any:
    """A registered plug-in. Whoever asks is told of a fault in its code as strangers are."""
    with plugins.only_modules(()):
        return plugins.load(group, name)


def _known_task(name: str) -> str:
    known = plugins.registered(plugins.TASKS)
    if name not in known:
        raise NotFoundError(f"no task family '{name}'; there are: {', '.join(known)}")
    return name


@lru_cache(maxsize=1)
def _algorithms() -> list[AlgorithmDocument]:
    listed: list[AlgorithmDocument] = []
    for name in plugins.registered(plugins.ALGORITHMS):
        try:
            summary = (_installed(plugins.ALGORITHMS, name).__doc__ or "").strip()
        except InvalidArgumentError as error:
            summary = error.message
        listed.append(AlgorithmDocument(name=name, summary=summary.partition("\n")[0]))
    return listed
