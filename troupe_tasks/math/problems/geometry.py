r"""Geometry with exact answers: triangles, polygons, lattice points, circles, boxes."""

from fractions import Fraction
from math import gcd, isqrt
from random import Random

from troupe_tasks.math.problems.made import Made, Template, shown


def hypotenuse(rng: Random, level: int) -> Made:
    """A right triangle with integer sides, from Euclid's formula."""
    m = rng.randrange(2, 4 + 2 * level)
    n = rng.randrange(1, m)
    scale = rng.randrange(1, 3 * level + 2)
    a, b, c = sorted(scale * s for s in (m * m - n * n, 2 * m * n, m * m + n * n))
    program = f"print(next(c for c in range(1, {a + b}) if c * c == {a} * {a} + {b} * {b}))"
    problem = f"A right triangle has legs ${a}$ and ${b}$. How long is its hypotenuse?"
    return Made(problem, str(c), program)


def triangle_area(rng: Random, level: int) -> Made:
    """The area of a lattice triangle."""
    size = 6 * level
    while True:
        (x1, y1), (x2, y2), (x3, y3) = points = sorted(
            (rng.randrange(-size, size), rng.randrange(-size, size)) for _ in range(3)
        )
        twice = abs((x2 - x1) * (y3 - y1) - (x3 - x1) * (y2 - y1))
        if twice:
            break
    program = (
        "from fractions import Fraction\n"
        f"p = {points}\n"
        "print(abs(Fraction(sum(p[i - 1][0] * p[i][1] - p[i][0] * p[i - 1][1] "
        "for i in range(3)), 2)))"
    )
    listed = ", ".join(f"$({x}, {y})$" for x, y in points)
    problem = f"What is the area of the triangle with vertices {listed}?"
    return Made(problem, shown(Fraction(twice, 2)), program)


def lattice_points(rng: Random, level: int) -> Made:
    """Lattice points on a segment."""
    factor = rng.randrange(2, 6 * level)
    dx, dy = rng.randrange(1, 12), rng.randrange(1, 12)
    x, y = rng.randrange(-20, 20), rng.randrange(-20, 20)
    width, height = factor * dx, factor * dy
    program = f"print(sum((i * {height}) % {width} == 0 for i in range({width} + 1)))"
    problem = (
        f"How many points with integer coordinates lie on the segment from $({x}, {y})$ to "
        f"$({x + width}, {y + height})$, endpoints included?"
    )
    return Made(problem, str(gcd(width, height) + 1), program)


def polygon_angle(rng: Random, level: int) -> Made:
    """The inner angle of a regular polygon, or its diagonals from level 2 on."""
    n = rng.choice([n for n in range(5, 41) if 360 % n == 0]) if level == 1 else 0
    if level == 1:
        problem = f"How many degrees has each interior angle of a regular polygon with ${n}$ sides?"
        return Made(problem, str(180 - 360 // n), f"print(180 * ({n} - 2) // {n})")
    n = rng.randrange(6, 30 * level)
    program = f"n = {n}\nprint(sum(1 for i in range(n) for j in range(i) if 1 < i - j < n - 1))"
    problem = f"How many diagonals does a convex polygon with ${n}$ sides have?"
    return Made(problem, str(n * (n - 3) // 2), program)


def box_diagonal(rng: Random, level: int) -> Made:
    """The squared space diagonal of a box, or its surface, from a volume."""
    a, b, c = sorted(rng.randrange(2, 6 * level + 3) for _ in range(3))
    if level == 1:
        program = f"print(2 * sum(({a} * {b}, {b} * {c}, {a} * {c})))"
        problem = f"What is the surface area of a box with edges ${a}$, ${b}$ and ${c}$?"
        return Made(problem, str(2 * (a * b + b * c + c * a)), program)
    program = (
        f"height = next(h for h in range(1, 10 ** 4) if {a} * {b} * h == {a * b * c})\n"
        f"print({a} ** 2 + {b} ** 2 + height ** 2)"
    )
    problem = (
        f"A box has a base of ${a}$ by ${b}$ and volume ${a * b * c}$. What is the square of the "
        "length of its space diagonal?"
    )
    return Made(problem, str(a * a + b * b + c * c), program)


def circle_points(rng: Random, level: int) -> Made:
    """Lattice points inside a circle."""
    squared = rng.randrange(4, 40 * level)
    answer = sum(2 * isqrt(squared - x * x) + 1 for x in range(-isqrt(squared), isqrt(squared) + 1))
    program = (
        f"n = {squared}\nr = range(-n, n + 1)\nprint(sum(x * x + y * y <= n for x in r for y in r))"
    )
    problem = (
        f"How many points with integer coordinates lie inside or on the circle "
        f"$x^2 + y^2 = {squared}$?"
    )
    return Made(problem, str(answer), program)


TEMPLATES: tuple[Template, ...] = (
    hypotenuse,
    triangle_area,
    lattice_points,
    polygon_angle,
    box_diagonal,
    circle_points,
)
