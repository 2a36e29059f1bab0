"""The worker process: confines itself once, starts a template, serves one request after another.

It never runs a line of a program, and nothing is forked from it once it has seen a request: cells
come from its template. Started by ``troupe_env.sandbox.worker`` with an empty environment and the
descriptors named in its config.
"""

import contextlib
import gc
import importlib
import json
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from typing import Any, NoReturn

from . import guard, kernel, program, root, sweep, template, wire
from .cell import INSIDE_UID, RunContext
from .counters import Counters
from .leftovers import Leftovers
from .run import Abandoned, Broken, Run
from .template import Template

_PRELOADED = (
    "bisect", "collections", "collections.abc", "copy", "dataclasses", "datetime", "decimal",
    "encodings.ascii", "encodings.latin_1", "enum", "fractions", "functools", "heapq", "io",
    "itertools", "linecache", "math", "operator", "random", "re", "statistics", "string", "time",
    "traceback", "typing", "unicodedata",
)  # fmt: skip
"""Modules of the standard library that programs use most; their import is then free."""

_CONFINED = (
    kernel.CLONE_NEWNS
    | kernel.CLONE_NEWPID
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWCGROUP
)
# The network namespace is the worker's: empty, without a way to make a socket, and never shared by
# two programs at one time. A fresh one a run costs a fifth of the throughput and adds nothing.
OF_A_CELL = (
    kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWPID
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
    | kernel.CLONE_NEWCGROUP
)
_SEND_S = 30.0


def start() -> Callable[[], NoReturn]:
    """Entry point: the config is the one argument. Returns only in a program's process."""
    config: dict[str, Any] = json.loads(sys.argv[1])
    sys.argv = [""]
    control = socket.socket(fileno=config["control"])
    try:
        worker = _confine(config)
    except OSError as error:
        wire.send(control, {"error": str(error)}, b"", _SEND_S)
        sys.exit(1)
    counters = Counters(config["counters"])
    _load(config["preload"])
    if worker.is_namespaced:
        counters.join(config["joins"])
    own_end, templates_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        control.close()
        own_end.close()
        return template.serve(templates_end, worker, OF_A_CELL if worker.is_namespaced else 0)
    templates_end.close()
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    wire.send(control, {"hello": os.getpid()}, b"", _SEND_S)
    try:
        if not worker.is_namespaced:
            guard.leave_in_order()
        with contextlib.suppress(wire.Closed):
            _serve(control, worker, Template(pid, own_end), counters)
    finally:
        if not worker.is_namespaced:
            sweep.kill_all(worker.uid, spared=0)
            shutil.rmtree(worker.runs_folder, ignore_errors=True)
    sys.exit(0)


def _load(preload: list[str]) -> None:
    """Bring the interpreter into the state that every program starts from."""
    for name in [*_PRELOADED, *preload]:
        importlib.import_module(name)
    _like_an_interpreter()
    program.prepare()
    os.environ.pop("LD_BIND_NOW", None)  # of the worker's start; not a program's
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    gc.disable()


def _confine(config: dict[str, Any]) -> RunContext:
    is_namespaced: bool = config["level"] == "namespaces"
    proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    uid: int = config["uid"] if os.geteuid() == 0 else os.geteuid()
    runs_folder = "/tmp"
    has_files = config["level"] == "gvisor-pod" and os.geteuid() == 0
    leftovers = Leftovers(uid) if has_files else None
    if is_namespaced:
        uid = enter_namespaces(config, proc, uid)
    else:
        runs_folder = guard.go_on_guarded(uid if os.geteuid() == 0 else 0, leftovers)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return RunContext(
        is_namespaced=is_namespaced,
        worker_pid=os.getpid(),
        runs_folder=runs_folder,
        uid=uid if is_namespaced or os.geteuid() == 0 else 0,
        proc=proc,
        joins=[] if is_namespaced else config["joins"],
        leftovers=leftovers,
    )


def enter_namespaces(
    config: dict[str, Any], proc: int, uid: int, meanwhile: Callable[[], None] | None = None
) -> int:
    """New namespaces, the read-only tree, no privileges, pid 1; the uid that programs map to.

    ``meanwhile`` is called when the namespaces are new and privileges in them still there.
    """
    is_root, gid = os.geteuid() == 0, os.getegid()
    kernel.unshare(_CONFINED if is_root else _CONFINED | kernel.CLONE_NEWUSER)
    if not is_root:
        _write(proc, "self/setgroups", "deny")
        _write(proc, "self/gid_map", f"{INSIDE_UID} {gid} 1")
        _write(proc, "self/uid_map", f"{INSIDE_UID} {uid} 1")
    if meanwhile is not None:
        meanwhile()
    kernel.set_hostname("sandbox")
    shown = root.Shown(config["shown"], config["masked"], config["packages"], config["executable"])
    root.build(shown, INSIDE_UID)
    _become_pid_1()
    if is_root:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    else:
        uid = INSIDE_UID
        kernel.drop_capabilities()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    return uid


def _become_pid_1() -> None:
    """Go on in a child, the first of the new pid namespace; the parent only waits for it."""
    pid = os.fork()
    if pid == 0:
        return
    os.closerange(3, 4096)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _, status = os.waitpid(pid, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _write(proc: int, path: str, text: str) -> None:
    number = os.open(path, os.O_WRONLY, dir_fd=proc)
    try:
        os.write(number, text.encode())
    finally:
        os.close(number)


def _like_an_interpreter() -> None:
    """``exit``, ``quit`` and ``help``, which the site module gives to every program."""
    site: Any = importlib.import_module("site")
    site.setquit()
    site.setcopyright()
    site.sethelper()


def _serve(
    control: socket.socket, worker: RunContext, template: Template, counters: Counters
) -> None:
    while True:
        request, body = wire.receive(control, None)
        answer: dict[str, Any] = {}
        try:
            with (
                _folder(worker, template.pid) as folder,
                Run(request, worker, template, counters) as run,
            ):
                request["folder"] = folder
                request["stdin_path"] = os.path.join(folder, ".stdin")  # noqa: PTH118
                answer, data = run.execute(body, control.fileno())
                if worker.is_namespaced:
                    # The verdict stands. What is left is the kernel's work, which nobody need
                    # wait for but the next program: it starts when this one's namespaces are gone.
                    wire.send(control, answer, data, _SEND_S)
            if not worker.is_namespaced:
                wire.send(control, answer, data, _SEND_S)
        except Abandoned:
            return
        except (Broken, OSError, TimeoutError) as error:
            if not answer:
                wire.send(control, {"broken": f"{type(error).__name__}: {error}"}, b"", _SEND_S)
            return
        counters.end()


@contextlib.contextmanager
def _folder(worker: RunContext, spared: int) -> Any:
    if worker.is_namespaced:
        yield worker.runs_folder
        return
    folder = tempfile.mkdtemp(dir=worker.runs_folder)
    try:
        if worker.uid:
            os.chown(folder, worker.uid, worker.uid)
        yield folder
    finally:
        sweep.kill_all(worker.uid, spared)
        if worker.leftovers is not None:
            worker.leftovers.remove(folder)
        shutil.rmtree(folder, ignore_errors=True)
