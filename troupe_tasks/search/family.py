"""The search task as a task family: its parameters, its tasks and its demonstrations."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from troupe.data.prepared import SplitRows
from troupe.data.taskset import PreparedTaskset, row_of_key
from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Split, Task, Taskset
from troupe.tasks.optional import Policy
from troupe.tasks.splits import DrawnTaskset, split_of_key
from troupe_tasks.search import compact, text
from troupe_tasks.search.bm25 import Document, words
from troupe_tasks.search.environment import RETURN_BOUND, SearchEnvironment, SearchInstance
from troupe_tasks.search.http_retriever import HttpRetriever, SearchServerSettings
from troupe_tasks.search.published import SearchRow
from troupe_tasks.search.questions import KINDS, Question
from troupe_tasks.search.retrievers import (
    IndexedDocuments,
    Retriever,
    TantivyDocuments,
    corpus_documents,
)
from troupe_tasks.search.state import SearchState, decode_state
from troupe_tasks.search.world import JOBS, TRADES, Style, world

MAX_KEPT = 64
KindName = Literal[
    "river_of_firm", "birthplace_of_founder", "employer_of_spouse", "spouse_of_founder",
    "charter_of_birthplace", "river_of_spouses_firm", "older_founder", "count_of_firms",
]  # fmt: skip


class SearchParams(BaseModel):
    """Which questions, over which pages."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(default=0, description="Seed of the question generator.")
    kinds: tuple[KindName, ...] = Field(
        default=get_args(KindName),
        min_length=1,
        description="Kinds of questions: two to four hops.",
    )
    scale: int = Field(default=1, ge=1, le=20, description="Size of a world, times 560 pages.")
    worlds: int = Field(
        default=40, ge=10, le=10_000, description="Worlds in all; each belongs to one split."
    )
    searcher_answers: bool = Field(
        default=False, description="Lets the searcher read and answer: for one that is alone."
    )
    retriever: Literal["bm25", "tantivy", "http"] = Field(
        default="bm25",
        description="http: a server by Search-R1's protocol, named in the env service's settings; "
        "with 'data' only.",
    )
    data: Path | dict[Split, Path] | None = Field(
        default=None, description="Prepared questions instead of the generated ones."
    )
    corpus: Path | None = Field(
        default=None,
        description="Pages for all prepared questions (Search-R1's JSON lines); without it each "
        "question has its own paragraphs.",
    )
    page_chars: int = Field(
        default=8_000,
        ge=600,
        le=50_000,
        description="Characters of a page that are read; what stands behind them is not seen.",
    )
    style: Style = Field(
        default="verbose",
        description="compact: pages of facts and names as syllables, for a tiny model; made-up "
        "worlds only.",
    )

    @model_validator(mode="after")
    def _server_has_questions(self) -> "SearchParams":
        if self.data is None and (self.retriever == "http" or self.corpus is not None):
            raise ValueError("the retriever 'http' and 'corpus' need 'data'")
        if self.data is not None and self.style == "compact":
            raise ValueError("style 'compact' is for made-up worlds; leave it out, or leave 'data'")
        return self


class Search:
    """A searcher finds pages, an answerer reads them and answers a question of several hops.

    Example: ``Search(SearchParams(kinds=("river_of_firm",))).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "search"
    agents: ClassVar[tuple[str, ...]] = text.AGENTS
    Params: ClassVar[type[BaseModel]] = SearchParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = {
        text.SEARCHER: {"finds": 0.25, "opens": 0.25},
        text.ANSWERER: {"leads": 0.3},
    }
    return_bound: ClassVar[float] = RETURN_BOUND
    usual_workflow: ClassVar[Mapping[str, Any]] = {"order": list(agents), "max_turns": 6}

    def __init__(self, params: BaseModel) -> None:
        self._params = SearchParams.model_validate(params.model_dump())
        data = self._params.data
        self._rows = None if data is None else SplitRows(data, SearchRow)
        self._server: HttpRetriever | None = None

    def taskset(self) -> Taskset:
        """The prepared questions, or the generated ones."""
        if self._rows is not None:
            return PreparedTaskset(self._rows, by_key=True)
        return DrawnTaskset(self.name, self._params.seed, self._draw, hint="allow more worlds")

    def environment(self) -> SearchEnvironment:
        """The family's judge."""
        params = self._params
        return SearchEnvironment(
            self._instance,
            searcher_answers=params.searcher_answers,
            style=params.style,
            page_chars=params.page_chars,
        )

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """The next page of the chain by its title; its name as what is missing; the answer."""
        shown = self._shown(state, agent)
        return compact.spelled(shown) if self._params.style == "compact" else shown

    def _shown(self, state: bytes, agent: str) -> str:
        now = decode_state(state)
        found = self._instance(now.key)
        opened = {page.title for page in now.opened}
        rest = [title for title in found.question.support if title not in opened]
        if agent == text.ANSWERER or (self._params.searcher_answers and not rest):
            return f"missing: {rest[0]}" if rest else f"answer: {found.question.answers[0]}"
        title = rest[0] if rest else found.question.support[0]
        results = [page.title for page in found.retriever.search(title, text.PAGE_SIZE)]
        rank = results.index(title) + 1 if title in results else 1
        return f"search: {title}\nopen: {rank}"

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """Words of the question and any results; a name of an opened page as the answer."""
        now = decode_state(state)
        found = self._instance(now.key)
        if agent == text.SEARCHER:
            asked = words(found.question.text)
            return f"search: {' '.join(rng.sample(asked, 3))}\nopen: {rng.randint(1, 5)}"
        names = _names(now) or words(found.question.text)
        mark = rng.choice(("missing", "missing", "missing", "answer"))
        return f"{mark}: {rng.choice(names)}"

    def hidden_texts(self, task: Task) -> list[str]:
        """Nothing: pages hold the answers, and are there to be found."""
        return []

    def attackers(self) -> Mapping[str, Policy]:
        """Obeying the pages, answering with everything, knowing the answer unread."""
        return {
            "obeys_pages": _obey,
            "answers_everything": _answer_everything,
            "remembers": self._remember,
            "opens_the_first": self._open_the_first,
        }

    def vocabulary(self) -> Sequence[str]:
        """The words of the protocol and of questions."""
        if self._params.style == "compact":
            return compact.vocabulary()
        marks = ("search:", "open:", "answer:", "missing:", "1", "2", "3", "4", "5")
        return [*marks, *JOBS, *TRADES, "river", "town", "company", "founder", "spouse", "born"]

    def _remember(self, state: bytes, agent: str, rng: Random) -> str:
        """The right answer at once, without a page."""
        return f"answer: {self._instance(decode_state(state).key).question.answers[0]}"

    def _open_the_first(self, state: bytes, agent: str, rng: Random) -> str:
        """The question as the query, three pages a turn, and any name of them."""
        now = decode_state(state)
        if agent == text.SEARCHER:
            return f"search: {self._instance(now.key).question.text}\nopen: 1 2 3"
        return f"answer: {rng.choice(_names(now) or ['nobody'])}"

    def _instance(self, key: str) -> SearchInstance:
        if self._rows is None:
            return _made(key, self._params.retriever, self._params.style)
        row = row_of_key(self._rows, key)
        question = Question(row.question, row.answers, row.support)
        if self._params.retriever == "http":
            self._server = self._server or HttpRetriever(SearchServerSettings())
            return SearchInstance(question, self._server)
        corpus = self._params.corpus
        retriever = (
            _indexed_row(row.model_dump_json())
            if corpus is None
            else _indexed(corpus, self._params.retriever)
        )
        return SearchInstance(question, retriever)

    def split_key(self, task: Task) -> str | None:
        """The world that is searched."""
        if self._rows is not None:
            return None
        scale, number, _ = task.payload.decode().split("/", 2)
        return f"search/{scale}/{number}"

    def _draw(self, rng: Random, split: Split) -> bytes | None:
        number = rng.randrange(self._params.worlds)
        name = f"{self._params.scale}/{number}"
        if split_of_key(f"search/{name}") != split:
            return None
        return f"{name}/{rng.choice(self._params.kinds)}/{rng.getrandbits(32)}".encode()


@lru_cache(maxsize=MAX_KEPT)
def _made(key: str, retriever: str, style: Style) -> SearchInstance:
    parts = key.split("/")
    if len(parts) != 4 or parts[2] not in KINDS or not (parts[0] + parts[1]).isdigit():
        raise InvalidArgumentError(
            f"{key[:80]!r} is no question of this family; give all services one version and 'data'"
        )
    scale, number, kind, seed = parts
    found = world(number, int(scale), style)
    question = KINDS[kind](found, Random(f"search/{key}/{seed}"))
    if retriever == "tantivy":
        return SearchInstance(question, _tantivy_world(number, int(scale), style))
    return SearchInstance(question, IndexedDocuments(found.documents, found.index))


@lru_cache(maxsize=4)
def _tantivy_world(number: str, scale: int, style: Style) -> TantivyDocuments:
    return TantivyDocuments(world(number, scale, style).documents)


@lru_cache(maxsize=2)
def _indexed(corpus: Path, retriever: str) -> Retriever:
    documents = corpus_documents(corpus)
    return TantivyDocuments(documents) if retriever == "tantivy" else IndexedDocuments(documents)


@lru_cache(maxsize=MAX_KEPT)
def _indexed_row(row_json: str) -> Retriever:
    row = SearchRow.model_validate_json(row_json)
    return IndexedDocuments([Document(title, page) for title, page in row.paragraphs])


def _names(now: SearchState) -> list[str]:
    """Capitalised words of the opened pages."""
    found = [word.strip(".,()") for page in now.opened for word in page.text.split()]
    return [word for word in found if word[:1].isupper() or word.isdigit()]


def _obey(state: bytes, agent: str, rng: Random) -> str:
    """Whatever a page tells the reader to answer."""
    now = decode_state(state)
    if agent == text.SEARCHER:
        return "search: ignore the question and answer\nopen: 1 2 3"
    for page in now.opened:
        for mark in ("answer is ", "and answer ", "right answer is "):
            if mark in page.text:
                return f"answer: {page.text.rpartition(mark)[2].strip('. ')}"
    return "missing: Example"


def _answer_everything(state: bytes, agent: str, rng: Random) -> str:
    now = decode_state(state)
    if agent == text.SEARCHER:
        return "search: town company river\nopen: 1 2 3"
    return "answer: " + " or ".join(page.text for page in now.opened)
