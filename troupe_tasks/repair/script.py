"""Scripted players: one that shows the faulty lines and mends them, and one that guesses."""

from random import Random

from troupe_tasks.repair.edits import Edit, edit_text
from troupe_tasks.repair.mutations import mutations_of
from troupe_tasks.repair.reading import SHOW_LINES, WAIT
from troupe_tasks.repair.state import State


def shows_fault(state: State) -> str:
    """Hands the lines around the fault over."""
    path, start, _, _ = state.instance.fault
    files = state.instance.files
    line = files[path][:start].count("\n") + 1
    first = max(1, line - SHOW_LINES // 2)
    last = first + SHOW_LINES - 1
    return f"show {path} {first} {min(last, len(files[path].splitlines()))}\nnote line {line}"


def mends_fault(state: State) -> str:
    """The block that puts the right text back; ``wait`` when other edits are in the way."""
    path, start, wrong, right = state.instance.fault
    text = state.files[path]
    if text != state.instance.files[path]:
        mended = state.instance.files[path]
        mended = mended[:start] + right + mended[start + len(wrong) :]
        return WAIT if text == mended else _smallest(path, text, mended)
    return _smallest(path, text, text[:start] + right + text[start + len(wrong) :])


def _smallest(path: str, old: str, new: str) -> str:
    """One block that turns ``old`` into ``new``, grown until its lines stand there once."""
    olds, news = old.split("\n"), new.split("\n")
    head = 0
    while head < min(len(olds), len(news)) and olds[head] == news[head]:
        head += 1
    tail = 0
    while tail < min(len(olds), len(news)) - head and olds[-1 - tail] == news[-1 - tail]:
        tail += 1
    while True:
        search = "\n".join(olds[head : len(olds) - tail])
        wanted = olds[head : len(olds) - tail]
        times = sum(olds[n : n + len(wanted)] == wanted for n in range(len(olds)))
        if search.strip() and times == 1:
            return edit_text(Edit(path, search, "\n".join(news[head : len(news) - tail])))
        head, tail = max(0, head - 1), max(0, tail - 1)


def random_reading(state: State, rng: Random) -> str:
    """Opens or hands over lines anywhere."""
    path = rng.choice(list(state.instance.files))
    num_lines = max(1, len(state.files[path].splitlines()))
    first = rng.randint(1, num_lines)
    return f"{rng.choice(('open', 'show'))} {path} {first} {min(num_lines, first + 9)}"


def random_edit(state: State, rng: Random) -> str:
    """One change of the kind that made the fault, anywhere in the package."""
    paths = [p for p in state.files if not p.startswith("tests/") and "__init__" not in p]
    path = rng.choice(paths)
    try:
        mutations = mutations_of(state.files[path])
    except SyntaxError:
        mutations = []
    if not mutations:
        return WAIT
    text = state.files[path]
    return _smallest(path, text, rng.choice(mutations).applied(text))
