"""Imitation of noisy demonstrations, until the model is mediocre.

Tensor shapes: B demonstrations, T tokens, S = T - 1 predictions, D width, N learnt tokens,
V vocabulary.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR

from troupe.vision.layout import position_ids
from troupe.vision.model import VisionModel
from troupe.vision.patches import patches_of
from troupe_trainer.tiny_model.demonstrations import TokenDemonstration
from troupe_trainer.tiny_model.recipe import WarmStart

Progress = Callable[[int, int, float], None]
"""Called with (steps done, steps in all, present loss)."""

_IGNORED = -100


def imitate(
    model: Any,
    samples: Iterator[TokenDemonstration],
    recipe: WarmStart,
    progress: Progress,
    vision: VisionModel | None = None,
) -> None:
    """Train ``model`` in place on the completions of ``samples``, in their order."""
    optimizers = _optimizers(model, recipe)
    schedules = [LambdaLR(optimizer, lambda step: _rate(step, recipe)) for optimizer in optimizers]
    model.train()
    for step in range(recipe.num_steps):
        batch = list(islice(samples, recipe.batch_size))
        tokens_BT, labels_BT = _batch(batch)
        seen = {} if vision is None else _seen(batch, tokens_BT.shape[1], vision)
        loss = _loss(model, tokens_BT, labels_BT, seen)
        model.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
        progress(step + 1, recipe.num_steps, loss.item())
    model.eval()


def _loss(
    model: Any, tokens_BT: torch.Tensor, labels_BT: torch.Tensor, seen: dict[str, torch.Tensor]
) -> torch.Tensor:
    """Mean cross-entropy of the completion tokens."""
    hidden_BTD = model.model(input_ids=tokens_BT, use_cache=False, **seen).last_hidden_state
    labels_BS = labels_BT[:, 1:]
    is_learnt_BS = labels_BS != _IGNORED
    logits_NV = model.lm_head(hidden_BTD[:, :-1][is_learnt_BS])
    return F.cross_entropy(logits_NV, labels_BS[is_learnt_BS])


def _optimizers(model: Any, recipe: WarmStart) -> list[torch.optim.Optimizer]:
    """Muon for the matrices, which needs about two thirds of AdamW's samples; AdamW for the rest.

    Source: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon.
    """
    embeddings = model.get_input_embeddings().weight
    matrices = [p for p in model.parameters() if p.ndim == 2 and p is not embeddings]
    others = [p for p in model.parameters() if p.ndim < 2 or p is embeddings]
    groups: list[dict[str, Any]] = [{"params": others}]
    groups += [
        {"params": [p], "lr": recipe.adam_learning_rate / p[0].numel() ** 0.5}
        for p in model.parameters()
        if p.ndim > 2  # a patch's filters: each sums a thousand pixels, which all push one way
    ]
    return [
        torch.optim.Muon(matrices, lr=recipe.muon_learning_rate, weight_decay=0.0),
        torch.optim.AdamW(
            groups, lr=recipe.adam_learning_rate, betas=(0.9, 0.98), weight_decay=0.0
        ),
    ]


def _rate(step: int, recipe: WarmStart) -> float:
    warmup = min(1.0, (step + 1) / max(1, recipe.num_warmup_steps))
    fall = min(1.0, 2 * (recipe.num_steps - step) / recipe.num_steps)
    return warmup * fall


def _batch(samples: list[TokenDemonstration]) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded tokens and labels (B, T); causal attention never looks at the padding."""
    length = max(len(s.prompt) + len(s.completion) for s in samples)
    tokens, labels = [], []
    for sample in samples:
        padding = length - len(sample.prompt) - len(sample.completion)
        tokens.append([*sample.prompt, *sample.completion, *[0] * padding])
        labels.append([*[_IGNORED] * len(sample.prompt), *sample.completion, *[_IGNORED] * padding])
    return torch.tensor(tokens), torch.tensor(labels)


def _seen(
    samples: list[TokenDemonstration], length: int, vision: VisionModel
) -> dict[str, torch.Tensor]:
    """A vision-language model's inputs beside the tokens: positions, and images in row order."""
    positions_3BT = np.zeros((3, len(samples), length), dtype=np.int64)
    for row, sample in enumerate(samples):
        tokens = [*sample.prompt, *sample.completion]
        positions_3BT[:, row, : len(tokens)] = position_ids(tokens, sample.grids, vision)
    seen = {"position_ids": torch.from_numpy(positions_3BT)}
    if patches := [patches_of(image, vision) for sample in samples for image in sample.images]:
        grids = [(1, *grid) for sample in samples for grid in sample.grids]
        seen["pixel_values"] = torch.from_numpy(np.concatenate(patches))
        seen["image_grid_thw"] = torch.tensor(grids)
    return seen
