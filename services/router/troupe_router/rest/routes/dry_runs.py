"""The route of dry runs: a few tasks of a spec, played on an env service with scripted agents."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from troupe.clients.rest.models.dry_runs import DryRunDocument, DryRunQuery
from troupe.errors import UnavailableError
from troupe_router.rest.bodies import read_body
from troupe_router.rest.openapi import EVERY, OF_BODIES, problems
from troupe_router.rest.parts import Parts, WhoAsks
from troupe_router.rest.routes.jobs import SPEC_BODY, check_scope, parsed
from troupe_router.rest.strict_route import StrictRoute

routes = APIRouter(prefix="/v1/dry-runs", tags=["jobs"], route_class=StrictRoute, responses=EVERY)


@routes.post("", responses=problems(*OF_BODIES), openapi_extra={"requestBody": SPEC_BODY})
async def play(
    request: Request, parts: Parts, caller: WhoAsks, query: Annotated[DryRunQuery, Query()]
) -> DryRunDocument:
    """Play a few tasks of a spec with scripted agents; no model is needed and no job is made.

    Takes as long as an env service takes to start.
    """
    spec = await parsed(await read_body(request, parts.settings.max_body_bytes), request)
    check_scope(caller, spec)
    missing = await parts.commands.check_playable(spec)
    if parts.dry_runs is None:
        raise UnavailableError("this router plays no dry runs")
    episodes = await parts.dry_runs.play(spec, query.num_tasks)
    notes = [f"{issue.pointer}: {issue.message}" for issue in missing]
    return DryRunDocument(episodes=episodes, notes=notes)
