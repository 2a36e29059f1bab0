"""A process whose threads hang in a task's code ends, with its exit status and what it logged."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event, Thread

import grpc
import pytest

from troupe.api.env.v1 import env_pb2 as pb
from troupe.api.env.v1.env_pb2_grpc import EnvServiceStub

TASK = """
import threading
from troupe.tasks.simple import SimpleTask

class Hangs(SimpleTask):
    '''A task whose code never returns.'''
    name = "hangs"
    agents = ("solver",)
    def draw(self, rng): return {"q": rng.random()}
    def observe(self, state, agent): threading.Event().wait()
    def step(self, state, agent, action): threading.Event().wait()
"""
ENDS_S = 40.0
"""Far above the seconds that it takes: machines are shared."""


@contextmanager
def env_service(tmp_path: Path, address: str, threads: int) -> Generator["subprocess.Popen[str]"]:
    (tmp_path / "hanging_task.py").write_text(TASK)
    settings = {
        "ROUTER": "127.0.0.1:1",
        "GRPC_ADDRESS": address,
        "ADMIN_ADDRESS": "127.0.0.1:0",
        "THREADS": str(threads),
        "CALL_TIMEOUT_S": "1",
        "HUNG_THREADS_S": "0.5",
        "GRACE_S": "1",
    }
    own = {f"TROUPE_ENV_{name}": value for name, value in settings.items()}
    process = subprocess.Popen(
        [sys.executable, "-m", "troupe_env"],
        env={**os.environ, "PYTHONPATH": str(tmp_path), **own},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def hang(address: str) -> None:
    """Have one thread of the service hang."""
    request = pb.ResetRequest(
        environment=pb.EnvironmentRef(name="hanging_task:Hangs", params_json="{}"),
        task=pb.TaskRef(split="train", index=0),
        observe_agents=["solver"],
    )
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(ENDS_S)
        with pytest.raises(grpc.RpcError) as raised:
            EnvServiceStub(channel).Reset(request)  # without a deadline: CALL_TIMEOUT_S
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_service_when_every_thread_hangs_then_the_process_ends_with_status_1(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    address = f"127.0.0.1:{free_port()}"
    with env_service(tmp_path, address, threads=1) as process:
        hang(address)
        _, said = process.communicate(timeout=ENDS_S)
    assert process.returncode == 1
    assert "All 1 threads judge" in said
    assert "service.threads_hang" in said


def test_service_when_told_to_end_with_a_hung_thread_then_the_process_ends_with_status_0(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    address = f"127.0.0.1:{free_port()}"
    with env_service(tmp_path, address, threads=2) as process:
        hang(address)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=ENDS_S)
    assert process.returncode == 0
    assert "service.closed" in said


def test_service_when_no_thread_hangs_then_it_ends_by_itself(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    address = f"127.0.0.1:{free_port()}"
    with env_service(tmp_path, address, threads=1) as process:
        with grpc.insecure_channel(address) as channel:
            grpc.channel_ready_future(channel).result(ENDS_S)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=ENDS_S)
    assert process.returncode == 0
    assert "service.threads_hang" not in said


def test_exit_when_forced_then_spans_and_output_are_written_first(
    free_port: Callable[[], int],
) -> None:
    pytest.importorskip("opentelemetry.sdk")
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    has_come = Event()

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            has_come.set()
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    program = """
        import threading
        from concurrent.futures import ThreadPoolExecutor
        from troupe.runtime.serving.forced_exit import exit_within
        from troupe.runtime.telemetry.tracing import configure_tracing, span
        configure_tracing("env")
        ThreadPoolExecutor(1).submit(threading.Event().wait)
        with span("judging"):
            print("judged")
        exit_within(0.0, 7)
    """
    server = HTTPServer(("127.0.0.1", free_port()), Collector)
    Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    traced = {"TROUPE_TELEMETRY_TRACES": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    try:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            env={**os.environ, **traced},
            capture_output=True,
            text=True,
            timeout=ENDS_S,
        )
        assert done.returncode == 7, done.stderr
        assert done.stdout.startswith("judged\n")
        assert has_come.is_set()
    finally:
        server.shutdown()
        server.server_close()
