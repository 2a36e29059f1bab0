"""The retrieval server: which addresses are refused, what is stored, and what is no answer."""

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from troupe.errors import InvalidArgumentError, UnavailableError
from troupe_tasks.search import Search, SearchParams
from troupe_tasks.search.bm25 import Document
from troupe_tasks.search.http_retriever import (
    MAX_ANSWER_BYTES,
    HttpRetriever,
    SearchServerSettings,
    checked_address,
    read_answer,
)
from troupe_tasks.search.published import SearchRow

PAGE = {"document": {"id": "1", "contents": '"Ann"\nAnn is of Peru.'}, "score": 3.5}


class Server(ThreadingHTTPServer):
    """Answers every question with ``reply``; keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[Any] = []
        self.reply: tuple[int, dict[str, str], bytes] = (
            200,
            {},
            json.dumps({"result": [[PAGE]]}).encode(),
        )

    @property
    def pair(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.asked.append((self.path, json.loads(self.rfile.read(length))))
        status, headers, body = self.server.reply
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    thread.join(timeout=10)
    running.server_close()


def retriever(server: Server, store: Path, **changes: Any) -> HttpRetriever:
    settings = {"url": f"http://{server.pair}/retrieve", "allowed": server.pair, "store": store}
    return HttpRetriever(SearchServerSettings(**(settings | changes)))


def test_search_when_asked_then_sends_the_query_as_data_only(
    server: Server, tmp_path: Path
) -> None:
    hostile = 'http://169.254.169.254/ "}\r\nHost: evil'
    found = retriever(server, tmp_path).search(hostile, 5)
    assert list(found) == [Document("Ann", "Ann is of Peru.")]
    body = {"queries": [hostile], "topk": 5, "return_scores": True}
    assert server.asked == [("/retrieve", body)]


def test_search_when_the_address_has_a_query_then_sends_it(server: Server, tmp_path: Path) -> None:
    retriever(server, tmp_path, url=f"http://{server.pair}/retrieve?key=a&n=1#x").search("ann", 5)
    assert [path for path, _ in server.asked] == ["/retrieve?key=a&n=1"]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:port/retrieve", "http://127.0.0.1:99999/", "http://[::1/"]
)
def test_retriever_when_its_address_cannot_be_read_then_names_the_setting(
    server: Server, tmp_path: Path, url: str
) -> None:
    with pytest.raises(InvalidArgumentError, match="TROUPE_ENV_SEARCH_URL"):
        retriever(server, tmp_path, url=url)


def test_search_when_asked_again_then_replays_what_was_stored(
    server: Server, tmp_path: Path
) -> None:
    first = retriever(server, tmp_path).search("ann", 5)
    server.reply = (200, {}, json.dumps({"result": [[]]}).encode())
    assert retriever(server, tmp_path).search("ann", 5) == first
    assert len(server.asked) == 1
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


def test_search_when_another_pod_stored_first_then_its_answer_counts(
    server: Server, tmp_path: Path
) -> None:
    mine = retriever(server, tmp_path)
    mine.search("ann", 5)
    [path] = tmp_path.iterdir()
    path.write_text(json.dumps([["Other", "first"]]))
    mine._keep(path, [("Late", "second")])
    assert mine.search("ann", 5) == [Document("Other", "first")]


@pytest.mark.parametrize(
    "reply",
    [
        (302, {"Location": "http://169.254.169.254/"}, b""),
        (307, {"Location": "http://127.0.0.1:1/"}, b""),
        (500, {}, b"{}"),
        (200, {}, b"no json"),
        (200, {}, b"[" * 60_000),
        (200, {}, b"[]"),
        (200, {}, b'{"result": []}'),
        (200, {}, b'{"result": [[1]]}'),
        (200, {}, b'{"result": [[{"document": {}}]]}'),
        (200, {}, b" " * (MAX_ANSWER_BYTES + 1)),
    ],
    ids=lambda reply: f"{reply[0]}-{reply[2][:8]!r}",
)
def test_search_when_the_server_misbehaves_then_is_retryable_and_stores_nothing(
    server: Server, tmp_path: Path, reply: tuple[int, dict[str, str], bytes]
) -> None:
    server.reply = reply
    with pytest.raises(UnavailableError):
        retriever(server, tmp_path).search("ann", 5)
    assert len(server.asked) == 1  # no redirect is followed
    assert list(tmp_path.iterdir()) == []


def test_search_when_the_server_refuses_the_connection_then_is_retryable(
    server: Server, tmp_path: Path
) -> None:
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        pair = f"127.0.0.1:{bound.getsockname()[1]}"
        asked = retriever(server, tmp_path, url=f"http://{pair}/retrieve", allowed=pair)
        with pytest.raises(UnavailableError, match="ConnectionRefusedError"):
            asked.search("ann", 5)


def test_search_when_the_server_speaks_no_tls_then_is_retryable(
    server: Server, tmp_path: Path
) -> None:
    with pytest.raises(UnavailableError, match="SSLError"):
        retriever(server, tmp_path, url=f"https://{server.pair}/retrieve").search("ann", 5)


def test_read_answer_without_scores_then_reads_pages_as_well() -> None:
    data = json.dumps({"result": [[PAGE["document"]] * 7]}).encode()
    assert read_answer(data) == [("Ann", "Ann is of Peru.")] * 5


def test_search_when_the_server_is_silent_then_ends_in_time(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        pair = f"127.0.0.1:{silent.getsockname()[1]}"
        settings = SearchServerSettings(
            url=f"http://{pair}/", allowed=pair, store=tmp_path, timeout_s=0.2
        )
        with pytest.raises(UnavailableError):
            HttpRetriever(settings).search("ann", 5)


REFUSED = [
    "169.254.169.254",
    "[::ffff:169.254.169.254]",
    "[fe80::1]",
    "metadata.google.internal",
    "100.100.100.200",
    "[fd00:ec2::254]",
    "127.0.0.1",
    "localhost",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "[::1]",
    "[::]",
    "[::ffff:10.0.0.1]",
    "[fd00::1]",
    "[2002:7f00:1::]",
    "[64:ff9b::a00:1]",
    "224.0.0.1",
    "255.255.255.255",
    "2852039166",
]


@pytest.mark.parametrize("host", REFUSED)
def test_address_when_it_is_not_public_then_is_refused(host: str, tmp_path: Path) -> None:
    settings = SearchServerSettings(url=f"http://{host}/retrieve", store=tmp_path)
    with pytest.raises(InvalidArgumentError):
        HttpRetriever(settings)


@pytest.mark.parametrize("host", ["169.254.169.254", "metadata.google.internal", "100.100.100.200"])
def test_metadata_server_when_it_is_listed_then_is_refused_all_the_same(host: str) -> None:
    with pytest.raises(InvalidArgumentError, match="credentials"):
        checked_address(host, 80, f"{host}:80")


@pytest.mark.parametrize("listed", ["127.0.0.1:81", "localhost:80", "127.0.0.1", ""])
def test_private_address_when_another_pair_is_listed_then_is_refused(listed: str) -> None:
    with pytest.raises(InvalidArgumentError, match="TROUPE_ENV_SEARCH_ALLOWED"):
        checked_address("127.0.0.1", 80, listed)


def resolver(*answers: str) -> Any:
    """Stands for the name server: one address for each time it is asked."""
    left = list(answers)

    def getaddrinfo(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (left.pop(0), 80))]

    return getaddrinfo


def test_name_when_it_resolves_anew_then_the_first_address_is_connected_to(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = server.server_address[1]
    monkeypatch.setattr(socket, "getaddrinfo", resolver("127.0.0.1"))
    pair = f"pages.example:{port}"
    settings = SearchServerSettings(url=f"http://{pair}/", allowed=pair, store=tmp_path)
    mine = HttpRetriever(settings)
    monkeypatch.undo()  # the name has no address at all now
    assert mine.search("ann", 5)


def test_name_when_it_resolves_to_a_private_address_then_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", resolver("10.1.2.3"))
    with pytest.raises(InvalidArgumentError, match="private"):
        checked_address("pages.example", 80, "")


def test_public_address_then_is_accepted() -> None:
    assert checked_address("8.8.8.8", 80, "") == "8.8.8.8"


@pytest.mark.parametrize(
    "changes",
    [{"url": ""}, {"store": None}, {"url": "file:///etc/passwd"}, {"url": "http://u:p@8.8.8.8/"}],
)
def test_settings_when_they_lack_something_then_say_so(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    settings = {"url": "http://8.8.8.8/", "store": tmp_path} | changes
    with pytest.raises(InvalidArgumentError, match="TROUPE_ENV_SEARCH"):
        HttpRetriever(SearchServerSettings(**settings))


def test_family_when_the_retriever_is_a_server_then_plays_with_it(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = SearchRow(id="1", question="Where?", answers=("Peru",), support=("Ann",))
    (tmp_path / "test.jsonl").write_text(row.model_dump_json() + "\n")
    monkeypatch.setenv("TROUPE_ENV_SEARCH_URL", f"http://{server.pair}/retrieve")
    monkeypatch.setenv("TROUPE_ENV_SEARCH_ALLOWED", server.pair)
    monkeypatch.setenv("TROUPE_ENV_SEARCH_STORE", str(tmp_path / "store"))
    family = Search(SearchParams(retriever="http", data=tmp_path / "test.jsonl"))
    env = family.environment()
    state = env.reset(family.taskset().task("test", 0))
    state = env.step(state, "searcher", "search: ann\nopen: 1").state
    assert env.step(state, "answerer", "answer: Peru").success


def test_params_when_a_server_is_named_without_questions_then_are_refused() -> None:
    with pytest.raises(ValueError, match="data"):
        SearchParams(retriever="http")
