"""What checkpoints keep of a spec stays what it was: a job that an older version began resumes."""

import json
from pathlib import Path

from troupe.spec import parse_spec
from troupe_trainer.checkpoint.compatibility import spec_parts

RECORDED = Path(__file__).with_name("spec_of_checkpoint.json")
SPEC = {
    "name": "old",
    "steps": 1,
    "task": {"name": "plan_path"},
    "workflow": {"order": ["tool", "planner"]},
    "agents": {"tool": {"policy": "adapter"}, "planner": {"policy": "whole"}},
    "policies": {
        "adapter": {"model": "models/a", "train": {"kind": "lora"}},
        "whole": {"model": "models/a", "train": {"kind": "full"}},
    },
}


def test_spec_of_a_checkpoint_when_nothing_new_is_used_then_is_the_recorded_one() -> None:
    recorded = json.loads(RECORDED.read_text("utf-8"))
    assert spec_parts(parse_spec(SPEC)) == recorded, (
        "a new field of the spec must be left out while it has its default (exclude_if), or "
        "checkpoints of older versions are refused: make test-upgrade"
    )
