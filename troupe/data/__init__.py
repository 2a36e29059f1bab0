"""Published data sets: read as published, convert to a task's own rows, prepare files of them."""

from troupe.data.dataset import Dataset, RefusedRowError
from troupe.data.prepared import PreparedRows, SplitRows
from troupe.data.rows import read_rows

__all__ = ["Dataset", "PreparedRows", "RefusedRowError", "SplitRows", "read_rows"]
