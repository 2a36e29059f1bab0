"""The math task with real programs in the real sandbox; skipped where it cannot isolate."""

from random import Random

import pytest
from sandbox_here import skip_or_fail

from troupe import plugins
from troupe.errors import TroupeError
from troupe.tasks.family import Task
from troupe_tasks.math.environment import MathEnvironment
from troupe_tasks.math.family import Math, MathParams

NUM_TASKS = 30


@pytest.fixture(scope="module")
def env():
    try:
        sandbox = plugins.load(plugins.SANDBOXES, "local")()
    except TroupeError as error:
        skip_or_fail(error)
    yield Math(MathParams()).environment_in(sandbox)
    sandbox.close()


def _demonstrated(env: MathEnvironment, task: Task) -> bool:
    family, state = Math(MathParams()), env.reset(task)
    tried = env.step(state, "tool", family.demonstrate(state, "tool", Random(0)))
    assert tried.local_rewards == {"builds": 1.0, "executes": 1.0, "correct": 1.0}, tried.info
    action = family.demonstrate(tried.state, "reasoner", Random(0))
    answered = env.step(tried.state, "reasoner", action)
    return answered.done and answered.success


def test_demonstrate_when_played_on_built_in_tasks_then_solves_all(env: MathEnvironment) -> None:
    taskset = Math(MathParams()).taskset()
    tasks = [taskset.task("test", index) for index in range(NUM_TASKS)]
    assert sum(_demonstrated(env, task) for task in tasks) == NUM_TASKS


def test_random_action_when_played_then_solves_next_to_nothing(env: MathEnvironment) -> None:
    family, solved = Math(MathParams(levels=(2, 3))), 0
    taskset = family.taskset()
    for index in range(100):
        state = env.reset(taskset.task("test", index))
        action = family.random_action(state, "reasoner", Random(index))
        solved += env.step(state, "reasoner", action).success
    assert solved <= 5


@pytest.mark.parametrize(
    ("source", "rewards"),
    [
        ("def f(:\n  pass", (0.0, 0.0)),
        ("raise ValueError('no')", (1.0, 0.0)),
        ("print(open('/etc/hostname').read()); import os; os._exit(3)", (1.0, 0.0)),
        ("x = 1", (1.0, 0.0)),
    ],
)
def test_step_when_programs_fail_in_each_way_then_builds_and_executes_say_so(
    env: MathEnvironment, source: str, rewards: tuple[float, float]
) -> None:
    state = env.reset(Math(MathParams()).taskset().task("test", 0))
    local = env.step(state, "tool", f"```python\n{source}\n```").local_rewards
    assert (local["builds"], local["executes"]) == rewards
