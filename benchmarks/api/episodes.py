"""Pages over many recorded episodes, and single ones."""

import json
import time
from pathlib import Path
from typing import Any

import httpx

from benchmarks.api.router import JOB, Bench
from benchmarks.report import percentile


def write_run(run_dir: Path, num_episodes: int, num_steps: int) -> None:
    """The files of a job that has run for a while."""
    with (run_dir / "metrics.jsonl").open("w") as file:
        for step in range(num_steps):
            phases = dict.fromkeys(("generate", "env", "learn", "publish", "other"), 0.5)
            line = {"kind": "train", "step": step, "phases": phases, "wall_s": 2.5}
            line |= dict.fromkeys(("reward_mean", "loss", "entropy", "kl_rollout"), 0.25)
            file.write(json.dumps(line) + "\n")
    with (run_dir / "episodes.jsonl").open("w") as file:
        for number in range(num_episodes):
            file.write(json.dumps(_episode(number)) + "\n")


def _episode(number: int) -> dict[str, Any]:
    step, position = divmod(number, 100)
    name = f"{JOB}/train-{step:05d}/{position:05d}"
    groups = [
        {
            "group_id": f"{name}/{agent}/t00",
            "agent": agent,
            "turn": 0,
            "policy": "p",
            "policy_version": step,
            "prompt": [{"role": "user", "content": "Find the way through the grid. " * 8}],
            "candidates": [
                {
                    "index": i,
                    "turn": 0,
                    "text": "plan U U L L D D R",
                    "reward": (number * 7 + i) % 100 / 100,
                    "team_reward": 0.5,
                    "local_rewards": {"format": 1.0},
                    "is_chosen": i == 0,
                    "is_done": True,
                    "is_success": False,
                    "is_truncated": False,
                }
                for i in range(4)
            ],
        }
        for agent in ("tool", "planner")
    ]
    return {
        "episode_id": name,
        "round_id": f"train-{step:05d}",
        "kind": "train",
        "step": step,
        "task_id": f"plan_path/train/{number % 5000}",
        "is_success": number % 3 == 0,
        "num_turns": 1,
        "team_return": 0.5,
        "num_tokens": 80,
        "wall_s": 0.4,
        "groups": groups,
    }


def measure_pages(bench: Bench, num_episodes: int, rounds: int) -> dict[str, Any]:
    """Times of pages of episodes, of all orders and filters, and of walking through them."""
    path = f"/v1/jobs/{JOB}/episodes"
    filters: list[dict[str, str]] = [
        {},
        {"order": "oldest"},
        {"order": "reward_desc"},
        {"order": "reward_asc", "agent": "tool"},
        {"failure": "any"},
        {"failure": "none", "order": "oldest"},
        {"agent": "planner", "min_reward": "0.4", "max_reward": "0.6"},
        {"min_reward": "0.9"},
        {"kind": "train"},
        {"kind": "train", "failure": "any", "order": "reward_asc"},
        {"failure": "unsolved", "min_reward": "0.3"},
        {"step": str(num_episodes // 200)},
        {"task_id": "plan_path/train/17"},
    ]
    times: list[float] = []
    with httpx.Client(base_url=bench.url, timeout=60.0, trust_env=False) as http:
        started = time.perf_counter()
        while not http.get(path, params={"limit": "1"}).json()["is_complete"]:
            pass
        index_s = time.perf_counter() - started
        for wanted in filters:
            cursor: dict[str, str] = {}
            for _ in range(rounds):
                started = time.perf_counter()
                page = http.get(path, params={**wanted, **cursor}).json()
                times.append((time.perf_counter() - started) * 1000)
                if page["next_cursor"] is None:
                    break
                cursor = {"cursor": page["next_cursor"]}
        tree: list[float] = []
        for number in range(0, num_episodes, max(1, num_episodes // 20)):
            step, position = divmod(number, 100)
            started = time.perf_counter()
            answer = http.get(f"{path}/train-{step:05d}-{position:05d}")
            tree.append((time.perf_counter() - started) * 1000)
            assert answer.status_code == 200, answer.text
    return {
        "episodes": num_episodes,
        "index_s": round(index_s, 2),
        "pages": len(times),
        "page_ms_p50": round(percentile(times, 0.5), 2),
        "page_ms_p95": round(percentile(times, 0.95), 2),
        "page_ms_max": round(max(times), 2),
        "episode_ms_p50": round(percentile(tree, 0.5), 2),
        "episode_ms_max": round(max(tree), 2),
    }
