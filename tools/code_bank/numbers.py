"""Arithmetic on standard input."""

from tools.code_bank.draft import counted, line, numbers, program
from troupe_tasks.code.problem import Checker

FLOAT = Checker(kind="float", tolerance=1e-6)

DRAFTS = (
    program(
        "even_sum",
        "The first line holds n (1 <= n <= 100), the second n whole numbers from -1000 to 1000. "
        "Print the sum of the even ones.",
        """
        n = int(input())
        values = list(map(int, input().split()))
        print(sum(v for v in values if v % 2 == 0))
        """,
        shown=["4\n1 2 3 4\n", "2\n-4 7\n"],
        edges=["1\n5\n", "1\n0\n", "3\n-2 -3 -4\n"],
        draw=lambda r: counted(numbers(r, r.randint(1, 12), -50, 50)),
    ),
    program(
        "digit_root",
        "One line holds a whole number n (0 <= n <= 10^18). Replace it by the sum of its digits "
        "until one digit is left. Print that digit.",
        """
        n = int(input())
        while n >= 10:
            n = sum(int(d) for d in str(n))
        print(n)
        """,
        shown=["38\n", "5\n"],
        edges=["0\n", "10\n", "999999999999999999\n", "1000000000000000000\n", "19\n"],
        draw=lambda r: line(r.randint(0, 10 ** r.randint(1, 17))),
        wrong=["print(sum(map(int, input().strip())))", "print(int(input()) % 9)"],
    ),
    program(
        "leap_days",
        "One line holds two years a and b (1 <= a <= b <= 4000). Print how many leap years there "
        "are from a to b, both counted. A year is a leap year when 4 divides it, unless 100 does "
        "and 400 does not.",
        """
        a, b = map(int, input().split())

        def upto(y):
            return y // 4 - y // 100 + y // 400

        print(upto(b) - upto(a - 1))
        """,
        shown=["2000 2004\n", "2001 2003\n"],
        edges=["1900 1900\n", "2000 2000\n", "1 4000\n", "4 4\n", "1896 1904\n"],
        draw=lambda r: line(*sorted(numbers(r, 2, 1, 4000))),
    ),
    program(
        "collatz_steps",
        "One line holds a whole number n (1 <= n <= 10000). Halve it when it is even, else take "
        "3n + 1. Print how many such steps lead to 1 for the first time.",
        """
        n = int(input())
        steps = 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        print(steps)
        """,
        shown=["6\n", "8\n"],
        edges=["1\n", "2\n", "27\n", "9999\n"],
        draw=lambda r: line(r.randint(1, 10000)),
    ),
    program(
        "prime_factors",
        "One line holds a whole number n (2 <= n <= 10^9). Print its prime factors in rising "
        "order, each as often as it divides n, on one line.",
        """
        n = int(input())
        found = []
        p = 2
        while p * p <= n:
            while n % p == 0:
                found.append(p)
                n //= p
            p += 1
        if n > 1:
            found.append(n)
        print(*found)
        """,
        shown=["12\n", "7\n"],
        edges=["2\n", "4\n", "49\n", "1000000000\n", "999999937\n"],
        draw=lambda r: line(r.randint(2, 10 ** r.randint(2, 6))),
        difficulty="medium",
    ),
    program(
        "change_coins",
        "Coins of 1, 5, 10 and 25 are at hand, as many as needed. One line holds an amount n "
        "(0 <= n <= 10^6). Print the least number of coins that pay it.",
        """
        n = int(input())
        coins = 0
        for c in (25, 10, 5, 1):
            coins += n // c
            n %= c
        print(coins)
        """,
        shown=["30\n", "4\n"],
        edges=["0\n", "25\n", "24\n", "99\n", "1000000\n"],
        draw=lambda r: line(r.randint(0, 500)),
    ),
    program(
        "mean_and_spread",
        "The first line holds n (1 <= n <= 100), the second n whole numbers from -1000 to 1000. "
        "Print their mean and, after a blank, the square root of their mean squared difference "
        "from it. Errors up to 10^-6 are allowed.",
        """
        n = int(input())
        v = list(map(int, input().split()))
        m = sum(v) / n
        print(m, (sum((x - m) ** 2 for x in v) / n) ** 0.5)
        """,
        shown=["2\n1 3\n", "3\n5 5 5\n"],
        edges=["1\n7\n", "2\n-1000 1000\n"],
        draw=lambda r: counted(numbers(r, r.randint(2, 9), -20, 20)),
        checker=FLOAT,
        difficulty="medium",
    ),
    program(
        "triangle_kind",
        "One line holds three whole numbers from 1 to 1000: the sides of a triangle, in any order. "
        "Print 'none' when there is no such triangle with a positive area, else 'right', 'acute' "
        "or 'obtuse', by its largest angle.",
        """
        a, b, c = sorted(map(int, input().split()))
        if a + b <= c:
            print("none")
        elif a * a + b * b == c * c:
            print("right")
        elif a * a + b * b > c * c:
            print("acute")
        else:
            print("obtuse")
        """,
        shown=["3 4 5\n", "1 1 3\n"],
        edges=["1 2 3\n", "5 5 5\n", "2 2 3\n", "13 5 12\n", "1 1 1\n", "6 7 8\n"],
        draw=lambda r: line(*numbers(r, 3, 1, 15)),
        difficulty="medium",
    ),
    program(
        "clock_angle",
        "One line holds a time of day as hh:mm (00:00 to 23:59). Print the smaller angle between "
        "the hands of a clock at that time, in degrees. Errors up to 10^-6 are allowed.",
        """
        h, m = map(int, input().split(":"))
        a = abs((h % 12) * 30 + m * 0.5 - m * 6)
        print(min(a, 360 - a))
        """,
        shown=["03:00\n", "12:30\n"],
        edges=["00:00\n", "18:00\n", "23:59\n", "12:00\n", "21:00\n"],
        draw=lambda r: f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}\n",
        checker=FLOAT,
        difficulty="medium",
    ),
    program(
        "two_with_sum",
        "The first line holds n and s (2 <= n <= 100, |s| <= 2000), the second n different whole "
        "numbers from -1000 to 1000. Print any two of them, at different places, that add up to s, "
        "in any order on one line; or print 'none' when there are no such two.",
        """
        n, s = map(int, input().split())
        v = list(map(int, input().split()))
        seen = set()
        answer = "none"
        for x in v:
            if s - x in seen:
                answer = f"{s - x} {x}"
                break
            seen.add(x)
        print(answer)
        """,
        shown=["4 5\n1 4 2 3\n", "2 10\n1 2\n"],
        edges=["2 0\n-3 3\n", "3 4\n2 7 9\n", "3 2\n1 5 8\n"],
        draw=lambda r: _pairs(r.sample(range(-9, 10), r.randint(2, 7)), r.randint(-12, 12)),
        checker=Checker(
            kind="program",
            source=(
                "def check(given, expected, output):\n"
                "    words = output.split()\n"
                "    if expected.split() == ['none'] or words == ['none']:\n"
                "        return words == expected.split()\n"
                "    if len(words) != 2 or words[0] == words[1]:\n"
                "        return False\n"
                "    lines = given.split('\\n')\n"
                "    total = int(lines[0].split()[1])\n"
                "    known = lines[1].split()\n"
                "    return all(w in known for w in words) and sum(map(int, words)) == total\n"
            ),
        ),
        difficulty="medium",
    ),
    program(
        "base_digits",
        "One line holds a whole number n (0 <= n <= 10^12) and a base b (2 <= b <= 16). Print n in "
        "base b, with the digits 0-9 and a-f.",
        """
        n, b = map(int, input().split())
        out = ""
        while n > 0:
            out = "0123456789abcdef"[n % b] + out
            n //= b
        print(out or "0")
        """,
        shown=["10 2\n", "255 16\n"],
        edges=["0 2\n", "1 16\n", "1000000000000 7\n", "15 16\n", "16 16\n"],
        draw=lambda r: line(r.randint(0, 10**6), r.randint(2, 16)),
    ),
)


def _pairs(values: list[int], total: int) -> str:
    return line(len(values), total) + line(*values)
