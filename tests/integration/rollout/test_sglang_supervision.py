"""The `sglang` engine's care for its server, with a process that speaks SGLang's HTTP shapes."""

import asyncio
import json
import os
import shutil
import signal
import threading
from dataclasses import replace
from typing import Any

import pytest
from fake_sglang_world import FakeSglangWorld, request, until, version

from troupe.errors import (
    DeadlineError,
    InvalidArgumentError,
    OverloadedError,
    PromptTooLongError,
    UnavailableError,
    VersionNotLoadedError,
    WeightsRejectedError,
)
from troupe.runtime.engines.engine import StagedWeights
from troupe.spec.policy import PolicySpec
from troupe_rollout.engines.sglang import translate
from troupe_rollout.teachers import hold_teachers


async def test_versions_come_under_names_of_their_own_and_leave_with_the_discard(
    world: FakeSglangWorld, adapter: StagedWeights
):
    engine = await world.started()
    for number in (1, 2):
        await engine.stage(version(adapter, number))
        await engine.activate("p", number)
    result = await engine.generate(request(2))
    assert [c.token_ids for c in result.candidates] == [[9] * 4] * 2
    assert await engine.score("p", 1, [1, 2, 3]) == [-2.0, -2.0]
    await engine.discard("p", 1)
    loads = [name for _, name in world.calls("/load_lora_adapter")]
    assert len(set(loads)) == 2
    assert [name for _, name in world.calls("/unload_lora_adapter")] == [loads[0]]
    with pytest.raises(VersionNotLoadedError):
        await engine.generate(request(1))
    assert [path.name for path in engine._work.path.iterdir() if path.is_dir()] == [loads[1]]


async def test_answer_when_the_cache_holds_less_than_the_context_then_ends_where_sglang_cuts_it(
    world: FakeSglangWorld, adapter: StagedWeights
):
    (world.folder / "pool").write_text("64")
    engine = await world.started()
    await engine.stage(adapter)
    await engine.activate("p", 1)
    result = await engine.generate(request(1, tokens=100))
    assert [len(c.token_ids) for c in result.candidates] == [54] * 2  # and a prompt of 3
    with pytest.raises(PromptTooLongError, match=r"has 57 here .*MAX_TOTAL_TOKENS"):
        await engine.generate(replace(request(1), prompt=[1] * 57))
    with pytest.raises(InvalidArgumentError, match="Score fewer"):
        await engine.score("p", 1, [1] * 58)


async def test_server_of_a_release_that_does_not_say_its_room_is_refused_by_what_is_missing(
    world: FakeSglangWorld,
):
    (world.folder / "other-release").touch()
    with pytest.raises(InvalidArgumentError, match=r"max_total_num_tokens.* release 0\.5"):
        await world.started()


async def test_server_when_its_scheduler_hangs_in_a_load_then_it_is_restarted_though_it_answers(
    world: FakeSglangWorld, adapter: StagedWeights
):
    engine = await world.started(call_timeout_s=0.5)
    steered = world.folder / "hang-on"
    steered.write_text("/load_lora_adapter")
    with pytest.raises(DeadlineError, match="/load_lora_adapter"):
        await engine.stage(version(adapter, 1))
    steered.unlink()
    await until(lambda: engine._servers[0].num_starts == 2 and engine.is_ready())
    await engine.stage(version(adapter, 1))


async def test_teacher_when_held_then_scores_completions_also_after_its_server_died(
    world: FakeSglangWorld,
):
    engine = world.engine()
    served = PolicySpec(model="m", teacher=str(world.model), teacher_replicas=1).served_teacher()
    assert served is not None
    await engine.start({"p-teacher": served})
    await hold_teachers(engine, {"p-teacher": served})
    wanted = [[-2.0, -2.0], [-2.0]]
    assert await engine.score_completions("p-teacher", 0, [1, 2, 3], [[4, 5], [6]]) == wanted
    [(pid, name)] = world.calls("/load_lora_adapter")
    os.kill(pid, signal.SIGKILL)
    await until(lambda: len(world.calls("/load_lora_adapter")) == 2 and engine.is_ready())
    assert await engine.score_completions("p-teacher", 0, [1, 2, 3], [[4, 5], [6]]) == wanted
    assert world.calls("/load_lora_adapter")[1][1] == name


async def test_bodies_when_made_then_off_the_event_loop_and_once(
    world: FakeSglangWorld, adapter: StagedWeights, monkeypatch: pytest.MonkeyPatch
):
    made: list[bool] = []

    def on_thread(function: Any) -> Any:
        def recorded(*given: Any, **named: Any) -> Any:
            made.append(threading.current_thread() is threading.main_thread())
            return function(*given, **named)

        return recorded

    monkeypatch.setattr(translate, "sent_prompt", on_thread(translate.sent_prompt))
    engine = await world.started()
    await engine.stage(adapter)
    await engine.activate("p", 1)
    await engine.generate(request(1))
    assert made == [False]  # for the prefill and both candidates
    await engine.score("p", 1, [1, 2, 3])
    assert made == [False, False]


async def test_unload_waits_for_the_last_request_of_the_version(
    world: FakeSglangWorld, adapter: StagedWeights
):
    engine = await world.started()
    await engine.stage(adapter)
    await engine.activate("p", 1)
    running = asyncio.ensure_future(engine.generate(request(1, tokens=250)))
    await until(lambda: engine.num_in_flight() > 0)
    await engine.stage(version(adapter, 2))
    await engine.activate("p", 2)
    await engine.discard("p", 1)
    assert world.calls("/unload_lora_adapter") == []
    assert (await running).policy_version == 1
    await until(lambda: len(world.calls("/unload_lora_adapter")) == 1)


async def test_unload_that_failed_is_tried_again_at_the_next_push(
    world: FakeSglangWorld, adapter: StagedWeights
):
    engine = await world.started()
    for number in (1, 2):
        await engine.stage(version(adapter, number))
        await engine.activate("p", number)
    steered = world.folder / "fail-unload"
    steered.touch()
    await engine.discard("p", 1)
    steered.unlink()
    await engine.stage(version(adapter, 3))
    first = world.calls("/load_lora_adapter")[0]
    assert world.calls("/unload_lora_adapter") == [first] * 2
    await engine.stage(version(adapter, 4))
    assert world.calls("/unload_lora_adapter") == [first] * 2, "it is gone now"


async def test_push_that_is_cancelled_while_it_unloads_what_others_left_leaves_it_to_the_next(
    world: FakeSglangWorld, adapter: StagedWeights
):
    engine = await world.started()
    for number in (1, 2, 3):
        await engine.stage(version(adapter, number))
        await engine.activate("p", number)
    loaded = {name for _, name in world.calls("/load_lora_adapter")[:2]}
    steered = world.folder / "fail-unload"
    steered.touch()
    for number in (1, 2):
        await engine.discard("p", number)
    steered.unlink()
    (world.folder / "hang-on").write_text("/unload_lora_adapter")
    push = asyncio.ensure_future(engine.stage(version(adapter, 4)))
    await until(lambda: len(world.calls("/unload_lora_adapter")) == 3)
    push.cancel()
    await asyncio.gather(push, return_exceptions=True)
    (world.folder / "hang-on").unlink()
    await engine.stage(version(adapter, 4))
    assert {name for _, name in world.calls("/unload_lora_adapter")[3:]} == loaded


async def test_same_tensors_staged_again_are_not_loaded_again(
    world: FakeSglangWorld, adapter: StagedWeights
):
    engine = await world.started()
    digests = [await engine.stage(adapter) for _ in range(3)]
    assert len(set(digests)) == 1
    assert len(world.calls("/load_lora_adapter")) == 1


async def test_killed_server_is_started_again_and_gets_its_versions_before_it_serves(
    world: FakeSglangWorld, adapter: StagedWeights
):
    engine = await world.started()
    await engine.stage(adapter)
    await engine.activate("p", 1)
    await engine.stage(version(adapter, 2))
    running = asyncio.ensure_future(engine.generate(request(1, tokens=2000)))
    await until(lambda: engine.num_in_flight() > 0)
    first = engine._servers[0].pid
    os.kill(first, signal.SIGKILL)
    with pytest.raises(UnavailableError):
        await running
    await until(lambda: not engine.is_ready())
    await until(engine.is_ready)
    assert engine._servers[0].pid != first
    loads = world.calls("/load_lora_adapter")
    assert [name for pid, name in loads if pid == first] == [n for p, n in loads if p != first]
    assert (await engine.generate(request(1))).policy_version == 1
    assert engine.policies()[0].staged_versions == (2,)


async def test_server_that_stops_answering_is_replaced(
    world: FakeSglangWorld, adapter: StagedWeights
):
    engine = await world.started()
    await engine.stage(adapter)
    await engine.activate("p", 1)
    first = engine._servers[0].pid
    (world.folder / "mute").touch()
    await until(lambda: not engine.is_ready())
    (world.folder / "mute").unlink()
    await until(engine.is_ready)
    assert engine._servers[0].pid != first
    assert (await engine.generate(request(1))).policy_version == 1


async def test_server_that_will_not_come_back_is_tried_again_until_it_does(
    world: FakeSglangWorld, adapter: StagedWeights
):
    engine = await world.started()
    await engine.stage(adapter)
    await engine.activate("p", 1)
    (world.folder / "refuse-start").touch()
    os.kill(engine._servers[0].pid, signal.SIGKILL)
    await until(lambda: engine._servers[0].num_starts >= 3)
    with pytest.raises(UnavailableError, match="ask another replica"):
        await engine.generate(request(1))
    with pytest.raises(UnavailableError):
        await engine.stage(version(adapter, 2))
    (world.folder / "refuse-start").unlink()
    await until(engine.is_ready)
    assert (await engine.generate(request(1))).policy_version == 1


async def test_server_whose_answers_make_no_sense_when_it_comes_back_is_tried_again(
    world: FakeSglangWorld, adapter: StagedWeights
):
    engine = await world.started()
    await engine.stage(adapter)
    await engine.activate("p", 1)
    (world.folder / "odd-on").write_text("/v1/models")
    os.kill(engine._servers[0].pid, signal.SIGKILL)
    await until(lambda: engine._servers[0].num_starts >= 3)
    (world.folder / "odd-on").unlink()
    await until(engine.is_ready)
    assert (await engine.generate(request(1))).policy_version == 1


async def test_first_start_that_fails_is_an_error_with_the_servers_last_words(
    world: FakeSglangWorld,
):
    (world.folder / "refuse-start").touch()
    with pytest.raises(InvalidArgumentError, match=r"status 1.*the fake refuses to start"):
        await world.started()


async def test_stop_ends_the_server_and_leaves_no_files(
    world: FakeSglangWorld, adapter: StagedWeights
):
    engine = await world.started()
    await engine.stage(adapter)
    pid = engine._servers[0].pid
    await engine.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert list((world.folder / "work").iterdir()) == []


async def test_more_candidates_than_the_limit_are_refused(
    world: FakeSglangWorld, adapter: StagedWeights
):
    engine = await world.started(max_in_flight=3)
    await engine.stage(adapter)
    await engine.activate("p", 1)
    with pytest.raises(OverloadedError, match="MAX_IN_FLIGHT"):
        await engine.generate(request(1, count=4))
    assert engine.num_in_flight() == 0


async def test_full_disk_is_a_retryable_error_and_nothing_is_loaded(
    world: FakeSglangWorld, adapter: StagedWeights, monkeypatch: pytest.MonkeyPatch
):
    engine = await world.started()
    work = engine._work.path

    def no_space(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("troupe_rollout.engines.sglang.files.os.link", no_space)
    monkeypatch.setattr("troupe_rollout.engines.sglang.files.shutil.copyfile", no_space)
    with pytest.raises(UnavailableError, match="No space left"):
        await engine.stage(adapter)
    monkeypatch.undo()
    assert [path for path in work.iterdir() if path.is_dir()] == []
    assert engine.policies()[0].staged_versions == ()


async def test_adapter_of_another_rank_never_reaches_the_server(
    world: FakeSglangWorld, adapter: StagedWeights
):
    engine = await world.started()
    config = json.loads(adapter.adapter_config_json) | {"r": 4}
    wrong = StagedWeights("p", 1, "lora", adapter.path, json.dumps(config))
    with pytest.raises(WeightsRejectedError, match="rank 4; the policy's rank is 2"):
        await engine.stage(wrong)
    assert not (world.folder / "calls").exists() or world.calls("/load_lora_adapter") == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"python": "/nowhere/python"}, "can't be run"),
        ({"version": "0.4.0"}, "has SGLang 0.5.23"),
        ({"device": "cuda"}, "sees 0 GPUs"),
    ],
)
async def test_environment_that_cannot_serve_is_refused_at_once(
    world: FakeSglangWorld, settings: dict[str, Any], words: str
):
    with pytest.raises(InvalidArgumentError, match=words):
        await world.started(**settings)


async def test_server_when_its_log_cannot_be_written_then_comes_back_once_it_can(
    world: FakeSglangWorld,
):
    engine = await world.started()
    [server], folder = engine._servers, engine._work.path
    shutil.rmtree(folder)
    folder.touch()
    os.kill(server.pid, signal.SIGKILL)
    await until(lambda: "can't be written" in server._why)
    with pytest.raises(UnavailableError, match="TROUPE_ROLLOUT_SGLANG_WORK_DIR"):
        server.client()
    folder.unlink()
    await until(engine.is_ready)
    assert server.num_starts == 2
