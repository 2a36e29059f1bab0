"""Runs untrusted programs in namespaced, forked cells. ``local_sandbox`` opens it in this process.

Never falls back to a weaker level than the one asked for; docs/sandbox.md is the contract.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from troupe_env.sandbox.pool import LocalSandbox
    from troupe_env.sandbox.settings import SandboxSettings

__all__ = ["local_sandbox", "open_sandbox"]


def local_sandbox() -> "LocalSandbox":
    """A probed sandbox as ``TROUPE_ENV_SANDBOX*`` says; close it after use.

    Raises InvalidArgumentError where this machine can't isolate at the level asked for.
    """
    from troupe_env.sandbox.settings import SandboxSettings

    return open_sandbox(SandboxSettings())


def open_sandbox(settings: "SandboxSettings") -> "LocalSandbox":
    """A sandbox that has been proved to keep its level."""
    from troupe.runtime.telemetry.logging import get_logger
    from troupe_env.sandbox.pool import LocalSandbox
    from troupe_env.sandbox.probe import probe

    sandbox = LocalSandbox(settings, settings.level or "namespaces")
    try:
        probe(sandbox)
    except BaseException:
        sandbox.close()
        raise
    log = get_logger(__name__)
    log.info(
        "sandbox.open",
        level=sandbox.level,
        workers=sandbox.num_workers,
        cgroups=sandbox.cgroup_limits,
    )
    if sandbox.level == "process":
        log.warning(
            "sandbox.does_not_isolate",
            reason="level 'process' limits programs but does not contain them: they read and write "
            "what this service's user may, and may end its processes; use it for trusted code only",
        )
    return sandbox
