"""``troupe audit``: try to be paid by a task family for nothing."""

from typing import Annotated

import typer

from troupe.cli import options as opt
from troupe.cli.output import EXIT_FAILED, out, print_json
from troupe.conformance.audit import MAX_SUCCESS, AuditLimits, audit_family
from troupe.conformance.audit_report import AuditReport
from troupe.conformance.sandbox import DEFAULT, sandbox_for
from troupe.conformance.subject import Reference
from troupe.conformance.target import find_targets, load_target

_USUAL = AuditLimits()
"""Defaults come from an instance: a class with slots has descriptors in their place."""


def audit(
    target: Annotated[
        str,
        typer.Argument(
            help="Registered task, module:attr, file.py:attr, package folder, or job spec.",
            metavar="TASK",
        ),
    ],
    params: Annotated[str | None, typer.Option(help="Task parameters, JSON.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of attackers and searches.")] = 0,
    num_tasks: Annotated[
        int, typer.Option("--n", min=2, max=10_000, help="Tasks that each attacker plays.")
    ] = _USUAL.num_tasks,
    budget: Annotated[
        int, typer.Option(min=0, help="Episodes of each search; 0: no search.")
    ] = _USUAL.budget,
    max_success: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Share of tasks that may be solved by chance."),
    ] = MAX_SUCCESS,
    sandbox: Annotated[str, typer.Option(help="Sandbox for tasks that run programs.")] = DEFAULT,
    as_json: opt.AsJson = False,
) -> None:
    """Attack a task's reward: copies, constants, echoes, salad, searches; 1 on a finding."""
    limits = AuditLimits(num_tasks, budget, seed, max_success)
    references = find_targets(target, opt.params_of(params))
    reports = [_audited(reference, limits, sandbox) for reference in references]
    if as_json:
        documents = [report.document() for report in reports]
        print_json(documents[0] if len(documents) == 1 else documents)
    else:
        for report in reports:
            out().print(report.text())
    if not all(report.is_ok for report in reports):
        raise typer.Exit(EXIT_FAILED)


def _audited(reference: Reference, limits: AuditLimits, sandbox_name: str) -> AuditReport:
    family = load_target(reference)
    sandbox = sandbox_for(family, sandbox_name)
    try:
        return audit_family(family, params=reference.params, sandbox=sandbox, limits=limits)
    finally:
        if sandbox is not None:
            sandbox.close()
