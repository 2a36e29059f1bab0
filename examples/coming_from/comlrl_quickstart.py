"""CoMLRL's README example with Troupe: two agents whose texts differ in length."""

import troupe

AS_COMLRL = {"tasks_per_step": 1, "temperature": 0.6, "learning_rate": 5e-6, "lora_rank": None}


def reward(row, texts):
    """The distance of the ratio of lengths from 3, as in the original."""
    return abs(max(len(texts["b"]), 1) / max(len(texts["a"]), 1) - 3.0)


def train(dataset, model="Qwen/Qwen2.5-0.5B", **settings):
    """Train both agents: 20 times through the 116 rows that are not held out."""
    options = {"steps": 2320, "max_new_tokens": 256} | AS_COMLRL | settings
    return troupe.train(["a", "b"], dataset, reward, model=model, **options)


if __name__ == "__main__":
    from datasets import load_dataset

    rows = load_dataset("trl-lib/tldr", split="train").select(range(128))
    train(rows).plot().savefig("curve.png")
