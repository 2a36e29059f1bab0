"""Cases of the tools family by what is asked, and players that stop before the end."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from troupe.tasks.family import Task, Transition
from troupe_tasks.tools import Tools, ToolsParams
from troupe_tasks.tools.case import Case
from troupe_tasks.tools.dialect import Call, written
from troupe_tasks.tools.environment import DOMAINS
from troupe_tasks.tools.state import State, decode_state
from troupe_tasks.tools.turn import is_ready

SOLO = Tools(ToolsParams(is_solo=True))
TEAM = Tools(ToolsParams())
ENV = SOLO.environment()


def call(name: str, **arguments: Any) -> Call:
    return Call(name, arguments)


def broken(case: Case) -> frozenset[str]:
    return DOMAINS[case.domain].broken(case)


def task_with(wanted: Callable[[Case], bool], start: int = 0) -> Task:
    taskset = SOLO.taskset()
    for index in range(start, start + 400):
        task = taskset.task("train", index)
        if wanted(decode_state(ENV.reset(task)).case):
            return task
    raise AssertionError("no such case in 400")


@dataclass
class Play:
    """One case played by one agent; ``pay`` sums up the team reward."""

    task: Task
    pay: float = 0.0
    last: Transition | None = None
    bytes_: bytes = field(default=b"", init=False)

    def __post_init__(self) -> None:
        self.bytes_ = ENV.reset(self.task)

    @property
    def state(self) -> State:
        return decode_state(self.bytes_)

    @property
    def case(self) -> Case:
        return self.state.case

    def write(self, text: str) -> "Play":
        self.last = ENV.step(self.bytes_, "operator", text)
        self.bytes_ = self.last.state
        self.pay += self.last.team_reward
        return self

    def do(self, *calls: Call) -> "Play":
        for one in calls:
            self.write(written(one))
        return self

    def honest_until(self, is_there: Callable[[State], bool]) -> "Play":
        for _ in range(12):
            if is_there(self.state):
                return self
            self.write(SOLO.demonstrate(self.bytes_, "operator", Random(0)))
        raise AssertionError("the script never came there")

    @property
    def is_success(self) -> bool:
        return self.last is not None and self.last.success

    @property
    def is_over(self) -> bool:
        return self.last is not None and self.last.done


def allowed(kind: str = "") -> Play:
    return Play(task_with(lambda c: not broken(c) and kind in ("", c.request.name)))


def refused(rule: str) -> Play:
    return Play(task_with(lambda c: broken(c) == {rule}))


def agreed(kind: str = "") -> Play:
    return allowed(kind).honest_until(lambda s: bool(s.agreed))


def ready(play: Play) -> Play:
    return play.honest_until(is_ready)
