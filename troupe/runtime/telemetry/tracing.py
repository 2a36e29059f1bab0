"""OpenTelemetry traces: off unless TROUPE_TELEMETRY_TRACES is true, and then one trace a round.

The ids of a round's trace derive from its name, so that the episode workers, the trainer and a
router that was restarted in between all write into one trace without passing anything on; gRPC
carries the rest of the way. OpenTelemetry's settings say where spans go (OTEL_EXPORTER_OTLP_*).
Without the packages (extra ``troupe[tracing]``), or off, a span costs one comparison.
"""

import hashlib
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from troupe.errors import InvalidArgumentError

Value = str | int | float | bool

_provider: Any = None
_tracer: Any = None
_UNTRACED = ("SendHeartbeat", "GetStatus", "Check", "Watch")
"""Calls that occur every second: they are not traced."""
_forced: ContextVar[tuple[int, int] | None] = ContextVar("forced_ids", default=None)


class TelemetrySettings(BaseSettings):
    """TROUPE_TELEMETRY_*: the same for every service of a platform."""

    model_config = SettingsConfigDict(env_prefix="TROUPE_TELEMETRY_", use_attribute_docstrings=True)

    traces: bool = False
    """Write OpenTelemetry traces to OTEL_EXPORTER_OTLP_ENDPOINT."""
    traces_ratio: float = Field(default=1.0, ge=0.0, le=1.0)
    """Share of the rounds that are traced; a round is traced wholly or not at all."""


def configure_tracing(service: str, settings: TelemetrySettings | None = None) -> bool:
    """Start writing traces for this process if the settings say so; returns whether they do.

    Raises:
        InvalidArgumentError: traces are wanted and the packages are not installed.
    """
    global _provider, _tracer  # one of each a process, as OpenTelemetry itself has it
    settings = settings or TelemetrySettings()
    if not settings.traces:
        return False
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    except ImportError as error:
        raise InvalidArgumentError(
            f"TROUPE_TELEMETRY_TRACES is on and {error.name} is not installed; "
            "install troupe[tracing], or turn traces off"
        ) from error
    sampler = ParentBased(
        TraceIdRatioBased(settings.traces_ratio),
        remote_parent_sampled=TraceIdRatioBased(settings.traces_ratio),
    )
    _provider = TracerProvider(
        sampler=sampler,
        resource=Resource.create({"service.name": f"troupe-{service}"}),
        id_generator=_ids(),
        shutdown_on_exit=True,
    )
    exporter = BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=1000)
    _provider.add_span_processor(exporter)
    _tracer = _provider.get_tracer("troupe")
    return True


def flush_tracing() -> None:
    """Send the spans that wait, as an orderly exit does; nothing is traced afterwards."""
    if _provider is not None:
        _provider.shutdown()


def span(name: str, **attributes: Value) -> AbstractContextManager[Any]:
    """A span below the current one; a no-op while traces are off."""
    if _tracer is None:
        return nullcontext()
    return _tracer.start_as_current_span(name, attributes=attributes)


def round_span(
    name: str, job_id: str, round_id: str, **attributes: Value
) -> AbstractContextManager[Any]:
    """A span directly below the root of a round's trace, in whatever process it happens."""
    if _tracer is None:
        return nullcontext()
    return _below_root(name, job_id, round_id, attributes)


def job_span(job_id: str) -> None:
    """Write the span of a submission; every round of the job links to it, and it to the request."""
    if _tracer is None:
        return
    token = _forced.set(_ids_of(job_id))
    try:
        from opentelemetry.context import Context
        from opentelemetry.trace import Link, get_current_span

        request_context = get_current_span().get_span_context()
        links = [Link(request_context)] if request_context.is_valid else []
        span = _tracer.start_span(
            "job", context=Context(), links=links, attributes={"troupe.job_id": job_id}
        )
        span.end()
    finally:
        _forced.reset(token)


def root_span(job_id: str, round_id: str, started_at: float, ended_at: float) -> None:
    """Write the root of a round's trace, when the round is over. Instants are Unix seconds."""
    if _tracer is None:
        return
    token = _forced.set(_round_ids(job_id, round_id))
    try:
        from opentelemetry.context import Context
        from opentelemetry.trace import Link

        span = _tracer.start_span(
            round_id.partition("-")[0],
            context=Context(),
            links=[Link(_remote_context(*_ids_of(job_id)))],
            start_time=int(started_at * 1e9),
            attributes={"troupe.job_id": job_id, "troupe.round_id": round_id},
        )
        span.end(end_time=int(ended_at * 1e9))
    finally:
        _forced.reset(token)


def client_interceptors() -> Sequence[Any]:
    """For gRPC channels: pass the current span on."""
    if _tracer is None:
        return ()
    from opentelemetry.instrumentation.grpc import aio_client_interceptors, filters

    is_traced = filters.negate(filters.any_of(*map(filters.method_name, _UNTRACED)))
    return aio_client_interceptors(tracer_provider=_provider, filter_=is_traced)


def server_interceptors() -> Sequence[Any]:
    """For gRPC servers: a span for each call, below the caller's."""
    if _tracer is None:
        return ()
    from opentelemetry.instrumentation.grpc import aio_server_interceptor, filters

    is_traced = filters.negate(filters.any_of(*map(filters.method_name, _UNTRACED)))
    return (aio_server_interceptor(tracer_provider=_provider, filter_=is_traced),)


def traced_app(app: Any) -> Any:
    """``app`` (ASGI) with a span for each request."""
    if _tracer is None:
        return app
    from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware

    return OpenTelemetryMiddleware(
        app, tracer_provider=_provider, excluded_urls="livez,readyz,metrics"
    )


def trace_ids() -> dict[str, str]:
    """``trace_id`` and ``span_id`` of the current span for a log line; empty outside of one."""
    if _tracer is None:
        return {}
    from opentelemetry.trace import get_current_span

    context = get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


@contextmanager
def _below_root(
    name: str, job_id: str, round_id: str, attributes: dict[str, Value]
) -> Generator[Any]:
    from opentelemetry.trace import NonRecordingSpan, set_span_in_context

    root = _remote_context(*_round_ids(job_id, round_id))
    context = set_span_in_context(NonRecordingSpan(root))
    span_attributes = {"troupe.job_id": job_id, "troupe.round_id": round_id, **attributes}
    with _tracer.start_as_current_span(name, context=context, attributes=span_attributes) as span:
        yield span


def _remote_context(trace_id: int, span_id: int) -> Any:
    """The context of a span that this or another process has written or will write."""
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(1))


def _round_ids(job_id: str, round_id: str) -> tuple[int, int]:
    """Trace id and span id of a round's root."""
    return _ids_of(f"{job_id}/{round_id}")


def _ids_of(name: str) -> tuple[int, int]:
    """Trace id (128 bits) and root span id (64 bits) that ``name`` stands for, never zero."""
    digest = hashlib.blake2b(name.encode(), digest_size=24).digest()
    return int.from_bytes(digest[:16]) or 1, int.from_bytes(digest[16:]) or 1


def _ids() -> Any:
    """Random ids, but those of a round's root when it is written."""
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class RoundIds(RandomIdGenerator):
        def generate_trace_id(self) -> int:
            forced = _forced.get()
            return forced[0] if forced else super().generate_trace_id()

        def generate_span_id(self) -> int:
            forced = _forced.get()
            return forced[1] if forced else super().generate_span_id()

    return RoundIds()
