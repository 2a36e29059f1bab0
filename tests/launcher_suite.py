"""What every Launcher must do, whatever runs its components. Imported by the tests of each.

A test module gives the fixture ``world`` (see World) and imports these tests.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from troupe.runtime.launch.launcher import Component, ComponentStatus, Launcher

Statuses = dict[str, ComponentStatus]


class World(Protocol):
    """Where a launcher's components live, and what a test may do to them."""

    def launcher(self) -> Launcher:
        """A launcher in a life of its own; it finds what earlier ones left."""
        ...

    def component(self, name: str, *, restarts: bool = True, **env: str) -> Component:
        """One that runs until it is told otherwise."""
        ...

    async def life(self, name: str) -> str:
        """What identifies the present life of a component that runs."""
        ...

    async def kill(self, name: str) -> None:
        """End it from outside, as an out-of-memory kill or a lost node."""
        ...

    async def exit(self, name: str, code: int, words: str = "") -> None:
        """It ends by itself."""
        ...

    async def num_running(self) -> int:
        """Components of any owner that run."""
        ...


async def bring(
    launcher: Launcher,
    components: Sequence[Component],
    holds: Callable[[Statuses], bool] | None = None,
    *,
    owner: str = "job",
) -> Statuses:
    """Reconcile until the statuses are as wanted (all run, if nothing is said)."""
    statuses: Statuses = {}
    try:
        async with asyncio.timeout(60):
            while True:
                found = await launcher.reconcile(owner, components)
                statuses = {status.name: status for status in found}
                assert list(statuses) == [component.name for component in components]
                if (holds or _all_run)(statuses):
                    return statuses
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"never as wanted; last: {statuses}") from None


def _all_run(statuses: Statuses) -> bool:
    return all(status.state == "running" for status in statuses.values())


async def test_reconcile_when_called_again_then_starts_nothing_twice(world: World) -> None:
    launcher = world.launcher()
    wanted = [world.component("trainer-0"), world.component("env-0"), world.component("env-1")]
    await bring(launcher, wanted)
    lives = {name: await world.life(name) for name in ("trainer-0", "env-0", "env-1")}
    for _ in range(5):
        await bring(launcher, wanted)
    assert {name: await world.life(name) for name in lives} == lives
    assert await world.num_running() == 3


async def test_reconcile_when_another_launcher_takes_over_then_adopts_what_runs(
    world: World,
) -> None:
    wanted = [world.component("trainer-0"), world.component("rollout-a-0")]
    await bring(world.launcher(), wanted)
    lives = [await world.life(c.name) for c in wanted]
    statuses = await bring(world.launcher(), wanted)
    assert [await world.life(c.name) for c in wanted] == lives
    assert [status.restarts for status in statuses.values()] == [0, 0]


async def test_component_when_killed_then_is_started_again_and_counted(world: World) -> None:
    launcher, wanted = world.launcher(), [world.component("rollout-a-0")]
    await bring(launcher, wanted)
    before = await world.life("rollout-a-0")
    await world.kill("rollout-a-0")
    seen: list[ComponentStatus] = []

    def runs_again(statuses: Statuses) -> bool:
        seen.append(statuses["rollout-a-0"])
        return seen[-1].state == "running" and seen[-1].restarts == 1

    await bring(launcher, wanted, runs_again)
    assert await world.life("rollout-a-0") != before
    told = [status for status in seen if status.state == "restarting"]
    assert told and told[0].restarts == 0


async def test_component_when_it_exits_with_3_then_has_failed_with_its_last_words(
    world: World,
) -> None:
    launcher, wanted = world.launcher(), [world.component("trainer-0")]
    await bring(launcher, wanted)
    await world.exit("trainer-0", 3, "no model at models/x")
    statuses = await bring(launcher, wanted, lambda s: s["trainer-0"].state == "failed")
    assert statuses["trainer-0"].exit_code == 3
    assert "no model at models/x" in statuses["trainer-0"].detail


async def test_component_when_it_dies_too_often_then_has_failed(world: World) -> None:
    launcher, wanted = world.launcher(), [world.component("rollout-a-0")]
    await bring(launcher, wanted)
    for death in range(1, 5):
        await world.exit("rollout-a-0", 1, "boom")
        statuses = await bring(
            launcher,
            wanted,
            lambda s, death=death: (
                s["rollout-a-0"].state == "failed"
                or (s["rollout-a-0"].state == "running" and s["rollout-a-0"].restarts == death)
            ),
        )
        if statuses["rollout-a-0"].state == "failed":
            break
    assert statuses["rollout-a-0"].state == "failed"
    assert death == 4
    assert "it died 4 times" in statuses["rollout-a-0"].detail
    assert "boom" in statuses["rollout-a-0"].detail


async def test_component_when_it_ends_and_may_not_restart_then_is_left_alone(world: World) -> None:
    launcher, wanted = world.launcher(), [world.component("trainer-0", restarts=False)]
    await bring(launcher, wanted)
    await world.exit("trainer-0", 0)
    statuses = await bring(launcher, wanted, lambda s: s["trainer-0"].state == "exited")
    again = (await launcher.reconcile("job", wanted))[0]
    assert (again.state, again.restarts) == ("exited", 0)
    assert statuses["trainer-0"].exit_code == 0


async def test_component_when_it_ends_and_restarts_then_runs_afresh(world: World) -> None:
    launcher, wanted = world.launcher(), [world.component("trainer-0")]
    await bring(launcher, wanted)
    before = await world.life("trainer-0")
    await world.exit("trainer-0", 0)
    again = await bring(
        launcher,
        wanted,
        lambda s: s["trainer-0"].state == "running" and s["trainer-0"].restarts == 1,
    )
    assert again["trainer-0"].restarts == 1
    assert await world.life("trainer-0") != before


async def test_component_when_not_wanted_any_more_then_is_stopped_and_the_rest_goes_on(
    world: World,
) -> None:
    launcher = world.launcher()
    trainer, envs = world.component("trainer-0"), [world.component(f"env-{i}") for i in range(2)]
    await bring(launcher, [trainer, *envs])
    kept = await world.life("env-0")
    await bring(launcher, envs[:1])
    async with asyncio.timeout(60):
        while await world.num_running() != 1:
            await bring(launcher, envs[:1])
    assert await world.life("env-0") == kept


async def test_component_when_its_environment_changes_then_a_new_one_takes_its_place(
    world: World,
) -> None:
    launcher = world.launcher()
    await bring(launcher, [world.component("trainer-0", LEVEL="1"), world.component("env-0")])
    old, kept = await world.life("trainer-0"), await world.life("env-0")
    wanted = [world.component("trainer-0", LEVEL="2"), world.component("env-0")]
    async with asyncio.timeout(60):
        await bring(launcher, wanted)
        while await world.life("trainer-0") == old:
            await bring(launcher, wanted)
    assert await world.life("env-0") == kept
    assert await world.num_running() == 2


async def test_stop_when_called_then_only_that_owners_components_end(world: World) -> None:
    launcher = world.launcher()
    await bring(launcher, [world.component("trainer-0"), world.component("env-0")])
    await bring(launcher, [world.component("env-0", OTHER="1")], owner="other")
    await launcher.stop("job", grace_s=1.0)
    assert await world.num_running() == 1
    await launcher.stop("job", grace_s=1.0)
    await launcher.stop("other", grace_s=1.0)
    assert await world.num_running() == 0


async def test_owner_when_stopped_then_can_begin_again(world: World) -> None:
    launcher, wanted = world.launcher(), [world.component("trainer-0")]
    await bring(launcher, wanted)
    before = await world.life("trainer-0")
    await launcher.stop("job", grace_s=1.0)
    await bring(world.launcher(), wanted)
    assert await world.life("trainer-0") != before
    await launcher.stop("job", grace_s=1.0)
