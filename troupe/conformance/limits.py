"""The kit's effort and tolerances."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckLimits:
    """The kit's effort and tolerances. Times in seconds, sizes in bytes.

    ``seconds`` is shared among the searches; each of them runs its fixed tactics at least once,
    so a check may take longer, up to about ``check_seconds`` each. All checks together take about
    ``total_seconds``: where steps are slow, each is cut short in its turn and says so. A step
    slower than ``step_limit_s`` fails; None means 2 s, and 60 s (a job's default) for a family
    whose steps run programs, which may use up their own limits. A state larger than
    ``state_warn_bytes`` warns, one larger than ``state_fail_bytes`` fails.
    ``num_draws`` tasks of each split are drawn again; ``num_processes`` other processes repeat the
    judgements of this one.
    """

    num_tasks: int = 6
    seconds: float = 10.0
    max_steps: int = 24
    check_seconds: float = 60.0
    total_seconds: float = 60.0
    step_limit_s: float | None = None
    state_warn_bytes: int = 4 * 1024
    state_fail_bytes: int = 1024 * 1024
    info_warn_bytes: int = 64 * 1024
    num_draws: int = 40
    num_processes: int = 2
    split_sample: int = 300
    split_whole: int = 20_000
    huge_chars: int = 1_000_000
    seed: int = 0
