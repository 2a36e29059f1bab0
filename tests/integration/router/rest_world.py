"""A REST application over a real Valkey, with a run folder that a job has left."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from redis.asyncio import Redis

from troupe.runtime.disk_space import DiskSpace
from troupe_router.jobs.store import JobStore
from troupe_router.jobs.submit import JobCommands
from troupe_router.members.store import MemberStore
from troupe_router.rest.access.api_keys import KeyStore
from troupe_router.rest.app import create_app
from troupe_router.rest.event_fanout import EventFanout
from troupe_router.rest.parts import RestParts
from troupe_router.settings import RouterSettings


@dataclass
class RestWorld:
    """The application and what stands behind it."""

    http: httpx.AsyncClient
    app: Any
    store: JobStore
    fanout: EventFanout
    redis: Redis
    members: MemberStore
    settings: RouterSettings


@asynccontextmanager
async def rest_world(
    redis: Redis, tmp_path: Path, *, headers: Mapping[str, str] | None = None, **settings: Any
) -> AsyncIterator[RestWorld]:
    """A world with these settings of the router."""
    found = RouterSettings(runs_dir=tmp_path / "runs", **settings)
    store, members = JobStore(redis), MemberStore(redis, ttl_s=5)
    keys = KeyStore(found.api_keys)
    hub = EventFanout(
        redis,
        store,
        blocking=redis,
        max_streams=found.max_streams,
        max_of_caller=found.max_streams_per_caller,
    )
    commands = JobCommands(found, redis, store, keys.replica_limits)

    disk = DiskSpace(found.runs_dir, needed_bytes=found.min_free_bytes)

    async def is_ready() -> bool:
        return True

    app = create_app(RestParts(found, redis, store, commands, members, hub, is_ready, disk, keys))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    client = httpx.AsyncClient(transport=transport, base_url="http://router", headers=headers)
    async with client:
        yield RestWorld(client, app, store, hub, redis, members, found)
    await hub.close()


def spec_document(tmp_path: Path, **more: Any) -> dict[str, Any]:
    """Two agents, one policy; its model folder exists."""
    model = tmp_path / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text("{}")
    return {
        "name": "demo",
        "steps": 2,
        "tasks_per_step": 3,
        "task": {"name": "plan_path", "params": {"size": 6}},
        "workflow": {"order": ["tool", "planner"], "max_turns": 4},
        "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
        "policies": {"p": {"model": str(model)}},
        "algorithm": {"group_size": 2},
        "sampling": {"max_new_tokens": 10},
        **more,
    }


def episode_line(
    job_id: str, round_id: str, position: int, *, rewards: tuple[float, ...], **more: Any
) -> dict[str, Any]:
    """A line of episodes.jsonl: the tool acts once, with these rewards; the first is executed."""
    kind, _, step = round_id.partition("-")
    episode_id = f"{job_id}/{round_id}/{position:05d}"
    candidates = [
        {
            "index": index,
            "turn": 0,
            "text": f"plan {index}",
            "reward": reward,
            "team_reward": reward,
            "local_rewards": {"format": 0.0},
            "is_chosen": index == 0,
            "is_done": True,
            "is_success": False,
            "is_truncated": False,
        }
        for index, reward in enumerate(rewards)
    ]
    group = {
        "group_id": f"{episode_id}/tool/t00",
        "agent": "tool",
        "turn": 0,
        "policy": "p",
        "policy_version": int(step),
        "prompt": [{"role": "user", "content": "<b>go</b>"}],
        "generate_s": 0.1,
        "env_s": 0.1,
        "candidates": candidates,
    }
    return {
        "episode_id": episode_id,
        "round_id": round_id,
        "kind": kind,
        "step": int(step),
        "task_id": f"plan_path/train/{position}",
        "is_success": False,
        "num_turns": 1,
        "team_return": rewards[0],
        "num_tokens": 8,
        "wall_s": 0.5,
        "groups": [group],
        **more,
    }


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    """Write a JSON-lines file."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
