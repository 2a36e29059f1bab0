"""Tests, by running real programs, whether a sandbox keeps what its level promises.

Owns what each level must show at start. Raises InvalidArgumentError, which ends a service with
status 3: a machine that can't isolate today can't tomorrow.
"""

import json
import os
from collections.abc import Callable

from troupe.errors import InvalidArgumentError, TroupeError
from troupe.sandbox.sandbox import Execution, Limits, Program
from troupe_env.sandbox.inside import kernel
from troupe_env.sandbox.pool import LocalSandbox

_SEEN = """
import json, os, socket
def refused(call, *a):
    try:
        call(*a)
    except OSError:
        return True
    return False
def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
# In a pid namespace of its own a program sees two: its cell, which is 1, and itself. The service
# is 1 too where it is a container's first process, so its workers are looked for as well.
own = {1, os.getpid()}
print(json.dumps({
    "uid": os.getuid(),
    "environment": sorted(os.environ),
    "descriptors": [n for n in range(3, 256) if not refused(os.fstat, n)],
    "sockets": not refused(socket.socket),
    "others": any(is_there(pid) for pid in {*range(2, 400), %d} - own),
    "proc": os.path.exists("/proc/self/status") or os.path.exists("/proc/1"),
    "writes": not refused(os.mkdir, "/usr/troupe-probe"),
    "pid": os.getpid(),
}))
"""
_FORKS = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
_SHARED = ("descriptors", "sockets")
_NAMESPACED = (*_SHARED, "others", "proc", "writes")
_ENVIRONMENT = {"PATH", "HOME", "TMPDIR", "LANG", "LC_CTYPE", "PYTHONHASHSEED"}
_HINT = {
    "namespaces": (
        "Namespaces need Linux 5.12 or newer and unprivileged user namespaces: check "
        "user.max_user_namespaces, kernel.unprivileged_userns_clone and "
        "kernel.apparmor_restrict_unprivileged_userns; in a pod give hostUsers: false and a "
        "seccomp profile that allows unshare, clone, mount and pivot_root. Or run the pod under "
        "gVisor and set TROUPE_ENV_SANDBOX=gvisor-pod"
    ),
    "gvisor-pod": (
        "Run this pod with a RuntimeClass whose handler is runsc (runtimeClassName: gvisor) and as "
        "root inside it, so that each worker's programs get a user of their own"
    ),
    "process": "This level needs Linux, fork and a writable temporary folder",
}
_FAST = Limits(wall_time_s=10.0, cpu_time_s=10.0)


def probe(sandbox: LocalSandbox) -> None:
    """Run the probe programs; raises InvalidArgumentError that says what is missing."""
    checks: list[Callable[[LocalSandbox], str | None]] = [_runs, _isolates, _ends, _counts]
    if sandbox.level == "gvisor-pod":
        checks.insert(0, _is_gvisor)
    for check in checks:
        try:
            missing = check(sandbox)
        except TroupeError as error:
            missing = error.message
        if missing:
            raise InvalidArgumentError(
                f"The sandbox level {sandbox.level!r} is not possible here: {missing.rstrip('.')}. "
                f"{_HINT[sandbox.level]}. Nothing weaker is used in its place; see docs/sandbox.md."
            )


def _is_gvisor(sandbox: LocalSandbox) -> str | None:
    if "gvisor" not in kernel.kernel_log().lower():
        return "this process does not run on gVisor's kernel"
    return None if os.geteuid() == 0 else "the service is not root in its pod"


def _runs(sandbox: LocalSandbox) -> str | None:
    source = "import hashlib, json, subprocess\nprint(int(input()) + 1)"
    done = sandbox.run(Program(source, stdin="41\n"), _FAST)
    if (done.stdout, done.is_ok) == ("42\n", True):
        return None
    return (
        f"a first program failed ({done.stderr.strip()[-300:] or done}); if modules are missing, "
        "programs can't read the interpreter's folder: set TROUPE_ENV_SANDBOX_PYTHON to one that "
        "all users may read"
    )


def _isolates(sandbox: LocalSandbox) -> str | None:
    execution = sandbox.run(Program(_SEEN % os.getpid()), _FAST)
    if not execution.is_ok:
        return f"a probe program failed: {execution.stderr[-300:]}"
    findings = json.loads(execution.stdout)
    if extra := sorted(set(findings["environment"]) - _ENVIRONMENT):
        return f"programs see environment variables ({', '.join(extra)})"
    forbidden = _NAMESPACED if sandbox.level == "namespaces" else _SHARED
    reached = [resource for resource in forbidden if findings[resource]]
    if sandbox.level == "namespaces" and findings["uid"] == 0:
        reached.append("root")
    return f"a probe program reached: {', '.join(reached)}" if reached else None


def _ends(sandbox: LocalSandbox) -> str | None:
    endless = sandbox.run(
        Program(_FORKS),
        Limits(wall_time_s=0.3, cpu_time_s=10.0, num_processes=4),
    )
    return _unless(endless, "wall_time", "a program was not ended at its deadline")


def _counts(sandbox: LocalSandbox) -> str | None:
    bomb = sandbox.run(
        Program("x = bytearray(1 << 29)\nfor i in range(0, len(x), 4096): x[i] = 1"),
        Limits(wall_time_s=10.0, memory_bytes=1 << 26),
    )
    return _unless(bomb, "memory", "a program could take more memory than its limit")


def _unless(execution: Execution, limit: str, failure: str) -> str | None:
    return None if execution.limit == limit else f"{failure}: {execution}"
