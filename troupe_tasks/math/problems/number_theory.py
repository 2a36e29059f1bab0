"""Number theory: divisors, remainders, congruences, primes."""

from math import gcd, lcm, prod
from random import Random

from troupe_tasks.math.problems.made import Made, Template

PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23)


def greatest_divisor(rng: Random, level: int) -> Made:
    """The greatest common divisor of two numbers that have one."""
    shared = rng.randrange(6, 12 * 10 ** (level - 1))
    a, b = sorted((shared * rng.randrange(12, 90), shared * rng.randrange(12, 90)))
    program = f"print(max(d for d in range(1, {min(a, b)} + 1) if {a} % d == {b} % d == 0))"
    problem = f"What is the greatest common divisor of ${a}$ and ${b}$?"
    return Made(problem, str(gcd(a, b)), program)


def least_multiple(rng: Random, level: int) -> Made:
    """The least common multiple of a few numbers."""
    numbers = sorted(rng.sample(range(4, 12 + 6 * level), level + 1))
    listed = ", ".join(f"${n}$" for n in numbers)
    program = (
        f"step = {max(numbers)}\nn = step\n"
        f"while any(n % k for k in {numbers}):\n    n += step\nprint(n)"
    )
    problem = f"What is the least positive integer that is divisible by each of {listed}?"
    return Made(problem, str(lcm(*numbers)), program)


def power_remainder(rng: Random, level: int) -> Made:
    """The remainder of a large power."""
    base, modulus = rng.randrange(2, 40), rng.randrange(7, 40 * level)
    exponent = rng.randrange(10, 10 ** (level + 1))
    program = f"r = 1\nfor _ in range({exponent}):\n    r = r * {base} % {modulus}\nprint(r)"
    problem = f"What is the remainder when ${base}^{{{exponent}}}$ is divided by ${modulus}$?"
    return Made(problem, str(pow(base, exponent, modulus)), program)


def divisor_count(rng: Random, level: int) -> Made:
    """The number of divisors, from a factorisation."""
    primes = rng.sample(PRIMES[: 3 + level], level)
    powers = [rng.randrange(1, 5 - (level > 1)) for _ in primes]
    n = prod(p**e for p, e in zip(primes, powers, strict=True)) * 29
    answer = 2 * prod(e + 1 for e in powers)
    program = (
        f"n = {n}\ncount, d = 0, 1\nwhile d * d <= n:\n"
        "    if n % d == 0:\n        count += 1 if d * d == n else 2\n    d += 1\nprint(count)"
    )
    return Made(f"How many positive divisors does ${n}$ have?", str(answer), program)


def two_remainders(rng: Random, level: int) -> Made:
    """The least solution of two congruences."""
    m, n = rng.sample(PRIMES[1 + level : 6 + level], 2)
    a, b = rng.randrange(1, m), rng.randrange(1, n)
    answer = (a + m * ((b - a) * pow(m, -1, n) % n)) % (m * n)
    program = f"x = 1\nwhile x % {m} != {a} or x % {n} != {b}:\n    x += 1\nprint(x)"
    problem = (
        f"Find the least positive integer that leaves remainder ${a}$ when divided by ${m}$ and "
        f"remainder ${b}$ when divided by ${n}$."
    )
    return Made(problem, str(answer), program)


def multiples_in_range(rng: Random, level: int) -> Made:
    """How many numbers up to a bound are divisible by one of two numbers."""
    a, b = sorted(rng.sample(range(3, 14), 2))
    bound = rng.randrange(50, 100) * 10**level
    answer = bound // a + bound // b - bound // lcm(a, b)
    program = f"print(sum(n % {a} == 0 or n % {b} == 0 for n in range(1, {bound} + 1)))"
    problem = (
        f"How many integers from $1$ to ${bound}$ are divisible by ${a}$ or by ${b}$ (or by both)?"
    )
    return Made(problem, str(answer), program)


TEMPLATES: tuple[Template, ...] = (
    greatest_divisor,
    least_multiple,
    power_remainder,
    divisor_count,
    two_remainders,
    multiples_in_range,
)
