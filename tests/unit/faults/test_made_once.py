"""Two processes that want one folder of a cache: it is made once, and nobody waits for ever."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from troupe.durable import make_once
from troupe.errors import DeadlineError


def test_folder_when_two_want_it_at_once_then_it_is_made_once(tmp_path: Path) -> None:
    target, looked = tmp_path / "cache" / "model", threading.Barrier(2)
    written: list[Path] = []
    asked = threading.local()

    def is_there() -> bool:
        found = target.is_dir()
        if not hasattr(asked, "once"):
            asked.once = True
            looked.wait(10)  # so that neither writes before both have looked
        return found

    def write(draft: Path) -> None:
        written.append(draft)
        draft.mkdir()
        (draft / "weights").write_text("whole", encoding="utf-8")

    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(make_once, target, is_there, write) for _ in range(2)]
        assert sorted(each.result(timeout=20) for each in done) == [False, True]
    assert len(written) == 1
    assert (target / "weights").read_text("utf-8") == "whole"


def test_folder_when_its_maker_hangs_then_the_other_says_so(tmp_path: Path) -> None:
    target, begun, ended = tmp_path / "model", threading.Event(), threading.Event()

    def hang(draft: Path) -> None:
        draft.mkdir()
        begun.set()
        ended.wait(20)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(make_once, target, target.is_dir, hang)
        assert begun.wait(10)
        with pytest.raises(DeadlineError, match=f"has been writing {target}"):
            make_once(target, target.is_dir, hang, timeout_s=0.2)
        ended.set()
        assert first.result(timeout=20)
