"""What a process said last before it died becomes a condition with what to do about it."""

from typing import Any

import pytest

from troupe_router.cluster.pod_status import status_of


def died(words: str, *, restarts: int = 2, **more: Any) -> dict[str, Any]:
    """A pod whose container waits to be started again after it ended with these words."""
    ending = {"exitCode": 1, "message": words, **more}
    container = {
        "name": "trainer",
        "restartCount": restarts,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
        "lastState": {"terminated": ending},
    }
    return {
        "metadata": {"name": "t", "uid": "u"},
        "status": {"phase": "Running", "containerStatuses": [container]},
    }


@pytest.mark.parametrize(
    ("words", "condition", "advice"),
    [
        (
            "troupe trainer: No Redis answers at redis://:***@redis:6379/0 (invalid "
            "username-password pair or user is disabled.).",
            "RedisRefused",
            "the password in the Secret",
        ),
        (
            "troupe trainer: No Redis answers at redis://redis:6379/0 (Authentication required.).",
            "RedisRefused",
            "the one that Redis has",
        ),
        (
            "OSError: [Errno 28] No space left on device: '/srv/runs/demo-1/checkpoints'",
            "VolumeFull",
            "enlarge the volume",
        ),
        ("OSError: [Errno 122] Disk quota exceeded", "VolumeFull", "then resume the job"),
    ],
)
def test_process_when_it_dies_of_its_surroundings_then_the_condition_names_them(
    words: str, condition: str, advice: str
) -> None:
    verdict = status_of(died(words))
    assert (verdict.state, verdict.condition) == ("restarting", condition)
    assert words in verdict.detail
    assert advice in verdict.detail


def test_process_when_its_words_say_nothing_known_then_it_only_crashed() -> None:
    assert status_of(died("ValueError: nan", restarts=0)).condition == "Crashed"
    assert status_of(died("ValueError: nan", restarts=3)).condition == "CrashLooping"


def test_process_when_killed_for_memory_then_its_words_do_not_count() -> None:
    verdict = status_of(died("No space left on device", reason="OOMKilled"))
    assert verdict.condition == "OutOfMemory"
