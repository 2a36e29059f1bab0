"""Plays of a family whose odds are known, whose machine fails at will, and whose code may break."""

import asyncio
import json
import os
import threading
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from pydantic import BaseModel

from troupe.episodes.images import image_file
from troupe.episodes.local import LocalEnv
from troupe.errors import DeadlineError, InvalidArgumentError, JobFailedError, UnavailableError
from troupe.evaluation.evaluation import EvalSettings, evaluate
from troupe.evaluation.folder import EPISODES
from troupe.evaluation.plan import EvalPlan
from troupe.evaluation.report import Report
from troupe.evaluation.teams import read_teams
from troupe.spec.job import LimitsSpec, TaskSpec, WorkflowSpec
from troupe.tasks.content import ImagePart, TextPart, image_name
from troupe.tasks.family import Message, Task, Transition
from troupe.vision.png import decode_png

SIDES = 4
SHOWN = ImagePart(28, 28, bytes(3 * 28 * 28))


class Params(BaseModel):
    pass


class Dice:
    """One agent names the hidden side of a die; ``broken`` says how judging a task goes wrong."""

    name = "dice"
    agents = ("guesser",)
    Params = Params
    local_terms = {"guesser": {"format": 1.0}}  # noqa: RUF012
    return_bound = 1.0

    def __init__(self, broken: dict[int, list[Exception | None]] | None = None) -> None:
        self.broken = broken or {}
        self.judged: Counter[int] = Counter()

    def taskset(self):
        return self

    def environment(self):
        return self

    def size(self, split):
        return None

    def task(self, split, index):
        side = Random(index).randrange(SIDES)
        return Task(f"dice/{split}/{index}", split, index, json.dumps([index, side]).encode())

    def reset(self, task):
        return task.payload

    def observe(self, state, agent):
        return (Message("user", "which side?"),)

    def step(self, state, agent, action):
        index, side = json.loads(state)
        self.judged[index] += 1
        error = self.broken[index].pop(0) if self.broken.get(index) else None
        if error is not None:
            raise error
        is_right = action == str(side)
        pay = float(is_right)
        return Transition(state, pay, {"format": 1.0}, True, is_right, {"outcome": action})

    def demonstrate(self, state, agent, rng):
        return str(json.loads(state)[1])

    def random_action(self, state, agent, rng):
        return str(rng.randrange(SIDES))

    def vocabulary(self):
        return ()


def plan(**changes) -> EvalPlan:
    return EvalPlan(
        task=TaskSpec(name="dice"),
        workflow=WorkflowSpec(order=["guesser"], max_turns=1),
        first_task=1,
        **changes,
    )


async def play(family: Dice, folder: Path, *policies: str, **changes) -> Report:
    teams = read_teams(policies, family.agents)
    settings = EvalSettings(num_transcripts=0)
    return await evaluate(plan(**changes), family, teams, folder, settings, lambda *_: None)


async def test_random_when_one_side_in_four_is_right_then_scores_what_arithmetic_says(
    tmp_path: Path,
) -> None:
    report = await play(Dice(), tmp_path, "random", "scripted", num_tasks=100, num_samples=4)
    dice, scripted = report.policies
    assert dice.success is not None
    assert dice.success.low is not None
    assert dice.success.high is not None
    assert dice.success.low < 1 / SIDES < dice.success.high
    # 400 independent draws: half the interval is about 1.96 * sqrt(0.25 * 0.75 / 400) = 4.2 %.
    assert 0.03 < (dice.success.high - dice.success.low) / 2 < 0.065
    for k, estimate in dice.pass_at_k.items():
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.low < 1 - (1 - 1 / SIDES) ** k < estimate.high
    assert sum(dice.outcomes.values()) == 400
    assert scripted.success is not None
    assert scripted.success.mean == 1.0
    assert scripted.pass_at_k[4].mean == 1.0


async def test_evaluation_when_a_later_seat_cannot_play_then_nothing_is_played_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    with pytest.raises(InvalidArgumentError, match="it has no weights"):
        await play(Dice(), tmp_path / "e", "scripted", str(model), num_tasks=5)
    (model / "config.json").write_text("{")
    with pytest.raises(InvalidArgumentError, match=r"its config\.json can't be read"):
        await play(Dice(), tmp_path / "e", "scripted", str(model), num_tasks=5)
    monkeypatch.delattr(Dice, "random_action")
    with pytest.raises(InvalidArgumentError, match=r"no random_action\(state, agent, rng\), which"):
        await play(Dice(), tmp_path / "e", "scripted", "random", num_tasks=5)
    assert not (tmp_path / "e").exists()


async def test_sample_when_a_machine_fails_then_is_tried_again_and_keeps_its_result(
    tmp_path: Path,
) -> None:
    whole = await play(Dice(), tmp_path / "whole", "random", num_tasks=5)
    flaky = Dice({3: [UnavailableError("pod gone"), DeadlineError("slow")]})
    report = await play(flaky, tmp_path / "flaky", "random", num_tasks=5)
    assert report.num_errors == 0
    assert report.policies[0].success == whole.policies[0].success
    text = (tmp_path / "flaky" / EPISODES).read_text("utf-8")
    [line] = [x for x in map(json.loads, text.splitlines()) if x["task_index"] == 3]
    assert line["attempts"] == 3
    assert line["errors"] == ["UNAVAILABLE: pod gone", "DEADLINE_EXCEEDED: slow"]


async def test_sample_when_every_attempt_fails_then_is_an_error_and_never_a_zero(
    tmp_path: Path,
) -> None:
    limits = LimitsSpec(max_attempts=2)
    family = Dice({3: [UnavailableError("pod gone")] * 2})
    report = await play(family, tmp_path, "scripted", num_tasks=5, limits=limits)
    [found] = report.policies
    assert found.num_errors == 1
    assert found.failures == {"error": 1}
    assert found.success is not None
    assert (found.success.mean, found.success.num_samples) == (1.0, 4)
    again = await play(family, tmp_path, "scripted", num_tasks=5, limits=limits)
    assert again.num_errors == 0
    assert family.judged[3] == 3
    assert family.judged[4] == 1


async def test_sample_when_the_familys_code_breaks_then_says_where_and_goes_on(
    tmp_path: Path,
) -> None:
    report = await play(Dice({3: [ZeroDivisionError("oops")]}), tmp_path, "scripted", num_tasks=5)
    assert report.num_errors == 1
    assert report.policies[0].last_error.startswith("ZeroDivisionError: oops (test_eval_runner.py:")


class Shown(Dice):
    """The die is shown as an image, the same for all."""

    def observe(self, state, agent):
        return (Message("user", (SHOWN, TextPart(" which side?"))),)


async def test_sample_when_a_prompt_shows_an_image_then_names_it_and_keeps_it_once(
    tmp_path: Path,
) -> None:
    await play(Shown(), tmp_path, "scripted", num_tasks=4)
    lines = [json.loads(line) for line in (tmp_path / EPISODES).read_text().splitlines()]
    told = {line["groups"][0]["prompt"][0]["content"] for line in lines}
    assert told == {f"{image_name(SHOWN)} which side?"}
    assert decode_png(image_file(tmp_path, SHOWN.digest).read_bytes()) == SHOWN
    assert {name for _, _, names in os.walk(tmp_path / "episodes") for name in names} == {
        f"{SHOWN.digest}.png"
    }


@pytest.mark.parametrize("damaged", ["[1]", '{"policy": "scripted"}', "1"])
async def test_evaluation_when_a_line_is_no_sample_then_names_it_and_the_file(
    damaged: str, tmp_path: Path
) -> None:
    await play(Dice(), tmp_path, "scripted", num_tasks=1)
    with (tmp_path / "episodes.jsonl").open("a") as file:
        file.write(damaged + "\n")
    with pytest.raises(InvalidArgumentError, match=r"line 2 of .*episodes\.jsonl is no sample"):
        await play(Dice(), tmp_path, "scripted", num_tasks=2)


async def test_evaluation_when_nothing_can_be_played_then_ends_early(tmp_path: Path) -> None:
    # Task 1 is played once before, to see what a demonstration is paid.
    family = Dice({i: [None] * (i == 1) + [InvalidArgumentError("no")] for i in range(1, 2000)})
    with pytest.raises(JobFailedError, match="none of the first 8 samples"):
        await play(family, tmp_path, "scripted", num_tasks=1999)
    assert sum(family.judged.values()) == 9


@pytest.mark.parametrize("num_failing", [8, 20])
async def test_eval_when_only_failing_samples_are_left_then_they_are_reported_and_it_goes_on(
    tmp_path: Path, num_failing: int
) -> None:
    broken = {
        i: [ZeroDivisionError("a row without an answer")] * 3 for i in range(20, 20 + num_failing)
    }
    family = Dice(dict(broken))
    for policies in (["scripted"], ["scripted"], ["scripted", "random"]):
        report = await play(family, tmp_path, *policies, num_tasks=40)
        assert [found.num_errors for found in report.policies][:1] == [num_failing]
    assert report.policies[1].num_played == 40


async def test_eval_when_it_goes_on_and_no_new_sample_can_be_played_then_it_ends_early(
    tmp_path: Path,
) -> None:
    await play(Dice({3: [InvalidArgumentError("no")]}), tmp_path, "scripted", num_tasks=20)
    family = Dice({i: [InvalidArgumentError("no")] for i in (3, *range(21, 2000))})
    with pytest.raises(JobFailedError, match="none of the first 8 samples"):
        await play(family, tmp_path, "scripted", num_tasks=1999)
    assert sum(family.judged.values()) == 1 + 1 + 8


class Slow(Dice):
    """Judged in a sandbox that takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()

    def environment_in(self, sandbox):
        return self

    def step(self, state, agent, action):
        self.release.wait(10)
        return super().step(state, agent, action)


class NoSandbox:
    level = "none"
    is_closed = False

    def close(self):
        self.is_closed = True


async def test_judge_when_a_program_is_slow_then_others_go_on_and_the_deadline_holds() -> None:
    sandbox = NoSandbox()
    family = Slow()
    with LocalEnv(family, num_threads=2, open_sandbox=lambda: sandbox) as env:
        assert env.is_threaded
        state = (await env.reset(split="test", index=1, observe=["guesser"], timeout_s=5)).state

        async def judge(timeout_s: float):
            return await env.step(
                state=state,
                agent="guesser",
                actions=["0"],
                observe=["guesser"],
                timeout_s=timeout_s,
            )

        with pytest.raises(DeadlineError, match="env_timeout_s"):
            await judge(0.05)
        slow = asyncio.create_task(judge(10))
        await env.reset(split="test", index=2, observe=["guesser"], timeout_s=5)
        assert not slow.done()
        family.release.set()
        [outcome] = await slow
        assert outcome.is_done
    assert sandbox.is_closed
