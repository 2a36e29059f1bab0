"""What strangers try at the REST door: other folders, code of their choice, others' secrets."""

import itertools
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from redis.asyncio import Redis
from rest_world import RestWorld, rest_world, spec_document

from troupe.clients.rest.keys import add_key

CANARY = "the-canary-of-another-folder"
SECRET = "s3cr3t-never-to-be-seen"
JOB = "/v1/jobs/demo-1"


@pytest.fixture
async def world(redis: Redis, tmp_path: Path) -> AsyncIterator[RestWorld]:
    """A router on a public address, with a job, and files beside its run folder."""
    public = {"rest_address": "0.0.0.0:8480", "allow_anonymous": True, "rate_per_s": 0.0}
    (tmp_path / "runs").mkdir()
    folders = str(tmp_path / "model")
    async with rest_world(redis, tmp_path, model_folders=folders, **public) as found:
        answer = await found.http.post("/v1/jobs", json=spec_document(tmp_path))
        assert answer.status_code == 201, answer.text
        for folder in (tmp_path, tmp_path / "runs", tmp_path / "runs" / "demo-1"):
            for name in ("canary", "canary.log", "canary.json", "adapter_config.json"):
                (folder / name).write_text(CANARY)
        yield found


def _climbs() -> list[str]:
    """Ways to say: up and then the canary."""
    ups = [
        "..",
        "....//..",
        "..;",
        ".%00.",
        "%2e%2e",
        "..%00",
        "\\..",
        "%c0%ae%c0%ae",
        "\uff0e\uff0e",
    ]
    targets = ["canary", "../canary.log", "canary%00.log"]
    found = [f"{up}/{target}" for up, target in itertools.product(ups, targets)]
    return [*found, "/etc/passwd", "//etc/passwd", "file:///etc/passwd", "canary", "~/canary"]


@pytest.mark.parametrize(
    "route",
    [
        "{job}/logs/{x}",
        "{job}/checkpoints/{x}/p",
        "{job}/checkpoints/final/{x}",
        "{job}/episodes/{x}",
        "{job}/steps/{x}",
        "/v1/jobs/{x}",
        "/v1/jobs/{x}/logs/canary",
        "/v1/jobs/{x}/checkpoints/final/p",
        "/v1/tasks/{x}",
        "/ui/{x}",
        "/{x}",
    ],
)
async def test_path_when_it_climbs_in_any_spelling_then_nothing_of_elsewhere_is_told(
    world: RestWorld, route: str
) -> None:
    for climb in _climbs():
        for spelt in (quote(climb, safe=""), quote(quote(climb, safe=""), safe=""), climb):
            url = route.format(job=JOB, x=spelt)
            answer = await world.http.get(url)
            assert answer.status_code < 500, (url, answer.text)
            assert CANARY not in answer.text, url
            assert "root:" not in answer.text, url


def _paths(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", "a/b", "..", "a\0b", ""])
async def test_name_of_a_job_when_it_is_a_path_then_is_refused(
    world: RestWorld, tmp_path: Path, name: str
) -> None:
    before = _paths(tmp_path)
    answer = await world.http.post("/v1/jobs", json=spec_document(tmp_path, name=name))
    assert answer.status_code == 422
    assert _paths(tmp_path) == before


@pytest.mark.parametrize("params", [{}, {"dry_run": "true"}])
async def test_code_when_a_spec_names_it_then_is_not_imported_by_a_public_router(
    world: RestWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, params: dict[str, str]
) -> None:
    module = f"planted_{'dry' if params else 'real'}"
    (tmp_path / f"{module}.py").write_text(
        f"import pathlib\npathlib.Path({str(tmp_path / 'was-here')!r}).touch()\nX = 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for more in (
        {"task": {"name": f"{module}:X"}},
        {"workflow": {"kind": f"{module}:X", "order": ["tool", "planner"]}},
        {"algorithm": {"kind": f"{module}:X", "group_size": 2}},
        {"trackers": [{"kind": f"{module}:X"}]},
    ):
        document = {**spec_document(tmp_path), **more}
        answer = await world.http.post("/v1/jobs", json=document, params=params)
        assert answer.status_code == 422, answer.text
        assert "may not load from a spec" in answer.text
    assert module not in sys.modules
    assert not (tmp_path / "was-here").exists()


async def test_model_when_a_spec_names_any_folder_then_a_public_router_does_not_look(
    world: RestWorld, tmp_path: Path
) -> None:
    words = set()
    for model in ("/etc", str(tmp_path / "runs" / ".." / "other"), "/no/such/folder"):
        document = spec_document(tmp_path, policies={"p": {"model": model}})
        answer = await world.http.post("/v1/jobs", json=document, params={"dry_run": "true"})
        assert answer.status_code == 422
        words.add(answer.text.replace(json.dumps(model)[1:-1], "MODEL"))
    # What is there and what is not look the same from outside.
    assert len(words) == 1, words


async def _everything(redis: Redis) -> bytes:
    """Every key and value of the database."""
    found: list[Any] = []
    async for key in redis.scan_iter("*"):
        kind = (await redis.type(key)).decode()
        match kind:
            case "string":
                value = await redis.get(key)
            case "hash":
                value = await redis.hgetall(key)
            case "list":
                value = await redis.lrange(key, 0, -1)
            case "set":
                value = await redis.smembers(key)
            case "zset":
                value = await redis.zrange(key, 0, -1, withscores=True)
            case _:
                value = await redis.xrange(key)
        found.append((key, value))
    return repr(found).encode()


def _files(folder: Path, *, without: Path) -> bytes:
    paths = [path for path in folder.rglob("*") if path.is_file() and path != without]
    return b"\n".join(path.read_bytes() for path in paths)


async def test_secrets_when_sent_then_are_in_no_log_event_answer_file_or_key(
    redis: Redis, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    keys = tmp_path / "keys.json"
    api_key = add_key(keys, "me", ("read", "submit"))
    headers = {"Authorization": f"Bearer {api_key}"}
    answers: list[str] = []
    async with rest_world(redis, tmp_path, headers=headers, api_keys=keys) as world:
        good = await world.http.post("/v1/jobs", json=spec_document(tmp_path))
        assert good.status_code == 201, good.text
        for more in (
            {"trackers": [{"kind": "wandb", "options": {"api_key": SECRET}}]},
            {"trackers": [{"kind": "mlflow", "options": {"uri": f"https://me:{SECRET}@h"}}]},
            {"task": {"name": "plan_path", "params": {"password": SECRET}}},
        ):
            for params in ({}, {"dry_run": "true"}):
                document = spec_document(tmp_path, **more)
                answer = await world.http.post("/v1/jobs", json=document, params=params)
                assert answer.status_code == 422, answer.text
                assert "looks like a secret" in answer.text
                answers.append(answer.text)
        refused = {"Authorization": f"Bearer {SECRET}"}
        answers.append((await world.http.get("/v1/jobs", headers=refused)).text)
        for path in ("", "/spec", "/progress", "/logs"):
            answers.append((await world.http.get(JOB + path)).text)
        answers.append((await world.http.get("/v1/jobs")).text)
        stored = await _everything(redis)
        files = _files(tmp_path, without=keys)
    assert b"demo-1" in stored and b"plan_path" in files
    said = capfd.readouterr()
    for name, text in {
        "redis": stored.decode(),
        "files": files.decode("utf-8", "replace"),
        "keys": keys.read_text(),
        "answers": "\n".join(answers),
        "logs": said.out + said.err,
    }.items():
        assert SECRET not in text, name
        assert api_key not in text, name
