"""Judges one action of the search task on its own copy of the state.

The team is paid once, for a right answer that rests on opened pages: every supporting page must
have been opened. A lucky or remembered answer teaches nothing and is paid nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from troupe.tasks.agents import known_agent
from troupe.tasks.family import Observation, Task, Transition
from troupe_tasks.search import compact, text
from troupe_tasks.search.bm25 import words
from troupe_tasks.search.questions import Question
from troupe_tasks.search.retrievers import Retriever
from troupe_tasks.search.state import Opened, SearchState, decode_state, encode_state
from troupe_tasks.search.world import Style

RETURN_BOUND = 1.0
SPARE_OPENS = 3
"""Pages that may be opened beyond the supporting ones."""
MAX_KEPT_ANSWER = 100


@dataclass(frozen=True)
class SearchInstance:
    """A question, and where its pages are found."""

    question: Question
    retriever: Retriever

    @property
    def max_opens(self) -> int:
        """Pages that an episode may open."""
        return len(self.question.support) + SPARE_OPENS


class SearchEnvironment:
    """The pure function of the search task: see ``troupe.tasks.family.Environment``."""

    def __init__(
        self,
        named: Callable[[str], SearchInstance],
        *,
        searcher_answers: bool,
        style: Style,
        page_chars: int,
    ) -> None:
        self._named = named
        self._page_chars = page_chars
        self._is_compact = style == "compact"
        self._searcher_answers = searcher_answers

    def reset(self, task: Task) -> bytes:
        """The first state: nothing searched."""
        return encode_state(SearchState(task.payload.decode()))

    def observe(self, state: bytes, agent: str) -> Observation:
        """What ``agent`` sees."""
        now, known = decode_state(state), _known(agent)
        found = self._named(now.key)
        is_alone = self._searcher_answers and known == text.SEARCHER
        left = found.max_opens - len(now.opened)
        if self._is_compact:
            reads = known == text.ANSWERER or is_alone
            searches = known == text.SEARCHER
            brief = found.question.brief
            return compact.observation(brief, now, known, left, searches=searches, reads=reads)
        return text.observation(found.question.text, now, known, left, is_alone=is_alone)

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Search and open, or answer; raises only for machines."""
        before = decode_state(state)
        if before.is_done:
            nothing = dict.fromkeys(_TERMS[_known(agent)], 0.0)
            return Transition(state, 0.0, nothing, done=True, success=before.is_right)
        found = self._named(before.key)
        action = compact.joined(action) if self._is_compact else action
        if _known(agent) == text.ANSWERER:
            return self._answered(before, found, action)
        searched = self._searched(before, found, action)
        if self._searcher_answers and text.read_marked(action, "answer") is not None:
            after = _with_answer(searched, found.question, action)
            return _transition(before, after, found, text.SEARCHER)
        return _transition(before, searched, found, text.SEARCHER)

    def _searched(self, before: SearchState, found: SearchInstance, action: str) -> SearchState:
        """The new page, then the pages opened of it."""
        request = text.read_request(action)
        query = request.query or before.query
        if not query:
            return before
        results = found.retriever.search(query, text.PAGE_SIZE)
        opened = list(before.opened)
        for rank in request.opens:
            if rank > len(results) or len(opened) == found.max_opens:
                continue
            page = Opened(results[rank - 1].title, results[rank - 1].text[: self._page_chars])
            if page not in opened:
                opened.append(page)
        titles = [result.title for result in results]
        shown = [t for t in found.question.support if t in titles or t in before.shown]
        return replace(
            before,
            query=query,
            page=tuple((result.title, text.snippet(result)) for result in results),
            opened=tuple(opened),
            shown=tuple(shown),
            note="" if request.query else before.note,
        )

    def _answered(self, before: SearchState, found: SearchInstance, action: str) -> Transition:
        if text.read_marked(action, "answer") is not None:
            after = _with_answer(before, found.question, action)
            return _transition(before, after, found, text.ANSWERER)
        note = text.read_note(action)
        named = [title for title in _leads(found.question, before) if _contains(note, title)]
        after = replace(before, note=note, led=(*before.led, *named))
        return _transition(before, after, found, text.ANSWERER)


def _with_answer(before: SearchState, question: Question, action: str) -> SearchState:
    answer = text.read_marked(action, "answer") or ""
    titles = {page.title for page in before.opened}
    right = text.is_right(answer, question.answers) and titles >= set(question.support)
    return replace(before, answer=answer[:MAX_KEPT_ANSWER], is_right=right)


def _leads(question: Question, now: SearchState) -> list[str]:
    """Supporting pages that an opened page names and no result has shown."""
    read = " ".join(page.text for page in now.opened)
    return [
        title
        for title in question.support
        if title not in now.shown and title not in now.led and _contains(read, title)
    ]


def _contains(read: str, title: str) -> bool:
    return f" {' '.join(words(title))} " in f" {' '.join(words(read))} "


def _transition(
    before: SearchState, after: SearchState, found: SearchInstance, agent: str
) -> Transition:
    """The terms are shares of the supporting pages: shown, opened, named, each the first time."""
    support = found.question.support
    opened = {page.title for page in after.opened} - {page.title for page in before.opened}
    if agent == text.SEARCHER:
        terms = {
            "finds": (len(after.shown) - len(before.shown)) / len(support),
            "opens": len(opened & set(support)) / len(support),
        }
    else:
        terms = {"leads": (len(after.led) - len(before.led)) / len(support)}
    info = {
        "query": after.query,
        "page": [title for title, _ in after.page],
        "opened": [page.title for page in after.opened],
        "note": after.note,
        "answer": after.answer,
    }
    return Transition(
        encode_state(after),
        float(after.is_right),
        terms,
        done=after.is_done,
        success=after.is_right,
        info=info,
    )


_TERMS = {text.SEARCHER: ("finds", "opens"), text.ANSWERER: ("leads",)}


def _known(agent: str) -> str:
    return known_agent(agent, text.AGENTS, task="Search")
