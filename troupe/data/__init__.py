"""Published data sets: reads them, converts them to a task's rows, and prepares files."""

from troupe.data.dataset import Dataset, RefusedRowError
from troupe.data.prepared import PreparedRows, SplitRows
from troupe.data.rows import read_rows

__all__ = ["Dataset", "PreparedRows", "RefusedRowError", "SplitRows", "read_rows"]
