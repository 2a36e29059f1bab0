"""Part: a team with a pretrained model, base against trained on held-out tasks.

The job is an example's spec with the given model, run by ``troupe train`` and read by
``benchmarks.real_model``. One that ran out of time is ended in order and goes on with the next call
(``troupe train --resume``), so a row of many steps may be made in several sittings. Its run folder
is what the part ``phases`` reads.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import yaml

from benchmarks.gpu_suite.environment import sglang_problem
from benchmarks.record import last_line
from benchmarks.report import goal
from troupe.spec.memory import GB
from troupe_rollout.engines.sglang.settings import PREFIX

ROOT = Path(__file__).parents[2]
END_WITHIN_S = 90.0
"""For a job to end in order, once it was told to."""
TINY = {
    "--params": {"max_actions": 3},
    "--shape": {"hidden_size": 64, "num_layers": 2, "num_heads": 2, "intermediate_size": 128},
    "--warm-start": {"num_careful_steps": 250, "num_careless_steps": 50, "batch_size": 32},
}


def environment_of(device: str) -> dict[str, str]:
    """Of ``troupe train``: SGLang on the machine's GPUs; on a CPU as on one GPU, if it is here."""
    told = dict(os.environ)
    if device == "cuda":
        size = torch.cuda.get_device_properties(0).total_memory / GB
        told["TROUPE_ROUTER_GPUS"] = str(torch.cuda.device_count())
        told["TROUPE_ROUTER_GPU_GB"] = f"{size:.0f}"
    elif not sglang_problem(device):
        told |= {"TROUPE_ROUTER_GPUS": "1", f"{PREFIX}DEVICE": "cpu"}
        told[f"{PREFIX}MAX_TOTAL_TOKENS"] = "8192"
    return told


def document(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The spec of the job."""
    if args.quick:
        return tiny_document(tiny_base(folder), args.tasks)
    return example_document(args.example, args)


def example_document(example: str, args: argparse.Namespace) -> dict[str, Any]:
    """The spec of an example with the given model, steps and held-out tasks."""
    found = yaml.safe_load((ROOT / "examples" / f"{example}.yaml").read_text("utf-8"))
    more: dict[str, Any] = {"model": args.model, "dtype": "bfloat16"}
    if has_thinking(args.model):
        more["chat_template_kwargs"] = {"enable_thinking": False}
    for policy in found["policies"].values():
        policy |= more
    evaluated = {"num_tasks": args.tasks, "split": "test"}
    limits = {"startup_timeout_s": 1800, "generate_timeout_s": 900, "step_timeout_s": 7200}
    return found | {
        "name": f"suite-{example}".replace("_", "-"),
        "steps": args.steps,
        "eval": evaluated,
        "limits": limits | found.get("limits", {}),
    }


def has_thinking(model: str) -> bool:
    """Whether the model's chat template can switch its thinking off; a hub id is asked for it."""
    from transformers import AutoTokenizer

    template = AutoTokenizer.from_pretrained(model).chat_template
    return "enable_thinking" in json.dumps(template)


def tiny_base(folder: Path) -> Path:
    """A base model of seconds, for trying the part without a GPU."""
    made = folder / "tiny"
    if not (made / "config.json").is_file():
        options = [text for key, value in TINY.items() for text in (key, json.dumps(value))]
        command = [sys.executable, "-m", "troupe_trainer.tiny_model", "--task", "plan_path"]
        command += ["--size", "4", "--seed", "1", *options, "--out", str(made)]
        subprocess.run(command, check=True, timeout=600, stdout=subprocess.DEVNULL)
    return made


def tiny_document(base: Path, tasks: int) -> dict[str, Any]:
    """Two steps of AT-GRPO on 4x4 grids."""
    train = {"kind": "lora", "rank": 4, "alpha": 8}
    policy = {"model": str(base), "dtype": "float32", "train": train}
    return {
        "name": "suite-tiny",
        "steps": 2,
        "tasks_per_step": 4,
        "task": {"name": "plan_path", "params": {"size": 4, "max_actions": 3}},
        "workflow": {"order": ["tool", "planner"], "max_turns": 3},
        "agents": {"tool": {"policy": "shared"}, "planner": {"policy": "shared"}},
        "policies": {"shared": policy | {"optimizer": {"learning_rate": 1e-3}}},
        "algorithm": {"kind": "at_grpo", "group_size": 4},
        "sampling": {"max_new_tokens": 6},
        "eval": {"num_tasks": tasks},
        "limits": {"startup_timeout_s": 600, "generate_timeout_s": 240},
    }


def run_of(runs: Path, name: str) -> Path | None:
    """The newest run folder of the job."""
    found = list(runs.glob(f"{name}-[0-9]*"))
    return max(found, key=lambda path: int(path.name.rsplit("-", 1)[1]), default=None)


def train(
    args: argparse.Namespace, folder: Path, wanted: dict[str, Any]
) -> tuple[int, Path | None, float]:
    """Run the job, or go on with it; its exit status, run folder and seconds."""
    runs, spec = folder / "runs", folder / "team.yaml"
    before = run_of(runs, wanted["name"])
    goes_on = before is not None and not args.anew and spec.is_file()
    if goes_on and yaml.safe_load(spec.read_text("utf-8")) != wanted:
        print("the options differ from those of the run that is there: a new one is begun")
        goes_on = False
    spec.write_text(yaml.safe_dump(wanted, sort_keys=False), encoding="utf-8")
    where = ["--resume", str(before)] if goes_on else [str(spec), "--runs-dir", str(runs)]
    command = [sys.executable, "-m", "troupe.cli", "train", *where, "--ports", "auto"]
    began = time.monotonic()
    with subprocess.Popen(command, env=environment_of(args.device), cwd=ROOT) as child:
        try:
            status = child.wait(timeout=max(1.0, args.seconds - END_WITHIN_S))
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGTERM)
            try:
                status = child.wait(timeout=END_WITHIN_S)
            except subprocess.TimeoutExpired:
                child.kill()
                raise
    return status, run_of(runs, wanted["name"]), time.monotonic() - began


def measure(args: argparse.Namespace, wanted: dict[str, Any] | None = None) -> dict[str, Any]:
    """Train ``wanted`` (the example's job), then what it changed on held-out tasks."""
    if not (args.model or args.quick):
        return {"skipped": "give --model: a folder or hub id, such as Qwen3-1.7B", "goals": []}
    if args.device == "cuda" and (problem := sglang_problem(args.device)):
        return {"skipped": problem, "goals": []}
    args.folder.mkdir(parents=True, exist_ok=True)
    wanted = wanted or document(args, args.folder)
    status, run, seconds = train(args, args.folder, wanted)
    if run is None:
        raise SystemExit(f"troupe train ended with {status} and left no run folder")
    command = [sys.executable, "-m", "benchmarks.real_model", str(run)]
    read = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    line = last_line(read.stdout)
    rows = line.get("rows", [])
    figures = {"run": os.path.relpath(run, ROOT), "train_s": round(seconds), "rows": rows}
    if status or len(rows) < 2:
        steps = sum(1 for _ in (run / "groups.jsonl").open()) if _learnt(run) else 0
        why = f"not ended: {steps} steps are learnt; the same command goes on (exit {status})"
        return figures | {"unfinished": why, "goals": []}
    change = line["change_of_return"]
    gained = round(rows[-1]["success"][0] - rows[0]["success"][0], 4)
    return figures | {
        "change_of_return": change,
        "goals": [
            goal("success, trained less base", gained, 0.0, gained > 0),
            goal("lower end of the change of return", change[1], 0.0, change[1] > 0),
        ],
    }


def _learnt(run: Path) -> bool:
    return (run / "groups.jsonl").is_file()


def main() -> None:
    """Read the options and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--model", default="")
    parser.add_argument("--example", default="math", help="of examples/, one that names a GPU")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--tasks", type=int, default=100, help="held-out tasks")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "gpu_suite" / "team")
    parser.add_argument("--anew", action="store_true", help="do not go on with a run that is there")
    parser.add_argument("--quick", action="store_true")
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
