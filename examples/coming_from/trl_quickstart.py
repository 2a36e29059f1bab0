"""TRL's GRPO quickstart with Troupe: one agent that solves problems of mathematics."""

from math_verify import parse, verify

import troupe

AS_TRL = {"group_size": 8, "tasks_per_step": 1, "learning_rate": 1e-6, "lora_rank": None}


def accuracy(row, texts):
    """1 for the solution of the row, else 0."""
    gold, answer = (parse(t, parsing_timeout=None) for t in (row["solution"], texts["assistant"]))
    return float(verify(gold, answer, timeout_seconds=None))


def train(dataset, model="Qwen/Qwen2.5-0.5B-Instruct", **settings):
    """Train the agent."""
    options = {"success": 1.0, "steps": 1000, "max_new_tokens": 512} | AS_TRL | settings
    return troupe.train(["assistant"], dataset, accuracy, model=model, **options)


if __name__ == "__main__":
    from datasets import load_dataset

    train(load_dataset("trl-lib/DeepMath-103K", split="train")).plot().savefig("curve.png")
