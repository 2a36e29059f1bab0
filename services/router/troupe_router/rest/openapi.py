"""What OpenAPI says of answers: models, examples, and the problems that a route may give.

Owns the documentation of answers. Never answers.
"""

from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel

from troupe.clients.rest.models import Problem
from troupe_router.rest.problems import MEDIA_TYPE

JobId = Annotated[
    str, Path(description="Id of the job, as `POST /v1/jobs` gave it.", examples=["demo-1"])
]
Responses = dict[int | str, dict[str, Any]]

_WORDS = {
    400: "The request is malformed",
    401: "No API key, or one that is not known",
    403: "The API key does not allow this",
    404: "There is no such thing",
    405: "The path has no such method",
    409: "The job's state, or an earlier request, forbids it",
    413: "The body is too large",
    415: "The body is neither JSON nor YAML",
    422: "The request is not valid; `errors` has a pointer for each fault",
    429: "Too many requests, or too many followers; `Retry-After` says when",
    503: "Redis does not answer; try again",
}

SPEC: dict[str, Any] = {
    "name": "demo",
    "steps": 40,
    "tasks_per_step": 32,
    "task": {"name": "plan_path", "params": {"size": 6}},
    "workflow": {"order": ["tool", "planner"], "max_turns": 4},
    "agents": {"tool": {"policy": "shared"}, "planner": {"policy": "shared"}},
    "policies": {"shared": {"model": "Qwen/Qwen3-0.6B"}},
}
JOB: dict[str, Any] = {
    "job_id": "demo-1",
    "name": "demo",
    "state": "running",
    "reason": "",
    "error": None,
    "created_at": 1767225600.0,
    "started_at": 1767225601.5,
    "ended_at": None,
    "run_dir": "/srv/runs/demo-1",
    "life": 1,
    "step": 3,
    "steps": 40,
    "priority": 0,
    "owner": "ci",
    "replicas": 1,
    "queue_position": None,
    "spec": SPEC,
}
EVENTS: dict[str, Any] = {
    "events": [
        {
            "id": "1767225600000-0",
            "type": "job.state",
            "occurred_at": 1767225600.0,
            "source": "router",
            "data": {"state": "queued", "reason": ""},
        }
    ],
    "next": "1767225600000-0",
}
METRICS: dict[str, Any] = {
    "job_id": "demo-1",
    "train": {"steps": [0, 1], "series": {"reward_mean": [0.31, 0.35]}},
    "eval": {"steps": [0], "series": {"success": [0.14]}},
    "names": ["reward_mean", "success"],
    "unknown": [],
    "fields": [
        {
            "table": "train",
            "name": "reward_mean",
            "source": "play",
            "unit": "number",
            "description": "Mean reward of the candidates that were played.",
            "over_policies": "measured once, of the whole step",
        }
    ],
    "panels": [],
}
EPISODE_ROW: dict[str, Any] = {
    "id": "train-00004-00017",
    "episode_id": "demo-1/train-00004/00017",
    "round_id": "train-00004",
    "kind": "train",
    "step": 4,
    "task_id": "plan_path/train/145",
    "is_success": False,
    "num_turns": 4,
    "team_return": 0.5,
    "num_tokens": 612,
    "wall_s": 1.9,
    "dropped_reason": None,
    "failure": "unsolved",
    "num_groups": 8,
    "num_candidates": 64,
    "agents": {
        "tool": {
            "policy": "shared",
            "num_candidates": 32,
            "reward_mean": 0.4,
            "reward_min": 0.0,
            "reward_max": 1.1,
        }
    },
}
EPISODES: dict[str, Any] = {
    "episodes": [EPISODE_ROW],
    "next_cursor": None,
    "total": 1,
    "is_complete": True,
}


def shows(
    model: type[BaseModel], example: Any = None, *, status: int = 200, stream: bool = False
) -> Responses:
    """The answer of a route that went well; ``stream`` adds server-sent events to JSON."""
    content: dict[str, Any] = {"application/json": {} if example is None else {"example": example}}
    if stream:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    found: Responses = {status: {"model": model, "description": "Done", "content": content}}
    if status == 200:
        found[304] = {"description": "The client has it already (If-None-Match)"}
    return found


def takes(model: type[BaseModel]) -> dict[str, Any]:
    """A JSON request body, which the route reads by itself within a bound."""
    schema = model.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def gives(media_type: str, description: str) -> Responses:
    """An answer that is not JSON."""
    schema = {"type": "string", "format": "binary"}
    return {200: {"description": description, "content": {media_type: {"schema": schema}}}}


def faults(*statuses: int) -> Responses:
    """Problems of a route, with those that every route may give."""
    return {
        status: {
            "description": _WORDS[status],
            "model": Problem,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        # A route that reads a body may find it too large, or of another kind.
        for status in sorted({401, 403, 429, 503, *statuses, *({415} if 413 in statuses else ())})
    }


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """``document`` with the ways to send a key, and problems only as problem+json."""
    document.setdefault("components", {})["securitySchemes"] = {
        "key": {
            "type": "http",
            "scheme": "bearer",
            "description": "For routers with keys.",
        },
        "cookie": {"type": "apiKey", "in": "cookie", "name": "troupe_key"},
    }
    document["security"] = [{}, {"key": []}, {"cookie": []}]
    for path in document["paths"].values():
        for operation in path.values():
            for status, response in operation.get("responses", {}).items():
                if not status.startswith("2"):
                    response.get("content", {}).pop("application/json", None)
    return document
