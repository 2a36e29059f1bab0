"""Run folders of small random teams, and `troupe serve` on them as a process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from benchmarks.random_model import save_random_model
from troupe.training.task import TASK_NAME

INSTRUCTIONS = {"short": "w1 w2", "long": "w3 w4 w5"}
ROWS = {
    "socket": "/nowhere.sock",
    "agents": INSTRUCTIONS,
    "num_train": 9,
    "num_held_out": 1,
    "digest": "0" * 64,
}
PAIR: dict[str, Any] = {"name": TASK_NAME, "params": ROWS}
LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def write_team(
    folder: Path,
    *,
    task: Mapping[str, Any] = PAIR,
    agents: tuple[str, ...] = ("short", "long"),
    max_turns: int = 1,
    max_new_tokens: int = 8,
    hidden: int = 64,
) -> Path:
    """The run folder of a job ``pair``: an adapter with random weights for each agent."""
    base = save_random_model(folder.parent / "base", hidden=hidden)
    for number, agent in enumerate(agents):
        write_adapter(base, folder / "policies" / agent / "adapter", seed=number + 1)
    document = {
        "name": "pair",
        "steps": 1,
        "task": dict(task),
        "workflow": {"order": list(agents), "max_turns": max_turns},
        "agents": {name: {"policy": name} for name in agents},
        "policies": {name: {"model": str(base)} for name in agents},
        "sampling": {"max_new_tokens": max_new_tokens},
        "eval": {"num_tasks": 1, "sampling": {"temperature": 0.0}},
    }
    (folder / "spec.json").write_text(json.dumps(document))
    (folder / "summary.json").write_text(json.dumps({"job_id": folder.name, "state": "succeeded"}))
    return folder


def write_adapter(base: Path, target: Path, *, seed: int) -> None:
    """A LoRA that changes what the random model says."""
    torch.manual_seed(seed)
    config = LoraConfig(r=4, lora_alpha=8, target_modules=LAYERS, init_lora_weights=False)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    model.save_pretrained(target)


@dataclass(frozen=True)
class Served:
    """A running `troupe serve`."""

    url: str
    process: "subprocess.Popen[str]"

    def post(self, body: Mapping[str, Any], **more: Any) -> httpx.Response:
        """A chat completion."""
        return httpx.post(
            f"{self.url}/chat/completions", json=dict(body), timeout=60, trust_env=False, **more
        )

    def get(self, path: str, **more: Any) -> httpx.Response:
        """A path beside /v1."""
        root = self.url.removesuffix("/v1")
        return httpx.get(root + path, timeout=60, trust_env=False, **more)


def asked(model: str, text: str, **more: Any) -> dict[str, Any]:
    """A body with one message of the user."""
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


@contextmanager
def serving(
    team: Path, *flags: str, engine: Mapping[str, str] | None = None, **settings: str
) -> Iterator[Served]:
    """`troupe serve` on a free port; ``settings`` are TROUPE_SERVE_*, ``engine`` any variables."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_")}
    environment |= {f"TROUPE_SERVE_{name.upper()}": value for name, value in settings.items()}
    environment |= engine or {}
    log = (team.parent / "serve.log").open("w+")
    process = subprocess.Popen(
        [sys.executable, "-m", "troupe.cli", "serve", str(team), "--port", "0", *flags],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()  # ends with the process, if that does not start
        assert "models:" in line, Path(log.name).read_text()
        yield Served(line.split()[0], process)
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()
        log.close()
