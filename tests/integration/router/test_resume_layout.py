"""A job laid out for some GPUs is resumed on others: its run folder keeps what was asked for."""

import json
from pathlib import Path

import pytest
from redis.asyncio import Redis
from rest_world import spec_document

from troupe.spec import JobSpec, SpecInvalidError, load_spec, parse_spec
from troupe_router.jobs.store import JobStore
from troupe_router.jobs.submit import JobCommands
from troupe_router.settings import RouterSettings


def taken(spec: JobSpec) -> tuple[int, int | None]:
    """Replicas and ranks."""
    return spec.policies["p"].replicas, spec.trainer.gpus


async def test_job_when_resumed_on_another_number_of_gpus_then_it_is_laid_out_anew(
    redis: Redis, tmp_path: Path
) -> None:
    store = JobStore(redis)

    def commands(gpus: int) -> JobCommands:
        return JobCommands(RouterSettings(runs_dir=tmp_path, gpus=gpus), redis, store)

    spec = parse_spec(spec_document(tmp_path))
    record = (await commands(8).submit(b"1", spec, key=None)).record
    assert taken(record.spec) == (4, 4)
    assert taken(load_spec(record.run_dir / "spec.json")) == (1, None)
    for gpus, seats in ((2, (1, 1)), (0, (1, None)), (8, (4, 4))):
        await store.transition(record.job_id, "launching")
        await store.transition(record.job_id, "failed")
        longer = record.spec.model_copy(update={"steps": record.spec.steps + 1})
        record = await commands(gpus).resume(record.job_id, longer)
        assert (taken(record.spec), record.spec.steps) == (seats, longer.steps)
        assert taken(load_spec(record.run_dir / "spec.json")) == (1, None)


async def test_dtype_when_left_out_then_gpus_give_bfloat16_which_a_resumed_job_keeps(
    redis: Redis, tmp_path: Path
) -> None:
    store = JobStore(redis)
    spec = parse_spec(spec_document(tmp_path))
    assert spec.policies["p"].dtype == "float32"
    for number, settings in enumerate(({"gpus": 2}, {"trainer_gpus": 1}, {})):
        router = RouterSettings(runs_dir=tmp_path, **settings)
        record = (
            await JobCommands(router, redis, store).submit(b"%d" % number, spec, key=None)
        ).record
        kept = load_spec(record.run_dir / "spec.json").policies["p"].dtype
        assert record.spec.policies["p"].dtype == kept == ("bfloat16" if settings else "float32")
        await store.transition(record.job_id, "launching")
        await store.transition(record.job_id, "failed")
        for elsewhere in ({}, {"gpus": 2}):
            router = RouterSettings(runs_dir=tmp_path, **elsewhere)
            longer = load_spec(record.run_dir / "spec.json").model_copy(update={"steps": 9})
            record = await JobCommands(router, redis, store).resume(record.job_id, longer)
            assert record.spec.policies["p"].dtype == kept
            await store.transition(record.job_id, "launching")
            await store.transition(record.job_id, "failed")


async def test_job_when_it_is_resumed_and_its_targets_are_refused_now_then_it_says_which(
    redis: Redis, tmp_path: Path
) -> None:
    store = JobStore(redis)
    commands = JobCommands(RouterSettings(runs_dir=tmp_path), redis, store)
    spec = parse_spec(spec_document(tmp_path))
    record = (await commands.submit(b"1", spec, key=None)).record
    await store.transition(record.job_id, "launching")
    await store.transition(record.job_id, "failed")
    stored = record.run_dir / "spec.json"
    document = json.loads(stored.read_text())
    document["policies"]["p"]["train"] = {"kind": "lora", "targets": ["lm_head"]}
    stored.write_text(json.dumps(document))
    with pytest.raises(SpecInvalidError, match="/policies/p/train/targets: 'lm_head' gets no"):
        await commands.resume(record.job_id, None)
