"""A whole job with a pretrained model through the four services, its rollout a real SGLang."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from platform_world import Platform, start_platform
from smollm2_model import smollm2_folder

from troupe_rollout.engines.sglang.settings import PREFIX

pytestmark = pytest.mark.timeout(3000)

ROOT = Path(__file__).parents[2]
STEPS = 3
REPORTED = ("groups_trained", "kl_rollout", "ratio_max", "phases", "reward_mean")


@pytest.fixture(scope="module")
def platform(
    tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> Iterator[Platform]:
    more = {
        "PYTHONPATH": str(ROOT),  # the task is a file of examples/
        "TROUPE_ROLLOUT_ENGINE": "sglang",
        f"{PREFIX}DEVICE": "cpu",
        f"{PREFIX}WORK_DIR": str(tmp_path_factory.mktemp("work")),
        f"{PREFIX}MAX_TOTAL_TOKENS": "16384",
    }
    yield from start_platform(tmp_path_factory.mktemp("platform"), free_port, more)


def test_job_with_smollm2_on_sglang_when_it_ends_then_each_step_learnt_from_its_own_logprobs(
    platform: Platform,
) -> None:
    began = time.monotonic()
    with platform.client() as client:
        job = client.submit(spec_of(smollm2_folder()))
        events = list(client.events(job.job_id))
        ended = client.job(job.job_id)
    assert ended.state == "succeeded", ended
    run = platform.run_dir(job.job_id)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["kind"] == "train"]
    for line in steps:
        print(json.dumps({name: line.get(name) for name in REPORTED}))
    print(f"{len(steps)} steps and {len(lines) - len(steps)} evaluations: "
          f"{time.monotonic() - began:.0f} s")  # fmt: skip
    assert [line["step"] for line in steps] == list(range(STEPS))
    for line in steps:
        assert line["groups_trained"] > 0
        assert line["groups_dropped"] == {}
        assert abs(line["ratio_max"] - 1) < 0.005
        assert line["kl_rollout"] < 1e-4
    pushes = [event.data for event in events if event.type == "weights.published"]
    assert [data["policy_version"] for data in pushes] == list(range(STEPS + 1))
    assert all(r["canary_error"] < 1e-3 for data in pushes for r in data["replicas"])
    assert "sglang.ready" in next((run / "logs").glob("rollout*.log")).read_text()


def spec_of(model: Path) -> dict[str, Any]:
    """examples/smollm2_summaries.yaml, of three small steps."""
    document = yaml.safe_load((ROOT / "examples/smollm2_summaries.yaml").read_text())
    document["policies"]["shared"]["model"] = str(model)
    document["algorithm"] |= {"group_size": 4, "minibatches": 1}
    return document | {"steps": STEPS, "tasks_per_step": 2, "eval": {"num_tasks": 2}}
