"""What REST shows of a run: curves, steps, episodes, checkpoints, logs."""

import io
import json
import struct
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from rest_world import (
    RestWorld,
    episode_line,
    rest_world,
    spec_document,
    write_lines,
)

from troupe.api.records.v1 import records_pb2 as pb
from troupe.ids import train_round
from troupe.runtime.streams import keys
from troupe.runtime.streams.ledger import StepLedger

JOB = "/v1/jobs/demo-1"
AHEAD = {"max_staleness": 2, "algorithm": {"group_size": 2, "loss": {"importance": {}}}}


@pytest.fixture
async def world(redis: Redis, tmp_path: Path) -> AsyncIterator[RestWorld]:
    async with rest_world(redis, tmp_path) as found:
        answer = await found.http.post("/v1/jobs", json=spec_document(tmp_path))
        assert answer.status_code == 201, answer.text
        yield found


@pytest.fixture
def run_dir(world: RestWorld) -> Path:
    return world.settings.runs_dir / "demo-1"


async def get(world: RestWorld, path: str, **params: Any) -> Any:
    answer = await world.http.get(JOB + path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_metrics_are_series_with_dotted_names_and_bucket_means(
    world: RestWorld, run_dir: Path
) -> None:
    lines = [
        {"kind": "train", "step": i, "reward_mean": float(i), "phases": {"learn": 1.0 + i}}
        for i in range(4)
    ]
    lines.insert(0, {"kind": "eval", "step": 0, "success": 0.25})
    write_lines(run_dir / "metrics.jsonl", lines)
    found = await get(world, "/metrics")
    assert found["train"]["steps"] == [0, 1, 2, 3]
    assert found["train"]["series"]["phases.learn"] == [1.0, 2.0, 3.0, 4.0]
    assert found["eval"] == {"steps": [0], "series": {"success": [0.25]}}
    assert found["names"] == ["phases.learn", "reward_mean", "success"]
    halved = await get(world, "/metrics", names=["phases"], max_points=2)
    assert halved["train"] == {"steps": [1, 3], "series": {"phases.learn": [1.5, 3.5]}}
    assert (await get(world, "/metrics", from_step=3))["train"]["steps"] == [3]


async def test_metrics_of_names_that_no_line_has_are_told_apart(
    world: RestWorld, run_dir: Path
) -> None:
    asked = {"names": ["success", "nope", "phase", "phases", "nope"]}
    before = await get(world, "/metrics", **asked)
    assert before["names"] == []
    assert before["unknown"] == ["nope", "phase", "phases", "success"]
    train = {"kind": "train", "step": 0, "phases": {"learn": 1.0}}
    write_lines(run_dir / "metrics.jsonl", [{"kind": "eval", "step": 0, "success": 0.5}, train])
    found = await get(world, "/metrics", **asked)
    assert found["unknown"] == ["nope", "phase"]
    assert found["names"] == ["phases.learn", "success"]
    assert found["train"]["series"] == {"phases.learn": [1.0]}
    assert (await get(world, "/metrics"))["unknown"] == []


async def test_metrics_follow_a_file_that_grows_and_one_that_was_cut(
    world: RestWorld, run_dir: Path
) -> None:
    path = run_dir / "metrics.jsonl"
    write_lines(path, [{"kind": "train", "step": 0, "loss": 1.0}])
    assert (await get(world, "/metrics"))["train"]["steps"] == [0]
    with path.open("a") as file:
        file.write('{"kind": "train", "step": 1, "loss": NaN}\n{"kind": "tra')
    assert (await get(world, "/metrics"))["train"]["series"]["loss"] == [1.0, None]
    write_lines(path, [{"kind": "train", "step": 0, "loss": 5.0}])
    assert (await get(world, "/metrics"))["train"]["series"]["loss"] == [5.0]


async def test_etag_of_an_unchanged_answer_gives_304(world: RestWorld) -> None:
    first = await world.http.get(JOB)
    again = await world.http.get(JOB, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    await world.store.set_step("demo-1", 1)
    changed = await world.http.get(JOB, headers={"If-None-Match": first.headers["etag"]})
    assert (changed.status_code, changed.json()["step"]) == (200, 1)


async def test_steps_page_back_and_one_step_says_what_is_known(
    world: RestWorld, run_dir: Path
) -> None:
    write_lines(
        run_dir / "metrics.jsonl",
        [{"kind": "train", "step": i, "wall_s": 2.0} for i in range(3)],
    )
    (run_dir / "groups.jsonl").write_text('{"step": 1, "policy": "p", "group_ids": ["a", "b"]}\n')
    write_lines(
        run_dir / "episodes.jsonl",
        [
            episode_line("demo-1", "train-00001", 0, rewards=(1.0, 0.0), is_success=True),
            episode_line("demo-1", "train-00001", 1, rewards=(0.0, 0.0)),
        ],
    )
    page = await get(world, "/steps", limit=2)
    assert [line["step"] for line in page["steps"]] == [2, 1]
    rest = await get(world, "/steps", cursor=page["next_cursor"])
    assert ([line["step"] for line in rest["steps"]], rest["next_cursor"]) == ([0], None)
    step = await get(world, "/steps/1")
    assert (step["state"], step["trained_groups"]) == ("recorded", {"p": 2})
    assert step["episodes"] == {"num": 2, "num_success": 1, "num_dropped": 0}
    assert (await get(world, "/steps/2"))["state"] == "recorded"
    assert (await world.http.get(f"{JOB}/steps/9")).status_code == 404


async def test_episodes_filter_order_and_page_without_a_gap(
    world: RestWorld, run_dir: Path
) -> None:
    lines = [
        episode_line("demo-1", f"train-{i // 5:05d}", i % 5, rewards=(i / 10, 0.0))
        for i in range(20)
    ]
    lines.append(episode_line("demo-1", "eval-00000", 0, rewards=(9.0,), is_success=True))
    write_lines(run_dir / "episodes.jsonl", lines)
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = await get(world, "/episodes", limit=7, order="reward_asc", kind="train", **cursor)
        assert (page["total"], page["is_complete"]) == (20, True)
        seen += [row["id"] for row in page["episodes"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert seen == [f"train-{i // 5:05d}-{i % 5:05d}" for i in range(20)]
    assert (await get(world, "/episodes", step=2))["total"] == 5
    assert (await get(world, "/episodes", failure="none"))["total"] == 1
    assert (await get(world, "/episodes", agent="tool", min_reward=0.9))["total"] == 3
    assert (await get(world, "/episodes", agent="nobody"))["total"] == 0
    newest = (await get(world, "/episodes", limit=1))["episodes"][0]
    assert (newest["id"], newest["agents"]["tool"]["reward_mean"]) == ("eval-00000-00000", 9.0)


async def test_cursor_of_another_filter_or_of_nowhere_is_422(
    world: RestWorld, run_dir: Path
) -> None:
    write_lines(
        run_dir / "episodes.jsonl",
        [episode_line("demo-1", "train-00000", i, rewards=(0.0,)) for i in range(3)],
    )
    cursor = (await get(world, "/episodes", limit=1))["next_cursor"]
    for path, params in (
        ("/episodes", {"cursor": cursor, "kind": "train"}),
        ("/episodes", {"cursor": "nonsense"}),
        ("/episodes", {"cursor": "W10="}),
        ("/steps", {"cursor": "-1"}),
        ("/events", {"after": "yesterday"}),
        ("/events", {"after": "99999999999999999999-0"}),
    ):
        answer = await world.http.get(JOB + path, params=params)
        assert (answer.status_code, answer.json()["reason"]) == (422, "INVALID_ARGUMENT"), path
    jobs = await world.http.get("/v1/jobs", params={"cursor": "nowhere"})
    assert jobs.status_code == 422


async def test_episode_shows_siblings_with_hand_computed_advantages_and_parts(
    world: RestWorld, run_dir: Path
) -> None:
    write_lines(
        run_dir / "episodes.jsonl",
        [
            episode_line("demo-1", "train-00000", 0, rewards=(1.0, 0.0)),
            episode_line("demo-1", "train-00001", 0, rewards=(0.5, 0.5)),
        ],
    )
    found = await get(world, "/episodes/train-00000-00000")
    group = found["turns"][0]["groups"][0]
    # Two rewards 1 and 0: mean 0.5, sample deviation sqrt(0.5).
    assert [c["advantage"] for c in group["candidates"]] == pytest.approx(
        [0.5 / 0.5**0.5, -0.5 / 0.5**0.5], abs=1e-4
    )
    assert group["candidates"][0]["reward_parts"][0] == {
        "term": "team",
        "value": 1.0,
        "weight": 1.0,
        "contribution": 1.0,
    }
    assert group["prompts"] == [
        [{"role": "user", "content": "<b>go</b>", "parts": [], "tool_calls": []}]
    ]
    assert found["task"]["split"] == "train"
    assert [other["id"] for other in found["others"]] == ["train-00001-00000"]
    missing = await world.http.get(f"{JOB}/episodes/train-00007-00000")
    assert missing.status_code == 404


async def test_advantages_are_the_trainers_own_once_a_checkpoint_covers_the_step(
    world: RestWorld, run_dir: Path
) -> None:
    write_lines(
        run_dir / "episodes.jsonl",
        [episode_line("demo-1", "train-00002", i, rewards=(1.0, 0.0)) for i in range(2)],
    )

    async def shown(position: int) -> tuple[Any, list[float | None]]:
        found = await get(world, f"/episodes/train-00002-0000{position}")
        group = found["turns"][0]["groups"][0]
        return group["advantages_from"], [c["advantage"] for c in group["candidates"]]

    assert (await shown(0))[0] == "rewards"
    first = "demo-1/train-00002/00000/tool/t00"
    line = {"step": 2, "policy": "p", "group_ids": [first], "advantages": [[0.75, -0.25]]}
    write_lines(run_dir / "groups.jsonl", [{**line, "step": 1}, line])
    assert await shown(0) == ("trainer", [0.75, -0.25])
    assert await shown(1) == ("untrained", [None, None])
    del line["advantages"]  # as an earlier version wrote it
    write_lines(run_dir / "groups.jsonl", [line])
    assert (await shown(0))[0] == "rewards"


async def test_index_follows_a_file_that_was_cut_and_written_anew(
    world: RestWorld, run_dir: Path
) -> None:
    path = run_dir / "episodes.jsonl"
    write_lines(path, [episode_line("demo-1", "train-00000", i, rewards=(0.0,)) for i in range(5)])
    assert (await get(world, "/episodes"))["total"] == 5
    write_lines(path, [episode_line("demo-1", "train-00000", i, rewards=(1.0,)) for i in range(2)])
    page = await get(world, "/episodes", min_reward=1.0)
    assert [row["id"] for row in page["episodes"]] == ["train-00000-00001", "train-00000-00000"]
    (run_dir / ".episodes.sqlite").write_bytes(b"this is no database" * 100)
    await world.http.get(f"{JOB}/episodes")
    assert (await get(world, "/episodes"))["total"] == 2


def _safetensors(tensors: dict[str, bytes]) -> bytes:
    header: dict[str, Any] = {}
    place = 0
    for name, data in tensors.items():
        shape = [len(data) // 4]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [place, place + len(data)]}
        place += len(data)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(tensors.values())


async def test_checkpoint_downloads_as_an_adapter_with_its_own_names(
    world: RestWorld, run_dir: Path
) -> None:
    folder = run_dir / "checkpoints" / "step-00002"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text('{"step": 2, "versions": {"p": 2}}')
    name = "base_model.model.model.layers.0.q_proj.lora_A.default.weight"
    (folder / "p.safetensors").write_bytes(
        _safetensors({f"adam.exp_avg/{name}": b"\0" * 8, f"param/{name}": b"\1\2\3\4" * 2})
    )
    (run_dir / "policies" / "p" / "merged").mkdir(parents=True)
    (run_dir / "policies" / "p" / "merged" / "config.json").write_text("{}")
    listed = (await get(world, "/checkpoints"))["checkpoints"]
    assert [(c["id"], c["policies"][0]["formats"]) for c in listed] == [
        ("final", ["merged"]),
        ("step-00002", ["peft", "state"]),
    ]
    answer = await world.http.get(f"{JOB}/checkpoints/step-00002/p")
    assert answer.status_code == 200
    assert int(answer.headers["content-length"]) == len(answer.content)
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as tar:
        stem = "demo-1-step-00002-p-peft"
        adapter = tar.extractfile(f"{stem}/adapter_model.safetensors")
        config = tar.extractfile(f"{stem}/adapter_config.json")
        assert adapter is not None
        assert config is not None
        data = adapter.read()
        assert json.loads(config.read())["target_modules"] == ["q_proj"]
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert set(header) == {"__metadata__", name.replace(".default", "")}
    assert data[8 + length :] == b"\1\2\3\4" * 2
    other = await world.http.get(f"{JOB}/checkpoints/final/p", params={"format": "peft"})
    assert (other.status_code, "merged" in other.json()["detail"]) == (409, True)


@pytest.mark.parametrize(
    "path",
    [
        "/checkpoints/..%2F..%2Fdemo-1/p",
        "/checkpoints/final/..%2F..%2F..%2Fetc",
        "/checkpoints/.staging-step-00001/p",
        "/logs/..%2Fspec.json",
        "/logs/%2Fetc%2Fpasswd",
        "/logs/.hidden",
        "/episodes/..%2F..%2Fx",
    ],
)
async def test_paths_that_lead_out_of_the_run_folder_are_404(world: RestWorld, path: str) -> None:
    answer = await world.http.get(JOB + path)
    assert (answer.status_code, answer.json()["reason"]) == (404, "NOT_FOUND")


async def test_links_in_an_exported_folder_are_not_followed(
    world: RestWorld, run_dir: Path
) -> None:
    folder = run_dir / "policies" / "p" / "adapter"
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text("{}")
    (folder / "secret").symlink_to("/etc/hostname")
    answer = await world.http.get(f"{JOB}/checkpoints/final/p")
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as tar:
        assert tar.getnames() == ["demo-1-final-p-peft/adapter_config.json"]


async def test_logs_give_the_tail_and_then_what_is_new(world: RestWorld, run_dir: Path) -> None:
    folder = run_dir / "logs"
    folder.mkdir()
    (folder / "trainer-0.log").write_bytes(b"one\ntwo\nthree\nfo")
    listed = (await get(world, "/logs"))["components"]
    assert [(c["component"], c["size_bytes"]) for c in listed] == [("trainer-0", 16)]
    page = await get(world, "/logs/trainer-0", tail=2)
    assert (page["lines"], page["start"], page["next"]) == (["two", "three"], 4, 14)
    with (folder / "trainer-0.log").open("ab") as file:
        file.write(b"ur\n")
    page = await get(world, "/logs/trainer-0", after=page["next"])
    assert (page["lines"], page["next"]) == (["four"], 19)
    assert (await get(world, "/logs/trainer-0", after=19))["lines"] == []
    plain = await world.http.get(f"{JOB}/logs/trainer-0", headers={"Accept": "text/plain"})
    assert plain.text == "one\ntwo\nthree\nfour\n"


async def test_progress_of_a_queued_job_says_that_it_waits(world: RestWorld) -> None:
    found = await get(world, "/progress")
    assert (found["state"], found["waiting"]["phase"]) == ("queued", "queue")
    assert found["versions"] == {}


@pytest.mark.parametrize(("more", "pace_s"), [({}, 4.0), (AHEAD, 1.5)])
async def test_pace_when_rounds_are_played_ahead_then_is_from_the_end_of_a_step_to_the_next(
    more: dict[str, Any], pace_s: float, redis: Redis, tmp_path: Path
) -> None:
    async with rest_world(redis, tmp_path) as world:
        document = spec_document(tmp_path, steps=8, **more)
        assert (await world.http.post("/v1/jobs", json=document)).status_code == 201
        ledger, lines = StepLedger(redis, "demo-1"), list[dict[str, Any]]()
        for step, ended_at in enumerate((1004.0, 1005.0, 1007.0, 1107.0)):
            name = train_round(step)
            await ledger.open_round(name, pb.ROUND_KIND_TRAIN, step, [])
            opened_at = ended_at - 4.0
            await redis.hset(keys.round_state("demo-1", name), "opened_at", str(opened_at))
            line = {"kind": "train", "step": step, "wall_s": 4.0, "interrupted": step == 3}
            lines.append(line)
        write_lines(world.settings.runs_dir / "demo-1" / "metrics.jsonl", lines)
        await world.store.set_step("demo-1", 4)
        found = await get(world, "/progress")
    assert (found["seconds_per_step"], found["eta_s"]) == (pace_s, 4 * pace_s)
