"""Algebra: equations, systems, polynomials, sequences."""

from fractions import Fraction
from random import Random

from troupe_tasks.math.problems.made import Made, Template, polynomial, shown


def linear_equation(rng: Random, level: int) -> Made:
    """One unknown on both sides, an integer solution."""
    size = 10 * 3**level
    a, c = rng.sample(range(2, 20), 2)
    x, b = rng.randrange(-size, size), rng.randrange(1, size)
    d = a * x + b - c * x
    program = f"print(next(x for x in range(-{size}, {size}) if {a} * x + {b} == {c} * x + {d}))"
    return Made(f"Solve ${polynomial([a, b])} = {polynomial([c, d])}$ for $x$.", str(x), program)


def two_unknowns(rng: Random, level: int) -> Made:
    """A linear system of two equations; the product of the unknowns is asked for."""
    size = 6 * level + 4
    x, y = rng.randrange(1, size), rng.randrange(1, size)
    a, b, c = rng.randrange(2, 9), rng.randrange(2, 9), rng.randrange(2, 9)
    d = (b * c) // a + 1 + rng.randrange(1, 5)
    first, second = a * x + b * y, c * x + d * y
    program = (
        f"print(next(x * y for x in range(-{2 * size}, {2 * size}) "
        f"for y in range(-{2 * size}, {2 * size})\n"
        f"      if {a} * x + {b} * y == {first} and {c} * x + {d} * y == {second}))"
    )
    problem = (
        f"The numbers $x$ and $y$ satisfy ${a}x + {b}y = {first}$ and ${c}x + {d}y = {second}$. "
        "What is $xy$?"
    )
    return Made(problem, str(x * y), program)


def larger_root(rng: Random, level: int) -> Made:
    """A quadratic with integer roots."""
    size = 8 * level
    p, q = rng.sample(range(-size, size), 2)
    program = (
        f"print(max(x for x in range(-{size}, {size}) if x * x + ({-p - q}) * x + ({p * q}) == 0))"
    )
    problem = f"What is the larger root of ${polynomial([1, -p - q, p * q])} = 0$?"
    return Made(problem, str(max(p, q)), program)


def root_squares(rng: Random, level: int) -> Made:
    """The sum of the squares of a quadratic's roots, by Vieta."""
    a = rng.choice((1, 2, 3, 4)) if level > 1 else 1
    b, c = rng.randrange(2, 12 * level), -rng.randrange(1, 10 * level)
    answer = Fraction(b * b - 2 * a * c, a * a)
    # The program does without Vieta: exact arithmetic in the field of the discriminant's root.
    program = (
        "from fractions import Fraction\n"
        f"a, b, c = {a}, {b}, {c}\nD = b * b - 4 * a * c\n"
        "# ((-b + s)^2 + (-b - s)^2) / (2a)^2 with s * s = D\n"
        "print(Fraction(2 * b * b + 2 * D, 4 * a * a))"
    )
    problem = f"Let $r$ and $s$ be the roots of ${polynomial([a, b, c])} = 0$. What is $r^2 + s^2$?"
    return Made(problem, shown(answer), program)


def polynomial_value(rng: Random, level: int) -> Made:
    """A polynomial at an integer."""
    coefficients = [rng.randrange(1, 10), *(rng.randrange(-9, 10) for _ in range(level + 1))]
    x = rng.choice([n for n in range(-4 * level, 4 * level + 1) if abs(n) > 1])
    answer = 0
    for coefficient in coefficients:
        answer = answer * x + coefficient
    degree = len(coefficients) - 1
    powers = [(c, degree - k) for k, c in enumerate(coefficients) if c]
    program = f"x = {x}\nprint(" + " + ".join(f"({c}) * x ** {e}" for c, e in powers) + ")"
    return Made(f"Let $f(x) = {polynomial(coefficients)}$. What is $f({x})$?", str(answer), program)


def recurrence(rng: Random, level: int) -> Made:
    """A linear recurrence of the second order."""
    p, q = rng.randrange(1, 4), rng.choice((-2, -1, 1, 2, 3))
    first, second, n = rng.randrange(0, 6), rng.randrange(1, 7), 4 + 3 * level
    terms = [first, second]
    while len(terms) < n:
        terms.append(p * terms[-1] + q * terms[-2])
    program = (
        f"a, b = {first}, {second}\nfor _ in range({n - 1}):\n    a, b = b, {p} * b + ({q}) * a\n"
        "print(a)"
    )
    problem = (
        f"A sequence has $a_1 = {first}$, $a_2 = {second}$ and "
        f"$a_{{n}} = {p}a_{{n-1}} {q:+d}a_{{n-2}}$ for $n \\ge 3$. What is $a_{{{n}}}$?"
    )
    return Made(problem, str(terms[n - 1]), program)


TEMPLATES: tuple[Template, ...] = (
    linear_equation,
    two_unknowns,
    larger_root,
    root_squares,
    polynomial_value,
    recurrence,
)
