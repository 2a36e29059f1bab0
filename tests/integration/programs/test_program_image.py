"""Programs in the container of an image: here its process runs on this machine, as another one."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from program_world import asked, begun, forget, params_of, played, program

from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.spec.issues import SpecInvalidError
from troupe.tasks.registry import load_family
from troupe_tasks.programs import image_host
from troupe_tasks.programs.activity import descendants, start_time

IMAGE = "ghcr.io/acme/team@sha256:" + "0" * 64


class Container:
    """What runs in the program's container: the interpreter, and the files that it was given."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "host.sock"
        self._files = folder / "files"
        self._files.mkdir()
        image_host.copy_to(self._files)
        self.start()

    def start(self) -> None:
        command = [sys.executable, str(self._files / "image_host.py"), str(self.socket)]
        self.process = subprocess.Popen(command, env={"PATH": os.environ["PATH"]}, cwd="/")

    def kill(self) -> None:
        """As the kernel does when the first process of a container ends: all of them end."""
        for pid in descendants(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Container]:
    started = Container(tmp_path)
    monkeypatch.setenv("TROUPE_PROGRAM_SOCKET", str(started.socket))
    yield started
    started.kill()


def await_end(started: Mapping[int, str]) -> None:
    """Return when none of these processes lives, each told by when it began."""
    deadline = time.monotonic() + 20.0
    while left := [pid for pid, since in started.items() if since and start_time(pid) == since]:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


def test_program_when_in_an_image_then_its_episodes_are_those_of_a_program_here(
    container: Container,
) -> None:
    with program("fan_out") as here, program("fan_out", image=IMAGE) as there:
        ends = [
            [(s.state, s.team_reward, s.info) for s in played(e, 3, Random(1))]
            for e in (here, there)
        ]
    assert ends[0] == ends[1]


def test_program_when_in_an_image_then_it_is_replayed_and_sees_no_variable_of_the_service(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TROUPE_SECRET_TEST", "secret")
    with program("pair", image=IMAGE) as environment:
        state = environment.step(begun(environment), "solver", "7").state
        environment.worlds.close()
        assert environment.step(state, "verifier", "fine").info["answer"] == "7"
    with program("shows_environment", image=IMAGE) as environment:
        state = begun(environment)
        [agent] = asked(environment, state)
        assert "SECRET" not in environment.observe(state, agent)[-1].text


@pytest.mark.parametrize("start", ["fork", "fresh"])
def test_run_when_its_episode_is_given_up_then_it_ends_with_all_that_it_began(
    container: Container, start: str
) -> None:
    with program("leaves_children", image=IMAGE, start=start) as environment:
        begun(environment)
        began = descendants(container.process.pid)[1:]
        assert len(began) > 2
        started = {pid: start_time(pid) for pid in began}
    await_end(started)


@pytest.mark.parametrize("start", ["fork", "fresh"])
def test_run_when_its_process_has_died_in_an_image_then_its_child_ends_too(
    container: Container, start: str
) -> None:
    with program("dies_and_leaves_a_child", image=IMAGE, start=start, warm=False) as environment:
        state = begun(environment)
        child = int(environment.observe(state, "solver")[-1].text.split()[-1])
        started = {child: start_time(child)}
        assert started[child]
        with pytest.raises(UnavailableError, match="died without an answer"):
            environment.step(state, "solver", "7")
        await_end(started)


@pytest.mark.parametrize("where", [{}, {"image": IMAGE}], ids=["here", "image"])
def test_run_when_it_is_given_up_then_an_orphan_of_its_process_group_ends_too(
    container: Container, where: dict[str, Any]
) -> None:
    with program("leaves_an_orphan", warm=False, **where) as environment:
        orphan = int(environment.observe(begun(environment), "solver")[-1].text.split()[-1])
        started = {orphan: start_time(orphan)}
        assert started[orphan]
        forget(environment)  # the process that forks runs lives on
        await_end(started)


def test_container_when_it_dies_then_the_run_is_a_machines_failure_and_is_replayed_in_the_next(
    container: Container,
) -> None:
    with program("pair", image=IMAGE, start_s=5.0, warm=False) as environment:
        state = environment.step(begun(environment), "solver", "7").state
        container.kill()
        with pytest.raises(UnavailableError):
            environment.step(state, "verifier", "fine")
        container.start()
        deadline = time.monotonic() + 30.0
        while True:  # as whoever plays the episode does, while the container starts
            try:
                step = environment.step(state, "verifier", "fine")
                break
            except UnavailableError:
                assert time.monotonic() < deadline
        assert step.info["answer"] == "7"


def test_image_when_there_is_no_container_then_says_what_is_needed() -> None:
    with (
        program("pair", image=IMAGE) as environment,
        pytest.raises(InvalidArgumentError, match=r"env\.program\.repositories"),
    ):
        begun(environment)
    for more in ({"sandbox": {}, "replay": "never"}, {"seats": {"solver": {"key": True}}}):
        with pytest.raises(SpecInvalidError, match="image of its own"):
            load_family("program", params_of("pair", image=IMAGE, **more))
