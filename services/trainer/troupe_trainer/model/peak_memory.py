"""The peak memory of a step: on the accelerator, or of this process.

Owns the reading of counters. Never fails a step: an unreadable counter is None.
"""

import re
from pathlib import Path

import torch

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


def reset_peak(device: torch.device) -> None:
    """Start measuring. Where the process's peak can't be reset, it covers its whole life."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError:
        return


def peak_bytes(device: torch.device) -> int | None:
    """Peak bytes since ``reset_peak``: allocated on the accelerator, or resident on the CPU."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    try:
        match = re.search(r"^VmHWM:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None
