"""Combinatorics and probability: choosing, arranging, paths, dice, sums."""

from fractions import Fraction
from math import comb, factorial, prod
from random import Random

from troupe_tasks.math.problems.made import Made, Template, shown


def committee(rng: Random, level: int) -> Made:
    """Committees drawn from two groups."""
    women, men = rng.randrange(4, 6 + 2 * level), rng.randrange(4, 6 + 2 * level)
    from_women, from_men = rng.randrange(1, 3 + (level > 1)), rng.randrange(1, 3 + (level > 2))
    answer = comb(women, from_women) * comb(men, from_men)
    program = (
        "from itertools import combinations\n"
        f"print(sum(1 for _ in combinations(range({women}), {from_women}))\n"
        f"      * sum(1 for _ in combinations(range({men}), {from_men})))"
    )
    problem = (
        f"A committee of ${from_women}$ of ${women}$ women and ${from_men}$ of ${men}$ men is "
        "chosen. In how many ways can this be done?"
    )
    return Made(problem, str(answer), program)


def arrangements(rng: Random, level: int) -> Made:
    """Arrangements of letters with repeats."""
    repeats = [rng.randrange(2, 4), *(rng.randrange(1, 4) for _ in range(level + 1))]
    letters = sorted(rng.sample("ABCDEFGHKLMNPQRSTUXYZ", len(repeats)))
    row = "".join(letter * n for letter, n in zip(letters, repeats, strict=True))
    answer = factorial(len(row)) // prod(factorial(n) for n in repeats)
    program = (
        "from functools import cache\n\n@cache\ndef count(left):\n"
        "    if not left:\n        return 1\n"
        "    return sum(count(left.replace(c, '', 1)) for c in set(left))\n\n"
        f"print(count('{row}'))"
    )
    problem = f"In how many distinct ways can the letters {', '.join(row)} be arranged in a row?"
    return Made(problem, str(answer), program)


def lattice_paths(rng: Random, level: int) -> Made:
    """Shortest paths on a grid, through a given point from level 2 on."""
    width, height = rng.randrange(3, 5 + 2 * level), rng.randrange(3, 5 + 2 * level)
    x, y = rng.randrange(1, width), rng.randrange(1, height)
    ways = comb(width + height, width)
    through = comb(x + y, x) * comb(width - x + height - y, width - x)
    stop = "" if level == 1 else f" passes through $({x}, {y})$ and"
    answer = ways if level == 1 else through
    gate = "True" if level == 1 else f"(i, j) == ({x}, {y}) or not (i + j == {x + y})"
    program = (
        "ways = {(0, 0): 1}\n"
        f"for i in range({width + 1}):\n    for j in range({height + 1}):\n"
        "        if i or j:\n            n = ways.get((i - 1, j), 0) + ways.get((i, j - 1), 0)\n"
        f"            ways[i, j] = n if {gate} else 0\n"
        f"print(ways[{width}, {height}])"
    )
    problem = (
        f"A path{stop} goes from $(0, 0)$ to $({width}, {height})$ in unit steps to the right or "
        "up. How many such paths are there?"
    )
    return Made(problem, str(answer), program)


def dice(rng: Random, level: int) -> Made:
    """The probability of a total with fair dice."""
    num_dice, sides = level + 1, rng.choice((4, 6, 8))
    total = rng.randrange(num_dice + 1, num_dice * sides)
    # Inclusion and exclusion over the dice that show more than they can.
    hits = sum(
        (-1) ** k * comb(num_dice, k) * comb(total - sides * k - 1, num_dice - 1)
        for k in range((total - num_dice) // sides + 1)
    )
    program = (
        "from fractions import Fraction\nfrom itertools import product\n"
        f"rolls = list(product(range(1, {sides + 1}), repeat={num_dice}))\n"
        f"print(Fraction(sum(sum(r) == {total} for r in rolls), len(rolls)))"
    )
    problem = (
        f"${num_dice}$ fair dice with ${sides}$ sides, numbered $1$ to ${sides}$, are rolled. What "
        f"is the probability that the sum is ${total}$? Give your answer as a fraction in lowest "
        "terms."
    )
    return Made(problem, shown(Fraction(hits, sides**num_dice)), program)


def share_out(rng: Random, level: int) -> Made:
    """Equal things shared out among people, each with a least share."""
    people = rng.randrange(2, 3 + level)
    least = rng.randrange(0, 3)
    things = people * least + rng.randrange(3, 5 + 3 * level)
    answer = comb(things - people * least + people - 1, people - 1)
    program = (
        "from itertools import product\n"
        f"shares = product(range({least}, {things + 1}), repeat={people - 1})\n"
        f"print(sum({things} - sum(s) >= {least} for s in shares))"
    )
    least_share = f", each getting at least ${least}$" if least else ""
    problem = (
        f"In how many ways can ${things}$ identical coins be shared out among ${people}$ different "
        f"people{least_share}?"
    )
    return Made(problem, str(answer), program)


def strings_without(rng: Random, level: int) -> Made:
    """Strings in which a letter never stands next to itself."""
    length, letters = rng.randrange(3, 5 + level), rng.randrange(2, 4 + level)
    banned = rng.randrange(1, letters + 1)
    # Strings by whether they end in one of the banned letters, which may not follow themselves.
    ends_free, ends_banned = letters - banned, banned
    for _ in range(length - 1):
        ends_free, ends_banned = (
            (ends_free + ends_banned) * (letters - banned),
            ends_free * banned + ends_banned * (banned - 1),
        )
    program = (
        "from itertools import product\n"
        f"strings = product(range({letters}), repeat={length})\n"
        f"print(sum(all(a != b or a >= {banned} for a, b in zip(s, s[1:])) for s in strings))"
    )
    problem = (
        f"How many strings of length ${length}$ over an alphabet of ${letters}$ letters are there "
        f"in which none of the first ${banned}$ letters of the alphabet stands directly next to "
        "itself?"
    )
    return Made(problem, str(ends_free + ends_banned), program)


TEMPLATES: tuple[Template, ...] = (
    committee,
    arrangements,
    lattice_paths,
    dice,
    share_out,
    strings_without,
)
