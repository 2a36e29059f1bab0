"""A workflow whose code calls ``sys.exit`` fails its play, and not the process that plays it."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from troupe.episodes.dryrun import dry_run
from troupe.errors import InvalidArgumentError
from troupe.spec.algorithm import AlgorithmSpec
from troupe.spec.load import load_spec
from troupe.workflows.self_play import SelfPlay
from troupe.workflows.workflow import EnvironmentView, Team

DEMO = load_spec(Path(__file__).parents[3] / "examples" / "demo.yaml")


class Exits(SelfPlay):
    async def run(self, team: Team, env: EnvironmentView) -> None:
        sys.exit(2)


class ExitsLater(SelfPlay):
    async def resume(self, team: Team, env: EnvironmentView, acts: Mapping[str, int]) -> None:
        sys.exit(2)


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [
        (Exits, DEMO.algorithm),
        (Exits, AlgorithmSpec(kind="tree_grpo")),
        (ExitsLater, AlgorithmSpec(kind="follow")),
    ],
)
def test_workflow_when_it_exits_then_the_play_fails_and_its_line_is_named(
    kind: type[SelfPlay], algorithm: AlgorithmSpec
) -> None:
    workflow = DEMO.workflow.model_copy(update={"kind": f"{__name__}:{kind.__name__}"})
    spec = DEMO.model_copy(update={"workflow": workflow, "algorithm": algorithm})
    with pytest.raises(InvalidArgumentError, match=r"SystemExit: 2 \(at .*test_exiting_workflow"):
        asyncio.run(dry_run(spec, num_tasks=1))
