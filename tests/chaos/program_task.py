"""Task families of the chaos suite: one that runs a program for each action, one that is broken."""

from typing import ClassVar

from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.sandbox.sandbox import Limits, Program, Sandbox
from troupe.tasks.family import Environment, Observation, Task, Transition
from troupe_tasks.plan_path import PlanPath

ECHO = Program("print(len(input()))", stdin="four\n")
LIMITS = Limits(wall_time_s=60.0)


class Programs(PlanPath):
    """Plan-Path whose judge runs a program in the sandbox before it judges an action."""

    name: ClassVar[str] = "programs"

    def environment(self) -> Environment:
        raise InvalidArgumentError("task 'programs' runs programs and needs a sandbox")

    def environment_in(self, sandbox: Sandbox) -> Environment:
        return _Programs(super().environment(), sandbox)


class Poisoned(PlanPath):
    """Plan-Path of which every second training task raises whatever is done."""

    name: ClassVar[str] = "poisoned"

    def environment(self) -> Environment:
        return _Poisoned(super().environment())


class _Around:
    """An environment around another one."""

    def __init__(self, inner: Environment) -> None:
        self._inner = inner

    def reset(self, task: Task) -> bytes:
        return self._inner.reset(task)

    def observe(self, state: bytes, agent: str) -> Observation:
        return self._inner.observe(state, agent)

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        return self._inner.step(state, agent, action)


class _Programs(_Around):
    def __init__(self, inner: Environment, sandbox: Sandbox) -> None:
        super().__init__(inner)
        self._sandbox = sandbox

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        done = self._sandbox.run(ECHO, LIMITS)
        if not done.is_ok or done.stdout != "4\n":
            raise UnavailableError(f"the program was not run as it should: {done}")
        return super().step(state, agent, action)


class _Poisoned(_Around):
    def reset(self, task: Task) -> bytes:
        if task.split == "train" and task.index % 2:
            raise RuntimeError(f"{task.id} is poison")
        return super().reset(task)
