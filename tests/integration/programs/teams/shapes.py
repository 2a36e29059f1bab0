"""Programs of all the shapes that a run can take."""

import contextlib
import datetime
import http.client
import json
import os
import queue
import random
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from wire_client import ask, post, say


def pair(task):
    said = say("You are the solver.", task["question"])
    say("You are the verifier.", said)
    return said


def echoes(task):
    """The second prompt is twice the first answer."""
    return say("You are the verifier.", 2 * say("You are the solver.", task["question"]))


def fan_out(task):
    with ThreadPoolExecutor(4) as pool:
        drafts = list(
            pool.map(lambda i: say(f"You are the solver, kind {i}.", task["question"]), range(4))
        )
    return say("You are the verifier.", "\n".join(drafts))


def delegates(task):
    """A plan, workers of different depth at once, and the solver's last word."""
    number = int(say("You are the solver.", task["question"]))

    def work(i):
        said = say("You are the verifier.", f"part {i}")
        return say("You are the verifier.", f"part {i}, again: {said}") if i else said

    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(work, range(number)))
    return say("You are the solver.", "\n".join(["Together:", *parts]))


def same_thrice(task):
    with ThreadPoolExecutor(3) as pool:
        votes = list(pool.map(lambda _: say("You are the solver.", task["question"]), range(3)))
    return max(votes, key=votes.count)


def clock(task):
    said = say("You are the solver.", task["question"])
    now = datetime.datetime.now().isoformat()
    say("You are the verifier.", f"At {now}: {said}")
    return said


def chance(task):
    mark = f"{random.random()} {uuid.uuid4()} {hash('text')}"
    return say("You are the solver.", f"{task['question']} {mark}")


def hurried(task):
    """Gives up each request after a moment and sends it again, as SDKs do."""
    for attempt in range(200):
        try:
            headers = {"x-stainless-retry-count": str(attempt)} if attempt % 2 else {}
            said = ask("You are the solver.", task["question"], timeout=0.15, headers=headers)
            return said["content"]
        except OSError:
            continue
    raise TimeoutError("no answer")


def impatient(task):
    """A read time-out that is much shorter than the wait for an answer."""
    return say("You are the solver.", task["question"], timeout=1.0)


def falls_back(task):
    """Gives its call up after a while and asks something else, as programs with time-outs do."""
    try:
        return "long " + say("You are the solver.", "LONG: " + task["question"], timeout=2.0)
    except OSError:
        return "short " + say("You are the solver.", "SHORT: " + task["question"])


def votes(task):
    """The verifier, then both at once; the solver's call is given up after a while."""
    say("You are the verifier.", "Ready?")

    def solver():
        try:
            return say("You are the solver.", task["question"], timeout=2.0)
        except OSError:
            return "none"

    with ThreadPoolExecutor(1) as pool:
        voted = pool.submit(solver)
        said = say("You are the verifier.", task["question"])
        return f"{voted.result()} {said}"


def raises(task):
    said = say("You are the solver.", task["question"])
    raise ValueError(f"cannot parse {said!r}")


def fails_a_fifth(task):
    """Raises on every fifth task, whatever is answered."""
    said = say("You are the solver.", task["question"])
    say("You are the verifier.", said)
    if int(task["id"].rpartition("/")[2]) % 5 == 3:
        raise ValueError("every fifth task is too much")
    return said


def counts_first(task):
    """Copes with what is not served, as clients do that count tokens; then reads a number."""
    with contextlib.suppress(RuntimeError):
        post("/messages/count_tokens", {"model": "any", "messages": []})
    return str(int(say("You are the solver.", task["question"])))


def forgets_to_return(task):
    say("You are the solver.", task["question"])


async def forgets_to_await(task):
    async def solve():
        return say("You are the solver.", task["question"])

    return solve()


async def yields(task):
    yield say("You are the solver.", task["question"])


def raises_at_once(task):
    raise KeyError("no such setting")


def silent(task):
    return "nothing was asked"


def hangs(task):
    say("You are the solver.", task["question"])
    threading.Event().wait()


def dies(task):
    say("You are the solver.", task["question"])
    os.kill(os.getpid(), 9)


def exits(task):
    say("You are the solver.", task["question"])
    os._exit(3)


def floods(task):
    threads = [
        threading.Thread(target=lambda i=i: say("You are the solver.", f"number {i}"), daemon=True)
        for i in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ""


def floods_after_an_answer(task):
    """As many calls as an agent asked for; the first refusal ends the program."""
    number = int(say("You are the solver.", task["question"]))
    refusals = queue.Queue()

    def call(i):
        try:
            say("You are the verifier.", f"number {i}")
        except RuntimeError as error:
            refusals.put(error)

    for i in range(number):
        threading.Thread(target=call, args=(i,), daemon=True).start()
    raise refusals.get(timeout=10.0)


def loops(task):
    while True:
        print("x" * 100_000, flush=True)
        say("You are the solver.", task["question"])


def grows(task):
    text = task["question"]
    while True:
        text = text * 4 + say("You are the solver.", text)


def shows_environment(task):
    say("You are the solver.", task["question"])
    return " ".join(sorted(os.environ))


def leaves_children(task):
    child = subprocess.Popen(["sleep", "600"])
    say("You are the solver.", f"{task['question']} {child.pid} of {os.getpid()}")
    return ""


def dies_and_leaves_a_child(task):
    child = subprocess.Popen(["sleep", "600"])
    say("You are the solver.", f"{task['question']} {child.pid}")
    os._exit(0)


def leaves_an_orphan(task):
    """In the run's process group, and no longer below the run: its parent has ended."""
    command = ["sh", "-c", "sleep 600 >/dev/null & echo $!"]
    orphan = subprocess.check_output(command, text=True).strip()
    say("You are the solver.", f"{task['question']} {orphan}")
    return ""


def strange(task):
    return say("You are a stranger.", task["question"])


def stopped(task):
    return say("You are the solver.", task["question"], stop=["END"], temperature=0.1)


def sequenced(task):
    """Which of its stop sequences ended an answer in Anthropic's format."""
    body = {"model": "any", "max_tokens": 64, "stop_sequences": ["Observation", "END"]}
    body |= {"system": "You are the solver.", "messages": [{"role": "user", "content": "?"}]}
    document = post("/messages", body)
    return f"{document['stop_reason']} {document['stop_sequence']}"


def bounded(task):
    """Two calls; each bounds its answer, the second above what the job allows."""
    said = say("You are the solver.", task["question"], max_tokens=2)
    say("You are the verifier.", said, max_completion_tokens=1000)
    return said


def ends(task):
    """Why each of its two answers ended."""
    reasons = []
    for system in ("You are the solver.", "You are the verifier."):
        seen = [
            {"role": "system", "content": system},
            {"role": "user", "content": "".join(reasons)},
        ]
        document = post("/chat/completions", {"model": "any", "messages": seen})
        reasons.append(document["choices"][0]["finish_reason"])
    return " ".join(reasons)


def several(task):
    return say("You are the solver.", task["question"], n=4)


def swallows(task):
    """Returns nothing, whatever is wrong with its only request."""
    with contextlib.suppress(RuntimeError):
        return several(task)
    return ""


def _keep_first_address():
    """Outside this module, as the default client of an installed package does."""
    url, key = vars(sys).setdefault(
        "kept_client", (os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"])
    )
    os.environ["OPENAI_BASE_URL"] = url
    return {"authorization": f"Bearer {key}"}


def keeps_a_client(task):
    """Asks by the address and the key that it saw first."""
    return say("You are the solver.", task["question"], headers=_keep_first_address())


def keeps_a_client_quietly(task):
    """The same, and no word of what is wrong."""
    with contextlib.suppress(RuntimeError):
        return keeps_a_client(task)
    return ""


def keeps_one_of_two_clients(task):
    """The solver's client is built by each run, the verifier's is kept."""
    said = say("You are the solver.", task["question"])
    say("You are the verifier.", said, headers=_keep_first_address())
    return said


def pictures(task):
    part = {"type": "image_url", "image_url": {"url": "data:,"}}
    body = {"model": "any", "messages": [{"role": "user", "content": [part]}]}
    say("You are the solver.", task["question"])
    return post("/chat/completions", body)


def slow(task):
    said = say("You are the solver.", task["question"])
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        pass
    return said + say("You are the verifier.", said)


def keyed(task):
    """Two agents that nothing but their keys tells apart; then the coder's once more."""
    keys = json.loads(os.environ["TROUPE_KEYS"])
    said = []
    for agent in ("coder", "tester", "coder"):
        headers = {"authorization": f"Bearer {keys[agent]}"}
        said.append(ask("You are anybody.", task["question"], headers=headers)["content"])
    return said[0]


def looks_around(task):
    """What a program in the sandbox can reach, told as its answer."""
    headers = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    said = say("You are the solver.", task["question"], headers=headers)
    (Path.cwd() / "notes.txt").write_text(said)
    done = subprocess.run(said, shell=True, capture_output=True, text=True, timeout=60)
    told = {"output": done.stdout, "status": done.returncode, "env": sorted(os.environ)}
    return json.dumps({**told, "files": sorted(path.name for path in Path.cwd().iterdir())})


def where(task):
    """Asks with the run's key, which leaves the agent to the other rules, and tells the address."""
    headers = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    return say("You are anybody.", os.environ["OPENAI_BASE_URL"], headers=headers)


def leaves_a_busy_one(task):
    """An agent's command that goes on in the background, and never sleeps."""
    said = say("You are the solver.", task["question"])
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        verdict = say("You are the verifier.", said)
        busy.kill()
    return verdict


def knocks(task):
    """On its first task connects again and again and asks nothing by it; else as ``pair``."""
    if task["id"].endswith("/0"):
        _knock()
        threading.Thread(target=_knock_on, daemon=True).start()
    return pair(task)


def _knock_on():
    while not threading.Event().wait(0.1):
        with contextlib.suppress(OSError):
            _knock()


def _knock():
    url = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"])
    _KEPT.append(socket.create_connection((url.hostname, url.port), timeout=5))


_KEPT = []


def crowds(task):
    """Keeps a connection for each request; tells how many of 70 were served."""
    url = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"])
    kept = [http.client.HTTPConnection(url.hostname, url.port, timeout=5) for _ in range(70)]
    num_served = 0
    for connection in kept:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", url.path + "/models")
            num_served += connection.getresponse().read() != b""
    for connection in kept:
        connection.close()
    return say("You are the solver.", str(num_served))
