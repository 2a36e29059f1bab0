"""How a served team runs the code of its own task."""

import json
from pathlib import Path

from run_folders import ECHO_TASK, write_run

from troupe.episodes.local import LocalEnv
from troupe.publishing.team_folder import open_team
from troupe_router.serve.models import TeamModel
from troupe_router.serve.team import _Play


async def test_team_when_it_plays_a_task_of_its_own_then_its_code_runs_on_threads(
    tmp_path: Path,
) -> None:
    run, code = write_run(tmp_path / "pair-1"), tmp_path / "echo.py"
    code.write_text(ECHO_TASK)
    spec = json.loads((run / "spec.json").read_text()) | {"task": {"name": f"{code}:Echo"}}
    (run / "spec.json").write_text(json.dumps(spec))
    async with _Play(open_team(run), request_timeout_s=60) as play:
        await play.instructions()
        team = play.model("pair", {})
        assert isinstance(team, TeamModel), team.facts()
        assert isinstance(team.env, LocalEnv)
        assert team.env.is_threaded
