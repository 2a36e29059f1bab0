"""The REST client against a router that is a function: shapes, errors, reconnects."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from troupe.clients.rest import EventDocument, RestClient
from troupe.errors import (
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    TroupeError,
    UnavailableError,
)
from troupe.spec import SpecInvalidError, load_spec, parse_spec

JOB = {"job_id": "demo-1", "name": "demo", "state": "running", "step": 1, "steps": 3}


def client(handler: Callable[[httpx.Request], httpx.Response], **more: float) -> RestClient:
    return RestClient("http://router", transport=httpx.MockTransport(handler), **more)


def sse(*events: tuple[str, str, dict[str, object]]) -> httpx.Response:
    text = ": ping\n\n" + "".join(
        f"id: {place}\nevent: {kind}\n"
        f"data: {json.dumps({'type': kind, 'occurred_at': 1.0, 'data': data})}\n\n"
        for place, kind, data in events
    )
    return httpx.Response(200, text=text, headers={"content-type": "text/event-stream"})


def test_submit_when_accepted_then_carries_a_key_and_gives_the_job() -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(201, json=JOB)

    with client(handler) as rest:
        assert rest.submit({"name": "demo"}).job_id == "demo-1"
    assert seen[0].headers["idempotency-key"]
    assert json.loads(seen[0].content) == {"name": "demo"}


def test_client_when_given_a_job_spec_then_sends_its_document_without_a_chosen_dtype() -> None:
    spec = load_spec(Path(__file__).parents[3] / "examples" / "plan_path_6x6.yaml")
    bodies: list[dict[str, Any]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(200, json=JOB)

    with client(handler) as rest:
        rest.submit(spec)
        rest.dry_run(spec)
        rest.resume("demo-1", spec)
    assert [parse_spec(body) for body in bodies] == [spec] * 3
    assert not any("dtype" in policy for body in bodies for policy in body["policies"].values())


def test_submit_when_the_spec_is_refused_then_every_pointer_comes_back() -> None:
    problem = {
        "detail": "job spec is invalid",
        "reason": "SPEC_INVALID",
        "errors": [{"pointer": "/stepz", "message": "unknown field"}],
    }
    with (
        client(lambda _: httpx.Response(422, json=problem)) as rest,
        pytest.raises(SpecInvalidError) as caught,
    ):
        rest.submit({})
    assert [issue.pointer for issue in caught.value.issues] == ["/stepz"]


@pytest.mark.parametrize(
    ("status", "body", "cls"),
    [
        (404, {"reason": "NOT_FOUND", "detail": "no job"}, NotFoundError),
        (409, {"detail": "it is over"}, ConflictError),
        (500, {"detail": "boom"}, TroupeError),
    ],
)
def test_job_when_the_answer_is_a_problem_then_is_its_error(
    status: int, body: dict[str, str], cls: type[TroupeError]
) -> None:
    with (
        client(lambda _: httpx.Response(status, json=body)) as rest,
        pytest.raises(cls, match=body["detail"]),
    ):
        rest.job("demo-1")


def test_episodes_when_a_parameter_is_refused_then_is_no_error_of_a_spec() -> None:
    fault = {"pointer": "/query/order", "message": "Input should be 'newest'"}
    document = {"reason": "INVALID_ARGUMENT", "detail": "not valid", "errors": [fault]}
    with (
        client(lambda _: httpx.Response(422, json=document)) as rest,
        pytest.raises(InvalidArgumentError, match=r"^/query/order: Input should be") as caught,
    ):
        rest.episodes("demo-1", order="up")
    assert not isinstance(caught.value, SpecInvalidError)


def test_job_when_a_stranger_answers_then_says_so() -> None:
    with (
        client(lambda _: httpx.Response(200, text="<html>")) as rest,
        pytest.raises(TroupeError, match="not a Troupe router"),
    ):
        rest.job("demo-1")


@pytest.mark.parametrize("ask", ["job", "image", "download", "events"])
def test_answer_when_a_proxy_redirects_then_says_where_to_and_writes_nothing(
    tmp_path: Path, ask: str
) -> None:
    target = tmp_path / "policy.tar"
    location = {"Location": "https://login.example.com/start?rd=secret"}
    with client(lambda _: httpx.Response(302, json={}, headers=location)) as rest:
        calls: dict[str, Callable[[], object]] = {
            "job": lambda: rest.job("demo-1"),
            "image": lambda: rest.episode_image("demo-1", "0" * 64),
            "download": lambda: rest.download("demo-1", "best", "shared", target),
            "events": lambda: list(rest.events("demo-1")),
        }
        with pytest.raises(TroupeError, match=r"redirects to https://login.example.com/start\)"):
            calls[ask]()
    assert list(tmp_path.iterdir()) == []


def test_download_when_the_answer_is_of_another_success_then_nothing_is_written(
    tmp_path: Path,
) -> None:
    with client(lambda _: httpx.Response(204)) as rest, pytest.raises(TroupeError, match="204"):
        rest.download("demo-1", "best", "shared", tmp_path / "policy.tar")
    assert list(tmp_path.iterdir()) == []


def refused_once(answer: httpx.Response) -> Callable[[httpx.Request], httpx.Response]:
    """A router that is not up yet for the first request."""
    came: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        came.append(request)
        if len(came) == 1:
            raise httpx.ConnectError("refused", request=request)
        return answer

    return handler


def test_job_when_the_router_restarts_then_is_asked_again() -> None:
    with client(refused_once(httpx.Response(200, json=JOB)), retry_for_s=10.0) as rest:
        assert rest.job("demo-1").step == 1


def test_job_when_nobody_answers_then_names_address_and_remedy() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with (
        client(handler) as rest,
        pytest.raises(UnavailableError, match=r"http://router.*troupe up"),
    ):
        rest.job("demo-1")


CALLS: dict[str, Callable[[RestClient], object]] = {
    "delete": lambda rest: rest.delete("demo-1", files=True),
    "prune": lambda rest: rest.prune(max_jobs=1),
    "import": lambda rest: rest.import_jobs(),
}


@pytest.mark.parametrize(("limit", "pages"), [(3, [3]), (1002, [1000, 2]), (5000, [1000, 1000])])
def test_jobs_when_more_are_wanted_than_a_page_holds_then_further_pages_follow(
    limit: int, pages: list[int]
) -> None:
    asked: list[int] = []

    def handler(request: httpx.Request) -> httpx.Response:
        params = request.url.params
        asked.append(int(params["limit"]))
        begin = int(params.get("cursor", 0))
        end = min(begin + asked[-1], 1003)
        jobs = [{**JOB, "job_id": f"demo-{number}"} for number in range(begin, end)]
        return httpx.Response(200, json={"jobs": jobs, "next_cursor": str(end) * (end < 1003)})

    with client(handler) as rest:
        ids = [job.job_id for job in rest.jobs(limit=limit)]
    assert ids == [f"demo-{number}" for number in range(min(limit, 1003))]
    assert asked == pages


@pytest.mark.parametrize("call", ["delete", "prune"])
@pytest.mark.parametrize("status", [0, 503])
def test_call_when_it_may_have_been_carried_out_then_is_not_sent_again(
    call: str, status: int
) -> None:
    calls = 0

    def handler(request: httpx.Request) -> httpx.Response:
        nonlocal calls
        calls += 1
        if status and calls == 1:
            return httpx.Response(status, json={"detail": "it did not answer within a time"})
        if calls == 1:
            raise httpx.ReadTimeout("", request=request)
        return httpx.Response(404, json={"detail": "no job"})

    with (
        client(handler, retry_for_s=10.0) as rest,
        pytest.raises(UnavailableError, match="did not answer within"),
    ):
        CALLS[call](rest)
    assert calls == 1


def test_delete_when_it_cannot_have_arrived_then_is_sent_again() -> None:
    with client(refused_once(httpx.Response(204)), retry_for_s=10.0) as rest:
        rest.delete("demo-1")


def test_delete_when_the_connection_breaks_then_says_that_it_may_be_done() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("reset", request=request)

    with (
        client(handler, retry_for_s=10.0) as rest,
        pytest.raises(UnavailableError, match="may have been carried out"),
    ):
        rest.delete("demo-1")


@pytest.mark.parametrize("call", CALLS)
def test_call_when_it_works_on_run_folders_then_the_client_waits_long_for_its_answer_alone(
    call: str,
) -> None:
    limits: list[dict[str, float]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        limits.append(request.extensions["timeout"])
        return httpx.Response(404, json={"detail": "no job"})

    with client(handler) as rest, pytest.raises(NotFoundError):
        CALLS[call](rest)
    assert (limits[0]["connect"], limits[0]["read"]) == (20.0, 600.0)


def test_job_when_a_busy_router_is_too_late_then_says_how_long_it_had() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("", request=request)

    with (
        client(handler, timeout_s=3.0) as rest,
        pytest.raises(UnavailableError, match=r"did not answer within 3 s.*timeout_s") as caught,
    ):
        rest.job("demo-1")
    assert "troupe up" not in caught.value.message


def test_events_when_the_connection_breaks_then_go_on_after_the_last_seen() -> None:
    places: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/events"):
            state = "succeeded" if len(places) > 1 else "running"
            return httpx.Response(200, json={**JOB, "state": state})
        places.append(request.url.params["after"])
        if len(places) == 1:
            return sse(("1-0", "job.state", {"state": "running"}))
        return sse(("2-0", "job.state", {"state": "succeeded"}))

    with client(handler, retry_for_s=10.0) as rest:
        ids = [event.id for event in rest.events("demo-1")]
    assert ids == ["1-0", "2-0"]
    assert places == ["0", "1-0"]


@pytest.mark.parametrize("last", ["succeeded", "stopping"])
def test_events_when_a_router_goes_down_before_the_job_ends_then_the_last_come_from_the_next(
    last: str,
) -> None:
    places: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/events"):
            return httpx.Response(200, json={**JOB, "state": "succeeded"})
        places.append(request.url.params["after"])
        news = {"0": ("1-0", "running"), "1-0": ("2-0", last)}
        found = [news[places[-1]]] if places[-1] in news else []
        return sse(*((place, "job.state", {"state": state}) for place, state in found))

    with client(handler) as rest:
        assert [event.data["state"] for event in rest.events("demo-1")] == ["running", last]
    # Nothing follows the event that says so; else one more look finds that nothing came.
    assert places == ["0", "1-0", "2-0"][: 2 if last == "succeeded" else 3]


@pytest.mark.parametrize(
    ("timeout_s", "wait_s", "read_s"),
    [(20.0, None, 20.0), (20.0, 1.0, 20.0), (20.0, 30.0, 40.0), (2.0, None, 2.0), (2.0, 1.0, 11.0)],
)
def test_pages_when_the_router_is_to_wait_then_the_client_waits_longer(
    timeout_s: float, wait_s: float | None, read_s: float
) -> None:
    seen: list[float] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request.extensions["timeout"]["read"])
        return httpx.Response(200, json={"events": [], "next": "0"})

    with client(handler, timeout_s=timeout_s) as rest:
        rest.events_page("demo-1", wait_s=wait_s)
    assert seen == [read_s]


def streamed(text: str) -> list[EventDocument]:
    """The events of a stream of ``text`` whose job is over."""

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/events"):
            news = text if request.url.params["after"] == "0" else ""
            return httpx.Response(200, text=news, headers={"content-type": "text/event-stream"})
        return httpx.Response(200, json={**JOB, "state": "succeeded"})

    with client(handler) as rest:
        return list(rest.events("demo-1"))


def test_events_when_one_has_two_data_lines_then_they_are_joined() -> None:
    [event] = streamed('id: 7-0\nevent: x\ndata: {"type": "x",\ndata: "data": {"a": 1}}\n\n')
    assert (event.id, event.type, event.data) == ("7-0", "x", {"a": 1})


def test_events_when_a_text_has_unicodes_own_line_ends_then_it_stays_whole() -> None:
    [event] = streamed('id: 7-0\ndata: {"type": "x", "data": {"a": "1\u2028\x852"}}\r\n\r\n')
    assert event.data == {"a": "1\u2028\x852"}


def test_events_when_the_last_is_cut_then_it_is_not_given() -> None:
    assert streamed('id: 7-0\ndata: {"type"') == []


def test_events_when_one_is_no_json_then_says_so() -> None:
    with pytest.raises(TroupeError, match="cannot be read"):
        streamed("id: 7-0\ndata: {\n\n")


def test_download_when_the_target_cannot_be_written_then_says_so_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "folder").mkdir()
    for target in (tmp_path / "folder", tmp_path / "missing" / "a.tar"):
        rest = client(lambda _: httpx.Response(200, content=b"tar"))
        with pytest.raises(InvalidArgumentError, match=target.name):
            rest.download("a", "final", "shared", target)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
