"""The laws: shapes of physics with other exponents and constants, so that memory does not help.

As in NewtonBench (arXiv 2510.07172) a law keeps the shape of a known one and shifts what is in it.
A law is named by (shape, exponents, seed of the constants); the first two are its *form*, which
one split owns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from troupe_tasks.discovery.formulas import Node, Point, parse, value

LOW, HIGH, FAR = 0.5, 4.0, 8.0
"""Quantities are measured from LOW to HIGH; half of the held-out points lie in HIGH to FAR."""
NUM_HELD_OUT = 64
MAX_KEPT = 512

EXPONENTS = (-2.0, -1.5, -1.0, -0.5, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
_POSITIVE = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
SHAPES: Mapping[str, str] = {
    "power": "{c} * {x} ** {a} * {y} ** {b}",
    "power_of_three": "{c} * {x} ** {a} * {y} ** {b} * {z} ** {d}",
    "sum_of_powers": "{c} * {x} ** {a} * {y} ** {b} + {k} * {z}",
    "two_terms": "{c} * {x} ** {a} + {k} * {y} ** {b}",
    "saturation": "{c} * {x} ** {a} / ({k} + {y} ** {b})",
    "two_steps": "{c} * {x} / ({k} + {x}) * {y} ** {b}",
    "decay": "{c} * {x} ** {a} * exp(-{r} * {y})",
    "decay_of_three": "{c} * {x} ** {a} * exp(-{r} * {y}) * {z} ** {d}",
    "root": "{c} * sqrt({x} ** {a} + {k} * {y} ** {b})",
    "logarithm": "{c} * {x} ** {a} * log({k} + {y})",
    "wave": "{c} * {x} ** {a} * ({k} + cos({r} * {y}))",
    "valley": "{c} * {x} ** {a} * (({y} - {k}) ** 2 + 1)",
}
_ONLY_POSITIVE = {"saturation": "b", "root": "ab", "two_terms": "ab", "sum_of_powers": "ab"}
Readings = Sequence[tuple[Point, float]]
PLAIN = ("x", "y", "z")
INVENTED = ("bel", "dro", "fim", "gar", "hul", "kes", "lun", "mip", "nov", "pel", "rud", "tok")


@dataclass(frozen=True)
class Law:
    """A hidden law of two or three quantities."""

    names: tuple[str, ...]
    formula: Node
    text: str
    key: str

    about = ""

    @property
    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """What each quantity can be set to."""
        return dict.fromkeys(self.names, (LOW, HIGH))

    @property
    def hidden(self) -> Readings:
        """Points nobody sees, with exact values: half beyond the measured range."""
        return held_out(self.key)

    def settled(self, point: Mapping[str, float]) -> Mapping[str, float]:
        """The point that is measured when ``point`` is asked for: with three decimals."""
        return {name: round(at, 3) for name, at in point.items()}

    def at(self, point: Mapping[str, float]) -> float:
        """Its exact value."""
        found = value(self.formula, point)
        assert found is not None, self.text
        return found

    def reading(self, point: Mapping[str, float], noise: float) -> float:
        """A measurement: relative noise that is a function of the point, four digits.

        Asking again gives the same number, so a step is pure and averaging gains nothing.
        """
        rng = Random(f"discovery/noise/{self.key}/{sorted(point.items())}")
        return float(f"{self.at(point) * (1 + rng.gauss(0.0, noise)):.4g}")


def form_of(key: str) -> str:
    """What one split owns: shape and exponents.

    Example: ``form_of("decay|1.5,2.0,1.0|plain|7") == "decay|1.5,2.0,1.0"``.
    """
    return "|".join(key.split("|")[:2])


def drawn_key(rng: Random, shapes: tuple[str, ...], names: str) -> str:
    """The name of a law."""
    shape = rng.choice(shapes)
    used = [letter for letter in "abd" if f"{{{letter}}}" in SHAPES[shape]]
    exponents = {
        letter: rng.choice(_POSITIVE if letter in _ONLY_POSITIVE.get(shape, "") else EXPONENTS)
        for letter in used
    }
    written = ",".join(str(exponents.get(letter, 0.0)) for letter in "abd")
    return f"{shape}|{written}|{names}|{rng.getrandbits(32)}"


@lru_cache(maxsize=MAX_KEPT)
def law(key: str) -> Law:
    """The law called ``key``."""
    shape, exponents, named, _ = key.split("|")
    rng = Random(f"discovery/{key}")
    a, b, d = (float(text) for text in exponents.split(","))
    constants = {
        "c": round(rng.uniform(0.5, 6.0), 2),
        "k": round(rng.uniform(1.2, 4.0), 2),
        "r": round(rng.uniform(0.2, 0.6), 2),
    }
    chosen = list(PLAIN) if named == "plain" else rng.sample(INVENTED, 3)
    used = [n for n, letter in zip(chosen, PLAIN, strict=True) if f"{{{letter}}}" in SHAPES[shape]]
    words = dict(zip(PLAIN, chosen, strict=True))
    text = SHAPES[shape].format(
        a=_exponent(a), b=_exponent(b), d=_exponent(d), **constants, **words
    )
    formula = parse(text, used)
    assert formula is not None, text
    return Law(tuple(used), formula, text, key)


@lru_cache(maxsize=MAX_KEPT)
def held_out(key: str) -> Readings:
    """The hidden points of a law, kept."""
    found, rng = law(key), Random(f"discovery/held/{key}")
    points: list[tuple[Point, float]] = []
    for number in range(NUM_HELD_OUT):
        low, high = (LOW, HIGH) if number % 2 else (HIGH, FAR)
        point = {name: round(rng.uniform(low, high), 3) for name in found.names}
        points.append((point, found.at(point)))
    return tuple(points)


def _exponent(number: float) -> str:
    return f"({number})" if number < 0 else str(number)
