"""Who may do what: keys, scopes, cookies, rates, the refusal of an open door."""

import asyncio
import os
import time
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from redis.asyncio import Redis
from rest_world import RestWorld, rest_world, spec_document

from troupe.clients.rest.keys import add_key, digest_of, read_keys, remove_key
from troupe.errors import InvalidArgumentError
from troupe.runtime.hosts import is_loopback
from troupe_router.rest.access.api_keys import KeyStore
from troupe_router.rest.access.listen import check_listen_address
from troupe_router.settings import RouterSettings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.yaml"


@pytest.fixture
def keys(file: Path) -> dict[str, str]:
    return {scope: add_key(file, scope, (scope,)) for scope in ("read", "submit", "admin")}


@pytest.fixture
async def world(
    redis: Redis, tmp_path: Path, file: Path, keys: dict[str, str]
) -> AsyncIterator[RestWorld]:
    assert len(keys) == 3
    async with rest_world(redis, tmp_path, api_keys=file) as found:
        yield found


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_file_keeps_digests_and_never_a_key(file: Path, keys: dict[str, str]) -> None:
    text = file.read_text()
    assert all(key not in text for key in keys.values())
    assert digest_of(keys["read"]) in text
    assert file.stat().st_mode & 0o077 == 0


async def test_without_a_key_everything_of_v1_is_401_and_health_is_not(world: RestWorld) -> None:
    for path in ("/v1/jobs", "/v1/jobs/x/events", "/v1/tasks", "/metrics", "/v1/nowhere"):
        answer = await world.http.get(path)
        assert (answer.status_code, answer.json()["reason"]) == (401, "UNAUTHENTICATED"), path
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert (await world.http.get("/livez")).status_code == 200
    assert (await world.http.get("/v1/session")).json() == {
        "authentication": "keys",
        "name": None,
        "scopes": [],
    }


@pytest.mark.parametrize("key", ["nonsense", "troupe_" + "a" * 43, "\u00e9", ""])
async def test_with_a_wrong_key_nothing_is_shown(world: RestWorld, key: str) -> None:
    header = b"Bearer " + key.encode("latin-1")
    answer = await world.http.get("/v1/jobs", headers=[(b"authorization", header)])
    assert answer.status_code == 401


async def test_each_scope_may_what_it_says_and_not_more(
    world: RestWorld, keys: dict[str, str], tmp_path: Path
) -> None:
    spec = spec_document(tmp_path)
    read, submit, admin = (bearer(keys[s]) for s in ("read", "submit", "admin"))
    assert (await world.http.get("/v1/jobs", headers=read)).status_code == 200
    refused = await world.http.post("/v1/jobs", json=spec, headers=read)
    assert (refused.status_code, refused.json()["reason"]) == (403, "FORBIDDEN")
    made = await world.http.post("/v1/jobs", json=spec, headers=submit)
    assert (made.status_code, made.json()["owner"]) == (201, "submit")
    paused = await world.http.post("/v1/jobs/demo-1/pause", headers=submit)
    assert paused.json()["state"] == "paused"
    assert (await world.http.delete("/v1/jobs/demo-1", headers=submit)).status_code == 403
    assert (await world.http.delete("/v1/jobs/demo-1", headers=admin)).status_code == 204


async def test_cookie_signs_in_and_other_sites_cannot_use_it(
    world: RestWorld, keys: dict[str, str]
) -> None:
    wrong = await world.http.post("/v1/session", json={"key": "nonsense"})
    assert wrong.status_code == 401
    answer = await world.http.post("/v1/session", json={"key": keys["submit"]})
    assert answer.json()["scopes"] == ["read", "submit"]
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert (await world.http.get("/v1/jobs")).status_code == 200
    elsewhere = {"Origin": "http://evil.example"}
    crossed = await world.http.post("/v1/jobs/x/cancel", headers=elsewhere)
    assert crossed.status_code == 403
    own = await world.http.post("/v1/jobs/x/cancel", headers={"Origin": "http://router"})
    assert own.status_code == 404
    assert (await world.http.delete("/v1/session")).status_code == 204
    assert (await world.http.get("/v1/jobs")).status_code == 401


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_cookie_when_tls_ends_before_the_router_then_is_secure(
    world: RestWorld, keys: dict[str, str], scheme: str
) -> None:
    origin = {"Origin": f"{scheme}://router"}
    answer = await world.http.post("/v1/session", json={"key": keys["read"]}, headers=origin)
    assert answer.status_code == 200
    assert ("Secure" in answer.headers["set-cookie"]) == (scheme == "https")


@pytest.mark.parametrize(
    "others", ["a=[1,2]; ", 'a={"b": 1}; ', "a b=c; ", "alone; ", "a=\xe9; ", "a=b; =; "]
)
async def test_cookie_when_the_host_has_unusual_ones_beside_it_then_still_signs_in(
    world: RestWorld, keys: dict[str, str], others: str
) -> None:
    headers = [("Cookie", f"{others}troupe_key={keys['read']}".encode("latin-1"))]
    assert (await world.http.get("/v1/jobs", headers=headers)).status_code == 200


async def test_page_of_another_site_may_neither_sign_in_nor_read_by_a_cookie(
    world: RestWorld, keys: dict[str, str]
) -> None:
    evil = {"Origin": "https://evil.example"}
    crossed = await world.http.post("/v1/session", json={"key": keys["read"]}, headers=evil)
    assert crossed.status_code == 403
    assert (await world.http.post("/v1/session", json={"key": keys["read"]})).status_code == 200
    assert (await world.http.get("/v1/jobs", headers=evil)).status_code == 403
    # A program with a key of its own may say what it likes.
    both = {**evil, **bearer(keys["read"])}
    assert (await world.http.get("/v1/jobs", headers=both)).status_code == 200


async def test_page_of_another_site_may_not_act_on_a_router_without_keys(
    redis: Redis, tmp_path: Path
) -> None:
    strange = (
        "https://evil.example",
        "http://router.evil.example",
        "http://router:81",
        "null",
        "http://[",
    )
    async with rest_world(redis, tmp_path) as world:
        for origin, status in ((None, 404), ("http://router", 404), *((o, 403) for o in strange)):
            headers = {} if origin is None else {"Origin": origin}
            answer = await world.http.post("/v1/jobs/x/cancel", headers=headers)
            assert answer.status_code == status, answer.text
            forged = await world.http.post(
                "/v1/jobs/x/cancel", headers={**headers, **bearer("any")}
            )
            assert forged.status_code == status, origin


async def test_name_that_a_stranger_may_own_does_not_lead_to_a_router_without_keys(
    redis: Redis, tmp_path: Path
) -> None:
    own = (
        "127.0.0.1:8480",
        "[::1]:8480",
        "localhost:9999",
        "10.1.2.3",
        "router:8480",
        "troupe-router.lab.svc:8480",
        "troupe-router.lab.svc.cluster.local.",
        "Door.Lab.Example",
        "",
    )
    strange = (
        "evil.example:8480",
        "127.0.0.1.evil.example",
        "svc.evil.example",
        "lab.example",
        "[evil.example",
    )
    async with rest_world(redis, tmp_path, hosts="*.lab.example, other.example") as world:
        for host, status in (*((o, 200) for o in own), *((s, 403) for s in strange)):
            for path in ("/v1/jobs", "/metrics"):
                answer = await world.http.get(path, headers={"Host": host})
                assert answer.status_code == status, (host, answer.text)
            # Probes ask by the pod's address, and balancers by any name: nothing is told there.
            assert (await world.http.get("/readyz", headers={"Host": host})).status_code == 200


async def test_name_of_any_kind_leads_to_a_router_with_keys(
    world: RestWorld, keys: dict[str, str]
) -> None:
    headers = {**bearer(keys["read"]), "Host": "troupe.example"}
    assert (await world.http.get("/v1/jobs", headers=headers)).status_code == 200


def test_keyring_follows_its_file_and_keeps_old_keys_when_it_breaks(
    file: Path, keys: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("troupe_router.rest.access.api_keys._LOOK_S", 0.0)
    ring = KeyStore(file)
    assert ring.caller(keys["read"]).scopes == ("read",)
    fresh = add_key(file, "read", ("admin",))
    assert ring.caller(fresh).scopes == ("read", "submit", "admin")
    with pytest.raises(Exception, match="not known"):
        ring.caller(keys["read"])
    remove_key(file, "submit")
    with pytest.raises(Exception, match="not known"):
        ring.caller(keys["submit"])
    file.write_text("keys: [nonsense")
    os.utime(file, (1, 1))
    assert ring.caller(fresh).name == "read"


def test_key_that_has_ended_is_refused(file: Path) -> None:
    key = add_key(file, "old", ("read",), expires_at=datetime.now(UTC) - timedelta(seconds=1))
    with pytest.raises(Exception, match="has ended"):
        KeyStore(file).caller(key)


def test_file_that_is_none_stops_the_start(file: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="troupe keys add"):
        KeyStore(file)
    file.write_text("keys:\n- {name: a, sha256: short, scopes: [read]}\n")
    with pytest.raises(InvalidArgumentError, match="sha256"):
        read_keys(file)


async def test_rate_of_a_key_is_429_with_a_time_to_come_back(
    redis: Redis, tmp_path: Path, file: Path
) -> None:
    slow, other = add_key(file, "slow", ("read",), rate_per_s=0.01), add_key(file, "b", ("read",))
    async with rest_world(redis, tmp_path, api_keys=file, rate_burst=3) as world:
        codes = [
            (await world.http.get("/v1/quota", headers=bearer(slow))).status_code for _ in range(4)
        ]
        assert codes == [200, 200, 200, 429]
        late = await world.http.get("/v1/quota", headers=bearer(slow))
        assert 1 <= int(late.headers["retry-after"]) <= 100
        assert late.json()["reason"] == "RATE_LIMITED"
        assert (await world.http.get("/v1/quota", headers=bearer(other))).status_code == 200


@pytest.mark.parametrize("way", ["sign in", "who am I", "cookie", "read"])
async def test_guesses_of_keys_are_429_wherever_they_are_tried(
    world: RestWorld, keys: dict[str, str], way: str
) -> None:
    codes: list[int] = []
    # 20 at once, and 5 more each second.
    began = time.monotonic()
    for i in range(60):
        guess = f"troupe_guess{i}"
        match way:
            case "sign in":
                answer = await world.http.post("/v1/session", json={"key": guess})
            case "who am I":
                answer = await world.http.get("/v1/session", headers=bearer(guess))
            case "cookie":
                headers = {"Cookie": f"troupe_key={guess}"}
                answer = await world.http.get("/v1/session", headers=headers)
            case _:
                answer = await world.http.get("/v1/jobs", headers=bearer(guess))
        codes.append(answer.status_code)
    tried = 60 - codes.count(429)
    assert 20 <= tried <= 21 + 5 * (time.monotonic() - began)
    assert set(codes[:20]) == {200 if way in ("who am I", "cookie") else 401}
    # Whoever has a key is not held up by those who guess.
    assert (await world.http.get("/v1/session")).status_code == 200
    assert (await world.http.get("/v1/jobs", headers=bearer(keys["read"]))).status_code == 200


def test_key_when_it_is_made_then_has_256_bits_that_no_other_has(keys: dict[str, str]) -> None:
    """No rate bounds guesses: the right one among them is let in."""
    made = {urlsafe_b64decode(key.removeprefix("troupe_") + "=") for key in keys.values()}
    assert [len(bits) for bits in made] == [32, 32, 32]


async def test_rate_of_a_public_router_is_bounded_where_nothing_is_said(
    redis: Redis, tmp_path: Path
) -> None:
    public = {"rest_address": "0.0.0.0:8480", "allow_anonymous": True}
    async with rest_world(redis, tmp_path, rate_burst=1, **public) as world:
        codes = [(await world.http.get("/v1/nowhere")).status_code for _ in range(200)]
    assert 429 in codes
    async with rest_world(redis, tmp_path, rate_burst=1) as world:
        codes = [(await world.http.get("/v1/nowhere")).status_code for _ in range(200)]
    assert set(codes) == {404}


async def test_streams_end_with_their_key_and_are_bounded_by_caller(
    redis: Redis,
    tmp_path: Path,
    file: Path,
    keys: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("troupe_router.rest.access.api_keys._LOOK_S", 0.0)
    monkeypatch.setattr("troupe_router.rest.routes.events._PING_S", 0.05)
    async with rest_world(redis, tmp_path, api_keys=file, max_streams_per_caller=1) as world:
        spec = spec_document(tmp_path)
        await world.http.post("/v1/jobs", json=spec, headers=bearer(keys["submit"]))

        async def follow(scope: str) -> httpx.Response:
            headers = {**bearer(keys[scope]), "Accept": "text/event-stream"}
            return await world.http.get("/v1/jobs/demo-1/events", headers=headers)

        async def until_followed_by(number: int) -> None:
            async with asyncio.timeout(30):
                while True:
                    if world.fanout.num_followers == number:
                        return
                    await asyncio.sleep(0.01)

        first = asyncio.create_task(follow("read"))
        await until_followed_by(1)
        again = await follow("read")
        assert (again.status_code, "of this caller" in again.text) == (429, True)
        other = asyncio.create_task(follow("admin"))
        await until_followed_by(2)
        remove_key(file, "read")
        async with asyncio.timeout(30):
            assert (await first).status_code == 200
        await until_followed_by(1)
        assert not other.done()
        remove_key(file, "admin")
        async with asyncio.timeout(30):
            await other


async def test_owner_has_idempotency_keys_of_its_own(
    world: RestWorld, keys: dict[str, str], tmp_path: Path
) -> None:
    spec = spec_document(tmp_path)
    ids: set[str] = set()
    for scope in ("submit", "admin", "submit"):
        headers = {**bearer(keys[scope]), "Idempotency-Key": "same"}
        ids.add((await world.http.post("/v1/jobs", json=spec, headers=headers)).json()["job_id"])
    assert ids == {"demo-1", "demo-2"}


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("[::]", False),
        ("10.0.0.7", False),
        ("router.example", False),
    ],
)
def test_loopback_is_known(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_public_address_without_keys_is_refused_unless_told(file: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="without keys"):
        check_listen_address(RouterSettings(rest_address="0.0.0.0:8480"))
    check_listen_address(RouterSettings(rest_address="0.0.0.0:8480", allow_anonymous=True))
    check_listen_address(RouterSettings(rest_address="0.0.0.0:8480", api_keys=file))
    check_listen_address(RouterSettings(rest_address="127.0.0.1:8480"))


async def test_page_that_loads_another_hosts_script_is_on_loopback_alone(
    redis: Redis, tmp_path: Path
) -> None:
    async with rest_world(redis, tmp_path) as world:
        assert (await world.http.get("/docs")).status_code == 200
    public = {"rest_address": "0.0.0.0:8480", "allow_anonymous": True}
    async with rest_world(redis, tmp_path, **public) as world:
        assert (await world.http.get("/docs")).status_code == 404
        assert (await world.http.get("/openapi.json")).status_code == 200


def test_half_of_a_certificate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="belong together"):
        check_listen_address(RouterSettings(tls_certificate=tmp_path / "a.pem"))
