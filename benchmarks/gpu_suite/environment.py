"""Part: what this machine has, and whether trainer and servers can use it."""

import asyncio
import importlib.metadata
import shutil
import subprocess
from typing import Any

import torch
from transformers.utils.import_utils import is_flash_attn_2_available, is_liger_kernel_available

from benchmarks.gpu_suite.part import PartOptions, run_part
from benchmarks.report import goal, machine
from troupe.errors import TroupeError
from troupe_rollout.engines.sglang.environment import look_at_machine
from troupe_rollout.engines.sglang.settings import load_settings
from troupe_trainer.model.flops import peak_flops

QUERY = "name,memory.total,memory.free,driver_version,clocks.max.sm,pstate"
SETUP = {
    "cpu": "python3.11 scripts/setup_sglang.py",
    "cuda": "python3.11 scripts/setup_sglang.py --gpu --venv DIR, then "
    "TROUPE_ROLLOUT_SGLANG_PYTHON=DIR/bin/python",
}
"""How SGLang's environment is made for a device."""


def sglang_problem(device: str) -> str:
    """Why SGLang can't be used on ``device``; empty where it can."""
    try:
        asyncio.run(look_at_machine(load_settings().model_copy(update={"device": device})))
    except TroupeError as error:
        return f"{error.message} ({SETUP[device]})"
    return ""


def computes_on(device: str) -> bool:
    """Whether torch multiplies matrices on ``device``, and the result is right."""
    try:
        ones = torch.ones(64, 64, device=device)
        return float((ones @ ones).sum()) == 64**3
    except (RuntimeError, AssertionError) as error:  # the latter: a torch without CUDA
        print(f"torch on {device}: {str(error)[:300]}")
        return False


def measure(options: PartOptions) -> dict[str, Any]:
    """Versions, cards, and the two environments."""
    problem = sglang_problem(options.device)
    computes = computes_on(options.device)
    facts: dict[str, Any] = {
        "machine": machine(),
        "nvidia_smi": nvidia_smi(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "transformers": importlib.metadata.version("transformers"),
        "flash_attn": bool(is_flash_attn_2_available()),
        "liger": bool(is_liger_kernel_available()),
        "has_compiler": shutil.which("g++") is not None or shutil.which("gcc") is not None,
        "free_disk_gb": round(shutil.disk_usage(".").free / 1e9),
        "sglang": problem or "found",
    }
    goals = [
        goal("the trainer's torch computes there", float(computes), 1.0, computes),
        goal("SGLang is found", float(not problem), 1.0, not problem),
    ]
    if options.device == "cuda" and torch.cuda.is_available():
        count = torch.cuda.device_count()
        facts["devices"] = [torch.cuda.get_device_name(i) for i in range(count)]
        facts["capability"] = torch.cuda.get_device_capability(0)
        speed = peak_flops(torch.device("cuda"))
        facts["peak_tflops"] = speed and speed / 1e12
        # Without it no figure of mfu can be given: add the card to troupe_trainer/model/flops.py.
        goals.append(goal("the card's full speed is known", float(bool(speed)), 1.0, bool(speed)))
    if problem:
        print(f"SGLang: {problem}")
    return {**facts, "goals": goals}


def nvidia_smi() -> list[str]:
    """One line for each card; none where the driver is not there."""
    if (command := shutil.which("nvidia-smi")) is None:
        return []
    done = subprocess.run(
        [command, f"--query-gpu={QUERY}", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout.strip().splitlines() or [done.stderr.strip()[:300]]


if __name__ == "__main__":
    run_part(__doc__, measure)
