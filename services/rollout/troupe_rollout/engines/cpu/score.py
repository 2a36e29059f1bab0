"""Log-probabilities of given tokens: the canary that proves which weights serve."""

from typing import Any

import torch

from troupe_rollout.engines.cpu.pool import COLUMN_BLOCK, round_up


def score_tokens(module: Any, token_ids: list[int]) -> list[float]:
    """Natural log of p(token i + 1 | tokens 0..i) for every i, temperature 1."""
    padded = round_up(len(token_ids), COLUMN_BLOCK)
    ids = torch.tensor([[*token_ids, *[0] * (padded - len(token_ids))]], device=module.device)
    with torch.inference_mode():
        logits_TV = module(input_ids=ids, use_cache=False).logits[0, : len(token_ids) - 1].float()
        targets_T1 = ids[0, 1 : len(token_ids), None]
        scored: list[float] = torch.log_softmax(logits_TV, -1).gather(1, targets_T1)[:, 0].tolist()
    return scored
