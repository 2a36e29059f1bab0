"""A module that a spec names and that was edited while the router is up."""

from pathlib import Path

import pytest

from troupe.episodes.build import load_parts
from troupe.spec import JobSpec, SpecInvalidError, parse_spec
from troupe_router.jobs.allowlist import Allowlist
from troupe_router.jobs.checks import check_playable

WORKFLOW = """
class {name}:
    def __init__(self, spec):
        self.spec = spec

    async def run(self, team, env):
        pass
"""
ALLOWED = Allowlist(modules=None, folders=None, hub_ids=None)


def spec(workflow: str) -> JobSpec:
    return parse_spec(
        {
            "name": "demo",
            "steps": 1,
            "task": {"name": "plan_path"},
            "workflow": {"kind": workflow, "order": ["tool", "planner"]},
            "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
            "policies": {"p": {"model": "Qwen/Qwen3-0.6B"}},
        }
    )


@pytest.mark.parametrize("name", ["Old", "New"])
def test_submit_when_a_module_was_edited_then_is_refused_and_running_jobs_go_on(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"edited_{name.lower()}_plans"
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / f"{module}.py"
    file.write_text(WORKFLOW.format(name="Old"))
    old = spec(f"{module}:Old")
    check_playable(old, ALLOWED)
    check_playable(old, ALLOWED)
    running = type(load_parts(old).workflow)
    file.write_text(WORKFLOW.format(name=name) + "# other order\n")
    with pytest.raises(SpecInvalidError, match=f"has changed .* '{module}.py:{name}'") as caught:
        check_playable(spec(f"{module}:{name}"), ALLOWED)
    assert caught.value.issues[0].pointer == "/workflow/kind"
    assert type(load_parts(old).workflow) is running
    check_playable(spec(f"{file}:{name}"), ALLOWED)
    file.unlink()
    assert type(load_parts(old).workflow) is running
