"""BM25 over a small corpus, equal on every machine: ties go to the first document.

Source: Robertson and Zaragoza 2009, The Probabilistic Relevance Framework, with k1 = 1.2, b = 0.75.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

K1, B = 1.2, 0.75
MAX_QUERY_WORDS = 32

_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Document:
    """One page of a corpus.

    Example: ``Document("Lamoke", "Lamoke is a town on the river Dobu.")``.
    """

    title: str
    text: str


def words(text: str) -> list[str]:
    """Lower-case words of letters and digits."""
    return _WORD.findall(text.lower())


class Bm25:
    """An index of documents; ``search`` gives their numbers, the best first."""

    def __init__(self, documents: Sequence[Document]) -> None:
        pages = [words(f"{document.title} {document.text}") for document in documents]
        mean = sum(map(len, pages)) / max(1, len(pages))
        postings: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        for number, page in enumerate(pages):
            norm = K1 * (1 - B + B * len(page) / mean)
            for word, count in sorted(Counter(page).items()):
                postings[word].append((number, count * (K1 + 1) / (count + norm)))
        self._postings = dict(postings)
        self._size = len(pages)

    def search(self, query: str, limit: int) -> list[int]:
        """Numbers of the best documents; those that share no word are left out."""
        scores: dict[int, float] = {}
        for word in list(dict.fromkeys(words(query)))[:MAX_QUERY_WORDS]:
            found = self._postings.get(word, [])
            weight = math.log(1 + (self._size - len(found) + 0.5) / (len(found) + 0.5))
            for number, share in found:
                scores[number] = scores.get(number, 0.0) + weight * share
        ranked = sorted(scores.items(), key=lambda item: (-round(item[1], 9), item[0]))
        return [number for number, _ in ranked[:limit]]
