"""The job that the tests of the router are about: one agent, one policy."""

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
