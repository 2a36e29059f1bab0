"""Run folders of finished jobs with small invented weights, for publishing and reports."""

import json
from pathlib import Path
from typing import Any

from troupe.evaluation.bare import write_zeros
from troupe.training.task import TASK_NAME

INSTRUCTION = "Sum up in one line."
ECHO_TASK = """
from troupe import SimpleTask


class Echo(SimpleTask):
    agents = ("planner", "tool")

    def draw(self, rng):
        return rng.random()

    def request(self, text):
        return text

    def observe(self, state, agent):
        return state

    def step(self, state, agent, text):
        return self.transition(state, 1.0, done=True)
"""
"""A task that takes requests, for the agents of `write_run`."""


def write_run(folder: Path, *, is_full: bool = False, has_rows: bool = False) -> Path:
    """A job `pair` with agents tool and planner, a policy each, on the model folder ``base``."""
    base = write_model(folder.parent / "base")
    policies = ("planner", "tool")
    document = spec_document(str(base), is_full=is_full, has_rows=has_rows)
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps(document))
    (folder / "summary.json").write_text(json.dumps(summary(folder)))
    for index, name in enumerate(policies):
        if is_full:
            write_model(folder / "policies" / name / "merged", size=8 + index)
        else:
            write_adapter(folder / "policies" / name / "adapter", base=str(base), rank=2 + index)
            write_model(folder / "policies" / name / "merged")
    return folder


def spec_document(
    model: str, *, is_full: bool = False, has_rows: bool = False, names: Any = ("planner", "tool")
) -> dict[str, Any]:
    """The spec of such a job."""
    train: dict[str, Any] = {"kind": "full"} if is_full else {"kind": "lora", "rank": 2, "alpha": 4}
    task: dict[str, Any] = {"name": "plan_path", "params": {"size": 4}}
    if has_rows:
        params = {
            "socket": "/run/user/0/judge.sock",
            "agents": dict.fromkeys(names, INSTRUCTION),
            "num_train": 9,
            "num_held_out": 1,
            "digest": "0" * 64,
        }
        task = {"name": TASK_NAME, "params": params}
    return {
        "name": "pair",
        "steps": 2,
        "task": task,
        "workflow": {"order": ["tool", "planner"], "max_turns": 3},
        "agents": {name: {"policy": name} for name in names},
        "policies": {name: {"model": model, "train": train} for name in names},
        "sampling": {"temperature": 0.7, "max_new_tokens": 6},
        "eval": {"num_tasks": 4, "sampling": {"temperature": 0.0}},
        "trackers": [{"kind": "mlflow", "options": {"tracking_uri": "http://inside.example"}}],
    }


def summary(folder: Path) -> dict[str, Any]:
    """What a job writes at its end, as far as publishing reads it."""
    return {"job_id": folder.name, "state": "succeeded", "commit": "c" * 40}


def write_adapter(folder: Path, *, base: str, rank: int) -> Path:
    """A PEFT adapter of zeros, with the card that peft writes beside it."""
    folder.mkdir(parents=True)
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": 2 * rank,
        "target_modules": ["q_proj"],
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    layer = "base_model.model.model.layers.0.self_attn.q_proj"
    shapes = {f"{layer}.lora_A.weight": (rank, 8), f"{layer}.lora_B.weight": (8, rank)}
    write_zeros(folder / "adapter_model.safetensors", shapes)
    (folder / "README.md").write_text(f"---\nbase_model: {base}\n---\n[More Information Needed]\n")
    return folder


def write_model(folder: Path, *, size: int = 8) -> Path:
    """A model folder without a model's meaning."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": size}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    write_zeros(folder / "model.safetensors", {"model.layers.0.self_attn.q_proj.weight": (8, size)})
    return folder


HOSTILE_TEXTS = (
    "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">",
    "</pre></details><style>body{display:none}</style><meta http-equiv=refresh content=0>",
    "\x1b[2J\x1b]0;owned\x07 \u202etxt.exe\u2066 \ufeff\x00",
    "A" * 1_000_000,
)
"""What an agent may write to break a page."""


def write_metrics(run: Path) -> None:
    """Two training steps between two evaluations, with hostile answers."""
    lines = [
        {"kind": "eval", "step": 0, "success": 0.25, "num_tasks": 4, **_brought(0.1)},
        *(_train_line(step) for step in range(2)),
        {"kind": "eval", "step": 2, "success": 0.75, "num_tasks": 4, **_brought(0.6)},
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    episodes = [
        _episode_line(kind, step, index)
        for kind, step in (("eval", 0), ("train", 0), ("train", 1), ("eval", 2))
        for index in range(4)
    ]
    (run / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in episodes))


def _brought(reward: float) -> dict[str, Any]:
    return {"reward_mean": reward, "reward_by_agent": {"tool": reward, "planner": reward}}


def without_episode_rewards(run: Path) -> None:
    """Make the evaluations' lines those of 0.1.0, whose ``reward_mean`` is over acts."""
    lines = [json.loads(text) for text in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        if line["kind"] == "eval":
            del line["reward_by_agent"]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _train_line(step: int) -> dict[str, Any]:
    return {
        "kind": "train",
        "step": step,
        "success_rate": 0.5,
        "reward_by_agent": {"tool": 0.1 * step, "planner": 0.4},
        "phases": {"generate": 1.0, "env": 0.1, "learn": 0.5},
        "wall_s": 1.7,
        "num_tokens": 120,
        "trained_tokens": 60,
        "groups_trained": 5,
        "groups_zero_variance": 3,
        "peak_memory_bytes": 450_052_096,
    }


def _episode_line(kind: str, step: int, index: int) -> dict[str, Any]:
    round_id = f"{kind}-{step:05d}"
    candidates = [
        {
            "text": HOSTILE_TEXTS[(index + place) % len(HOSTILE_TEXTS)],
            "reward": index / 4 - place,
            "team_reward": 0.0,
            "local_rewards": {"format": 1.0},
            "is_chosen": place == 0,
        }
        for place in range(1 if kind == "eval" else 2)
    ]
    group = {
        "group_id": f"pair-1/{round_id}/{index:05d}/tool/t00",
        "agent": "tool",
        "turn": 0,
        "policy": "tool",
        "policy_version": step,
        "prompt": [{"role": "user", "content": f"grid {index} {HOSTILE_TEXTS[0]}"}],
        "candidates": candidates,
    }
    return {
        "episode_id": f"pair-1/{round_id}/{index:05d}",
        "round_id": round_id,
        "kind": kind,
        "step": step,
        "task_id": f"plan_path/{'test' if kind == 'eval' else 'train'}/{index}",
        "is_success": index >= 2,
        "num_turns": 1,
        "groups": [group],
    }
