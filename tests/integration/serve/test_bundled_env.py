"""The process of a bundle's task as `troupe serve` starts it: what it takes, and its end."""

from pathlib import Path

import pytest
from run_folders import ECHO_TASK, spec_document

from troupe.bundles.archive import bundle_of, digest_of_archive
from troupe.clients.env import EnvClient
from troupe.errors import DeadlineError, UnavailableError
from troupe.spec import JobSpec, parse_spec
from troupe.spec.bundle import BundleSpec
from troupe.tasks.family import Split, Task
from troupe_env.bundles import landlock
from troupe_router.serve.bundled import bundled_env, until_it_answers

needs_landlock = pytest.mark.skipif(not landlock.abi(), reason="this kernel has no Landlock")


def write_bundle(run: Path, archive: bytes) -> JobSpec:
    """A run folder that holds ``archive``, and the spec of its job."""
    (run / "bundle.tar").write_bytes(archive)
    document = spec_document("m") | {"task": {"name": "my_task.py:Echo"}}
    part = BundleSpec(digest=digest_of_archive(archive))
    return parse_spec(document).model_copy(update={"bundle": part})


@needs_landlock
async def test_bundle_when_larger_than_the_usual_limit_then_is_served(tmp_path: Path) -> None:
    size = 17 << 20
    files = {"my_task.py": ECHO_TASK.encode(), "words.bin": bytes(size)}
    spec = write_bundle(tmp_path, bundle_of(files, max_bytes=2 * size).archive)
    async with bundled_env(tmp_path, spec) as bundled:
        start = await bundled.env.begin_request("w1", observe=["tool"], timeout_s=60)
    assert start.observations["tool"][0].text == "w1"


async def test_process_when_it_ends_before_it_is_ready_then_the_error_says_so(
    tmp_path: Path,
) -> None:
    spec = write_bundle(tmp_path, b"no archive")
    with pytest.raises(UnavailableError, match="ended with status 1 before it was ready"):
        async with bundled_env(tmp_path, spec):
            pass


class InstallingEnv(EnvClient):
    """An env that is not up in time for the first two calls, as while pip runs."""

    num_asked = 0

    async def list_tasks(
        self, *, split: Split, start: int = 0, count: int = 100, timeout_s: float = 30.0
    ) -> tuple[list[Task], int | None]:
        self.num_asked += 1
        if self.num_asked < 3:
            raise DeadlineError("the bundle's process was not up in 60 s")
        return [], None


async def test_env_when_its_packages_take_longer_than_a_call_then_is_waited_for() -> None:
    async with InstallingEnv("127.0.0.1:1", "my_task.py:Echo") as env:
        await until_it_answers(env)
        assert env.num_asked == 3
