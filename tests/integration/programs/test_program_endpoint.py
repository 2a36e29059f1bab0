"""The endpoint of programs, asked over a socket."""

import gc
import http.client
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

import pytest

from troupe_tasks.programs import connection
from troupe_tasks.programs.calls import ModelCall, ProgramRun, digest_of
from troupe_tasks.programs.connection import MAX_BODY_BYTES
from troupe_tasks.programs.endpoint import ProgramEndpoint
from troupe_tasks.programs.keys import KEY_SEAT


def test_body_when_it_is_too_large_then_the_client_hears_why_and_the_connection_lives() -> None:
    endpoint = ProgramEndpoint(keep_alive_s=5.0)
    run = ProgramRun(8, lambda asked, _: digest_of(asked))
    url = urlsplit(endpoint.open(run))
    client = http.client.HTTPConnection(str(url.hostname), url.port, timeout=30.0)
    try:
        client.request("POST", f"{url.path}/chat/completions", b" " * (MAX_BODY_BYTES + 1))
        answer = client.getresponse()
        assert answer.status == 413
        assert f"at most {MAX_BODY_BYTES} bytes" in answer.read().decode()
        assert "at most" in str(run.refusal)

        client.request("GET", f"{url.path}/models")
        assert client.getresponse().status == 200
    finally:
        client.close()
        endpoint.close()


def test_endpoint_when_it_closes_while_clients_connect_then_no_connection_is_left_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    for _ in range(20):
        endpoint = ProgramEndpoint(keep_alive_s=5.0)
        clients = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(3)]
        endpoint.close()
        for client in clients:
            client.close()
    gc.collect()
    assert not lost


@pytest.fixture
def endpoint() -> Iterator[ProgramEndpoint]:
    endpoint = ProgramEndpoint(keep_alive_s=5.0)
    yield endpoint
    endpoint.close()


def a_run(endpoint: ProgramEndpoint, seen: list[Mapping[str, str]]) -> ProgramRun:
    """A run whose calls are answered at once, and whose headers are noted."""

    def answered(call: ModelCall) -> str:
        seen.append(call.headers)
        return "yes"

    run = ProgramRun(8, lambda asked, _: digest_of(asked), answered)
    endpoint.open(run)
    return run


def ask(endpoint: ProgramEndpoint, headers: Mapping[str, str], path: str = "") -> tuple[int, str]:
    """Status and body of one call at the base URL that all runs share."""
    body = json.dumps({"model": "any", "messages": [{"role": "user", "content": "well?"}]})
    return post(endpoint, path or "/v1/chat/completions", body, headers)


def post(
    endpoint: ProgramEndpoint, path: str, body: str, headers: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Status and body of one request."""
    url = urlsplit(endpoint.shared_url("127.0.0.1"))
    client = http.client.HTTPConnection(str(url.hostname), url.port, timeout=30.0)
    try:
        client.request("POST", path, body, dict(headers or {}))
        answer = client.getresponse()
        return answer.status, answer.read().decode()
    finally:
        client.close()


@pytest.mark.parametrize("name", ["authorization", "x-api-key"])
def test_key_when_it_is_a_seats_then_the_call_is_that_seats_whatever_the_client_says(
    endpoint: ProgramEndpoint, name: str
) -> None:
    seen: list[Mapping[str, str]] = []
    keys = endpoint.keys.give(a_run(endpoint, seen), ["coder", "tester"])
    sign = "Bearer " if name == "authorization" else ""
    headers = {name: sign + keys.by_agent["tester"], KEY_SEAT: "coder"}
    assert ask(endpoint, headers)[0] == 200
    assert ask(endpoint, {name: sign + keys.run, KEY_SEAT: "coder"})[0] == 200
    assert [headers.get(KEY_SEAT) for headers in seen] == ["tester", None]


def test_key_when_it_is_wrong_or_missing_or_over_then_401_says_what_to_do(
    endpoint: ProgramEndpoint,
) -> None:
    run = a_run(endpoint, [])
    key = endpoint.keys.give(run, ["coder"]).by_agent["coder"]
    for headers in ({}, {"authorization": "Bearer sk-other"}, {"authorization": key}):
        status, body = ask(endpoint, headers)
        assert (status, "this key is not valid" in body) == (401, True)
    assert ask(endpoint, {"authorization": f"Bearer {key}"})[0] == 200
    endpoint.close_run(run)
    status, body = ask(endpoint, {"authorization": f"Bearer {key}"})
    assert (status, json.loads(body)["error"]["type"]) == (401, "authentication_error")


def test_key_when_it_is_used_to_end_the_run_then_it_opens_model_calls_alone(
    endpoint: ProgramEndpoint,
) -> None:
    run = a_run(endpoint, [])
    key = endpoint.keys.give(run, ["coder"]).by_agent["coder"]
    headers = {"authorization": f"Bearer {key}"}
    assert ask(endpoint, headers, "/v1/end")[0] == 404
    assert ask(endpoint, headers, f"/r/{key}/end")[0] == 409
    assert run.end is None


def test_connection_when_it_is_used_for_one_episode_after_the_other_then_each_hears_its_own(
    endpoint: ProgramEndpoint,
) -> None:
    url = urlsplit(endpoint.shared_url("127.0.0.1"))
    client = http.client.HTTPConnection(str(url.hostname), url.port, timeout=30.0)
    body = json.dumps({"model": "any", "messages": [{"role": "user", "content": "well?"}]})
    try:
        for _ in range(2):
            seen: list[Mapping[str, str]] = []
            run = a_run(endpoint, seen)
            key = endpoint.keys.give(run, ["coder"]).by_agent["coder"]
            client.request("POST", "/v1/chat/completions", body, {"x-api-key": key})
            assert client.getresponse().read()
            assert len(seen) == 1
            endpoint.close_run(run)
    finally:
        client.close()


def test_run_when_its_time_is_over_then_its_key_is_too_and_its_owner_is_told(
    endpoint: ProgramEndpoint,
) -> None:
    run, over = a_run(endpoint, []), threading.Event()
    key = endpoint.keys.give(run, ["coder"]).by_agent["coder"]
    run.expired = over.set
    run.expires_at = time.monotonic()
    assert over.wait(30.0)
    assert ask(endpoint, {"x-api-key": key})[0] == 401


def test_connection_when_it_shows_no_key_in_time_then_it_is_closed(
    endpoint: ProgramEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "REQUEST_S", 0.2)
    with socket.create_connection(("127.0.0.1", endpoint.port), 30.0) as client:
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: any\r\n")
        assert client.recv(1) == b""


def test_end_when_it_is_no_text_then_it_is_read_as_text_or_refused(
    endpoint: ProgramEndpoint,
) -> None:
    for body, answer in (('{"answer": 5}', "5"), ('{"answer": "\\ud800"}', "?"), ("{}", "")):
        run = a_run(endpoint, [])
        assert post(endpoint, f"/r/{run.name}/end", body)[0] == 200
        assert run.has_ended.wait(30.0)
        assert run.end is not None
        assert (run.end.answer, run.end.error) == (answer, None)
    for body in ("[]", "{", "[" * 100_000):
        run = a_run(endpoint, [])
        assert post(endpoint, f"/r/{run.name}/end", body)[0] == 400
        assert run.end is None


def test_connection_when_more_is_sent_than_is_answered_then_it_is_not_read(
    endpoint: ProgramEndpoint,
) -> None:
    run = ProgramRun(8, lambda asked, _: digest_of(asked))
    path = urlsplit(endpoint.open(run)).path
    body = json.dumps({"model": "any", "messages": [{"role": "user", "content": "well?"}]})
    head = f"POST {path}/chat/completions HTTP/1.1\r\nhost: any\r\ncontent-length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", endpoint.port), 30.0) as client:
        client.sendall(f"{head}\r\n{body}".encode())
        client.settimeout(3.0)
        with pytest.raises(TimeoutError):
            client.sendall(b"x" * (64 << 20))  # more than the kernels of both ends hold
    assert not run.has_ended.is_set()
