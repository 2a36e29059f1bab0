"""Connections that are refused, lost, cut after the commit, or come back."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from tests.conftest import ValkeyServer
from troupe.api.records.v1.records_pb2 import ROUND_KIND_TRAIN, Episode, Group, Ticket
from troupe.errors import InvalidArgumentError, OverloadedError, TroupeError, UnavailableError
from troupe.runtime.streams import keys
from troupe.runtime.streams.consumer import Consumer
from troupe.runtime.streams.ledger import StepLedger
from troupe.runtime.streams.redis import connect, redis_errors, without_password
from troupe.runtime.streams.stream import Stream


class CuttingProxy:
    """Forwards to a server; when told to, swallows one answer and cuts the connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.cuts_left = 0
        self.num_cut = 0

    async def serve(self) -> asyncio.Server:
        return await asyncio.start_server(self._handle, "127.0.0.1", 0)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._port)
        tasks = [
            asyncio.create_task(self._pump(reader, up_writer, is_answer=False)),
            asyncio.create_task(self._pump(up_reader, writer, is_answer=True)),
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writer.close()
        up_writer.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        while data := await reader.read(65536):
            if is_answer and self.cuts_left and not data.startswith((b"+", b"-NOSCRIPT")):
                self.cuts_left -= 1
                self.num_cut += 1
                return
            writer.write(data)
            await writer.drain()


async def test_connect_when_nobody_listens_then_says_where_and_what_to_do(
    free_port: Callable[[], int],
):
    url = f"redis://user:secret@127.0.0.1:{free_port()}/0"
    with pytest.raises(UnavailableError) as caught:
        await connect(url, connect_for_s=0.2)
    assert "127.0.0.1" in caught.value.message
    assert "troupe up" in caught.value.message
    assert "secret" not in caught.value.message


@pytest.mark.parametrize("url", ["", "localhost:6379", "http://x", "redis://h:notaport"])
async def test_connect_when_the_url_is_garbage_then_invalid_argument(url: str):
    with pytest.raises(InvalidArgumentError, match="redis://host:port"):
        await connect(url, connect_for_s=0.2)


async def test_commands_when_the_server_is_killed_and_restarted_then_go_on(own_valkey_server):
    redis = await connect(own_valkey_server.url)
    ledger = StepLedger(redis, "j")
    tickets = [Ticket(ticket_id=f"t{i}", job_id="j", round_id="r") for i in range(50)]
    await ledger.open_round("r", ROUND_KIND_TRAIN, 0, tickets)
    reader = Consumer(
        redis, keys.tickets("j"), keys.WORKERS_GROUP, "w", claim_idle_s=1, max_attempts=0
    )

    async def play() -> None:
        while not (state := await ledger.round("r")) or not state.is_complete:
            for entry in await reader.read(count=5, block_s=0.5):
                ticket = Ticket.FromString(entry.payload)
                group = Group(group_id=ticket.ticket_id, policy="p")
                await ledger.complete_ticket(ticket, entry.id, [group], Episode())

    playing = asyncio.create_task(play())
    watcher = StepLedger(redis, "j")
    while await redis.xlen(keys.groups("j", "p")) <= 5:
        await watcher.wait_change(5)
    own_valkey_server.stop(signal.SIGKILL)
    own_valkey_server.start()
    async with asyncio.timeout(30):
        await playing
    entries = await redis.xrange(keys.groups("j", "p"))
    ids = sorted(Group.FromString(fields[b"p"]).group_id for _, fields in entries)
    assert ids == sorted(t.ticket_id for t in tickets)
    await redis.aclose()


async def test_commands_when_the_server_stays_away_then_unavailable_within_the_bound(
    own_valkey_server,
):
    redis = await connect(own_valkey_server.url, retry_for_s=0.5)
    own_valkey_server.stop(signal.SIGKILL)
    loop = asyncio.get_running_loop()
    started = loop.time()
    with pytest.raises(UnavailableError, match="ledger"):
        await StepLedger(redis, "j").versions()
    with pytest.raises(UnavailableError):
        await Stream(redis, "s", max_length=5).append(b"x")
    assert loop.time() - started < 8
    await redis.aclose()


async def test_ledger_when_the_connection_dies_after_the_commit_then_counts_once(
    redis: Redis, valkey_server
):
    proxy = CuttingProxy(valkey_server.port)
    server = await proxy.serve()
    port = server.sockets[0].getsockname()[1]
    client = await connect(f"redis://127.0.0.1:{port}/0")
    ledger = StepLedger(client, "j")
    tickets = [Ticket(ticket_id=f"t{i}", job_id="j", round_id="r") for i in range(3)]
    proxy.cuts_left = 1
    await ledger.open_round("r", ROUND_KIND_TRAIN, 0, tickets)
    assert await redis.xlen(keys.tickets("j")) == 3
    reader = Consumer(
        client, keys.tickets("j"), keys.WORKERS_GROUP, "w", claim_idle_s=1, max_attempts=0
    )
    for entry in await reader.read(count=3, block_s=1):
        ticket = Ticket.FromString(entry.payload)
        proxy.cuts_left = 1
        group = Group(group_id=ticket.ticket_id, policy="p")
        await ledger.complete_ticket(ticket, entry.id, [group], Episode())
    proxy.cuts_left = 1
    await ledger.commit_version("p", 1, "d")
    assert proxy.num_cut == 5
    state = await ledger.round("r")
    assert state is not None
    assert (state.num_done, state.num_groups) == (3, {"p": 3})
    assert await redis.xlen(keys.groups("j", "p")) == 3
    assert await ledger.versions() == {"p": 1}
    await client.aclose()
    server.close()
    await server.wait_closed()


def test_embedded_when_the_port_is_in_use_then_one_paragraph_and_status_3(valkey_server, tmp_path):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "troupe.runtime.streams.embedded"),
            *("--port", str(valkey_server.port), "--data-dir", str(tmp_path / "data")),
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 3
    assert f"Port {valkey_server.port}" in done.stderr
    assert "Traceback" not in done.stderr


async def test_embedded_when_run_as_a_component_then_serves_and_keeps_its_data(
    free_port: Callable[[], int], tmp_path
):
    port = free_port()
    argv = [sys.executable, "-m", "troupe.runtime.streams.embedded", "--port", str(port)]
    argv += ["--data-dir", str(tmp_path / "data")]
    for expected in (None, b"1"):
        process = await asyncio.to_thread(subprocess.Popen, argv, stdout=subprocess.DEVNULL)
        client = await connect(f"redis://127.0.0.1:{port}/0", connect_for_s=20)
        assert await client.get("x") == expected
        await client.set("x", "1")
        assert (await client.config_get("maxmemory-policy"))["maxmemory-policy"] == "noeviction"
        await client.aclose()
        process.kill()
        process.wait(timeout=10)


async def test_write_when_the_server_became_a_replica_then_waits_for_the_new_primary(
    own_valkey_server: ValkeyServer, free_port: Callable[[], int]
):
    client = await connect(own_valkey_server.url)
    await client.execute_command("REPLICAOF", "127.0.0.1", str(free_port()))
    impatient = await connect(own_valkey_server.url, retry_for_s=0.0)
    with pytest.raises(UnavailableError, match="is a replica"), redis_errors("a write"):
        await impatient.set("a", 1)
    stream = Stream(client, "s", max_length=10)
    writing = asyncio.ensure_future(stream.append(b"x"))
    refused = await until_refused(impatient)
    assert refused >= 1 and not writing.done()
    await impatient.execute_command("REPLICAOF", "NO", "ONE")
    await asyncio.wait_for(writing, 30)
    assert await client.xlen("s") == 1
    await client.aclose()
    await impatient.aclose()


async def until_refused(client: Redis) -> int:
    """How many writes the server has refused, once there is one beside the first."""
    async with asyncio.timeout(30):
        while True:
            stats = await client.info("errorstats")
            if (count := stats["errorstat_READONLY"]["count"]) > 1:
                return count
            await asyncio.sleep(0.01)


async def test_ledger_when_redis_is_full_then_overloaded_and_nothing_half_done(
    own_valkey_server: ValkeyServer,
):
    client = await connect(own_valkey_server.url)
    ledger = StepLedger(client, "j")
    tickets = [Ticket(ticket_id=f"j/{i}", job_id="j", round_id="train-00000") for i in range(3)]
    await client.config_set("maxmemory", 1)
    with pytest.raises(OverloadedError, match="out of memory"):
        await ledger.open_round("train-00000", ROUND_KIND_TRAIN, 0, tickets)
    assert await client.dbsize() == 0
    await client.config_set("maxmemory", 0)
    assert await ledger.open_round("train-00000", ROUND_KIND_TRAIN, 0, tickets)
    await client.aclose()


@pytest.mark.parametrize(
    "said", ["MISCONF Errors writing to the AOF file: No space left on device", "NOREPLICAS Not"]
)
def test_errors_when_the_server_takes_no_writes_for_a_while_then_the_call_may_be_repeated(
    said: str,
):
    with pytest.raises(UnavailableError, match="takes no writes") as caught, redis_errors("x"):
        raise ResponseError(said)
    assert caught.value.retryable
    with pytest.raises(TroupeError, match="refused") as caught, redis_errors("x"):
        raise ResponseError("WRONGTYPE Operation")
    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:6379/0", "redis://h:6379/0"),
        ("rediss://me:s3cret@h:6379/0", "rediss://me:***@h:6379/0"),
        ("redis://:s3cret@h", "redis://:***@h"),
        ("unix:///run/x.sock?db=1&password=s3cret", "unix:///run/x.sock?db=1&password=***"),
    ],
)
def test_url_when_it_has_a_password_then_is_shown_without(url: str, shown: str) -> None:
    assert without_password(url) == shown
