"""Connections that are refused, lost, cut after the commit, or come back."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from troupe.api.records.v1.records_pb2 import ROUND_KIND_TRAIN, Episode, Group, Ticket
from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.streams import keys
from troupe.streams.consumer import Consumer
from troupe.streams.ledger import StepLedger
from troupe.streams.redis import connect
from troupe.streams.stream import Stream


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
            *(sys.executable, "-m", "troupe.streams.embedded"),
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
    argv = [sys.executable, "-m", "troupe.streams.embedded", "--port", str(port)]
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
