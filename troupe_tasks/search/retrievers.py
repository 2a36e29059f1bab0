"""Where pages come from: the worlds made here, an index of a folder of files, or a server.

A retriever is a function of the query: equal queries give equal pages on every machine that has the
same corpus, so that a step is pure. A page is opened by asking again.
"""

import importlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from troupe.errors import InvalidArgumentError, NotFoundError
from troupe_tasks.search.bm25 import MAX_QUERY_WORDS, Bm25, Document, words

MAX_LINE_CHARS = 1_000_000


class Retriever(Protocol):
    """Finds pages for a query."""

    def search(self, query: str, limit: int) -> Sequence[Document]:
        """The best pages, the best first."""
        ...


class IndexedDocuments:
    """Documents in memory with their BM25 index."""

    def __init__(self, documents: Sequence[Document], index: Bm25 | None = None) -> None:
        self._documents = documents
        self._index = index or Bm25(documents)

    def search(self, query: str, limit: int) -> Sequence[Document]:
        """The best documents."""
        return [self._documents[number] for number in self._index.search(query, limit)]


class TantivyDocuments:
    """Documents of a file in a tantivy index: for millions of them.

    The index lies in memory; ties go to the first document, as in ``Bm25``.
    """

    def __init__(self, documents: Sequence[Document]) -> None:
        try:
            tantivy: Any = importlib.import_module("tantivy")
        except ImportError as error:
            raise InvalidArgumentError(
                "the retriever 'tantivy' needs the package: pip install tantivy",
                pointer="/task/params/retriever",
            ) from error
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("body", stored=False)
        builder.add_integer_field("number", stored=True)
        self._documents = documents
        self._index = tantivy.Index(builder.build())
        writer = self._index.writer(num_threads=1)
        for number, document in enumerate(documents):
            body = f"{document.title} {document.text}"
            writer.add_document(tantivy.Document(body=body, number=number))
        writer.commit()
        writer.wait_merging_threads()
        self._index.reload()
        self._searcher = self._index.searcher()

    def search(self, query: str, limit: int) -> Sequence[Document]:
        """The best documents; the agent's text is only ever words, never query syntax."""
        asked = list(dict.fromkeys(words(query)))[:MAX_QUERY_WORDS]
        if not asked:
            return []
        parsed = self._index.parse_query(" ".join(f'"{word}"' for word in asked), ["body"])
        hits = self._searcher.search(parsed, 2 * limit).hits
        ranked = sorted(
            (-round(score, 5), self._searcher.doc(address)["number"][0]) for score, address in hits
        )
        return [self._documents[number] for _, number in ranked[:limit]]


@lru_cache(maxsize=2)
def corpus_documents(path: Path) -> tuple[Document, ...]:
    r"""Search-R1's corpus file: a JSON line for each page, ``{"id", "contents":
    "\"Title\"\ntext"}``.

    Raises NotFoundError without the file, InvalidArgumentError for a line that is no page.
    """
    if not path.is_file():
        raise NotFoundError(f"{path} is no corpus file; give the parameter 'corpus' a JSONL file")
    found: list[Document] = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                contents = json.loads(line[:MAX_LINE_CHARS])["contents"]
                found.append(document_of(str(contents)))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise InvalidArgumentError(
                    f'{path}, line {number}: not a page with "contents" ({type(error).__name__})'
                ) from error
    return tuple(found)


def document_of(contents: str) -> Document:
    r"""A page of Search-R1's form: the quoted title, a line break, the text."""
    title, _, text = contents.partition("\n")
    return Document(title.strip().strip('"')[:200], text.strip())
