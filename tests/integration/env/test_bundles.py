"""Bundles in the env service: real processes, real gRPC, a router's GetBundle, and hostile code."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from hostile_bundle import ACT, ERRORS, HONEST, LOOK, SECRET, outside
from prometheus_client import REGISTRY

from troupe.api.router.v1 import router_pb2 as router
from troupe.api.router.v1.router_pb2_grpc import (
    RouterServiceServicer,
    add_RouterServiceServicer_to_server,
)
from troupe.bundles.archive import Bundle, bundle_of
from troupe.clients import EnvClient
from troupe.errors import DeadlineError, InvalidArgumentError, NotFoundError, UnavailableError
from troupe.spec.bundle import BundleSpec, TaskFacts
from troupe.spec.reward import RewardSpec
from troupe.tasks.family import Split
from troupe_env.app import EnvApp
from troupe_env.bundles import landlock
from troupe_env.settings import EnvSettings

pytestmark = pytest.mark.skipif(not landlock.abi(), reason="this kernel has no Landlock")

TASK = """
import os
from troupe import SimpleTask
from words import WORD

class Echo(SimpleTask):
    def draw(self, rng):
        return WORD + str(rng.random())

    def observe(self, state, agent):
        return state

    def step(self, state, agent, action):
        try:
            said = str(eval(action))
        except BaseException as error:
            said = type(error).__name__ + ": " + str(error)
        return self.transition(state, 1.0, done=True, info={"said": said})
"""
"""It runs what an agent says: each attack is an action."""
WAIT_S = 60.0
FACTS = TaskFacts(agents=["agent"], local_terms={"agent": {}})


def code(word: str = "a", **files: str) -> Bundle:
    named = {name.replace("_py", ".py"): text.encode() for name, text in files.items()}
    return bundle_of(
        {"my_task.py": TASK.encode(), "words.py": f"WORD = {word!r}".encode(), **named}
    )


class BundleRouter(RouterServiceServicer):
    """A router that gives out bundles."""

    def __init__(self) -> None:
        self.bundles: dict[str, Bundle] = {}
        self.num_asked = 0
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()
        self.may_answer.set()

    async def GetBundle(self, request: Any, context: Any) -> router.GetBundleResponse:
        self.num_asked += 1
        self.is_asked.set()
        await self.may_answer.wait()
        if request.digest not in self.bundles:
            raise NotFoundError(f"no bundle {request.digest}")
        return router.GetBundleResponse(archive=self.bundles[request.digest].archive)


class BundleWorld:
    """An env service beside such a router."""

    def __init__(self, address: str, bundles: BundleRouter, app: EnvApp) -> None:
        self.address = address
        self.bundles = bundles
        self.app = app

    def client(
        self, bundle: Bundle, name: str = "my_task.py:Echo", *, is_known: bool = True, **more: Any
    ) -> EnvClient:
        """A client for a task of ``bundle``."""
        if is_known:
            self.bundles.bundles[bundle.digest] = bundle
        part = BundleSpec(digest=bundle.digest, task=more.pop("facts", FACTS))
        return EnvClient(self.address, name, bundle=part, retry_for_s=0.0, **more)


@pytest.fixture
def settings() -> dict[str, Any]:
    return {}


@pytest.fixture
async def world(
    grpc_servers: Callable[..., Awaitable[str]], settings: dict[str, Any]
) -> AsyncIterator[BundleWorld]:
    bundles = BundleRouter()

    def add(server: grpc.aio.Server) -> None:
        add_RouterServiceServicer_to_server(bundles, server)

    app = EnvApp(EnvSettings(router=await grpc_servers(add), **settings))
    await app.connect()
    yield BundleWorld(await grpc_servers(app.register), bundles, app)
    await app.close()


async def first(client: EnvClient, *, timeout_s: float = 60.0, split: Split = "train") -> str:
    """What the agent sees in the first task."""
    start = await client.reset(split=split, index=0, observe=["agent"], timeout_s=timeout_s)
    return start.observations["agent"][0].content


async def said(client: EnvClient, *actions: str) -> list[str]:
    """What the task's code says of each action."""
    start = await client.reset(split="train", index=0, observe=["agent"], timeout_s=60)
    outcomes = await client.step(
        state=start.state, agent="agent", actions=actions, observe=[], timeout_s=30
    )
    return [json.loads(outcome.info_json)["said"] for outcome in outcomes]


async def test_two_bundles_when_their_modules_have_one_name_then_each_has_its_own(
    world: BundleWorld,
) -> None:
    one, other = world.client(code("one")), world.client(code("other"))
    async with one, other:
        seen = await asyncio.gather(*(first(c) for c in (one, other, one, other)))
    assert [text[:3] for text in seen] == ["one", "oth", "one", "oth"]
    assert world.bundles.num_asked == 2


async def test_state_when_it_is_of_another_bundle_then_is_not_judged(world: BundleWorld) -> None:
    async with world.client(code("one")) as one, world.client(code("other")) as other:
        start = await one.reset(split="train", index=0, observe=[], timeout_s=60)
        with pytest.raises(InvalidArgumentError, match="do not fit their seal"):
            await other.step(
                state=start.state, agent="agent", actions=["1"], observe=[], timeout_s=60
            )


async def test_task_when_it_differs_from_the_facts_then_is_refused(world: BundleWorld) -> None:
    facts = TaskFacts(agents=["agent"], local_terms={"agent": {}}, sizes={"train": 10})
    async with world.client(code(), facts=facts) as client:
        with pytest.raises(InvalidArgumentError, match="sizes of splits"):
            await first(client)


async def test_reward_function_when_bundled_then_judges_an_installed_task(
    world: BundleWorld,
) -> None:
    text = "def polite(transition, task, *, worth: float = 1.0):\n    return worth\n"
    bundle = bundle_of({"rewards/manners.py": text.encode()})
    world.bundles.bundles[bundle.digest] = bundle
    reward = RewardSpec(kind="rewards.manners:polite", params={"worth": 2.5})
    client = EnvClient(
        world.address, "plan_path", reward=reward, bundle=BundleSpec(digest=bundle.digest)
    )
    async with client:
        start = await client.reset(split="train", index=0, observe=[], timeout_s=60)
        [outcome] = await client.step(
            state=start.state, agent="planner", actions=["no"], observe=[], timeout_s=60
        )
    assert outcome.local_rewards["polite"] == 2.5


async def test_bundle_when_it_looks_around_then_finds_no_secret_and_no_other_file(
    world: BundleWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TROUPE_API_KEY", SECRET)
    (tmp_path / "tls.key").write_text(SECRET)
    fields = {"pid": os.getpid(), "secret": tmp_path / "tls.key"}
    async with world.client(code()) as client:
        answers = await said(client, *(look.format(**fields) for look in LOOK.values()))
    found = dict(zip(LOOK, answers, strict=True))
    assert "PATH" in found.pop("environment")
    assert SECRET not in "".join(answers)
    refused = ("PermissionError", "FileNotFoundError")
    assert {name: text for name, text in found.items() if not text.startswith(refused)} == {}


async def test_bundle_when_it_reaches_out_then_every_way_is_refused(
    world: BundleWorld, tmp_path: Path
) -> None:
    with outside(tmp_path) as others:
        before = others.seen()
        fields = others.fields | {"port": world.address.rpartition(":")[2]}
        async with world.client(code()) as client:
            answers = await said(client, *(act.format(**fields) for act in ACT.values()))
            assert (await first(client)).startswith("a"), "it still judges"
        done = dict(zip(ACT, answers, strict=True))
        assert {name: text for name, text in done.items() if not text.startswith(ERRORS)} == {}
        assert others.seen() == before


async def test_bundle_when_it_does_what_honest_code_does_then_nothing_is_refused(
    world: BundleWorld,
) -> None:
    async with world.client(code()) as client:
        answers = await said(client, *(action for action, _ in HONEST.values()))
    assert answers == [str(expected) for _, expected in HONEST.values()]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero (at broken.py, line 1, in <module>"),
        ("raise SystemExit(3)", "SystemExit"),
        ("import nowhere", "nowhere"),
        ("def (", "invalid syntax"),
        ("x = 1", "defines no 'Echo'"),
    ],
)
async def test_code_when_it_raises_at_import_then_the_error_names_it_and_the_service_goes_on(
    text: str, says: str, world: BundleWorld
) -> None:
    async with world.client(code(broken_py=text), "broken.py:Echo") as broken:
        with pytest.raises((InvalidArgumentError, NotFoundError)) as failure:
            await first(broken)
    assert says in failure.value.message
    async with world.client(code()) as sound:
        assert (await first(sound)).startswith("a")


async def test_code_when_it_ends_its_process_then_is_refused_after_three_times(
    world: BundleWorld,
) -> None:
    text = "import os\nprint('bye')\nos._exit(7)"
    async with world.client(code(exits_py=text), "exits.py:Echo") as client:
        for _ in range(2):
            with pytest.raises(UnavailableError):
                await first(client)
        with pytest.raises(InvalidArgumentError, match=r"3 times in a row.*exit status 7.*bye"):
            await first(client)
        with pytest.raises(InvalidArgumentError, match="3 times in a row"):
            await first(client)


async def test_code_when_importing_never_ends_then_the_deadline_ends_its_process(
    world: BundleWorld,
) -> None:
    async with world.client(code(endless_py="while True: pass"), "endless.py:Echo") as client:
        with pytest.raises(DeadlineError):
            await first(client, timeout_s=6.0)
    async with world.client(code()) as sound:
        assert (await first(sound)).startswith("a")
    assert len(world.app.bundles.running) == 1


async def test_calls_when_several_are_late_at_once_then_it_is_one_end_of_the_process(
    world: BundleWorld,
) -> None:
    async with world.client(code()) as client:
        start = await client.reset(split="train", index=0, observe=[], timeout_s=60)

        async def hang() -> None:
            action = "__import__('time').sleep(60)"
            await client.step(
                state=start.state, agent="agent", actions=[action], observe=[], timeout_s=3
            )

        late = await asyncio.gather(*(hang() for _ in range(4)), return_exceptions=True)
        assert all(isinstance(error, DeadlineError | UnavailableError) for error in late)
        assert (await first(client)).startswith("a")


async def test_bundle_when_the_router_has_none_then_says_so(world: BundleWorld) -> None:
    async with world.client(code("unknown"), is_known=False) as client:
        with pytest.raises(NotFoundError):
            await first(client)


async def test_bundle_when_the_router_gives_another_then_is_refused(world: BundleWorld) -> None:
    asked, given = code("asked"), code("given")
    world.bundles.bundles[asked.digest] = given
    async with world.client(asked, is_known=False) as client:
        with pytest.raises(InvalidArgumentError, match="changed on the way"):
            await first(client)


@pytest.mark.parametrize("settings", [{"max_bundles": 2}])
async def test_processes_when_there_are_too_many_then_the_oldest_makes_room_and_leaves_no_file(
    world: BundleWorld,
) -> None:
    clients = [world.client(code(word)) for word in ("one", "two", "three")]
    folders: set[Path] = set()
    for client in clients:
        await first(client)
        folders = {process.folder for process in world.app.bundles.running.values()}
        assert len(folders) <= 2
    [root] = {folder.parent for folder in folders}
    assert set(root.iterdir()) == folders
    assert (await first(clients[0])).startswith("one")
    for client in clients:
        await client.close()
    await world.app.close()
    assert not root.exists()


async def test_packages_when_no_index_is_set_then_are_refused(world: BundleWorld) -> None:
    lock = f"tiny==1.0 --hash=sha256:{'0' * 64}\n"
    bundle = bundle_of({**code().files, "requirements.lock": lock.encode()})
    async with world.client(bundle) as client:
        with pytest.raises(InvalidArgumentError, match="TROUPE_BUNDLE_INDEX"):
            await first(client)


async def test_call_when_under_way_in_a_bundle_then_is_in_flight_and_the_drain_waits_for_it(
    world: BundleWorld,
) -> None:
    def in_flight() -> tuple[int, float | None]:
        return world.app.num_in_flight, REGISTRY.get_sample_value("troupe_env_in_flight_requests")

    world.bundles.may_answer.clear()
    async with world.client(code()) as client:
        call = asyncio.create_task(first(client))
        async with asyncio.timeout(WAIT_S):
            await world.bundles.is_asked.wait()
        assert in_flight() == (1, 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await world.app.drain()
        world.bundles.may_answer.set()
        async with asyncio.timeout(WAIT_S):
            await world.app.drain()
        assert in_flight() == (0, 0)
        assert (await call).startswith("a")


async def test_step_when_a_bundle_judges_then_its_actions_and_its_time_are_counted(
    world: BundleWorld,
) -> None:
    def counts() -> list[float]:
        success = {"success": "false"}
        samples = (("troupe_env_actions_total", success), ("troupe_env_step_seconds_count", {}))
        return [REGISTRY.get_sample_value(name, labels) or 0.0 for name, labels in samples]

    before = counts()
    async with world.client(code()) as client:
        await said(client, "1", "2", "3")
    assert [now - then for now, then in zip(counts(), before, strict=True)] == [3, 1]
