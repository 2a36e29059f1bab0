"""The job whose replicas the tests of the fleet are about."""

from troupe.spec import parse_spec

SPEC = parse_spec(
    {
        "name": "demo",
        "steps": 1,
        "task": {"name": "plan_path"},
        "workflow": {"order": ["tool"]},
        "agents": {"tool": {"policy": "p"}},
        "policies": {"p": {"model": "m"}},
    }
)
