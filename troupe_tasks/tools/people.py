"""Invented customers: names, emails, zip codes and addresses."""

from random import Random
from typing import Any


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FIRST = _words(
    "Ada Bela Cara Dina Egon Fara Gero Hila Ivo Jana Kuno Lara Milo Nela Otto Pia Rolf Sina Timo "
    "Ulla Vera Wim Xena Yara Zeno Anke Bruno Carl Dora Erik"
)
LAST = _words(
    "Adler Brandt Castell Dorn Ehlers Falk Gruber Hagen Ibsen Jonas Keller Lorenz Maurer Novak "
    "Ostrow Peters Quist Reuter Sander Thoma Urban Vogel Winter Ziegler Arendt Berger Conrad Decker"
)
STREETS = _words("Mill Station Garden Bridge Harbour Forest Market Church")


def drawn_customers(rng: Random, count: int) -> dict[str, dict[str, Any]]:
    """``count`` customers by id; names, emails and zip codes are all different.

    Two of them share a last name, so that a name alone finds nobody.
    """
    lasts = rng.sample(LAST, count - 1)
    lasts.append(lasts[0])
    firsts = rng.sample(FIRST, count)
    zips = rng.sample(range(10_000, 100_000), count)
    customers: dict[str, dict[str, Any]] = {}
    for first, last, code in zip(firsts, lasts, zips, strict=True):
        customers[f"C{rng.randint(100, 999)}{len(customers)}"] = {
            "name": f"{first} {last}",
            "email": f"{first}.{last}{rng.randint(10, 99)}@mail.example".lower(),
            "zip": str(code),
        }
    return customers


def drawn_address(rng: Random) -> str:
    """A street and a number."""
    return f"{rng.choice(STREETS)} Street {rng.randint(1, 120)}"


def drawn_id(rng: Random, letter: str, taken: dict[str, Any]) -> str:
    """A new id such as ``R4821``."""
    while (key := f"{letter}{rng.randint(1000, 9999)}") in taken:
        pass
    return key
