"""Troupe: train teams of LLM agents with on-policy reinforcement learning.

Each name below is imported on first use: importing this package loads none of its other modules,
no torch and no pydantic, and opens no connection.
"""

TYPE_CHECKING = False  # as in ``typing``, without importing it

if TYPE_CHECKING:
    from troupe.algorithms.algorithm import Algorithm
    from troupe.algorithms.base import GroupRelative
    from troupe.candidates import GroupOutcome, Sample
    from troupe.clients.rest import AsyncRestClient as AsyncClient
    from troupe.clients.rest import RestClient as Client
    from troupe.conformance import check_family
    from troupe.errors import InvalidArgumentError, TroupeError
    from troupe.rewards.reward import JudgedTransition, Reward
    from troupe.samplers.sampler import Sampler
    from troupe.seeds import derive_seed
    from troupe.spec import JobSpec, SpecInvalidError, load_spec, parse_spec
    from troupe.spec.params import Params
    from troupe.tasks.family import (
        Environment,
        Message,
        Observation,
        Task,
        TaskFamily,
        Taskset,
        Transition,
    )
    from troupe.tasks.simple import SimpleTask
    from troupe.training.connect import connect
    from troupe.training.results import open_run
    from troupe.training.train import resume, train, train_async
    from troupe.workflows.workflow import Action, EnvironmentView, Seat, Workflow

__version__ = "0.1.0"

_MODULES = {
    "Action": "troupe.workflows.workflow",
    "Algorithm": "troupe.algorithms.algorithm",
    "AsyncClient": "troupe.clients.rest:AsyncRestClient",
    "Client": "troupe.clients.rest:RestClient",
    "Environment": "troupe.tasks.family",
    "EnvironmentView": "troupe.workflows.workflow",
    "GroupOutcome": "troupe.candidates",
    "GroupRelative": "troupe.algorithms.base",
    "InvalidArgumentError": "troupe.errors",
    "JobSpec": "troupe.spec",
    "JudgedTransition": "troupe.rewards.reward",
    "Message": "troupe.tasks.family",
    "Observation": "troupe.tasks.family",
    "Params": "troupe.spec.params",
    "Reward": "troupe.rewards.reward",
    "Sample": "troupe.candidates",
    "Sampler": "troupe.samplers.sampler",
    "Seat": "troupe.workflows.workflow",
    "SimpleTask": "troupe.tasks.simple",
    "SpecInvalidError": "troupe.spec",
    "Task": "troupe.tasks.family",
    "TaskFamily": "troupe.tasks.family",
    "Taskset": "troupe.tasks.family",
    "Transition": "troupe.tasks.family",
    "TroupeError": "troupe.errors",
    "Workflow": "troupe.workflows.workflow",
    "check_family": "troupe.conformance",
    "connect": "troupe.training.connect",
    "derive_seed": "troupe.seeds",
    "load_spec": "troupe.spec",
    "open_run": "troupe.training.results",
    "parse_spec": "troupe.spec",
    "resume": "troupe.training.train",
    "train": "troupe.training.train",
    "train_async": "troupe.training.train",
}
"""Public name to module, or to ``module:name`` where the name differs there."""

__all__ = [
    "Action",
    "Algorithm",
    "AsyncClient",
    "Client",
    "Environment",
    "EnvironmentView",
    "GroupOutcome",
    "GroupRelative",
    "InvalidArgumentError",
    "JobSpec",
    "JudgedTransition",
    "Message",
    "Observation",
    "Params",
    "Reward",
    "Sample",
    "Sampler",
    "Seat",
    "SimpleTask",
    "SpecInvalidError",
    "Task",
    "TaskFamily",
    "Taskset",
    "Transition",
    "TroupeError",
    "Workflow",
    "check_family",
    "connect",
    "derive_seed",
    "load_spec",
    "open_run",
    "parse_spec",
    "resume",
    "train",
    "train_async",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module 'troupe' has no attribute '{name}'")
    module, _, attribute = _MODULES[name].partition(":")
    value = getattr(import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
