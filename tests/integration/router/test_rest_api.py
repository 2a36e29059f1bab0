"""The REST API over a real Valkey: problems, idempotency, plans, events, resume."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis
from rest_world import rest_world, spec_document

from troupe.durable import replace_file
from troupe.errors import ConflictError
from troupe.evaluation.refs import RefOptions, read_ref
from troupe.runtime.streams.events import EventLog
from troupe.spec import parse_spec
from troupe.spec.resuming import check_same_job
from troupe_router.jobs.store import JobStore


@pytest.fixture
def spec(tmp_path: Path) -> dict[str, Any]:
    return spec_document(tmp_path, algorithm={"group_size": 8})


@pytest.fixture
def store(redis: Redis) -> JobStore:
    return JobStore(redis)


@pytest.fixture
async def http(redis: Redis, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with rest_world(redis, tmp_path, max_body_bytes=10_000) as world:
        yield world.http


def pointers(answer: httpx.Response) -> set[str]:
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == answer.status_code
    return {error["pointer"] for error in answer.json().get("errors", [])}


async def test_submit_when_valid_then_201_and_a_run_folder(
    http: httpx.AsyncClient, spec: dict[str, Any], tmp_path: Path
) -> None:
    answer = await http.post("/v1/jobs", json=spec)
    assert (answer.status_code, answer.json()["job_id"]) == (201, "demo-1")
    assert answer.headers["location"] == "/v1/jobs/demo-1"
    stored = json.loads((tmp_path / "runs/demo-1/spec.json").read_text())
    assert stored["algorithm"]["group_size"] == 8
    second = await http.post("/v1/jobs", json=spec)
    assert second.json()["job_id"] == "demo-2"
    listed = (await http.get("/v1/jobs", params={"limit": 1})).json()
    assert [j["job_id"] for j in listed["jobs"]] == ["demo-2"]
    rest = (await http.get("/v1/jobs", params={"cursor": listed["next_cursor"]})).json()
    assert [j["job_id"] for j in rest["jobs"]] == ["demo-1"]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"polcies": 1}, "/polcies"),
        ({"steps": -1}, "/steps"),
        ({"algorithm": {"group_size": 1}}, "/algorithm/group_size"),
        ({"algorithm": {"kind": "nope"}}, "/algorithm/kind"),
        ({"task": {"name": "nope"}}, "/task/name"),
        ({"task": {"name": "plan_path", "params": {"sise": 6}}}, "/task/params/sise"),
        ({"reward": {"weights": {"tool": {"frmat": 1}}}}, "/reward/weights/tool/frmat"),
        ({"policies": {"p": {"model": "./nowhere"}}}, "/policies/p/model"),
        ({"policies": {"p": {"model": "models/nowhere"}}}, "/policies/p/model"),
        ({"policies": {"p": {"model": "no good id"}}}, "/policies/p/model"),
    ],
)
async def test_submit_when_wrong_then_422_with_its_pointer_and_no_folder(
    http: httpx.AsyncClient,
    spec: dict[str, Any],
    tmp_path: Path,
    change: dict[str, Any],
    pointer: str,
) -> None:
    answer = await http.post("/v1/jobs", json={**spec, **change})
    assert answer.status_code == 422
    assert pointer in pointers(answer)
    assert not list((tmp_path / "runs").glob("*"))


async def test_body_that_is_no_document_is_422_and_a_huge_one_is_413(
    http: httpx.AsyncClient,
) -> None:
    assert (await http.post("/v1/jobs", content=b"{")).status_code == 422
    assert (await http.post("/v1/jobs", content=b"[]")).status_code == 422
    assert (await http.post("/v1/jobs", content=b"x" * 10_001)).status_code == 413


async def test_idempotency_key_with_the_same_body_gives_the_same_job(
    http: httpx.AsyncClient, spec: dict[str, Any]
) -> None:
    key = {"Idempotency-Key": "k1"}
    first = await http.post("/v1/jobs", json=spec, headers=key)
    again = await http.post("/v1/jobs", json=spec, headers=key)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["job_id"] == again.json()["job_id"]
    other = await http.post("/v1/jobs", json={**spec, "steps": 9}, headers=key)
    assert (other.status_code, other.json()["reason"]) == (409, "CONFLICT")
    assert len((await http.get("/v1/jobs")).json()["jobs"]) == 1


async def test_dry_run_plans_and_starts_nothing(
    http: httpx.AsyncClient, spec: dict[str, Any]
) -> None:
    plan = (await http.post("/v1/jobs?dry_run=true", json=spec)).json()
    assert [p["name"] for p in plan["processes"]] == ["trainer-0", "rollout-p-0", "env-0"]
    assert plan["step"]["tickets"] == 3
    assert plan["step"]["candidates_at_most"] == 3 * 4 * 2 * 8
    assert plan["step"]["tokens_at_most"] == 3 * 4 * 2 * 8 * 10
    assert (await http.get("/v1/jobs")).json()["jobs"] == []


async def test_unknown_job_is_a_404_problem(http: httpx.AsyncClient) -> None:
    for path in ("/v1/jobs/none", "/v1/jobs/none/events", "/v1/jobs/none/metrics", "/nowhere"):
        answer = await http.get(path)
        assert answer.status_code == 404
        pointers(answer)


async def test_cancel_twice_is_the_same_and_a_finished_job_stays(
    http: httpx.AsyncClient, store: JobStore, spec: dict[str, Any]
) -> None:
    job = (await http.post("/v1/jobs", json=spec)).json()["job_id"]
    assert (await http.post(f"/v1/jobs/{job}/cancel")).json()["state"] == "cancelling"
    assert (await http.post(f"/v1/jobs/{job}/cancel")).json()["state"] == "cancelling"
    await store.transition(job, "cancelled")
    assert (await http.post(f"/v1/jobs/{job}/cancel")).json()["state"] == "cancelled"


async def test_resume_goes_on_under_the_same_id(
    http: httpx.AsyncClient, store: JobStore, redis: Redis, spec: dict[str, Any]
) -> None:
    job = (await http.post("/v1/jobs", json=spec)).json()["job_id"]
    assert (await http.post(f"/v1/jobs/{job}/resume")).json()["life"] == 1
    await store.transition(job, "launching")
    await store.transition(job, "failed", reason="broken")
    assert (await http.get(f"/v1/jobs/{job}")).json()["error"] == "broken"
    longer = await http.post(f"/v1/jobs?resume={job}", json={**spec, "steps": 5})
    assert (longer.json()["state"], longer.json()["life"]) == ("queued", 2)
    assert longer.json()["steps"] == 5
    await redis.flushall()
    from_folder = await http.post(f"/v1/jobs/{job}/resume")
    assert (from_folder.json()["job_id"], from_folder.json()["state"]) == (job, "queued")
    await store.transition(job, "launching")
    await store.transition(job, "failed")
    changed = await http.post(f"/v1/jobs?resume={job}", json={**spec, "seed": 5})
    assert changed.status_code == 409
    assert "seed" in changed.json()["detail"]


async def test_resume_with_fewer_steps_than_were_learnt_is_refused(
    http: httpx.AsyncClient, store: JobStore, spec: dict[str, Any]
) -> None:
    made = (await http.post("/v1/jobs", json=spec)).json()
    job = made["job_id"]
    checkpoints = Path(made["run_dir"]) / "checkpoints"
    (checkpoints / "step-00004").mkdir(parents=True)
    (checkpoints / "step-foo").mkdir()
    await store.transition(job, "launching")
    await store.transition(job, "failed")
    fewer = await http.post(f"/v1/jobs?resume={job}", json={**spec, "steps": 3})
    assert fewer.status_code == 422
    assert pointers(fewer) == {"/steps"}
    assert "has learnt 4 steps" in fewer.text
    as_many = await http.post(f"/v1/jobs?resume={job}", json={**spec, "steps": 4})
    assert (as_many.status_code, as_many.json()["steps"]) == (200, 4)


async def test_resume_of_a_job_that_succeeded_when_asked_for_more_steps_then_it_goes_on(
    http: httpx.AsyncClient, store: JobStore, redis: Redis, spec: dict[str, Any]
) -> None:
    made = (await http.post("/v1/jobs", json={**spec, "steps": 4})).json()
    job, run_dir = made["job_id"], Path(made["run_dir"])
    await store.transition(job, "launching")
    await store.transition(job, "running")
    await store.set_step(job, 4)
    await store.transition(job, "succeeded")

    async def resumed(**changes: Any) -> httpx.Response:
        return await http.post(f"/v1/jobs?resume={job}", json={**spec, "steps": 4, **changes})

    gone = await resumed(steps=6)
    assert (gone.status_code, "checkpoint of step 4 is gone" in gone.text) == (409, True)
    (run_dir / "checkpoints" / "step-00004").mkdir(parents=True)
    for steps in (3, 4):
        refused = await resumed(steps=steps)
        assert refused.status_code == 409
        assert "succeeded after 4 steps; ask for more" in refused.json()["detail"]
    policies = {"p": {**spec["policies"]["p"], "optimizer": {"learning_rate": 0.5}}}
    refused = await resumed(steps=6, policies=policies)
    assert refused.status_code == 409
    assert "another /policies/p/optimizer/learning_rate;" in refused.json()["detail"]
    assert (await http.get(f"/v1/jobs/{job}")).json()["state"] == "succeeded"

    replace_file(run_dir / "policies" / "p" / "merged" / "config.json", "{}")
    longer = (await resumed(steps=6)).json()
    assert (longer["state"], longer["life"], longer["steps"]) == ("queued", 2, 6)
    assert not (run_dir / "policies").exists()  # they are not what the job will end with
    kept = run_dir / "exports" / "4"
    [agent, *_] = spec["agents"]
    assert str(read_ref(str(kept), agent, RefOptions())) == str(kept / "p" / "merged")


@pytest.mark.parametrize("is_exported", [True, False])
def test_refusal_to_resume_when_weights_are_exported_then_it_names_the_new_jobs_models(
    tmp_path: Path, spec: dict[str, Any], *, is_exported: bool
) -> None:
    merged = tmp_path / "runs/demo-1/policies/p/merged"
    if is_exported:
        merged.mkdir(parents=True)
        (merged / "config.json").write_text("{}")
    stored, wanted = parse_spec(spec), parse_spec({**spec, "seed": 5})
    plain, null = (
        parse_spec(
            {**spec, "task": {**spec["task"], "params": {**spec["task"].get("params", {}), **p}}}
        )
        for p in ({}, {"seed": None})
    )
    with pytest.raises(ConflictError, match="another /task;"):
        check_same_job(tmp_path / "runs/demo-1", plain, null)
    with pytest.raises(ConflictError, match="another /seed;") as caught:
        check_same_job(tmp_path / "runs/demo-1", stored, wanted)
    way = f"--set policies.p.model={merged}`" if is_exported else "troupe export demo-1 --out"
    assert way in caught.value.message


async def test_events_as_pages_and_as_a_stream_that_ends_with_the_job(
    http: httpx.AsyncClient, store: JobStore, redis: Redis, spec: dict[str, Any]
) -> None:
    job = (await http.post("/v1/jobs", json=spec)).json()["job_id"]
    log = EventLog(redis, job, source="router")
    await log.emit("step.recorded", {"step": 0})
    await store.transition(job, "launching")
    await store.transition(job, "failed", reason="x")
    await log.emit("job.state", {"state": "failed"})
    page = (await http.get(f"/v1/jobs/{job}/events", params={"limit": 2})).json()
    assert [e["type"] for e in page["events"]] == ["job.state", "step.recorded"]
    headers = {"Accept": "text/event-stream", "Last-Event-ID": page["events"][0]["id"]}
    stream = await http.get(f"/v1/jobs/{job}/events", headers=headers)
    lines = stream.text.splitlines()
    assert [x for x in lines if x.startswith("event:")] == [
        "event: step.recorded",
        "event: job.state",
    ]
    assert f"id: {page['events'][1]['id']}" in lines
    assert (await http.get(f"/v1/jobs/{job}/events?after=nonsense")).status_code == 422


async def test_openapi_describes_the_spec(http: httpx.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()
    body = document["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]
    assert {"task", "agents", "policies"} <= body["schema"]["properties"].keys()
