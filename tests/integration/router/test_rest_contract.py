"""The application keeps to its own OpenAPI: no 500, no answer that is not documented.

Schemathesis makes requests from the document, sound and broken ones, and checks every answer's
status, media type and schema.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import booleans
from pydantic_settings import BaseSettings, SettingsConfigDict
from rest_world import episode_line, rest_world, spec_document, write_lines
from schemathesis import GenerationMode, checks

from troupe.runtime.streams.redis import connect


class RestSettings(BaseSettings):
    """``TROUPE_FUZZ_*``: what `make fuzz` asks for."""

    model_config = SettingsConfigDict(env_prefix="TROUPE_FUZZ_", extra="ignore")

    rest_examples: int = 0
    """Of sound requests and of broken ones, for each operation; 0: a few, always the same."""


ASKED = RestSettings().rest_examples
KNOWN = {"job_id": "demo-1", "episode_id": "train-00004-00003", "component": "trainer-0"}
CHECKED = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


class Served:
    """A router's REST in a thread, with one job that ended and left files."""

    def __init__(self, redis_url: str, folder: Path) -> None:
        self._redis_url = redis_url
        self._folder = folder
        self.url = ""
        self.document: dict[str, Any] = {}
        self._is_up = threading.Event()
        self._server: uvicorn.Server | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> "Served":
        self._thread.start()
        assert self._is_up.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.should_exit = True
        self._thread.join(20)

    async def _serve(self) -> None:
        redis = await connect(self._redis_url, connect_for_s=10)
        await redis.flushall()
        async with rest_world(redis, self._folder, max_body_bytes=20_000) as world:
            answer = await world.http.post("/v1/jobs", json=spec_document(self._folder))
            assert answer.status_code == 201
            await world.store.transition("demo-1", "launching")
            await world.store.transition("demo-1", "failed", reason="for the test")
            run_dir = world.settings.runs_dir / "demo-1"
            lines = [
                episode_line("demo-1", "train-00004", i, rewards=(1.0, 0.5)) for i in range(20)
            ]
            write_lines(run_dir / "episodes.jsonl", lines)
            write_lines(
                run_dir / "metrics.jsonl", [{"kind": "train", "step": 0, "wall_s": 1.0, "x": None}]
            )
            (run_dir / "logs").mkdir()
            (run_dir / "logs" / "trainer-0.log").write_text("hello\n")
            config = uvicorn.Config(world.app, port=0, log_config=None, lifespan="off")
            self._server = uvicorn.Server(config)
            serving = asyncio.create_task(self._server.serve())
            async with asyncio.timeout(30):
                while not self._server.started:  # noqa: ASYNC110 (uvicorn has no event for it)
                    await asyncio.sleep(0.01)
            port = self._server.servers[0].sockets[0].getsockname()[1]
            self.url = f"http://127.0.0.1:{port}"
            self.document = (await world.http.get("/openapi.json")).json()
            self._is_up.set()
            await serving
        await redis.aclose()


@pytest.fixture(scope="module")
def served(valkey_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(valkey_server.url, tmp_path_factory.mktemp("rest")) as found:
        yield found


def operations(document: dict[str, Any]) -> list[str]:
    return sorted(
        f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item
    )


def test_openapi_names_every_route_with_an_example_of_each_main_answer(served: Served) -> None:
    found = operations(served.document)
    assert len(found) >= 28
    schemas = served.document["components"]["schemas"]
    for path, shape in {
        "/v1/jobs/{job_id}": "JobDocument",
        "/v1/jobs/{job_id}/metrics": "MetricsDocument",
        "/v1/session": "SessionDocument",
    }.items():
        content = served.document["paths"][path]["get"]["responses"]["200"]["content"]
        schema = content["application/json"]["schema"]
        assert schema == {"$ref": f"#/components/schemas/{shape}"}
    for shape in ("JobDocument", "EventDocument", "MetricsDocument", "EpisodeRowDocument"):
        example = schemas[shape]["example"]
        assert example
        assert example.keys() <= schemas[shape]["properties"].keys()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(3600 if ASKED else 300)
def test_no_request_is_answered_with_500_or_in_an_undocumented_way(served: Served) -> None:
    schema = schemathesis.openapi.from_dict(served.document)
    for result in schema.get_all_operations():
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            with contextlib.suppress(Unsatisfiable, SkipTest):
                _try(result.ok(), served.url, mode)


def _try(operation: Any, url: str, mode: GenerationMode) -> None:
    """A bounded number of requests to one operation; raises schemathesis's failures."""

    @settings(
        max_examples=ASKED or 3,
        deadline=None,
        database=None,
        derandomize=not ASKED,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), is_known=booleans())
    def attempt(case: Any, is_known: bool) -> None:
        if is_known:
            names = KNOWN.keys() & (case.path_parameters or {}).keys()
            case.path_parameters.update({name: KNOWN[name] for name in names})
        if case.query:
            case.query.pop("wait_s", None)
        case.validate_response(case.call(base_url=url, timeout=20), checks=CHECKED)

    attempt()
