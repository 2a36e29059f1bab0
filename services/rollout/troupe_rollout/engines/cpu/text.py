"""Noticing a stop string while tokens are being drawn."""

from collections.abc import Callable, Sequence

from troupe_rollout.engines.cpu.model import CpuModel


def stop_detector(base: CpuModel, stop: Sequence[str]) -> Callable[[Sequence[int]], bool] | None:
    """Whether the newest tokens contain a stop string; None when there are no stop strings."""
    strings = [text for text in stop if text]
    if not strings:
        return None
    tail = 4 * max(len(text) for text in strings) + 4

    def hits(token_ids: Sequence[int]) -> bool:
        text = base.tokenizer.decode(list(token_ids[-tail:]), skip_special_tokens=True)
        return any(item in text for item in strings)

    return hits
