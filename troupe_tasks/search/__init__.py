"""Web search over an offline corpus: a searcher finds documents, an answerer reads them."""

from troupe_tasks.search.family import Search, SearchParams

__all__ = ["Search", "SearchParams"]
