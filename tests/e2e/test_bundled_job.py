"""A file of one's own, from a laptop's folder to a job on a router that others reach too."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from troupe.bundles.archive import digest_of_archive
from troupe.clients.rest import RestClient
from troupe.clients.rest.keys import add_key
from troupe_env.bundles import landlock

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not landlock.abi(), reason="this kernel has no Landlock"),
]

TASK = """
from troupe import SimpleTask
from words import OPTIONS

class Repeat(SimpleTask):
    agents = ("first", "second")

    def draw(self, rng):
        return {"word": rng.choice(OPTIONS), "number": rng.randrange(10**6)}

    def observe(self, state, agent):
        return f"say {state['word']}"

    def step(self, state, agent, action):
        return self.transition(state, float(len(action) % 3), done=agent == "second")

    def demonstrate(self, state, agent, rng):
        return "up"
"""
REWARD = (
    "def brief(transition, task, *, limit: int = 20):\n    return len(transition.action) / limit\n"
)


@dataclass(frozen=True)
class Laptop:
    """A user's folder, key and the router's URL."""

    folder: Path
    url: str
    key: str

    def troupe(self, *args: str) -> "subprocess.CompletedProcess[str]":
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_")}
        return subprocess.run(
            [sys.executable, "-m", "troupe.cli", *args],
            cwd=self.folder,
            env={**environment, "TROUPE_API_KEY": self.key, "TROUPE_REST_URL": self.url},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


@pytest.fixture
def laptop(
    tmp_path: Path, free_port: Callable[[], int], redis_url: str, tiny_base: Path
) -> Iterator[Laptop]:
    """A router on all addresses, with keys; and a folder that it does not know."""
    server, mine = tmp_path / "server", tmp_path / "laptop"
    server.mkdir()
    (mine / "rewards").mkdir(parents=True)
    (mine / "my_task.py").write_text(TASK)
    (mine / "words.py").write_text("OPTIONS = ['up', 'down']\n")
    (mine / "rewards/short.py").write_text(REWARD)
    rest, grpc, admin = free_port(), free_port(), free_port()
    key = add_key(server / "keys.yaml", "ann", ("code",))
    settings = {
        "REST_ADDRESS": f"0.0.0.0:{rest}",
        "GRPC_ADDRESS": f"127.0.0.1:{grpc}",
        "ADMIN_ADDRESS": f"127.0.0.1:{admin}",
        "REDIS_URL": redis_url,
        "RUNS_DIR": str(server / "runs"),
        "API_KEYS": str(server / "keys.yaml"),
        "MODEL_FOLDERS": str(tiny_base.parent),
        "BUNDLES": "true",
    }
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "troupe_router"],
        cwd=server,
        env={**environment, **{f"TROUPE_ROUTER_{k}": v for k, v in settings.items()}},
    )
    url = f"http://127.0.0.1:{rest}"
    try:
        with RestClient(url, api_key=key, retry_for_s=60) as client:
            client.jobs()
        yield Laptop(mine, url, key)
    finally:
        process.terminate()
        process.wait(60)


def document(tiny_base: Path) -> dict[str, Any]:
    return {
        "name": "mine",
        "steps": 2,
        "tasks_per_step": 4,
        "task": {"name": "my_task.py:Repeat"},
        "reward": {"kind": "rewards/short.py:brief", "weight": 0.5, "params": {"limit": 30}},
        "workflow": {"order": ["first", "second"], "max_turns": 1},
        "agents": {"first": {"policy": "shared"}, "second": {"policy": "shared"}},
        "policies": {"shared": {"model": str(tiny_base), "train": {"kind": "lora", "rank": 4}}},
        "algorithm": {"kind": "at_grpo", "group_size": 3},
        "sampling": {"max_new_tokens": 6},
        "eval": {"num_tasks": 4},
    }


def test_file_of_a_user_when_submitted_to_a_remote_router_then_is_tried_and_trained_there(
    laptop: Laptop, tiny_base: Path
) -> None:
    (laptop.folder / "job.yaml").write_text(json.dumps(document(tiny_base)))
    code = ("--with", "my_task.py", "--with", "words.py", "--with", "rewards")
    there = ("--on", laptop.url, *code)
    tried = laptop.troupe("dryrun", "job.yaml", "--set", "policies.shared.model=models/x", *there)
    assert tried.returncode == 0, tried.stderr
    assert tried.stdout.count("team return") == 3
    assert "repeat/train/0" in tried.stdout
    assert "warning: /policies/shared/model" in tried.stderr
    alone = laptop.troupe("dryrun", "my_task.py:Repeat", "--num-tasks", "1", *there)
    assert (alone.returncode, alone.stdout.count("team return")) == (0, 1), alone.stderr
    assert "warning" not in alone.stderr

    alone = laptop.troupe("submit", "job.yaml")
    assert alone.returncode != 0
    assert "may not load" in alone.stderr
    forgotten = laptop.troupe("submit", "job.yaml", "--with", "my_task.py", "--with", "rewards")
    assert forgotten.returncode != 0
    assert "No module named 'words'" in forgotten.stderr

    submitted = laptop.troupe("submit", "job.yaml", *code, "--json")
    assert submitted.returncode == 0, submitted.stderr
    job = json.loads(submitted.stdout)
    watched = laptop.troupe("watch", job["job_id"], "--json")
    assert watched.returncode == 0, watched.stderr
    assert json.loads(watched.stdout)["state"] == "succeeded"

    run_dir = Path(job["run_dir"])
    archive = (run_dir / "bundle.tar").read_bytes()
    assert digest_of_archive(archive) == job["spec"]["bundle"]["digest"]
    lines = [json.loads(x) for x in (run_dir / "episodes.jsonl").read_text().splitlines()]
    rewards = lines[0]["groups"][0]["candidates"][0]["local_rewards"]
    assert "brief" in rewards
    with RestClient(laptop.url, api_key=laptop.key) as client:
        shown = client.episodes(job["job_id"]).episodes[0]
        tree = client.episode(job["job_id"], shown.id)
    terms = {p.term: p.weight for p in tree.turns[0].groups[0].candidates[0].reward_parts}
    assert terms["brief"] == 0.5
    assert not list(run_dir.rglob("dryrun-*"))
    assert not list(run_dir.parent.glob("dryrun-*"))
    logs = "".join(path.read_text() for path in (run_dir / "logs").glob("trainer*.log"))
    assert "my_task" not in logs

    (laptop.folder / "my_task.py").write_text("raise RuntimeError('not what the run was made of')")
    again = laptop.troupe("eval", str(run_dir), "--num-tasks", "3", "--ports", "auto", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["state"] == "succeeded"
    team = laptop.troupe("eval", "--team", str(run_dir))
    assert team.returncode == 2
    assert f"troupe eval {run_dir}" in team.stderr
