"""Troupe beside CoMLRL and TRL: sequences per CPU-second from prompt to applied weights.

Run: ``python scripts/setup_peers.py`` once, then ``python -m benchmarks.vs_peers [--quick]``, with
``--model smollm2`` (after ``troupe model fetch smollm2``) or a model's folder; without it a tiny
Qwen2 of 1.1 million parameters, which measures overheads alone. All train the same model (all
weights, float32) on the same prompts with the same K, tokens and reward, one agent, one turn, one
torch thread, 8 prompts a step; runs are interleaved. Troupe runs twice: its parts in one process,
and the four services as processes, whose CPU time is added up, Valkey and router included. Only
steps after the warm-up count; with ``--peer-steps`` 3 a peer has one of them. A peak is the
resident memory's (VmHWM), added up over processes. ``reward_by_step`` is each one's curve, as the
mean over rounds; nobody learns at the rate of 5e-6 in a few steps, so a comparison of curves takes
``--rate 1e-4 --steps 16`` or the like, the same for all. The last line is one JSON object; exits 0
whatever it shows.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

from benchmarks.peer_own import REPO, Plan, in_process, services
from benchmarks.peer_task import save_float32, save_tiny_qwen2
from benchmarks.report import clean_up_on_sigterm, commit, goal, machine

PEERS = ("comlrl_magrpo", "comlrl_iac", "trl_grpo")
OWN = ("troupe_in_process", "troupe_services")
GOALS = (
    ("troupe_services", "comlrl_magrpo", 2.0),
    ("troupe_services", "trl_grpo", 1.2),
    ("troupe_in_process", "comlrl_magrpo", 3.0),
)
REAL_GOALS = (
    ("troupe_services", "comlrl_magrpo", 2.5),
    ("troupe_services", "trl_grpo", 1.5),
)
"""With a pretrained model; there the services may also need no more memory than TRL."""


def peer(name: str, python: Path, model: Path, plan: Plan) -> dict[str, Any]:
    """One run in the peers' environment."""
    plan_document = {
        "prompts": plan.prompts(),
        "k": plan.k,
        "tokens": plan.tokens,
        "prompts_per_step": plan.prompts_per_step,
        "steps": plan.steps,
        "warm_up": plan.warm_up,
        "rate": plan.rate,
    }
    script = Path(__file__).with_name("peer_run.py")
    command = ["env", "OMP_NUM_THREADS=1", str(python), str(script), name, str(model)]
    done = subprocess.run(
        [*command, json.dumps(plan_document)],
        capture_output=True,
        text=True,
        check=False,
        timeout=plan.timeout_s,
    )
    if done.returncode:
        raise SystemExit(f"{name} failed: {done.stderr[-1500:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def model_at(name: str, folder: Path) -> Path:
    """The model that all train, in ``folder``."""
    if name == "tiny":
        return save_tiny_qwen2(folder)
    source = REPO / "models" / name if name == "smollm2" else Path(name)
    if not (source / "config.json").is_file():
        raise SystemExit(f"there is no model {source}; `troupe model fetch smollm2` makes smollm2")
    return save_float32(source, folder)


def row_of(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over the runs."""
    rates = [run["sequences"] / run["cpu_s"] for run in runs]
    return {
        "name": name,
        "n": len(runs),
        "sequences_per_cpu_s": round(statistics.median(rates), 2),
        "spread": [round(min(rates), 2), round(max(rates), 2)],
        "tokens_per_cpu_s": round(statistics.median(r["tokens"] / r["cpu_s"] for r in runs), 1),
        "sequences_per_s": round(statistics.median(r["sequences"] / r["wall_s"] for r in runs), 2),
        "peak_mb": round(max(run["peak_mb"] for run in runs)),
        "reward_by_step": (curve := reward_by_step(runs)),
        "reward_gained": gained(curve),
    }


def reward_by_step(runs: Sequence[Mapping[str, Any]]) -> list[float]:
    """The mean reward of each step's sequences, over the runs."""
    return [
        round(statistics.fmean(at), 4) for at in zip(*(r["rewards"] for r in runs), strict=True)
    ]


def gained(curve: Sequence[float]) -> float:
    """Mean of the last third of the steps less that of the first."""
    third = max(1, len(curve) // 3)
    return round(statistics.fmean(curve[-third:]) - statistics.fmean(curve[:third]), 4)


def arguments() -> argparse.Namespace:
    """The command line, with what ``--quick`` means."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.vs_peers")
    parser.add_argument("--venv", type=Path, default=REPO / ".venv-peers")
    parser.add_argument("--model", default="tiny", help="tiny, smollm2, or a model's folder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--peer-steps", type=int, help="of the peers, whose steps take longer")
    parser.add_argument("--warm-up", type=int, default=3, help="steps that are not measured")
    parser.add_argument("--rate", type=float, default=5e-6, help="learning rate of all")
    parser.add_argument("--only", help=f"some of {','.join((*PEERS, *OWN))}")
    parser.add_argument("--quick", action="store_true", help="one round of 6 steps, or 3 if real")
    args = parser.parse_args()
    args.is_real = args.model != "tiny"
    if args.quick:
        args.rounds, args.steps, args.warm_up = 1, 3 if args.is_real else 6, 1
    args.python = args.venv / "bin" / "python"
    return args


def names_of(args: argparse.Namespace) -> list[str]:
    """What is run: without the peers' environment Troupe alone."""
    peers = [name for name in PEERS if not (args.is_real and name == "comlrl_iac")]
    names = args.only.split(",") if args.only else [*peers, *OWN]
    if args.python.exists():
        return names
    print(f"no {args.python}: the peers are left out; run scripts/setup_peers.py", file=sys.stderr)
    return [name for name in names if name in OWN]


def plans_of(args: argparse.Namespace) -> tuple[Plan, Plan]:
    """Troupe's steps, and a peer's."""
    timeout_s = 7200.0 if args.is_real else 900.0
    plan = Plan(steps=args.steps, warm_up=args.warm_up, timeout_s=timeout_s, rate=args.rate)
    steps = args.peer_steps or args.steps
    return plan, replace(plan, steps=steps, warm_up=min(args.warm_up, steps - 2))


def interleaved(args: argparse.Namespace, plan: Plan, peer_plan: Plan) -> list[dict[str, Any]]:
    """A row for each of ``names_of``, from as many runs as there are rounds."""
    figures: dict[str, list[dict[str, Any]]] = {name: [] for name in names_of(args)}
    with tempfile.TemporaryDirectory(prefix="troupe-peers-") as scratch:
        folder = Path(scratch)
        model = model_at(args.model, folder / "model")
        runners: dict[str, Callable[[], dict[str, Any]]] = {
            "troupe_in_process": lambda: in_process(model, plan, folder),
            "troupe_services": lambda: services(model, plan, folder),
        }
        for _ in range(args.rounds):
            for name, runs in figures.items():
                run = runners.get(name) or partial(peer, name, args.python, model, peer_plan)
                runs.append(run())
                print(json.dumps({"run": name, **runs[-1]}), flush=True)
    return [row_of(name, runs) for name, runs in figures.items()]


def goals_of(rows: Sequence[Mapping[str, Any]], *, is_real: bool) -> list[dict[str, Any]]:
    """Those whose two sides were run."""
    by_name = {row["name"]: row for row in rows}
    rates = {name: row["sequences_per_cpu_s"] for name, row in by_name.items()}
    goals = [
        goal(f"{a} over {b}", round(rates[a] / rates[b], 2), wanted, rates[a] >= wanted * rates[b])
        for a, b, wanted in (REAL_GOALS if is_real else GOALS)
        if a in rates and b in rates
    ]
    if is_real and {"troupe_services", "trl_grpo"} <= by_name.keys():
        peak, limit = by_name["troupe_services"]["peak_mb"], by_name["trl_grpo"]["peak_mb"]
        goals.append(goal("peak MB of services, TRL's at most", peak, limit, peak <= limit))
    return goals


def main() -> None:
    """Interleave the runs and compare."""
    args = arguments()
    clean_up_on_sigterm()
    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()
    plan, peer_plan = plans_of(args)
    rows = interleaved(args, plan, peer_plan)
    result = {
        "benchmark": "vs_peers",
        "commit": commit(),
        "machine": machine(),
        "load": os.getloadavg()[0],
        "model": args.model,
        "spec": asdict(plan),
        "peers_spec": asdict(peer_plan),
        "n": args.rounds,
        "rows": rows,
        "goals": goals_of(rows, is_real=args.is_real),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
