"""The process that runs math-verify: one JSON request a line in, one JSON verdict a line out.

Stands alone: imports nothing of Troupe, reads no environment, and may be killed at any moment.
It bounds its own processor time and memory, so that an answer that computer algebra cannot
digest is told from a machine that is slow.
"""

import json
import resource
import signal
import sys
from typing import Any

MEMORY_BYTES = 2 * 1024**3
STRAY_CPU_S = 2.0


class TooHardError(BaseException):
    """The answer used up its processor time. No Exception, so that libraries let it through."""


def main() -> None:
    """Serve until the parent closes our input."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.signal(signal.SIGPROF, _stop)
    judge = _judge()
    _say({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, float(request["cpu_s"]))
        try:
            verdict = "equal" if judge(request["gold"], request["candidate"]) else "different"
        except TooHardError:
            verdict = "too_hard"
        except (MemoryError, RecursionError):
            verdict = "too_hard"
        except Exception:
            verdict = "unreadable"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        _say({"id": request["id"], "verdict": verdict})


def _judge() -> Any:
    import logging
    from dataclasses import replace

    from math_verify import LatexExtractionConfig, parse, verify

    logging.disable(logging.CRITICAL)
    # Its own list of units has c, d, g, h, l, m, o, s and t: 3t would be 3.
    normalization = replace(LatexExtractionConfig().normalization_config, units=False)
    config = [LatexExtractionConfig(boxed_match_priority=0, normalization_config=normalization)]

    def read(text: str) -> Any:
        return parse(
            "\\boxed{" + text + "}",
            extraction_config=config,
            fallback_mode="first_match",
            parsing_timeout=None,  # pyright: ignore[reportArgumentType]
        )

    def judge(gold: str, candidate: str) -> bool:
        return bool(verify(read(gold), read(candidate), timeout_seconds=None))

    judge("1", "1")
    return judge


def _stop(number: int, frame: object) -> None:
    # A library may swallow the first one in a bare except, so another one follows.
    signal.setitimer(signal.ITIMER_PROF, STRAY_CPU_S)
    raise TooHardError


def _say(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
