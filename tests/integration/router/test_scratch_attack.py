import json, os, shutil, asyncio
import pytest
from pathlib import Path
from dataclasses import replace
from test_lost_redis import add, importing, left_by_a_run, world  # noqa
from redis.asyncio import Redis
from rest_world import *
from troupe_router.conduct.run_folder_keeper import RunFolderKeeper
from troupe_router.run.pruning import RunPruning
from troupe_router.jobs.submit import JobCommands

def alter(run_dir, file="job.json", **kw):
    d = json.loads((run_dir/file).read_text()); d.update(kw); (run_dir/file).write_text(json.dumps(d))

HOSTILE_JOB = [
 {"reason":"\ud800"}, {"owner":"\ud800"}, {"reason":"\x00"}, {"tracked":{"\ud800":1}}, {"tracked":{"0":10**400}}, {"tracked":{"0":-5}},{"tracked":{"../x":5}},{"tracked":{"a"*10**4:5}},
 {"created_at":1e15}, {"created_at":2**53-1}, {"life":2**31-1}, {"step":2**31-1}, {"priority":101}, {"version":2**70}, {"state":"??"}, {"job_id":"../../etc"}, {"job_id":"demo-2"},
 {"ended_at":9e15}, {"started_at":5e-324}, {"created_at":5e-324},
]
@pytest.mark.parametrize("kw", HOSTILE_JOB, ids=lambda k: str(ascii(k))[:50])
async def test_hostile_job(world, tmp_path, kw):
    d = await add(world, tmp_path, "demo-1", "succeeded", ended_at=1.7e9+5)
    await add(world, tmp_path, "demo-2", "succeeded", ended_at=1.7e9+5)
    left_by_a_run(d)
    alter(d, **kw)
    await world.redis.flushall()
    out = (await world.http.post("/v1/run-folders/import"))
    print(out.status_code, out.text[:300])
    assert out.status_code == 200
    assert "demo-2" in out.json()["imported"]
    for p in ("/v1/jobs","/v1/jobs?limit=1","/v1/run-folders","/v1/jobs/demo-1","/v1/jobs/demo-1/events","/v1/jobs/demo-1/progress","/v1/jobs/demo-1/metrics","/v1/quota"):
        a = await world.http.get(p); assert a.status_code in (200,404), (p,a.status_code,a.text[:200])
    from troupe_router.run.retention import RetentionLimits
    a = await world.http.delete("/v1/run-folders", params={"max_age_s": 1, "dry_run": True}); assert a.status_code==200,a.text

HOSTILE_SPEC = [
 {"name":"\ud800"}, {"task":{"name":"plan_path","params":{"x":"\ud800"}}}, {"steps":10**400}, {"steps":1e999}, {"seed":float("nan")},
 {"task":{"name":"../../x","params":{}}}, {"policies":{"p":{"model":"/etc/passwd"}}},{"policies":{"\ud800":{"model":"x"}}}, {"agents":{"tool":{"policy":"p","prompt":"\ud800"}}},
 {"task":{"name":"plan_path","params":{"x":float("inf")}}},{"task":{"name":"plan_path","params":{"x":10**4000}}},{"name":"x"*10**6},{"trackers":[{"kind":"csv","options":{"a":"\udc00"}}]},
]
@pytest.mark.parametrize("kw", HOSTILE_SPEC, ids=lambda k: str(ascii(k))[:50])
async def test_hostile_spec(world, tmp_path, kw):
    d = await add(world, tmp_path, "demo-1", "succeeded", ended_at=1.7e9+5)
    await add(world, tmp_path, "demo-2", "succeeded", ended_at=1.7e9+5)
    s = json.loads((d/"spec.json").read_text()); s.update(kw); (d/"spec.json").write_text(json.dumps(s))
    await world.redis.flushall()
    out = (await world.http.post("/v1/run-folders/import"))
    print(out.status_code, out.text[:500])
    assert out.status_code == 200
    assert "demo-2" in out.json()["imported"]
    for p in ("/v1/jobs","/v1/jobs/demo-1","/v1/jobs/demo-1/spec","/v1/jobs/demo-1/events","/v1/run-folders"):
        a = await world.http.get(p); assert a.status_code in (200,404), (p,a.status_code,a.text[:200])

def deep(n): return "["*n+"]"*n
HOSTILE_RAW = [("spec.json", '{"name":"demo","task":'+deep(5000)+'}'),("spec.json", '{"name":"demo","task":'+deep(900)+'}'),("spec.json", '{"name":"demo","steps":2,"task":{"name":"plan_path","params":{"x":'+deep(200)+'}}}'),
 ("job.json", deep(50000)), ("job.json",'{"tracked":'+'{"a":'*190+'1'+'}'*190+'}'),("summary.json", deep(100000)), ("spec.json","{}"),("spec.json","[]"),("spec.json","\0"*1000),("job.json","\0"*1000),("events.jsonl","\0"*1000),("events.jsonl","[]\n"),
 ("events.jsonl", deep(100000)+"\n"),("spec.json", "null"), ("job.json","null")]
@pytest.mark.parametrize("name,text", HOSTILE_RAW, ids=lambda k: str(k)[:30])
async def test_hostile_raw(world, tmp_path, name, text):
    d = await add(world, tmp_path, "demo-1", "succeeded", ended_at=1.7e9+5)
    await add(world, tmp_path, "demo-2", "succeeded", ended_at=1.7e9+5)
    (d/name).write_text(text)
    if name=="summary.json": (d/"job.json").unlink()
    await world.redis.flushall()
    out = (await world.http.post("/v1/run-folders/import"))
    print(out.status_code, out.text[:500])
    assert out.status_code == 200
    assert "demo-2" in out.json()["imported"]
    for p in ("/v1/jobs","/v1/jobs/demo-1","/v1/jobs/demo-1/spec","/v1/jobs/demo-1/events","/v1/run-folders"):
        a = await world.http.get(p); assert a.status_code in (200,404), (p,a.status_code,a.text[:200])

EV = {"id":"1700000000000-9","type":"x","occurred_at":1.7e9,"source":"s","event_id":"e","data":"{}"}
HOSTILE_EVENTS = [{"occurred_at":1e999},{"occurred_at":float("nan")},{"data":'{"a": NaN}'},{"data":'{"a": Infinity}'},{"data":'{"a": "\\ud800"}'},{"data":'{"a": '+"9"*5000+'}'},{"data":'{"a": '+"9"*4000+'}'},{"data":'{"a":'+deep(900)+'}'},{"data":'{"a":'+deep(90000)+'}'},
 {"type":""},{"type":"job.state","data":"{}"},{"type":"step.learned","data":"{}"},{"type":"round.played","data":"{}"},{"type":"records.lost","data":"{}"},{"id":"9223372036854775807-9223372036854775807"},{"id":"0-0"},{"id":"00001-00002"},{"type":"\ud800"},{"source":"\x00"},{"type":"x\ny"},{"type":"weights.published","data":'{"policy_version":"x"}'},{"event_id":""},{"data":'{"a":'+deep(400)+'}'}]
@pytest.mark.parametrize("kw", HOSTILE_EVENTS, ids=lambda k: str(ascii(k))[:40])
async def test_hostile_event(world, tmp_path, kw):
    d = await add(world, tmp_path, "demo-1", "succeeded", ended_at=1.7e9+5)
    await add(world, tmp_path, "demo-2", "succeeded", ended_at=1.7e9+5)
    left_by_a_run(d)
    (d/"events.jsonl").write_text(json.dumps({**EV, **kw})+"\n")
    await world.redis.flushall()
    out = (await world.http.post("/v1/run-folders/import"))
    print(out.status_code, out.text[:500])
    assert out.status_code == 200
    assert "demo-2" in out.json()["imported"]
    assert "demo-1" in out.json()["imported"]
    for p in ("/v1/jobs","/v1/jobs/demo-1","/v1/jobs/demo-1/spec","/v1/jobs/demo-1/events","/v1/jobs/demo-1/events?limit=1","/v1/run-folders","/v1/jobs/demo-1/progress","/v1/jobs/demo-1/metrics"):
        a = await world.http.get(p); assert a.status_code in (200,), (p,a.status_code,a.text[:200])
        print(p, a.text[:200]); json.loads(a.text, parse_constant=lambda c: 1/0)
    await world.store.set_priority("demo-1",1) if False else None
    from troupe.runtime.streams.events import EventLog
    await EventLog(world.redis,"demo-1",source="r").emit("after",{})
    a = await world.http.get("/v1/jobs/demo-1/events"); assert "after" in a.text

BAD_EP=["\0"*500, "[]\n", "{}\n", '{"episode_id":5}\n', deep(100000)+"\n", '{"episode_id":"\\ud800"}\n', "nan\n", '{"kind":"train","step":1e400,"episode_id":"demo-1/train-00001/00000"}\n','{"kind":"train","step":'+"9"*30+',"episode_id":"demo-1/train-00001/00000"}\n', '{"groups":5,"episode_id":"demo-1/train-00009/00000","step":9,"kind":"train"}\n']
@pytest.mark.parametrize("file", ["episodes.jsonl","metrics.jsonl","groups.jsonl"])
@pytest.mark.parametrize("text", BAD_EP, ids=lambda k: str(ascii(k))[:30])
@pytest.mark.parametrize("where", ["end","start"])
async def test_hostile_record_pages(world, tmp_path, text, file, where):
    d = await add(world, tmp_path, "demo-1", "succeeded", ended_at=1.7e9+5)
    left_by_a_run(d)
    old = (d/file).read_text() if (d/file).exists() else ""
    (d/file).write_text(old+text if where=="end" else text+old)
    bad=[]
    for p in ("/v1/jobs/demo-1/episodes","/v1/jobs/demo-1/episodes?failure=any&limit=1&order=oldest","/v1/jobs/demo-1/metrics","/v1/jobs/demo-1/steps","/v1/jobs/demo-1/steps/1","/v1/jobs/demo-1/progress","/v1/jobs/demo-1/episodes/train-00001-00000"):
        a = await world.http.get(p)
        if a.status_code>=500: bad.append((p,a.status_code,a.text[:150]))
        elif a.status_code==200: json.loads(a.text, parse_constant=lambda c: 1/0)
    assert not bad, bad
