"""The carry family: lines, physics that needs both robots, placing, and who is paid for what."""

import time
from random import Random

import pytest

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import SPLITS, Task, Transition
from troupe_tasks.carry import Carry, CarryParams, environment
from troupe_tasks.carry.commands import Command, read_commands
from troupe_tasks.carry.environment import progress
from troupe_tasks.carry.physics import beginning, run_turn, view
from troupe_tasks.carry.scenes import AGENTS, ALICE, BOB, KINDS, Kind, Scene, canonical, drawn
from troupe_tasks.carry.state import decode_state

FAMILY = Carry(CarryParams())
ENV = FAMILY.environment()
LIFT = Scene("lift", (0, -20), (0, 20))
TASK = Task("by hand", "train", 0, LIFT.payload())
BOTH = {ALICE: True, BOB: True}
LINES = (
    ("move -35 -20 40", "move 35 -20 40"),
    ("move -35 -20 10", "move 35 -20 10"),
    ("grip on", "grip on"),
    ("move -35 -20 36", "move 35 -20 36"),
    ("move -35 0 36", "move 35 0 36"),
    ("move -35 20 36", "move 35 20 36"),
    ("move -35 20 26", "move 35 20 26"),
    ("grip off", "grip off"),
    ("move -35 20 40", "move 35 20 40"),
)


def played(lines: tuple[tuple[str, str], ...], state: bytes | None = None) -> list[Transition]:
    """Transitions of bob, after each turn."""
    state = ENV.reset(TASK) if state is None else state
    after: list[Transition] = []
    for alice, bob in lines:
        state = ENV.step(state, ALICE, alice).state
        after.append(ENV.step(state, BOB, bob))
        state = after[-1].state
    return after


def scripted(family: Carry, index: int, turns: int = 20) -> Transition:
    env, rng = family.environment(), Random(index)
    state = env.reset(family.taskset().task("test", index))
    for _ in range(turns):
        for agent in family.agents:
            moved = env.step(state, agent, family.demonstrate(state, agent, rng))
            state = moved.state
            if moved.done:
                return moved
    raise AssertionError(f"not placed: {env.observe(state, family.agents[0])}")


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("move 1 -2 30", [Command((1.0, -2.0, 30.0))]),
        ("I lift it now.\n- `move 1.5, -2, 30`", [Command((1.5, -2.0, 30.0))]),
        ("GRIP ON.", [Command(grip=True)]),
        ("wait\ngrip off", [Command(), Command(grip=False)]),
        ("move nan 0 0", []),
        ("move 1e9 0 0", []),
        ("move 99999 0 0", []),
        ("move 1 2", []),
        ("do move 1 2 3", []),
    ],
)
def test_read_commands_of_a_text_then_are_its_whole_lines(
    text: str, commands: list[Command]
) -> None:
    assert read_commands(text, ALICE).get(ALICE, []) == commands


def test_read_commands_of_a_line_that_is_nearly_one_then_takes_no_time() -> None:
    begun = time.process_time()
    assert read_commands("wait" + " " * 19_000 + "x", ALICE) == {}
    assert read_commands("wait" + " `." * 6_000, ALICE) == {ALICE: [Command()]}
    assert time.process_time() - begun < 0.5


def test_observe_at_first_then_shows_grippers_object_and_shelf() -> None:
    state = ENV.reset(TASK)
    (message,) = ENV.observe(state, ALICE)
    assert message.content == (
        "lift alice -40 0 40 off bob 40 0 40 off object -40 -20 4 40 -20 4 touches floor "
        "shelf 0 20 20 you alice"
    )
    state = ENV.step(state, ALICE, "move -35 -20 40").state
    (message,) = ENV.observe(state, BOB)
    assert message.content.endswith("shelf 0 20 20 said move -35 -20 40 you bob")


def test_step_when_both_carry_then_is_placed_and_paid_two() -> None:
    after = played(LINES)
    assert sum(moved.team_reward for moved in after) == pytest.approx(2.0, abs=0.03)
    assert (after[-1].done, after[-1].success) == (True, True)
    assert ENV.observe(after[-1].state, ALICE) == ()
    again = ENV.step(after[-1].state, BOB, "grip on")
    assert (again.team_reward, again.state) == (0.0, after[-1].state)


def test_step_when_the_object_lies_on_the_shelf_but_is_held_then_is_not_placed() -> None:
    after = played(LINES[:7])
    assert after[-1].info["progress"] > 0.95
    assert "shelf" in after[-1].info["touching"]
    assert not after[-1].done


def test_step_when_one_robot_lets_go_then_the_bar_falls() -> None:
    held = played(LINES[:4])[-1]
    assert held.info["object"][2] > 25
    (dropped,) = played((("grip off", "wait"),), held.state)
    assert "floor" in dropped.info["touching"]


def test_alice_when_she_acts_then_nothing_moves_until_bob_does() -> None:
    state = ENV.reset(TASK)
    moved = ENV.step(state, ALICE, "move -35 -20 40")
    assert (moved.team_reward, moved.done) == (0.0, False)
    assert decode_state(moved.state).physics == decode_state(state).physics
    assert moved.local_rewards["near"] > 0.1


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("move -35 -20 40", {"format": 0.0, "reach": 0.0}),
        ("", {"format": -1.0, "reach": 0.0}),
        ("wait\nwait", {"format": -1.0, "reach": 0.0}),
        ("bob: wait", {"format": -1.0, "reach": 0.0}),
        ("move 35 0 40", {"format": 0.0, "reach": -1.0}),
        ("move -35 0 9999", {"format": 0.0, "reach": -1.0}),
    ],
)
def test_step_when_a_line_is_unreadable_or_out_of_reach_then_costs(
    text: str, terms: dict[str, float]
) -> None:
    rewards = ENV.step(ENV.reset(TASK), ALICE, text).local_rewards
    assert {name: rewards[name] for name in terms} == terms


@pytest.mark.parametrize("kind", KINDS)
def test_script_when_it_plays_then_places_and_equal_plays_are_equal_bytes(kind: Kind) -> None:
    family = Carry(CarryParams(kinds=(kind,)))
    ends = [scripted(family, index) for index in range(15)]
    assert all(end.success for end in ends)
    assert scripted(family, 0).state == ends[0].state


def test_operator_when_it_commands_both_then_places() -> None:
    family = Carry(CarryParams(is_solo=True, style="verbose"))
    assert all(scripted(family, index).success for index in range(10))


@pytest.mark.parametrize("kind", KINDS)
def test_random_lines_when_played_then_place_nothing(kind: Kind) -> None:
    family = Carry(CarryParams(kinds=(kind,)))
    env = family.environment()
    for index in range(15):
        rng, state = Random(index), env.reset(family.taskset().task("test", index))
        for turn in range(40):
            agent = AGENTS[turn % 2]
            moved = env.step(state, agent, family.random_action(state, agent, rng))
            assert not moved.success
            state = moved.state


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("kind", KINDS)
def test_one_robot_when_it_climbs_on_progress_alone_then_places_nothing(
    kind: Kind, agent: str
) -> None:
    family = Carry(CarryParams(kinds=(kind,)))
    env = family.environment()
    for index in range(3):
        rng, state = Random(index), env.reset(family.taskset().task("test", index))
        for _ in range(12):
            tried = [family.demonstrate(state, agent, rng)]
            tried += [family.random_action(state, agent, rng) for _ in range(7)]
            ends: list[tuple[float, bytes]] = []
            for line in tried:
                moved = env.step(state, ALICE, line if agent == ALICE else "wait")
                moved = env.step(moved.state, BOB, line if agent == BOB else "wait")
                assert not moved.success
                ends.append((moved.info["progress"] + rng.random() / 1000, moved.state))
            state = max(ends)[1]


def test_one_robot_when_it_pulls_at_the_middle_of_the_bar_then_does_not_lift_it() -> None:
    scene = Scene("lift", (-8, 0), (0, 30))
    physics = beginning(scene)
    edge = scene.reach[ALICE][1]
    grips = {ALICE: True, BOB: False}
    for z in (10, 10, 40, 60):
        aims = {ALICE: (edge, 0, z), BOB: scene.homes[BOB]}
        physics, seen = run_turn(scene, physics, aims, grips)
    assert min(end[2] for end in seen.ends) < 5.0


def test_step_when_something_moves_too_fast_then_ends_unpaid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = played(LINES[:4])[-1]
    monkeypatch.setattr("troupe_tasks.carry.physics.MAX_SPEED_M_S", 0.01)
    (moved,) = played((("move -35 0 36", "move 35 0 36"),), before.state)
    assert (moved.team_reward, moved.done, moved.success) == (0.0, True, False)
    assert moved.info["outcome"] == "broken"


def test_progress_when_the_bar_lies_the_other_way_round_then_is_equal() -> None:
    seen = view(LIFT, beginning(LIFT))
    turned = type(seen)(
        seen.pads, (seen.ends[1], seen.ends[0]), None, frozenset(), False, True, False
    )
    assert progress(LIFT, seen) == progress(LIFT, turned) == 0.0


def test_splits_of_mirrored_scenes_then_are_one() -> None:
    assert canonical(Scene("lift", (3, -20), (1, 30))) == canonical(
        Scene("lift", (3, 20), (1, -30))
    )
    keys = {
        split: {
            canonical(decode_state(ENV.reset(FAMILY.taskset().task(split, i))).scene)
            for i in range(40)
        }
        for split in SPLITS
    }
    assert not keys["train"] & (keys["test"] | keys["validation"])


def test_scenes_when_drawn_then_begin_at_rest_within_reach() -> None:
    for index in range(60):
        scene = drawn(Random(index), KINDS)
        seen = view(scene, beginning(scene))
        assert seen.touching == {"floor"}
        assert seen.is_still
        assert abs(seen.centre[1]) <= 45.1


def test_state_when_it_is_damaged_then_is_an_error() -> None:
    with pytest.raises(InvalidArgumentError, match="damaged"):
        view(LIFT, b"\0" * 8)


def test_environment_when_an_agent_is_unknown_then_is_an_error() -> None:
    with pytest.raises(InvalidArgumentError, match="has no agent 'carol'"):
        ENV.observe(ENV.reset(TASK), "carol")
    assert FAMILY.return_bound == environment.RETURN_BOUND
