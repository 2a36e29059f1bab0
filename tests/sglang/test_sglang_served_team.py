"""`troupe serve --engine sglang`: both adapters on one stock server, and the cpu engine's texts."""

from pathlib import Path

import pytest
from served_team import asked, serving, write_team

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
TEXT = "w7 w8 w9"
SERVER = {
    "TROUPE_ROLLOUT_SGLANG_DEVICE": "cpu",
    "TROUPE_ROLLOUT_SGLANG_MAX_TOTAL_TOKENS": "4096",
    "TROUPE_ROLLOUT_SGLANG_MAX_RUNNING_REQUESTS": "16",
    "TROUPE_ROLLOUT_SGLANG_START_TIMEOUT_S": "300",
}


def texts(team: Path, *flags: str) -> dict[str, str]:
    with serving(team, *flags, engine=SERVER) as endpoint:
        answers = {name: endpoint.post(asked(name, TEXT)) for name in ("short", "long", "pair")}
    assert all(answer.status_code == 200 for answer in answers.values()), answers
    return {
        name: answer.json()["choices"][0]["message"]["content"] for name, answer in answers.items()
    }


def test_served_team_when_the_engine_is_sglang_then_says_what_the_cpu_engine_says(
    tmp_path: Path,
) -> None:
    team = write_team(tmp_path / "pair-1", hidden=96)
    on_cpu = texts(team)
    assert texts(team, "--engine", "sglang") == on_cpu
    assert on_cpu["short"] != on_cpu["long"]
