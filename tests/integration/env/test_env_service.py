"""The env service over real gRPC, and as a process."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import httpx
import pytest
from prometheus_client import REGISTRY
from pydantic import BaseModel

from troupe.api.router.v1 import router_pb2 as router
from troupe.api.router.v1.router_pb2_grpc import (
    RouterServiceServicer,
    add_RouterServiceServicer_to_server,
)
from troupe.clients import EnvClient
from troupe.episodes.sealed import SealedState
from troupe.errors import (
    DeadlineError,
    InvalidArgumentError,
    NotFoundError,
    OverloadedError,
    StateChangedError,
    TroupeError,
    UnavailableError,
)
from troupe.tasks.actions import CutAction, is_cut
from troupe.tasks.family import Message, Task, Transition
from troupe_env.app import EnvApp
from troupe_env.families import Families
from troupe_env.settings import EnvSettings


class NoParams(BaseModel):
    pass


class Stuck:
    """A task family whose action "hang" waits for a gate, and "boom" is a bug."""

    name: ClassVar[str] = "stuck"
    agents: ClassVar[tuple[str, ...]] = ("a",)
    Params: ClassVar[type[BaseModel]] = NoParams
    gate: ClassVar[threading.Event] = threading.Event()
    lacks: ClassVar[Exception | None] = None

    def __init__(self, params: BaseModel) -> None:
        pass

    def taskset(self) -> Any:
        return self

    def environment(self) -> Any:
        return self

    def size(self, split: str) -> int:
        return 3

    def task(self, split: Any, index: int) -> Task:
        return Task(f"stuck/{split}/{index}", split, index, b"")

    def reset(self, task: Task) -> bytes:
        return b"s"

    def observe(self, state: bytes, agent: str) -> tuple[Message, ...]:
        if self.lacks is not None:
            raise self.lacks
        return (Message("user", state.decode()),)

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        if action == "hang":
            self.gate.wait(30)
        if is_cut(action):
            action += " (cut)"
        if action == "boom":
            raise RuntimeError("a bug in the task")
        if self.lacks is not None:
            raise self.lacks
        return Transition(state + action.encode(), 1.0, {"x": 0.5}, False, True, {"n": 1})


@pytest.fixture
async def serve(grpc_servers):
    apps: list[EnvApp] = []

    async def start(**settings: Any) -> str:
        app = EnvApp(EnvSettings(**settings))
        apps.append(app)
        return await grpc_servers(app.register)

    yield start
    Stuck.gate.set()
    for app in apps:
        await app.close()
    Stuck.gate.clear()


def stuck_client(address: str) -> EnvClient:
    return EnvClient(address, f"{__name__}:Stuck", {}, retry_for_s=0)


async def step(client: EnvClient, *actions: str, timeout_s: float = 5, **kwargs: Any):
    arguments = {"state": b"s", "agent": "a", "observe": ["a"], **kwargs}
    return await client.step(actions=actions, timeout_s=timeout_s, **arguments)


async def test_step_when_k_actions_then_each_starts_from_the_same_state(serve):
    address = await serve(threads=3, actions_per_thread=2)
    async with stuck_client(address) as client:
        actions = [str(i) for i in range(9)]
        outcomes = await step(client, *actions)
    assert [o.state for o in outcomes] == [b"s" + a.encode() for a in actions]
    assert outcomes[2].observations == {"a": (Message("user", "s2"),)}
    assert outcomes[0].local_rewards == {"x": 0.5}
    assert (outcomes[0].is_success, outcomes[0].info_json) == (True, '{"n":1}')


async def test_step_when_an_action_was_cut_then_the_task_knows_which(serve):
    async with stuck_client(await serve(threads=2, actions_per_thread=1)) as client:
        outcomes = await step(client, "1", CutAction("1"), "2")
    assert [o.state for o in outcomes] == [b"s1", b"s1 (cut)", b"s2"]


async def test_reset_when_plan_path_then_equals_the_family_in_process(serve):
    from troupe.tasks.registry import load_family

    family = load_family("plan_path", {"size": 6})
    task = family.taskset().task("test", 5)
    async with EnvClient(await serve(), "plan_path", {"size": 6}) as client:
        start = await client.reset(split="test", index=5, observe=["tool", "planner"], timeout_s=5)
        tasks, size = await client.list_tasks(split="test", start=4, count=3)
    assert start.task_id == task.id
    assert start.state == family.environment().reset(task)
    assert start.observations["planner"] == family.environment().observe(start.state, "planner")
    assert ([t.index for t in tasks], size) == ([4, 5, 6], None)
    assert tasks[1] == task


@pytest.mark.parametrize(
    ("name", "params", "error", "text"),
    [
        ("no_such_task", {}, NotFoundError, "plan_path"),
        ("no.such.module:X", {}, NotFoundError, "no.such.module"),
        ("plan_path", {"sizee": 6}, InvalidArgumentError, "size"),
        ("plan_path", {"size": -1}, InvalidArgumentError, "size"),
    ],
)
async def test_reset_when_the_family_is_wrong_then_says_so(serve, name, params, error, text):
    async with EnvClient(await serve(), name, params) as client:
        with pytest.raises(error, match=text):
            await client.reset(split="train", index=0, observe=[], timeout_s=5)


@pytest.mark.parametrize("raw", ["{", "[1]", "3", '"x"', "[" * 100_000])
def test_families_when_params_are_garbage_then_invalid_argument(raw: str):
    with pytest.raises(InvalidArgumentError, match="params_json"):
        Families(2).get("plan_path", raw)


def test_families_when_more_than_the_limit_then_the_least_recently_used_goes():
    families = Families(2)
    first = families.get("plan_path", '{"size": 5}')
    families.get("plan_path", '{"size": 6}')
    assert families.get("plan_path", '{"size":5}') is first
    families.get("plan_path", '{"size": 7}')
    assert families.get("plan_path", '{"size": 5}') is first
    sixth = families.get("plan_path", '{"size": 6}')
    assert families.get("plan_path", '{"size": 6}') is sixth


async def test_step_when_arguments_are_wrong_then_invalid_argument(serve):
    address = await serve(max_actions=3)
    async with EnvClient(address, "plan_path", {"size": 6}) as client:
        for wrong in (
            {"state": b"junk", "agent": "planner", "actions": ["a"], "observe": []},
            {"state": b"{}", "agent": "planner", "actions": ["a"], "observe": []},
            {"state": b"s", "agent": "nobody", "actions": ["a"], "observe": []},
            {"state": b"s", "agent": "planner", "actions": ["a"], "observe": ["nobody"]},
            {"state": b"s", "agent": "planner", "actions": [], "observe": []},
            {"state": b"s", "agent": "planner", "actions": ["a"] * 4, "observe": []},
        ):
            with pytest.raises(InvalidArgumentError):
                await client.step(**wrong, timeout_s=5)
        with pytest.raises(InvalidArgumentError, match="split"):
            await client.reset(split="dev", index=0, observe=[], timeout_s=5)  # type: ignore[arg-type]


async def test_step_when_the_task_hangs_then_deadline_and_others_are_served(serve):
    async with stuck_client(await serve(threads=2)) as client:
        await step(client, "warm")
        with pytest.raises(DeadlineError, match="TROUPE_ENV_THREADS"):
            await step(client, "hang", timeout_s=0.6)
        assert len(await step(client, "ok")) == 1


async def test_step_when_too_many_wait_then_overloaded_at_once(serve):
    async with stuck_client(await serve(threads=1, max_requests=2)) as client:
        await step(client, "warm")
        calls = [asyncio.create_task(step(client, "hang")) for _ in range(3)]
        done, waiting = await asyncio.wait(calls, timeout=5, return_when=asyncio.FIRST_COMPLETED)
        with pytest.raises(OverloadedError, match="TROUPE_ENV_MAX_REQUESTS"):
            await done.pop()
        Stuck.gate.set()
        assert len(await asyncio.gather(*waiting)) == 2


async def test_step_when_the_task_fails_on_a_state_that_it_made_then_its_bug_and_no_reward(serve):
    async with stuck_client(await serve()) as client:
        start = await client.reset(split="train", index=0, observe=[], timeout_s=30)
        with pytest.raises(TroupeError, match=r"'stuck'.*a bug in the task") as caught:
            await step(client, "fine", "boom", state=start.state, timeout_s=30)
    assert type(caught.value) is TroupeError


async def test_step_when_the_task_fails_on_a_state_without_a_seal_then_the_callers_fault(serve):
    async with stuck_client(await serve()) as client:
        with pytest.raises(InvalidArgumentError, match=r"'stuck'.*no seal"):
            await step(client, "fine", "boom", timeout_s=30)


async def test_step_when_a_state_changed_on_its_way_then_refused_by_name_and_counted(serve):
    counted = ("troupe_env_refused_states_total", {"reason": "changed"})
    address = await serve()
    before = REGISTRY.get_sample_value(*counted)
    assert before is not None, "Prometheus sees an increase only from a sample before it"
    async with EnvClient(address, "plan_path", {"size": 6}, retry_for_s=0) as client:
        start = await client.reset(split="test", index=0, observe=[], timeout_s=30)
        assert isinstance(start.state, SealedState)
        moved = start.state.replace(b'"best":', b'"best":1')
        with pytest.raises(StateChangedError, match="plan_path") as caught:
            await step(
                client,
                "go",
                state=SealedState(moved, start.state.seal),
                agent="tool",
                observe=[],
                timeout_s=30,
            )
    assert caught.value.pointer == "/state"
    assert REGISTRY.get_sample_value(*counted) == before + 1


async def test_step_when_another_replica_gave_the_state_out_then_it_is_taken(serve):
    async with EnvClient(await serve(), "plan_path", {"size": 6}) as client:
        start = await client.reset(split="test", index=0, observe=[], timeout_s=30)
    async with EnvClient(await serve(), "plan_path", {"size": 6}) as client:
        arguments = {"agent": "tool", "observe": [], "timeout_s": 30}
        [first] = await step(client, "simulate R", state=start.state, **arguments)
        [second] = await step(client, "simulate D", state=first.state, **arguments)
    assert isinstance(second.state, SealedState) and second.state.seal != first.state.seal


async def test_observations_of_a_state_are_those_that_a_step_shows(serve):
    async with stuck_client(await serve()) as client:
        [outcome] = await step(client, "go", timeout_s=30)
        assert await client.observations(state=outcome.state, observe=["a"], timeout_s=30) == (
            outcome.observations
        )
        changed = SealedState(outcome.state + b"!", outcome.state.seal)
        with pytest.raises(StateChangedError, match="do not fit their seal"):
            await client.observations(state=changed, observe=["a"], timeout_s=30)
        with pytest.raises(InvalidArgumentError, match="nobody"):
            await client.observations(state=outcome.state, observe=["nobody"], timeout_s=30)


@pytest.mark.parametrize("seal", [b"", b"\x02of a newer version"])
async def test_step_when_another_version_gave_the_state_out_then_it_is_taken(serve, seal):
    async with stuck_client(await serve()) as client:
        [outcome] = await step(client, "go", state=SealedState(b"s", seal), timeout_s=30)
    assert outcome.state == b"sgo"


@pytest.mark.parametrize("lack", [MemoryError(), OSError(errno.EMFILE, "Too many open files")])
async def test_step_when_the_machine_lacks_something_then_the_call_may_be_tried_again(
    serve, monkeypatch: pytest.MonkeyPatch, lack: Exception
):
    address = await serve()
    async with stuck_client(address) as client:
        await step(client, "go")
        with monkeypatch.context() as patch:
            patch.setattr(Stuck, "lacks", lack)
            with pytest.raises(UnavailableError, match=type(lack).__name__):
                await step(client, "go")
        assert (await step(client, "go"))[0].state == b"sgo"


class Router(RouterServiceServicer):
    """A router that knows one job and forgets its members on demand."""

    def __init__(self) -> None:
        self.seen: list[router.Replica] = []
        self.registered = 0
        self.should_exit = False
        self.forget = False
        self.changed = asyncio.Event()

    async def RegisterReplica(self, request, context):
        self.registered += 1
        self.changed.set()
        return router.RegisterReplicaResponse(assignment=router.Assignment(job_id="j"))

    async def SendHeartbeat(self, request, context):
        self.seen.append(request.replica)
        self.changed.set()
        if self.forget:
            self.forget = False
            raise NotFoundError("who?")
        return router.SendHeartbeatResponse(
            assignment=router.Assignment(job_id="j"), should_exit=self.should_exit
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


def spawn(**env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "troupe_env"],
        env={**os.environ, **{f"TROUPE_ENV_{k.upper()}": v for k, v in env.items()}},
        stderr=subprocess.PIPE,
        text=True,
    )


async def test_process_when_the_router_is_late_forgets_and_ends_the_job_then_exits_0(
    grpc_servers, free_port
):
    address = f"127.0.0.1:{free_port()}"
    process = spawn(router=address, replica_id="env-7", admin_address="127.0.0.1:0")
    servicer = Router()
    await grpc_servers(lambda s: add_RouterServiceServicer_to_server(servicer, s), address)
    await servicer.until(lambda: len(servicer.seen) > 0)
    member = servicer.seen[-1]
    assert (member.replica_id, member.kind, member.is_serving) == (
        "env-7",
        router.REPLICA_KIND_ENV,
        True,
    )
    admin = member.admin_address  # with the port that was bound
    async with httpx.AsyncClient(base_url=f"http://{admin}", trust_env=False) as http:
        assert (await http.get("/readyz")).status_code == 200
        assert "troupe_service_is_serving" in (await http.get("/metrics")).text
        assert (await http.get("/nope")).status_code == 404
    async with EnvClient(member.address, "plan_path", {"size": 6}) as client:
        assert (await client.reset(split="train", index=0, observe=[], timeout_s=5)).state
    servicer.forget = True
    await servicer.until(lambda: servicer.registered == 2)
    servicer.should_exit = True
    assert await asyncio.to_thread(process.wait, 20) == 0
    assert process.stderr is not None
    process.stderr.close()


async def test_process_when_terminated_then_drains_and_exits_0(free_port):
    admin = f"127.0.0.1:{free_port()}"
    process = spawn(router=f"127.0.0.1:{free_port()}", admin_address=admin)
    async with httpx.AsyncClient(trust_env=False) as http, asyncio.timeout(30):
        while True:
            try:
                if (await http.get(f"http://{admin}/readyz")).status_code == 200:
                    break
            except httpx.HTTPError:
                await asyncio.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    log = (await asyncio.to_thread(process.communicate, None, 20))[1]
    assert process.returncode == 0
    assert log.count("membership.router_is_away") <= 1


@pytest.mark.parametrize(
    ("env", "text"),
    [
        ({"threads": "many"}, "TROUPE_ENV_THREADS"),
        ({"grpc_address": "nowhere"}, "host:port"),
        ({"router": "nowhere"}, "host:port"),
    ],
)
def test_process_when_a_setting_is_wrong_then_one_paragraph_and_status_3(env, text):
    process = spawn(**env)
    log = process.communicate(timeout=30)[1]
    assert process.returncode == 3
    assert text in log
    assert "Traceback" not in log


async def test_process_when_the_port_is_in_use_then_one_paragraph_and_status_3(grpc_servers):
    address = await grpc_servers(lambda _: None)
    process = spawn(grpc_address=address)
    log = (await asyncio.to_thread(process.communicate, None, 30))[1]
    assert process.returncode == 3
    assert f"can't listen on {address}" in log
    assert "Traceback" not in log
