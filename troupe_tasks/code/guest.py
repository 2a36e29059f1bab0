"""Runs inside the sandbox, by its source text: tries programs on inputs and reports what they did.

Knows inputs only. Never knows an expected output and never judges, so a program that takes this
one over gains nothing: it can only report outputs, which is what it is asked for. Each case runs in
a forked child, so nothing is left over from one case to the next. Standard library only, and
nothing of Troupe: this file travels as text.

In: one JSON document on stdin. Out: one line a case, ``<nonce> {"status": ..., "case": n}``.
Statuses: ``ok``, ``exit`` (not 0), ``signal``, ``time``, ``output`` (too much), ``syntax``,
``error`` (an exception), ``value`` (the result is no plain value), ``skipped``.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import json
import math
import os
import resource
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any, NoReturn, TextIO

ERROR_CHARS = 600
RESULT_FD = 63
FAILED = 71
SAID = ("status", "value", "error", "passed", "asked")


def main() -> None:
    """Try every case of the job on stdin."""
    job = json.loads(sys.stdin.buffer.read())
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    programs = [compiled(program) for program in job["programs"]]
    num_late, began = 0, time.monotonic()
    for number, case in enumerate(job["cases"]):
        code, problem = programs[case["program"]]
        report: dict[str, Any]
        if code is None:
            report = {"status": "syntax", "error": problem}
        elif num_late >= job["stop_after"] or time.monotonic() - began > job["budget_s"]:
            report = {"status": "skipped"}
        else:
            report = tried(job, job["programs"][case["program"]], code, case, out)
            num_late += report["status"] == "time"
        out.write(job["nonce"] + " " + json.dumps({**report, "case": number}) + "\n")
        out.flush()


def compiled(program: dict[str, Any]) -> tuple[CodeType | None, str]:
    """The program's code, or None and why there is none."""
    try:
        return compile(program["source"], "<program>", "exec", dont_inherit=True), ""
    except SyntaxError as error:
        return None, f"{type(error).__name__}: {error.msg} (line {error.lineno})"
    except (ValueError, MemoryError, RecursionError, OverflowError) as error:
        return None, f"{type(error).__name__}: {error}"


def tried(
    job: dict[str, Any],
    program: dict[str, Any],
    code: CodeType,
    case: dict[str, Any],
    out: TextIO,
) -> dict[str, Any]:
    """One case in a child of its own: what it wrote, and how it ended."""
    pipes = {name: os.pipe() for name in ("stdout", "stderr", "result")}
    pid = os.fork()
    if pid == 0:
        try:
            child(job, program, code, case, pipes, out)
        finally:
            os._exit(FAILED)
    for _, write in pipes.values():
        os.close(write)
    texts, status = followed(pid, {name: read for name, (read, _) in pipes.items()}, job)
    output = texts["stdout"][: job["output_bytes"]]
    report: dict[str, Any] = {"status": status, "output": output.decode("utf-8", "replace")}
    if texts["result"] and status in ("ok", "exit", "error"):
        report.update(read_result(texts["result"]))
    if report["status"] != "ok" and "error" not in report:
        report["error"] = last_line(texts["stderr"])
    return report


def read_result(data: bytes) -> dict[str, Any]:
    """What a child says in its result pipe; it may say anything, so only the shape is checked."""
    try:
        said = json.loads(data)
        return {name: said[name] for name in SAID if name in said}
    except (ValueError, TypeError, RecursionError):
        return {"status": "value", "error": "the result cannot be read"}


def last_line(data: bytes) -> str:
    """The last line of an error output that is not empty."""
    lines = [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:ERROR_CHARS] if lines else ""


def followed(pid: int, fds: dict[str, int], job: dict[str, Any]) -> tuple[dict[str, bytes], str]:
    """Read a child's pipes until it ends, writes too much or runs late; leave nothing running."""
    texts = dict.fromkeys(fds, b"")
    names = {fd: name for name, fd in fds.items()}
    poll = select.poll()
    for fd in names:
        os.set_blocking(fd, False)
        poll.register(fd, select.POLLIN | select.POLLHUP)
    deadline = time.monotonic() + job["wall_s"]
    status, ended = "", -1
    while names and not status:
        has_ended = ended >= 0
        for fd, _ in poll.poll(20):
            if drained(fd, names[fd], texts):
                poll.unregister(fd)
                os.close(fd)
                del names[fd]
            elif any(len(text) > job["output_bytes"] for text in texts.values()):
                status = "output"
        if has_ended:
            break
        ended = waited(pid)
        if not status and ended < 0 and time.monotonic() > deadline:
            status = "time"
    for fd in names:
        os.close(fd)
    while not status and ended < 0:
        ended = waited(pid)
        if ended < 0 and time.monotonic() > deadline:
            status = "time"
        time.sleep(0.0002)
    return texts, killed(pid, ended, status)


def drained(fd: int, name: str, texts: dict[str, bytes]) -> bool:
    """Read what is there; whether the other end is closed."""
    try:
        data = os.read(fd, 65536)
    except BlockingIOError:
        return False
    texts[name] += data
    if name == "stderr":
        texts[name] = texts[name][-4096:]
    return not data


def waited(pid: int) -> int:
    """The wait status of a child that has ended, else -1."""
    found, ended = os.waitpid(pid, os.WNOHANG)
    return ended if found else -1


def killed(pid: int, ended: int, status: str) -> str:
    """End the child's process group; how the child ended, unless ``status`` says so already."""
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    if ended < 0:
        ended = os.waitpid(pid, 0)[1]
    if status:
        return status
    if os.WIFSIGNALED(ended):
        return "time" if os.WTERMSIG(ended) == signal.SIGXCPU else "signal"
    return {0: "ok", FAILED: "error"}.get(os.WEXITSTATUS(ended), "exit")


def child(
    job: dict[str, Any],
    program: dict[str, Any],
    code: CodeType,
    case: dict[str, Any],
    pipes: dict[str, tuple[int, int]],
    out: TextIO,
) -> NoReturn:
    """Become the program: own session, own limits, own three channels, nothing else open."""
    os.setsid()
    out.close()
    has_result = program["kind"] != "stdin"
    if has_result:
        os.dup2(pipes["result"][1], RESULT_FD)
    give_input(case["input"])
    os.dup2(pipes["stdout"][1], 1)
    os.dup2(pipes["stderr"][1], 2)
    os.closerange(3, RESULT_FD)
    os.closerange(RESULT_FD + has_result, 1024)
    cpu_s = max(1, math.ceil(job["cpu_s"]))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_AS, (job["memory_bytes"],) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdin = open(0, encoding="utf-8", errors="replace")  # noqa: SIM115
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="replace", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="replace", closefd=False)
    sys.argv = ["program.py"]
    run = {"stdin": run_stdin, "call": run_call, "script": run_script}[program["kind"]]
    status = 0
    try:
        run(program, code, case)
    except SystemExit as error:
        status = exit_status(error.code)
    except BaseException as error:
        status = FAILED
        sys.stderr.write("\n" + described(error))
    leave(status)


def described(error: BaseException) -> str:
    """One line on an exception, with the line of the program where there is one."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<program>":
            line = trace.tb_lineno
        trace = trace.tb_next
    where = f" (line {line})" if line else ""
    return f"{type(error).__name__}: {str(error)[:ERROR_CHARS]}{where}"


def exit_status(code: object) -> int:
    """The status that an interpreter gives to ``sys.exit(code)``."""
    if code is None:
        return 0
    return code & 255 if isinstance(code, int) else 1


def leave(status: int) -> NoReturn:
    """End as an interpreter does: wait for threads, call exit functions, flush."""
    threading: Any = sys.modules.get("threading")
    if threading is not None and status == 0:
        threading._shutdown()
    exits: Any = atexit
    exits._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            status = status or 1
    os._exit(status)


def give_input(text: str) -> None:
    """Standard input from a file without a name: a pipe could block whoever fills it."""
    name = f".input-{os.getpid()}"
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(name)  # noqa: PTH108 (pathlib is slow to import)
    data = text.encode("utf-8", "surrogatepass")
    while data:
        data = data[os.write(fd, data) :]
    os.lseek(fd, 0, os.SEEK_SET)
    os.dup2(fd, 0)


def namespace(source: str, name: str) -> dict[str, Any]:
    """A fresh main module. Random numbers are seeded: a program does the same each time."""
    if "random" in source:
        import random

        random.seed(0)
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    module.__dict__.update(__builtins__=__builtins__, __name__=name)
    return module.__dict__


def run_stdin(program: dict[str, Any], code: CodeType, case: dict[str, Any]) -> None:
    """The program as a whole, between standard input and output."""
    exec(code, namespace(program["source"], "__main__"))


def run_call(program: dict[str, Any], code: CodeType, case: dict[str, Any]) -> None:
    """One call of the program's function; tells its result."""
    space = namespace(program["source"], "program")
    exec(code, space)
    function = found_function(space, program["entry"])
    args = [decoded(arg) for arg in case["args"]]
    kwargs = {name: decoded(arg) for name, arg in case.get("kwargs", {}).items()}
    try:
        tell({"status": "ok", "value": encoded(function(*args, **kwargs))})
    except OpaqueError as error:
        tell({"status": "value", "error": f"the result holds {error}"})


def found_function(space: dict[str, Any], entry: str) -> Any:
    """The function ``name``, or the method ``Class.name`` of a new object."""
    first, _, rest = entry.partition(".")
    if first not in space:
        raise NameError(f"the program defines no {first}")
    return getattr(space[first](), rest) if rest else space[first]


def tell(said: dict[str, Any]) -> None:
    """Say something in the result pipe, whatever the program did to standard output."""
    with open(RESULT_FD, "w", encoding="utf-8", closefd=False) as result:
        json.dump(said, result)


class OpaqueError(Exception):
    """A value that is not plain."""


def encoded(value: Any, depth: int = 0) -> Any:
    """Tagged JSON of a plain value, as in ``troupe_tasks.code.values``."""
    if depth > 50:
        raise OpaqueError("something nested too deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        number = float.__float__(value)
        return number if math.isfinite(number) else {"f": float.__repr__(number)}
    if isinstance(value, (bytes, bytearray)):
        return {"b": value.hex()}
    if isinstance(value, complex):
        return {"c": [encoded(value.real, depth + 1), encoded(value.imag, depth + 1)]}
    if isinstance(value, dict):
        items: Any = dict.items(value)
        return {"d": [[encoded(k, depth + 1), encoded(v, depth + 1)] for k, v in items]}
    is_deque = type(value).__module__ == "collections" and type(value).__name__ == "deque"
    if not is_deque and not isinstance(value, (list, tuple, set, frozenset)):
        raise OpaqueError(f"a {type(value).__name__}")
    parts = [encoded(item, depth + 1) for item in value]
    if isinstance(value, tuple):
        return {"t": parts}
    return {"s": parts} if isinstance(value, (set, frozenset)) else parts


def decoded(data: Any) -> Any:
    """The value that the judge encoded."""
    if isinstance(data, list):
        return [decoded(item) for item in data]
    if not isinstance(data, dict):
        return data
    ((tag, body),) = data.items()
    if tag == "f":
        return float(body)
    if tag == "b":
        return bytes.fromhex(body)
    if tag == "c":
        return complex(*map(decoded, body))
    if tag == "d":
        return {decoded(key): decoded(item) for key, item in body}
    items = [decoded(item) for item in body]
    if tag == "t":
        return tuple(items)
    return {frozenset(item) if isinstance(item, set) else item for item in items}


class Pending:
    """The result of a call that is not known yet: every comparison holds, for this round."""

    __iter__ = None

    def _hold(self, *_: object) -> bool:
        return True

    def _stay(self, *_: object) -> Pending:
        return self

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __contains__ = _hold
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __abs__ = __neg__ = _stay
    __truediv__ = __rtruediv__ = __mod__ = __round__ = __getitem__ = _stay


def exception_named(name: str) -> Exception:
    """An exception of a built-in class, as the program raised it."""
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        with contextlib.suppress(TypeError):
            return kind("raised by the program")
    return RuntimeError("raised by the program")


def run_script(program: dict[str, Any], code: CodeType, case: dict[str, Any]) -> None:
    """A test script with ``candidate`` answered from a table; tells which calls it lacks.

    The judged program is not here: its answers are, so the script may hold expected values.
    """
    known = {json.dumps(call, sort_keys=True): answer for call, answer in case["known"]}
    asked: list[dict[str, Any]] = []

    def candidate(*args: Any, **kwargs: Any) -> Any:
        call = {
            "args": [encoded(arg) for arg in args],
            "kwargs": {name: encoded(arg) for name, arg in kwargs.items()},
        }
        key = json.dumps(call, sort_keys=True)
        if key not in known:
            asked.append(call)
            return Pending()
        answer = known[key]
        if "raised" in answer:
            raise exception_named(answer["raised"])
        if "value" not in answer:
            raise SystemExit("the program gave no answer to this call")
        return decoded(answer["value"])

    space = namespace(program["source"], "script")
    space["candidate"] = space[program["entry"] or "candidate"] = candidate
    passed = True
    try:
        exec(code, space)
    except BaseException:
        passed = False
    tell({"status": "ok", "passed": passed, "asked": asked})


if __name__ == "__main__":
    main()
