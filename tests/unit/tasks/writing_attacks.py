"""Texts that earn a writing reward without being honest, and a search for the best of them.

The attacker knows the source, the transition words and each factor of the gate: more than a policy
is ever told, which sees the reward alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from troupe_tasks.writing.environment import Genre
from troupe_tasks.writing.formula import score
from troupe_tasks.writing.gate import gate
from troupe_tasks.writing.words import STOPWORDS, TRANSITIONS, content

FILLER = sorted(STOPWORDS - {"the", "a", "an", "of", "from", "with", "into", "by", "at", "for"})
SMALL = ("the", "a", "of", "to", "in")
CONNECTIVES = [entry for entries in TRANSITIONS.values() for entry in entries]
TEMPLATES = (
    "the {} is about the {} and the {}",
    "they could not {} the {} because of the {}",
    "there was a {} with a {}, and it was very {}",
    "it would be {} to {} the {} again",
    "the {} of the {} was not what the {} had wanted",
    "she has a {} for the {} but the {} is {}",
    "this means that the {} should be {} by the {}",
    "we know that the {} was {} when the {} came",
)
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Target:
    """One source under attack, and what a pair of texts on it earns."""

    genre: Genre
    source: str

    def reward(self, pair: Pair) -> float:
        """What the default reward pays, from 0 to 3."""
        return self.worth(pair)[0]

    def worth(self, pair: Pair) -> tuple[float, float]:
        """The reward, and for pairs that earn the same how near each factor is to open."""
        paid = score(self.genre.formula, *pair, TRANSITIONS, is_strict=True).total
        opened = gate(self.genre.gate, self.source, *pair)
        about = opened.grounded + opened.covered + opened.related + opened.original
        return paid * opened.factor, paid + about + opened.varied + opened.ordered + opened.prose


def lengths(genre: Genre, rng: Random) -> tuple[int, int]:
    """Words of the two texts, as the formula pays for most."""
    if genre.name == "tldr":
        return rng.randrange(10, 24), rng.randrange(36, 60)
    first = rng.randrange(132, 165)
    return first, min(250, int(first * rng.uniform(1.3, 1.5)))


def _sentences(words: Sequence[str], rng: Random) -> str:
    out, left = list[str](), list(words)
    while left:
        size = rng.randrange(8, 18)
        line, left = left[:size], left[size:]
        out.append(" ".join(line).capitalize() + ".")
    return " ".join(out)


def salad(target: Target, size: int, rng: Random) -> str:
    """Content words in any order with filler, without articles and prepositions."""
    grounded = sorted(content(target.source))
    words = [rng.choice(grounded if rng.random() < 0.55 else FILLER) for _ in range(size)]
    return _sentences(words, rng)


def connected(target: Target, size: int, rng: Random) -> str:
    """A salad in which connectives stand between the words."""
    grounded, words = sorted(content(target.source)), list[str]()
    while len(words) < size:
        words += [*rng.choice(CONNECTIVES).split(), *rng.sample(grounded, rng.randrange(1, 4))]
    return _sentences(words[:size], rng)


def spans(target: Target, size: int, rng: Random) -> str:
    """Pieces of the source, each from anywhere, with connectives between some."""
    source, words = target.source.split(), list[str]()
    length = rng.randrange(2, 9)
    while len(words) < size:
        start = rng.randrange(max(1, len(source) - length))
        words += rng.choice(CONNECTIVES).split() if rng.random() < 0.4 else []
        words += source[start : start + rng.randrange(2, length + 1)]
    return " ".join(words[:size]) + "."


def templates(target: Target, size: int, rng: Random) -> str:
    """Sentences in good English whose content words are the source's, from one place of it."""
    source = [w for w in target.source.lower().split() if w.strip(".,;") not in STOPWORDS]
    words = list[str]()
    while len(words) < size:
        start = rng.randrange(max(1, len(source) - 5))
        near = [w.strip(".,;:?!") for w in source[start : start + 5]]
        form = rng.choice(TEMPLATES)
        line = form.format(*rng.sample(near, form.count("{}")))
        opening = rng.choice(CONNECTIVES) + ", " if rng.random() < 0.4 else ""
        words += f"{opening}{line}".capitalize().split()
        words[-1] += "."
    return " ".join(words)


def lead(target: Target, size: int, rng: Random) -> str:
    """The source's own words from some place on."""
    source = target.source.split()
    start = rng.randrange(max(1, len(source) - size)) if rng.random() < 0.5 else 0
    return " ".join(source[start : start + size]) + "."


def repeated(target: Target, size: int, rng: Random) -> str:
    """One sentence of a template, again and again, with one word changed."""
    sentence = templates(target, 8, rng).split()
    words, grounded = list[str](), sorted(content(target.source))
    while len(words) < size:
        changed = list(sentence)
        changed[rng.randrange(len(changed) - 1)] = rng.choice(grounded)
        words += changed
    return " ".join(words)


ATTACKS: dict[str, Callable[[Target, int, Random], str]] = {
    attack.__name__: attack for attack in (salad, connected, spans, templates, lead, repeated)
}


def best_drawn(target: Target, attack: str, num: int, rng: Random) -> Pair:
    """The best of ``num`` pairs that one attack writes."""
    write = ATTACKS[attack]

    def drawn() -> Pair:
        first, second = lengths(target.genre, rng)
        return write(target, first, rng), write(target, second, rng)

    return max((drawn() for _ in range(num)), key=target.worth)


def climbed(target: Target, pair: Pair, num: int, rng: Random) -> Pair:
    """``pair`` after ``num`` changes of a word or a piece, each kept unless it is worth less."""
    grounded, worth = sorted(content(target.source)), target.worth(pair)
    for _ in range(num):
        texts = [text.split() for text in pair]
        _change(texts[rng.randrange(2)], grounded, rng)
        changed = (" ".join(texts[0]), " ".join(texts[1]))
        if (changed_worth := target.worth(changed)) >= worth:
            pair, worth = changed, changed_worth
    return pair


def _change(words: list[str], grounded: Sequence[str], rng: Random) -> None:
    kind, place = rng.random(), rng.randrange(len(words))
    new = rng.choice(rng.choice((grounded, FILLER, SMALL, CONNECTIVES)))
    if kind < 0.45:
        words[place] = new + ("." if words[place].endswith(".") else "")
    elif kind < 0.6:
        words.insert(place, new)
    elif kind < 0.7 and len(words) > 8:
        del words[place]
    elif kind < 0.75:
        word = words[place]
        words[place] = word.rstrip(".") if word.endswith(".") else f"{word}."
    else:
        end = min(len(words), place + rng.randrange(1, 6))
        piece = words[place:end]
        del words[place:end]
        to = rng.randrange(len(words) + 1)
        words[to:to] = piece
