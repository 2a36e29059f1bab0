"""Env processes ask the calling process over a real Unix socket."""

import json
import os
import shutil
import socket
import stat
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from troupe.errors import (
    DeadlineError,
    InvalidArgumentError,
    RewardFailedError,
    TroupeError,
    UnavailableError,
)
from troupe.tasks.family import Message
from troupe.training.dataset import TaskRows
from troupe.training.functions import CallerEnvironment, Functions
from troupe.training.judge_server import JudgeServer, make_private, socket_path
from troupe.training.task import DatasetParams, DatasetTask

ROWS = TaskRows.of([{"prompt": f"row {number}"} for number in range(20)])


def environment(reward: Any) -> CallerEnvironment:
    return CallerEnvironment(ROWS, {"a": "Be short."}, Functions(reward, success=3))


def family(path: Path, **params: Any) -> DatasetTask:
    return DatasetTask(
        DatasetParams(
            socket=str(path),
            agents={"a": "Be short."},
            num_train=18,
            num_held_out=2,
            digest=ROWS.digest,
            **params,
        )
    )


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s") / "private" / "j.sock"


def test_step_when_the_caller_judges_then_is_its_reward(path: Path) -> None:
    task = family(path)
    with JudgeServer(environment(lambda row, texts: len(texts["a"])), path):
        env = task.environment()
        state = env.reset(task.taskset().task("train", 4))
        assert env.observe(state, "a") == (Message("system", "Be short."), Message("user", "row 4"))
        weak, strong = env.step(state, "a", "x"), env.step(state, "a", "yes")
    assert (weak.team_reward, weak.done, weak.success) == (1.0, True, False)
    assert (strong.team_reward, strong.success) == (3.0, True)


def test_step_when_many_ask_at_once_then_functions_run_one_at_a_time(path: Path) -> None:
    busy, overlaps = Event(), 0

    def reward(row: dict[str, Any], texts: dict[str, str]) -> float:
        nonlocal overlaps
        overlaps += busy.is_set()
        busy.set()
        value = float(texts["a"])
        busy.clear()
        return value

    task = family(path)
    with JudgeServer(environment(reward), path), ThreadPoolExecutor(8) as pool:
        env = task.environment()
        state = env.reset(task.taskset().task("train", 0))
        rewards = list(pool.map(lambda n: env.step(state, "a", str(n)).team_reward, range(200)))
    assert rewards == [float(n) for n in range(200)]
    assert overlaps == 0


def test_step_when_a_function_raises_then_is_no_retryable_error(path: Path) -> None:
    task = family(path)
    with JudgeServer(environment(lambda row, texts: row["answer"]), path):
        env = task.environment()
        state = env.reset(task.taskset().task("train", 0))
        with pytest.raises(RewardFailedError, match="KeyError: 'answer'") as error:
            env.step(state, "a", "x")
    assert not error.value.retryable


def test_step_when_the_caller_has_ended_then_is_retryable_and_goes_on_with_the_next(
    path: Path,
) -> None:
    task = family(path)
    env = task.environment()
    first = task.taskset().task("train", 0)
    with JudgeServer(environment(lambda row, texts: 1.0), path):
        state = env.reset(first)
    with pytest.raises(UnavailableError, match=r"it has ended. Go on with troupe\.resume"):
        env.step(state, "a", "x")
    with JudgeServer(environment(lambda row, texts: 2.0), path):
        assert env.step(state, "a", "x").team_reward == 2.0


def test_step_when_a_function_takes_too_long_then_is_a_deadline(path: Path) -> None:
    free = Event()
    task = family(path, timeout_s=0.2)
    with JudgeServer(environment(lambda row, texts: free.wait(5)), path):
        env = task.environment()
        state = env.reset(task.taskset().task("train", 0))
        with pytest.raises(DeadlineError, match=r"did not judge within 0.2 s"):
            env.step(state, "a", "x")
        free.set()


def test_step_when_a_state_is_damaged_then_is_no_sign_that_the_caller_has_ended(path: Path) -> None:
    task = family(path)
    with (
        JudgeServer(environment(lambda row, texts: 1.0), path),
        pytest.raises(TroupeError, match=r"failed on /step: KeyError") as error,
    ):
        task.environment().step(b'{"shown": {}}', "a", "x")
    assert not error.value.retryable


def test_server_when_another_judges_then_is_refused(path: Path) -> None:
    judge = environment(lambda row, texts: 1.0)
    with (
        JudgeServer(judge, path),
        pytest.raises(InvalidArgumentError, match="another process already judges"),
        JudgeServer(judge, path),
    ):
        pass


def test_server_when_it_serves_then_only_this_user_enters_its_folder(path: Path) -> None:
    with JudgeServer(environment(lambda row, texts: 1.0), path):
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not path.exists()


def test_server_when_others_may_enter_its_folder_then_is_refused(path: Path) -> None:
    path.parent.mkdir(mode=0o755)
    path.parent.chmod(0o755)  # whatever the umask
    with (
        pytest.raises(InvalidArgumentError, match="not a folder of this user alone"),
        JudgeServer(environment(lambda row, texts: 1.0), path),
    ):
        pass


def test_states_when_packed_then_equal_answers_give_equal_bytes(path: Path) -> None:
    task = family(path)
    with JudgeServer(environment(lambda row, texts: 1.0), path):
        env = task.environment()
        first = task.taskset().task("train", 0)
        states = {env.step(env.reset(first), "a", "x").state for _ in range(3)}
    assert len(states) == 1
    assert json.loads(states.pop())["history"] == [{"agent": "a", "text": "x"}]


def test_step_when_the_folders_of_the_socket_are_gone_then_they_are_made_again(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    gone = tmp_path_factory.mktemp("s") / "job"
    path = gone / "private" / "j.sock"
    task = family(path)
    env = task.environment()
    with JudgeServer(environment(lambda row, texts: 1.0), path):
        state = env.reset(task.taskset().task("train", 0))
    shutil.rmtree(gone)
    with JudgeServer(environment(lambda row, texts: 2.0), path):
        assert env.step(state, "a", "x").team_reward == 2.0
        assert stat.S_IMODE(gone.stat().st_mode) == 0o700


def test_socket_path_when_the_folder_of_temporary_files_is_the_job_s_then_is_not_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert not socket_path("token").is_relative_to(tmp_path)


def test_server_when_its_path_is_too_long_then_is_refused_with_a_way_out(tmp_path: Path) -> None:
    path = tmp_path / ("t" * 100) / "j.sock"
    with (
        pytest.raises(InvalidArgumentError, match="at most 107; set TMPDIR to a shorter one"),
        JudgeServer(environment(lambda row, texts: 1.0), path),
    ):
        pass


def test_folder_when_it_cannot_be_made_then_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidArgumentError, match=r"file/private.*can't be made"):
        make_private(tmp_path / "file" / "private")


def test_folder_when_it_is_a_link_then_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidArgumentError, match="link is not a folder of this user alone"):
        make_private(tmp_path / "link")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_folder_when_a_parent_may_be_of_another_user_then_is_refused(tmp_path: Path) -> None:
    public, job = tmp_path / "public", tmp_path / "public" / "job"
    job.mkdir(parents=True)
    public.chmod(0o1777)
    os.chown(job, 12345, 12345)
    with pytest.raises(InvalidArgumentError, match="job is not a folder of this user alone"):
        make_private(job / "private")


def test_step_when_the_asker_has_gone_then_nothing_is_printed_of_it(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asked, go_on = Event(), Event()

    def slow(row: Any, texts: Any) -> float:
        asked.set()
        go_on.wait(30.0)
        return 1.0

    with JudgeServer(environment(slow), path):
        task = family(path)
        env = task.environment()
        state = env.reset(task.taskset().task("train", 4))
        body = json.dumps({"state": json.loads(state), "agent": "a", "action": "x"})
        with socket.socket(socket.AF_UNIX) as asker:
            asker.connect(str(path))
            head = f"POST /step HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            asker.sendall((head + body).encode())
            assert asked.wait(30.0)
        go_on.set()
        # Another caller is answered after it.
        assert env.step(state, "a", "y").team_reward == 1.0
    assert "Traceback" not in capfd.readouterr().err
