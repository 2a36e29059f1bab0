"""Runs every check on one family and reports the results."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from troupe.code_places import told_with_place
from troupe.conformance import declarations, processes, purity, rewards, tasksets
from troupe.conformance.findings import BrokenStepError, GaveUpError
from troupe.conformance.limits import CheckLimits
from troupe.conformance.report import Check, CheckReport, Outcome
from troupe.conformance.subject import Reference, Subject
from troupe.errors import InvalidArgumentError, TroupeError
from troupe.sandbox.sandbox import Sandbox
from troupe.tasks.family import Task, TaskFamily


@dataclass(frozen=True, slots=True)
class _Entry:
    """One check: its function (None if every step checks it) and its advice."""

    run: Callable[[Subject], None] | None
    advice: str


CHECKS: dict[str, _Entry] = {
    "declared": _Entry(
        declarations.declared,
        "declare name, agents, Params (extra='forbid'), local_terms and return_bound on the class",
    ),
    "tasks_seeded": _Entry(
        tasksets.tasks_seeded,
        "make task(split, index) a function of (params, split, index) alone, whatever came before",
    ),
    "task_range": _Entry(
        tasksets.task_range, "raise InvalidArgumentError for indices outside 0..size(split)"
    ),
    "splits_disjoint": _Entry(
        tasksets.splits_disjoint,
        "let a hash of the instance itself decide the split that owns it, as plan_path's grids do",
    ),
    "policies": _Entry(
        declarations.policies,
        "use only the given rng in demonstrate and random_action, and return a str",
    ),
    "vocabulary": _Entry(declarations.vocabulary, "list each word once, without white space"),
    "unknown_agent": _Entry(
        declarations.unknown_agent,
        "raise InvalidArgumentError in step and observe for an agent that is not in the team",
    ),
    "step_pure": _Entry(
        purity.step_pure,
        "keep nothing on the environment or in module globals; all that a step needs is in state",
    ),
    "replay": _Entry(
        purity.replay, "derive what looks random from the state, never from time or global state"
    ),
    "forks": _Entry(
        purity.forks, "share no scratch object between steps: candidates run side by side"
    ),
    "other_process": _Entry(
        processes.other_process,
        "do not let hash(), set order, ids or machine state decide; sort, or use hashlib",
    ),
    "any_text": _Entry(
        rewards.any_text,
        "judge every text: catch what parsing can raise and give the lowest reward instead",
    ),
    "after_done": _Entry(
        purity.after_done, "in a state that is over return done=True and no team reward"
    ),
    "return_bound": _Entry(
        rewards.return_bound,
        "pay each gain once (a new best, a first success), never for a way back and forth",
    ),
    "lazy_unpaid": _Entry(
        rewards.lazy_unpaid, "pay local terms for what moves the task on, not for form alone"
    ),
    "scripted_beats_random": _Entry(
        rewards.scripted_beats_random,
        "make demonstrate solve the task (or set is_scripted = False if there is no script)",
    ),
    "hidden": _Entry(
        declarations.hidden, "keep what hidden_texts(task) lists out of every observation"
    ),
    "step_time": _Entry(
        None, "bound the work of a step whatever the text: cut it, and avoid backtracking patterns"
    ),
    "state_bytes": _Entry(
        None, "keep the state compact: what happened, not what was written; ids, not whole files"
    ),
    "transition": _Entry(None, "return a Transition with finite floats and real bools"),
    "local_terms": _Entry(None, "return only finite terms that local_terms declares for the agent"),
    "info_json": _Entry(
        None, "keep info small and made of str, int, finite float, bool, None, list and dict"
    ),
    "messages": _Entry(
        None,
        "return a tuple of non-empty Messages: a system one only first, a user or tool one last",
    ),
}
"""All checks by name, in reporting order."""


_STEPPED = CHECKS.keys() - {
    "declared",
    "tasks_seeded",
    "task_range",
    "splits_disjoint",
    "policies",
    "vocabulary",
    "unknown_agent",
    "other_process",
    "hidden",
}
"""Checks without meaning for a family whose environment could not make a single step."""


def check_family(
    family: TaskFamily,
    *,
    reference: Reference | None = None,
    sandbox: Sandbox | None = None,
    limits: CheckLimits | None = None,
    only: Sequence[str] | None = None,
    on_check: Callable[[str], None] | None = None,
) -> CheckReport:
    """Try to show that ``family`` breaks a promise of ``troupe.tasks.family``.

    ``reference`` lets another process load the same family; without it that check is skipped.
    ``only`` names the checks to run (default: all); ``on_check`` hears of each as it begins.

    Raises:
        InvalidArgumentError: ``only`` names no check, or the family gives no tasks to play.
        TroupeError: an infrastructure failure (retryable), not a fault of the family.

    Example: ``check_family(PlanPath(PlanPathParams())).is_ok``.
    """
    unknown = sorted(set(only or ()) - CHECKS.keys())
    if unknown:
        raise InvalidArgumentError(
            f"there is no check {', '.join(unknown)}; known: {', '.join(CHECKS)}"
        )
    subject = Subject(family, reference=reference, sandbox=sandbox, limits=limits or CheckLimits())
    if not _tasks(subject):
        raise InvalidArgumentError(f"task '{family.name}' has no tasks in any split")
    selected = set(only or CHECKS)
    # A check on every step needs the steps of all other checks.
    everything = any(CHECKS[name].run is None for name in selected)
    running = {
        name: entry.run
        for name, entry in CHECKS.items()
        if entry.run is not None and (everything or name in selected)
    }
    seconds: dict[str, float] = {}
    for number, (name, run) in enumerate(running.items()):
        if on_check is not None:
            on_check(name)
        subject.begin_check(len(running) - number)
        seconds[name] = _run(subject, name, run)
    params = dict(reference.params) if reference else {}
    checks = tuple(
        _verdict(subject, name, seconds.get(name, 0.0)) for name in CHECKS if name in selected
    )
    return CheckReport(family.name, params, checks)


def _tasks(subject: Subject) -> tuple[Task, ...]:
    try:
        return subject.tasks
    except TroupeError:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidArgumentError(
            f"task '{subject.family.name}' can't give its tasks: {told_with_place(error)}. "
            "Correct its code"
        ) from error


def _run(subject: Subject, name: str, run: Callable[[Subject], None]) -> float:
    began = time.monotonic()
    try:
        run(subject)
    except BrokenStepError:
        pass
    except GaveUpError:
        subject.findings.skip(name, "gave up: too many steps had to be interrupted (step_time)")
    except TroupeError as error:
        if error.retryable:
            raise
        subject.findings.fail(name, f"{type(error).__name__}: {error.message}")
    except (Exception, SystemExit) as error:
        # Anything that a family does wrong is a finding, not a crash of the kit.
        subject.findings.fail(name, f"the family raised {type(error).__name__}: {error}")
    return time.monotonic() - began


def _verdict(subject: Subject, name: str, seconds: float) -> Check:
    case = subject.findings.of(name)
    outcome: Outcome = "passed"
    evidence = list(case.facts)
    advice = CHECKS[name].advice
    if case.failures:
        outcome, evidence = "failed", _counted(case.failures, case.num_failures)
    elif case.warnings:
        outcome, evidence = "warned", _counted(case.warnings, case.num_warnings)
    elif name in _STEPPED and subject.env.num_steps == 0:
        outcome, evidence, advice = "skipped", ["no step could be made"], ""
    elif case.skipped is not None:
        outcome, evidence, advice = "skipped", [case.skipped], ""
    else:
        advice = ""
        evidence = evidence or [
            f"in {subject.env.num_steps} steps, the slowest {1000 * subject.env.slowest_s:.1f} ms"
        ]
    return Check(name, outcome, tuple(evidence), advice, round(seconds, 3))


def _counted(evidence: list[str], total: int) -> list[str]:
    more = total - len(evidence)
    return [*evidence, f"... and {more} more"] if more > 0 else evidence
