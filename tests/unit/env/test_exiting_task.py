"""A task whose code calls ``sys.exit`` in the env service."""

import sys
from random import Random
from typing import Any

import pytest

from troupe import SimpleTask, Transition
from troupe.errors import TroupeError
from troupe_env.families import Families
from troupe_env.judging_pool import JudgingPool, judged
from troupe_env.settings import EnvSettings

WAIT_S = 20.0


class Exits(SimpleTask):
    def draw(self, rng: Random) -> Any:
        sys.exit("bad data")

    def step(self, state: Any, agent: str, action: str) -> Transition:
        sys.exit("bad data")


async def test_step_when_the_task_exits_then_is_an_error_of_the_task() -> None:
    loaded = Families(1).get(f"{__name__}:Exits", "{}")
    state = loaded.seals.sealed(Exits().transition(1).state)
    pool = JudgingPool(EnvSettings())
    with pytest.raises(TroupeError, match=r"Task 'exits' failed .*SystemExit: bad data"):
        await pool.run(
            "Step", lambda: judged(loaded, state, state.seal, "agent", ["x"], []), WAIT_S
        )
    pool.close()


async def test_reset_when_the_task_exits_as_it_is_drawn_then_the_process_goes_on() -> None:
    loaded = Families(1).get(f"{__name__}:Exits", "{}")
    pool = JudgingPool(EnvSettings())
    with pytest.raises(RuntimeError, match="SystemExit: bad data"):
        await pool.run("Reset", lambda: loaded.taskset.task("train", 0), WAIT_S)
    pool.close()
