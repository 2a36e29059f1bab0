"""The outcome of a job, for people and for benchmarks: summary.json, curve.png, report.md."""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from troupe.durable import replace_file
from troupe.finite import finite_only
from troupe.runtime.step_report.trainer import TRUNCATED_SHARE
from troupe.runtime.telemetry.logging import get_logger
from troupe_router.jobs.record import JobRecord

_log = get_logger(__name__)
_PACKAGES = ("troupe", "torch", "transformers", "peft", "grpcio", "redis", "pydantic", "numpy")
_AFTERWARDS = {"curve": "troupe.evaluation.curve", "report": "troupe.evaluation.run_report"}
_AFTERWARDS_TIMEOUT_S = 120.0


def summarize(
    job: JobRecord,
    lines: Sequence[Mapping[str, Any]],
    result: Mapping[str, Any] | None,
    *,
    state: str,
    reason: str,
    commit: str | None,
    losses: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """The summary. ``lines`` are those of metrics.jsonl; success is a fraction or None.

    ``adapter`` and ``merged`` are those of the one policy; of several, ``policies`` has each.
    ``losses`` are the parts of the job's records that were written and are not there any more.
    """
    spec = job.spec
    train = [line for line in lines if line["kind"] == "train"]
    evals = {line["step"]: line for line in lines if line["kind"] == "eval"}
    whole = [line for line in train if not line.get("interrupted")]
    dropped: Counter[str] = Counter()
    for line in train:
        dropped.update(line.get("groups_dropped") or {})
    policies = _artifacts(job, result or {})
    only = next(iter(policies.values())) if len(policies) == 1 else {}
    return {
        "job_id": job.job_id,
        "state": state,
        "reason": reason,
        "task": spec.task.name,
        "task_params": spec.task.params,
        "seed": spec.seed,
        "algorithm": spec.algorithm.kind,
        "num_eval": evals[max(evals)]["num_tasks"] if evals else 0,
        "base_success": evals[0]["success"] if 0 in evals else None,
        "final_success": evals[spec.steps]["success"] if spec.steps in evals else None,
        "steps": len(train),
        "wall_s": round(time.time() - (job.started_at or job.created_at), 3),
        "steps_wall_s": round(sum(line["wall_s"] for line in train), 3),
        "steps_interrupted": len(train) - len(whole),
        "steps_flat": sum(bool(line.get("is_flat")) for line in train),
        "steps_truncated": sum(
            (line.get("truncated_fraction") or 0.0) >= TRUNCATED_SHARE for line in train
        ),
        "busy_ratio": _busy_ratio(whole),
        "busy_ratio_with_interruptions": _busy_ratio(train),
        "steps_suspect": sorted({line["step"] for line in lines if line.get("is_suspect")}),
        "groups_trained": sum(int(line.get("groups_trained") or 0) for line in train),
        "groups_zero_variance": sum(int(line.get("groups_zero_variance") or 0) for line in train),
        "groups_dropped": dict(sorted(dropped.items())),
        "episodes_dropped": sum(int(line.get("num_dropped") or 0) for line in lines),
        "records_lost": [dict(loss) for loss in losses],
        "tokens": sum(int(line.get("num_tokens") or 0) for line in train),
        "adapter": only.get("adapter"),
        "merged": only.get("merged"),
        "policies": policies,
        "lives": job.life,
        "versions": _versions(),
        "commit": commit,
    }


def _busy_ratio(train: Sequence[Mapping[str, Any]]) -> float | None:
    """Seconds of generation and learning over the wall time of these steps."""
    wall_s = sum(line["wall_s"] for line in train)
    busy_s = sum(line["phases"]["generate"] + line["phases"]["learn"] for line in train)
    return round(busy_s / wall_s, 4) if wall_s > 0 else None


async def write_summary(run_dir: Path, summary: Mapping[str, Any]) -> None:
    """Write summary.json, then the curve and the report from the run's files.

    These are curve.png (where matplotlib is installed), report.md and transcripts/; a failure is
    only logged.
    """
    text = json.dumps(finite_only(summary), indent=2) + "\n"
    await asyncio.to_thread(replace_file, run_dir / "summary.json", text)
    for name, module in _AFTERWARDS.items():
        if name == "curve" and find_spec("matplotlib") is None:
            _log.info("curve.skipped", run_dir=str(run_dir), missing="matplotlib")
            continue
        await _run_module(name, module, run_dir)


async def _run_module(name: str, module: str, run_dir: Path) -> None:
    """Run ``module`` on the run folder in a process of its own, for a bounded time."""
    command = [sys.executable, "-m", module, str(run_dir)]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(_AFTERWARDS_TIMEOUT_S):
            _, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        by_hand = f"python -m {module} {run_dir}"
        _log.warning(f"{name}.timed_out", after_s=_AFTERWARDS_TIMEOUT_S, by_hand=by_hand)
        return
    if process.returncode:
        _log.warning(f"{name}.failed", run_dir=str(run_dir), error=errors.decode()[-2000:])


async def find_commit() -> str | None:
    """The commit of the checkout that this code runs from, or None."""
    folder = str(Path(__file__).parent)
    try:
        asking = await asyncio.create_subprocess_exec(
            *("git", "-C", folder, "rev-parse", "HEAD"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(5.0):
            answer, _ = await asking.communicate()
    except (OSError, TimeoutError):
        return None
    return answer.decode().strip() or None if asking.returncode == 0 else None


def _artifacts(job: JobRecord, result: Mapping[str, Any]) -> dict[str, dict[str, str | None]]:
    """Paths of each policy's adapter and merged model: as reported, else on disk."""
    reported = result.get("policies")
    named: Mapping[str, Any] = reported if isinstance(reported, Mapping) else {}
    artifacts: dict[str, dict[str, str | None]] = {}
    for policy in job.spec.policies:
        entry = named.get(policy)
        words: Mapping[str, Any] = entry if isinstance(entry, Mapping) else {}
        artifacts[policy] = {}
        for kind in ("adapter", "merged"):
            folder = job.run_dir / "policies" / policy / kind
            default = str(folder) if folder.is_dir() else None
            artifacts[policy][kind] = words.get(kind) or default
    return artifacts


def _versions() -> dict[str, str]:
    versions = {"python": sys.version.split()[0]}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
