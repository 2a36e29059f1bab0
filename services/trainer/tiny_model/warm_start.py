"""Imitation of noisy demonstrations, until the model is mediocre."""

import math
from collections.abc import Callable, Iterator
from itertools import islice

import torch
from torch.nn import functional as F
from transformers import Qwen3ForCausalLM

from services.trainer.tiny_model.demonstrations import Demonstration
from services.trainer.tiny_model.recipe import WarmStart

Progress = Callable[[int, int, float], None]
"""Called with (steps done, steps in all, present loss)."""

_IGNORED = -100


def imitate(
    model: Qwen3ForCausalLM,
    samples: Iterator[Demonstration],
    recipe: WarmStart,
    progress: Progress,
) -> None:
    """Train ``model`` in place on the completions of ``samples``, in their order."""
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=recipe.learning_rate,
        betas=(0.9, 0.98),
        weight_decay=recipe.weight_decay,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, recipe))
    model.train()
    for step in range(recipe.num_steps):
        tokens_BT, labels_BT = _batch(list(islice(samples, recipe.batch_size)))
        logits_BTV = model(input_ids=tokens_BT, use_cache=False).logits
        loss = F.cross_entropy(
            logits_BTV[:, :-1].flatten(0, 1), labels_BT[:, 1:].flatten(), ignore_index=_IGNORED
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        progress(step + 1, recipe.num_steps, loss.item())
    model.eval()


def _rate(step: int, recipe: WarmStart) -> float:
    warmup = min(1.0, (step + 1) / max(1, recipe.num_warmup_steps))
    return warmup * 0.5 * (1 + math.cos(math.pi * step / recipe.num_steps))


def _batch(samples: list[Demonstration]) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded tokens and labels (B, T); causal attention never looks at the padding."""
    length = max(len(s.prompt) + len(s.completion) for s in samples)
    tokens, labels = [], []
    for sample in samples:
        padding = length - len(sample.prompt) - len(sample.completion)
        tokens.append([*sample.prompt, *sample.completion, *[0] * padding])
        labels.append([*[_IGNORED] * len(sample.prompt), *sample.completion, *[_IGNORED] * padding])
    return torch.tensor(tokens), torch.tensor(labels)
