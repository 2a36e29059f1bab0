"""What a case does to streams, Redis and the limits of a process, beside signals.

Owns the pressure and its end. Each function returns when the pressure is over.
"""

import resource
import select
import socket
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import redis
from process_tree import wait_for

from troupe.ids import train_round
from troupe.runtime.streams import keys

HELD_S = 5.0
NUM_CONNECTIONS = 2000
_REQUEST = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 64
_SHUFFLE = """
-- KEYS stream; ARGV group way. Entries that the group was not given yet.
local groups, after = redis.call('XINFO', 'GROUPS', KEYS[1]), '-'
for _, group in ipairs(groups) do
  local facts = {}
  for i = 1, #group, 2 do facts[group[i]] = group[i + 1] end
  if facts['name'] == ARGV[1] then after = '(' .. facts['last-delivered-id'] end
end
local entries = redis.call('XRANGE', KEYS[1], after, '+')
for i = #entries, 1, -1 do
  redis.call('XADD', KEYS[1], '*', unpack(entries[i][2]))
  if ARGV[2] == 'reordered' then redis.call('XDEL', KEYS[1], entries[i][1]) end
end
return #entries
"""


def shuffle(client: "redis.Redis", job_id: str, stream: str, way: str) -> None:
    """Write the stream's unread entries once more, in the opposite order; or only in that order."""
    if stream == "tickets":
        found = client.eval(_SHUFFLE, 1, keys.tickets(job_id), keys.WORKERS_GROUP, way)
    else:
        state = keys.round_state(job_id, train_round(1))

        def is_played() -> bool:
            wanted, done = client.hmget(state, "num_tickets", "num_done")
            return wanted is not None and wanted == done

        wait_for("the round to be played", is_played, within_s=240)
        found = client.eval(_SHUFFLE, 1, keys.groups(job_id, "shared"), keys.TRAINER_GROUP, way)
    assert int(found) > 1, f"{found} unread entries in {stream}: nothing was {way}"


@contextmanager
def refusing(client: "redis.Redis") -> Generator[None]:
    """Redis' memory is full: it answers, and refuses whatever would need more."""
    client.config_set("maxmemory", 1)
    try:
        yield
        with suppress(redis.OutOfMemoryError):
            client.set("chaos", "x")
            raise AssertionError("Redis still takes writes")
    finally:
        client.config_set("maxmemory", 0)


@contextmanager
def storm(port: int) -> Generator[None]:
    """Connections, all at once, every other one with the beginning of a request; then all gone."""
    ready = select.poll()
    with ExitStack() as crowd:
        for number in range(NUM_CONNECTIONS):
            one = crowd.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            if number % 2:
                ready.register(one, select.POLLOUT)
                ready.poll(HELD_S * 1000)
                ready.unregister(one)
                with suppress(OSError):
                    one.send(_REQUEST[: 1 + number % len(_REQUEST)])
        yield


@contextmanager
def squeezed(pid: int, what: int) -> Generator[None]:
    """``RLIMIT_AS`` or ``RLIMIT_NOFILE`` of a process is what it uses now: it gets no more."""
    before = resource.prlimit(pid, what)
    resource.prlimit(pid, what, (_used(pid, what), before[1]))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, what, before)


def _used(pid: int, what: int) -> int:
    if what == resource.RLIMIT_NOFILE:
        taken = {int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir()}
        return min(set(range(len(taken) + 1)) - taken)
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(x for x in status.splitlines() if x.startswith("VmSize:"))
    return int(line.split()[1]) * 1024
