"""Arithmetic: sums, products, fractions, percentages, digits and number bases."""

from fractions import Fraction
from random import Random

from troupe_tasks.math.problems.made import Made, Template, shown


def combination(rng: Random, level: int) -> Made:
    """A product and a sum of integers."""
    size = 10 ** (level + 1)
    a, b = rng.randrange(size // 10, size), rng.randrange(11, 100)
    c = rng.randrange(2, size)
    return Made(f"Compute ${a} \\cdot {b} - {c}$.", str(a * b - c), f"print({a} * {b} - {c})")


def fraction_sum(rng: Random, level: int) -> Made:
    """A sum of fractions in lowest terms."""
    parts = sorted(_proper_fraction(rng, 6 * level + 3) for _ in range(level + 1))
    total = sum(parts, Fraction(0))
    printed = " + ".join(f"\\frac{{{p.numerator}}}{{{p.denominator}}}" for p in parts)
    terms = " + ".join(f"Fraction({p.numerator}, {p.denominator})" for p in parts)
    problem = f"Compute ${printed}$. Give your answer as a fraction in lowest terms."
    return Made(problem, shown(total), f"from fractions import Fraction\nprint({terms})")


def percentage(rng: Random, level: int) -> Made:
    """A price after rises and cuts in percent, exact."""
    changes = [rng.choice((-50, -40, -30, -25, -20, -10, 10, 20, 25, 30, 40, 50))
               for _ in range(level)]  # fmt: skip
    price = 10 ** (2 * level - 1) * rng.randrange(11, 100)
    final = Fraction(price)
    for change in changes:
        final = final * (100 + change) / 100
    steps = ", then ".join(
        f"{'rises' if change > 0 else 'falls'} by ${abs(change)}\\%$" for change in changes
    )
    program = (
        "from fractions import Fraction\n"
        f"price = Fraction({price})\n"
        f"for change in {changes}:\n"
        "    price += price * Fraction(change, 100)\n"
        "print(price)"
    )
    problem = f"A price of ${price}$ coins {steps}. What is the final price in coins?"
    return Made(problem, shown(final), program)


def digit_sum(rng: Random, level: int) -> Made:
    """The digit sum of a power."""
    base, exponent = rng.randrange(2, 20), rng.randrange(4 * level, 12 * level)
    answer, rest = 0, base**exponent
    while rest:
        rest, digit = divmod(rest, 10)
        answer += digit
    program = f"print(sum(int(digit) for digit in str({base} ** {exponent})))"
    problem = f"What is the sum of the decimal digits of ${base}^{{{exponent}}}$?"
    return Made(problem, str(answer), program)


def base_conversion(rng: Random, level: int) -> Made:
    """A number written in another base."""
    base = rng.randrange(3, 10)
    digits = [rng.randrange(1, base), *(rng.randrange(base) for _ in range(level + 1))]
    value = sum(digit * base**place for place, digit in enumerate(reversed(digits)))
    written = "".join(map(str, digits))
    problem = f"Write the base-{base} number ${written}_{{{base}}}$ in base ten."
    return Made(problem, str(value), f"print(int('{written}', {base}))")


def arithmetic_series(rng: Random, level: int) -> Made:
    """The sum of an arithmetic progression."""
    first, gap = rng.randrange(1, 30), rng.randrange(2, 12)
    count = rng.randrange(5, 15) * 10 ** (level - 1)
    answer = count * (2 * first + (count - 1) * gap) // 2
    program = f"print(sum({first} + {gap} * k for k in range({count})))"
    problem = (
        f"An arithmetic progression begins with ${first}$ and has common difference ${gap}$. "
        f"What is the sum of its first ${count}$ terms?"
    )
    return Made(problem, str(answer), program)


def _proper_fraction(rng: Random, largest: int) -> Fraction:
    denominator = rng.randrange(3, largest)
    return Fraction(rng.randrange(1, denominator), denominator)


TEMPLATES: tuple[Template, ...] = (
    combination,
    fraction_sum,
    percentage,
    digit_sum,
    base_conversion,
    arithmetic_series,
)
