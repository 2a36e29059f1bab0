"""Preallocated keys and values for the rows that are decoded together.

Owns the memory and its layout: (rows, heads, columns, head size) for each layer, one row a
candidate, a column a position. Knows nothing of requests or sampling.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

COLUMN_BLOCK = 32
"""Columns are used in multiples of this, so that a row's sums do not depend on its neighbours."""


def round_up(value: int, block: int) -> int:
    """The smallest multiple of ``block`` that is at least ``value``."""
    return -(-value // block) * block


class _Layer(CacheLayerMixin):
    """One layer: ``update`` writes one column a row and returns the columns in use."""

    def __init__(self, rows: int, columns: int, like: Tensor, like_values: Tensor) -> None:
        super().__init__()
        self.keys: Any = like.new_zeros(rows, like.shape[1], columns, like.shape[3])
        self.values: Any = like_values.new_zeros(
            rows, like_values.shape[1], columns, like_values.shape[3]
        )
        self.is_initialized = True
        self.num_rows = 0
        self.num_columns = 0
        self.row_index = torch.empty(0, dtype=torch.long)
        self.position = torch.empty(0, dtype=torch.long)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: the memory is allocated at the start."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        self.keys[self.row_index, :, self.position] = key_states[:, :, 0]
        self.values[self.row_index, :, self.position] = value_states[:, :, 0]
        rows, columns = self.num_rows, self.num_columns
        return self.keys[:rows, :, :columns], self.values[:rows, :, :columns]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.num_columns, 0

    def get_seq_length(self) -> int:
        return self.num_columns

    def get_max_length(self) -> int:
        return self.keys.shape[2]


class KvPool:
    """Rows of keys and values. Row numbers are the caller's to give out."""

    def __init__(self) -> None:
        self.rows = 0
        self.columns = 0
        self.cache: Cache | None = None
        self._layers: list[_Layer] = []

    def reserve(self, rows: int, columns: int, like: Cache) -> None:
        """Room for ``rows`` of ``columns``, shaped as ``like``; what is stored in them is kept.

        New memory has no more rows than that, and replaces the old one layer by layer.
        """
        if rows <= self.rows and columns <= self.columns:
            return
        columns, kept = max(columns, self.columns), min(rows, self.rows)
        self.cache = None  # it holds the old layers
        for number, (keys, values) in enumerate(_tensors(like.layers)):
            layer = _Layer(rows, columns, keys, values)
            if kept:
                layer.keys[:kept, :, : self.columns] = self._layers[number].keys[:kept]
                layer.values[:kept, :, : self.columns] = self._layers[number].values[:kept]
            self._layers[number : number + 1] = [layer]
        self.rows, self.columns = rows, columns
        self.cache = Cache(layers=list[Any](self._layers))

    def write(
        self, first_row: int, count: int, prompt: DynamicCache, index: int, length: int
    ) -> None:
        """Copy prompt ``index`` of a prefill, ``length`` columns, into ``count`` rows."""
        rows = slice(first_row, first_row + count)
        for layer, (keys, values) in zip(self._layers, _tensors(prompt.layers), strict=True):
            layer.keys[rows, :, :length] = keys[index, None, :, :length]
            layer.values[rows, :, :length] = values[index, None, :, :length]

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first ``length`` columns of one row over another."""
        for layer in self._layers:
            layer.keys[target, :, :length] = layer.keys[source, :, :length]
            layer.values[target, :, :length] = layer.values[source, :, :length]

    def take(self, other: "KvPool", source: int, target: int, length: int) -> None:
        """Copy the first ``length`` columns of another pool's row."""
        for layer, theirs in zip(self._layers, other._layers, strict=True):
            layer.keys[target, :, :length] = theirs.keys[source, :, :length]
            layer.values[target, :, :length] = theirs.values[source, :, :length]

    def bind(self, row_index: Tensor, position: Tensor, columns: int) -> Cache:
        """The cache for one decoding pass: each row writes its column ``position``."""
        for layer in self._layers:
            layer.row_index, layer.position = row_index, position
            layer.num_rows, layer.num_columns = len(row_index), columns
        assert self.cache is not None
        return self.cache


def _tensors(layers: Sequence[Any]) -> list[tuple[Tensor, Tensor]]:
    return [(layer.keys, layer.values) for layer in layers]
