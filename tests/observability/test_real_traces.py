"""Traces of a real run, received as OTLP over HTTP."""

import threading
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from platform_world import Platform, start_platform

pytestmark = [pytest.mark.observability, pytest.mark.timeout(300)]


class Receiver:
    """An OTLP/HTTP collector that keeps (service, span) pairs."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Any]] = []
        keep = self.spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
                    ExportTraceServiceRequest,
                )

                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    import gzip

                    body = gzip.decompress(body)
                request: Any = ExportTraceServiceRequest.FromString(body)
                for resource in request.resource_spans:
                    names = {a.key: a.value.string_value for a in resource.resource.attributes}
                    for scope in resource.scope_spans:
                        keep.extend((names["service.name"], span) for span in scope.spans)
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                return None

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    pytest.importorskip("opentelemetry.proto")
    found = Receiver()
    yield found
    found.close()


@pytest.fixture(scope="module")
def traced_platform(
    receiver: Receiver, tmp_path_factory: pytest.TempPathFactory, free_port: Any
) -> Iterator[Platform]:
    more = {
        "TROUPE_TELEMETRY_TRACES": "true",
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
    }
    yield from start_platform(tmp_path_factory.mktemp("traced"), free_port, more)


def test_step_when_traced_then_is_one_trace_from_the_router_to_engine_and_trainer(
    traced_platform: Platform, receiver: Receiver, spec: dict[str, Any]
) -> None:
    with traced_platform.client() as client:
        job = client.submit({**spec, "name": "traced", "steps": 2, "eval": {"num_tasks": 0}})
        for _ in client.events(job.job_id):
            pass
        assert client.job(job.job_id).state == "succeeded"
    assert traced_platform.troupe("down").returncode == 0
    by_trace: dict[bytes, list[tuple[str, Any]]] = defaultdict(list)
    for service, span in receiver.spans:
        by_trace[span.trace_id].append((service, span))
    [job_span] = [span for service, span in receiver.spans if span.name == "job"]
    named = {span.span_id: span.name for _, span in receiver.spans}
    assert [named[link.span_id][:4] for link in job_span.links] == ["POST"], "from REST to the job"
    roots = [
        (trace, span)
        for trace, spans in by_trace.items()
        for service, span in spans
        if span.name == "train" and service == "troupe-router" and not span.parent_span_id
    ]
    assert len(roots) == 2, "one root for each step"
    for trace, root in roots:
        names = defaultdict(list)
        for service, span in by_trace[trace]:
            names[service].append(span)
        assert {s.name for s in names["troupe-trainer"]} >= {"trainer.learn", "trainer.publish"}
        assert "engine.generate" in {s.name for s in names["troupe-rollout"]}
        assert any("EnvService" in s.name for s in names["troupe-env"])
        episodes = [s for s in names["troupe-router"] if s.name == "episode"]
        assert len(episodes) == spec["tasks_per_step"]
        assert {s.parent_span_id for s in episodes} == {root.span_id}
        assert root.end_time_unix_nano > root.start_time_unix_nano
        told = [(link.trace_id, link.span_id) for link in root.links]
        assert told == [(job_span.trace_id, job_span.span_id)], "from the job to its rounds"
        ids = {s.span_id for _, s in by_trace[trace]}
        parents = {s.name: s.parent_span_id for _, s in by_trace[trace] if s.parent_span_id}
        assert [name for name, parent in parents.items() if parent not in ids] == []
