"""gRPC over mutual TLS: who gets in, who may call what, and certificates that change."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from redis.asyncio import Redis
from tls_world import issue

from troupe.api.env.v1 import env_pb2_grpc
from troupe.api.rollout.v1 import rollout_pb2 as rollout_pb
from troupe.api.rollout.v1 import rollout_pb2_grpc
from troupe.api.router.v1 import router_pb2 as pb
from troupe.api.router.v1 import router_pb2_grpc
from troupe.clients import EnvClient, RolloutClient, RouterClient
from troupe.clients.channel import CLIENT_OPTIONS, SERVER_OPTIONS
from troupe.errors import ForbiddenError, TroupeError, UnavailableError
from troupe.runtime.serving.address import bind_grpc
from troupe.runtime.serving.authorization import CallerInterceptor
from troupe.runtime.serving.interceptor import ErrorInterceptor
from troupe.runtime.tls import Role, configured
from troupe.runtime.tls.certificates import Authority
from troupe_router.jobs.bundles import BundleStore
from troupe_router.jobs.job_bundles import JobBundles
from troupe_router.jobs.store import JobStore
from troupe_router.members.registry import Registry
from troupe_router.members.store import MemberStore
from troupe_router.servicer import RouterServicer
from troupe_router.settings import RouterSettings

Become = Callable[[Role | Path | None], None]
Add = Callable[[grpc.aio.Server], None]
Serve = Callable[[Role | Path, Add], Awaitable[str]]


@pytest.fixture
async def serve(become: Become) -> AsyncIterator[Serve]:
    """``serve("router", add)``: a server that holds that certificate; its address."""
    servers: list[grpc.aio.Server] = []

    async def start(who: Role | Path, add: Add) -> str:
        become(who)
        guards = [ErrorInterceptor(), CallerInterceptor()]
        server = grpc.aio.server(interceptors=guards, options=SERVER_OPTIONS)
        add(server)
        port = bind_grpc(server, "127.0.0.1:0", configured())
        await server.start()
        servers.append(server)
        become(None)
        return f"127.0.0.1:{port}"

    yield start
    for server in servers:
        await server.stop(None)


@pytest.fixture
async def router(serve: Serve, redis: Redis) -> str:
    """Address of a real router's membership service."""
    store = JobStore(redis)
    registry = Registry(redis, store, MemberStore(redis, ttl_s=5))
    servicer = RouterServicer(registry, JobBundles(BundleStore(RouterSettings()), store))

    def add(server: grpc.aio.Server) -> None:
        router_pb2_grpc.add_RouterServiceServicer_to_server(servicer, server)
        health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)

    return await serve("router", add)


def replica(kind: pb.ReplicaKind) -> pb.Replica:
    return pb.Replica(replica_id="r0", kind=kind, address="127.0.0.1:1", incarnation="1")


KINDS: dict[Role, pb.ReplicaKind] = {
    "rollout": pb.REPLICA_KIND_ROLLOUT,
    "env": pb.REPLICA_KIND_ENV,
    "trainer": pb.REPLICA_KIND_TRAINER,
}


@pytest.mark.parametrize("role", ["rollout", "env", "trainer"])
async def test_member_when_its_certificate_fits_then_joins_as_its_own_kind_alone(
    router: str, become: Become, role: Role
) -> None:
    become(role)
    async with RouterClient(router) as client:
        for kind in KINDS.values():
            if kind == KINDS[role]:
                assert (await client.register(replica(kind), timeout_s=30)).job_id == ""
                continue
            with pytest.raises(ForbiddenError, match=f"certificate names {role}"):
                await client.register(replica(kind), timeout_s=30)
            with pytest.raises(ForbiddenError, match="reports the kind"):
                await client.heartbeat(replica(kind), timeout_s=30)


async def test_replicas_when_listed_then_only_for_the_trainer(router: str, become: Become) -> None:
    become("trainer")
    async with RouterClient(router) as client:
        assert await client.list_replicas("job", timeout_s=30) == []
    become("env")
    async with RouterClient(router) as client:
        with pytest.raises(ForbiddenError, match="ListReplicas is for trainer"):
            await client.list_replicas("job", timeout_s=30)


async def test_caller_when_it_speaks_plain_then_is_refused(router: str, become: Become) -> None:
    become(None)
    async with RouterClient(router) as client:
        with pytest.raises(UnavailableError):
            await client.register(replica(pb.REPLICA_KIND_ENV), timeout_s=30)


async def test_caller_when_it_has_no_certificate_then_is_refused(
    router: str, certificates: Path
) -> None:
    ca = (certificates / "env" / "ca.crt").read_bytes()
    credentials = grpc.ssl_channel_credentials(ca)
    options = [*CLIENT_OPTIONS, ("grpc.ssl_target_name_override", "router.troupe.internal")]
    async with grpc.aio.secure_channel(router, credentials, options) as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ListReplicas(pb.ListReplicasRequest(job_id="job"), timeout=30)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_caller_when_another_authority_signed_then_is_refused(
    router: str, become: Become, certificates: Path, tmp_path: Path
) -> None:
    issue(Authority.create("stranger"), ["trainer"], tmp_path / "stranger")
    # It believes the router; the router does not believe it.
    (tmp_path / "stranger" / "ca.crt").write_bytes((certificates / "env" / "ca.crt").read_bytes())
    become(tmp_path / "stranger")
    async with RouterClient(router) as client:
        with pytest.raises(UnavailableError):
            await client.list_replicas("job", timeout_s=30)


async def test_caller_when_the_server_holds_another_role_then_does_not_speak_to_it(
    serve: Serve, become: Become
) -> None:
    seen: list[Any] = []

    class Impostor(router_pb2_grpc.RouterServiceServicer):
        async def RegisterReplica(self, request: Any, context: Any) -> Any:
            seen.append(request)
            return pb.RegisterReplicaResponse()

    def add(server: grpc.aio.Server) -> None:
        router_pb2_grpc.add_RouterServiceServicer_to_server(Impostor(), server)

    address = await serve("env", add)
    become("rollout")
    async with RouterClient(address) as client:
        with pytest.raises(UnavailableError):
            await client.register(replica(pb.REPLICA_KIND_ROLLOUT), timeout_s=30)
    assert seen == []


async def test_caller_when_known_then_may_ask_for_health(router: str, become: Become) -> None:
    become("redis")
    client = RouterClient(router)
    stub = health_pb2_grpc.HealthStub(client._channel)
    assert (await stub.Check(health_pb2.HealthCheckRequest(), timeout=30)).status == 1
    await client.close()


class Anything(rollout_pb2_grpc.RolloutServiceServicer, env_pb2_grpc.EnvServiceServicer):
    """Refuses in its own words whatever gets through to it."""

    async def _reached(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "reached")

    Generate = ScoreTokens = UpdateWeights = ActivateWeights = DiscardWeights = _reached
    GetStatus = ListTasks = Reset = Step = Sleep = Wake = _reached


CALLS: list[tuple[str, type[Any], Callable[[Any], Awaitable[Any]], set[Role]]] = [
    ("env", EnvClient, lambda c: c.list_tasks(split="train", timeout_s=30), {"router"}),
    (
        "env",
        EnvClient,
        lambda c: c.reset(split="train", index=0, observe=[], timeout_s=30),
        {"router"},
    ),
    (
        "env",
        EnvClient,
        lambda c: c.step(state=b"", agent="a", actions=["x"], observe=[], timeout_s=30),
        {"router"},
    ),
    ("rollout", RolloutClient, lambda c: c.score("p", 0, [1], timeout_s=30), {"router", "trainer"}),
    ("rollout", RolloutClient, lambda c: c.activate("p", 1, timeout_s=30), {"trainer"}),
    ("rollout", RolloutClient, lambda c: c.discard("p", 1, timeout_s=30), {"trainer"}),
    ("rollout", RolloutClient, lambda c: c.status(timeout_s=30), {"router", "trainer"}),
]


@pytest.mark.parametrize("role", ["router", "rollout", "env", "trainer"])
async def test_method_when_called_by_each_role_then_only_its_own_callers_get_through(
    serve: Serve, become: Become, role: Role, tmp_path: Path
) -> None:
    def add(server: grpc.aio.Server) -> None:
        rollout_pb2_grpc.add_RolloutServiceServicer_to_server(Anything(), server)
        env_pb2_grpc.add_EnvServiceServicer_to_server(Anything(), server)

    addresses = {who: await serve(who, add) for who in ("env", "rollout")}
    weights = tmp_path / "w"
    weights.write_bytes(b"not weights")
    uploads = rollout_pb.StoredWeights()
    calls = [
        *CALLS,
        (
            "rollout",
            RolloutClient,
            lambda c: c.send_weights(rollout_pb.UpdateWeightsRequest().manifest, uploads, 30),
            {"trainer"},
        ),
    ]
    become(role)
    for server, kind, call, callers in calls:
        more = ("plan_path",) if kind is EnvClient else ()
        async with kind(addresses[server], *more, retry_for_s=0.0) as client:
            with pytest.raises(TroupeError) as caught:
                await call(client)
        got_through = "reached" in caught.value.message
        assert got_through is (role in callers), caught.value.message
        assert isinstance(caught.value, ForbiddenError) is not got_through


async def test_generate_when_called_by_an_env_then_is_refused(serve: Serve, become: Become) -> None:
    def add(server: grpc.aio.Server) -> None:
        rollout_pb2_grpc.add_RolloutServiceServicer_to_server(Anything(), server)

    address = await serve("rollout", add)
    for role, code in (("env", "PERMISSION_DENIED"), ("router", "UNIMPLEMENTED")):
        become(role)
        client = RolloutClient(address)
        stub = rollout_pb2_grpc.RolloutServiceStub(client._channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Generate(rollout_pb.GenerateRequest(), timeout=30)
        assert caught.value.code().name == code
        await client.close()


@dataclass
class Slow(router_pb2_grpc.RouterServiceServicer):
    """ListReplicas of "slow" answers when it is told to; notes each caller's certificate."""

    started: asyncio.Event
    go_on: asyncio.Event
    certificates: list[bytes]

    async def ListReplicas(self, request: Any, context: Any) -> Any:
        self.certificates += context.auth_context()["x509_pem_cert"]
        if request.job_id == "slow":
            self.started.set()
            await self.go_on.wait()
        return pb.ListReplicasResponse()


async def _served_certificate(address: str, folder: Path) -> bytes:
    """What the server presents in a new handshake, DER."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    host, _, port = address.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return found


async def test_certificates_when_swapped_then_new_connections_use_them_and_calls_live_on(
    serve: Serve, become: Become, tmp_path: Path
) -> None:
    old, new = Authority.create("old"), Authority.create("new")
    issue(old, ["router"], tmp_path / "server")
    issue(old, ["trainer"], tmp_path / "client")
    slow = Slow(asyncio.Event(), asyncio.Event(), [])

    def add(server: grpc.aio.Server) -> None:
        router_pb2_grpc.add_RouterServiceServicer_to_server(slow, server)

    address = await serve(tmp_path / "server", add)
    become(tmp_path / "client")
    before = (tmp_path / "client" / "tls.crt").read_bytes()
    served_before = await _served_certificate(address, tmp_path / "client")
    async with RouterClient(address) as client:
        running = asyncio.create_task(client.list_replicas("slow", timeout_s=60))
        async with asyncio.timeout(30):
            await slow.started.wait()

        # Another authority, for both ends, while both processes run.
        issue(new, ["router"], tmp_path / "server")
        issue(new, ["trainer"], tmp_path / "client")
        after = (tmp_path / "client" / "tls.crt").read_bytes()
        assert await client.list_replicas("quick", timeout_s=30) == []
        assert [_der(pem) for pem in slow.certificates] == [_der(before), _der(after)]
        assert await _served_certificate(address, tmp_path / "client") != served_before

        # The call that began under the old certificate ends as it would have.
        assert not running.done()
        slow.go_on.set()
        assert await running == []

    # Nobody comes in with the old one any more.
    issue(old, ["trainer"], tmp_path / "late")
    (tmp_path / "late" / "ca.crt").write_bytes(new.pem())
    become(tmp_path / "late")
    async with RouterClient(address) as client:
        with pytest.raises(UnavailableError):
            await client.list_replicas("quick", timeout_s=30)


async def test_certificates_when_a_rotation_is_half_done_then_the_last_good_pair_stays(
    serve: Serve, become: Become, tmp_path: Path
) -> None:
    authority = Authority.create("only")
    issue(authority, ["router"], tmp_path / "server")
    issue(authority, ["trainer"], tmp_path / "client")
    slow = Slow(asyncio.Event(), asyncio.Event(), [])

    def add(server: grpc.aio.Server) -> None:
        router_pb2_grpc.add_RouterServiceServicer_to_server(slow, server)

    address = await serve(tmp_path / "server", add)
    issue(authority, ["router"], tmp_path / "next")
    (tmp_path / "server" / "tls.key").write_bytes((tmp_path / "next" / "tls.key").read_bytes())
    become(tmp_path / "client")
    async with RouterClient(address) as client:
        assert await client.list_replicas("quick", timeout_s=30) == []
    half = await _served_certificate(address, tmp_path / "client")
    (tmp_path / "server" / "tls.crt").write_bytes((tmp_path / "next" / "tls.crt").read_bytes())
    assert await _served_certificate(address, tmp_path / "client") != half


def _der(pem: bytes) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem.decode())
