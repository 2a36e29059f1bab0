"""One run of a peer, in the peers' own environment: ``peer_run.py LIB MODEL PLAN``.

Imports nothing of Troupe. PLAN is JSON: prompts, k, tokens, prompts_per_step, steps, warm_up, rate.
Prints one JSON line: the CPU seconds and sequences between two equal points of the training loop.
"""

import json
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch

warnings.simplefilter("ignore")


def reward_of(text: str) -> float:
    """Share of the letter e."""
    return text.count("e") / max(1, len(text))


def peak_mb() -> float:
    """Peak resident memory. ``ru_maxrss`` begins with that of the process that started this one."""
    [line] = [at for at in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in at]
    return int(line.split()[1]) / 1024


class Meter:
    """Notes CPU and wall time whenever rewards are asked for."""

    def __init__(self) -> None:
        self.marks: list[tuple[int, float, float]] = []
        self.count = 0
        self.texts: list[str] = []

    def rewards(self, texts: list[str]) -> list[float]:
        """Share of the letter e, and a mark before these sequences count."""
        self.marks.append((self.count, time.process_time(), time.perf_counter()))
        self.count += len(texts)
        self.texts += texts
        return [reward_of(text) for text in texts]

    def tokens(self, model: str, first: int, last: int, longest: int) -> int:
        """Tokens of the sequences from ``first`` to ``last``, counted from their texts.

        A text may be split otherwise than it was sampled, but none has more than ``longest``.
        """
        from transformers import AutoTokenizer

        lists = AutoTokenizer.from_pretrained(model)(self.texts[first:last])["input_ids"]
        return sum(min(len(tokens), longest) for tokens in lists)

    def rewards_of(self, step: int) -> list[float]:
        """Mean reward of each ``step`` sequences."""
        parts = [self.texts[at : at + step] for at in range(0, len(self.texts), step)]
        return [sum(map(reward_of, part)) / len(part) for part in parts]

    def between(self, first: int, last: int) -> dict[str, float]:
        """From the mark at which ``first`` sequences were judged to that of ``last``."""
        at = {count: (cpu, wall) for count, cpu, wall in self.marks}
        (cpu_0, wall_0), (cpu_1, wall_1) = at[first], at[last]
        return {"sequences": last - first, "cpu_s": cpu_1 - cpu_0, "wall_s": wall_1 - wall_0}


def comlrl(kind: str, model: str, plan: dict[str, Any], meter: Meter) -> None:
    """MAGRPO or IAC with one agent."""
    from datasets import Dataset
    from transformers import AutoTokenizer

    common = {
        "num_agents": 1,
        "num_turns": 1,
        "num_train_epochs": 1,
        "num_generations": plan["k"],
        "max_new_tokens": plan["tokens"],
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "agent_learning_rate": plan["rate"],
        "rollout_buffer_size": plan["prompts_per_step"],
        "train_batch_size": plan["prompts_per_step"],
        "early_termination_threshold": None,
        "eval_interval": 0,
        "logging_steps": 10**9,
    }
    options: dict[str, Any] = {
        "agent_model": model,
        "tokenizer": AutoTokenizer.from_pretrained(model),
        "train_dataset": Dataset.from_dict({"prompt": plan["prompts"]}),
        "reward_func": lambda texts: meter.rewards(list(texts)),
    }
    if kind == "magrpo":
        from comlrl.trainers.reinforce import MAGRPOConfig, MAGRPOTrainer

        trainer = MAGRPOTrainer(**options, num_agents=1, args=MAGRPOConfig(**common))
    else:
        from comlrl.trainers.actor_critic import IACConfig, IACTrainer

        trainer = IACTrainer(**options, critic_model=model, args=IACConfig(**common))
    trainer.train()


def trl(model: str, plan: dict[str, Any], meter: Meter) -> None:
    """GRPO."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    def reward(completions: list[str], **_: Any) -> list[float]:
        return meter.rewards(completions)

    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=plan["k"] * plan["prompts_per_step"],
            num_generations=plan["k"],
            max_completion_length=plan["tokens"],
            learning_rate=plan["rate"],
            lr_scheduler_type="constant",  # as the others'
            max_steps=plan["steps"],
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            beta=0.0,
            use_cpu=True,
            bf16=False,
            report_to=[],
            save_strategy="no",
            logging_steps=10**9,
            disable_tqdm=True,
            gradient_checkpointing=False,
        )
        GRPOTrainer(
            model=model,
            reward_funcs=reward,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": plan["prompts"]}),
            processing_class=AutoTokenizer.from_pretrained(model),
        ).train()


def main() -> None:
    """Run and print."""
    name, model, plan_json = sys.argv[1:]
    plan = json.loads(plan_json)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    meter = Meter()
    if name == "trl_grpo":
        trl(model, plan, meter)
    else:
        comlrl(name.partition("_")[2], model, plan, meter)
    step = plan["k"] * plan["prompts_per_step"]
    first, last = plan["warm_up"] * step, (plan["steps"] - 1) * step
    figures = meter.between(first, last)
    more = {"peak_mb": peak_mb(), "rewards": meter.rewards_of(step)}
    tokens = meter.tokens(model, first, last, plan["tokens"])
    print(json.dumps({**figures, **more, "tokens": tokens}))


if __name__ == "__main__":
    main()
