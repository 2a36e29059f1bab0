"""Runs agent programs in processes of their own, by the interpreter that the operator named.

One file of the standard library: it runs where neither Troupe nor its packages are installed.

    python host.py serve    the first line of stdin sets up; each further line forks one run
    python host.py once     one run, read from stdin

Setup: {"preload": [..], "folder": .., "warm": a run, or null}. A run: {"program": "module:attr",
"task": {..}, "base_url": .., "end_url": .., "seed": .., "folder": .., "cpu_s": ..}. What the
program returns or raises is POSTed to end_url. Each line of stdin is answered by one line.
"""

import asyncio
import contextlib
import ctypes
import importlib
import inspect
import json
import os
import random
import resource
import signal
import ssl
import sys
import threading
import time
import traceback
import urllib.request
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TextIO

PR_SET_PDEATHSIG = 1
MAX_ANSWER_CHARS = 1_000_000
THREADS_END_S = 3.0
BUNDLE_HEAD_BYTES = 8192
Order = dict[str, Any]


def fix_randomness(seed: int) -> None:
    """Fix what Python code commonly draws from: ``random``, ``uuid4`` and NumPy's generator."""
    random.seed(seed)
    draw = random.Random(f"uuid/{seed}")
    uuid.uuid4 = lambda: uuid.UUID(int=draw.getrandbits(128), version=4)
    seed_numpy(seed)


def seed_numpy(seed: int) -> None:
    """Seed NumPy's global generator if it is loaded."""
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


def set_environment(order: Order) -> None:
    """Point the clients' usual variables at the run's endpoint."""
    base = order["base_url"]
    os.environ["OPENAI_BASE_URL"] = os.environ["OPENAI_API_BASE"] = base
    os.environ["ANTHROPIC_BASE_URL"] = base.rsplit("/v1", 1)[0]
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        os.environ[name] = order["key"]
    if order["keys"]:
        os.environ["TROUPE_KEYS"] = json.dumps(order["keys"])


def run(order: Order) -> None:
    """Run the program once, and post how it ended."""
    set_environment(order)
    add_folder(order.get("folder"))
    fix_randomness(order["seed"])
    try:
        module, _, attribute = order["program"].partition(":")
        program: Any = importlib.import_module(module)
        for part in attribute.split("."):
            program = getattr(program, part)
        seed_numpy(order["seed"])
        answer = program(order["task"])
        if inspect.isawaitable(answer):
            answer = asyncio.run(awaited(answer))
        end = {"answer": as_text(answer)[:MAX_ANSWER_CHARS]}
    except BaseException as error:
        end = {
            "error": f"{type(error).__name__}: {error}"[:500],
            "traceback": traceback_of(error)[-4000:],
        }
    post(order["end_url"], end)


def traceback_of(error: BaseException) -> str:
    """The traceback without the frames of this file and of the importer: the program's alone."""
    told = traceback.TracebackException.from_exception(error)
    frames = [f for f in told.stack if f.filename != __file__ and "importlib" not in f.filename]
    told.stack = traceback.StackSummary.from_list(frames)
    return "".join(told.format())


async def awaited(awaitable: Awaitable[Any]) -> Any:
    """What ``awaitable`` gives: ``asyncio.run`` takes coroutines alone."""
    return await awaitable


def as_text(answer: Any) -> str:
    """A program's answer as text; values of JSON are written as JSON.

    Raises:
        TypeError: it is None, as of a forgotten ``return``, or an object, such as a coroutine or
            a framework's message: its repr would be judged.
    """
    if isinstance(answer, str):
        return answer
    if answer is None:
        raise TypeError("the program returned None; return the answer's text, '' for none")
    if inspect.isawaitable(answer):
        raise TypeError(f"the program returned a {type(answer).__name__} unawaited; await it")
    if inspect.isgenerator(answer) or inspect.isasyncgen(answer):
        raise TypeError("the program yields: it returned a generator; return the answer's text")
    try:
        return json.dumps(answer)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"the program returned a {type(answer).__name__} that JSON can't hold ({error}); "
            "return the answer's text"
        ) from None


def post(url: str, document: Any) -> None:
    """POST ``document`` to the endpoint, past any proxy."""
    data = json.dumps(document).encode("utf-8", "replace")
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with contextlib.suppress(OSError), opener.open(request, timeout=60) as response:
        response.read()


def add_folder(folder: str | None) -> None:
    """Import from ``folder`` first."""
    if folder and folder not in sys.path:
        sys.path.insert(0, folder)


def load_certificates_late() -> None:
    """Have TLS contexts read the usual bundle when a connection is first secured by it.

    Clients read some 140 certificates when they are built, and the endpoint speaks plain HTTP.
    Threads that share a context wait until it has read them: OpenSSL reads without the GIL.
    """
    load = ssl.SSLContext.load_verify_locations
    lock = threading.Lock()
    os.register_at_fork(
        before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
    )

    def noted(context: Any, cafile: Any = None, capath: Any = None, cadata: Any = None) -> None:
        if capath is not None or cadata is not None or not is_usual_bundle(cafile):
            load(context, cafile, capath, cadata)
            return
        with lock:
            vars(context).setdefault("late", []).append(Path(os.fsdecode(cafile)).absolute())

    def loading(method: Callable[..., Any]) -> Callable[..., Any]:
        def called(context: Any, *args: Any, **more: Any) -> Any:
            if "late" in vars(context):
                with lock:
                    for path in vars(context).get("late", ()):
                        load(context, path)
                    vars(context).pop("late", None)
            return method(context, *args, **more)

        return called

    ssl.SSLContext.load_verify_locations = noted  # type: ignore[method-assign]
    for name in ("wrap_socket", "wrap_bio", "get_ca_certs", "cert_store_stats"):
        setattr(ssl.SSLContext, name, loading(getattr(ssl.SSLContext, name)))


def is_usual_bundle(cafile: Any) -> bool:
    """Whether it is a bundle like certifi's, which nobody changes; any other is read at once."""
    if cafile is None or (path := Path(os.fsdecode(cafile))).name != "cacert.pem":
        return False
    try:
        with path.open("rb") as file:
            return b"-----BEGIN CERTIFICATE-----" in file.read(BUNDLE_HEAD_BYTES)
    except OSError:
        return False


def limit(order: Order) -> None:
    """Bound the run's processor time; a run that exceeds it is killed."""
    resource.setrlimit(resource.RLIMIT_CPU, (order["cpu_s"], order["cpu_s"] + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def warm_up(order: Order) -> None:
    """Run the program once, then forget the user's modules: a run imports them afresh.

    A client that is built at import reads the base URL then, so no run may inherit one. Nor may it
    that of ``openai.chat.completions.create``, which its package builds when it is first used.
    """
    before = dict(os.environ)
    run(order)
    os.environ.clear()
    os.environ.update(before)
    top = order["program"].partition(":")[0].partition(".")[0]
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None) or ""
        in_folder = bool(order.get("folder")) and path.startswith(order["folder"] + os.sep)
        # A virtual environment may lie in the program's folder.
        if name.partition(".")[0] == top or (in_folder and "site-packages" not in path):
            del sys.modules[name]
    forget = getattr(sys.modules.get("openai"), "_reset_client", None)
    if callable(forget):
        forget()


def num_threads() -> int:
    """Threads that are still there after a moment: a fork would lose them."""
    deadline = time.monotonic() + THREADS_END_S
    tasks = Path("/proc/self/task")
    while (count := len(list(tasks.iterdir()))) > 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    return count


def serve(orders: TextIO, replies: TextIO) -> None:
    """Set up, then fork a run for each line until stdin ends; then end all runs, and itself with
    what its warm run left: this process leads their group."""
    libc = ctypes.CDLL(None)
    setup = json.loads(orders.readline())
    add_folder(setup.get("folder"))
    for name in setup["preload"]:
        importlib.import_module(name)
    if setup.get("warm"):
        warm_up(setup["warm"])
    names = [thread.name for thread in threading.enumerate()[1:]]
    reply(replies, {"num_threads": num_threads(), "names": names})
    children: set[int] = set()
    for line in orders:
        order = json.loads(line)
        children -= ended(children)
        pid = forked(order, libc, (orders, replies))
        children.add(pid)
        reply(replies, {"pid": pid})
    for pid in children - ended(children):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    os.killpg(os.getpid(), signal.SIGKILL)


def forked(order: Order, libc: ctypes.CDLL, pipes: tuple[TextIO, TextIO]) -> int:
    """The process of a run, which leads a process group of its own when this returns."""
    begun, begins = os.pipe()
    pid = os.fork()
    if pid:
        os.close(begins)
        os.read(begun, 1)
        os.close(begun)
        return pid
    try:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        os.write(begins, b"x")
        os.close(begins)
        os.close(begun)
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2, *(pipe.fileno() for pipe in pipes)):
            os.dup2(null, number)
        limit(order)
        run(order)
    finally:
        os._exit(0)


def ended(children: set[int]) -> set[int]:
    """Those of ``children`` that have ended; they are reaped, and what they left is ended."""
    return {pid for pid in children if reaped(pid)}


def reaped(pid: int) -> bool:
    """Whether the child ``pid`` has ended. The rest of its process group ends before it is reaped:
    until then no other group can have its number."""
    try:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass
    return True


def reply(replies: TextIO, document: Any) -> None:
    """Write one line."""
    replies.write(json.dumps(document) + "\n")
    replies.flush()


def main(mode: str) -> None:
    """Keep the pipes from the program: what it prints must not be read as a reply."""
    orders = os.fdopen(os.dup(0), "r", encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    load_certificates_late()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    if mode == "serve":
        serve(orders, replies)
        return
    order = json.loads(orders.readline())
    limit(order)
    run(order)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
