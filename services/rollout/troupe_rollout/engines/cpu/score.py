"""Log-probabilities of given tokens: the canary that proves which weights serve, and a teacher's.

Shape suffixes: R rows, T tokens of a completion, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import torch

from troupe.tasks.content import ImagePart
from troupe.vision.model import VisionModel
from troupe_rollout.engines.cpu.images import ImagePrompts
from troupe_rollout.engines.cpu.pool import COLUMN_BLOCK, round_up

LOGITS = 1 << 26
"""Logits of completions that exist at once, in 256 MiB."""


def score_tokens(
    module: Any,
    token_ids: Sequence[int],
    images: Sequence[ImagePart] = (),
    vision: VisionModel | None = None,
) -> list[float]:
    """Natural log of p(token i + 1 | tokens 0..i) for every i, temperature 1.

    A vision-language model (``vision``) reads the tokens as a prompt; its placeholders have 0.
    """
    num_tokens = len(token_ids)
    padded = round_up(num_tokens, COLUMN_BLOCK)
    with torch.inference_mode():
        if vision is None:
            row = torch.tensor([[*token_ids, *[0] * (padded - num_tokens)]], device=module.device)
            logits_TV = module(input_ids=row, use_cache=False).logits[0, : num_tokens - 1]
        else:
            kept = torch.arange(num_tokens - 1, device=module.device)
            prompts = ImagePrompts(module, vision)
            logits_TV = prompts.prefill([(token_ids, images)], padded, kept)[0][0]
        targets_T = torch.tensor(token_ids[1:], device=module.device)
        scores_T = torch.log_softmax(logits_TV.float(), -1).gather(1, targets_T[:, None])[:, 0]
        if vision is not None:
            scores_T[targets_T == vision.image_token_id] = 0.0
        scored: list[float] = scores_T.tolist()
    return scored


def score_completions(
    module: Any, prompt: Sequence[int], completions: Sequence[Sequence[int]]
) -> list[list[float]]:
    """Natural log of p(token | prompt, the completion's tokens before it), temperature 1.

    Completions are computed side by side, as many as ``LOGITS`` allows, each with its prompt.
    """
    longest = max(map(len, completions))
    vocabulary = int(module.get_output_embeddings().weight.shape[0])
    rows = max(1, LOGITS // (longest * vocabulary))
    scored: list[list[float]] = []
    with torch.inference_mode():
        for first in range(0, len(completions), rows):
            scored += _side_by_side(module, prompt, completions[first : first + rows])
    return scored


def _side_by_side(
    module: Any, prompt: Sequence[int], completions: Sequence[Sequence[int]]
) -> list[list[float]]:
    longest, device = max(map(len, completions)), module.device
    padded = round_up(len(prompt) + longest, COLUMN_BLOCK)
    rows = [[*prompt, *ids, *[0] * (padded - len(prompt) - len(ids))] for ids in completions]
    predictors_T = torch.arange(len(prompt) - 1, len(prompt) - 1 + longest, device=device)
    logits_RTV = module(
        input_ids=torch.tensor(rows, device=device), use_cache=False, logits_to_keep=predictors_T
    ).logits
    targets_RT = torch.tensor([row[len(prompt) : len(prompt) + longest] for row in rows])
    table_RTV = torch.log_softmax(logits_RTV.float(), -1)
    scores_RT = table_RTV.gather(2, targets_RT.to(device)[:, :, None])[:, :, 0]
    return [scores[: len(ids)] for scores, ids in zip(scores_RT.tolist(), completions, strict=True)]
