"""Checks, before anything is loaded, that SGLang's environment can serve on this machine.

Owns one short child process. Never imports SGLang in this process.
"""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

from troupe.errors import InvalidArgumentError
from troupe_rollout.engines.sglang.settings import SglangSettings

PROBE_TIMEOUT_S = 120.0
_PROBE = """
import importlib.metadata as metadata, json, torch
gpus = [torch.cuda.mem_get_info(i) for i in range(torch.cuda.device_count())]
nccl = ".".join(map(str, torch.cuda.nccl.version()[:3])) if gpus else ""
print(json.dumps({"version": metadata.version("sglang"), "free": [f for f, _ in gpus],
                  "total": [t for _, t in gpus], "nccl": nccl}))
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where servers will run. ``available_bytes`` is of one device; ``nccl`` is a release."""

    device: str
    available_bytes: int
    nccl: str = ""


async def look_at_machine(settings: SglangSettings) -> Machine:
    """Raises InvalidArgumentError: no such Python, no SGLang in it, wrong release, no GPU."""
    python = settings.interpreter()
    fix = "Run scripts/setup_sglang.py, or correct TROUPE_ROLLOUT_SGLANG_PYTHON."
    try:
        probe = await asyncio.create_subprocess_exec(
            python,
            "-c",
            _PROBE,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise InvalidArgumentError(f"{python} can't be run ({error}). {fix}") from error
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            out, err = await probe.communicate()
    except TimeoutError as error:
        probe.kill()
        await probe.wait()
        raise InvalidArgumentError(f"{python} did not answer in {PROBE_TIMEOUT_S:g} s.") from error
    if probe.returncode != 0:
        words = err.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise InvalidArgumentError(f"{python} has no usable SGLang ({words[0]}). {fix}")
    facts = json.loads(out.decode().strip().splitlines()[-1])
    if settings.version and facts["version"] != settings.version:
        raise InvalidArgumentError(
            f"{python} has SGLang {facts['version']} and the engine is tested with "
            f"{settings.version}. {fix} TROUPE_ROLLOUT_SGLANG_VERSION='' takes any release."
        )
    # A shared device's other user may be on it now, and is not when a server starts.
    memory = facts["total"] if settings.colocated else facts["free"]
    return _choose(settings, memory=memory, python=python, nccl=facts.get("nccl", ""))


def _choose(settings: SglangSettings, *, memory: list[int], python: str, nccl: str) -> Machine:
    ranks = settings.tp_size * settings.dp_size
    device = settings.device
    if device == "auto":
        device = "cuda" if memory else "cpu"
    if device == "cpu":
        return Machine("cpu", _memory_available())
    if len(memory) < ranks:
        raise InvalidArgumentError(
            f"TROUPE_ROLLOUT_SGLANG_DEVICE is 'cuda' with {ranks} ranks, and the torch of {python} "
            f"sees {len(memory)} GPUs. Run it where they are, or set the device to 'cpu'."
        )
    return Machine("cuda", min(memory), nccl)


def _memory_available() -> int:
    """Memory that Linux reports as available without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
