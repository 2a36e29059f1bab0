"""Code that a job brings along, at the router's door: who may, what is taken, what is kept."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from rest_world import RestWorld, rest_world, spec_document

from troupe.bundles.archive import Bundle, bundle_of
from troupe.clients.rest.keys import add_key
from troupe.clients.rest.models.session import Scope
from troupe_router.jobs.bundles import BundleStore
from troupe_router.settings import RouterSettings

TASK = b"raise SystemExit('the router loaded me')\n"
TAR = {"Content-Type": "application/x-tar"}
LOCK = b"tiny==1 --hash=sha256:" + b"0" * 64
FACTS = {"agents": ["tool", "planner"], "local_terms": {"tool": {"short": 1.0}}}


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "keys.yaml"
    names: dict[str, tuple[Scope, ...]] = {
        "submit": ("submit",),
        "admin": ("admin",),
        "ann": ("code",),
        "bob": ("code",),
    }
    names["root"] = ("admin", "code")
    return {name: add_key(file, name, scopes) for name, scopes in names.items()}


@pytest.fixture
async def world(redis: Redis, tmp_path: Path, keys: dict[str, str]) -> AsyncIterator[RestWorld]:
    assert keys
    settings: dict[str, Any] = {"rest_address": "0.0.0.0:8480", "bundles": True}
    settings["model_folders"] = str(tmp_path)
    async with rest_world(redis, tmp_path, api_keys=tmp_path / "keys.yaml", **settings) as found:
        yield found


def bearer(key: str, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}", **more}


def bundle(code: bytes = TASK) -> Bundle:
    return bundle_of({"my_task.py": code})


def bundled_spec(tmp_path: Path, of: Bundle, **more: Any) -> dict[str, Any]:
    part = {"digest": of.digest, "task": FACTS}
    return spec_document(tmp_path, task={"name": "my_task.py:Mine"}, bundle=part, **more)


async def upload(world: RestWorld, key: str, of: Bundle) -> Any:
    headers = bearer(key, **TAR)
    return await world.http.put(f"/v1/bundles/{of.digest}", content=of.archive, headers=headers)


async def test_upload_when_repeated_then_is_one_bundle_of_both_owners(
    world: RestWorld, keys: dict[str, str]
) -> None:
    one = bundle()
    answers = [await upload(world, keys[name], one) for name in ("ann", "ann", "bob")]
    assert [a.status_code for a in answers] == [201, 200, 200]
    assert answers[2].json()["owners"] == ["ann", "bob"]
    assert answers[0].json()["files"] == ["my_task.py"]
    got = await world.http.get(f"/v1/bundles/{one.digest}/archive", headers=bearer(keys["ann"]))
    assert got.content == one.archive
    page = await world.http.get("/v1/bundles", headers=bearer(keys["bob"]))
    assert [b["digest"] for b in page.json()["bundles"]] == [one.digest]


async def test_bundle_when_it_is_anothers_then_is_not_there_but_for_an_admin(
    world: RestWorld, keys: dict[str, str]
) -> None:
    one = bundle()
    await upload(world, keys["ann"], one)
    for path in (f"/v1/bundles/{one.digest}", f"/v1/bundles/{one.digest}/archive"):
        assert (await world.http.get(path, headers=bearer(keys["bob"]))).status_code == 404
        assert (await world.http.get(path, headers=bearer(keys["root"]))).status_code == 200
    page = await world.http.get("/v1/bundles", headers=bearer(keys["bob"]))
    assert page.json()["bundles"] == []


async def test_scope_when_it_is_missing_then_neither_upload_list_nor_job(
    world: RestWorld, keys: dict[str, str], tmp_path: Path
) -> None:
    one = bundle()
    await upload(world, keys["ann"], one)
    for name in ("submit", "admin"):
        refused = await upload(world, keys[name], bundle(b"other"))
        assert (refused.status_code, refused.json()["reason"]) == (403, "FORBIDDEN")
        assert (await world.http.get("/v1/bundles", headers=bearer(keys[name]))).status_code == 403
        spec = bundled_spec(tmp_path, one)
        for query in ("", "?dry_run=true"):
            answer = await world.http.post(
                f"/v1/jobs{query}", json=spec, headers=bearer(keys[name])
            )
            assert (answer.status_code, answer.json()["pointer"]) == (403, "/bundle")
    removed = await world.http.delete(f"/v1/bundles/{one.digest}", headers=bearer(keys["ann"]))
    assert removed.status_code == 403
    removed = await world.http.delete(f"/v1/bundles/{one.digest}", headers=bearer(keys["root"]))
    assert removed.status_code == 204


async def test_upload_when_it_is_wrong_then_is_refused_and_leaves_nothing(
    world: RestWorld, keys: dict[str, str], tmp_path: Path
) -> None:
    one, other = bundle(), bundle(b"other")
    headers = bearer(keys["ann"], **TAR)
    wrong = await world.http.put(
        f"/v1/bundles/{other.digest}", content=one.archive, headers=headers
    )
    assert (wrong.status_code, wrong.json()["reason"]) == (422, "INVALID_ARGUMENT")
    odd = await world.http.put("/v1/bundles/..%2f..%2fx", content=b"", headers=headers)
    assert odd.status_code in (404, 422)
    for name in ("sha256:" + "A" * 64, "md5:1", "sha256:../../../../x"):
        answer = await world.http.put(f"/v1/bundles/{name}", content=b"x", headers=headers)
        assert answer.status_code in (404, 422)
    kind = await world.http.put(
        f"/v1/bundles/{one.digest}", content=one.archive, headers=bearer(keys["ann"])
    )
    assert kind.status_code == 415
    large = await world.http.put(
        f"/v1/bundles/{one.digest}", content=b"\0" * (17 << 20), headers=headers
    )
    assert large.status_code == 413
    asking = bundle_of({"my_task.py": TASK, "requirements.lock": LOCK})
    answer = await upload(world, keys["ann"], asking)
    assert answer.status_code == 422
    assert "TROUPE_BUNDLE_INDEX" in answer.text
    assert not list((tmp_path / "runs").rglob("*.tar"))


async def test_public_router_when_not_told_so_then_takes_no_bundle(
    redis: Redis, tmp_path: Path, keys: dict[str, str]
) -> None:
    at: dict[str, Any] = {"rest_address": "0.0.0.0:8480", "model_folders": str(tmp_path)}
    async with rest_world(redis, tmp_path, api_keys=tmp_path / "keys.yaml", **at) as world:
        refused = await upload(world, keys["ann"], bundle())
        assert (refused.status_code, "TROUPE_ROUTER_BUNDLES" in refused.text) == (422, True)
        spec = bundled_spec(tmp_path, bundle())
        answer = await world.http.post("/v1/jobs", json=spec, headers=bearer(keys["ann"]))
        assert answer.status_code == 422
        assert "TROUPE_ROUTER_BUNDLES" in answer.text


async def test_job_when_its_bundle_is_here_then_is_planned_without_its_code_and_kept_with_the_run(
    world: RestWorld, keys: dict[str, str], tmp_path: Path
) -> None:
    one = bundle()
    spec = bundled_spec(tmp_path, one)
    missing = await world.http.post("/v1/jobs", json=spec, headers=bearer(keys["ann"]))
    assert missing.status_code == 422
    assert missing.json()["errors"][0]["pointer"] == "/bundle/digest"
    await upload(world, keys["ann"], one)
    plan = await world.http.post("/v1/jobs?dry_run=true", json=spec, headers=bearer(keys["ann"]))
    assert plan.status_code == 200
    made = await world.http.post("/v1/jobs", json=spec, headers=bearer(keys["ann"]))
    assert made.status_code == 201, made.text
    run_dir = Path(made.json()["run_dir"])
    assert (run_dir / "bundle.tar").read_bytes() == one.archive
    assert json.loads((run_dir / "spec.json").read_text())["bundle"]["digest"] == one.digest
    job_id = made.json()["job_id"]
    events = await world.http.get(f"/v1/jobs/{job_id}/events", headers=bearer(keys["ann"]))
    told = [e for e in events.json()["events"] if e["type"] == "job.bundle"]
    assert told[0]["data"] == {"digest": one.digest, "owner": "ann"}


async def test_job_when_the_uploaded_bundle_is_gone_then_resumes_with_its_own_copy(
    world: RestWorld, keys: dict[str, str], tmp_path: Path
) -> None:
    one = bundle()
    await upload(world, keys["ann"], one)
    made = await world.http.post(
        "/v1/jobs", json=bundled_spec(tmp_path, one), headers=bearer(keys["ann"])
    )
    job_id = made.json()["job_id"]
    await world.http.delete(f"/v1/bundles/{one.digest}", headers=bearer(keys["root"]))
    await world.http.post(f"/v1/jobs/{job_id}/pause", headers=bearer(keys["ann"]))
    resumed = await world.http.post(f"/v1/jobs/{job_id}/resume", headers=bearer(keys["ann"]))
    assert (resumed.status_code, resumed.json()["state"]) == (200, "queued"), resumed.text


async def test_job_with_a_bundle_when_resumed_then_needs_what_other_jobs_need_on_both_paths(
    world: RestWorld, keys: dict[str, str], tmp_path: Path
) -> None:
    one, other = bundle(), bundle(b"other")
    for each in (one, other):
        await upload(world, keys["ann"], each)
    spec = bundled_spec(tmp_path, one)
    made = await world.http.post("/v1/jobs", json=spec, headers=bearer(keys["ann"]))
    job_id = made.json()["job_id"]
    await world.http.post(f"/v1/jobs/{job_id}/pause", headers=bearer(keys["ann"]))
    paths = (f"/v1/jobs?resume={job_id}", f"/v1/jobs/{job_id}/resume")
    headers = bearer(keys["submit"])
    changed = bundled_spec(tmp_path, other)
    refused = [await world.http.post(path, json=changed, headers=headers) for path in paths]
    assert [answer.status_code for answer in refused] == [409, 409]
    resumed = [await world.http.post(path, json=spec, headers=headers) for path in paths]
    assert [answer.status_code for answer in resumed] == [200, 200]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"task": {"name": "other.py:Mine"}}, "/task/name"),
        ({"reward": "my_rewards:good"}, "/reward/kind"),
        ({"reward": {"strict": "../my_task.py:x"}}, "/reward/strict/kind"),
        ({"task": {"name": "/etc/passwd.py:x"}}, "/task/name"),
        ({"task": {"name": "os:system"}}, "/task/name"),
        ({"workflow": {"kind": "my_task.py:Flow", "order": ["tool", "planner"]}}, ""),
        ({"algorithm": {"kind": "my_task.py:Algo"}}, ""),
    ],
)
async def test_job_when_it_names_what_the_bundle_has_not_or_may_not_then_is_refused(
    change: dict[str, Any],
    pointer: str,
    world: RestWorld,
    keys: dict[str, str],
    tmp_path: Path,
) -> None:
    one = bundle()
    await upload(world, keys["ann"], one)
    spec = {**bundled_spec(tmp_path, one), **change}
    answer = await world.http.post("/v1/jobs", json=spec, headers=bearer(keys["ann"]))
    assert answer.status_code == 422
    if pointer:
        assert answer.json()["errors"][0]["pointer"] == pointer
    else:
        assert "may not load from a spec" in answer.text


def test_store_when_full_then_drops_what_was_named_longest_ago(tmp_path: Path) -> None:
    settings = RouterSettings(runs_dir=tmp_path, bundle_store_bytes=25_000)
    store = BundleStore(settings)
    made = [bundle(str(n).encode()) for n in range(3)]
    for number, one in enumerate(made):
        store.put(one.digest, one.archive, owner="ann")
        path = next(tmp_path.rglob(f"{one.digest.partition(':')[2]}.tar"))
        os.utime(path, (number, number))
    assert {d.digest for d in store.page(None)} == {one.digest for one in made[1:]}
