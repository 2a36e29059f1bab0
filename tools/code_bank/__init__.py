"""Problems written by this project; ``tools.code_bank.build`` turns them into builtin.jsonl."""

from tools.code_bank import grids, lists, numbers, records, sequences, strings, words
from tools.code_bank.draft import Draft

DRAFTS: tuple[Draft, ...] = (
    *numbers.DRAFTS,
    *sequences.DRAFTS,
    *words.DRAFTS,
    *grids.DRAFTS,
    *lists.DRAFTS,
    *strings.DRAFTS,
    *records.DRAFTS,
)

__all__ = ["DRAFTS", "Draft"]
