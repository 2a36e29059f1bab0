"""A job whose reward is farmed says so itself, in events, watch, metrics, summary and report."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(580)]


def test_job_when_its_reward_is_farmed_then_says_that_the_reward_is_suspect(
    platform: Any, spec: dict[str, Any]
) -> None:
    planted = Path(__file__).parent / "planted_rewards.py"
    (platform.folder / planted.name).write_text(planted.read_text())
    document = {
        **spec,
        "name": "farmed",
        "steps": 20,
        "tasks_per_step": 8,
        "algorithm": {"kind": "at_grpo", "group_size": 8},
        "reward": {
            "kind": "planted_rewards:ups",
            "mode": "replace",
            "strict": "planted_rewards:way",
        },
        "eval": {"num_tasks": 0},
    }
    document["policies"]["shared"]["optimizer"] = {"learning_rate": 1e-2, "warmup_steps": 0}
    (platform.folder / "farmed.yaml").write_text(yaml.safe_dump(document))
    done = platform.troupe("train", "farmed.yaml", "--json", timeout_s=560)
    assert done.returncode == 0, done.stderr
    job_id = json.loads(done.stdout)["job_id"]
    run_dir = platform.run_dir(job_id)
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    rewards = [line["reward_mean"] for line in lines]
    assert rewards[-1] > 1.5 * rewards[0]
    suspect = [line["step"] for line in lines if line["is_suspect"]]
    assert suspect
    with platform.client() as client:
        events = [e for e in client.events(job_id) if e.type == "reward.suspect"]
    assert events[0].data["step"] == suspect[0]
    told = {episode["episode_id"] for episode in events[0].data["episodes"]}
    recorded = (run_dir / "episodes.jsonl").read_text().splitlines()
    assert told <= {json.loads(line)["episode_id"] for line in recorded}
    watched = platform.troupe("watch", job_id)
    assert "reward.suspect: Since step" in watched.stdout + watched.stderr
    assert json.loads((run_dir / "summary.json").read_text())["steps_suspect"] == suspect
    assert "## Suspect reward" in (run_dir / "report.md").read_text()
